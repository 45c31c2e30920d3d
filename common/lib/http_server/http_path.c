/* See http_path.h. Left out: normalising of paths, '+' as a blank, repeated parameters (their callers decide). */
#include "common/lib/http_server/http_path.h"

#include <assert.h>
#include <stdlib.h>

bool http_path_matches(struct slice path, const char *pattern, struct slice *ret_segments)
{
    size_t at = 0;
    while (*pattern != '\0') {
        if (*pattern == '{') {
            const char *end = strchr(pattern, '}');
            assert(end);
            size_t start = at;
            while (at < path.length && path.bytes[at] != '/')
                at++;
            if (at == start)
                return false;
            *ret_segments++ = (struct slice){.bytes = path.bytes + start, .length = at - start};
            pattern = end + 1;
        } else if (at < path.length && path.bytes[at] == *pattern) {
            at++;
            pattern++;
        } else {
            return false;
        }
    }
    return at == path.length;
}

bool http_query_next(struct slice *query, struct http_query_pair *ret_pair)
{
    if (query->length == 0)
        return false;
    const char *start = query->bytes, *end = memchr(start, '&', query->length);
    size_t length = end ? (size_t)(end - start) : query->length;
    const char *equals = memchr(start, '=', length);
    size_t name_length = equals ? (size_t)(equals - start) : length;
    size_t value_start = equals ? name_length + 1 : length;
    *ret_pair = (struct http_query_pair){
        .name = {.bytes = start, .length = name_length},
        .value = {.bytes = start + value_start, .length = length - value_start},
        .has_value = equals != NULL,
    };
    size_t taken = length + (end ? 1 : 0);
    query->bytes += taken;
    query->length -= taken;
    return true;
}

bool http_query_text(struct slice query, const char *name, char *ret_text, size_t size)
{
    struct http_query_pair pair;
    while (http_query_next(&query, &pair)) {
        if (pair.has_value && slice_is(pair.name, name))
            return http_percent_decode(pair.value, ret_text, size);
    }
    return false;
}

size_t http_query_number(struct slice query, const char *name, size_t otherwise)
{
    char text[20];
    if (!http_query_text(query, name, text, sizeof(text)) || !*text || strspn(text, "0123456789") != strlen(text))
        return otherwise;
    return strtoull(text, NULL, 10);
}

bool http_percent_decode(struct slice text, char *ret_text, size_t size)
{
    size_t length = 0;
    for (size_t i = 0; i < text.length; i++) {
        char byte = text.bytes[i];
        if (byte == '%') {
            int decoded = i + 2 < text.length ? hex_byte(text.bytes + i + 1) : -1;
            if (decoded <= 0)
                return false;
            byte = (char)decoded;
            i += 2;
        }
        if (length + 1 >= size)
            return false;
        ret_text[length++] = byte;
    }
    ret_text[length] = '\0';
    return true;
}
