/* The story: two spellings of one key that are read as two keys make two cards, and two keys read as one lose a
 * request. So every byte of a key is read by the grammar, and a malformed key is refused; the other headers are hints
 * and never stop a request. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "api/client_headers.h"
#include "tests/support/suite.h"

static struct http_request request;
static struct client_key key;
static const char *why;

static void set_up(void)
{
    memset(&request, 0, sizeof(request));
}

/* In a copy of its exact size, so that a byte read too far is noticed. */
static bool read_key(const char *value, size_t length)
{
    char *copy = malloc(length ? length : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, value, length);
    memset(&key, 0x55, sizeof(key));
    key.length = 0;
    why = NULL;
    bool read = header_read_key((struct slice){copy, length}, &key, &why);
    free(copy);
    return read;
}

static void expect_key(const char *value, const char *expected)
{
    ck_assert_msg(read_key(value, strlen(value)), "%s: %s", value, why);
    ck_assert_str_eq(key.text, expected);
    ck_assert_uint_eq(key.length, strlen(expected));
}

static void expect_no_key_bytes(const char *value, size_t length)
{
    ck_assert_msg(!read_key(value, length), "[%.*s] was read as [%s]", (int)length, value, key.text);
    ck_assert_ptr_nonnull(why);
    ck_assert_int_eq(key.text[0], 0x55);
}

static void expect_no_key(const char *value)
{
    expect_no_key_bytes(value, strlen(value));
}

TEST(quoted_and_bare_are_one_key)
{
    expect_key("\"8e03978e-40d5-43dd-bc93-6894a57f9324\"", "8e03978e-40d5-43dd-bc93-6894a57f9324");
    expect_key("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324");
    expect_key("k", "k");
    expect_key("\"k\"", "k");
    expect_key(" \t k \t", "k");
    expect_key("  \"k\"  ", "k");
    expect_key("\" k \"", " k "); /* inside the quotes blanks count */
    expect_key("K", "K");         /* and so does the case */
}

TEST(escapes_are_undone_and_only_the_two_that_exist)
{
    expect_key("\"a\\\"b\\\\c\"", "a\"b\\c");
    expect_key("\"\\\\\"", "\\");
    expect_no_key("\"a\\nb\"");
    expect_no_key("\"a\\ b\"");
    expect_no_key("\"a\\\"");
    expect_no_key("\"a\\");
    expect_no_key("a\\b");
    expect_no_key("a\\\\b");
}

TEST(an_empty_key_is_none)
{
    expect_no_key("");
    expect_no_key("  \t ");
    expect_no_key("\"\"");
    expect_no_key("\"\";a=1");
    expect_no_key("\"");
}

TEST(every_byte_is_allowed_or_refused_as_the_grammar_requires)
{
    for (int byte = 0; byte < 256; byte++) {
        const char bare[3] = {'a', (char)byte, 'b'};
        bool is_bare = byte >= 0x21 && byte <= 0x7e && !(byte == '"' || byte == ',' || byte == ';' || byte == '\\');
        ck_assert_msg(read_key(bare, 3) == is_bare, "bare 0x%02x", (unsigned)byte);
        const char quoted[5] = {'"', 'a', (char)byte, 'b', '"'};
        bool is_quoted = byte >= 0x20 && byte <= 0x7e && byte != '"' && byte != '\\';
        ck_assert_msg(read_key(quoted, 5) == is_quoted, "quoted 0x%02x", (unsigned)byte);
        if (is_quoted)
            ck_assert_mem_eq(key.text, quoted + 1, 4 - 1);
    }
}

TEST(a_key_has_at_most_255_bytes_after_decoding)
{
    char text[700];
    for (size_t length = 255; length <= 256; length++) {
        memset(text, 'x', sizeof(text));
        ck_assert_int_eq(read_key(text, length), length == 255);
        text[0] = '"';
        text[length + 1] = '"';
        ck_assert_int_eq(read_key(text, length + 2), length == 255);
        if (length == 255)
            ck_assert_uint_eq(key.length, 255);
        for (size_t i = 0; i < length; i++)
            memcpy(text + 1 + 2 * i, "\\\"", 2); /* two bytes on the wire, one in the key */
        text[1 + 2 * length] = '"';
        ck_assert_int_eq(read_key(text, 2 * length + 2), length == 255);
    }
}

