/* The worker made a connection for nearly every call that waited: 800 to a peer that answers as fast over ten. Peers of
 * all kinds are simulated here: what counts is the number of connections at the end, and that a peer who takes his time
 * gets all that he can use. */
#include <check.h>
#include <stdlib.h>

#include "common/lib/http_client/http_conn_limit.h"
#include "tests/support/suite.h"

#define CALLS_MAX 512

static struct http_conn_limit limit;
static unsigned int seed;

static void set_up(void)
{
    http_conn_limit_init(&limit);
    seed = 4711;
}

/* A peer that answers `at_once` calls at a time, each after time_us, more or less; calls wait all the time. */
static int connections_after(int at_once, int64_t time_us, int64_t run_us, int64_t *now_us)
{
    int64_t end_us = *now_us + run_us;
    while (*now_us < end_us) {
        int open = limit.allowed < CALLS_MAX ? limit.allowed : CALLS_MAX, busy = open < at_once ? open : at_once;
        int64_t each_us = time_us / busy;
        *now_us += each_us / 2 + rand_r(&seed) % (each_us + 1);
        http_conn_limit_answered(&limit, limit.allowed < CALLS_MAX, *now_us);
    }
    return limit.allowed < CALLS_MAX ? limit.allowed : CALLS_MAX;
}

TEST(a_peer_that_works_on_one_call_after_the_other_gets_few)
{
    int64_t now_us = 1;
    ck_assert_int_le(connections_after(1, 100, 1000000, &now_us), 8);
    for (int s = 0; s < 600; s++)
        ck_assert_int_le(connections_after(1, 100, 1000000, &now_us), 12);
}

TEST(a_peer_that_works_on_some_at_once_gets_about_as_many)
{
    int64_t now_us = 1;
    (void)connections_after(32, 5000, 2000000, &now_us);
    for (int s = 0; s < 60; s++)
        ck_assert_int_le(connections_after(32, 5000, 1000000, &now_us), 96);
    ck_assert_int_ge(limit.proven, 24);
}

TEST(a_peer_that_takes_its_time_gets_all)
{
    int64_t now_us = 1;
    ck_assert_int_eq(connections_after(100000, 20000, 5000000, &now_us), CALLS_MAX);
}

TEST(a_peer_that_becomes_slow_gets_all_and_none_is_measured_while_nothing_waits)
{
    int64_t now_us = 1;
    (void)connections_after(1, 100, 1000000, &now_us);
    for (int i = 0; i < 8; i++)
        http_conn_limit_slow(&limit);
    ck_assert_int_ge(limit.allowed, CALLS_MAX);
    for (int i = 0; i < 64; i++)
        http_conn_limit_slow(&limit);
    ck_assert_int_gt(limit.allowed, 0);
    set_up();
    for (int i = 0; i < 10000; i++)
        http_conn_limit_answered(&limit, false, ++now_us);
    ck_assert_int_eq(limit.allowed, HTTP_CONN_LIMIT_LEAST);
}

TESTS_BETWEEN(http_conn_limit, set_up, NULL)
