/* A nonce that comes twice under one key opens the numbers that were sealed with it; an id that comes twice is one card
 * for two users. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/random_pool.h"
#include "tests/support/suite.h"

static int compare(const void *left, const void *right)
{
    return memcmp(left, right, 12);
}

TEST(bytes_do_not_come_twice_across_many_fillings)
{
    static unsigned char taken[5000][12];
    for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
        random_pool_take(taken[i], sizeof(taken[i]));
    qsort(taken, ARRAY_SIZE(taken), sizeof(taken[0]), compare);
    for (size_t i = 1; i < ARRAY_SIZE(taken); i++)
        ck_assert_mem_ne(taken[i - 1], taken[i], sizeof(taken[i]));
}

/* A length that does not divide the pool must not take what an earlier one left. */
TEST(pieces_of_any_length_are_filled_and_nothing_behind_them)
{
    unsigned char piece[RANDOM_POOL_MAX + 1], zeros[16] = {0};
    for (int i = 0; i < 2000; i++) {
        size_t length = 16 + (size_t)i % (RANDOM_POOL_MAX - 15);
        memset(piece, 0, sizeof(piece));
        random_pool_take(piece, length);
        ck_assert_mem_ne(piece, zeros, sizeof(zeros));
        ck_assert_mem_ne(piece + length - sizeof(zeros), zeros, sizeof(zeros));
        ck_assert_int_eq(piece[length], 0);
    }
}

TESTS(random_pool)
