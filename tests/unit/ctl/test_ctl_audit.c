/* The story: a link of the console carries where its next page of the audit begins, and anybody may have written what
 * is in a link; and a filter that can match nothing is refused before the database is asked. */
#include "ctl/audit/audit.h"

#include <check.h>
#include <string.h>

#include "tests/support/suite.h"

TEST(a_cursor_comes_back_as_it_was_written)
{
    static const struct audit_cursor cursors[] = {
        {1, 1}, {INT64_C(1763634000123456), 17}, {INT64_C(253402300799999999), INT64_MAX}};
    for (size_t i = 0; i < ARRAY_SIZE(cursors); i++) {
        char text[AUDIT_CURSOR_SIZE];
        struct audit_cursor cursor;
        audit_cursor_format(&cursors[i], text);
        ck_assert_msg(audit_cursor_parse(text, &cursor), "%s", text);
        ck_assert_int_eq(cursor.at_us, cursors[i].at_us);
        ck_assert_int_eq(cursor.id, cursors[i].id);
    }
}

TEST(what_is_no_cursor_is_refused)
{
    static const char *const bad[] = {"",
                                      "x",
                                      ".",
                                      "1",
                                      "1.",
                                      ".1",
                                      "0.1",
                                      "1.0",
                                      "-1.1",
                                      "1.-1",
                                      "+1.1",
                                      " 1.1",
                                      "1.1 ",
                                      "1.1.1",
                                      "1,1",
                                      "1.1x",
                                      "0x1.1",
                                      "1e3.1",
                                      "253402300800000000.1",  /* the year 10000 */
                                      "9223372036854775808.1", /* beyond int64 */
                                      "1.9223372036854775808",
                                      "1.99999999999999999999999999999999999999"};
    struct audit_cursor cursor = {7, 8};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!audit_cursor_parse(bad[i], &cursor), "%s", bad[i]);
    ck_assert_int_eq(cursor.at_us, 7);
    ck_assert_int_eq(cursor.id, 8);
}

TEST(a_filter_takes_both_forms_of_time_and_refuses_what_can_match_nothing)
{
    struct err err = {.kind = ERR_NONE};
    struct audit_filter good = {.since = "4w",
                                .until = "2026-11-20T10:39:57+02:00",
                                .actor = "a",
                                .action = "replay",
                                .event = "019a9bd2-7a00-7000-8000-000000000001"};
    ck_assert_msg(audit_check(&good, &err), "%s", err.message);
    ck_assert(good.from.is_ago && !good.to.is_ago);
    ck_assert_int_eq(good.event_id.bytes[15], 1);
    struct audit_filter bad[] = {
        {.since = "soon"},
        {.until = "10:39"},
        {.actor = ""},
        {.action = ""},
        {.event = "7"},
        {.batch = "7"},
        {.batch = "019a9bd2-7a00-7000-8000-000000000001", .event = "019a9bd2-7a00-7000-8000-000000000001"}};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        err = (struct err){.kind = ERR_NONE};
        ck_assert_msg(!audit_check(&bad[i], &err), "%zu", i);
        ck_assert_int_eq(err.kind, ERR_USAGE);
    }
}

TESTS(ctl_audit)
