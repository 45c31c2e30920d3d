/* The story, of the issuer of docs/peers.md: what its answer means decides whether a user gets no card, one card or
 * two. Every row of docs/peers.md about the issuer is tested here, and so are the broken bodies that issuers send: an
 * answer that cannot be trusted is UNKNOWN, never a refusal. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "common/core/issuer/issuer.h"
#include "tests/support/suite.h"
#include "worker/peer_call.h"

#define EVENT "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5b"
#define OTHER "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5c"
#define CARD_WITH(rest) \
    "{\"id\":\"ic_1\",\"reference\":\"" EVENT "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\"" rest "}"
#define GOOD_CARD CARD_WITH(",\"pan\":\"4111111111111111\"")
#define CANCELLED_CARD                        \
    "{\"id\":\"ic_2\",\"reference\":\"" EVENT \
    "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"cancelled\",\"last4\":\"1111\"}"

#define OTHER_CARD                            \
    "{\"id\":\"ic_3\",\"reference\":\"" EVENT \
    "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}"

static struct uuid event_id;
static struct issuer_card card;
static struct outcome outcome;
static enum issuer_found found;
static struct issuer_lookup lookup;

static void set_up(void)
{
    http_call_init(&call, 64 * 1024);
    ck_assert(uuid_parse(EVENT, strlen(EVENT), &event_id));
    memset(&card, 0, sizeof(card));
    memset(&outcome, 0x55, sizeof(outcome));
    found = ISSUER_FOUND_NONE;
}

static void tear_down(void)
{
    issuer_lookup_forget(&lookup);
    http_call_done(&call);
}

static void not_answered(enum http_result result)
{
    answered(0, "");
    call.result = result;
    snprintf(call.error, sizeof(call.error), "why");
}

static void read_create(void)
{
    memset(&outcome, 0x55, sizeof(outcome));
    issuer_read_create(&issuer_generic, &call, &event_id, &card, &outcome);
}

static void read_lookup(void)
{
    memset(&outcome, 0x55, sizeof(outcome));
    issuer_lookup_forget(&lookup);
    issuer_read_lookup(&issuer_generic, &call, &event_id, &lookup, &outcome);
    ck_assert(lookup.is_done == (outcome.kind == OUTCOME_EXECUTED)); /* the list is always whole */
    found = issuer_lookup_found(&lookup);
    card = lookup.card;
}

static void read_cancel(void)
{
    memset(&outcome, 0x55, sizeof(outcome));
    issuer_read_cancel(&issuer_generic, ISSUER_CANCEL, &call, &outcome);
}

struct row {
    int status;
    enum outcome_kind kind;
    enum outcome_advice advice;
    enum breaker_result health;
    const char *code; /* with a body that brings no code */
};

