/* A path that two readers divide differently reaches the wrong handler, and a query value that is decoded past its end
 * becomes another user's. */
#include "common/lib/http_server/http_path.h"

#include <check.h>

#include "tests/support/suite.h"

TEST(a_path_without_variables_matches_as_a_whole)
{
    ck_assert(http_path_matches(SLICE("/v1/cards"), "/v1/cards", NULL));
    ck_assert(!http_path_matches(SLICE("/v1/cards/"), "/v1/cards", NULL));
    ck_assert(!http_path_matches(SLICE("/v1/card"), "/v1/cards", NULL));
    ck_assert(!http_path_matches(SLICE("/V1/cards"), "/v1/cards", NULL));
    ck_assert(!http_path_matches(SLICE(""), "/v1/cards", NULL));
    ck_assert(!http_path_matches(SLICE("/v1/%63ards"), "/v1/cards", NULL));
}

TEST(a_variable_is_one_whole_segment_of_at_least_one_byte)
{
    struct slice segment = {0};
    ck_assert(http_path_matches(SLICE("/v1/users/al%2Fice/cards"), "/v1/users/{user}/cards", &segment));
    ck_assert(slice_is(segment, "al%2Fice"));
    ck_assert(http_path_matches(SLICE("/v1/cards/7"), "/v1/cards/{id}", &segment));
    ck_assert(slice_is(segment, "7"));
    ck_assert(!http_path_matches(SLICE("/v1/users//cards"), "/v1/users/{user}/cards", &segment));
    ck_assert(!http_path_matches(SLICE("/v1/users/a/b/cards"), "/v1/users/{user}/cards", &segment));
    ck_assert(!http_path_matches(SLICE("/v1/users/cards"), "/v1/users/{user}/cards", &segment));
    ck_assert(!http_path_matches(SLICE("/v1/users/a"), "/v1/users/{user}/cards", &segment));
    ck_assert(!http_path_matches(SLICE("/v1/users/a/cards/"), "/v1/users/{user}/cards", &segment));
    ck_assert(!http_path_matches(SLICE("/v1/cards/"), "/v1/cards/{id}", &segment));
    ck_assert(!http_path_matches(SLICE("/v1/cards/7/"), "/v1/cards/{id}", &segment));
}

TEST(a_pattern_may_have_two_variables)
{
    struct slice segments[2] = {0};
    ck_assert(http_path_matches(SLICE("/v1/users/u/cards/c"), "/v1/users/{user}/cards/{card}", segments));
    ck_assert(slice_is(segments[0], "u"));
    ck_assert(slice_is(segments[1], "c"));
    ck_assert(!http_path_matches(SLICE("/v1/users/u/cards/"), "/v1/users/{user}/cards/{card}", segments));
}

TEST(a_path_is_never_read_past_its_end)
{
    struct slice path = {.bytes = "/v1/cards/7/number", .length = 11}, segment = {0};
    ck_assert(http_path_matches(path, "/v1/cards/{id}", &segment));
    ck_assert(slice_is(segment, "7"));
    ck_assert(!http_path_matches(path, "/v1/cards/{id}/number", &segment));
}

static void check_pair(struct slice *query, const char *name, const char *value, bool has_value)
{
    struct http_query_pair pair;
    ck_assert(http_query_next(query, &pair));
    ck_assert(slice_is(pair.name, name));
    ck_assert(slice_is(pair.value, value));
    ck_assert(pair.has_value == has_value);
}

TEST(a_query_is_read_pair_by_pair)
{
    struct http_query_pair pair;
    struct slice query = SLICE("a=1&b&c=&&d=2=3");
    check_pair(&query, "a", "1", true);
    check_pair(&query, "b", "", false);
    check_pair(&query, "c", "", true);
    check_pair(&query, "", "", false);
    check_pair(&query, "d", "2=3", true);
    ck_assert(!http_query_next(&query, &pair));
    query = (struct slice){.bytes = "a=1&b=2", .length = 4};
    check_pair(&query, "a", "1", true);
    ck_assert(!http_query_next(&query, &pair));
    query = (struct slice){0};
    ck_assert(!http_query_next(&query, &pair));
}

TEST(the_first_value_of_a_name_counts)
{
    char text[8];
    ck_assert(http_query_text(SLICE("xkind=a&kind=n%65w&kind=b"), "kind", text, sizeof(text)));
    ck_assert_str_eq(text, "new");
    ck_assert(http_query_text(SLICE("kind&kind=b"), "kind", text, sizeof(text)));
    ck_assert_str_eq(text, "b");
    ck_assert(http_query_text(SLICE("kind="), "kind", text, sizeof(text)));
    ck_assert_str_eq(text, "");
    ck_assert(!http_query_text(SLICE("kind=%zz&kind=b"), "kind", text, sizeof(text)));
    ck_assert(!http_query_text(SLICE("kind"), "kind", text, sizeof(text)));
    ck_assert(!http_query_text(SLICE("kinds=a"), "kind", text, sizeof(text)));
    ck_assert(!http_query_text(SLICE(""), "kind", text, sizeof(text)));
}

TEST(what_is_not_a_number_leaves_the_default)
{
    ck_assert_uint_eq(http_query_number(SLICE("limit=12"), "limit", 5), 12);
    ck_assert_uint_eq(http_query_number(SLICE("limit=-1"), "limit", 5), 5);
    ck_assert_uint_eq(http_query_number(SLICE("limit="), "limit", 5), 5);
    ck_assert_uint_eq(http_query_number(SLICE("limit=1x"), "limit", 5), 5);
    ck_assert_uint_eq(http_query_number(SLICE("limit=99999999999999999999999"), "limit", 5), 5);
    ck_assert_uint_eq(http_query_number(SLICE(""), "limit", 5), 5);
}

TEST(escapes_are_decoded_or_refused)
{
    char text[8];
    ck_assert(http_percent_decode(SLICE("a%20b%2F"), text, sizeof(text)));
    ck_assert_str_eq(text, "a b/");
    ck_assert(http_percent_decode(SLICE("a+b%c3"), text, sizeof(text)));
    ck_assert_str_eq(text, "a+b\xC3");
    ck_assert(!http_percent_decode(SLICE("a%2"), text, sizeof(text)));
    ck_assert(!http_percent_decode(SLICE("a%"), text, sizeof(text)));
    ck_assert(!http_percent_decode(SLICE("a%zz"), text, sizeof(text)));
    ck_assert(!http_percent_decode(SLICE("a%00"), text, sizeof(text)));
    ck_assert(!http_percent_decode(SLICE("12345678"), text, sizeof(text)));
    ck_assert(http_percent_decode(SLICE("1234567"), text, sizeof(text)));
    struct slice cut = {.bytes = "a%20", .length = 3};
    ck_assert(!http_percent_decode(cut, text, sizeof(text)));
}

TESTS(http_path)
