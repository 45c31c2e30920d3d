/* The story: an outcome decides what happens to an event. So each outcome must be set whole, must name its peer, and
 * must hold nothing of a peer's text that was not checked before it is stored or shown. */
#include <check.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/decide/outcome.h"
#include "tests/support/suite.h"

static struct http_call call;
static struct outcome outcome;

static void set_up(void)
{
    http_call_init(&call, 64 * 1024);
    call.retry_after_ms = -1;
    memset(&outcome, 0x55, sizeof(outcome));
}

static void tear_down(void)
{
    http_call_done(&call);
}

static void answered(int status, const char *text)
{
    call.result = HTTP_ANSWERED;
    call.status = status;
    buf_reset(&call.answer);
    ck_assert(buf_put_text(&call.answer, text));
}

TEST(executed_is_whole)
{
    outcome_executed(&outcome);
    ck_assert_int_eq(outcome.kind, OUTCOME_EXECUTED);
    ck_assert_int_eq(outcome.advice, ADVICE_NONE);
    ck_assert_int_eq(outcome.health, BREAKER_GOOD);
    ck_assert_int_eq(outcome.wait_ms, -1);
    ck_assert_str_eq(outcome.code, "");
    ck_assert_str_eq(outcome.detail, "");
}

TEST(refused_has_its_advice_and_code)
{
    outcome_refused(ADVICE_FAIL, "cancel_failed", &outcome);
    ck_assert_int_eq(outcome.kind, OUTCOME_REFUSED);
    ck_assert_int_eq(outcome.advice, ADVICE_FAIL);
    ck_assert_int_eq(outcome.health, BREAKER_GOOD);
    ck_assert_int_eq(outcome.wait_ms, -1);
    ck_assert_str_eq(outcome.code, "cancel_failed");
    ck_assert_str_eq(outcome.detail, "");
}

TEST(unreadable_is_unknown_and_no_outage)
{
    outcome_unreadable(&outcome_core, "no cards", &outcome);
    ck_assert_int_eq(outcome.kind, OUTCOME_UNKNOWN);
    ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
    ck_assert_int_eq(outcome.health, BREAKER_ANSWERED);
    ck_assert_int_eq(outcome.wait_ms, -1);
    ck_assert_str_eq(outcome.code, "core_unreadable");
    ck_assert_str_eq(outcome.detail, "no cards");
}

TEST(success_is_left_to_the_caller)
{
    answered(200, "{}");
    ck_assert(!outcome_of_call(&call, &outcome_issuer, false, &outcome));
    answered(201, "{}");
    ck_assert(!outcome_of_call(&call, &outcome_issuer, false, &outcome));
    answered(202, "{}");
    ck_assert(outcome_of_call(&call, &outcome_issuer, false, &outcome));
}

TEST(not_found_is_an_answer_only_where_the_caller_allows_it)
{
    answered(404, "");
    ck_assert(!outcome_of_call(&call, &outcome_core, true, &outcome));
    ck_assert(outcome_of_call(&call, &outcome_core, false, &outcome));
    ck_assert_int_eq(outcome.advice, ADVICE_CONFIGURATION);
    ck_assert_int_eq(outcome.health, BREAKER_REFUSED);
    ck_assert_str_eq(outcome.code, "core_http_404");
}

TEST(every_cause_names_its_peer)
{
    static const struct {
        const struct outcome_peer *peer;
        const char *prefix;
    } peers[] = {{&outcome_issuer, "issuer_"}, {&outcome_core, "core_"}};
    for (size_t i = 0; i < ARRAY_SIZE(peers); i++) {
        for (int status = 100; status < 600; status++) {
            answered(status, "");
            if (outcome_of_call(&call, peers[i].peer, false, &outcome))
                ck_assert_int_eq(strncmp(outcome.code, peers[i].prefix, strlen(peers[i].prefix)), 0);
        }
        for (int result = 0; result < 2; result++) {
            call.result = result == 0 ? HTTP_NOT_SENT : HTTP_LOST;
            ck_assert(outcome_of_call(&call, peers[i].peer, true, &outcome));
            ck_assert_int_eq(strncmp(outcome.code, peers[i].prefix, strlen(peers[i].prefix)), 0);
            ck_assert_ptr_nonnull(outbox_code_text(outcome.code)); /* an operator can read it */
        }
    }
}

/* The dangerous direction: a create that may have made a card is taken for one that did not. */
TEST(only_a_status_that_excludes_an_effect_is_not_unknown)
{
    for (int status = 0; status < 1000; status++) {
        answered(status, "");
        if (!outcome_of_call(&call, &outcome_issuer, false, &outcome))
            continue;
        ck_assert_msg((outcome.kind == OUTCOME_UNKNOWN) == (status < 300 || status == 408 || status >= 500), "%d",
                      status);
        ck_assert_msg((outcome.health == BREAKER_BAD) == (status >= 500), "%d", status);
        ck_assert_msg((outcome.advice == ADVICE_WAIT) == (status == 429), "%d", status);
        ck_assert_msg((outcome.advice == ADVICE_WAIT_IN_PROGRESS) == (status == 409 || status == 425), "%d", status);
        ck_assert_msg(outcome.advice != ADVICE_CONFIGURATION || (status >= 300 && status <= 405), "%d", status);
    }
    static const int odd[] = {INT_MIN, -1, 1000, INT_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
        answered(odd[i], "");
        ck_assert(outcome_of_call(&call, &outcome_core, true, &outcome));
        ck_assert_int_eq(outcome.kind, OUTCOME_UNKNOWN);
    }
}

