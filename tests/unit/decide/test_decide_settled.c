/* A failure ends an event only when the peer answers other events well: an outage must not end events. And an event
 * with an unknown outcome does not end without a look-up: a wrong end hides a card. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/core/issuer_key.h"
#include "worker/flow/flow.h"
#include "tests/support/suite.h"

#define SECOND INT64_C(1000)
#define HOUR (3600 * SECOND)
#define NOW_MS (100 * HOUR)

static const struct uuid another = {.bytes = {1}};

static struct config config;
static struct peers peers;
static struct db_clock db_clock = {.is_known = true};
static const struct issuer_profile profile = {.key_is_trusted = true};
static const struct parameters_env parameters = {.profile = &profile};
static struct worker_env worker;
static struct flow_env env;
static struct flow flow;

static void on_change(struct target *target)
{
    (void)target;
}

static void set_up(void)
{
    config = (struct config){
        .issuer = {.timeout_ms = 3 * SECOND, .key_lifetime_ms = 24 * HOUR, .settle_time_ms = 30 * SECOND},
        .retry = {.max_attempts = 10, .base_ms = SECOND, .cap_ms = 300 * SECOND},
        .worker = {.lease_ms = 30 * SECOND},
    };
    target_init(&peers.issuer.target, 5, SECOND, 1, on_change);
    target_init(&peers.core.target, 5, SECOND, 1, on_change);
    worker = (struct worker_env){.config = &config, .peers = &peers, .db_clock = &db_clock, .parameters = &parameters};
    env = (struct flow_env){.worker = &worker};
    flow =
        (struct flow){.env = &env, .attempt = {.event_id = {.bytes = {2}}, .number = 1, .claimed_ms = NOW_MS - SECOND}};
    flow.attempt.sent_age_ms = flow.attempt.deferred_age_ms = flow.attempt.settle_age_ms = -1;
    flow.attempt.asks_for = flow.attempt.verifies = STEP_COUNT;
}

static void another_was_answered(enum flow_step step, int64_t at_ms)
{
    peers.core.target.good[step].last = (struct target_answer){.event_id = another, .at_ms = at_ms};
}

static struct flow_verdict settled(struct flow_verdict verdict)
{
    const struct view view = flow_view(&flow, NOW_MS, 0);
    return decide_settled(&flow.attempt, &view, verdict);
}

static struct flow_verdict settle(enum flow_verdict_kind kind)
{
    struct flow_verdict verdict = {.kind = kind, .code = flow.attempt.outcome.code, .wait_ms = -1};
    return settled(verdict);
}

/* The last attempt, and core-api answers 503 to the eligibility check. */
static void fail_the_last_attempt(void)
{
    flow.attempt.number = 10;
    flow.attempt.step = STEP_CHECK;
    flow.attempt.outcome = (struct outcome){.kind = OUTCOME_UNKNOWN, .advice = ADVICE_RETRY, .health = BREAKER_BAD};
    snprintf(flow.attempt.outcome.code, sizeof(flow.attempt.outcome.code), "core_http_503");
}

START_TEST(a_failure_ends_no_event_while_no_other_is_answered)
{
    fail_the_last_attempt();
    if (_i == 1) /* before this attempt */
        another_was_answered(STEP_CHECK, flow.attempt.claimed_ms - 1);
    if (_i == 2) /* in another kind of call */
        another_was_answered(STEP_LINK, NOW_MS);
    if (_i == 3) { /* this event itself */
        another_was_answered(STEP_CHECK, NOW_MS);
        peers.core.target.good[STEP_CHECK].last.event_id = flow.attempt.event_id;
    }
    if (_i == 4) { /* while the claim was under way */
        flow.attempt.claim_took_ms = SECOND / 2;
        another_was_answered(STEP_CHECK, flow.attempt.claimed_ms + SECOND / 2 - 1);
    }
    struct flow_verdict verdict = settle(FLOW_RETRY);
    ck_assert_int_eq(verdict.kind, FLOW_DEFER);
    ck_assert_str_eq(verdict.code, "core_http_503");
}

TEST(a_failure_of_the_last_attempt_ends_an_event_that_fails_alone)
{
    fail_the_last_attempt();
    another_was_answered(STEP_CHECK, flow.attempt.claimed_ms);
    struct flow_verdict verdict = settle(FLOW_RETRY);
    ck_assert_int_eq(verdict.kind, FLOW_FAIL);
    ck_assert_str_eq(verdict.code, "attempts_exhausted");
}

