/* The last moment before a create leaves. What is let through here wrongly is a second card. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/issuer_key.h"
#include "tests/support/suite.h"
#include "tests/unit/worker/fake_profile.h"
#include "worker/flow/flow_before.h"

#define SECOND INT64_C(1000)
#define HOUR (3600 * SECOND)
#define NOW_MS (100 * HOUR)

static struct config config;
static struct issuer_profile profile;
static struct parameters_env parameters;
static struct peers peers;
static struct db_clock db_clock = {.is_known = true};
static struct worker_env worker;
static struct flow_env env;
static struct flow flow;
static struct outcome outcome;
static int64_t wall_us;

static void set_up(void)
{
    config = (struct config){
        .issuer = {.timeout_ms = 3 * SECOND, .key_lifetime_ms = 24 * HOUR, .settle_time_ms = 30 * SECOND},
        .retry = {.max_attempts = 10},
    };
    profile = fake_profile;
    parameters = (struct parameters_env){.profile = &profile};
    worker = (struct worker_env){.config = &config, .peers = &peers, .db_clock = &db_clock, .parameters = &parameters};
    env = (struct flow_env){.worker = &worker};
    flow = (struct flow){.env = &env, .attempt = {.event_id = uuid7_make(), .number = 1, .step = STEP_ISSUE}};
    flow.parameters.is_kept = true;
    flow.attempt.claimed_ms = flow.attempt.checked_ms = NOW_MS - SECOND;
    flow.attempt.sent_age_ms = flow.attempt.deferred_age_ms = flow.attempt.settle_age_ms = -1;
    int64_t made_ms;
    ck_assert(uuid7_time_ms(&flow.attempt.event_id, &made_ms));
    wall_us = (made_ms + SECOND) * 1000;
    flow.attempt.wall_offset_us = wall_us - NOW_MS * 1000;
}

static void sent_before(int64_t age_ms)
{
    flow.attempt.sent_age_ms = age_ms;
    flow.attempt.unknown = true;
}

static void expect(enum flow_verdict_kind kind, enum flow_step step, enum lookup_reason reason)
{
    struct flow_verdict verdict = flow_before_send(&flow, NOW_MS, wall_us);
    ck_assert_int_eq(verdict.kind, kind);
    ck_assert_int_eq(verdict.step, step);
    ck_assert_int_eq(verdict.reason, reason);
}

/* A first create leaves, whatever the profile declares. A repeat is looked up first by those profiles that ask for
 * it, once, and with a key that is not trusted the look-up must settle. */
START_TEST(a_repeat_is_looked_up_first_where_the_profile_asks_for_it)
{
    profile.looks_first = _i & 1;
    profile.key_is_trusted = !(_i & 2);
    expect(FLOW_GO, STEP_ISSUE, LOOKUP_NONE);
    sent_before(HOUR);
    if (!profile.key_is_trusted)
        expect(FLOW_GO, STEP_LOOKUP, LOOKUP_BEFORE_SENDING);
    else if (profile.looks_first)
        expect(FLOW_GO, STEP_LOOKUP, LOOKUP_FIRST);
    else
        expect(FLOW_GO, STEP_ISSUE, LOOKUP_NONE);
    flow.attempt.is_looked_up = true;
    expect(FLOW_GO, STEP_ISSUE, LOOKUP_NONE);
}

START_TEST(past_its_lifetime_a_key_is_looked_up_and_never_sent)
{
    profile.looks_first = _i;
    sent_before(24 * HOUR);
    expect(FLOW_GO, STEP_LOOKUP, LOOKUP_KEY_EXPIRED);
    flow.attempt.is_looked_up = true; /* by a profile that looks first */
    expect(FLOW_GO, STEP_LOOKUP, LOOKUP_KEY_EXPIRED);
    flow.attempt.deferred_age_ms = HOUR;
    expect(FLOW_GO, STEP_LOOKUP, LOOKUP_EXHAUSTED);
}

TEST(an_event_that_is_older_than_its_key_may_be_is_looked_up_first)
{
    sent_before(HOUR);
    wall_us += 48 * HOUR * 1000;
    flow.attempt.wall_offset_us += 48 * HOUR * 1000;
    expect(FLOW_GO, STEP_LOOKUP, LOOKUP_BEFORE_SENDING);
    profile.looks_first = true;
    expect(FLOW_GO, STEP_LOOKUP, LOOKUP_BEFORE_SENDING);
}

