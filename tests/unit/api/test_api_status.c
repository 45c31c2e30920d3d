/* The story: `systemctl status issuing-api` shows whether clients come, and whether the database keeps up. */
#include <check.h>

#include "api/api_status.h"
#include "tests/support/suite.h"

static char text[128];

static const char *line(struct api_status *status, int connections, uint64_t replies, int waiting, int64_t now_ms)
{
    struct api_status_now now = {.connections = connections, .replies = replies, .waiting = waiting, .now_ms = now_ms};
    api_status_line(status, &now, text, sizeof(text));
    return text;
}

TEST(the_rate_is_that_of_the_last_three_seconds)
{
    struct api_status status = {0};
    ck_assert_str_eq(line(&status, 0, 0, 0, 1000), "0 connections, 0 requests/s, 0 waiting for the database");
    ck_assert_str_eq(line(&status, 1, 90, 7, 2000), "1 connection, 0 requests/s, 7 waiting for the database");
    ck_assert_str_eq(line(&status, 20, 120, 0, 4000), "20 connections, 40 requests/s, 0 waiting for the database");
    ck_assert_str_eq(line(&status, 20, 999, 0, 5000), "20 connections, 40 requests/s, 0 waiting for the database");
    ck_assert_str_eq(line(&status, 20, 121, 0, 7000), "20 connections, 0.3 requests/s, 0 waiting for the database");
    ck_assert_str_eq(line(&status, 20, 121, 0, 10000), "20 connections, 0 requests/s, 0 waiting for the database");
}

TEST(a_machine_that_slept_makes_no_false_rate)
{
    struct api_status status = {0};
    line(&status, 0, 0, 0, 1000);
    ck_assert_str_eq(line(&status, 0, 1200, 0, 61000), "0 connections, 20 requests/s, 0 waiting for the database");
}

TESTS(api_status)