START_TEST(where_events_are_rare_the_third_failure_in_a_row_ends_one_that_fails_alone)
{
    fail_the_last_attempt();
    flow.attempt.deferral_count = _i ? 2 : 1;
    flow.attempt.changed_age_ms = 5 * SECOND;
    snprintf(flow.attempt.deferral_code, sizeof(flow.attempt.deferral_code), "core_http_503");
    another_was_answered(STEP_CHECK, flow.attempt.claimed_ms - 5 * SECOND);
    ck_assert_int_eq(settle(FLOW_RETRY).kind, _i ? FLOW_FAIL : FLOW_DEFER);
}

TEST(an_attempt_that_is_not_the_last_is_a_retry_after_at_least_what_the_peer_wants)
{
    fail_the_last_attempt();
    flow.attempt.number = 9;
    struct flow_verdict verdict = {.kind = FLOW_RETRY, .code = "core_http_503", .wait_ms = HOUR};
    verdict = settled(verdict);
    ck_assert_int_eq(verdict.kind, FLOW_RETRY);
    ck_assert_int_eq(verdict.wait_ms, HOUR);
    ck_assert_int_le(settle(FLOW_RETRY).wait_ms, config.retry.cap_ms);
}

static const struct {
    const char *code;
    int count;
    int64_t answered_age_ms; /* another event, before the claim; -1 = never */
    bool ends;
} refused[] = {
    {"core_http_403", 2, 0, true},
    {"core_http_403", 2, 5 * SECOND, true},
    {"core_http_403", 2, 5 * SECOND + 1, false}, /* before the answer that this event had last */
    {"core_http_403", 2, -1, false},
    {"core_http_403", 1, 0, false},
    {"core_http_401", 2, 0, false}, /* another answer is another row */
    {"", 0, 0, false},
};

static void refuse(int status)
{
    flow.attempt.step = STEP_CHECK;
    flow.attempt.outcome = (struct outcome){
        .kind = OUTCOME_NOT_EXECUTED, .advice = ADVICE_CONFIGURATION, .health = BREAKER_REFUSED, .wait_ms = -1};
    snprintf(flow.attempt.outcome.code, sizeof(flow.attempt.outcome.code), "core_http_%d", status);
}

START_TEST(a_third_refusal_ends_an_event_when_another_was_answered_in_between)
{
    refuse(403);
    flow.attempt.deferral_count = refused[_i].count;
    flow.attempt.changed_age_ms = 5 * SECOND;
    snprintf(flow.attempt.deferral_code, sizeof(flow.attempt.deferral_code), "%s", refused[_i].code);
    if (refused[_i].answered_age_ms >= 0)
        another_was_answered(STEP_CHECK, flow.attempt.claimed_ms - refused[_i].answered_age_ms);
    struct flow_verdict verdict = settle(FLOW_DEFER);
    ck_assert_int_eq(verdict.kind, refused[_i].ends ? FLOW_FAIL : FLOW_DEFER);
    ck_assert_str_eq(verdict.code, "core_http_403");
}

/* The clock was set forward by an hour between the two answers, so the first seems to be an hour old. */
START_TEST(what_was_answered_before_a_step_of_the_databases_clock_is_no_evidence)
{
    int64_t answered_ms = flow.attempt.claimed_ms - 5 * SECOND;
    struct db_clock stepped = {.is_known = true, .steady_since_us = (answered_ms + (_i ? 0 : 1)) * 1000};
    worker.db_clock = &stepped;
    refuse(403);
    flow.attempt.deferral_count = 2;
    flow.attempt.changed_age_ms = HOUR;
    snprintf(flow.attempt.deferral_code, sizeof(flow.attempt.deferral_code), "core_http_403");
    another_was_answered(STEP_CHECK, answered_ms);
    ck_assert_int_eq(settle(FLOW_DEFER).kind, _i ? FLOW_FAIL : FLOW_DEFER);
}

TEST(a_third_refusal_of_an_unknown_event_is_looked_up_first)
{
    refuse(403);
    flow.attempt.unknown = true;
    flow.attempt.deferral_count = 2;
    snprintf(flow.attempt.deferral_code, sizeof(flow.attempt.deferral_code), "core_http_403");
    another_was_answered(STEP_CHECK, flow.attempt.claimed_ms);
    struct flow_verdict verdict = settle(FLOW_DEFER);
    ck_assert_int_eq(verdict.kind, FLOW_GO);
    ck_assert_int_eq(verdict.step, STEP_LOOKUP);
    ck_assert_int_eq(verdict.reason, LOOKUP_UNFORESEEN);
    ck_assert_str_eq(verdict.code, "core_http_403"); /* with which it ends if nothing is found */
}

