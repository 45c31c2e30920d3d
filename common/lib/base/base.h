/* Macros that every module uses, and slices: bytes in memory that another object owns. */
#ifndef ISSUING_BASE_H
#define ISSUING_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* The caller must look at the result: ignoring it is a compile error under -Werror. */
#define must_check __attribute__((warn_unused_result))
#define printf_like(text, first) __attribute__((format(printf, text, first)))
/* Scope cleanup for synchronous functions only; never on anything that owns a uv handle. */
#define on_scope_end(function) __attribute__((cleanup(function)))

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* Borrowed bytes. Not terminated. `bytes` may be NULL when there are none. */
struct slice {
    const char *bytes;
    size_t length;
};

#define SLICE(literal) ((struct slice){.bytes = (literal), .length = sizeof(literal) - 1})

/* Whether the slice holds exactly the bytes of `text`. */
static inline bool slice_is(struct slice slice, const char *text)
{
    size_t length = strlen(text);
    return slice.length == length && (length == 0 || memcmp(slice.bytes, text, length) == 0);
}

/* Without the blanks and tabs at both ends. */
static inline struct slice slice_trim(struct slice slice)
{
    while (slice.length > 0 && (slice.bytes[0] == ' ' || slice.bytes[0] == '\t'))
        slice = (struct slice){.bytes = slice.bytes + 1, .length = slice.length - 1};
    while (slice.length > 0 && (slice.bytes[slice.length - 1] == ' ' || slice.bytes[slice.length - 1] == '\t'))
        slice.length--;
    return slice;
}

/* Whether they are the same, but letters match in either case. */
static inline bool slice_is_nocase(struct slice slice, const char *text)
{
    size_t length = strlen(text);
    return slice.length == length && (length == 0 || strncasecmp(slice.bytes, text, length) == 0);
}

/* -1 = it is not a digit. */
static inline int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* The byte of two digits; -1 = one of them is not a digit. */
static inline int hex_byte(const char digits[2])
{
    int high = hex_digit(digits[0]), low = hex_digit(digits[1]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

#endif