/* The statuses of a create, by the table in docs/peers.md. */
static const struct row create_rows[] = {
    {408, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_ANSWERED, "issuer_http_408"},
    {409, OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, BREAKER_ANSWERED, "issuer_http_409"},
    {425, OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, BREAKER_ANSWERED, "issuer_http_425"},
    {429, OUTCOME_NOT_EXECUTED, ADVICE_WAIT, BREAKER_BUSY, "issuer_http_429"},
    {400, OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD, "issuer_refused"},
    {410, OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD, "issuer_refused"},
    {422, OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD, "issuer_refused"},
    {401, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_401"},
    {403, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_403"},
    {404, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_404"},
    {405, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_405"},
    {300, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_300"},
    {301, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_301"},
    {307, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_307"},
    {399, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_399"},
    {402, OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD, "issuer_http_402"},
    {406, OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD, "issuer_http_406"},
    {413, OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD, "issuer_http_413"},
    {415, OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD, "issuer_http_415"},
    {451, OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD, "issuer_http_451"},
    {499, OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD, "issuer_http_499"},
    {500, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD, "issuer_http_500"},
    {502, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD, "issuer_http_502"},
    {503, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD, "issuer_http_503"},
    {504, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD, "issuer_http_504"},
    {599, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD, "issuer_http_599"},
    {202, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_ANSWERED, "issuer_http_202"},
    {204, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_ANSWERED, "issuer_http_204"},
    {299, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_ANSWERED, "issuer_http_299"},
};

static void expect_row(const struct row *row)
{
    ck_assert_msg(outcome.kind == row->kind, "%d: kind %d", row->status, (int)outcome.kind);
    ck_assert_msg(outcome.advice == row->advice, "%d: advice %d", row->status, (int)outcome.advice);
    ck_assert_msg(outcome.health == row->health, "%d: health %d", row->status, (int)outcome.health);
    ck_assert_str_eq(outcome.code, row->code);
}

TEST(each_status_of_a_create_has_the_meaning_in_the_table)
{
    static const char *const bodies[] = {"", "{}", "<html>", GOOD_CARD}; /* the status decides, not the body */
    for (size_t i = 0; i < ARRAY_SIZE(create_rows); i++) {
        for (size_t b = 0; b < ARRAY_SIZE(bodies); b++) {
            answered(create_rows[i].status, bodies[b]);
            read_create();
            expect_row(&create_rows[i]);
            ck_assert_int_eq(outcome.wait_ms, -1);
        }
    }
}

TEST(no_4xx_ever_means_that_a_card_may_exist_and_every_5xx_does)
{
    for (int status = 100; status < 1000; status++) {
        if (status == 200 || status == 201)
            continue;
        answered(status, GOOD_CARD);
        read_create();
        ck_assert_int_ne(outcome.kind, OUTCOME_EXECUTED);
        if (status >= 300 && status < 500 && status != 408)
            ck_assert_int_ne(outcome.kind, OUTCOME_UNKNOWN);
        else
            ck_assert_int_eq(outcome.kind, OUTCOME_UNKNOWN);
    }
}

TEST(retry_after_is_handed_on)
{
    static const int statuses[] = {408, 409, 425, 429, 503};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        answered(statuses[i], "");
        call.retry_after_ms = 7000;
        read_create();
        ck_assert_int_eq(outcome.wait_ms, 7000);
    }
}

TEST(a_refusal_brings_the_issuers_own_code)
{
    static const int statuses[] = {400, 410, 422};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        answered(statuses[i], "{\"code\":\"program_closed\",\"detail\":\"closed since May\"}");
        read_create();
        ck_assert_int_eq(outcome.advice, ADVICE_REJECT);
        ck_assert_str_eq(outcome.code, "program_closed");
        ck_assert_str_eq(outcome.detail, "closed since May");
    }
    answered(402,
             "{\"code\":\"program_closed\"}"); /* not foreseen: the code is ours, so that operators can filter by it */
    read_create();
    ck_assert_str_eq(outcome.code, "issuer_http_402");
}

TEST(a_code_that_is_none_is_not_repeated)
{
    static const char *const bad[] = {
        "{\"code\":\"Program Closed\"}",
        "{\"code\":\"\"}",
        "{\"code\":7}",
        "{\"code\":null}",
        "{\"code\":[\"a\"]}",
        "[]",
        "not json",
        "{\"code\":\"a\",\"code\":\"b\"}",
        "{\"code\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}", /* 65 */
        "{\"code\":\"caf\\u00e9\"}",
        "{\"code\":\"a\\nb\"}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        answered(422, bad[i]);
        read_create();
        ck_assert_msg(strcmp(outcome.code, "issuer_refused") == 0, "%s: %s", bad[i], outcome.code);
    }
    answered(422, "{\"code\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}"); /* 64 */
    read_create();
    ck_assert_uint_eq(strlen(outcome.code), 64);
}

TEST(the_issuers_words_never_carry_a_card_number_to_us)
{
    answered(422, "{\"code\":\"x\",\"detail\":\"card 4111111111111111 refused \\u0001 \\u00e9\"}");
    read_create();
    ck_assert_ptr_null(strstr(outcome.detail, "4111111111111111"));
    for (const char *byte = outcome.detail; *byte; byte++)
        ck_assert(*byte >= 0x20 && *byte <= 0x7e);
}

TEST(nothing_sent_is_not_executed_and_everything_lost_is_unknown)
{
    not_answered(HTTP_NOT_SENT);
    read_create();
    ck_assert_int_eq(outcome.kind, OUTCOME_NOT_EXECUTED);
    ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
    ck_assert_int_eq(outcome.health, BREAKER_BAD);
    ck_assert_str_eq(outcome.code, "issuer_unreachable");
    ck_assert_str_eq(outcome.detail, "why");
    not_answered(HTTP_LOST);
    buf_put_text(&call.answer, GOOD_CARD); /* half an answer is not an answer */
    call.status = 201;
    read_create();
    ck_assert_int_eq(outcome.kind, OUTCOME_UNKNOWN);
    ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
    ck_assert_int_eq(outcome.health, BREAKER_BAD);
    ck_assert_str_eq(outcome.code, "issuer_no_answer");
}

TEST(a_whole_card_with_our_reference_is_executed)
{
    static const int statuses[] = {200, 201};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        answered(statuses[i], GOOD_CARD);
        read_create();
        ck_assert_int_eq(outcome.kind, OUTCOME_EXECUTED);
        ck_assert_int_eq(outcome.advice, ADVICE_NONE);
        ck_assert_int_eq(outcome.health, BREAKER_GOOD);
        ck_assert_str_eq(card.id, "ic_1");
        ck_assert_str_eq(card.number, "4111111111111111");
        ck_assert_uint_eq(card.number_length, 16);
        ck_assert_str_eq(card.last4, "1111");
        ck_assert_int_eq(card.exp_month, 3);
        ck_assert_int_eq(card.exp_year, 2031);
        ck_assert_int_eq(card.state, ISSUER_CARD_ACTIVE);
    }
}

static void expect_executed(const char *text)
{
    answered(201, text);
    read_create();
    ck_assert_msg(outcome.kind == OUTCOME_EXECUTED, "%s: %s", text, outcome.detail);
}

TEST(last4_alone_is_enough_and_agreement_is_fine)
{
    expect_executed(CARD_WITH(",\"last4\":\"0042\""));
    ck_assert_str_eq(card.last4, "0042");
    ck_assert_str_eq(card.number, "");
    ck_assert_uint_eq(card.number_length, 0);
    expect_executed(CARD_WITH(",\"pan\":null,\"last4\":\"0042\""));
    expect_executed(CARD_WITH(",\"pan\":\"411111111111\",\"last4\":null"));            /* 12 digits */
    expect_executed(CARD_WITH(",\"pan\":\"4111111111111111111\",\"last4\":\"1111\"")); /* 19 */
    expect_executed(CARD_WITH(",\"pan\":\"4111111111111111\",\"cvv\":\"123\",\"extra\":{\"a\":[1]}"));
}

TEST(the_reference_is_compared_as_an_id_not_as_a_text)
{
    expect_executed(
        "{\"id\":\"a\",\"reference\":\"0199A4B1-0C3D-7E5F-8A9B-0C1D2E3F4A5B\",\"exp_month\":12,\"exp_year\":2026,"
        "\"status\":\"active\",\"last4\":\"1234\"}");
}

TEST(a_card_that_was_cancelled_meanwhile_is_marked_as_cancelled)
{
    expect_executed(CANCELLED_CARD);
    ck_assert_int_eq(card.state, ISSUER_CARD_GONE);
}

/* Each is a 2xx that cannot be believed. */
static const char *const unreadable[] = {
    "", " ", "{", "[]", "null", "true", "\"card\"", "<html></html>", "{}", "[" GOOD_CARD "]", GOOD_CARD GOOD_CARD,
    GOOD_CARD "x", "\xef\xbb\xbf" GOOD_CARD,
    /* id */
    "{\"reference\":\"" EVENT "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"\",\"reference\":\"" EVENT
    "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":5,\"reference\":\"" EVENT "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"..\",\"reference\":\"" EVENT
    "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"a b\",\"reference\":\"" EVENT
    "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"caf\\u00e9\",\"reference\":\"" EVENT
    "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    /* reference */
    "{\"id\":\"a\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":null,\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":\"" OTHER
    "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":\"" EVENT
    "x\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    /* expiry */
    "{\"id\":\"a\",\"reference\":\"" EVENT "\",\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":\"" EVENT
    "\",\"exp_month\":0,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":\"" EVENT
    "\",\"exp_month\":13,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":\"" EVENT
    "\",\"exp_month\":3.5,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":\"" EVENT
    "\",\"exp_month\":\"3\",\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":\"" EVENT
    "\",\"exp_month\":3,\"exp_year\":31,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":\"" EVENT
    "\",\"exp_month\":3,\"exp_year\":2025,\"status\":\"active\",\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":\"" EVENT
    "\",\"exp_month\":3,\"exp_year\":10000,\"status\":\"active\",\"last4\":\"1111\"}",
    /* status */
    "{\"id\":\"a\",\"reference\":\"" EVENT "\",\"exp_month\":3,\"exp_year\":2031,\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":\"" EVENT
    "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"pending\",\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":\"" EVENT
    "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"ACTIVE\",\"last4\":\"1111\"}",
    "{\"id\":\"a\",\"reference\":\"" EVENT "\",\"exp_month\":3,\"exp_year\":2031,\"status\":true,\"last4\":\"1111\"}",
    /* number and last4 */
    CARD_WITH(""), CARD_WITH(",\"pan\":null"), CARD_WITH(",\"pan\":null,\"last4\":null"), CARD_WITH(",\"pan\":\"\""),
    CARD_WITH(",\"pan\":\"41111111111\""), CARD_WITH(",\"pan\":\"41111111111111111111\""),
    CARD_WITH(",\"pan\":4111111111111111"), CARD_WITH(",\"pan\":\"4111 1111 1111 1111\""),
    CARD_WITH(",\"pan\":\"411111111111111x\""), CARD_WITH(",\"last4\":\"111\""), CARD_WITH(",\"last4\":\"11111\""),
    CARD_WITH(",\"last4\":1111"), CARD_WITH(",\"last4\":\"111x\""),
    CARD_WITH(",\"pan\":\"4111111111111111\",\"last4\":\"1112\""), /* contradictory */
    CARD_WITH(",\"pan\":\"41\",\"last4\":\"1111\""),
    CARD_WITH(",\"pan\":\"4111111111111111\",\"pan\":\"4111111111111111\""), /* a member twice */
};

TEST(a_2xx_that_cannot_be_believed_is_unknown_and_leaves_no_card_behind)
{
    for (size_t i = 0; i < ARRAY_SIZE(unreadable); i++) {
        answered(i % 2 ? 200 : 201, unreadable[i]);
        memset(&card, 0, sizeof(card));
        read_create();
        ck_assert_msg(outcome.kind == OUTCOME_UNKNOWN, "%s", unreadable[i]);
        ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
        ck_assert_str_eq(outcome.code, "issuer_unreadable");
        ck_assert_ptr_null(strstr(outcome.detail, "4111"));
        ck_assert_msg(card.number[0] == '\0' && card.last4[0] == '\0', "%s", unreadable[i]);
    }
}

/* What was built is asked, so that its connection is used by nobody else. */
static bool names_other(enum issuer_call which, const char *text)
{
    struct outbox_payload payload = {0};
    const struct issuer_subject subject = {
        .base = "http://i", .event_id = event_id, .user_id = "alice", .payload = &payload};
    ck_assert(issuer_build(&issuer_generic, which, &subject, &call));
    ck_assert(call.names_other);
    answered(200, text);
    return call.names_other(&call);
}

TEST(a_card_of_another_event_is_the_answer_to_another_request)
{
    ck_assert(!names_other(ISSUER_CREATE, GOOD_CARD));
    ck_assert(names_other(ISSUER_CREATE, "{\"reference\":\"0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5c\"}"));
    ck_assert(!names_other(ISSUER_CREATE, "{\"reference\":7}"));
    ck_assert(!names_other(ISSUER_CREATE, "<html>"));
    ck_assert(!names_other(ISSUER_LOOKUP, "{\"cards\":[" GOOD_CARD "]}"));
    ck_assert(names_other(ISSUER_LOOKUP,
                          "{\"cards\":[" GOOD_CARD ",{\"reference\":\"0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5c\"}]}"));
}

TEST(an_id_of_128_bytes_fits_and_a_longer_one_is_unreadable)
{
    char text[512], id[200];
    memset(id, 'a', sizeof(id));
    for (int length = 128; length <= 129; length++) {
        snprintf(text, sizeof(text),
                 "{\"id\":\"%.*s\",\"reference\":\"" EVENT
                 "\",\"exp_month\":3,\"exp_year\":2031,\"status\":\"active\",\"last4\":\"1111\"}",
                 length, id);
        answered(201, text);
        read_create();
        ck_assert_int_eq(outcome.kind, length == 128 ? OUTCOME_EXECUTED : OUTCOME_UNKNOWN);
    }
}

TEST(a_wiped_card_holds_nothing)
{
    expect_executed(GOOD_CARD);
    issuer_card_wipe(&card);
    const struct issuer_card empty = {0};
    ck_assert_mem_eq(&card, &empty, sizeof(card));
}

static void expect_found(const char *text, enum issuer_found expected)
{
    answered(200, text);
    read_lookup();
    ck_assert_msg(outcome.kind == OUTCOME_EXECUTED, "%s: %s", text, outcome.detail);
    ck_assert_msg(found == expected, "%s: %d", text, (int)found);
}

TEST(a_look_up_finds_none_one_more_or_only_cancelled)
{
    expect_found("{\"cards\":[]}", ISSUER_FOUND_NONE);
    expect_found("{\"cards\":[" CANCELLED_CARD "]}", ISSUER_FOUND_CANCELLED);
    expect_found("{\"cards\":[" CANCELLED_CARD "," CANCELLED_CARD "]}", ISSUER_FOUND_CANCELLED);
    expect_found("{\"cards\":[" GOOD_CARD "," OTHER_CARD "]}", ISSUER_FOUND_MORE);
    expect_found("{\"cards\":[" CANCELLED_CARD "," GOOD_CARD "," OTHER_CARD "]}", ISSUER_FOUND_MORE);
    expect_found("{\"cards\":[" GOOD_CARD "," GOOD_CARD "]}", ISSUER_FOUND_ONE); /* the same card twice */
    expect_found("{\"cards\":[" GOOD_CARD "]}", ISSUER_FOUND_ONE);
    ck_assert_str_eq(card.number, "4111111111111111");
    expect_found("{\"cards\":[" CANCELLED_CARD "," GOOD_CARD "," CANCELLED_CARD "],\"next\":null}", ISSUER_FOUND_ONE);
    ck_assert_str_eq(card.id, "ic_1"); /* the active one, wherever it stands */
    ck_assert_int_eq(card.state, ISSUER_CARD_ACTIVE);
}

TEST(a_look_up_that_cannot_be_read_decides_nothing)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"cards\":null}",
                                      "{\"cards\":{}}",
                                      "{\"cards\":[null]}",
                                      "{\"cards\":[{}]}",
                                      "{\"cards\":[" GOOD_CARD ",{}]}",
                                      "{\"cards\":[],\"cards\":[]}",
                                      "{\"cards\":[]",
                                      GOOD_CARD};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        answered(200, bad[i]);
        read_lookup();
        ck_assert_msg(outcome.kind == OUTCOME_UNKNOWN && outcome.advice == ADVICE_RETRY, "%s", bad[i]);
    }
}

TEST(only_a_200_can_say_that_nothing_was_found)
{
    for (int status = 100; status < 600; status++) {
        if (status == 200)
            continue;
        answered(status, "{\"cards\":[]}");
        read_lookup();
        ck_assert_msg(outcome.kind != OUTCOME_EXECUTED && outcome.kind != OUTCOME_REFUSED, "%d", status);
    }
    static const int configuration[] = {301, 401, 403, 404, 405};
    for (size_t i = 0; i < ARRAY_SIZE(configuration); i++) {
        answered(configuration[i], "");
        read_lookup();
        ck_assert_int_eq(outcome.advice, ADVICE_CONFIGURATION);
        ck_assert_int_eq(outcome.health, BREAKER_REFUSED);
    }
    static const int again[] = {201, 202, 400, 402, 408, 410, 418, 422, 500, 503};
    for (size_t i = 0; i < ARRAY_SIZE(again); i++) {
        answered(again[i], "{\"code\":\"whatever\"}");
        read_lookup();
        ck_assert_msg(outcome.advice == ADVICE_RETRY, "%d", again[i]);
    }
    answered(429, "");
    read_lookup();
    ck_assert_int_eq(outcome.advice, ADVICE_WAIT);
    not_answered(HTTP_NOT_SENT);
    read_lookup();
    ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
    not_answered(HTTP_LOST);
    read_lookup();
    ck_assert_int_eq(outcome.kind, OUTCOME_UNKNOWN);
}

TEST(a_cancel_is_done_by_200_or_409_and_by_nothing_else)
{
    for (int status = 100; status < 600; status++) {
        answered(status, "");
        read_cancel();
        ck_assert_msg((outcome.kind == OUTCOME_EXECUTED) == (status == 200 || status == 409), "%d", status);
    }
}

TEST(a_cancel_that_is_refused_fails_with_its_own_code)
{
    static const int statuses[] = {404, 400, 410, 422, 402, 418, 451};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        answered(statuses[i], "{\"code\":\"card_busy\"}");
        read_cancel();
        ck_assert_int_eq(outcome.kind, OUTCOME_REFUSED);
        ck_assert_int_eq(outcome.advice, ADVICE_FAIL);
        ck_assert_str_eq(outcome.code, "cancel_failed");
    }
}

TEST(a_cancel_without_an_answer_is_retried)
{
    static const struct row rows[] = {
        {408, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_ANSWERED, "issuer_http_408"},
        {425, OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, BREAKER_ANSWERED, "issuer_http_425"},
        {429, OUTCOME_NOT_EXECUTED, ADVICE_WAIT, BREAKER_BUSY, "issuer_http_429"},
        {401, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_401"},
        {405, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_405"},
        {302, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED, "issuer_http_302"},
        {500, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD, "issuer_http_500"},
        {204, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_ANSWERED, "issuer_http_204"},
        {201, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_ANSWERED, "issuer_unreadable"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        answered(rows[i].status, "");
        read_cancel();
        expect_row(&rows[i]);
    }
    not_answered(HTTP_LOST);
    read_cancel();
    ck_assert_int_eq(outcome.kind, OUTCOME_UNKNOWN);
    not_answered(HTTP_NOT_SENT);
    read_cancel();
    ck_assert_int_eq(outcome.kind, OUTCOME_NOT_EXECUTED);
    ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
}

static struct issuer_subject subject_of(const char *base)
{
    return (struct issuer_subject){.base = base, .event_id = event_id};
}

static bool build_create(const char *base, const char *user_id, const struct outbox_payload *payload,
                         const char *replaces)
{
    struct issuer_subject subject = subject_of(base);
    subject.user_id = user_id;
    subject.payload = payload;
    subject.replaces = replaces;
    return issuer_build(&issuer_generic, ISSUER_CREATE, &subject, &call);
}

static bool build_lookup(const char *base)
{
    struct issuer_subject subject = subject_of(base);
    return issuer_build(&issuer_generic, ISSUER_LOOKUP, &subject, &call);
}

static bool build_cancel(const char *base, const char *card_id)
{
    struct issuer_subject subject = subject_of(base);
    subject.card_id = card_id;
    return issuer_build(&issuer_generic, ISSUER_CANCEL, &subject, &call);
}

static void expect_member(const char *name, const char *expected)
{
    char text[1024];
    struct json_value value = json_member(json_value_of(call.body.bytes, call.body.length), name);
    if (!expected) {
        ck_assert_int_eq(value.kind, JSON_NULL);
        return;
    }
    ck_assert(json_string(value, text, sizeof(text), NULL));
    ck_assert_str_eq(text, expected);
}

TEST(a_create_carries_the_event_id_as_key_and_reference)
{
    struct outbox_payload payload = {0};
    ck_assert(build_create("http://127.0.0.1:1", "alice", &payload, ""));
    ck_assert_str_eq(call.method, "POST");
    expect_line(0, "http://127.0.0.1:1/v1/cards");
    expect_line(1, "Idempotency-Key: " EVENT);
    expect_line(2, "Content-Type: application/json");
    ck_assert(json_strict_check(call.body.bytes, call.body.length, NULL));
    expect_member("reference", EVENT);
    expect_member("user_id", "alice");
    expect_member("kind", "new");
    expect_member("replaces", NULL);
    expect_member("program", NULL);
    expect_member("memo", NULL);
}

TEST(a_create_names_the_issuers_card_and_escapes_what_users_write)
{
    struct outbox_payload payload = {.is_reissue = true, .has_program = true, .has_memo = true};
    snprintf(payload.replaces, sizeof(payload.replaces), "%s", OTHER);
    snprintf(payload.program, sizeof(payload.program), "gold\"\\");
    ck_assert(build_create("https://issuer", "a\"},{\"", &payload, "ic_9"));
    ck_assert(json_strict_check(call.body.bytes, call.body.length, NULL));
    expect_member("user_id", "a\"},{\"");
    expect_member("kind", "reissue");
    expect_member("replaces", "ic_9"); /* the issuer's, not ours */
    expect_member("program", "gold\"\\");
    expect_member("memo", ""); /* given and empty is not absent */
}

TEST(a_body_that_does_not_fit_is_no_call)
{
    struct outbox_payload payload = {0};
    call.body.max = 8;
    ck_assert(!build_create("http://127.0.0.1:1", "alice", &payload, ""));
    call.lines.max = 8;
    ck_assert(!build_lookup("http://127.0.0.1:1"));
    ck_assert(!build_cancel("http://127.0.0.1:1", "ic"));
}

TEST(look_up_and_cancel_are_built_as_documented)
{
    ck_assert(build_lookup("http://i"));
    ck_assert_str_eq(call.method, "GET");
    expect_line(0, "http://i/v1/cards?reference=" EVENT);
    expect_line(1, NULL);
    ck_assert_uint_eq(call.body.length, 0);
    ck_assert(build_cancel("http://i", "../x?y=1#z"));
    ck_assert_str_eq(call.method, "POST");
    expect_line(0, "http://i/v1/cards/..%2Fx%3Fy%3D1%23z/cancel");
    expect_line(1, "Idempotency-Key: " EVENT ":cancel");
    expect_line(2, NULL);
    ck_assert(build_cancel("http://i", "%2e%2e"));
    expect_line(0, "http://i/v1/cards/%252e%252e/cancel");
    ck_assert(build_cancel("http://i", "..%2f."));
    expect_line(0, "http://i/v1/cards/..%252f./cancel");
    ck_assert(!build_cancel("http://i", "."));
    ck_assert(!build_cancel("http://i", ".."));
    ck_assert(!build_cancel("http://i", ""));
}

TESTS_BETWEEN(profile_generic, set_up, tear_down)
