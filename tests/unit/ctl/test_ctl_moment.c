/* The story: an incident is known by a time of a log, in UTC or in the time zone of somebody's mail. A time that is
 * read wrongly makes a bulk action hit other events, so whatever can be read in two ways is refused. */
#include <check.h>
#include <stdlib.h>

#include "ctl/moment.h"
#include "tests/support/suite.h"

#define NOW INT64_C(1795257597000000) /* 2026-11-21T10:39:57Z */

TEST(a_duration_counts_back_from_the_database_s_clock)
{
    const struct {
        const char *text;
        int64_t seconds;
    } good[] = {{"90s", 90}, {"15m", 900}, {"12h", 43200}, {"7d", 604800}, {"1w", 604800}, {"4w", 2419200}};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct moment moment;
        ck_assert_msg(moment_parse(good[i].text, &moment), "%s", good[i].text);
        ck_assert(moment.is_ago);
        ck_assert_int_eq(moment_us(&moment, NOW), NOW - good[i].seconds * 1000000);
    }
}

TEST(a_time_is_utc_unless_it_has_an_offset)
{
    const struct {
        const char *text;
        int64_t us;
    } good[] = {
        {"1970-01-01", 0},
        {"2026-11-21", INT64_C(1795219200000000)},
        {"2026-11-21T10:39:57Z", NOW},
        {"2026-11-21t10:39:57z", NOW},
        {"2026-11-21 10:39:57", NOW},
        {"2026-11-21T10:39:57.5Z", NOW + 500000},
        {"2026-11-21T10:39:57.1234567Z", NOW + 123456},
        {"2026-11-21T10:39", NOW - 57 * 1000000},
        {"2026-11-21T12:39:57+02:00", NOW},
        {"2026-11-20T22:09:57-12:30", NOW},
        {"2024-02-29", INT64_C(1709164800000000)},
        {"2000-02-29T23:59:60Z", INT64_C(951868800000000)}, /* a leap second */
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct moment moment;
        ck_assert_msg(moment_parse(good[i].text, &moment), "%s", good[i].text);
        ck_assert(!moment.is_ago);
        ck_assert_msg(moment_us(&moment, NOW) == good[i].us, "%s: %lld", good[i].text, (long long)moment.us);
    }
}

TEST(what_can_be_read_in_two_ways_or_does_not_exist_is_refused)
{
    const char *const bad[] = {
        "",
        "now",
        "10:39",
        "20.11.2026",
        "2026-11-1",
        "2026-13-01",
        "2026-02-29",
        "2100-02-29",
        "2026-11-00",
        "2026-11-21T",
        "2026-11-21T24:00",
        "2026-11-21T10:60",
        "2026-11-21T10:39:61Z",
        "2026-11-21T10:39:57.Z",
        "2026-11-21T10:39:57+2",
        "2026-11-21T10:39:57+0200",
        "2026-11-21T10:39:57 02:00",
        "2026-11-21T10:39:57Zz",
        "2026-11-21Z",
        "26-11-21",
        "1969-12-31",
        "5",
        "5y",
        "-5d",
        "2026-11-21T10:39:57+24:00",
        "2026-11",
        "2026-11-21 10",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct moment moment = {.us = 7};
        ck_assert_msg(!moment_parse(bad[i], &moment), "%s was taken", bad[i]);
        ck_assert_int_eq(moment.us, 7);
    }
}

TESTS(ctl_moment)
