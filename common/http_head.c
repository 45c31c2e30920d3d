/* What the request line and the header block of a request must look like, beyond what llhttp refuses: RFC 9112
 * sections 3 and 6, RFC 9110 7.2.
 *
 * Pure functions; whatever could be read in two ways is refused. Left out: where the block ends and obs-fold
 * (http_parse.c), what a header means to the program (its handlers). */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "common/http_conn.h"

static const struct http_refusal fine = {0};

static struct http_refusal refuse(int status, const char *detail)
{
    return (struct http_refusal){.status = status, .detail = detail};
}

static bool is_alnum_or(char byte, const char *others)
{
    return isalnum((unsigned char)byte) || (byte != '\0' && strchr(others, byte) != NULL);
}

static bool is(struct slice slice, struct slice text)
{
    return slice.length == text.length && memcmp(slice.bytes, text.bytes, text.length) == 0;
}

static bool is_ignoring_case(struct slice slice, struct slice text)
{
    return slice.length == text.length && strncasecmp(slice.bytes, text.bytes, text.length) == 0;
}

struct slice http_header(const struct http_request *request, const char *name, int *ret_count)
{
    struct slice wanted = {.bytes = name, .length = strlen(name)}, first = {0};
    int count = 0;
    for (int i = 0; i < request->header_count; i++) {
        if (is_ignoring_case(request->headers[i].name, wanted) && count++ == 0)
            first = request->headers[i].value;
    }
    if (ret_count)
        *ret_count = count;
    return first;
}

/* ---- the request line ---- */

static struct http_refusal check_version(struct slice version, bool *ret_is_1_0)
{
    *ret_is_1_0 = is(version, SLICE("HTTP/1.0"));
    if (*ret_is_1_0 || is(version, SLICE("HTTP/1.1")))
        return fine;
    const char *text = version.bytes;
    bool is_version = version.length == 8 && memcmp(text, "HTTP/", 5) == 0 && isdigit((unsigned char)text[5]) &&
                      text[6] == '.' && isdigit((unsigned char)text[7]);
    if (is_version && text[5] != '0')
        return refuse(505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    return refuse(400, "malformed request line");
}

/* Only the origin form: the other three belong to proxies, and a second authority besides Host is a second opinion. */
static struct http_refusal check_target(struct slice target, size_t target_max)
{
    if (target.length > target_max)
        return refuse(414, "the request target is too long");
    if (target.length == 0 || target.bytes[0] != '/')
        return refuse(400, "the request target must begin with a slash");
    for (size_t i = 0; i < target.length; i++) {
        unsigned char byte = (unsigned char)target.bytes[i];
        if (byte <= 0x20 || byte >= 0x7F || byte == '#')
            return refuse(400, "a character in the request target is not allowed");
    }
    return fine;
}

static enum http_method method_of(struct slice text)
{
    if (is(text, SLICE("GET")))
        return HTTP_GET;
    if (is(text, SLICE("POST")))
        return HTTP_POST;
    if (is(text, SLICE("HEAD")))
        return HTTP_HEAD;
    return HTTP_OTHER;
}

struct http_refusal http_check_line(struct slice line, size_t target_max, struct http_line *ret_line)
{
    const char *end = line.bytes + line.length;
    size_t method_length = 0;
    while (method_length < line.length && is_alnum_or(line.bytes[method_length], "!#$%&'*+-.^_`|~"))
        method_length++;
    if (method_length == 0 || method_length > HTTP_METHOD_MAX || method_length == line.length ||
        line.bytes[method_length] != ' ')
        return refuse(400, "malformed request line");
    struct slice method = {.bytes = line.bytes, .length = method_length};
    const char *target = method.bytes + method_length + 1;
    const char *target_end = memchr(target, ' ', (size_t)(end - target));
    if (!target_end)
        return refuse(400, "malformed request line");
    *ret_line = (struct http_line){
        .method = method_of(method), .method_length = method_length, .target_length = (size_t)(target_end - target)};
    struct slice version = {.bytes = target_end + 1, .length = (size_t)(end - target_end) - 1};
    struct http_refusal refusal = check_version(version, &ret_line->is_1_0);
    if (refusal.status != 0)
        return refusal;
    if (is(method, SLICE("CONNECT")) || is(method, SLICE("PRI")))
        return refuse(400, "this method is not for an origin server");
    return check_target((struct slice){.bytes = target, .length = ret_line->target_length}, target_max);
}

/* ---- the fields ---- */

/* Names stay opaque, but nothing passes that another reader could take for a different authority. */
static bool is_host(struct slice value)
{
    size_t length = value.length, i = 0;
    if (length > 0 && value.bytes[0] == '[') {
        for (i = 1; i < length && value.bytes[i] != ']'; i++) {
            if (!isxdigit((unsigned char)value.bytes[i]) && value.bytes[i] != ':' && value.bytes[i] != '.')
                return false;
        }
        if (i == length || i == 1)
            return false;
        i++;
    } else {
        while (i < length && is_alnum_or(value.bytes[i], "-._~%!$&'()*+,;="))
            i++;
        if (i == 0)
            return false;
    }
    if (i < length && value.bytes[i++] != ':')
        return false;
    while (i < length && isdigit((unsigned char)value.bytes[i]))
        i++;
    return i == length;
}

struct http_refusal http_check_fields(const struct http_request *request, bool is_1_0, bool *ret_expects)
{
    int hosts = 0, lengths = 0, encodings = 0, expects = 0;
    bool is_host_fine = true, is_chunked = true, is_continue = true;
    for (int i = 0; i < request->header_count; i++) {
        struct slice name = request->headers[i].name, value = request->headers[i].value;
        if (is_ignoring_case(name, SLICE("Host"))) {
            hosts++;
            is_host_fine = is_host(value);
        } else if (is_ignoring_case(name, SLICE("Expect"))) {
            expects++;
            is_continue = is_continue && is_ignoring_case(value, SLICE("100-continue"));
        } else if (is_ignoring_case(name, SLICE("Content-Length"))) {
            lengths++;
        } else if (is_ignoring_case(name, SLICE("Transfer-Encoding"))) {
            encodings++;
            is_chunked = is_chunked && is_ignoring_case(value, SLICE("chunked"));
        }
    }
    *ret_expects = expects > 0 && !is_1_0;
    if (hosts > 1 || (hosts == 0 && !is_1_0))
        return refuse(400, "exactly one Host field is required");
    if (!is_host_fine)
        return refuse(400, "the Host field is malformed");
    if (lengths > 1)
        return refuse(400, "more than one Content-Length");
    if (encodings > 0 && lengths > 0)
        return refuse(400, "Content-Length together with Transfer-Encoding");
    if (encodings > 0 && is_1_0)
        return refuse(400, "Transfer-Encoding in HTTP/1.0");
    if (encodings > 1 || !is_chunked)
        return refuse(400, "the only Transfer-Encoding known here is chunked");
    if (*ret_expects && !is_continue)
        return refuse(417, "the only Expect known here is 100-continue");
    return fine;
}
