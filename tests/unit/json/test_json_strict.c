/* The story: json-c takes {"a":1,"a":2}, NaN, raw newlines, overlong UTF-8, and clamps integers that do not fit.
 * Two readers that understand one body differently are how a check is bypassed, so a scanner of our own stands
 * before everything, and what it passes must mean the same to json-c. It must also never read past the end, and no
 * body of 64 KiB may keep it busy for long.
 *
 * A second one: a holder's name that was cut in the middle of a character made a whole answer unreadable, and a live
 * card ended as FAILED. Of an answer only the grammar is checked, and only what is used has to be good. */
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"

#include <check.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/buf.h"
#include "tests/support/suite.h"

#define TEXT(literal)                \
    {                                \
        literal, sizeof(literal) - 1 \
    }

/* Checks an exact-size copy, so that a sanitizer sees every byte read past the end. */
static bool check(const char *text, size_t length, struct err *err)
{
    char *copy = malloc(length ? length : 1);
    bool good;

    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text, length);
    good = json_strict_check(copy, length, err);
    ck_assert_msg(!good || json_grammar_check(copy, length, NULL), "%.*s", (int)length, text);
    free(copy);
    return good;
}

static bool fits_grammar(const char *text, size_t length)
{
    char *copy = malloc(length ? length : 1);
    bool good;

    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text, length);
    good = json_grammar_check(copy, length, NULL);
    free(copy);
    return good;
}

static bool accepted(const char *text)
{
    return check(text, strlen(text), NULL);
}

static void put_repeated(struct buf *buf, const char *text, size_t count)
{
    while (count-- > 0)
        ck_assert(buf_put_text(buf, text));
}

static const struct slice good_texts[] = {
    TEXT("{}"),
    TEXT("[]"),
    TEXT(" \t\r\n{ } \n"),
    TEXT("null"),
    TEXT("true"),
    TEXT("false"),
    TEXT("0"),
    TEXT("-0"),
    TEXT("-0.0"),
    TEXT("1e5"),
    TEXT("1E+5"),
    TEXT("12.50e-3"),
    TEXT("9223372036854775807"),
    TEXT("-9223372036854775808"),
    TEXT("1.7976931348623157e308"),
    TEXT("1.7976931348623158e308"),
    TEXT("-1797.6931348623157E305"),
    TEXT("0.000017976931348623157e313"),
    TEXT("0e99999999999999999999999"),
    TEXT("0.00e400"),
    TEXT("1e-99999999999999999999999"),
    TEXT("99999999999999999999999.0"),
    TEXT("\"\""),
    TEXT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\uABcd\""),
    TEXT("\"\\ud83d\\ude00\""),
    TEXT("\"\x7f \xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbf \xf0\x90\x80\x80 "
         "\xf4\x8f\xbf\xbf\""),
    TEXT("{\"kind\":\"new\",\"memo\":\"caf\xc3\xa9\",\"program\":\"gold\"}"),
    TEXT("{\"a\":{\"a\":{\"a\":[{\"a\":1},{\"a\":2}]}},\"b\":{\"a\":1}}"),
    TEXT("{\"\":1,\" \":2,\"a\":3,\"A\":4,\"\\u0001\":5}"),
    TEXT("[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"),
};

TEST(good_texts_are_accepted)
{
    struct err err;

    for (size_t i = 0; i < ARRAY_SIZE(good_texts); i++)
        ck_assert_msg(check(good_texts[i].bytes, good_texts[i].length, &err), "%.*s: %s", (int)good_texts[i].length,
                      good_texts[i].bytes, err.message);
}

