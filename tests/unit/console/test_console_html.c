/* The story: a user id is whatever another service wrote into the outbox. On a page it must not become an element, end
 * an attribute, turn the text around, or break the page's encoding. */
#include <check.h>

#include "common/lib/base/utf8.h"
#include "ctl/console/html.h"
#include "ctl/console/plot.h"
#include "tests/support/suite.h"

#define LOST "\xEF\xBF\xBD"

static struct buf out;

static void set_up(void)
{
    buf_init(&out, 4096);
}

static void tear_down(void)
{
    buf_done(&out);
}

static const char *written(void)
{
    return out.bytes ? out.bytes : "";
}

TEST(text_of_others_stays_text)
{
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"plain", "plain"},
        {"<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"},
        {"\" onload='x' & ", "&quot; onload=&#39;x&#39; &amp; "},
        {"a\nb\tc\rd", "a b c d"},
        {"\x01\x1b[31m\x7f", LOST LOST "[31m" LOST},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc2\x80\xc2\x9f", LOST LOST},                                       /* C1 controls */
        {"\xe2\x80\xae\xe2\x81\xa6\xe2\x80\x8f\xd8\x9c", LOST LOST LOST LOST}, /* turn the direction */
        {"\xff\xfe", LOST LOST},
        {"\xc3", LOST},          /* cut off */
        {"\xc0\xaf", LOST LOST}, /* overlong */
        {"\xe0\x80\xaf", LOST LOST LOST},
        {"\xed\xa0\x80", LOST LOST LOST}, /* a surrogate */
        {"\xf4\x90\x80\x80", LOST LOST LOST LOST},
        {"\xc3<b>", LOST "&lt;b&gt;"}, /* a cut sequence takes nothing along */
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        buf_reset(&out);
        html_text(&out, rows[i].text);
        ck_assert_str_eq(out.length ? written() : "", rows[i].shown);
    }
    buf_reset(&out);
    html_text(&out, NULL);
    ck_assert_uint_eq(out.length, 0);
}

TEST(every_byte_and_pair_of_bytes_leaves_valid_utf8_without_markup)
{
    for (int first = 1; first < 256; first++)
        for (int second = 1; second < 256; second++) {
            const char text[] = {(char)first, (char)second, '\0'};
            buf_reset(&out);
            html_text(&out, text);
            ck_assert(utf8_is(out.bytes, out.length));
            ck_assert(!strpbrk(out.bytes, "<>\"'\n"));
            for (size_t i = 0; i < out.length; i++)
                ck_assert((unsigned char)out.bytes[i] >= 0x20);
        }
}

TEST(markup_takes_texts_at_its_holes)
{
    html_put(&out, "<a href=\"/events/{}\">{}</a>{}", 3, "x\"y", "<b>", NULL);
    ck_assert_str_eq(written(), "<a href=\"/events/x&quot;y\">&lt;b&gt;</a>");
}

TEST(a_part_of_a_query_is_encoded)
{
    html_url(&out, "a b&c=\"<\xc3\xbc>'+#/?%");
    ck_assert_str_eq(written(), "a%20b%26c%3D%22%3C%C3%BC%3E%27%2B%23%2F%3F%25");
}

TEST(numbers_and_times_are_readable)
{
    static const struct {
        int64_t number;
        const char *shown;
    } rows[] = {{0, "0"},
                {999, "999"},
                {1000, "1\xE2\x80\xAF"
                       "000"},
                {-1234567, "-1\xE2\x80\xAF"
                           "234\xE2\x80\xAF"
                           "567"},
                {-123, "-123"}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        buf_reset(&out);
        html_number(&out, rows[i].number);
        ck_assert_str_eq(written(), rows[i].shown);
    }
    buf_reset(&out);
    html_time(&out, INT64_C(1700000000123456));
    ck_assert_str_eq(written(), "<time datetime=\"2023-11-14T22:13:20.123456Z\">2023-11-14 22:13:20</time>");
    buf_reset(&out);
    html_time(&out, 0);
    ck_assert_str_eq(written(), "-");
    buf_reset(&out);
    html_status(&out, "FAILED");
    ck_assert_ptr_nonnull(strstr(written(), "</span> FAILED</span>"));
    buf_reset(&out);
    html_status(&out, "<new>");
    ck_assert_str_eq(written(), "&lt;new&gt;");
}

TEST(the_top_of_an_axis_is_round)
{
    static const int64_t numbers[][2] = {{0, 1},   {1, 1},   {2, 2},   {7, 8},   {9, 10},
                                         {11, 20}, {21, 30}, {51, 60}, {61, 80}, {4999, 5000}};
    static const int64_t spans[][2] = {{0, 100}, {950, 1000}, {1001, 2000}, {61000, 120000}, {3600001, 7200000}};
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        ck_assert_int_eq(plot_top(numbers[i][0], false), numbers[i][1]);
    for (size_t i = 0; i < ARRAY_SIZE(spans); i++)
        ck_assert_int_eq(plot_top(spans[i][0], true), spans[i][1]);
    ck_assert_int_ge(plot_top(INT64_MAX, false), INT64_MAX);
    ck_assert_int_ge(plot_top(INT64_MAX, true), INT64_MAX);
}

TESTS_BETWEEN(console_html, set_up, tear_down)