/* By either clock: after a restore the sends of the time between are not on record. */
START_TEST(an_event_that_was_never_sent_and_is_older_than_its_key_is_looked_up_first)
{
    int64_t sendable_ms = 24 * HOUR - 5 * 60 * SECOND;
    flow.attempt.accepted_age_ms = sendable_ms - SECOND - 1; /* claimed a second ago */
    expect(FLOW_GO, STEP_ISSUE, LOOKUP_NONE);
    if (_i)
        flow.attempt.accepted_age_ms++;
    wall_us += _i ? 0 : 24 * HOUR * 1000;
    flow.attempt.wall_offset_us += _i ? 0 : 24 * HOUR * 1000;
    expect(FLOW_GO, STEP_LOOKUP, LOOKUP_FIRST);
    flow.attempt.is_looked_up = true;
    expect(FLOW_GO, STEP_ISSUE, LOOKUP_NONE);
    flow.attempt.is_looked_up = false;
    config.issuer.key_lifetime_ms = ISSUER_KEY_FOREVER_MS;
    expect(FLOW_GO, STEP_ISSUE, LOOKUP_NONE);
}

START_TEST(an_attempt_too_many_is_looked_up_once_and_to_the_end)
{
    profile.looks_first = _i;
    sent_before(HOUR);
    flow.attempt.number = 11;
    expect(FLOW_GO, STEP_LOOKUP, LOOKUP_EXHAUSTED);
}

/* It was found by the look-up behind the last attempt, and core-api was away then. */
START_TEST(a_stored_card_is_linked_however_many_attempts_it_took)
{
    const struct attempt_rules rules = flow_rules(&flow);
    flow.attempt.number = 11;
    flow.attempt.is_readable = true;
    flow.attempt.is_saved = _i;
    struct flow_verdict verdict = decide_first(&flow.attempt, &rules);
    ck_assert_int_eq(verdict.kind, _i ? FLOW_GO : FLOW_FAIL);
    if (_i)
        ck_assert_int_eq(verdict.step, STEP_LINK);
}

/* Another worker says less, or more: only one of the two can be right. */
TEST(the_shorter_lifetime_and_the_longer_settling_of_two_workers_count)
{
    struct attempt_rules own = flow_rules(&flow);
    peers.least_key_lifetime_ms = own.key_lifetime_ms - 1;
    peers.most_settle_time_ms = own.settle_time_ms + 1;
    ck_assert_int_eq(flow_rules(&flow).key_lifetime_ms, own.key_lifetime_ms - 1);
    ck_assert_int_eq(flow_rules(&flow).settle_time_ms, own.settle_time_ms + 1);
    peers.least_key_lifetime_ms = own.key_lifetime_ms + 1;
    peers.most_settle_time_ms = own.settle_time_ms - 1;
    ck_assert_int_eq(flow_rules(&flow).key_lifetime_ms, own.key_lifetime_ms);
    ck_assert_int_eq(flow_rules(&flow).settle_time_ms, own.settle_time_ms);
    peers.least_key_lifetime_ms = peers.most_settle_time_ms = 0;
}

START_TEST(no_create_leaves_after_a_step_of_a_clock)
{
    wall_us += _i ? 1000001 : -1000001;
    expect(FLOW_DEFER, 0, LOOKUP_NONE);
    wall_us -= _i ? 2 : -2;
    expect(FLOW_GO, STEP_ISSUE, LOOKUP_NONE);
}

TEST(an_old_eligibility_is_asked_for_again)
{
    flow.attempt.checked_ms = NOW_MS - 3 * SECOND;
    expect(FLOW_GO, STEP_ISSUE, LOOKUP_NONE);
    flow.attempt.checked_ms--;
    expect(FLOW_GO, STEP_CHECK, LOOKUP_NONE);
}

/* ---- what the call is built from ---- */

static void is_answered(const char *holder)
{
    flow.parameters = (struct event_parameters){.was_asked = true, .is_answered = true};
    snprintf(flow.parameters.values.values[0], sizeof(flow.parameters.values.values[0]), "%s", holder);
}

/* Else a card would lie hidden behind the holder whom core-api names next. It is the last of the checks: what must be
 * looked up or asked for first comes first, with nothing written. */
TEST(what_a_look_up_is_built_from_is_kept_once_and_before_the_create)
{
    is_answered("h");
    expect(FLOW_GO, STEP_KEEP, LOOKUP_NONE);
    flow.parameters.is_kept = true;
    expect(FLOW_GO, STEP_ISSUE, LOOKUP_NONE);
    is_answered("h");
    flow.attempt.checked_ms = NOW_MS - 3 * SECOND - 1;
    expect(FLOW_GO, STEP_CHECK, LOOKUP_NONE);
    profile.looks_first = true;
    sent_before(HOUR);
    expect(FLOW_GO, STEP_LOOKUP, LOOKUP_FIRST);
}

TEST(a_create_is_kept_before_it_enters_the_queue)
{
    is_answered("h");
    ck_assert_int_eq(flow_before_call(&flow, NOW_MS, wall_us, &outcome).step, STEP_KEEP);
    flow.attempt.step = STEP_CANCEL;
    ck_assert_int_eq(flow_before_call(&flow, NOW_MS, wall_us, &outcome).step, STEP_CANCEL);
    flow.attempt.step = STEP_ISSUE;
    wall_us += 2 * SECOND * 1000; /* a clock was set: the queue's check defers the attempt, and nothing is written */
    ck_assert_int_eq(flow_before_call(&flow, NOW_MS, wall_us, &outcome).step, STEP_ISSUE);
}

