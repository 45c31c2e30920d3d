/* A growing byte buffer with a mandatory maximum. A failed append is sticky: check `failed` once at the end. */
#ifndef ISSUING_BUF_H
#define ISSUING_BUF_H

#include "common/lib/base/base.h"

struct buf {
    char *bytes; /* owned; NULL while empty; always NUL-terminated once something was put */
    size_t length;
    size_t capacity;
    size_t max; /* bytes; an append past it fails */
    bool failed;
};

void buf_init(struct buf *buf, size_t max);
void buf_done(struct buf *buf);  /* frees; the buffer may be used again after buf_init */
void buf_wipe(struct buf *buf);  /* overwrites the whole capacity, then empties; for buffers that held secrets */
void buf_reset(struct buf *buf); /* empties, keeps the memory, clears `failed` */
bool buf_put(struct buf *buf, const void *bytes, size_t length);
bool buf_put_text(struct buf *buf, const char *text);
bool buf_put_byte(struct buf *buf, char byte);
bool buf_put_integer(struct buf *buf, int64_t integer); /* in decimal digits */
bool buf_put_format(struct buf *buf, const char *format, ...) printf_like(2, 3);
/* Makes capacity for `length` more bytes and returns where to write them; the caller then adds to buf->length. NULL on
 * failure. */
char *buf_reserve(struct buf *buf, size_t length);
/* Removes the first `length` bytes; the memory that becomes free at the end is overwritten. */
void buf_consume(struct buf *buf, size_t length);
struct slice buf_slice(const struct buf *buf);

#endif
