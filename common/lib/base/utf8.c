/* See utf8.h. Nothing is read outside [at, end). */
#include "common/lib/base/utf8.h"

size_t utf8_length(const unsigned char *at, const unsigned char *end)
{
    size_t left = (size_t)(end - at);
    unsigned char first = at[0];

    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        return left >= 2 && (at[1] & 0xC0) == 0x80 ? 2 : 0;
    if (first >= 0xE0 && first <= 0xEF) {
        if (left < 3 || (at[1] & 0xC0) != 0x80 || (at[2] & 0xC0) != 0x80)
            return 0;
        if ((first == 0xE0 && at[1] < 0xA0) || (first == 0xED && at[1] > 0x9F))
            return 0;
        return 3;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        if (left < 4 || (at[1] & 0xC0) != 0x80 || (at[2] & 0xC0) != 0x80 || (at[3] & 0xC0) != 0x80)
            return 0;
        if ((first == 0xF0 && at[1] < 0x90) || (first == 0xF4 && at[1] > 0x8F))
            return 0;
        return 4;
    }
    return 0;
}

uint32_t utf8_code(const unsigned char *at, size_t length)
{
    uint32_t code = length == 1 ? at[0] : at[0] & (0x7fU >> length);
    for (size_t i = 1; i < length; i++)
        code = code << 6 | (at[i] & 0x3fU);
    return code;
}

bool utf8_is(const char *bytes, size_t length)
{
    const unsigned char *at = (const unsigned char *)bytes, *end = at + length;
    for (size_t step; at < end; at += step)
        if ((step = utf8_length(at, end)) == 0)
            return false;
    return true;
}
