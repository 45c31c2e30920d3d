/* See header_file.h. The lines of the file, each cut by NULs into a name and a value.
 *
 * Invariant: a file is used as a whole or not at all. */
#include "common/core/header_file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HIDDEN_MIN 6 /* bytes of a value; shorter ones are not secrets */

struct header_file {
    struct secret file;
    const char *names[HEADER_FILE_MAX], *values[HEADER_FILE_MAX]; /* in the file */
    size_t count;
};

/* Headers that the request or the connection sets itself. */
static bool is_ours(const char *name, bool has_credential)
{
    static const char *const names[] = {
        "host",    "content-length", "content-type", "transfer-encoding", "connection", "expect",         "te",
        "trailer", "upgrade",        "keep-alive",   "traceparent",       "tracestate", "idempotency-key"};
    bool found = strncasecmp(name, "ce-", 3) == 0 || strncasecmp(name, "webhook-", 8) == 0 ||
                 (has_credential && strcasecmp(name, "authorization") == 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        found |= strcasecmp(name, names[i]) == 0;
    return found;
}

/* Cuts "Name: value" in place. False: it is not a header. */
static bool cut(char *line, const char **ret_name, const char **ret_value)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t length = strspn(line, token);
    if (length == 0 || line[length] != ':')
        return false;
    char *value = line + length + 1 + strspn(line + length + 1, " \t"), *end = value + strlen(value);
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        *--end = '\0';
    for (const char *at = value; *at; at++)
        if ((unsigned char)*at < ' ' || (unsigned char)*at > '~')
            return false;
    line[length] = '\0';
    *ret_name = line;
    *ret_value = value;
    return *value;
}

static bool read_lines(struct header_file *headers, bool has_credential, struct err *err)
{
    char *line = (char *)headers->file.bytes, *end = line + headers->file.length;
    if (headers->file.length > HEADER_FILE_BYTES_MAX)
        return err_set(err, ERR_CONFIG, "it has over %d bytes", HEADER_FILE_BYTES_MAX);
    if (memchr(line, '\0', headers->file.length))
        return err_set(err, ERR_CONFIG, "it has a NUL");
    for (int number = 1; line < end; number++) {
        char *next = line + strcspn(line, "\n");
        if (next > line && next[-1] == '\r')
            next[-1] = '\0';
        *next = '\0';
        if (*line) {
            size_t at = headers->count;
            if (at == HEADER_FILE_MAX)
                return err_set(err, ERR_CONFIG, "it has more than %d headers", HEADER_FILE_MAX);
            if (!cut(line, &headers->names[at], &headers->values[at]))
                return err_set(err, ERR_CONFIG, "line %d is not \"Name: value\"", number);
            if (is_ours(headers->names[at], has_credential))
                return err_set(err, ERR_CONFIG, "line %d: %.40s is set by the program itself", number,
                               headers->names[at]);
            headers->count++;
        }
        line = next + 1;
    }
    return true;
}

bool header_file_read(struct secret *lines, bool has_credential, struct header_file **ret_headers, struct err *err)
{
    struct header_file *headers = calloc(1, sizeof(*headers));
    if (!headers) {
        secret_done(lines);
        return err_set(err, ERR_MEMORY, "no memory for headers");
    }
    headers->file = *lines;
    if (!read_lines(headers, has_credential, err)) {
        header_file_free(headers);
        return false;
    }
    *ret_headers = headers;
    return true;
}

bool header_file_load(const char *path, bool has_credential, struct header_file **ret_headers, struct err *err)
{
    struct secret file;
    return secret_load(&file, path, err) &&
           (header_file_read(&file, has_credential, ret_headers, err) || err_prefix(err, "%s", path));
}

void header_file_free(struct header_file *headers)
{
    if (headers)
        secret_done(&headers->file);
    free(headers);
}

void header_file_put(const struct header_file *headers, struct http_call *call)
{
    for (size_t i = 0; headers && i < headers->count; i++)
        http_call_header(call, headers->names[i], headers->values[i]);
}

size_t header_file_values(const struct header_file *headers, const char *const **ret_values)
{
    *ret_values = headers ? headers->values : NULL;
    return headers ? headers->count : 0;
}

bool header_file_has_value_in(const struct header_file *headers, struct slice text)
{
    for (size_t i = 0; headers && i < headers->count; i++)
        if (strlen(headers->values[i]) >= HIDDEN_MIN &&
            memmem(text.bytes, text.length, headers->values[i], strlen(headers->values[i])))
            return true;
    return false;
}
