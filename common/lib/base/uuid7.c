/* Ids: version 7 for what is ordered by time, version 4 for what must reveal nothing (RFC 9562, sections 5.4, 5.7,
 * 6.2).
 *
 * Invariants: two ids of one process compare in the order in which they were made, also when the wall clock stands
 * still or steps back (the timestamp then waits, and a full counter borrows the next millisecond); a child after
 * fork(2) does not repeat its parent's ids (random_pool.h).
 * Left out: threads; ids are made on the loop only. */
#include "common/lib/base/uuid7.h"

#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/random_pool.h"

#define COUNTER_MAX 0xfff

static uint64_t last_ms;
static unsigned int counter;

struct uuid uuid7_make(void)
{
    int64_t wall_us = clock_wall_us();
    uint64_t now_ms = wall_us > 0 ? (uint64_t)wall_us / 1000 : 0;
    if (now_ms > last_ms) {
        last_ms = now_ms;
        counter = 0;
    } else if (counter < COUNTER_MAX) {
        counter++;
    } else {
        last_ms++;
        counter = 0;
    }
    struct uuid uuid;
    for (int i = 0; i < 6; i++)
        uuid.bytes[i] = (unsigned char)(last_ms >> (40 - 8 * i));
    uuid.bytes[6] = (unsigned char)(0x70 | counter >> 8);
    uuid.bytes[7] = (unsigned char)(counter & 0xff);
    random_pool_take(uuid.bytes + 8, 8);
    uuid.bytes[8] = (unsigned char)((uuid.bytes[8] & 0x3f) | 0x80);
    return uuid;
}

struct uuid uuid4_make(void)
{
    struct uuid uuid;
    random_pool_take(uuid.bytes, sizeof(uuid.bytes));
    uuid.bytes[6] = (unsigned char)((uuid.bytes[6] & 0x0f) | 0x40);
    uuid.bytes[8] = (unsigned char)((uuid.bytes[8] & 0x3f) | 0x80);
    return uuid;
}

/* Where the two digits of each byte stand, with a dash before the fifth, seventh, ninth and eleventh byte. */
static const unsigned char digits_at[16] = {0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34};

void uuid_format(const struct uuid *uuid, char ret_text[UUID_TEXT_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    ret_text[8] = ret_text[13] = ret_text[18] = ret_text[23] = '-';
    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        char *out = ret_text + digits_at[i];
        out[0] = digits[uuid->bytes[i] >> 4];
        out[1] = digits[uuid->bytes[i] & 15];
    }
    ret_text[UUID_TEXT_SIZE - 1] = '\0';
}

bool uuid_parse(const char *text, size_t length, struct uuid *ret_uuid)
{
    if (length != UUID_TEXT_SIZE - 1 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-')
        return false;
    struct uuid uuid;
    for (size_t i = 0; i < sizeof(uuid.bytes); i++) {
        int byte = hex_byte(text + digits_at[i]);
        if (byte < 0)
            return false;
        uuid.bytes[i] = (unsigned char)byte;
    }
    *ret_uuid = uuid;
    return true;
}

bool uuid_equal(const struct uuid *left, const struct uuid *right)
{
    return memcmp(left->bytes, right->bytes, sizeof(left->bytes)) == 0;
}

bool uuid7_time_ms(const struct uuid *uuid, int64_t *ret_ms)
{
    if (uuid->bytes[6] >> 4 != 7)
        return false;
    int64_t ms = 0;
    for (int i = 0; i < 6; i++)
        ms = ms << 8 | uuid->bytes[i];
    *ret_ms = ms;
    return true;
}
