/* The header values that decide something: a peer must not make us wait for ever, or take text for JSON. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/http_client/http_call.h"
#include "common/lib/http_client/http_values.h"
#include "tests/support/suite.h"

#define NOON_S 1795176000LL /* 2026-11-20T12:00:00Z, a Friday */

TEST(retry_after_is_seconds_or_a_date_and_at_most_five_minutes)
{
    static const struct {
        const char *text;
        int64_t wait_ms;
    } rows[] = {
        {"0", 0},
        {"7", 7000},
        {"007", 7000},
        {"300", 300000},
        {"301", 300000},
        {"99999999999999999999999999", 300000},
        {"-1", -1},
        {"1.5", -1},
        {"1e3", -1},
        {"soon", -1},
        {"", -1},
        {"7 7", -1},
        {"Fri, 20 Nov 2026 12:00:30 GMT", 30000},
        {"Fri, 20 Nov 2026 12:00:00 GMT", 0},
        {"Fri, 20 Nov 2026 11:59:59 GMT", -1},
        {"Fri, 20 Nov 2026 13:00:00 GMT", 300000},
        {"Friday, 20-Nov-26 12:00:30 GMT", 30000},
        {"Fri Nov 20 12:00:30 2026", 30000},
        {"Fri, 20 Nov 2026 12:00:30 CET", -1},
        {"Fri, 32 Nov 2026 12:00:30 GMT", -1},
        {"2026-11-20T12:00:30Z", -1},
        {"Fri, 20 Nov 2026 12:00:30 GMT and a text so long that no date looks like it", -1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct slice value = {.bytes = rows[i].text, .length = strlen(rows[i].text)};
        int64_t wait_ms = http_retry_after_ms(value, NOON_S * 1000);
        ck_assert_msg(wait_ms == rows[i].wait_ms, "%s: %lld", rows[i].text, (long long)wait_ms);
    }
}

TEST(json_is_recognised_by_its_type)
{
    static const char *const json[] = {
        "application/json",   "APPLICATION/Json",         "application/json; charset=utf-8",
        "application/json;x", "application/problem+json", "application/a.b+JSON ;q"};
    static const char *const other[] = {"",
                                        "text/json",
                                        "application/jsonp",
                                        "application/+json",
                                        "application/xml",
                                        "application/json+xml",
                                        "application/",
                                        "xapplication/json",
                                        "text/x+json"};
    for (size_t i = 0; i < ARRAY_SIZE(json); i++)
        ck_assert_msg(http_is_json((struct slice){.bytes = json[i], .length = strlen(json[i])}), "%s", json[i]);
    for (size_t i = 0; i < ARRAY_SIZE(other); i++)
        ck_assert_msg(!http_is_json((struct slice){.bytes = other[i], .length = strlen(other[i])}), "%s", other[i]);
}

TEST(what_is_not_unreserved_is_percent_encoded)
{
    struct buf out;
    buf_init(&out, 100);
    ck_assert(http_put_encoded(&out, "aZ09-._~", 8));
    ck_assert(http_put_encoded(&out, "/? %&+\0\xff:", 9));
    ck_assert_str_eq(out.bytes, "aZ09-._~%2F%3F%20%25%26%2B%00%FF%3A");
    ck_assert(!http_put_encoded(&out, "//////////////////////////", 26));
    buf_done(&out);
}

/* Each in clear text and in TLS. */
TESTS(http_values)
