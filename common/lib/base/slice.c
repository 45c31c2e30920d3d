/* See slice.h. */
#include "common/lib/base/slice.h"

struct slice slice_of(const char *text)
{
    return (struct slice){.bytes = text, .length = strlen(text)};
}

bool slice_begins(struct slice slice, const char *text)
{
    size_t length = strlen(text);
    return slice.length >= length && (length == 0 || memcmp(slice.bytes, text, length) == 0);
}

void slice_copy(struct slice slice, char *ret_text, size_t size)
{
    size_t length = slice.bytes && slice.length < size ? slice.length : 0;
    if (length > 0)
        memcpy(ret_text, slice.bytes, length);
    ret_text[length] = '\0';
}

struct slice slice_take(struct slice *rest, char separator)
{
    const char *end = rest->length > 0 ? memchr(rest->bytes, separator, rest->length) : NULL;
    struct slice part = {.bytes = rest->bytes, .length = end ? (size_t)(end - rest->bytes) : rest->length};
    size_t used = part.length + (end ? 1 : 0);
    if (used > 0)
        *rest = (struct slice){.bytes = rest->bytes + used, .length = rest->length - used};
    return part;
}

struct slice slice_unquote(struct slice slice)
{
    bool is_quoted = slice.length >= 2 && slice.bytes[0] == '"' && slice.bytes[slice.length - 1] == '"';
    return is_quoted ? (struct slice){.bytes = slice.bytes + 1, .length = slice.length - 2} : slice;
}

int slice_among(struct slice slice, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (slice_is(slice, words[i]))
            return (int)i;
    return -1;
}

bool slice_number(struct slice slice, size_t digits_max, int64_t *ret_number)
{
    int64_t number = 0;
    if (slice.length == 0 || slice.length > digits_max)
        return false;
    for (size_t i = 0; i < slice.length; i++) {
        if (slice.bytes[i] < '0' || slice.bytes[i] > '9')
            return false;
        number = number * 10 + (slice.bytes[i] - '0');
    }
    *ret_number = number;
    return true;
}

size_t slice_read_hex(struct slice slice, unsigned char *ret_bytes, size_t size)
{
    if (slice.length % 2 != 0 || slice.length > 2 * size)
        return 0;
    for (size_t i = 0; i < slice.length; i += 2) {
        int byte = hex_byte(slice.bytes + i);
        if (byte < 0)
            return 0;
        ret_bytes[i / 2] = (unsigned char)byte;
    }
    return slice.length / 2;
}