START_TEST(the_delays_of_a_row_of_deferrals_grow)
{
    refuse(_i ? 429 : 403);
    if (_i) {
        flow.attempt.outcome.advice = ADVICE_WAIT;
        flow.attempt.outcome.health = BREAKER_BUSY;
    }
    flow.attempt.deferral_count = 5;
    snprintf(flow.attempt.deferral_code, sizeof(flow.attempt.deferral_code), "%s", flow.attempt.outcome.code);
    struct flow_verdict verdict = settle(FLOW_DEFER);
    ck_assert_int_eq(verdict.kind, FLOW_DEFER);
    ck_assert_int_ge(verdict.wait_ms, 16 * SECOND);
    ck_assert_int_le(verdict.wait_ms, 32 * SECOND);
}

TEST(an_event_that_failed_a_probe_waits_for_longer_than_the_breaker)
{
    fail_the_last_attempt();
    peers.core.target.breaker.state = BREAKER_OPEN;
    peers.core.target.breaker.probe_at_ms = NOW_MS + 8 * SECOND;
    ck_assert_int_gt(settle(FLOW_DEFER).wait_ms, 8 * SECOND);
}

/* What the streak of 409 and 425 answers is worth: a deferral of our own does not end it, another answer does. */
TEST(a_deferral_of_our_own_keeps_the_streak_of_409_answers)
{
    flow.attempt.step = STEP_ISSUE;
    flow.attempt.deferred_age_ms = HOUR;
    struct flow_verdict ours = {.kind = FLOW_DEFER, .code = "drain", .wait_ms = -1};
    ck_assert(settled(ours).keeps_streak);
    refuse(401);
    ck_assert(!settle(FLOW_DEFER).keeps_streak);
}

START_TEST(a_streak_of_409_answers_ends_with_the_keys_lifetime)
{
    flow.attempt.step = STEP_ISSUE;
    flow.attempt.unknown = true;
    flow.attempt.deferred_age_ms = _i ? config.issuer.key_lifetime_ms : config.issuer.key_lifetime_ms - 1;
    flow.attempt.outcome = (struct outcome){.kind = OUTCOME_NOT_EXECUTED, .advice = ADVICE_WAIT_IN_PROGRESS};
    snprintf(flow.attempt.outcome.code, sizeof(flow.attempt.outcome.code), "issuer_http_409");
    struct flow_verdict verdict = {
        .kind = FLOW_DEFER, .code = flow.attempt.outcome.code, .wait_ms = -1, .in_progress = true};
    verdict = settled(verdict);
    ck_assert_int_eq(verdict.kind, _i ? FLOW_GO : FLOW_DEFER);
    if (_i)
        ck_assert_int_eq(verdict.reason, LOOKUP_EXHAUSTED);
}

START_TEST(a_streak_of_409_answers_ends_within_a_day_where_the_key_lives_for_ever)
{
    flow.attempt.step = STEP_ISSUE;
    flow.attempt.unknown = true;
    config.issuer.key_lifetime_ms = ISSUER_KEY_FOREVER_MS;
    flow.attempt.deferred_age_ms = 24 * HOUR - !_i;
    flow.attempt.outcome = (struct outcome){.kind = OUTCOME_NOT_EXECUTED, .advice = ADVICE_WAIT_IN_PROGRESS};
    snprintf(flow.attempt.outcome.code, sizeof(flow.attempt.outcome.code), "issuer_http_409");
    struct flow_verdict verdict = {
        .kind = FLOW_DEFER, .code = flow.attempt.outcome.code, .wait_ms = -1, .in_progress = true};
    verdict = settled(verdict);
    ck_assert_int_eq(verdict.kind, _i ? FLOW_GO : FLOW_DEFER);
}

START_TEST(an_unknown_outcome_is_a_question_after_a_day_where_the_key_lives_for_ever)
{
    flow.attempt.step = STEP_LOOKUP;
    flow.attempt.lookup_reason = LOOKUP_EXHAUSTED;
    flow.attempt.unknown = true;
    flow.attempt.number = 10;
    config.issuer.key_lifetime_ms = ISSUER_KEY_FOREVER_MS;
    flow.attempt.sent_age_ms = _i ? 24 * HOUR : 23 * HOUR;
    flow.attempt.outcome =
        (struct outcome){.kind = OUTCOME_UNKNOWN, .health = BREAKER_ANSWERED, .code = "issuer_unreadable"};
    another_was_answered(STEP_LOOKUP, NOW_MS);
    peers.issuer.target.good[STEP_LOOKUP].last = peers.core.target.good[STEP_LOOKUP].last;
    struct flow_verdict verdict = settle(FLOW_RETRY);
    ck_assert_int_eq(verdict.kind, _i ? FLOW_FAIL : FLOW_RETRY);
    if (_i)
        ck_assert_str_eq(verdict.code, "outcome_unknown");
}

