/* See json_text.h. Nothing is read outside [at, end). */
#include "common/lib/json/json_text.h"

size_t json_text_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

/* The four hex digits after \u, or -1. */
static int32_t hex4(const unsigned char *at, const unsigned char *end)
{
    int32_t code = 0;

    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit((char)at[i]);
        if (digit < 0)
            return -1;
        code = code << 4 | digit;
    }
    return code;
}

size_t json_text_escape(const unsigned char *at, const unsigned char *end, uint32_t *ret_code)
{
    int32_t high, low;

    if (end - at < 2)
        return 0;
    switch (at[1]) {
    case '"':
    case '\\':
    case '/':
        *ret_code = at[1];
        return 2;
    case 'b':
        *ret_code = '\b';
        return 2;
    case 'f':
        *ret_code = '\f';
        return 2;
    case 'n':
        *ret_code = '\n';
        return 2;
    case 'r':
        *ret_code = '\r';
        return 2;
    case 't':
        *ret_code = '\t';
        return 2;
    case 'u':
        break;
    default:
        return 0;
    }
    high = hex4(at + 2, end);
    if (high <= 0 || (high >= 0xDC00 && high <= 0xDFFF))
        return 0;
    if (high < 0xD800 || high > 0xDBFF) {
        *ret_code = (uint32_t)high;
        return 6;
    }
    if (end - at < 12 || at[6] != '\\' || at[7] != 'u')
        return 0;
    low = hex4(at + 8, end);
    if (low < 0xDC00 || low > 0xDFFF)
        return 0;
    *ret_code = 0x10000 + (((uint32_t)high - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
    return 12;
}

size_t json_text_any_escape(const unsigned char *at, const unsigned char *end)
{
    uint32_t code;
    size_t length = json_text_escape(at, end, &code);
    return length == 0 && end - at >= 6 && at[1] == 'u' && hex4(at + 2, end) >= 0 ? 6 : length;
}

unsigned char json_text_next(struct json_text_reader *reader)
{
    if (reader->used < reader->count)
        return (unsigned char)reader->bytes[reader->used++];
    if (*reader->at == '\\') {
        uint32_t code = 0;
        reader->at += json_text_escape(reader->at, reader->end, &code);
        reader->count = json_text_encode(code, reader->bytes);
        reader->used = 1;
        return (unsigned char)reader->bytes[0];
    }
    return *reader->at++;
}
