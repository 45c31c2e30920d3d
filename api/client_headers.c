/* See client_headers.h. */
#include "api/client_headers.h"

#include <string.h>

#include "common/lib/base/slice.h"

/* ---- Idempotency-Key ---- */

static bool is_lcalpha(char c)
{
    return (c >= 'a' && c <= 'z') || c == '*';
}

/* *( ";" *SP key [ "=" bare-item ] ), read loosely inside the values: they are ignored, but a second Item or garbage is
 * not a parameter. */
static bool is_parameters(struct slice rest)
{
    size_t at = 0;
    while (at < rest.length) {
        if (rest.bytes[at++] != ';')
            return false;
        while (at < rest.length && rest.bytes[at] == ' ')
            at++;
        if (at >= rest.length || !is_lcalpha(rest.bytes[at]))
            return false;
        while (at < rest.length && rest.bytes[at] != '=' && rest.bytes[at] != ';') {
            char c = rest.bytes[at++];
            if (!is_lcalpha(c) && !(c >= '0' && c <= '9') && c != '_' && c != '-' && c != '.')
                return false;
        }
        if (at >= rest.length || rest.bytes[at] == ';')
            continue;
        at++;
        if (at + 1 < rest.length && rest.bytes[at] == '%' && rest.bytes[at + 1] == '"') /* a Display String */
            at++;
        if (at < rest.length && rest.bytes[at] == '"') {
            for (at++; at < rest.length && rest.bytes[at] != '"'; at++)
                if (rest.bytes[at] == '\\')
                    at++;
            if (at++ >= rest.length)
                return false;
        } else {
            size_t start = at;
            while (at < rest.length && rest.bytes[at] != ';' && rest.bytes[at] > 0x20 && rest.bytes[at] < 0x7f &&
                   !strchr("\",", rest.bytes[at]))
                at++;
            if (at == start)
                return false;
        }
    }
    return true;
}

/* Always false: "return refuse(...)". */
static bool refuse(const char **ret_fault, const char *fault)
{
    *ret_fault = fault;
    return false;
}

static bool read_quoted(struct slice value, struct client_key *ret_key, const char **ret_fault)
{
    struct client_key key = {.length = 0};
    size_t at = 1;
    for (;; at++) {
        if (at >= value.length)
            return refuse(ret_fault, "the quotes of Idempotency-Key are not closed");
        char c = value.bytes[at];
        if (c == '"')
            break;
        if (c == '\\') {
            at++;
            if (at >= value.length || (value.bytes[at] != '"' && value.bytes[at] != '\\'))
                return refuse(ret_fault, "in Idempotency-Key a backslash may only stand before a quote or a backslash");
            c = value.bytes[at];
        }
        if (c < 0x20 || c > 0x7e)
            return refuse(ret_fault, "Idempotency-Key has a byte outside 0x20-0x7E");
        if (key.length == OUTBOX_KEY_MAX)
            return refuse(ret_fault, "Idempotency-Key is longer than 255 bytes");
        key.text[key.length++] = c;
    }
    if (!is_parameters((struct slice){value.bytes + at + 1, value.length - at - 1}))
        return refuse(ret_fault, "Idempotency-Key is not one structured-field String");
    if (key.length == 0)
        return refuse(ret_fault, "Idempotency-Key is empty");
    *ret_key = key;
    return true;
}

bool header_read_key(struct slice value, struct client_key *ret_key, const char **ret_fault)
{
    value = slice_trim(value);
    if (value.length == 0)
        return refuse(ret_fault, "Idempotency-Key is empty");
    if (value.bytes[0] == '"')
        return read_quoted(value, ret_key, ret_fault);
    if (value.length > OUTBOX_KEY_MAX)
        return refuse(ret_fault, "Idempotency-Key is longer than 255 bytes");
    for (size_t i = 0; i < value.length; i++)
        if (value.bytes[i] < 0x21 || value.bytes[i] > 0x7e || strchr("\",;\\", value.bytes[i]))
            return refuse(ret_fault, "a bare Idempotency-Key has only bytes 0x21-0x7E and none of \" , ; \\");
    memcpy(ret_key->text, value.bytes, value.length);
    ret_key->text[value.length] = '\0';
    ret_key->length = value.length;
    return true;
}

/* ---- Prefer ---- */

/* One preference, e.g. `wait = "10"`. true: it is a wait; *ret_seconds -1 when unreadable. */
static bool is_wait(struct slice item, int *ret_seconds)
{
    struct slice value = slice_take(&item, ';'), name = slice_take(&value, '=');
    if (!slice_is_nocase(slice_trim(name), "wait"))
        return false;
    *ret_seconds = -1;
    value = slice_unquote(slice_trim(value));
    if (value.length == 0)
        return true;
    int seconds = 0;
    for (size_t i = 0; i < value.length; i++) {
        if (value.bytes[i] < '0' || value.bytes[i] > '9')
            return true;
        seconds = seconds > PREFER_WAIT_MAX_S ? seconds : seconds * 10 + (value.bytes[i] - '0');
    }
    *ret_seconds = seconds > PREFER_WAIT_MAX_S ? PREFER_WAIT_MAX_S : seconds;
    return true;
}

int header_read_wait(const struct http_request *request)
{
    for (int i = 0; i < request->header_count; i++) {
        struct slice name = request->headers[i].name, value = request->headers[i].value;
        if (!slice_is_nocase(name, "prefer"))
            continue;
        while (value.length > 0) {
            int seconds;
            if (is_wait(slice_take(&value, ','), &seconds))
                return seconds < 0 ? 0 : seconds;
        }
    }
    return 0;
}

/* ---- Content-Type, traceparent, tracestate ---- */

bool header_is_json(struct slice content_type)
{
    if (!slice_is_nocase(slice_trim(slice_take(&content_type, ';')), "application/json"))
        return false;
    while (content_type.length > 0) {
        struct slice parameter = slice_trim(slice_take(&content_type, ';')), value = parameter;
        struct slice name = slice_take(&value, '=');
        bool is_charset = slice_is_nocase(name, "charset") && name.length < parameter.length;
        if (is_charset && !slice_is_nocase(slice_unquote(value), "utf-8"))
            return false;
    }
    return true;
}

struct slice header_read_trace(const struct http_request *request)
{
    int count;
    struct slice text = slice_trim(http_header(request, "traceparent", &count));
    return count == 1 && trace_is_valid(text) ? text : (struct slice){0};
}

struct slice header_read_trace_state(const struct http_request *request, char ret_text[TRACE_STATE_SIZE])
{
    size_t length = 0;
    for (int i = 0; i < request->header_count; i++) {
        struct slice name = request->headers[i].name, value = request->headers[i].value;
        if (!slice_is_nocase(name, "tracestate") || value.length == 0)
            continue;
        if (length + (length > 0) + value.length > TRACE_STATE_MAX)
            return (struct slice){0};
        if (length > 0)
            ret_text[length++] = ',';
        memcpy(ret_text + length, value.bytes, value.length);
        length += value.length;
    }
    struct slice text = slice_trim((struct slice){ret_text, length});
    return trace_state_is_valid(text) ? text : (struct slice){0};
}
