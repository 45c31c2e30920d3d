/* The story: a card number is read out of the issuer's answer where it lies, without a copy in anybody's heap. What is
 * read so must mean what a parser would have read, never reach past the text, and what we write must be good JSON
 * whatever bytes come in. */
#include "common/lib/json/json_value.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/buf.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_text.h"
#include "tests/support/suite.h"

#define TEXT(literal)                \
    {                                \
        literal, sizeof(literal) - 1 \
    }

static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static struct json_value value_of(const char *text)
{
    ck_assert_msg(json_grammar_check(text, strlen(text), NULL), "%s", text);
    return json_value_of(text, strlen(text));
}

TEST(members_are_found_by_their_unescaped_name)
{
    struct json_value object =
        value_of(" { \"a\" : 1 , \"k\\u0069nd\" : \"new\" , \"kin\" : [ { \"kind\" : 7 } ] , \"n\":null}");

    ck_assert_int_eq(object.kind, JSON_OBJECT);
    ck_assert_int_eq(json_member(object, "a").kind, JSON_NUMBER);
    ck_assert_int_eq(json_member(object, "kind").kind, JSON_STRING);
    ck_assert_int_eq(json_member(object, "kin").kind, JSON_ARRAY);
    ck_assert_int_eq(json_member(object, "n").kind, JSON_NULL);
    ck_assert_int_eq(json_member(object, "ki").kind, JSON_MISSING);
    ck_assert_int_eq(json_member(object, "kindx").kind, JSON_MISSING);
    ck_assert_int_eq(json_member(object, "").kind, JSON_MISSING);
    ck_assert_int_eq(json_member(json_member(object, "kin"), "kind").kind, JSON_MISSING);
    ck_assert_int_eq(json_member(value_of("3"), "kind").kind, JSON_MISSING);
    ck_assert_int_eq(json_member(json_member(object, "none"), "kind").kind, JSON_MISSING);
}

TEST(many_members_are_found_in_one_walk_whatever_their_order)
{
    static const char *const names[] = {"c", "absent", "a", "b"};
    struct json_value found[ARRAY_SIZE(names)];
    int64_t number;
    json_members(value_of("{\"b\":{\"a\":9},\"\\u0061\":1,\"x\":2,\"c\":3}"), ARRAY_SIZE(names), names, found);
    ck_assert(json_integer(found[0], 3, 3, &number));
    ck_assert_int_eq(found[1].kind, JSON_MISSING);
    ck_assert(json_integer(found[2], 1, 1, &number));
    ck_assert_int_eq(found[3].kind, JSON_OBJECT);
    json_members(value_of("[1]"), ARRAY_SIZE(names), names, found);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        ck_assert_int_eq(found[i].kind, JSON_MISSING);
}

TEST(a_member_that_is_there_twice_has_no_value)
{
    static const char *const names[] = {"b", "a", "c"};
    struct json_value object = value_of("{\"a\":1,\"b\":2,\"\\u0061\":1,\"o\":{\"a\":1},\"o\":{},\"a\":3}");
    struct json_value found[ARRAY_SIZE(names)];
    char text[8];
    int64_t integer;
    ck_assert_int_eq(json_member(object, "a").kind, JSON_TWICE);
    ck_assert_int_eq(json_member(object, "b").kind, JSON_NUMBER);
    ck_assert(!json_integer(json_member(object, "a"), 0, 9, &integer));
    ck_assert(!json_string(json_member(object, "a"), text, sizeof(text), NULL));
    ck_assert_int_eq(json_member(json_member(object, "o"), "a").kind, JSON_TWICE);
    ck_assert_int_eq(json_member(json_member(object, "o"), "absent").kind, JSON_TWICE);
    json_members(object, ARRAY_SIZE(names), names, found);
    ck_assert(json_integer(found[0], 2, 2, &integer));
    ck_assert_int_eq(found[1].kind, JSON_TWICE);
    ck_assert_int_eq(found[2].kind, JSON_MISSING);
}

