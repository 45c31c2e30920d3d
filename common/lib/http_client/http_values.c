/* The grammar of the few header values that decide something, and percent-encoding.
 *
 * Invariants: pure; what does not follow the grammar is "none", never a guess.
 * Left out: header lists, quoted strings, anything that only a server needs (http_conn.c, api/). */
#include "common/lib/http_client/http_values.h"

#include <string.h>
#include <strings.h>
#include <time.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool parse_date(const char *text, int64_t *ret_seconds)
{
    static const char *const forms[] = {
        "%a, %d %b %Y %H:%M:%S GMT", /* IMF-fixdate */
        "%A, %d-%b-%y %H:%M:%S GMT", /* RFC 850 */
        "%a %b %e %H:%M:%S %Y",      /* asctime */
    };
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        struct tm date = {.tm_sec = 0};
        const char *end = strptime(text, forms[i], &date);
        if (end && !*end) {
            *ret_seconds = timegm(&date);
            return true;
        }
    }
    return false;
}

int64_t http_retry_after_ms(struct slice value, int64_t now_ms)
{
    char text[64];
    if (value.length == 0 || value.length >= sizeof(text))
        return -1;
    memcpy(text, value.bytes, value.length);
    text[value.length] = '\0';
    int64_t wait_ms = 0;
    if (strspn(text, "0123456789") == value.length) {
        for (const char *digit = text; *digit && wait_ms < HTTP_RETRY_AFTER_MAX_MS; digit++)
            wait_ms = wait_ms * 10 + (*digit - '0') * 1000;
    } else {
        int64_t date_s = 0;
        if (!parse_date(text, &date_s) || date_s < now_ms / 1000)
            return -1;
        wait_ms = date_s * 1000 > now_ms ? date_s * 1000 - now_ms : 0;
    }
    return wait_ms < HTTP_RETRY_AFTER_MAX_MS ? wait_ms : HTTP_RETRY_AFTER_MAX_MS;
}

bool http_is_json(struct slice value)
{
    static const char start[] = "application/", end[] = "+json";
    size_t start_length = sizeof(start) - 1, end_length = sizeof(end) - 1, length = 0;
    while (length < value.length && value.bytes[length] != ';' && !is_blank(value.bytes[length]))
        length++;
    struct slice type = {.bytes = value.bytes, .length = length};
    if (http_same_word(type, "application/json"))
        return true;
    return length > start_length + end_length && strncasecmp(type.bytes, start, start_length) == 0 &&
           strncasecmp(type.bytes + length - end_length, end, end_length) == 0;
}

static bool is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

bool http_put_encoded(struct buf *out, const char *text, size_t length)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0, first = 0; i < length; first = ++i) {
        while (i < length && is_unreserved(text[i]))
            i++;
        if (i > first)
            buf_put(out, text + first, i - first);
        if (i == length)
            break;
        unsigned char byte = (unsigned char)text[i];
        const char escaped[3] = {'%', hex[byte >> 4], hex[byte & 15]};
        buf_put(out, escaped, sizeof(escaped));
    }
    return !out->failed;
}

bool http_put_segment(struct buf *out, const char *text, size_t length)
{
    bool is_dots = length <= 2 && memcmp(text, "..", length) == 0; /* an empty one too */
    /* guard: no URL gets a dot segment */
    out->failed |= is_dots;
    return !is_dots && http_put_encoded(out, text, length);
}