/* ---- the attempts are used up ---- */

static const struct {
    enum flow_step step;
    bool unknown, is_saved, is_expired;
    enum lookup_reason reason;
    enum breaker_result health;
    enum flow_verdict_kind kind;
    const char *code; /* FAIL */
} exhausted[] = {
    {STEP_CHECK, false, false, false, LOOKUP_NONE, BREAKER_ANSWERED, FLOW_FAIL, "attempts_exhausted"},
    {STEP_ISSUE, true, false, false, LOOKUP_NONE, BREAKER_ANSWERED, FLOW_GO, NULL},
    {STEP_SAVE, true, false, false, LOOKUP_EXHAUSTED, BREAKER_GOOD, FLOW_FAIL, "attempts_exhausted"}, /* it was found */
    {STEP_LINK, false, true, false, LOOKUP_NONE, BREAKER_ANSWERED, FLOW_FAIL, "attempts_exhausted"},
    {STEP_CANCEL, true, false, false, LOOKUP_INELIGIBLE, BREAKER_ANSWERED, FLOW_FAIL, "attempts_exhausted"},
    {STEP_LOOKUP, true, false, false, LOOKUP_EXHAUSTED, BREAKER_ANSWERED, FLOW_RETRY, NULL},
    {STEP_LOOKUP, true, false, false, LOOKUP_EXHAUSTED, BREAKER_BAD, FLOW_RETRY, NULL},
    {STEP_LOOKUP, true, false, true, LOOKUP_EXHAUSTED, BREAKER_BAD, FLOW_RETRY, NULL},
    {STEP_LOOKUP, true, false, true, LOOKUP_EXHAUSTED, BREAKER_ANSWERED, FLOW_FAIL, "outcome_unknown"},
    {STEP_LOOKUP, true, false, false, LOOKUP_IN_OUTAGE, BREAKER_BAD, FLOW_DEFER, NULL},
    {STEP_LOOKUP, false, false, false, LOOKUP_FIRST, BREAKER_BAD, FLOW_DEFER, NULL}, /* it was never sent */
    {STEP_LOOKUP, false, false, false, LOOKUP_FIRST, BREAKER_ANSWERED, FLOW_FAIL, "attempts_exhausted"},
    {STEP_ISSUE, true, false, false, LOOKUP_NONE, BREAKER_BAD, FLOW_GO, NULL}, /* looked up, in an outage too */
    {STEP_ISSUE, false, false, false, LOOKUP_NONE, BREAKER_BAD, FLOW_DEFER, NULL},
};

START_TEST(used_up_attempts_end_an_event_only_when_its_outcome_is_known)
{
    flow.attempt.number = 10;
    flow.attempt.step = exhausted[_i].step;
    flow.attempt.unknown = exhausted[_i].unknown;
    flow.attempt.is_saved = exhausted[_i].is_saved;
    flow.attempt.lookup_reason = exhausted[_i].reason;
    flow.attempt.sent_age_ms = exhausted[_i].is_expired ? 24 * HOUR : HOUR;
    flow.attempt.outcome =
        (struct outcome){.kind = OUTCOME_UNKNOWN, .advice = ADVICE_RETRY, .health = exhausted[_i].health};
    snprintf(flow.attempt.outcome.code, sizeof(flow.attempt.outcome.code), "issuer_http_503");
    struct flow_verdict verdict = settle(FLOW_RETRY);
    ck_assert_int_eq(verdict.kind, exhausted[_i].kind);
    if (exhausted[_i].code)
        ck_assert_str_eq(verdict.code, exhausted[_i].code);
    if (verdict.kind == FLOW_GO)
        ck_assert_int_eq(verdict.step, STEP_LOOKUP);
}

/* ---- look-ups ---- */

static void fail_the_look_up(enum outcome_kind kind, const char *code)
{
    flow.attempt.number = 10;
    flow.attempt.step = STEP_LOOKUP;
    flow.attempt.unknown = true;
    flow.attempt.lookup_reason = LOOKUP_KEY_EXPIRED;
    flow.attempt.sent_age_ms = 24 * HOUR;
    flow.attempt.changed_age_ms = 5 * SECOND;
    flow.attempt.outcome = (struct outcome){.kind = kind, .advice = ADVICE_RETRY, .health = BREAKER_BAD};
    snprintf(flow.attempt.outcome.code, sizeof(flow.attempt.outcome.code), "%s", code);
}

