/* The story: `systemctl status issuing-worker@1` shows what the worker holds, what waits, and since when a peer is
 * away. Nothing is shown that is not known. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/suite.h"
#include "worker/worker_status.h"

#define DAY_US (86400 * INT64_C(1000000))
#define NOON_US (20000 * DAY_US + DAY_US / 2) /* 2024-10-04 12:00 UTC */

static char text[200];

static const char *line(const struct worker_status *status, int64_t now_us)
{
    worker_status_line(status, now_us, text, sizeof(text));
    return text;
}

static void use_utc(void)
{
    setenv("TZ", "UTC0", 1);
    tzset();
}

TEST(a_backlog_is_shown_once_it_is_known)
{
    struct worker_status status = {.in_flight = 3, .targets = {{.name = "issuer"}, {.name = "core"}}};
    ck_assert_str_eq(line(&status, NOON_US), "3 in flight");
    status.knows_backlog = true;
    ck_assert_str_eq(line(&status, NOON_US), "3 in flight, 0 pending");
    status.pending = 12;
    status.oldest_ms = 4200;
    ck_assert_str_eq(line(&status, NOON_US), "3 in flight, 12 pending (oldest 4 s)");
}

TEST(an_age_is_short_and_never_negative)
{
    static const struct {
        int64_t age_ms;
        const char *wanted;
    } rows[] = {
        {-5000, "0 s"},
        {119999, "119 s"},
        {120000, "2 min"},
        {INT64_C(7199999), "119 min"},
        {INT64_C(7200000), "2 h"},
        {INT64_C(172799999), "47 h"},
        {INT64_C(172800000), "2 d"},
        {INT64_MAX, "106751991167 d"},
    };
    struct worker_status status = {
        .knows_backlog = true, .pending = 1, .targets = {{.name = "issuer"}, {.name = "core"}}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        status.oldest_ms = rows[i].age_ms;
        ck_assert_ptr_nonnull(strstr(line(&status, NOON_US), rows[i].wanted));
    }
}

TEST(an_open_breaker_is_shown_with_its_time_until_it_closes)
{
    struct worker_status status = {.targets = {{.name = "issuer"}, {.name = "core"}}};
    int64_t since_us = NOON_US - 9 * 3600 * INT64_C(1000000) - 46 * 60 * INT64_C(1000000);
    use_utc();
    worker_status_note(&status.targets[0], true, NOON_US - DAY_US);
    ck_assert_str_eq(line(&status, NOON_US), "0 in flight");
    worker_status_note(&status.targets[0], false, since_us);
    worker_status_note(&status.targets[0], false, NOON_US); /* still: a probe in between changes nothing */
    ck_assert_str_eq(line(&status, NOON_US), "0 in flight, issuer open since 02:14");
    ck_assert_str_eq(line(&status, NOON_US + DAY_US), "0 in flight, issuer open since 2024-10-04 02:14");
    worker_status_note(&status.targets[1], false, NOON_US);
    ck_assert_str_eq(line(&status, NOON_US), "0 in flight, issuer open since 02:14, core open since 12:00");
    worker_status_note(&status.targets[0], true, NOON_US);
    ck_assert_str_eq(line(&status, NOON_US), "0 in flight, core open since 12:00");
}

TEST(a_line_that_is_too_long_is_cut)
{
    struct worker_status status = {
        .in_flight = 3,
        .knows_backlog = true,
        .pending = INT64_MAX,
        .oldest_ms = INT64_MAX,
        .targets = {{.name = "issuer", .open_since_us = 1}, {.name = "core", .open_since_us = 1}}};
    char small[20];
    memset(small, 'x', sizeof(small));
    for (size_t size = 1; size <= sizeof(small); size++) {
        worker_status_line(&status, NOON_US, small, size);
        ck_assert_uint_lt(strlen(small), size);
    }
}

TESTS(worker_status)