/* generic, lithic and marqeta: the reference finds the card, whatever the issuer was told. A parameter in the path or
 * in a header of the look-up counts as one in its query. */
TEST(nothing_is_kept_before_the_create_where_the_reference_finds_the_card)
{
    static const struct issuer_field query[] = {FIELD("reference", FROM_EVENT), {0}};
    static const struct issuer_field headers[] = {PARAMETER("Account", "account", .when = IF_GIVEN), {0}};
    profile.calls[ISSUER_LOOKUP].query = query;
    is_answered("h");
    expect(FLOW_GO, STEP_ISSUE, LOOKUP_NONE);
    profile.calls[ISSUER_LOOKUP].path = "/holders/{holder}/cards";
    expect(FLOW_GO, STEP_KEEP, LOOKUP_NONE);
    profile.calls[ISSUER_LOOKUP].path = "/cards/{event}";
    expect(FLOW_GO, STEP_ISSUE, LOOKUP_NONE);
    profile.headers = headers;
    expect(FLOW_GO, STEP_KEEP, LOOKUP_NONE);
}

static struct flow_verdict before_call(void)
{
    return flow_before_call(&flow, NOW_MS, wall_us, &outcome);
}

TEST(core_api_is_asked_first_and_once)
{
    flow.attempt.step = STEP_LOOKUP;
    flow.parameters.is_kept = false;
    ck_assert_int_eq(before_call().step, STEP_CHECK);
    snprintf(flow.parameters.values.values[0], sizeof(flow.parameters.values.values[0]), "h");
    ck_assert_int_eq(before_call().step, STEP_CHECK); /* a value of the configuration is not a word of core-api */
    flow.parameters.was_asked = true;
    ck_assert_int_eq(before_call().kind, FLOW_GO);
    ck_assert_int_eq(before_call().step, STEP_LOOKUP);
}

START_TEST(a_look_up_without_its_holder_is_retried_while_the_key_lives_and_then_a_question)
{
    flow.attempt.step = STEP_LOOKUP;
    flow.attempt.lookup_reason = LOOKUP_EXHAUSTED;
    flow.parameters.was_asked = true;
    sent_before(_i ? 24 * HOUR : HOUR);
    struct flow_verdict verdict = before_call();
    ck_assert_int_eq(verdict.kind, _i ? FLOW_FAIL : FLOW_RETRY);
    ck_assert_str_eq(verdict.code, _i ? "outcome_unknown" : "core_unreadable");
    ck_assert_str_eq(outcome.detail, "no issuer.holder");
}

/* A day, less the margin, where issuer.key_lifetime says that keys live for ever: else it would be retried for ever. */
START_TEST(a_look_up_without_its_holder_is_a_question_after_a_day_where_keys_live_for_ever)
{
    config.issuer.key_lifetime_ms = ISSUER_KEY_FOREVER_MS;
    flow.attempt.step = STEP_LOOKUP;
    flow.attempt.lookup_reason = LOOKUP_REFUSED;
    flow.parameters.was_asked = true;
    sent_before(24 * HOUR - 5 * 60 * SECOND - SECOND - (_i ? 0 : 1)); /* claimed a second ago */
    struct flow_verdict verdict = before_call();
    ck_assert_int_eq(verdict.kind, _i ? FLOW_FAIL : FLOW_RETRY);
    ck_assert_str_eq(verdict.code, _i ? "outcome_unknown" : "core_unreadable");
    flow.attempt.unknown = false; /* only a question where a card may be */
    ck_assert_int_eq(before_call().kind, FLOW_RETRY);
}

TEST(a_call_without_parameters_needs_nobody)
{
    flow.attempt.step = STEP_CANCEL;
    ck_assert_int_eq(before_call().step, STEP_CANCEL);
}

SUITE(flow_before)
{
    TCase *tcase = tcase_create("flow_before");
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_loop_test(tcase, a_repeat_is_looked_up_first_where_the_profile_asks_for_it, 0, 4);
    tcase_add_loop_test(tcase, past_its_lifetime_a_key_is_looked_up_and_never_sent, 0, 2);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, an_event_that_was_never_sent_and_is_older_than_its_key_is_looked_up_first, 0, 2);
    tcase_add_loop_test(tcase, an_attempt_too_many_is_looked_up_once_and_to_the_end, 0, 2);
    tcase_add_loop_test(tcase, a_stored_card_is_linked_however_many_attempts_it_took, 0, 2);
    tcase_add_loop_test(tcase, no_create_leaves_after_a_step_of_a_clock, 0, 2);
    tcase_add_loop_test(tcase, a_look_up_without_its_holder_is_retried_while_the_key_lives_and_then_a_question, 0, 2);
    tcase_add_loop_test(tcase, a_look_up_without_its_holder_is_a_question_after_a_day_where_keys_live_for_ever, 0, 2);
    suite_add_tcase(suite, tcase);
}