/* A look-up that is answered by a 5xx, hangs or is cut off. */
static const struct {
    enum outcome_kind kind;
    int attempt;
    enum flow_step answered; /* to another event, */
    int64_t answered_age_ms; /* so long before this attempt; -1 = no other was answered */
    int64_t sent_age_ms;
    bool ends;
} lookups[] = {
    {OUTCOME_UNKNOWN, 10, STEP_LOOKUP, 0, 24 * HOUR, true},
    {OUTCOME_UNKNOWN, 10, STEP_LOOKUP, 1, 24 * HOUR, false}, /* an outage may have begun since */
    {OUTCOME_UNKNOWN, 11, STEP_LOOKUP, 5 * SECOND, 24 * HOUR, true},
    {OUTCOME_UNKNOWN, 11, STEP_LOOKUP, 5 * SECOND + 1, 24 * HOUR, false}, /* before the last look-up of this event */
    {OUTCOME_UNKNOWN, 11, STEP_ISSUE, 0, 24 * HOUR, false},               /* look-ups may be away for everybody */
    {OUTCOME_UNKNOWN, 11, STEP_LOOKUP, -1, 24 * HOUR, false},
    {OUTCOME_UNKNOWN, 11, STEP_LOOKUP, 0, 12 * HOUR, false},
    {OUTCOME_NOT_EXECUTED, 11, STEP_LOOKUP, 0, 24 * HOUR, false}, /* nothing was sent */
};

START_TEST(a_look_up_that_always_fails_is_a_question_only_where_others_are_looked_up_well)
{
    fail_the_look_up(lookups[_i].kind, "issuer_no_answer");
    flow.attempt.number = lookups[_i].attempt;
    flow.attempt.sent_age_ms = lookups[_i].sent_age_ms;
    if (lookups[_i].answered_age_ms >= 0)
        peers.issuer.target.good[lookups[_i].answered].last =
            (struct target_answer){.event_id = another, .at_ms = flow.attempt.claimed_ms - lookups[_i].answered_age_ms};
    struct flow_verdict verdict = settle(FLOW_RETRY);
    ck_assert_int_eq(verdict.kind, lookups[_i].ends ? FLOW_FAIL : FLOW_RETRY);
    ck_assert_str_eq(verdict.code, lookups[_i].ends ? "outcome_unknown" : "issuer_no_answer");
}

TEST(a_look_up_is_repeated_the_more_rarely_the_longer_the_outcome_is_unknown)
{
    static const struct {
        int64_t sent_age_ms, least_ms;
    } cases[] = {{80 * SECOND, 5 * SECOND}, {12 * HOUR, 30 * SECOND}};
    config.retry.base_ms = config.retry.cap_ms = 10;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (int last = 0; last < 2; last++) {
            fail_the_look_up(OUTCOME_UNKNOWN, "issuer_http_503");
            flow.attempt.number = last ? 10 : 3;
            flow.attempt.sent_age_ms = cases[i].sent_age_ms;
            ck_assert_int_ge(settle(FLOW_RETRY).wait_ms, cases[i].least_ms);
            ck_assert_int_le(settle(FLOW_RETRY).wait_ms, 2 * cases[i].least_ms);
            flow.attempt.outcome.advice = ADVICE_CONFIGURATION;
            ck_assert_int_ge(settle(FLOW_DEFER).wait_ms, cases[i].least_ms);
        }
    fail_the_last_attempt(); /* of another step */
    flow.attempt.number = 3;
    ck_assert_int_le(settle(FLOW_RETRY).wait_ms, 10);
}

/* The steps of a profile that activates, reveals, retires and verifies. asks_for: CHECK only asks for the parameters of
 * that step. */
static const struct {
    enum flow_step step, asks_for, verifies;
    bool unknown, is_saved, is_expired;
    enum flow_verdict_kind exhausted;
    const char *exhausted_code;
    enum flow_verdict_kind refused; /* three times, with other events answered well */
    const char *refused_code;
} purposes[] = {
    {STEP_ACTIVATE, STEP_COUNT, STEP_COUNT, true, false, false, FLOW_FAIL, "attempts_exhausted", FLOW_FAIL,
     "issuer_http_403"},
    {STEP_REVEAL, STEP_COUNT, STEP_COUNT, true, false, false, FLOW_FAIL, "attempts_exhausted", FLOW_FAIL,
     "reveal_refused"},
    {STEP_RETIRE, STEP_COUNT, STEP_COUNT, false, true, false, FLOW_COMPLETE, "retire_refused", FLOW_COMPLETE,
     "retire_refused"},
    {STEP_VERIFY, STEP_COUNT, STEP_RETIRE, false, true, false, FLOW_COMPLETE, "retire_refused", FLOW_COMPLETE,
     "retire_refused"},
    {STEP_CHECK, STEP_RETIRE, STEP_COUNT, false, true, false, FLOW_COMPLETE, "retire_refused", FLOW_COMPLETE,
     "retire_refused"},
    {STEP_VERIFY, STEP_COUNT, STEP_CANCEL, true, false, false, FLOW_FAIL, "attempts_exhausted", FLOW_FAIL,
     "cancel_failed"},
    {STEP_CHECK, STEP_LOOKUP, STEP_COUNT, true, false, false, FLOW_RETRY, NULL, FLOW_DEFER, NULL},
    {STEP_CHECK, STEP_LOOKUP, STEP_COUNT, true, false, true, FLOW_FAIL, "outcome_unknown", FLOW_FAIL,
     "outcome_unknown"},
};