TEST(parameters_after_the_string_are_ignored)
{
    static const char *const parameters[] = {
        ";a",          ";a=1",  "; a=1",     ";   a=1;b",   ";a=\"x;y,z\"", ";a=\"\\\"\\\\\"", ";*a",
        ";a-b_c.d*=1", ";a=?1", ";a=:YWJj:", ";a=tok/en:x", ";a=-1.5;b=*x", ";a=@1659578233",  ";a=%\"f%c3%bc\"",
        ";a=\"\"",
    };
    for (size_t i = 0; i < ARRAY_SIZE(parameters); i++) {
        char text[100] = "\"k\"";
        strcat(text, parameters[i]);
        expect_key(text, "k");
    }
}

TEST(what_follows_the_string_and_is_no_parameter_makes_it_no_key)
{
    static const char *const tails[] = {
        "x",    " x",     " ;a",        ",\"l\"", ", \"k\"",     "\"l\"",       ";",        "; ",
        ";A=1", ";1=a",   ";=1",        ";a=",    ";a=;b",       ";a=\"x",      ";a=\"x\\", ";a=\"x\"y",
        ";a b", ";a=b c", ";a=1,\"l\"", ";a=1\"", ";\xc3\xa9=1", ";a=\xc3\xa9", ";a\t=1",   ";a=%\"x",
    };
    for (size_t i = 0; i < ARRAY_SIZE(tails); i++) {
        char text[100] = "\"k\"";
        strcat(text, tails[i]);
        expect_no_key(text);
    }
    expect_no_key_bytes("\"k\";a\0b", 7);
    expect_no_key_bytes("\"k\";\0", 5);
    expect_no_key("k;a=1"); /* a bare value is not a structured field: it has no parameters */
    expect_no_key("k,l");
}

static void add_header(const char *name, const char *value)
{
    ck_assert_int_lt(request.header_count, HTTP_HEADERS_MAX);
    request.headers[request.header_count].name = (struct slice){name, strlen(name)};
    request.headers[request.header_count].value = (struct slice){value, strlen(value)};
    request.header_count++;
}

static int wait_of(const char *value)
{
    memset(&request, 0, sizeof(request));
    add_header("Host", "a");
    add_header("Prefer", value);
    return header_read_wait(&request);
}

TEST(a_wait_is_its_seconds_and_at_most_thirty)
{
    ck_assert_int_eq(header_read_wait(&request), 0);
    static const struct {
        const char *value;
        int seconds;
    } waits[] = {
        {"wait=0", 0},
        {"wait=1", 1},
        {"wait=29", 29},
        {"wait=30", 30},
        {"wait=31", 30},
        {"wait=3600", 30},
        {"wait=007", 7},
        {"wait=99999999999999999999999999", 30},
        {"WAIT=5", 5},
        {"Wait = 5", 5},
        {"wait=\"5\"", 5},
        {"respond-async, wait=10", 10},
        {"wait=10,respond-async", 10},
        {"wait=10; foo=bar", 10},
        {" wait=10 ", 10},
        {"return=minimal;x=1,\twait=10", 10},
        {",,wait=4,", 4},
        {"wait=4, wait=9", 4},
        {"await=5, wait=6", 6},
    };
    for (size_t i = 0; i < ARRAY_SIZE(waits); i++)
        ck_assert_msg(wait_of(waits[i].value) == waits[i].seconds, "%s: %d", waits[i].value, wait_of(waits[i].value));
}

TEST(an_unreadable_wait_is_no_wait)
{
    static const char *const bad[] = {
        "",        "wait",      "wait=",       "wait=x",    "wait=-1",   "wait=1.5",  "wait=+5",       "wait=5s",
        "wait=\"", "wait=\"\"", "wait=\"5",    "wait=5 6",  "wait=0x10", "waiting=5", "respond-async", "=5",
        "wait==5", ";wait=5",   "foo;wait=10", "x wait=10", ","};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(wait_of(bad[i]) == 0, "%s: %d", bad[i], wait_of(bad[i]));
}

TEST(all_prefer_lines_are_one_list)
{
    add_header("prefer", "respond-async");
    add_header("X-Prefer", "wait=1");
    add_header("PREFER", "wait=7");
    add_header("Prefer", "wait=9");
    ck_assert_int_eq(header_read_wait(&request), 7);
}

