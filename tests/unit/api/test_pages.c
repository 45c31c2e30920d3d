/* The story: a client that has the description already gets 304, and one that has another version never does, whatever
 * else its If-None-Match says (RFC 9110, 13.1.2). */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "api/pages.h"
#include "tests/support/suite.h"

#define TAG "\"abc\""

static bool has(const char *value)
{
    return pages_has_tag((struct slice){.bytes = value, .length = strlen(value)}, TAG);
}

TEST(the_tag_is_found_alone_in_a_list_and_weak)
{
    static const char *const good[] = {"\"abc\"",
                                       "W/\"abc\"",
                                       " \"abc\" ",
                                       "\"x\", \"abc\"",
                                       "\"x\",W/\"y\" ,\t\"abc\"",
                                       "\"a,b\",\"abc\"",
                                       "\"\", \"abc\", \"z\"",
                                       "*",
                                       " * "};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ck_assert_msg(has(good[i]), "%s", good[i]);
}

TEST(another_tag_and_what_is_no_list_name_nothing)
{
    static const char *const bad[] = {"",
                                      "abc",
                                      "\"ab\"",
                                      "\"abcd\"",
                                      "\"ABC\"",
                                      "w/\"abc\"",
                                      "\"abc",
                                      "abc\"",
                                      "\"x \"abc\"\"",
                                      "\"x\" \"abc\"",
                                      "\"x\",abc",
                                      "*, \"x\"",
                                      "*\"abc\"",
                                      "W/",
                                      "\"",
                                      ",",
                                      "W/ \"abc\""};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!has(bad[i]), "%s", bad[i]);
}

TEST(the_length_decides_where_the_value_ends)
{
    ck_assert(!pages_has_tag((struct slice){.bytes = TAG, .length = 4}, TAG));
    ck_assert(!pages_has_tag((struct slice){0}, TAG));
}

TESTS(pages)