static void take_purpose(int i)
{
    flow.attempt.step = purposes[i].step;
    flow.attempt.asks_for = purposes[i].asks_for;
    flow.attempt.verifies = purposes[i].verifies;
    flow.attempt.unknown = purposes[i].unknown;
    flow.attempt.is_saved = purposes[i].is_saved;
    flow.attempt.sent_age_ms = purposes[i].is_expired ? 24 * HOUR : HOUR;
    if (purposes[i].asks_for == STEP_LOOKUP)
        flow.attempt.lookup_reason = LOOKUP_EXHAUSTED;
}

START_TEST(a_step_that_fails_to_the_end_ends_as_its_purpose_does)
{
    take_purpose(_i);
    flow.attempt.number = 10;
    flow.attempt.outcome =
        (struct outcome){.kind = OUTCOME_UNKNOWN, .advice = ADVICE_RETRY, .health = BREAKER_ANSWERED};
    snprintf(flow.attempt.outcome.code, sizeof(flow.attempt.outcome.code), "issuer_unreadable");
    struct flow_verdict verdict = settle(FLOW_RETRY);
    ck_assert_int_eq(verdict.kind, purposes[_i].exhausted);
    if (purposes[_i].exhausted_code)
        ck_assert_str_eq(verdict.code, purposes[_i].exhausted_code);
}

START_TEST(an_outage_ends_no_step)
{
    take_purpose(_i);
    flow.attempt.number = 10;
    flow.attempt.outcome = (struct outcome){.kind = OUTCOME_UNKNOWN, .advice = ADVICE_RETRY, .health = BREAKER_BAD};
    snprintf(flow.attempt.outcome.code, sizeof(flow.attempt.outcome.code), "issuer_http_503");
    enum flow_verdict_kind kind = settle(FLOW_RETRY).kind;
    ck_assert(kind == FLOW_DEFER || kind == FLOW_RETRY);
}

START_TEST(a_third_refusal_of_a_step_ends_as_its_purpose_does)
{
    take_purpose(_i);
    refuse(403);
    flow.attempt.step = purposes[_i].step;
    snprintf(flow.attempt.outcome.code, sizeof(flow.attempt.outcome.code), "issuer_http_403");
    snprintf(flow.attempt.deferral_code, sizeof(flow.attempt.deferral_code), "issuer_http_403");
    flow.attempt.deferral_count = 1;
    ck_assert_int_eq(settle(FLOW_DEFER).kind, FLOW_DEFER);
    flow.attempt.deferral_count = 2;
    struct target *target = flow.attempt.step == STEP_CHECK ? &peers.core.target : &peers.issuer.target;
    target->good[flow.attempt.step].last =
        (struct target_answer){.event_id = another, .at_ms = flow.attempt.claimed_ms};
    struct flow_verdict verdict = settle(FLOW_DEFER);
    ck_assert_int_eq(verdict.kind, purposes[_i].refused);
    if (purposes[_i].refused_code)
        ck_assert_str_eq(verdict.code, purposes[_i].refused_code);
}

/* A credential that may not close cards refuses every event, so there is no evidence, and the user has the card. */
TEST(a_retire_that_is_refused_to_everybody_ends_too)
{
    take_purpose(2);
    refuse(403);
    flow.attempt.step = STEP_RETIRE;
    flow.attempt.deferral_count = 2;
    snprintf(flow.attempt.deferral_code, sizeof(flow.attempt.deferral_code), "core_http_403");
    ck_assert_int_eq(settle(FLOW_DEFER).kind, FLOW_COMPLETE);
    take_purpose(1); /* a number that nobody may read stops no event for good */
    ck_assert_int_eq(settle(FLOW_DEFER).kind, FLOW_DEFER);
}

static const struct {
    bool is_question, is_suspected;
    int deferrals; /* before, for the same cause */
    bool ends;
} refusals[] = {
    {false, false, 0, true}, {true, false, 0, true},  /* by itself */
    {false, true, 0, false}, {true, true, 0, false},  /* as all others */
    {false, true, 1, false}, {false, true, 2, true},  /* a refusal is final, so the third one is */
    {true, true, 2, false},  {true, true, 50, false}, /* a question would be one for each event */
};

