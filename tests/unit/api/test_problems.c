/* The story: a client branches on `type` and `status` of an error, so each problem has one slug, one status and one
 * page, the body is always JSON whatever a detail contains, and no page lets text become markup. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/problems.h"
#include "common/lib/base/slice.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "tests/support/suite.h"

static struct buf out;
static const struct slice no_errors;

static void set_up(void)
{
    buf_init(&out, 64 * 1024);
}

static void tear_down(void)
{
    buf_done(&out);
}

static struct json_value member(const char *name)
{
    ck_assert(!out.failed);
    ck_assert_msg(json_strict_check(out.bytes, out.length, NULL), "%s", out.bytes);
    return json_member(json_value_of(out.bytes, out.length), name);
}

static const char *text(const char *name)
{
    static char value[2048];
    ck_assert(json_string(member(name), value, sizeof(value), NULL));
    return value;
}

TEST(every_problem_is_a_whole_body_with_its_status_and_type)
{
    for (int problem = 0; problem < PROBLEM_COUNT; problem++) {
        int64_t status;
        buf_reset(&out);
        problem_write(&out, (enum problem)problem, "what went wrong", no_errors);
        ck_assert(json_integer(member("status"), 400, 599, &status));
        ck_assert_int_eq(status, problem_status((enum problem)problem));
        ck_assert_int_eq(strncmp(text("type"), "/problems/", 10), 0);
        ck_assert_uint_gt(strlen(text("title")), 5);
        ck_assert_str_eq(text("detail"), "what went wrong");
        ck_assert_int_eq(member("errors").kind, JSON_MISSING);
    }
}

TEST(every_problem_has_a_page_and_a_slug_of_its_own)
{
    char slugs[PROBLEM_COUNT][64];
    for (int problem = 0; problem < PROBLEM_COUNT; problem++) {
        buf_reset(&out);
        problem_write(&out, (enum problem)problem, "", no_errors);
        const char *slug = text("type") + strlen("/problems/");
        ck_assert_uint_lt(strlen(slug), sizeof(slugs[0]));
        strcpy(slugs[problem], slug);
        for (int other = 0; other < problem; other++)
            ck_assert_str_ne(slugs[problem], slugs[other]);
        buf_reset(&out);
        ck_assert(problem_write_page(&out, slice_of(slugs[problem])));
        ck_assert_ptr_nonnull(strstr(out.bytes, slugs[problem]));
        ck_assert_ptr_nonnull(strstr(out.bytes, "<!doctype html>"));
    }
}

TEST(the_index_links_to_every_problem)
{
    char link[128];
    struct buf index;
    buf_init(&index, 64 * 1024);
    problem_write_index(&index);
    ck_assert(!index.failed);
    for (int problem = 0; problem < PROBLEM_COUNT; problem++) {
        buf_reset(&out);
        problem_write(&out, (enum problem)problem, "", no_errors);
        snprintf(link, sizeof(link), "<a href=\"%.100s\">", text("type"));
        ck_assert_msg(strstr(index.bytes, link) != NULL, "%s", link);
    }
    buf_done(&index);
}

TEST(what_is_no_slug_has_no_page)
{
    static const char *const none[] = {
        "", "limited", "rate-limite", "rate-limitedx", "RATE-LIMITED", "../problems", "rate-limited/"};
    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        ck_assert_msg(!problem_write_page(&out, slice_of(none[i])), "%s", none[i]);
    ck_assert_uint_eq(out.length, 0);
    ck_assert(problem_write_page(
        &out, (struct slice){"rate-limited#rest",
                             strlen("rate-limited")})); /* the length decides: the path is not terminated */
}

TEST(a_detail_stays_a_text_whatever_is_in_it)
{
    static const char hostile[] = "\"}, \\ \n\t\x01 </script> gr\xc3\xbc\xc3\x9f";
    problem_write(&out, PROBLEM_INVALID_HEADER, hostile, no_errors);
    ck_assert_str_eq(text("detail"), hostile);
    buf_reset(&out);
    problem_write(&out, PROBLEM_INVALID_HEADER, "cut \xc3", no_errors); /* no UTF-8: replaced, never copied */
    ck_assert_str_eq(text("detail"), "cut \xef\xbf\xbd");
}

TEST(errors_go_in_as_they_are)
{
    problem_write(
        &out, PROBLEM_INVALID_BODY, "two members",
        SLICE("[{\"detail\":\"is required\",\"pointer\":\"#/kind\"},{\"detail\":\"x\",\"pointer\":\"#/memo\"}]"));
    struct json_value errors = member("errors"), element;
    size_t cursor = 0;
    int count = 0;
    while (json_next_element(errors, &cursor, &element))
        count += json_member(element, "pointer").kind == JSON_STRING;
    ck_assert_int_eq(count, 2);
}

TEST(what_the_connection_refuses_finds_the_problem_of_its_status)
{
    static const int statuses[] = {400, 401, 404, 405, 408, 409, 413, 414, 415, 417, 422, 429, 431, 503};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
        ck_assert_int_eq(problem_status(problem_of_status(statuses[i])), statuses[i]);
    ck_assert_int_eq(problem_of_status(400), PROBLEM_MALFORMED_REQUEST); /* below the router a 400 is bad framing */
    ck_assert_int_eq(problem_of_status(599), PROBLEM_MALFORMED_REQUEST);
    ck_assert_int_eq(problem_of_status(0), PROBLEM_MALFORMED_REQUEST);
}

TEST(the_contracts_slugs_are_there)
{
    static const char *const wanted[] = {"idempotency-key-reused", "not-replaceable"};
    static const enum problem problems[] = {PROBLEM_KEY_REUSED, PROBLEM_NOT_REPLACEABLE};
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        buf_reset(&out);
        problem_write(&out, problems[i], "", no_errors);
        ck_assert_str_eq(text("type") + strlen("/problems/"), wanted[i]);
        ck_assert_int_eq(problem_status(problems[i]), 422);
    }
}

TEST(a_page_has_no_markup_but_its_own)
{
    ck_assert(problem_write_page(&out, SLICE("invalid-header")));
    ck_assert_ptr_nonnull(strstr(out.bytes, "(&quot;abc&quot;)"));
    ck_assert_ptr_null(strstr(out.bytes, "(\"abc\")"));
}

TESTS_BETWEEN(problems, set_up, tear_down)
