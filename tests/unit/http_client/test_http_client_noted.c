/* A header of the answer may decide what happens to a card: "this failure is stored under your key" means that the card
 * is looked up, not asked for again. So a call gets the value that the peer's final answer states once and clearly, and
 * nothing of another header, of an interim answer, of a trailer or of an earlier answer. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/http_caller.h"
#include "tests/unit/http_peer.h"
#include "tests/support/suite.h"

#define NAME_40 "x-a-name-of-forty-bytes-and-not-one-more"
#define BLANKS_40 "                                        "
#define CHARACTERS_39 "123456789012345678901234567890123456789"

static const char *const names[] = {"stripe-should-retry", "transient-error", "idempotent-replayed", NAME_40, NULL};
static const char *scheme;

static void set_up_clear(void)
{
    scheme = "http";
    set_up(HTTP_PEER_CLEAR);
}

static void set_up_tls(void)
{
    scheme = "https";
    set_up(HTTP_PEER_TLS);
}

static void make_path(struct http_call *call, const char *path)
{
    char url[128];
    snprintf(url, sizeof(url), "%s://127.0.0.1:%d%s", scheme, peer.port, path);
    make(call, "GET", url);
    call->noted_headers = names;
}

static void call_path(struct http_call *call, const char *path)
{
    prepare(call, "GET", "http://");
    make_path(call, path);
    run(call);
}

static void expect_noted(const struct http_call *call, const char *const values[HTTP_NOTED_MAX])
{
    for (int i = 0; i < HTTP_NOTED_MAX; i++)
        ck_assert_msg(strcmp(call->noted[i], values[i]) == 0, "%s is \"%s\", not \"%s\": %s", names[i], call->noted[i],
                      values[i], peer.answer_header);
}

TEST(each_named_header_has_its_value_by_the_index_of_its_name)
{
    struct http_call call;
    snprintf(peer.answer_header, sizeof(peer.answer_header),
             "idempotent-replayed: true\r\nX-Other: no\r\n" NAME_40 ": 4\r\nSTRIPE-SHOULD-RETRY:false\r\n"
             "Transient-Error:\t  as Sent \t ");
    call_path(&call, "/header");
    expect_noted(&call, (const char *const[]){"false", "as Sent", "true", "4"});
    http_call_done(&call);
}

TEST(a_value_is_what_the_header_states_once_and_clearly)
{
    static const struct {
        const char *header, *value;
    } rows[] = {
        {"X: y", ""},
        {"Transient-Error: true", "true"},
        {"Transient-Error: TRUE", "TRUE"},
        {"Transient-Error:", ""},
        {"Transient-Error: " CHARACTERS_39, CHARACTERS_39},
        {"Transient-Error: " CHARACTERS_39 "x", ""},
        {"Transient-Error: true" BLANKS_40 BLANKS_40 BLANKS_40, ""},
        {"Transient-Error: true" BLANKS_40 BLANKS_40 BLANKS_40 "x", ""},
        {"Transient-Error: true" BLANKS_40 BLANKS_40 "x", ""},
        /* twice */
        {"Transient-Error: true\r\ntransient-error: true", "true"},
        {"Transient-Error: true\r\nX: y\r\nTransient-Error: false", ""},
        {"Transient-Error: true\r\nTransient-Error: false\r\nTransient-Error: true", ""},
        {"Transient-Error: true\r\nTransient-Error: false\r\nTransient-Error: false", ""},
        {"Transient-Error: true\r\nTransient-Error: True", ""},
        {"Transient-Error: true\r\nTransient-Error: tru", ""},
        {"Transient-Error: true\r\nTransient-Error: truex", ""},
        {"Transient-Error: true\r\nTransient-Error:", ""},
        {"Transient-Error:\r\nTransient-Error: true", ""},
        {"Transient-Error:\r\nTransient-Error:\r\nTransient-Error: true", ""},
        {"Transient-Error: 12345678901234567\r\nTransient-Error: true", ""},
        {"Transient-Error: true\r\nTransient-Error: 12345678901234567", ""},
        /* what is not a text */
        {"Transient-Error: tr\tue", ""},
        {"Transient-Error: tr\xc3\xbc", ""},
        {"Transient-Error: true\xff", ""},
        {"Transient-Error: \xff\r\nTransient-Error: true", ""},
        /* other names */
        {"Transient-ErrorX: true", ""},
        {"XTransient-Error: true", ""},
        {"Transient-Erro: true", ""},
        {"X: Transient-Error: true", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct http_call call;
        snprintf(peer.answer_header, sizeof(peer.answer_header), "%s", rows[i].header);
        call_path(&call, "/header");
        ck_assert_msg(call.result == HTTP_ANSWERED, "%s: %s", rows[i].header, call.error);
        /* A value that is longer than the room for it counts as too long, blanks included. */
        expect_noted(&call, (const char *const[]){"", rows[i].value, "", ""});
        http_call_done(&call);
    }
}