/* Ends may have been decided by the answer: a look-up included. */
START_TEST(a_delivery_that_is_refused_as_all_others_are_does_not_end)
{
    static const enum flow_verdict_kind kinds[] = {FLOW_REJECT, FLOW_FAIL, FLOW_GO};
    for (size_t kind = 0; kind < ARRAY_SIZE(kinds); kind++) {
        struct view view = {
            .rules = {.retry_base_ms = SECOND, .retry_cap_ms = HOUR, .refused_is_question = refusals[_i].is_question},
            .is_suspected = refusals[_i].is_suspected,
            .peer_closed_ms = 7 * SECOND,
        };
        flow.attempt.step = STEP_DELIVER;
        outcome_refused(ADVICE_REJECT, "bad_signature", &flow.attempt.outcome);
        flow.attempt.deferral_count = refusals[_i].deferrals;
        snprintf(flow.attempt.deferral_code, sizeof(flow.attempt.deferral_code), "route_refuses");
        struct flow_verdict verdict =
            decide_settled(&flow.attempt, &view,
                           (struct flow_verdict){.kind = kinds[kind], .step = STEP_ASK, .code = "bad_signature"});
        ck_assert_int_eq(verdict.kind, refusals[_i].ends ? kinds[kind] : FLOW_DEFER);
        ck_assert_str_eq(verdict.code, refusals[_i].ends ? "bad_signature" : "route_refuses");
        if (verdict.kind == FLOW_DEFER)
            ck_assert_int_ge(verdict.wait_ms, 7 * SECOND);
    }
}

static const struct {
    int number;
    int64_t age_ms, retry_for_ms;
    bool ends;
} schedules[] = {
    {3, HOUR, 0, true},
    {3, HOUR, HOUR + 1, false},
    {900, 71 * HOUR, 72 * HOUR, false}, /* whatever the number is */
    {3, 72 * HOUR, 72 * HOUR, true},
    {2, 999 * HOUR, 72 * HOUR, false}, /* a replay has its attempts, however old the event is */
};

START_TEST(attempts_go_on_for_the_time_of_their_route)
{
    const struct view view = {
        .rules = {.max_attempts = 3, .retry_for_ms = schedules[_i].retry_for_ms, .retry_cap_ms = HOUR},
        .others_in_attempt = true,
    };
    flow.attempt.step = STEP_DELIVER;
    flow.attempt.number = schedules[_i].number;
    flow.attempt.accepted_age_ms = schedules[_i].age_ms;
    flow.attempt.outcome = (struct outcome){.kind = OUTCOME_NOT_EXECUTED, .health = BREAKER_BAD};
    struct flow_verdict verdict = decide_settled(
        &flow.attempt, &view, (struct flow_verdict){.kind = FLOW_RETRY, .code = "route_unreachable", .wait_ms = -1});
    ck_assert_int_eq(verdict.kind, schedules[_i].ends ? FLOW_FAIL : FLOW_RETRY);
}

START_TEST(what_was_executed_before_it_was_sent_again_is_never_rejected_nor_failed)
{
    static const enum flow_verdict_kind kinds[] = {FLOW_REJECT, FLOW_FAIL};
    const struct view view = {.now_ms = NOW_MS};
    flow.attempt.step = STEP_DELIVER;
    flow.attempt.is_resent = true;
    struct flow_verdict applied =
        decide_settled(&flow.attempt, &view, (struct flow_verdict){.kind = kinds[_i], .code = "no"});
    ck_assert_int_eq(applied.kind, FLOW_COMPLETE);
    ck_assert_str_eq(applied.code, "resend_failed");
}

START_TEST(an_end_that_is_decided_passes_unchanged)
{
    static const enum flow_verdict_kind kinds[] = {FLOW_GO, FLOW_COMPLETE, FLOW_REJECT, FLOW_FAIL, FLOW_DROP};
    flow.attempt.number = 10;
    struct flow_verdict verdict = {.kind = kinds[_i], .step = STEP_SAVE, .code = "no"};
    struct flow_verdict applied = settled(verdict);
    ck_assert_int_eq(applied.kind, verdict.kind);
    ck_assert_int_eq(applied.step, verdict.step);
    ck_assert_ptr_eq(applied.code, verdict.code);
}

