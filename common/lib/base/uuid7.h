/* Time-ordered ids (RFC 9562, version 7): 48 bits of milliseconds, 12 bits that count within a millisecond, 62 random
 * bits. */
#ifndef ISSUING_UUID7_H
#define ISSUING_UUID7_H

#include "common/lib/base/base.h"

#define UUID_TEXT_SIZE 37

struct uuid {
    unsigned char bytes[16];
};

/* Strictly increasing within this process, even when the wall clock steps back. Aborts only if the kernel has no
 * randomness. */
struct uuid uuid7_make(void);
/* Version 4: for lease tokens, which must not reveal an order. */
struct uuid uuid4_make(void);
void uuid_format(const struct uuid *uuid, char ret_text[UUID_TEXT_SIZE]);
/* 36 characters, 8-4-4-4-12, hex of either case; any version. */
must_check bool uuid_parse(const char *text, size_t length, struct uuid *ret_uuid);
/* When an id of version 7 was made, in ms since 1970 by its maker's clock; false: it is of another version. */
bool uuid7_time_ms(const struct uuid *uuid, int64_t *ret_ms);
bool uuid_equal(const struct uuid *left, const struct uuid *right);

#endif