TEST(a_longer_name_that_begins_like_one_is_another)
{
    struct http_call call;
    snprintf(peer.answer_header, sizeof(peer.answer_header),
             NAME_40 "x: 1\r\n" NAME_40 NAME_40 ": 2\r\nidempotent-replayed-not: 3");
    call_path(&call, "/header");
    expect_noted(&call, (const char *const[]){"", "", "", ""});
    http_call_done(&call);
}

TEST(interim_answers_trailers_and_redirects_set_nothing)
{
    static const char *const paths[] = {"/noted-interim", "/noted-trailer"};
    struct http_call call;
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        call_path(&call, paths[i]);
        ck_assert_int_eq(call.status, 500);
        expect_noted(&call, (const char *const[]){"", "true", "", ""});
        http_call_done(&call);
    }
    call_path(&call, "/noted-redirect");
    ck_assert_int_eq(call.status, 302);
    expect_noted(&call, (const char *const[]){"", "", "", ""});
    http_call_done(&call);
}

TEST(a_trailer_that_looks_like_a_status_begins_no_answer)
{
    struct http_call call;
    call_path(&call, "/noted-false-status"); /* a name with a blank in it is not HTTP */
    ck_assert_int_eq(call.result, HTTP_LOST);
    expect_noted(&call, (const char *const[]){"", "", "", ""});
    http_call_done(&call);
}

TEST(a_folded_line_leaves_no_value_that_it_might_belong_to)
{
    struct http_call call;
    call_path(&call, "/noted-folded"); /* that is not an answer */
    expect_noted(&call, (const char *const[]){"", "", "", ""});
    http_call_done(&call);
}

TEST(a_value_is_gone_with_the_answer_that_it_came_with)
{
    struct http_call call;
    snprintf(peer.answer_header, sizeof(peer.answer_header), "Transient-Error: true");
    call_path(&call, "/header");
    expect_noted(&call, (const char *const[]){"", "true", "", ""});
    make_path(&call, "/ok");
    run(&call);
    ck_assert_int_eq(call.status, 200);
    expect_noted(&call, (const char *const[]){"", "", "", ""});

    make_path(&call, "/header");
    run(&call);
    expect_noted(&call, (const char *const[]){"", "true", "", ""});
    run(&call); /* it was not made again */
    ck_assert_int_eq(call.result, HTTP_NOT_SENT);
    expect_noted(&call, (const char *const[]){"", "", "", ""});

    make_path(&call, "/header");
    make(&call, "GET", "http://127.0.0.1:1/"); /* what was asked for is forgotten with the request */
    ck_assert_ptr_null(call.noted_headers);

    make_path(&call, "/noted-cut");
    run(&call);
    ck_assert_int_eq(call.result, HTTP_LOST);
    expect_noted(&call, (const char *const[]){"", "", "", ""});
    http_call_done(&call);
}

TEST(a_call_that_names_no_header_notes_none)
{
    static const char *const none[] = {NULL};
    struct http_call call;
    snprintf(peer.answer_header, sizeof(peer.answer_header), "Transient-Error: true");
    for (int i = 0; i < 2; i++) {
        prepare(&call, "GET", "http://");
        make_path(&call, "/header");
        call.noted_headers = i ? none : NULL;
        run(&call);
        ck_assert_int_eq(call.result, HTTP_ANSWERED);
        expect_noted(&call, (const char *const[]){"", "", "", ""});
        http_call_done(&call);
    }
}

TEST(headers_without_end_note_nothing)
{
    struct http_call call;
    call_path(&call, "/flood-headers");
    ck_assert_int_eq(call.result, HTTP_LOST);
    expect_noted(&call, (const char *const[]){"", "", "", ""});
    http_call_done(&call);
}

static void add_tests(Suite *suite, const char *name, void (*set_up_peer)(void))
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, set_up_peer, tear_down);
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
}

SUITE(http_client_noted)
{
    add_tests(suite, "http", set_up_clear);
    add_tests(suite, "https", set_up_tls);
}
