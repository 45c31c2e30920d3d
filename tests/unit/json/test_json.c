/* The story: json-c is lenient and full of details (null is a NULL pointer, a failed append leaves the value with the
 * caller). Our module in front of it is strict and never leaks a value that it was given, and the strict scanner
 * accepts what the module writes. */
#include "common/lib/json/json.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "tests/support/suite.h"

static struct json *parse(const char *text)
{
    struct json *json = NULL;
    struct err err = {.kind = ERR_NONE};

    ck_assert_msg(json_parse(text, strlen(text), &json, &err), "%s: %s", text, err.message);
    return json;
}

static void assert_written(const struct json *json, const char *expected)
{
    struct buf out;

    buf_init(&out, 4096);
    ck_assert(json_write(json, &out));
    ck_assert_str_eq(out.bytes, expected);
    ck_assert(json_strict_check(out.bytes, out.length, NULL));
    buf_done(&out);
}

TEST(what_json_c_would_swallow_is_refused)
{
    static const char *const texts[] = {
        "",
        "{",
        "{\"a\":1,\"a\":2}",
        "{'a':1}",
        "{\"a\":NaN}",
        "1e400",
        "99999999999999999999999",
        "\"a\nb\"",
        "\"\\ud800\"",
        "\"\xc0\xaf\"",
        "\"\xed\xa0\x80\"",
        "{} {}",
        "{\"a\":1}x",
        "/**/{}",
    };
    struct json *const before = (struct json *)(void *)texts;

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct json *json = before;
        struct err err = {.kind = ERR_NONE};
        ck_assert_msg(!json_parse(texts[i], strlen(texts[i]), &json, &err), "%s", texts[i]);
        ck_assert_int_eq(err.kind, ERR_MALFORMED);
        ck_assert_ptr_eq(json, before);
    }
}

TEST(scalars_at_the_root_need_no_terminator)
{
    static const char *const texts[] = {"12", "-3.5", "true", "\"a\"", "[1]", "0"};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        size_t length = strlen(texts[i]);
        char *copy = malloc(length);
        struct json *json = NULL;
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, texts[i], length);
        ck_assert(json_parse(copy, length, &json, NULL));
        free(copy);
        assert_written(json, texts[i]);
        json_free(json);
    }
}

TEST(null_is_read_as_null)
{
    json_scope struct json *json = (struct json *)(void *)&json;

    ck_assert(json_parse("null", 4, &json, NULL));
    ck_assert_ptr_null(json);
    assert_written(json, "null");
}

TEST(the_deepest_document_the_scanner_passes_is_read)
{
    char text[2 * JSON_DEPTH_MAX + 3];
    struct json *json = NULL;

    memset(text, '[', JSON_DEPTH_MAX);
    text[JSON_DEPTH_MAX] = '1';
    memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX);
    ck_assert(json_parse(text, 2 * JSON_DEPTH_MAX + 1, &json, NULL));
    json_free(json);
    memset(text, '[', JSON_DEPTH_MAX + 1);
    memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    ck_assert(!json_parse(text, 2 * JSON_DEPTH_MAX + 2, &json, NULL));
}

TEST(what_was_built_is_written_on_one_line_without_spaces)
{
    struct json *list = json_new_array();

    json_append(&list, JSON_OBJECT(json_number("n", 1)));
    json_append(&list, json_new_text("x"));
    json_scope struct json *object = JSON_OBJECT(
        json_text("url", "http://a/b \"q\"\n\xc3\xa9"), json_number("least", INT64_MIN), json_flag("yes", true),
        json_null("nothing"), json_text("no_text", NULL), json_time("never", 0),
        json_time("at", INT64_C(1700000000123456)), (struct json_field){.name = NULL}, json_tree("list", list));
    json_add(&object, json_number("least", -1)); /* again: replaced */
    assert_written(
        object,
        "{\"url\":\"http://a/b "
        "\\\"q\\\"\\n\xc3\xa9\",\"least\":-1,\"yes\":true,\"nothing\":null,\"no_text\":null,\"never\":null,\"at\":"
        "\"2023-11-14T22:13:20.123456Z\",\"list\":[{\"n\":1},\"x\"]}");
}

TEST(what_was_read_is_written_as_it_came)
{
    static const char *const texts[] = {
        "[1.5,-2.50e+3,1e-400,0,-1,9223372036854775807,-9223372036854775808]",
        "{\"b\":1,\"a\":{\"z\":[],\"y\":{}},\"\\n\":\"\\\"\\\\/\xc3\xa9\"}",
        "[[[[null]]],true,false,\"\"]",
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        json_scope struct json *json = parse(texts[i]);
        assert_written(json, texts[i]);
    }
}

TEST(minus_zero_is_the_integer_zero)
{
    json_scope struct json *json = parse("{\"a\":-0}");

    assert_written(json, "{\"a\":0}");
}

TEST(a_tree_too_deep_to_be_read_by_anybody_is_not_written)
{
    json_scope struct json *root = json_new_array();
    struct buf out;

    for (int i = 0; i < 1000; i++) {
        struct json *outer = json_new_array();
        json_append(&outer, root);
        root = outer;
    }
    buf_init(&out, 4096);
    ck_assert(!json_write(root, &out));
    buf_done(&out);
}

TEST(what_could_not_be_made_makes_nothing_of_the_whole)
{
    struct json *array = json_new_array(), *object;

    /* A leak checker sees whether each value was let go. */
    object = JSON_OBJECT(json_text("a", "b"), json_tree("missing", NULL), json_tree("list", json_new_array()));
    ck_assert_ptr_null(object);
    json_add(&object, json_text("a", "b"));
    ck_assert_ptr_null(object);
    json_append(&array, json_new_text("x"));
    json_append(&array, object);
    ck_assert_ptr_null(array);
    json_append(&array, json_new_text("y"));
    ck_assert_ptr_null(array);
}

TEST(writing_into_a_full_buffer_fails)
{
    json_scope struct json *json = parse("{\"a\":\"bcdefgh\"}");
    struct buf out;

    buf_init(&out, 8);
    ck_assert(!json_write(json, &out));
    ck_assert(out.failed);
    buf_done(&out);
}

TESTS(json)
