/* The row of an event is all that the next attempt knows. An end that forgets an unknown outcome, gives back an attempt
 * that counts, or drops a held end, makes a second card or a false answer out of a fault. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/flow/flow_end.h"
#include "tests/support/suite.h"

#define CLAIMED_MS 5000
#define NOW_MS 5750

static struct flow flow;

static void set_up(void)
{
    flow = (struct flow){.attempt = {.claimed_ms = CLAIMED_MS, .step = STEP_ISSUE, .is_readable = true}};
}

static struct write_end build(struct flow_verdict verdict)
{
    return flow_end_build(&flow, &verdict, NOW_MS);
}

static void set_outcome(const char *code, const char *detail)
{
    snprintf(flow.attempt.outcome.code, sizeof(flow.attempt.outcome.code), "%s", code);
    snprintf(flow.attempt.outcome.detail, sizeof(flow.attempt.outcome.detail), "%s", detail);
}

static const struct {
    enum flow_verdict_kind kind;
    enum outbox_status status;
    const char *outcome;
    bool gives_back;
} kinds[] = {
    {FLOW_COMPLETE, OUTBOX_COMPLETED, "completed", false}, {FLOW_REJECT, OUTBOX_REJECTED, "rejected", false},
    {FLOW_FAIL, OUTBOX_FAILED, "failed", false},           {FLOW_RETRY, OUTBOX_PENDING, "retry", false},
    {FLOW_DEFER, OUTBOX_PENDING, "deferred", true},
};

START_TEST(each_verdict_has_its_status_and_only_a_deferral_gives_the_attempt_back)
{
    struct write_end end = build((struct flow_verdict){.kind = kinds[_i].kind, .code = "no"});
    ck_assert_int_eq(end.status, kinds[_i].status);
    ck_assert_str_eq(end.outcome, kinds[_i].outcome);
    ck_assert_int_eq(end.give_back, kinds[_i].gives_back);
    ck_assert_str_eq(end.step, "issue");
    ck_assert_int_eq(end.took_ms, NOW_MS - CLAIMED_MS);
}

START_TEST(only_an_event_that_sent_nothing_is_stored_as_not_sent)
{
    flow.attempt.unknown = _i & 1;
    flow.attempt.is_saved = _i & 2;
    struct write_end end = build((struct flow_verdict){.kind = FLOW_RETRY, .code = "issuer_http_503"});
    ck_assert_int_eq(end.clear_sent, _i == 0);
    ck_assert_int_eq(end.unknown, _i == 1);
    ck_assert(!end.may_arrive);
    flow.attempt.may_arrive = true;
    ck_assert(build((struct flow_verdict){.kind = FLOW_DEFER, .code = "drain"}).may_arrive);
}

START_TEST(a_held_end_is_written_with_every_pending_end)
{
    flow.attempt.unknown = flow.attempt.end_is_held = true;
    flow.attempt.lookup_reason = LOOKUP_REFUSED;
    snprintf(flow.attempt.pending_code, sizeof(flow.attempt.pending_code), "issuer_refused");
    struct write_end end = build((struct flow_verdict){.kind = _i ? FLOW_DEFER : FLOW_RETRY, .code = "settling"});
    ck_assert_str_eq(end.held_end, "refused");
    ck_assert_str_eq(end.held_end_code, "issuer_refused");
    ck_assert_ptr_null(build((struct flow_verdict){.kind = FLOW_REJECT, .code = "issuer_refused"}).held_end);
    flow.attempt.lookup_reason = LOOKUP_BEFORE_SENDING; /* an operator adopted it, and may replay it */
    ck_assert_str_eq(build((struct flow_verdict){.kind = FLOW_FAIL, .code = "outcome_unknown"}).held_end,
                     "before_sending");
}

TEST(the_delay_and_the_streak_are_the_verdicts)
{
    struct write_end end =
        build((struct flow_verdict){.kind = FLOW_DEFER, .code = "drain", .wait_ms = 1234, .keeps_streak = true});
    ck_assert_int_eq(end.delay_ms, 1234);
    ck_assert(end.deferred);
    ck_assert_str_eq(end.cause, "drain");
    ck_assert_str_eq(end.last_error, "issue: drain");
    ck_assert(!build((struct flow_verdict){.kind = FLOW_DEFER, .code = "drain"}).deferred);
}

TEST(a_failure_has_its_reason_and_the_peers_answer_as_its_cause)
{
    set_outcome("issuer_http_500", "boom");
    flow.attempt.lookup_reason = LOOKUP_EXHAUSTED;
    flow.attempt.unknown = true;
    struct write_end end = build((struct flow_verdict){.kind = FLOW_FAIL, .code = "outcome_unknown"});
    ck_assert_str_eq(end.reason_code, "outcome_unknown");
    ck_assert_str_eq(end.cause, "issuer_http_500");
    ck_assert_str_eq(end.last_error, "issue: issuer_http_500: boom");
    flow.attempt.outcome = (struct outcome){0}; /* no peer was called: the attempt's row has the reason itself */
    end = build((struct flow_verdict){.kind = FLOW_FAIL, .code = "payload_invalid"});
    ck_assert_str_eq(end.cause, "payload_invalid");
}

