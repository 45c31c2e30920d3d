/* What the request line and the header block of a request must look like, beyond what llhttp refuses: RFC 9112 sections
 * 3 and 6, RFC 9110 7.2.
 *
 * Pure functions; what could be read in two ways is refused. Left out: where the block ends and obs-fold
 * (http_parse.c), what a header means to the program (its handlers). */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "common/lib/http_server/http_server_internal.h"

static const struct http_refusal fine = {0};

static struct http_refusal refuse(int status, const char *detail)
{
    return (struct http_refusal){.status = status, .detail = detail};
}

static bool is_alnum_or(char byte, const char *others)
{
    return isalnum((unsigned char)byte) || (byte != '\0' && strchr(others, byte) != NULL);
}

struct slice http_header(const struct http_request *request, const char *name, int *ret_count)
{
    struct slice first = {0};
    int count = 0;
    for (int i = 0; i < request->header_count; i++) {
        if (slice_is_nocase(request->headers[i].name, name) && count++ == 0)
            first = request->headers[i].value;
    }
    if (ret_count)
        *ret_count = count;
    return first;
}

/* ---- the request line ---- */

static struct http_refusal check_version(struct slice version, bool *ret_is_1_0)
{
    *ret_is_1_0 = slice_is(version, "HTTP/1.0");
    if (*ret_is_1_0 || slice_is(version, "HTTP/1.1"))
        return fine;
    const char *text = version.bytes;
    bool is_version = version.length == 8 && memcmp(text, "HTTP/", 5) == 0 && isdigit((unsigned char)text[5]) &&
                      text[6] == '.' && isdigit((unsigned char)text[7]);
    if (is_version && text[5] != '0')
        return refuse(505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    return refuse(400, "malformed request line");
}

/* The length of "http://host:port" in front of a path, 0 = none. */
static size_t authority_of(struct slice target)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
        size_t length = strlen(schemes[i]);
        if (target.length <= length || strncasecmp(target.bytes, schemes[i], length) != 0)
            continue;
        const char *path = memchr(target.bytes + length, '/', target.length - length);
        return path ? (size_t)(path - target.bytes) : 0;
    }
    return 0;
}

/* The origin form, and the absolute one where a path follows its authority (RFC 9112, 3.2.2). The other two are for
 * proxies. */
static struct http_refusal check_target(struct slice target, size_t target_max, size_t *ret_authority_length)
{
    if (target.length > target_max)
        return refuse(414, "the request target is too long");
    *ret_authority_length = authority_of(target);
    if (target.length == 0 || target.bytes[*ret_authority_length] != '/')
        return refuse(400, "the request target must begin with a slash, or with http:// and a host");
    for (size_t i = 0; i < target.length; i++) {
        unsigned char byte = (unsigned char)target.bytes[i];
        if (byte <= 0x20 || byte >= 0x7F || byte == '#')
            return refuse(400, "a character in the request target is not allowed");
    }
    return fine;
}

static enum http_method method_of(struct slice text)
{
    if (slice_is(text, "GET"))
        return HTTP_GET;
    if (slice_is(text, "POST"))
        return HTTP_POST;
    if (slice_is(text, "HEAD"))
        return HTTP_HEAD;
    if (slice_is(text, "PATCH"))
        return HTTP_PATCH;
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
    if (slice_is(method, "CONNECT") || slice_is(method, "PRI"))
        return refuse(400, "this method is not for an origin server");
    return check_target((struct slice){.bytes = target, .length = ret_line->target_length}, target_max,
                        &ret_line->authority_length);
}

/* ---- the fields ---- */

/* Host names are opaque here, but nothing passes that another reader could take for a different authority. */
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
        if (slice_is_nocase(name, "Host")) {
            hosts++;
            is_host_fine = is_host(value);
        } else if (slice_is_nocase(name, "Expect")) {
            expects++;
            is_continue = is_continue && slice_is_nocase(value, "100-continue");
        } else if (slice_is_nocase(name, "Content-Length")) {
            lengths++;
        } else if (slice_is_nocase(name, "Transfer-Encoding")) {
            encodings++;
            is_chunked = is_chunked && slice_is_nocase(value, "chunked");
        }
    }
    *ret_expects = expects > 0 && !is_1_0;
    /* guard: a request has one Host */
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

/* RFC 9112, 3.2.2, lets the target's authority win; two readers may differ, so both must be the same. */
struct http_refusal http_check_authority(const struct http_request *request, struct slice authority)
{
    struct slice host = http_header(request, "Host", NULL);
    const char *colon = memchr(authority.bytes, ':', authority.length);
    size_t scheme = (size_t)(colon - authority.bytes) + 3;
    struct slice named = {.bytes = authority.bytes + scheme, .length = authority.length - scheme};
    /* guard: a target in absolute form names the host that Host names */
    if (named.length != host.length || strncasecmp(named.bytes, host.bytes, host.length) != 0)
        return refuse(400, "the request target names another host than the Host field");
    return fine;
}