TEST(everything_outside_the_grammar_is_refused)
{
    static const struct slice texts[] = {
        TEXT(""),
        TEXT(" "),
        TEXT("\n\t "),
        TEXT("{"),
        TEXT("["),
        TEXT("}"),
        TEXT("]"),
        TEXT(","),
        TEXT(":"),
        TEXT("{]"),
        TEXT("[}"),
        TEXT("[1,]"),
        TEXT("[,1]"),
        TEXT("[1 2]"),
        TEXT("[1,,2]"),
        TEXT("{\"a\":1,}"),
        TEXT("{,\"a\":1}"),
        TEXT("{\"a\"}"),
        TEXT("{\"a\":}"),
        TEXT("{\"a\" 1}"),
        TEXT("{\"a\":1 \"b\":2}"),
        TEXT("{a:1}"),
        TEXT("{1:1}"),
        TEXT("{null:1}"),
        TEXT("{'a':1}"),
        TEXT("'a'"),
        TEXT("{\"a\":NaN}"),
        TEXT("NaN"),
        TEXT("Infinity"),
        TEXT("-Infinity"),
        TEXT("inf"),
        TEXT("True"),
        TEXT("TRUE"),
        TEXT("Null"),
        TEXT("tru"),
        TEXT("truee"),
        TEXT("nul"),
        TEXT("undefined"),
        TEXT("012"),
        TEXT("-012"),
        TEXT("00"),
        TEXT("+1"),
        TEXT("-"),
        TEXT("--1"),
        TEXT(".5"),
        TEXT("1."),
        TEXT("1.e5"),
        TEXT("1e"),
        TEXT("1e+"),
        TEXT("1e1.5"),
        TEXT("0x10"),
        TEXT("1_000"),
        TEXT("1 000"),
        TEXT("1a"),
        TEXT("1 2"),
        TEXT("{}{}"),
        TEXT("{} x"),
        TEXT("[] ]"),
        TEXT("// c\n{}"),
        TEXT("/* c */{}"),
        TEXT("{}//"),
        TEXT("# c\n{}"),
        TEXT("{}\0"),
        TEXT("{}\0garbage"),
        TEXT("\0{}"),
        TEXT("{\"a\"\0:1}"),
        TEXT("\xef\xbb\xbf{}"),
        TEXT("\xff\xfe{\0}\0"),
        TEXT("\xff\xfe"),
        TEXT("\v{}"),
        TEXT("\f{}"),
        TEXT("\xc2\xa0{}"),
        TEXT("\"abc"),
        TEXT("\"abc\\\""),
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        ck_assert_msg(!check(texts[i].bytes, texts[i].length, NULL), "row %zu: %s", i, texts[i].bytes);
        ck_assert_msg(!fits_grammar(texts[i].bytes, texts[i].length), "row %zu: %s", i, texts[i].bytes);
    }
}

