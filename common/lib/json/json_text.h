/* The bytes of a JSON text: what the check (json_strict.h) and the walkers (json_value.h) have in common. */
#ifndef ISSUING_JSON_TEXT_H
#define ISSUING_JSON_TEXT_H

#include <endian.h>

#include "common/lib/base/base.h"
#include "common/lib/base/utf8.h"

static inline bool json_text_is_space(unsigned char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline bool json_text_is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

/* A byte of a string that needs no further check: ASCII, no control character, quote or backslash. */
static inline bool json_text_is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* How many of the next eight bytes are plain before the first that is not. */
static inline size_t json_text_plain_of_eight(const unsigned char *at)
{
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    uint64_t word;
    memcpy(&word, at, sizeof(word));
    word = le64toh(word);
    uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\';
    /* The lowest bit is exact: a subtraction borrows only from bytes behind one that is not plain itself. */
    uint64_t others = (word | (word - ones * 0x20) | (quote - ones) | (backslash - ones)) & highs;
    return others ? (size_t)__builtin_ctzll(others) / 8 : 8;
}

/* Behind the plain bytes that begin at `at`. */
static inline const unsigned char *json_text_plain_end(const unsigned char *at, const unsigned char *end)
{
    while (end - at >= 8) {
        size_t count = json_text_plain_of_eight(at);
        at += count;
        if (count < 8)
            return at;
    }
    while (at < end && json_text_is_plain(*at))
        at++;
    return at;
}

/* The length of the code point, at most U+10FFFF, in UTF-8. */
size_t json_text_encode(uint32_t code, char out[4]);
/* Reads the escape that starts at the backslash `at`. Returns its raw length, or 0 when RFC 8259 does not have it, or
 * when it is a lone surrogate or U+0000. */
size_t json_text_escape(const unsigned char *at, const unsigned char *end, uint32_t *ret_code);
/* The raw length of any escape of RFC 8259, a lone surrogate and U+0000 among them, or 0. */
size_t json_text_any_escape(const unsigned char *at, const unsigned char *end);

/* The inside of a string, unescaped byte by byte. Begins with {.at, .end}; at its end when at == end and used ==
 * count. */
struct json_text_reader {
    const unsigned char *at, *end;
    char bytes[4]; /* of the last escape */
    size_t used, count;
};
/* Precondition: it is not at its end. */
unsigned char json_text_next(struct json_text_reader *reader);

#endif