TEST(what_is_used_must_be_a_good_text)
{
    struct json_value object =
        value_of("{\"a\\u0000\":1,\"a\\ud83d\":2,\"x\":\"Ana \\ud83d\",\"y\":\"a\\u0000b\",\"z\":\"Ana\"}");
    char text[16];
    ck_assert_int_eq(json_member(object, "a").kind, JSON_MISSING);
    ck_assert(!json_string(json_member(object, "x"), text, sizeof(text), NULL));
    ck_assert(!json_string(json_member(object, "y"), text, sizeof(text), NULL));
    ck_assert(json_string(json_member(object, "z"), text, sizeof(text), NULL));
}

TEST(arrays_and_objects_are_walked_in_order)
{
    struct json_value array = value_of("[ 1 ,\"a,]\", [2,[3]] , {\"x\":\"}\"} ,true,null ] "), element, value;
    static const enum json_kind kinds[] = {JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT, JSON_BOOL, JSON_NULL};
    struct slice name;
    size_t cursor = 0, count = 0;

    while (json_next_element(array, &cursor, &element)) {
        ck_assert_uint_lt(count, ARRAY_SIZE(kinds));
        ck_assert_int_eq(element.kind, kinds[count]);
        count++;
    }
    ck_assert_uint_eq(count, ARRAY_SIZE(kinds));
    cursor = 0;
    ck_assert(!json_next_element(value_of("[ ]"), &cursor, &element));
    ck_assert(!json_next_element(value_of("{\"a\":1}"), &cursor, &element));
    ck_assert(!json_next_member(value_of("[1]"), &cursor, &name, &value));
    ck_assert(!json_next_member(value_of("{ }"), &cursor, &name, &value));
    ck_assert(json_next_member(value_of("{\"a\\n\" : 12}"), &cursor, &name, &value));
    ck_assert_uint_eq(name.length, 5);
    ck_assert_mem_eq(name.bytes, "\"a\\n\"", 5);
    ck_assert_uint_eq(value.raw.length, 2);
    ck_assert_mem_eq(value.raw.bytes, "12", 2);
}

TEST(strings_are_unescaped_into_the_callers_memory_or_not_at_all)
{
    char out[32];
    size_t length = 99;

    ck_assert(json_string(value_of("\"a\\u00e9\\ud83d\\ude00\\n\\\"\""), out, sizeof(out), &length));
    ck_assert_str_eq(out, "a\xc3\xa9\xf0\x9f\x98\x80\n\"");
    ck_assert_uint_eq(length, 9);
    ck_assert(json_string(value_of("\"\""), out, 1, &length));
    ck_assert_uint_eq(length, 0);
    ck_assert(json_string(value_of("\"abc\""), out, 4, NULL));
    ck_assert(!json_string(value_of("\"abc\""), out, 3, NULL));
    ck_assert(!json_string(value_of("\"ab\\u20ac\""), out, 5, NULL));
    ck_assert(json_string(value_of("\"ab\\u20ac\""), out, 6, NULL));
    ck_assert(!json_string(value_of("\"\""), out, 0, NULL));
    ck_assert(!json_string(value_of("12"), out, sizeof(out), NULL));
    ck_assert(!json_string(value_of("null"), out, sizeof(out), NULL));
}

TEST(an_integer_is_a_number_in_range_however_it_is_written)
{
    static const char *const none[] = {"1.5",   "1e-2",
                                       "10e-2", "0.7e0",
                                       "-0",    "-0.0",
                                       "1e19",  "9223372036854775808",
                                       "1e400", "true",
                                       "\"1\"", "null",
                                       "[1]",   "-1e99999999999999999999"};
    static const struct {
        const char *text;
        int64_t integer;
    } same[] = {{"7.0", 7},
                {"2031.0", 2031},
                {"2.031e3", 2031},
                {"2.031E+03", 2031},
                {"70e-1", 7},
                {"0.07e2", 7},
                {"-1.2e1", -12},
                {"0e999999999999", 0},
                {"0.000", 0},
                {"0e-5", 0},
                {"1e18", INT64_C(1000000000000000000)},
                {"-9223372036854775808.000", INT64_MIN}};
    int64_t integer = 7;

    for (size_t i = 0; i < ARRAY_SIZE(none); i++)
        ck_assert_msg(!json_integer(value_of(none[i]), INT64_MIN, INT64_MAX, &integer), "%s", none[i]);
    ck_assert_int_eq(integer, 7);
    for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
        ck_assert_msg(json_integer(value_of(same[i].text), INT64_MIN, INT64_MAX, &integer), "%s", same[i].text);
        ck_assert_msg(integer == same[i].integer, "%s: %lld", same[i].text, (long long)integer);
    }
    integer = 7;
    ck_assert(!json_integer(value_of("13"), 1, 12, &integer));
    ck_assert(!json_integer(value_of("0"), 1, 12, &integer));
    ck_assert_int_eq(integer, 7);
    ck_assert(json_integer(value_of("12"), 1, 12, &integer) && integer == 12);
    ck_assert(json_integer(value_of("0"), 0, 0, &integer) && integer == 0);
    ck_assert(json_integer(value_of("-9223372036854775808"), INT64_MIN, 0, &integer) && integer == INT64_MIN);
    ck_assert(json_integer(value_of("9223372036854775807"), 0, INT64_MAX, &integer) && integer == INT64_MAX);
}

