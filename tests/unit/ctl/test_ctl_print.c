/* The story: a user id is whatever another service wrote into the outbox. Listed on an operator's terminal it must not
 * clear the screen, start a new row that was never in the table, or turn the text around; and a table stays a table. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/print.h"
#include "tests/support/suite.h"
#include "tests/unit/fault_injection.h"

static char *printed;
static size_t printed_length;
static FILE *out;

static void set_up(void)
{
    printed = NULL;
    out = open_memstream(&printed, &printed_length);
    ck_assert_ptr_nonnull(out);
}

static void tear_down(void)
{
    free(printed);
}

static const char *close_out(void)
{
    ck_assert_int_eq(fclose(out), 0);
    return printed;
}

TEST(columns_are_as_wide_as_their_widest_cell)
{
    static const char *const heads[] = {"ID", "NAME", "N", NULL};
    struct table table;
    table_init(&table, heads);
    table_add(&table, "1234");
    table_add(&table, "gr\xc3\xbc\xc3\x9f"
                      "e"); /* five characters in seven bytes */
    table_add_number(&table, -7);
    table_add(&table, NULL);
    table_add(&table, "");
    table_add_number(&table, 100);
    ck_assert(table_flush(&table, out));
    table_done(&table);
    ck_assert_str_eq(close_out(), "ID    NAME   N\n"
                                  "1234  gr\xc3\xbc\xc3\x9f"
                                  "e  -7\n"
                                  "-     -      100\n");
}

TEST(the_heads_are_printed_once_and_only_above_rows)
{
    static const char *const heads[] = {"A", NULL};
    struct table table;
    table_init(&table, heads);
    ck_assert(table_flush(&table, out));
    table_add(&table, "1");
    ck_assert(table_flush(&table, out));
    table_add(&table, "2");
    ck_assert(table_flush(&table, out));
    table_done(&table);
    ck_assert_str_eq(close_out(), "A\n1\n2\n");
}

TEST(text_of_others_cannot_move_the_cursor)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"plain \xe2\x82\xac \xf0\x9f\x98\x80", "plain \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\x1b[2J", "?[2J"},
        {"a\nb\tc\rd", "a b c d"},
        {"\x7f\x01", "??"},
        {"\xc2\x9b"
         "31m",
         "??31m"}, /* C1: one character that starts a sequence */
        {"x\xe2\x80\xae"
         "y",
         "x???y"}, /* right-to-left override */
        {"x\xe2\x81\xa6"
         "y",
         "x???y"},          /* isolate */
        {"\xff\xc3", "??"}, /* no UTF-8 */
        {"\xe2\x82", "??"}, /* cut short */
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        print_text(cases[i].text, out);
        fputc('|', out);
    }
    char wanted[400] = "";
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        strcat(wanted, cases[i].shown);
        strcat(wanted, "|");
    }
    ck_assert_str_eq(close_out(), wanted);
}

TEST(a_cell_cannot_forge_a_row)
{
    static const char *const heads[] = {"USER", "X", NULL};
    struct table table;
    table_init(&table, heads);
    table_add(&table, "eve\nadmin");
    table_add(&table, "\x1b]0;t\x07");
    ck_assert(table_flush(&table, out));
    table_done(&table);
    ck_assert_str_eq(close_out(), "USER       X\neve admin  ?]0;t?\n");
}

TEST(a_json_line_is_one_line)
{
    FILE *real = stdout;
    stdout = out;
    bool is_printed = print_json(JSON_OBJECT(json_text("user_id", "a\nb\"\x1b"), json_flag("is", true)), NULL);
    stdout = real;
    ck_assert(is_printed);
    ck_assert_str_eq(close_out(), "{\"user_id\":\"a\\nb\\\"\\u001b\",\"is\":true}\n");
}

/* A receiver may answer `null`, which is not a failed allocation. */
TEST(a_document_is_shown_as_it_is_kept)
{
    FILE *real = stdout;
    stdout = out;
    bool is_printed = print_json(JSON_OBJECT(print_document("null", "null"), print_document("none", NULL),
                                             print_document("object", "{\"a\": [1, null]}"),
                                             print_document("text", "\"t\""), print_document("broken", "{")),
                                 NULL);
    stdout = real;
    ck_assert(is_printed);
    ck_assert_str_eq(close_out(),
                     "{\"null\":null,\"none\":null,\"object\":{\"a\":[1,null]},\"text\":\"t\",\"broken\":\"{\"}\n");
}

TEST(a_document_without_memory_is_no_text)
{
    long n = 0, count;
    do {
        allocations_fail_at(++n, 0);
        struct json *object = JSON_OBJECT(print_document("result", "{\"id\":\"a\"}"));
        count = allocations_stop_failing();
        ck_assert_int_eq(!object, n <= count);
        json_free(object);
    } while (n <= count);
    ck_assert_int_gt(count, 1);
    (void)close_out();
}

TEST(times_and_spans_are_short)
{
    char time[PRINT_TIME_SIZE], span[PRINT_SPAN_SIZE];
    static const struct {
        int64_t us;
        const char *shown;
    } spans[] = {
        {0, "0 ms"},
        {850999, "850 ms"},
        {INT64_C(59999999), "59 s"},
        {INT64_C(60000000), "1 min"},
        {INT64_C(200000000), "3 min 20 s"},
        {INT64_C(-200000000), "3 min 20 s"},
        {INT64_C(18060000000), "5 h 1 min"},
        {INT64_C(86400000000), "1 d"},
        {INT64_C(273600000000), "3 d 4 h"},
        {INT64_MIN, "106751991 d 4 h"},
    };
    ck_assert_str_eq(print_time(INT64_C(1700000000999999), time), "2023-11-14T22:13:20Z");
    ck_assert_str_eq(print_time(0, time), "-");
    for (size_t i = 0; i < ARRAY_SIZE(spans); i++)
        ck_assert_str_eq(print_span(spans[i].us, span), spans[i].shown);
    (void)close_out();
}

TESTS_BETWEEN(ctl_print, set_up, tear_down)