static bool is_json(const char *value)
{
    return header_is_json((struct slice){value, strlen(value)});
}

TEST(json_is_json_whatever_its_spelling)
{
    static const char *const good[] = {
        "application/json",
        "Application/JSON",
        " application/json ",
        "application/json;charset=utf-8",
        "application/json; charset=UTF-8",
        "application/json; charset=\"utf-8\"",
        "application/json ; Charset=utf-8",
        "application/json; foo=bar",
        "application/json; foo=bar; charset=utf-8",
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ck_assert_msg(is_json(good[i]), "%s", good[i]);
}

TEST(anything_else_is_not_json)
{
    static const char *const bad[] = {
        "",
        "text/json",
        "application/jso",
        "application/jsonx",
        "application/json5",
        "application/problem+json",
        "application/json, text/plain",
        "application/x-www-form-urlencoded",
        "*/*",
        ";charset=utf-8",
        "application/json; charset=latin1",
        "application/json; charset=utf-16",
        "application/json; charset=",
        "application/json; charset=\"\"",
        "application/json; charset=utf-8; charset=latin1",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!is_json(bad[i]), "%s", bad[i]);
    ck_assert(!header_is_json((struct slice){NULL, 0}));
}

#define TRACE "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

TEST(a_traceparent_is_handed_on_as_it_came)
{
    add_header("TraceParent", "  " TRACE " ");
    struct slice trace = header_read_trace(&request);
    ck_assert_uint_eq(trace.length, 55);
    ck_assert_mem_eq(trace.bytes, TRACE, 55);
}

TEST(what_is_no_traceparent_is_dropped)
{
    static const char *const bad[] = {
        "",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        memset(&request, 0, sizeof(request));
        add_header("traceparent", bad[i]);
        struct slice trace = header_read_trace(&request);
        ck_assert_msg(trace.bytes == NULL && trace.length == 0, "%s", bad[i]);
    }
    memset(&request, 0, sizeof(request));
    ck_assert_ptr_null(header_read_trace(&request).bytes);
    add_header("traceparent", TRACE);
    add_header("traceparent", TRACE);
    ck_assert_ptr_null(header_read_trace(&request).bytes); /* which of the two? */
}

TEST(all_lines_of_tracestate_are_one_and_a_bad_one_drops_them_all)
{
    static char many[TRACE_STATE_MAX];
    char text[TRACE_STATE_SIZE];
    ck_assert_ptr_null(header_read_trace_state(&request, text).bytes);
    add_header("TraceState", " rojo=1 ");
    add_header("tracestate", "");
    add_header("tracestate", "congo=2");
    struct slice state = header_read_trace_state(&request, text);
    ck_assert_uint_eq(state.length, strlen("rojo=1 ,congo=2"));
    ck_assert_mem_eq(state.bytes, "rojo=1 ,congo=2", state.length);
    add_header("tracestate", "congo");
    ck_assert_ptr_null(header_read_trace_state(&request, text).bytes);
    memset(&request, 0, sizeof(request));
    memset(many, 'x', sizeof(many) - 1);
    memcpy(many, "a=", 2);
    add_header("tracestate", many);
    add_header("tracestate", "b=1");
    ck_assert_ptr_null(header_read_trace_state(&request, text).bytes);
}

START_TEST(a_tracestate_of_512_bytes_is_kept_and_a_longer_one_is_not)
{
    static char edge[TRACE_STATE_SIZE + 1];
    char text[TRACE_STATE_SIZE];
    memset(edge, 'x', TRACE_STATE_MAX + (size_t)_i);
    memcpy(edge, "a=", 2);
    memcpy(edge + 258, ",b=", 3);
    edge[TRACE_STATE_MAX + _i] = '\0';
    add_header("tracestate", edge);
    ck_assert_uint_eq(header_read_trace_state(&request, text).length, _i == 0 ? TRACE_STATE_MAX : 0);
}

SUITE(client_headers)
{
    TCase *tcase = tcase_create("client_headers");
    tcase_add_checked_fixture(tcase, set_up, NULL);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, a_tracestate_of_512_bytes_is_kept_and_a_longer_one_is_not, 0, 2);
    suite_add_tcase(suite, tcase);
}