TEST(true_and_false_are_distinguished_from_everything_else)
{
    ck_assert(json_is_true(value_of("true")) && !json_is_false(value_of("true")));
    ck_assert(json_is_false(value_of("false")) && !json_is_true(value_of("false")));
    ck_assert(!json_is_true(value_of("\"true\"")) && !json_is_true(value_of("1")) && !json_is_false(value_of("null")));
}

TEST(whatever_is_written_as_a_string_is_good_json)
{
    static const struct {
        struct slice in;
        const char *out;
    } rows[] = {
        {TEXT(""), "\"\""},
        {TEXT("abc/"), "\"abc/\""},
        {TEXT("\"\\\n\r\t\x01\x1f\x7f"), "\"\\\"\\\\\\n\\r\\t\\u0001\\u001f\x7f\""},
        {TEXT("\xc3\xa9\xf0\x9f\x98\x80"), "\"\xc3\xa9\xf0\x9f\x98\x80\""},
        {TEXT("a\0b"), "\"a\xef\xbf\xbd"
                       "b\""}, /* the strict check refuses \u0000, and so does PostgreSQL */
        {TEXT("a\xffz\xed\xa0\x80\xc3"), "\"a\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
    };
    struct buf buf;

    buf_init(&buf, 4096);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        buf_reset(&buf);
        ck_assert(json_put_string(&buf, rows[i].in.bytes, rows[i].in.length));
        ck_assert_str_eq(buf.bytes, rows[i].out);
        ck_assert(json_strict_check(buf.bytes, buf.length, NULL));
    }
    random_state = 42;
    for (int round = 0; round < 5000; round++) {
        char text[24], back[100];
        size_t length = next_random() % sizeof(text), back_length;
        for (size_t i = 0; i < length; i++)
            text[i] = (char)(1 + next_random() % (round % 2 ? 127 : 255));
        buf_reset(&buf);
        ck_assert(json_put_string(&buf, text, length));
        ck_assert(json_strict_check(buf.bytes, buf.length, NULL));
        ck_assert(json_string(json_value_of(buf.bytes, buf.length), back, sizeof(back), &back_length));
        if (round % 2) { /* ASCII comes back as it was */
            ck_assert_uint_eq(back_length, length);
            ck_assert_mem_eq(back, text, length);
        }
    }
    buf_done(&buf);
}

TEST(a_full_buffer_makes_writing_fail)
{
    struct buf buf;

    buf_init(&buf, 4);
    ck_assert(!json_put_string(&buf, "abc", 3));
    buf_done(&buf);
}

/* Eight bytes are looked at together: a byte that ends a string must not be passed over, wherever it is, nor one stop
 * it that only stands before or behind such a byte. */
TEST(plain_bytes_end_at_the_first_that_is_not)
{
    unsigned char text[20];
    for (size_t at = 0; at < sizeof(text); at++) {
        for (int byte = 0; byte < 256; byte++) {
            memset(text, byte & 1 ? 0x7f : 0x20, sizeof(text));
            text[at] = (unsigned char)byte;
            size_t expected = json_text_is_plain((unsigned char)byte) ? sizeof(text) : at;
            ck_assert_uint_eq((size_t)(json_text_plain_end(text, text + sizeof(text)) - text), expected);
            memset(text + at, byte, sizeof(text) - at);
            ck_assert_uint_eq((size_t)(json_text_plain_end(text, text + sizeof(text)) - text), expected);
        }
    }
}

TESTS(json_value)