TEST(the_usual_end_has_nothing_beside_its_status)
{
    flow.attempt.step = STEP_LINK;
    flow.attempt.is_saved = true;
    struct write_end end = build((struct flow_verdict){.kind = FLOW_COMPLETE});
    struct write_end usual = {
        .status = OUTBOX_COMPLETED, .outcome = "completed", .step = "link", .took_ms = NOW_MS - CLAIMED_MS};
    ck_assert_str_eq(end.step, usual.step);
    ck_assert_str_eq(end.outcome, usual.outcome);
    ck_assert(!end.clear_sent && !end.unknown && !end.card_status && !end.replaces && !end.last_error[0]);
}

TEST(a_completed_reissue_replaces_the_old_card)
{
    static const char old[] = "01890a5d-ac96-774b-bcce-b302099a8057";
    flow.attempt.step = STEP_LINK;
    flow.attempt.is_saved = true;
    flow.payload.is_reissue = true;
    snprintf(flow.payload.replaces, sizeof(flow.payload.replaces), "%s", old);
    struct write_end end = build((struct flow_verdict){.kind = FLOW_COMPLETE});
    char text[UUID_TEXT_SIZE];
    ck_assert(end.replaces);
    uuid_format(&end.replaced, text);
    ck_assert_str_eq(text, old);
    ck_assert(!build((struct flow_verdict){.kind = FLOW_REJECT, .code = "no"}).replaces);
}

/* The old card of a reissue could not be closed: COMPLETED all the same, and the operators see it. */
TEST(a_completion_with_a_note_says_what_the_issuer_said)
{
    flow.attempt.step = STEP_RETIRE;
    flow.attempt.is_saved = true;
    set_outcome("issuer_http_403", "not this card");
    struct write_end end = build((struct flow_verdict){.kind = FLOW_COMPLETE, .code = "retire_refused"});
    ck_assert_int_eq(end.status, OUTBOX_COMPLETED);
    ck_assert_str_eq(end.reason_code, "");
    ck_assert_str_eq(end.cause, "retire_refused");
    ck_assert_str_eq(end.detail, "issuer_http_403: not this card");
    ck_assert_str_eq(end.last_error, "retire: retire_refused: issuer_http_403: not this card");
    ck_assert_int_eq(write_end_kind(&end), WRITE_END);
    ck_assert_int_eq(flow_end_level(&flow, &end), LOG_WARNING);
    end = build((struct flow_verdict){.kind = FLOW_COMPLETE}); /* closed at last */
    ck_assert(!end.cause[0] && !end.last_error[0]);
    ck_assert_int_eq(flow_end_level(&flow, &end), LOG_DEBUG);
}

TEST(a_card_that_was_seen_keeps_its_outcome_unknown)
{
    flow.attempt.step = STEP_REVEAL;
    flow.attempt.unknown = flow.attempt.card_is_seen = true;
    struct write_end end = build((struct flow_verdict){.kind = FLOW_FAIL, .code = "reveal_refused"});
    ck_assert(end.unknown && !end.clear_sent);
}

START_TEST(an_end_over_an_unknown_outcome_needs_a_look_up_or_the_card)
{
    flow.attempt.step = STEP_REVEAL;
    flow.attempt.unknown = true;
    (void)build((struct flow_verdict){.kind = FLOW_FAIL, .code = "reveal_refused"}); /* an assertion fails */
}

TEST(a_saved_card_that_was_cancelled_is_marked_so)
{
    flow.attempt.is_saved = flow.attempt.was_cancelled = true;
    ck_assert_str_eq(build((struct flow_verdict){.kind = FLOW_REJECT, .code = "no"}).card_status, "cancelled");
    flow.attempt.is_saved = false; /* there is no row */
    ck_assert_ptr_null(build((struct flow_verdict){.kind = FLOW_REJECT, .code = "no"}).card_status);
}

/* Story: a completion with a detail was written by the statement for plain ones, and its detail was lost. */
TEST(only_a_completion_with_nothing_to_add_is_written_by_the_short_statement)
{
    const struct write_end plain = {.status = OUTBOX_COMPLETED, .step = "link"};
    struct write_end end = plain;
    ck_assert_int_eq(write_end_kind(&end), WRITE_COMPLETE);
    strcpy(end.detail, "linked before");
    ck_assert_int_eq(write_end_kind(&end), WRITE_END);
    end = plain;
    end.step = "lookup";
    ck_assert_int_eq(write_end_kind(&end), WRITE_END);
    end = plain;
    end.clear_sent = true;
    ck_assert_int_eq(write_end_kind(&end), WRITE_END);
    end = plain;
    end.replaces = true;
    ck_assert_int_eq(write_end_kind(&end), WRITE_END);
    end = plain;
    end.status = OUTBOX_REJECTED;
    ck_assert_int_eq(write_end_kind(&end), WRITE_END);
}

SUITE(flow_end)
{
    TCase *tcase = tcase_create("flow_end");
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_loop_test(tcase, each_verdict_has_its_status_and_only_a_deferral_gives_the_attempt_back, 0,
                        ARRAY_SIZE(kinds));
    tcase_add_loop_test(tcase, only_an_event_that_sent_nothing_is_stored_as_not_sent, 0, 4);
    tcase_add_loop_test(tcase, a_held_end_is_written_with_every_pending_end, 0, 2);
    ADD_TESTS(tcase);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("assertions");
    tcase_set_tags(tcase, "no_valgrind"); /* which runs all tests in one process */
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test_raise_signal(tcase, an_end_over_an_unknown_outcome_needs_a_look_up_or_the_card, SIGABRT);
    suite_add_tcase(suite, tcase);
}