TEST(strings_hold_no_control_bytes_bad_utf8_or_bad_escapes)
{
    static const struct slice texts[] = {
        TEXT("\"a\nb\""),
        TEXT("\"a\tb\""),
        TEXT("\"a\rb\""),
        TEXT("\"a\0b\""),
        TEXT("\"\x1f\""),
        TEXT("\"12345678\x01\""),
        TEXT("\"\\u0000\""),
        TEXT("{\"\\u0000\":1}"),
        TEXT("\"\\ud800\""),
        TEXT("\"\\ud800x\""),
        TEXT("\"\\ud800\\n\""),
        TEXT("\"\\ud800\\u0041\""),
        TEXT("\"\\ud800\\ud800\""),
        TEXT("\"\\udc00\""),
        TEXT("\"\\udfff\\ud800\""),
        TEXT("\"\\ud800\\u\""),
        TEXT("\"\\x41\""),
        TEXT("\"\\'\""),
        TEXT("\"\\a\""),
        TEXT("\"\\U0041\""),
        TEXT("\"\\u004\""),
        TEXT("\"\\u004g\""),
        TEXT("\"\\u 041\""),
        TEXT("\"\\\n\""),
        TEXT("\"\xc0\xaf\""),
        TEXT("\"\xc1\xbf\""),
        TEXT("\"\xe0\x80\xaf\""),
        TEXT("\"\xe0\x9f\xbf\""),
        TEXT("\"\xf0\x80\x80\xaf\""),
        TEXT("\"\xf0\x8f\xbf\xbf\""),
        TEXT("\"\xed\xa0\x80\""),
        TEXT("\"\xed\xbf\xbf\""),
        TEXT("\"\xf4\x90\x80\x80\""),
        TEXT("\"\xf5\x80\x80\x80\""),
        TEXT("\"\xff\""),
        TEXT("\"\xfe\""),
        TEXT("\"\x80\""),
        TEXT("\"\xbf\""),
        TEXT("\"\xc3\""),
        TEXT("\"\xc3(\""),
        TEXT("\"\xe2\x82\""),
        TEXT("\"\xe2(\xa1\""),
        TEXT("\"\xf0\x9f\x98\""),
        TEXT("\"\xf0\x9f\x98("),
        TEXT("\"\xc3"),
        TEXT("\"\xe2\x82"),
        TEXT("\"\xf0\x9f\x98"),
        TEXT("\"\\"),
        TEXT("\"\\u00"),
        TEXT("\"\\ud83d\\ude0"),
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        ck_assert_msg(!check(texts[i].bytes, texts[i].length, NULL), "row %zu", i);
}

TEST(numbers_that_would_be_clamped_or_infinite_are_refused)
{
    static const char *const texts[] = {
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "99999999999999999999999",
        "-99999999999999999999999",
        "1e400",
        "-1e400",
        "1e309",
        "1.8e308",
        "1.7976931348623159e308",
        "17976931348623159e292",
        "0.00018e312",
        "1e99999999999999999999",
        "1.0e2147483648",
        "1000e306",
        "{\"a\":1e400}",
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        ck_assert_msg(!accepted(texts[i]), "%s", texts[i]);
}

TEST(what_the_grammar_leaves_to_each_reader_is_no_fault_of_the_grammar)
{
    static const struct slice texts[] = {
        TEXT("\"\\u0000\""),
        TEXT("{\"\\u0000\":1}"),
        TEXT("\"Ana \\ud83d\""),
        TEXT("\"\\ud800\\u0041\""),
        TEXT("\"\\ud800\\ud800\""),
        TEXT("\"\\uDC00x\""),
        TEXT("18446744073709551615"),
        TEXT("-99999999999999999999999999999"),
        TEXT("[1e400,-1E+99999999999999999999]"),
        TEXT("{\"a\":1,\"a\":2,\"\\u0061\":{}}"),
    };
    static const struct slice faults[] = {
        TEXT("\"\\ud83\""),  TEXT("\"\\ud83d\\x\""),   TEXT("\"\\ud83d\\u00\""), TEXT("\"\xed\xa0\xbd\""),
        TEXT("\"a\nb\""),    TEXT("{\"a\":1,\"a\":}"), TEXT("{\"a\":1,\"a\"]"),  TEXT("[1e400,1e]"),
        TEXT("\"\\U0000\""), TEXT("\"\\u000\""),
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        ck_assert_msg(!check(texts[i].bytes, texts[i].length, NULL), "%s", texts[i].bytes);
        ck_assert_msg(fits_grammar(texts[i].bytes, texts[i].length), "%s", texts[i].bytes);
    }
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++)
        ck_assert_msg(!fits_grammar(faults[i].bytes, faults[i].length), "%s", faults[i].bytes);
}

TEST(the_grammar_is_followed_into_any_depth_that_a_peer_may_write)
{
    struct buf buf;

    buf_init(&buf, 1 << 20);
    for (size_t depth = JSON_GRAMMAR_DEPTH_MAX; depth <= JSON_GRAMMAR_DEPTH_MAX + 1; depth++) {
        buf_reset(&buf);
        put_repeated(&buf, "{\"a\":[", depth / 2);
        put_repeated(&buf, "[", depth % 2);
        put_repeated(&buf, "]", depth % 2);
        put_repeated(&buf, "]}", depth / 2);
        ck_assert_int_eq(fits_grammar(buf.bytes, buf.length), depth == JSON_GRAMMAR_DEPTH_MAX);
        buf.bytes[buf.length - 1] = ']';
        ck_assert(!fits_grammar(buf.bytes, buf.length));
    }
    buf_done(&buf);
}

TEST(a_long_number_is_judged_by_its_value)
{
    struct buf buf;

    buf_init(&buf, 4096);
    put_repeated(&buf, "0.", 1);
    put_repeated(&buf, "0", 400);
    put_repeated(&buf, "1e700", 1); /* 1e299 */
    ck_assert(check(buf.bytes, buf.length, NULL));
    buf_reset(&buf);
    put_repeated(&buf, "9", 400);
    put_repeated(&buf, ".5", 1);
    ck_assert(!check(buf.bytes, buf.length, NULL));
    put_repeated(&buf, "e-200", 1);
    ck_assert(check(buf.bytes, buf.length, NULL));
    buf_done(&buf);
}

TEST(a_member_twice_in_one_object_is_refused_however_it_is_written)
{
    static const char *const texts[] = {
        "{\"a\":1,\"a\":2}",
        "{\"a\":1,\"a\":1}",
        "{\"\":1,\"\":2}",
        "{\"a\":1,\"\\u0061\":2}",
        "{\"\\u0061\":1,\"\\u0061\":2}",
        "{\"kind\":1,\"x\":{\"kind\":2},\"k\\u0069nd\":3}",
        "{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}",
        "{\"a\\/b\":1,\"a/b\":2}",
        "{\"\\n\":1,\"\\u000a\":2}",
        "{\"\\u000A\":1,\"\\u000a\":2}",
        "[{\"a\":1},{\"b\":{\"c\":1,\"d\":[],\"c\":{}}}]",
        "{\"1\":0,\"2\":0,\"3\":0,\"4\":0,\"5\":0,\"6\":0,\"7\":0,\"8\":0,\"9\":0,\"10\":0,\"11\":0,\"5\":0}",
    };
    struct err err;

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        ck_assert_msg(!check(texts[i], strlen(texts[i]), &err), "%s", texts[i]);
        ck_assert_int_eq(err.kind, ERR_MALFORMED);
        ck_assert_ptr_nonnull(strstr(err.message, "second time"));
    }
}

