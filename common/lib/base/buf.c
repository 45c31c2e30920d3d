/* A growing byte buffer with a maximum.
 *
 * Invariants: length <= max; capacity > length once there is memory, so that the terminator always fits; an append that
 * fails changes nothing but `failed`, and after it every append fails until buf_reset(). Growing copies and wipes
 * instead of realloc(3): a buffer that holds a secret must not leave copies of it in the heap.
 * Left out: shrinking, and reading (a slice does that). */
#include "common/lib/base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 256
#define INTEGER_SIZE (sizeof("-9223372036854775808") - 1)

void buf_init(struct buf *buf, size_t max)
{
    *buf = (struct buf){.max = max < SIZE_MAX ? max : SIZE_MAX - 1};
}

void buf_done(struct buf *buf)
{
    free(buf->bytes);
    *buf = (struct buf){.max = buf->max};
}

void buf_wipe(struct buf *buf)
{
    if (buf->bytes)
        explicit_bzero(buf->bytes, buf->capacity);
    buf_reset(buf);
}

void buf_reset(struct buf *buf)
{
    buf->length = 0;
    buf->failed = false;
    if (buf->bytes)
        buf->bytes[0] = '\0';
}

static bool fail(struct buf *buf)
{
    buf->failed = true;
    return false;
}

static __attribute__((noinline)) bool enlarge(struct buf *buf, size_t length)
{
    if (buf->failed || length > buf->max - buf->length)
        return fail(buf);
    size_t wanted = buf->length + length + 1;
    size_t capacity = buf->capacity > SIZE_MAX / 2 ? SIZE_MAX : buf->capacity * 2;
    if (capacity < FIRST_CAPACITY)
        capacity = FIRST_CAPACITY;
    if (capacity < wanted)
        capacity = wanted;
    if (capacity > buf->max + 1)
        capacity = buf->max + 1;
    char *bytes = malloc(capacity);
    if (!bytes)
        return fail(buf);
    if (buf->bytes) {
        memcpy(bytes, buf->bytes, buf->length);
        explicit_bzero(buf->bytes, buf->capacity);
        free(buf->bytes);
    }
    bytes[buf->length] = '\0';
    buf->bytes = bytes;
    buf->capacity = capacity;
    return true;
}

/* Makes capacity for `length` more bytes and the terminator. */
static inline bool grow(struct buf *buf, size_t length)
{
    bool fits = !buf->failed && length <= buf->max - buf->length && length < buf->capacity - buf->length;
    return fits || enlarge(buf, length);
}

bool buf_put(struct buf *buf, const void *bytes, size_t length)
{
    if (!grow(buf, length))
        return false;
    if (length > 0)
        memcpy(buf->bytes + buf->length, bytes, length);
    buf->length += length;
    buf->bytes[buf->length] = '\0';
    return true;
}

bool buf_put_text(struct buf *buf, const char *text)
{
    return buf_put(buf, text, strlen(text));
}

bool buf_put_byte(struct buf *buf, char byte)
{
    if (!grow(buf, 1))
        return false;
    buf->bytes[buf->length++] = byte;
    buf->bytes[buf->length] = '\0';
    return true;
}

bool buf_put_integer(struct buf *buf, int64_t integer)
{
    char digits[INTEGER_SIZE], *first = digits + sizeof(digits);
    uint64_t left = integer < 0 ? -(uint64_t)integer : (uint64_t)integer;
    do {
        *--first = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (integer < 0)
        *--first = '-';
    return buf_put(buf, first, (size_t)(digits + sizeof(digits) - first));
}

bool buf_put_format(struct buf *buf, const char *format, ...)
{
    if (!grow(buf, 0))
        return false;
    va_list arguments, second;
    va_start(arguments, format);
    va_copy(second, arguments);
    size_t free_size = buf->capacity - buf->length;
    int wanted = vsnprintf(buf->bytes + buf->length, free_size, format, arguments);
    if (wanted >= 0 && (size_t)wanted >= free_size) {
        if (grow(buf, (size_t)wanted))
            vsnprintf(buf->bytes + buf->length, (size_t)wanted + 1, format, second);
    } else if (wanted < 0) {
        buf->failed = true;
    }
    va_end(second);
    va_end(arguments);
    if (buf->failed) {
        buf->bytes[buf->length] = '\0'; /* takes back what the first try wrote */
        return false;
    }
    buf->length += (size_t)wanted;
    return true;
}

char *buf_reserve(struct buf *buf, size_t length)
{
    if (!grow(buf, length))
        return NULL;
    /* A caller that fills exactly `length` bytes has a terminated text without writing a NUL. */
    buf->bytes[buf->length + length] = '\0';
    return buf->bytes + buf->length;
}

void buf_consume(struct buf *buf, size_t length)
{
    assert(length <= buf->length);
    if (length == 0)
        return;
    buf->length -= length;
    memmove(buf->bytes, buf->bytes + length, buf->length);
    /* guard: what is consumed is overwritten */
    explicit_bzero(buf->bytes + buf->length, length); /* what was moved is not left behind a second time */
}

struct slice buf_slice(const struct buf *buf)
{
    return (struct slice){.bytes = buf->bytes, .length = buf->length};
}
