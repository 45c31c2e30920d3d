/* The story: `replay --user "" --reason x` in a script whose variable was empty must not replay everybody's events. So
 * a filter has a value that can match something, or nothing runs; what was given ends up where the statements look for
 * it, whether it came from a command line or from a URL; and events are looked for where there is an index. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/filter.h"
#include "statements.h"
#include "tests/support/suite.h"

static struct err err;

static void refused(const char *name, const char *value)
{
    struct filter filter = {0};
    err = (struct err){.kind = ERR_NONE};
    bool taken = filter_set(&filter, name, value, &err) && filter_check(&filter, &err);
    ck_assert_msg(!taken, "%s=%s was taken", name, value);
    ck_assert_int_eq(err.kind, ERR_USAGE);
}

TEST(an_empty_or_unusable_value_is_refused_and_not_taken_for_any)
{
    static const char *const texts[] = {"status", "type", "code",  "user",  "since",       "until",
                                        "key",    "card", "last4", "trace", "failed-since"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        refused(texts[i], "");
    refused("status", "OPEN");
    refused("code", "Not A Code");
    refused("since", "0s");
    refused("since", "5");
    refused("until", "yesterday");
    refused("failed-since", "2026-02-30");
    refused("last4", "123");
    refused("last4", "12345");
    refused("last4", "12a4");
    refused("trace", "0af7651916cd43dd8448eb211c80319");
    refused("trace", "0af7651916cd43dd8448eb211c80319z");
    refused("limit", "0");
    refused("limit", "-1");
    refused("unknown", "no");
    refused("colour", "red");
    struct filter none = {0};
    ck_assert(filter_is_empty(&none));
    ck_assert(filter_check(&none, &err));
}

/* What a page of the console puts into its URL. */
TEST(filters_can_be_set_by_name_and_become_the_parameters)
{
    struct filter filter = {0};
    static const char *const pairs[][2] = {
        {"status", "failed"},
        {"code", "attempts_exhausted"},
        {"--user", "alice"},
        {"since", "1s"},
        {"until", "1970-01-01T00:00:01Z"},
        {"last4", "4242"},
        {"unknown", ""},
        {"limit", "50"},
        {"trace", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
        ck_assert_msg(filter_set(&filter, pairs[i][0], pairs[i][1], &err), "%s", err.message);
    ck_assert_msg(filter_check(&filter, &err), "%s", err.message);
    struct pg_param params[FILTER_PARAMS];
    filter_params(&filter, 1500000, params);
    ck_assert_int_eq(params[0].length, 6);
    ck_assert_mem_eq(params[0].bytes, "FAILED", 6);
    ck_assert_ptr_null(params[1].bytes); /* no type: SQL null */
    ck_assert_int_eq(params[1].inline_length, 0);
    ck_assert_mem_eq(params[2].bytes, "attempts_exhausted", 18);
    ck_assert_mem_eq(params[3].bytes, "alice", 5);
    static const unsigned char half[] = {0, 0, 0, 0, 0, 0x07, 0xa1, 0x20}, second[] = {0, 0, 0, 0, 0, 0x0f, 0x42, 0x40};
    ck_assert_mem_eq(params[4].inline_bytes, half, 8);
    ck_assert_mem_eq(params[5].inline_bytes, second, 8);
    ck_assert_mem_eq(params[9].bytes, "4242", 4);
    ck_assert_mem_eq(params[10].bytes, "0af7651916cd43dd8448eb211c80319c", 32);
    ck_assert_int_eq(params[11].inline_bytes[0], 1);
    ck_assert_int_eq(params[12].inline_bytes[0], 0);
    ck_assert_int_eq(filter.limit, 50);
}

TEST(filters_that_exclude_each_other_are_refused)
{
    const struct filter bad[] = {
        {.status = "COMPLETED", .overdue = true},       {.failed_since = "1h", .overdue = true},
        {.status = "REJECTED", .unknown = true},        {.status = "PROCESSING", .unknown = true},
        {.status = "PENDING", .failed_since = "1h"},    {.since = "1h", .until = "2h"},
        {.since = "2026-11-21", .until = "2026-11-20"}, {.since = "2026-11-21", .until = "2026-11-21"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct filter filter = bad[i];
        ck_assert_msg(!filter_check(&filter, &err), "filter %zu was taken", i);
        ck_assert_int_eq(err.kind, ERR_USAGE);
    }
}

TEST(the_source_is_the_narrowest_index)
{
    const struct {
        struct filter filter;
        const struct sql_statement *statement;
    } cases[] = {
        {{0}, &sql_operator_pick_all},
        {{.status = "COMPLETED"}, &sql_operator_pick_all},
        {{.code = "cancelled"}, &sql_operator_pick_all},
        {{.key = "k"}, &sql_operator_pick_all},
        {{.key = "k", .user = "alice"}, &sql_operator_pick_user},
        {{.status = "FAILED", .user = "alice"}, &sql_operator_pick_user},
        {{.status = "FAILED", .code = "link_refused"}, &sql_operator_pick_failed},
        {{.failed_since = "1h"}, &sql_operator_pick_failed},
        {{.status = "FAILED", .unknown = true}, &sql_operator_pick_failed},
        {{.status = "PENDING"}, &sql_operator_pick_open},
        {{.status = "PROCESSING"}, &sql_operator_pick_open},
        {{.overdue = true}, &sql_operator_pick_open},
        {{.unknown = true}, &sql_operator_pick_unknown},
        {{.status = "PENDING", .unknown = true}, &sql_operator_pick_unknown},
        {{.unknown = true, .overdue = true}, &sql_operator_pick_open},
        {{.unknown = true, .user = "alice"}, &sql_operator_pick_user},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct filter filter = cases[i].filter;
        ck_assert_msg(filter_check(&filter, &err), "%s", err.message);
        ck_assert_str_eq(filter_statement(&filter)->name, cases[i].statement->name);
    }
}

TESTS(ctl_filter)