/* The view of the peers is not asked for where nothing depends on it. */
TEST(what_is_settled_passes_unchanged_whatever_others_are_answered)
{
    static const enum flow_verdict_kind kinds[] = {FLOW_GO,    FLOW_COMPLETE, FLOW_REJECT, FLOW_FAIL,
                                                   FLOW_RETRY, FLOW_DEFER,    FLOW_DROP};
    for (int n = 0; n < (int)ARRAY_SIZE(kinds) * STEP_COUNT * 32; n++) {
        bool others = n & 1;
        const struct view view = {.others_in_attempt = others,
                                  .others_since_change = others,
                                  .others_in_any_call = others,
                                  .is_suspected = n & 2,
                                  .rules = {.refused_is_question = n & 1}};
        struct flow_verdict verdict = {
            .kind = kinds[n / 32 / STEP_COUNT], .step = STEP_ASK, .code = "no", .wait_ms = 7 * SECOND};
        flow.attempt.step = (enum flow_step)(n / 32 % STEP_COUNT);
        flow.attempt.outcome = (struct outcome){.kind = (enum outcome_kind)(n >> 2 & 3), .code = "no"};
        flow.attempt.is_resent = n & 16;
        if (!decide_is_settled(&flow.attempt, &verdict))
            continue;
        struct flow_verdict applied = decide_settled(&flow.attempt, &view, verdict);
        ck_assert(applied.kind == verdict.kind && applied.step == verdict.step && applied.reason == verdict.reason);
        ck_assert(applied.code == verdict.code && applied.wait_ms == verdict.wait_ms);
        ck_assert(applied.in_progress == verdict.in_progress && applied.keeps_streak == verdict.keeps_streak);
    }
    struct flow_verdict verdict = {.kind = FLOW_GO, .step = STEP_ISSUE};
    flow.attempt.outcome = (struct outcome){.kind = OUTCOME_EXECUTED};
    ck_assert(decide_is_settled(&flow.attempt, &verdict));
}

TEST(the_steps_that_send_are_those_of_the_rules)
{
    const struct config_route route = {.type = "NOTE"};
    enum flow_step sends[] = {issuer_attempt_rules(&config, &profile).send,
                              attempt_rules_of_route(&config, &route).send};
    for (int step = 0; step < STEP_COUNT; step++)
        ck_assert_int_eq(flow_step_sends((enum flow_step)step),
                         (enum flow_step)step == sends[0] || (enum flow_step)step == sends[1]);
}

SUITE(decide_settled)
{
    TCase *tcase = tcase_create("decide_settled");
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_loop_test(tcase, a_failure_ends_no_event_while_no_other_is_answered, 0, 5);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, where_events_are_rare_the_third_failure_in_a_row_ends_one_that_fails_alone, 0, 2);
    tcase_add_loop_test(tcase, a_third_refusal_ends_an_event_when_another_was_answered_in_between, 0,
                        ARRAY_SIZE(refused));
    tcase_add_loop_test(tcase, what_was_answered_before_a_step_of_the_databases_clock_is_no_evidence, 0, 2);
    tcase_add_loop_test(tcase, the_delays_of_a_row_of_deferrals_grow, 0, 2);
    tcase_add_loop_test(tcase, a_streak_of_409_answers_ends_with_the_keys_lifetime, 0, 2);
    tcase_add_loop_test(tcase, a_streak_of_409_answers_ends_within_a_day_where_the_key_lives_for_ever, 0, 2);
    tcase_add_loop_test(tcase, an_unknown_outcome_is_a_question_after_a_day_where_the_key_lives_for_ever, 0, 2);
    tcase_add_loop_test(tcase, used_up_attempts_end_an_event_only_when_its_outcome_is_known, 0, ARRAY_SIZE(exhausted));
    tcase_add_loop_test(tcase, a_look_up_that_always_fails_is_a_question_only_where_others_are_looked_up_well, 0,
                        ARRAY_SIZE(lookups));
    tcase_add_loop_test(tcase, a_step_that_fails_to_the_end_ends_as_its_purpose_does, 0, ARRAY_SIZE(purposes));
    tcase_add_loop_test(tcase, an_outage_ends_no_step, 0, ARRAY_SIZE(purposes));
    tcase_add_loop_test(tcase, a_third_refusal_of_a_step_ends_as_its_purpose_does, 0, ARRAY_SIZE(purposes));
    tcase_add_loop_test(tcase, a_delivery_that_is_refused_as_all_others_are_does_not_end, 0, ARRAY_SIZE(refusals));
    tcase_add_loop_test(tcase, attempts_go_on_for_the_time_of_their_route, 0, ARRAY_SIZE(schedules));
    tcase_add_loop_test(tcase, what_was_executed_before_it_was_sent_again_is_never_rejected_nor_failed, 0, 2);
    tcase_add_loop_test(tcase, an_end_that_is_decided_passes_unchanged, 0, 5);
    suite_add_tcase(suite, tcase);
}