TEST(every_outcome_is_one_the_flow_can_act_on)
{
    for (int status = 100; status < 1000; status++) {
        answered(status, "{\"code\":\"a_code\"}");
        memset(&outcome, 0x55, sizeof(outcome));
        if (!outcome_of_call(&call, &outcome_issuer, false, &outcome))
            continue;
        ck_assert(outbox_reason_code_is_valid(outcome.code, strlen(outcome.code)));
        ck_assert_int_ne(outcome.health, BREAKER_NOTHING); /* it was sent */
        switch (outcome.kind) {
        case OUTCOME_EXECUTED:
            ck_abort_msg("%d", status);
            break;
        case OUTCOME_REFUSED:
            ck_assert(outcome.advice == ADVICE_REJECT || outcome.advice == ADVICE_FAIL);
            break;
        case OUTCOME_NOT_EXECUTED:
            ck_assert(outcome.advice >= ADVICE_RETRY);
            break;
        case OUTCOME_UNKNOWN:
            ck_assert_int_eq(outcome.advice, ADVICE_RETRY);
            break;
        }
        ck_assert((outcome.health == BREAKER_REFUSED) == (outcome.advice == ADVICE_CONFIGURATION));
        ck_assert((outcome.health == BREAKER_BUSY) == (outcome.advice == ADVICE_WAIT));
        /* Only a definite answer about the event shows that the target answers well. */
        ck_assert((outcome.health == BREAKER_GOOD) == (outcome.kind == OUTCOME_REFUSED));
    }
}

TEST(the_words_of_a_problem_are_read_when_they_are_whole)
{
    char code[OUTBOX_REASON_CODE_SIZE], detail[32];
    answered(422, "{\"detail\":\"no such program here\",\"code\":\"no_program\",\"more\":[1]}");
    outcome_read_problem(&call, code, detail, sizeof(detail));
    ck_assert_str_eq(code, "no_program");
    ck_assert_str_eq(detail, "no such program here");
    answered(422, "{\"code\":\"no_program\""); /* cut off */
    outcome_read_problem(&call, code, detail, sizeof(detail));
    ck_assert_str_eq(code, "");
    ck_assert_str_eq(detail, "");
    answered(422, "{\"detail\":\"411111111111 1 is taken\"}"); /* no card number by its check digit */
    outcome_read_problem(&call, code, detail, sizeof(detail));
    ck_assert_str_eq(detail, "************ * is taken");
    answered(422, "{\"code\":\"no_program\"}");
    call.result = HTTP_LOST;
    outcome_read_problem(&call, code, detail, sizeof(detail));
    ck_assert_str_eq(code, "");
}

/* A code is stored as the reason and shown to the user; `_` stands between digits as well as a blank. */
TEST(a_code_cannot_hold_a_card_number)
{
    static const char *const bad[] = {"411111111111", "no_4111111111111111", "4111_1111_1111_1111",
                                      "4_1_1_1_1_1_1_1_1_1_1_1", "4111__1111__1111"};
    static const char *const good[] = {"limit_reached", "error_41111111111", "e2024_11_20", "1111_1111_a_1111_1111"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!outcome_code_is_usable(bad[i], strlen(bad[i])), "%s", bad[i]);
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ck_assert_msg(outcome_code_is_usable(good[i], strlen(good[i])), "%s", good[i]);
}

TEST(a_detail_is_cut_to_its_place_and_is_plain_ascii)
{
    char code[OUTBOX_REASON_CODE_SIZE], detail[16];
    memset(detail, 0x55, sizeof(detail));
    answered(
        422,
        "{\"detail\":\"0123456789abc\\u00e9\\u00e9\\u00e9 and more\"}"); /* the cut is in the middle of a character */
    outcome_read_problem(&call, code, detail, sizeof(detail));
    ck_assert_uint_eq(strlen(detail), 15);
    ck_assert_str_eq(detail, "0123456789abc??");
    answered(422, "{\"detail\":\"a\\tb\\nc\\u007fd\"}");
    outcome_read_problem(&call, code, detail, sizeof(detail));
    ck_assert_str_eq(detail, "a?b?c?d");
}

TEST(a_card_number_in_a_detail_is_struck_out_before_the_cut)
{
    char code[OUTBOX_REASON_CODE_SIZE], detail[24];
    /* Cut first, eleven digits would stay and no longer look like a number. */
    answered(422, "{\"detail\":\"your card is 4111111111111111\"}");
    outcome_read_problem(&call, code, detail, sizeof(detail));
    ck_assert_msg(strstr(detail, "4111") == NULL, "%s", detail);
}

/* The check of an answer is noted for its other readers: a text that is not JSON must not be walked as if it were. */
TEST(a_body_is_checked_once_for_all_its_readers)
{
    static const char *const texts[] = {"{\"code\":\"a\"", "{\"code\":\"a\"}", "<html>"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        enum json_kind kind = i == 1 ? JSON_OBJECT : JSON_MISSING;
        http_call_begin_answer(&call);
        answered(422, texts[i]);
        ck_assert_int_eq(outcome_body(&call).kind, kind);
        http_call_begin_answer(&call);
        ck_assert_int_eq(outcome_first_body(&call).kind, kind);
        ck_assert_int_eq(outcome_body(&call).kind, kind);
    }
}

TEST(the_next_answer_is_checked_anew)
{
    answered(422, "{\"code\":\"a\"}");
    ck_assert_int_eq(outcome_first_body(&call).kind, JSON_OBJECT);
    http_call_begin_answer(&call);
    answered(422, "{\"code\":\"a\"");
    ck_assert_int_eq(outcome_body(&call).kind, JSON_MISSING);
}

TESTS_BETWEEN(outcome, set_up, tear_down)
