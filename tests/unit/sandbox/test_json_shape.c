/* The story: a stand-in issuer that takes a misspelt member, a text of the wrong length or a missing one lets the
 * worker pass its tests with a request that the real issuer refuses. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/json/json_strict.h"
#include "sandbox/json_shape.h"
#include "tests/support/suite.h"

#define FLAWS 4

static const struct json_shape inner[] = {
    {"kind", .kind = JSON_STRING, .is_required = true, .choices = "a|bc|d"},
    {"any", .kind = JSON_OBJECT},
    {0},
};
static const struct json_shape texts[] = {
    {"*", .kind = JSON_STRING, .longest = 3},
    {0},
};
static const struct json_shape outer[] = {
    {"name", .kind = JSON_STRING, .is_required = true, .shortest = 2, .longest = 4},
    {"flag", .kind = JSON_BOOL},
    {"inner", .kind = JSON_OBJECT, .members = inner},
    {"texts", .kind = JSON_OBJECT, .members = texts},
    {0},
};

static struct json_shape_flaw flaws[FLAWS];

static size_t check(const char *text)
{
    ck_assert_msg(json_strict_check(text, strlen(text), NULL), "%s", text);
    return json_shape_check(json_value_of(text, strlen(text)), outer, flaws, FLAWS);
}

/* "path why", or "" when the text has the shape. */
static const char *flaw_of(const char *text)
{
    static char found[JSON_SHAPE_PATH_SIZE + 80];
    if (check(text) == 0)
        return "";
    snprintf(found, sizeof(found), "%s %s", flaws[0].path, flaws[0].why);
    return found;
}

TEST(an_object_of_the_shape_has_no_flaw)
{
    ck_assert_str_eq(flaw_of("{\"name\":\"ab\"}"), "");
    ck_assert_str_eq(flaw_of("{\"flag\":false,\"name\":\"abcd\",\"inner\":{\"any\":{\"x\":[1]},\"kind\":\"bc\"},"
                             "\"texts\":{}}"),
                     "");
}

TEST(each_member_has_its_kind_length_and_choices)
{
    ck_assert_str_eq(flaw_of("{\"name\":7}"), "name is of another type");
    ck_assert_str_eq(flaw_of("{\"name\":null}"), "name is of another type");
    ck_assert_str_eq(flaw_of("{\"name\":\"a\"}"), "name is too short");
    ck_assert_str_eq(flaw_of("{\"name\":\"abcde\"}"), "name is too long");
    ck_assert_str_eq(flaw_of("{\"name\":\"ab\",\"flag\":\"true\"}"), "flag is of another type");
    ck_assert_str_eq(flaw_of("{\"name\":\"ab\",\"inner\":{\"kind\":\"b\"}}"),
                     "inner.kind is none of the allowed values");
    ck_assert_str_eq(flaw_of("{\"name\":\"ab\",\"inner\":{\"kind\":\"a|bc\"}}"),
                     "inner.kind is none of the allowed values");
    ck_assert_str_eq(flaw_of("{\"name\":\"ab\",\"inner\":{\"kind\":\"\"}}"),
                     "inner.kind is none of the allowed values");
}

TEST(unknown_and_missing_members_are_named_with_their_path)
{
    ck_assert_str_eq(flaw_of("{}"), "name is required");
    ck_assert_str_eq(flaw_of("{\"name\":\"ab\",\"Name\":\"ab\"}"), "Name is not a known member");
    ck_assert_str_eq(flaw_of("{\"name\":\"ab\",\"inner\":{}}"), "inner.kind is required");
    ck_assert_str_eq(flaw_of("{\"name\":\"ab\",\"inner\":{\"kind\":\"a\",\"x\":1}}"), "inner.x is not a known member");
    ck_assert_str_eq(flaw_of("{\"name\":\"ab\",\"texts\":{\"x\":1}}"), "texts.x is of another type");
    ck_assert_str_eq(flaw_of("{\"name\":\"ab\",\"texts\":{\"x\":\"abcd\"}}"), "texts.x is too long");
    ck_assert_str_eq(flaw_of("[]"), " is not an object");
}

TEST(names_and_lengths_are_those_of_the_unescaped_text)
{
    ck_assert_str_eq(flaw_of("{\"n\\u0061me\":\"ab\"}"), "");
    ck_assert_str_eq(flaw_of("{\"name\":\"\\u00fc\\n\\\"\\\\\"}"), "");
    ck_assert_str_eq(flaw_of("{\"name\":\"\u00fc\u20ac\U0001f600x\"}"), "");
    ck_assert_str_eq(flaw_of("{\"name\":\"\\ud83d\\ude00\\uD83D\\uDE00\"}"), "");
    ck_assert_str_eq(flaw_of("{\"name\":\"\\ud83d\\ude00\"}"), "name is too short");
    ck_assert_str_eq(flaw_of("{\"name\":\"ab\",\"inner\":{\"kind\":\"\\u0062c\"}}"), "");
}

TEST(no_more_flaws_are_told_than_there_is_room_for)
{
    char text[2000] = "{", path[JSON_SHAPE_PATH_SIZE + 1];
    size_t length = 1;
    for (int i = 0; i < 3 * FLAWS; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s\"x%d\":1", i ? "," : "", i);
    snprintf(text + length, sizeof(text) - length, "}");
    ck_assert_uint_eq(check(text), FLAWS);
    ck_assert_str_eq(flaws[FLAWS - 1].path, "x3");
    memset(path, 'p', sizeof(path));
    snprintf(text, sizeof(text), "{\"%.*s\":1}", (int)sizeof(path), path);
    ck_assert_uint_eq(check(text), 2);
    ck_assert_uint_eq(strlen(flaws[0].path), JSON_SHAPE_PATH_SIZE - 1);
    ck_assert_str_eq(flaws[1].path, "name");
}

TESTS(json_shape)
