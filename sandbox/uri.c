/* Decodes what stands in a request target. Leaves out: normalising and dot segments; such a path is simply not found.
 * */
#include "sandbox/uri.h"

#include <stdlib.h>
#include <string.h>

static int hex_of(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

bool uri_decode(struct slice text, char *ret_text, size_t size)
{
    size_t length = 0;
    for (size_t i = 0; i < text.length; i++) {
        char byte = text.bytes[i];
        if (byte == '%') {
            int high = i + 2 < text.length ? hex_of(text.bytes[i + 1]) : -1;
            int low = i + 2 < text.length ? hex_of(text.bytes[i + 2]) : -1;
            if (high < 0 || low < 0 || (high == 0 && low == 0))
                return false;
            byte = (char)(high * 16 + low);
            i += 2;
        }
        if (length + 1 >= size)
            return false;
        ret_text[length++] = byte;
    }
    ret_text[length] = '\0';
    return true;
}

bool uri_query(struct slice query, const char *name, char *ret_text, size_t size)
{
    size_t name_length = strlen(name);
    for (size_t at = 0; at < query.length;) {
        const char *pair = query.bytes + at;
        const char *end = memchr(pair, '&', query.length - at);
        size_t length = end ? (size_t)(end - pair) : query.length - at;
        if (length > name_length && pair[name_length] == '=' && memcmp(pair, name, name_length) == 0) {
            struct slice value = {.bytes = pair + name_length + 1, .length = length - name_length - 1};
            return uri_decode(value, ret_text, size);
        }
        at += length + 1;
    }
    return false;
}

size_t uri_query_number(struct slice query, const char *name, size_t otherwise)
{
    char text[20];
    if (!uri_query(query, name, text, sizeof(text)) || !*text || strspn(text, "0123456789") != strlen(text))
        return otherwise;
    return strtoull(text, NULL, 10);
}

bool uri_segment(struct slice path, const char *before, const char *after, struct slice *ret_segment)
{
    size_t head = strlen(before), tail = strlen(after);
    if (path.length <= head + tail || memcmp(path.bytes, before, head) != 0 ||
        memcmp(path.bytes + path.length - tail, after, tail) != 0)
        return false;
    struct slice segment = {.bytes = path.bytes + head, .length = path.length - head - tail};
    if (memchr(segment.bytes, '/', segment.length))
        return false;
    *ret_segment = segment;
    return true;
}

bool uri_is(struct slice path, const char *text)
{
    return path.length == strlen(text) && memcmp(path.bytes, text, path.length) == 0;
}