TEST(an_inner_object_may_use_the_names_of_the_outer_one)
{
    ck_assert(accepted("{\"a\":{\"a\":1,\"b\":{\"a\":1,\"b\":2}},\"b\":[{\"a\":1},{\"a\":1}]}"));
    ck_assert(!accepted("{\"a\":{\"a\":1,\"b\":{\"a\":1,\"b\":2}},\"b\":[{\"a\":1},{\"a\":1}],\"a\":0}"));
}

/* {"n0":0,"n1":0,...}, then `last` where it is not NULL. */
static void put_members(struct buf *buf, size_t count, const char *last)
{
    buf_reset(buf);
    buf_put_byte(buf, '{');
    for (size_t i = 0; i < count; i++)
        buf_put_format(buf, "%s\"n%zu\":0", i ? "," : "", i);
    if (last)
        buf_put_format(buf, ",\"%s\":0", last);
    ck_assert(buf_put_byte(buf, '}'));
}

TEST(large_objects_are_searched_for_duplicates_too)
{
    struct buf buf;

    buf_init(&buf, 1 << 20);
    for (size_t count = 1; count <= 1023; count += count < 70 ? 1 : 53) {
        put_members(&buf, count, NULL);
        ck_assert_msg(check(buf.bytes, buf.length, NULL), "%zu", count);
        put_members(&buf, count, "n0");
        ck_assert_msg(!check(buf.bytes, buf.length, NULL), "%zu", count);
        put_members(&buf, count, "\\u006e0");
        ck_assert_msg(!check(buf.bytes, buf.length, NULL), "%zu", count);
        put_members(&buf, count, "n");
        ck_assert_msg(check(buf.bytes, buf.length, NULL), "%zu", count);
    }
    buf_done(&buf);
}

TEST(an_object_has_at_most_1024_members)
{
    struct buf buf;
    struct err err;

    buf_init(&buf, 1 << 20);
    put_members(&buf, 1024, NULL);
    ck_assert(check(buf.bytes, buf.length, NULL));
    put_members(&buf, 1025, NULL);
    ck_assert(!check(buf.bytes, buf.length, &err));
    ck_assert_ptr_nonnull(strstr(err.message, "1024"));
    buf_done(&buf);
}

TEST(nesting_ends_at_the_limit_and_not_before)
{
    struct buf buf;
    struct err err;

    buf_init(&buf, 1 << 20);
    for (size_t depth = 1; depth <= JSON_DEPTH_MAX + 1; depth++) {
        buf_reset(&buf);
        put_repeated(&buf, "{\"a\":[", depth / 2);
        put_repeated(&buf, depth % 2 ? "[" : "", 1);
        put_repeated(&buf, depth % 2 ? "]" : "", 1);
        put_repeated(&buf, "]}", depth / 2);
        ck_assert_msg(check(buf.bytes, buf.length, &err) == (depth <= JSON_DEPTH_MAX), "%zu", depth);
    }
    ck_assert_ptr_nonnull(strstr(err.message, "deep"));
    buf_reset(&buf);
    put_repeated(&buf, "[", 1 << 19);
    ck_assert(!check(buf.bytes, buf.length, NULL));
    buf_done(&buf);
}

TEST(every_true_prefix_of_a_document_is_refused)
{
    static const char text[] = "{\"kind\":\"re\\u0069ssue\",\"n\":[-12.5e+3,0,true,false,null,{}],\"e\":"
                               "\"\\ud83d\\ude00 \xe2\x82\xac\",\"o\":{\"a\":\"\"}}";

    ck_assert(accepted(text));
    for (size_t length = 0; length < sizeof(text) - 1; length++)
        ck_assert_msg(!check(text, length, NULL), "%zu", length);
}

TEST(the_message_names_the_place_and_never_the_text)
{
    struct err err;

    ck_assert(!check("{\"pan\":4111111111111111 x}", 26, &err));
    ck_assert_int_eq(err.kind, ERR_MALFORMED);
    ck_assert_ptr_nonnull(strstr(err.message, "byte 24"));
    ck_assert_ptr_null(strstr(err.message, "4111"));
}

static uint64_t random_state;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Whether json-c, as strict as it can be, takes all of the text. */
static int json_c_flags = JSON_TOKENER_STRICT;

static bool json_c_accepts(const char *text, size_t length)
{
    struct json_tokener *tokener = json_tokener_new_ex(64);
    struct json_object *object;
    bool good;

    ck_assert_ptr_nonnull(tokener);
    json_tokener_set_flags(tokener, json_c_flags | JSON_TOKENER_VALIDATE_UTF8);
    object = json_tokener_parse_ex(tokener, text, (int)length);
    good = json_tokener_get_error(tokener) == json_tokener_success;
    if (json_tokener_get_error(tokener) == json_tokener_continue) {
        json_object_put(object);
        object = json_tokener_parse_ex(tokener, "", 1);
        good = json_tokener_get_error(tokener) == json_tokener_success;
    }
    json_object_put(object);
    json_tokener_free(tokener);
    return good;
}

static size_t mutate(char *text, size_t length, size_t capacity)
{
    static const char bytes[] =
        "{}[]\",:\\/ \n\tu0123456789abcdefnrt+-.eE'\x00\x01\x7f\x80\xbf\xc0\xc3\xa9\xe2\xed\xa0\xf0\xf4\xff";
    size_t place = next_random() % (length + 1);

    switch (next_random() % 5) {
    case 0: /* another byte */
        if (place < length)
            text[place] = bytes[next_random() % (sizeof(bytes) - 1)];
        break;
    case 1: /* one more byte */
        if (length < capacity) {
            memmove(text + place + 1, text + place, length - place);
            text[place] = bytes[next_random() % (sizeof(bytes) - 1)];
            length++;
        }
        break;
    case 2: /* one less */
        if (place < length) {
            memmove(text + place, text + place + 1, length - place - 1);
            length--;
        }
        break;
    case 3: /* cut */
        if (next_random() % 4 == 0)
            length = place;
        break;
    case 4: /* a piece again elsewhere */
        if (place < length && length < capacity) {
            size_t count = 1 + next_random() % (length - place), to = next_random() % (length + 1);
            char piece[512];
            if (count > capacity - length)
                count = capacity - length;
            memcpy(piece, text + place, count);
            memmove(text + to + count, text + to, length - to);
            memcpy(text + to, piece, count);
            length += count;
        }
        break;
    }
    return length;
}

/* Walks everything that can be reached; the walkers must stop and stay inside also in a text that is bad. */
static size_t walk(struct json_value value, int depth)
{
    struct json_value inner;
    struct slice name;
    size_t cursor = 0, count = 1;
    char text[600];
    int64_t integer;

    if (depth > 20)
        return count;
    while (json_next_element(value, &cursor, &inner))
        count += walk(inner, depth + 1);
    while (json_next_member(value, &cursor, &name, &inner)) {
        count += walk(inner, depth + 1);
        (void)json_member(value, "kind");
    }
    if (!json_string(value, text, sizeof(text), NULL) && !json_integer(value, INT64_MIN, INT64_MAX, &integer))
        count++;
    return count;
}

TEST(what_we_accept_json_c_accepts_and_nothing_reads_past_the_end)
{
    size_t accepted_count = 0, refused_count = 0, walked = 0;

    if (!json_c_accepts("\"\xc3\xa9\"", 4)) /* strict, 0.18 refuses all bytes from 0x80 on */
        json_c_flags = 0;
    random_state = 0x9E3779B97F4A7C15u;
    for (int round = 0; round < 60000; round++) {
        struct slice seed = good_texts[next_random() % ARRAY_SIZE(good_texts)];
        char text[512], *copy;
        size_t length = seed.length;
        memcpy(text, seed.bytes, length);
        for (uint64_t changes = 1 + next_random() % 4; changes > 0; changes--)
            length = mutate(text, length, sizeof(text));
        copy = malloc(length ? length : 1);
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, text, length);
        if (json_strict_check(copy, length, NULL)) {
            accepted_count++;
            ck_assert_msg(json_c_accepts(copy, length), "%.*s", (int)length, copy);
        } else {
            refused_count++;
        }
        walked += walk(json_value_of(copy, length), 0);
        free(copy);
    }
    ck_assert_uint_gt(accepted_count, 1000);
    ck_assert_uint_gt(refused_count, 1000);
    ck_assert_uint_gt(walked, 60000 / 2);
}

TESTS(json_strict)
