/* A delivery must not be executed twice, and must not end as something that nobody knows. Every answer of the receiver,
 * in every state of the event, is played through deliver and ask to the end of the attempt; the rules hold for each. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "tests/support/suite.h"
#include "worker/flow/flow_before.h"
#include "worker/flow/flow_end.h"
#include "worker/flow/step.h"

#define SECOND INT64_C(1000)
#define HOUR (3600 * SECOND)
#define OLD_EVENT "01890a5d-ac96-774b-bcce-b302099a8057" /* of 2023 */
#define ATTEMPTS 3

static char type[] = "PAYMENT_CHARGE", url[] = "http://peer/charges", lookup_url[] = "http://peer/charges/{id}";
static char method[] = "POST";

static struct config config;
static struct peers peers;
static const struct db_clock steady = {.is_known = true};
static struct db_clock db_clock;
static struct issuer_profile profile;
static struct parameters_env parameters;
static struct route route;
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
        .issuer = {.timeout_ms = SECOND, .key_lifetime_ms = 1, .settle_time_ms = HOUR}, /* not those of the route */
        .retry = {.max_attempts = 1, .base_ms = SECOND, .cap_ms = 300 * SECOND},
        .worker = {.lease_ms = 30 * SECOND},
        .route_count = 1,
    };
    struct config_route *given = &config.routes[0];
    *given = (struct config_route){
        .url = url,
        .method = method,
        .timeout_ms = 3 * SECOND,
        .key_lifetime_ms = 24 * HOUR,
        .max_attempts = ATTEMPTS,
        .lookup_url = lookup_url,
    };
    snprintf(given->type, sizeof(given->type), "%s", type);
    db_clock = steady;
    parameters = (struct parameters_env){.profile = &profile};
    worker = (struct worker_env){.config = &config, .peers = &peers, .db_clock = &db_clock, .parameters = &parameters};
    env = (struct flow_env){.worker = &worker};
    route = (struct route){.config = given};
    target_init(&route.peer.target, 5, SECOND, 1, on_change);
    target_init(&peers.issuer.target, 5, SECOND, 1, on_change);
    target_init(&peers.core.target, 5, SECOND, 1, on_change);
    flow_init(&flow, &env);
}

static void tear_down(void)
{
    flow_done(&flow);
}

/* ---- one attempt, without a loop ---- */

/* An answer of the receiver; 0 = it could not be reached, 1 = nothing came back. */
static const int answers[] = {0,   1,   100, 200, 201, 202, 204, 299, 301, 308, 400, 401, 402, 403, 404, 405,
                              408, 409, 410, 418, 422, 425, 429, 451, 499, 500, 501, 502, 503, 504, 599, 999};

/* What a look-up is answered with. */
static const int asked[] = {0, 1, 200, 201, 204, 301, 401, 404, 409, 410, 418, 429, 500, 999};

struct state {
    bool has_lookup, is_unknown, is_expired, is_settled, others_fare_well, is_third_in_a_row;
    int attempt;
    bool was_resent; /* the call, by the HTTP client */
    bool is_old;     /* by the time in its id: older than a key may be */
};

struct end {
    struct flow_verdict verdict;
    char code[OUTBOX_REASON_CODE_SIZE];
    struct write_end written;
    int deliveries, questions;
};

static void start(const struct state *state)
{
    config.routes[0].lookup_url = state->has_lookup ? lookup_url : NULL;
    flow.attempt.event_id = uuid7_make();
    if (state->is_old)
        ck_assert(uuid_parse(OLD_EVENT, strlen(OLD_EVENT), &flow.attempt.event_id));
    int64_t now_ms = clock_mono_ms();
    struct slice user = {.bytes = "user-0", .length = 6}, body = {.bytes = "{\"amount\": 7}", .length = 13};
    ck_assert(flow_take_delivery(&flow, &route, user, body));
    flow.attempt.number = state->attempt;
    flow.attempt.claimed_ms = now_ms;
    flow.attempt.wall_offset_us = clock_wall_us() - clock_mono_us();
    flow.attempt.sent_age_ms = !state->is_unknown ? -1 : state->is_expired ? 24 * HOUR : HOUR;
    flow.attempt.settle_age_ms = !state->is_unknown ? -1 : state->is_settled ? HOUR : 0;
    flow.attempt.deferred_age_ms = -1;
    flow.attempt.changed_age_ms = 5 * SECOND;
    flow.attempt.asks_for = flow.attempt.verifies = STEP_COUNT;
    flow.attempt.lookup_reason = LOOKUP_NONE;
    flow.attempt.unknown = state->is_unknown;
    flow.attempt.may_arrive = flow.attempt.is_looked_up = flow.attempt.end_is_held = flow.attempt.is_delivered = false;
    flow.attempt.is_readable = true;
    flow.attempt.pending_code[0] = flow.attempt.deferral_code[0] = '\0';
    flow.attempt.deferral_count = 0;
    flow.attempt.outcome = (struct outcome){0};
    flow.attempt.step = STEP_DELIVER;
    for (int kind = 0; kind < TARGET_KINDS; kind++)
        route.peer.target.good[kind].last =
            (struct target_answer){.event_id = {.bytes = {1}}, .at_ms = state->others_fare_well ? now_ms : INT64_MIN};
}

static struct flow_verdict answered(int answer, const struct state *state)
{
    struct http_call *call = &flow.call;
    call->result = answer == 0 ? HTTP_NOT_SENT : answer == 1 ? HTTP_LOST : HTTP_ANSWERED;
    call->status = answer;
    call->was_resent = answer != 0 && state->was_resent;
    call->retry_after_ms = -1;
    buf_reset(&call->answer);
    ck_assert(buf_put_text(&call->answer, "{\"code\":\"no_funds\"}"));
    struct flow_verdict verdict = flow_steps[flow.attempt.step].read(&flow, &flow.attempt.outcome);
    if (state->is_third_in_a_row) {
        flow.attempt.deferral_count = 2;
        snprintf(flow.attempt.deferral_code, sizeof(flow.attempt.deferral_code), "%s", flow.attempt.outcome.code);
    }
    return verdict;
}

/* What flow_run.c does with a step, less its waiting. */
static struct flow_verdict run_step(int deliver, int ask, const struct state *state, struct end *end)
{
    if (flow.attempt.step == STEP_ASK) {
        end->questions++;
        ck_assert(state->has_lookup);
        return answered(ask, state);
    }
    ck_assert_int_eq(flow.attempt.step, STEP_DELIVER);
    struct flow_verdict verdict = flow_before_send(&flow, clock_mono_ms(), clock_wall_us());
    if (verdict.kind != FLOW_GO || verdict.step != STEP_DELIVER)
        return verdict;
    end->deliveries++;
    return answered(deliver, state);
}

static void run_attempt(int deliver, int ask, const struct state *state, struct end *end)
{
    *end = (struct end){0};
    start(state);
    for (int steps = 0;; steps++) {
        ck_assert_int_lt(steps, 8);
        struct flow_verdict verdict = run_step(deliver, ask, state, end);
        const struct view view = flow_view(&flow, clock_mono_ms(), 0);
        verdict = decide_settled(&flow.attempt, &view, verdict);
        if (verdict.kind != FLOW_GO) {
            end->verdict = verdict;
            break;
        }
        if (verdict.reason != LOOKUP_NONE) {
            flow.attempt.lookup_reason = verdict.reason;
            if (verdict.code)
                snprintf(flow.attempt.pending_code, sizeof(flow.attempt.pending_code), "%s", verdict.code);
        }
        flow.attempt.step = verdict.step;
    }
    snprintf(end->code, sizeof(end->code), "%s", end->verdict.code ? end->verdict.code : "");
    end->written = flow_end_build(&flow, &end->verdict, clock_mono_ms()); /* which asserts its invariants */
    flow_forget(&flow);
}

static bool is_executed(int answer)
{
    return answer >= 200 && answer <= 299;
}

static bool is_refused(int answer)
{
    return answer == 400 || answer == 410 || answer == 422;
}

/* It may have been executed: nobody knows. */
static bool is_open(int answer)
{
    return answer == 1 || answer == 100 || answer >= 500;
}

/* ---- the rules ---- */

static void check_sends(const struct state *state, const struct end *end)
{
    ck_assert_int_le(end->deliveries, 1);
    if (state->is_unknown && state->is_expired) /* never past the key's lifetime */
        ck_assert_int_eq(end->deliveries, 0);
    if (state->attempt > ATTEMPTS)
        ck_assert_int_eq(end->deliveries, 0);
    else if (!state->is_unknown) /* however old it is */
        ck_assert_int_eq(end->deliveries, 1);
}

static void check_completed(int deliver, int ask, const struct state *state, const struct end *end)
{
    bool by_delivery = end->deliveries == 1 && is_executed(deliver);
    bool by_lookup = end->questions > 0 && ask == 200;
    ck_assert(by_delivery || by_lookup);
    ck_assert(!end->written.unknown && !end->written.clear_sent && !end->written.may_arrive);
    if (!state->has_lookup)
        ck_assert(by_delivery);
}

/* Refused, and no earlier delivery can have been executed. */
static void check_rejected(int deliver, int ask, const struct state *state, const struct end *end)
{
    ck_assert_int_eq(end->deliveries, 1);
    ck_assert(is_refused(deliver));
    ck_assert_str_eq(end->code, "no_funds");
    if (state->is_unknown || state->was_resent)
        ck_assert(state->has_lookup && end->questions > 0 && ask == 404);
    if (state->is_unknown)
        ck_assert(state->is_settled);
}

static void check_failed(int deliver, const struct state *state, const struct end *end)
{
    ck_assert_int_ge(strlen(end->code), 1);
    if (end->deliveries == 0 && state->is_unknown && state->is_expired)
        ck_assert(strcmp(end->code, "route_key_expired") == 0 || strcmp(end->code, "outcome_unknown") == 0);
    else if (strcmp(end->code, "no_funds") == 0) /* and unknown, or else it would be REJECTED */
        ck_assert(!state->has_lookup && is_refused(deliver) && (state->is_unknown || state->was_resent));
    /* A failure that is the receiver's health ends nothing while it answers no other event. */
    bool is_health = deliver == 0 || deliver == 1 || deliver >= 500;
    if (end->deliveries == 1 && is_health)
        ck_assert(state->attempt >= ATTEMPTS && state->others_fare_well);
}

static void check_end(int deliver, int ask, const struct state *state, const struct end *end)
{
    check_sends(state, end);
    switch (end->verdict.kind) {
    case FLOW_COMPLETE:
        check_completed(deliver, ask, state, end);
        break;
    case FLOW_REJECT:
        check_rejected(deliver, ask, state, end);
        break;
    case FLOW_FAIL:
        check_failed(deliver, state, end);
        break;
    case FLOW_RETRY:
    case FLOW_DEFER:
        ck_assert_int_ge(end->verdict.wait_ms, 0);
        break;
    case FLOW_GO:
    case FLOW_DROP:
        ck_abort_msg("no end");
    }
    /* What may have been executed is remembered, unless it is known now. */
    bool is_sent_open = end->deliveries == 1 && is_open(deliver);
    bool is_known_now = end->verdict.kind == FLOW_COMPLETE;
    if ((state->is_unknown || is_sent_open) && !is_known_now) {
        ck_assert(end->written.unknown);
        ck_assert(!end->written.clear_sent);
    }
    if (is_sent_open && !is_known_now)
        ck_assert(end->written.may_arrive);
}

START_TEST(no_answer_in_any_state_breaks_a_rule)
{
    int deliver = answers[_i], seen = 0;
    for (size_t a = 0; a < ARRAY_SIZE(asked); a++)
        for (unsigned bits = 0; bits < 256; bits++)
            for (int attempt = 1; attempt <= ATTEMPTS + 1; attempt += attempt == 1 ? ATTEMPTS - 1 : 1) {
                const struct state state = {
                    .has_lookup = bits & 1,
                    .is_unknown = bits & 2,
                    .is_expired = bits & 4,
                    .is_settled = bits & 8,
                    .others_fare_well = bits & 16,
                    .is_third_in_a_row = bits & 32,
                    .was_resent = bits & 64,
                    .is_old = bits & 128,
                    .attempt = attempt,
                };
                struct end end;
                if (attempt > ATTEMPTS && !state.is_unknown) /* ended before, by flow_run.c */
                    continue;
                if (state.is_expired && !state.is_unknown)
                    continue;
                if (!state.has_lookup && a > 0)
                    continue;
                run_attempt(deliver, asked[a], &state, &end);
                check_end(deliver, asked[a], &state, &end);
                seen++;
            }
    ck_assert_int_gt(seen, 3000);
}

/* ---- single ends ---- */

static const struct {
    struct state state;
    int deliver, ask;
    enum flow_verdict_kind kind;
    const char *code;
} ends[] = {
    {{.attempt = 1}, 204, 0, FLOW_COMPLETE, ""},
    {{.attempt = 1}, 422, 0, FLOW_REJECT, "no_funds"},
    {{.attempt = 1}, 418, 0, FLOW_FAIL, "route_http_418"},
    {{.attempt = 1}, 503, 0, FLOW_RETRY, "route_http_503"},
    {{.attempt = 1}, 1, 0, FLOW_RETRY, "route_no_answer"},
    {{.attempt = 1}, 0, 0, FLOW_RETRY, "route_unreachable"},
    {{.attempt = 1}, 100, 0, FLOW_RETRY, "route_http_100"},
    {{.attempt = 1}, 429, 0, FLOW_DEFER, "route_http_429"},
    {{.attempt = 1}, 409, 0, FLOW_DEFER, "route_http_409"},
    {{.attempt = 1}, 401, 0, FLOW_DEFER, "route_http_401"},
    /* for this event alone */
    {{.attempt = 1, .others_fare_well = true, .is_third_in_a_row = true}, 404, 0, FLOW_FAIL, "route_http_404"},
    /* an earlier delivery may have been executed, and nobody can tell */
    {{.attempt = 2, .is_unknown = true, .is_settled = true}, 422, 0, FLOW_FAIL, "no_funds"},
    {{.attempt = 2, .is_unknown = true, .is_settled = true}, 418, 0, FLOW_FAIL, "route_http_418"},
    {{.attempt = 2, .is_unknown = true, .is_settled = true}, 200, 0, FLOW_COMPLETE, ""},
    {{.attempt = 2, .is_unknown = true, .is_expired = true}, 200, 0, FLOW_FAIL, "route_key_expired"},
    {{.attempt = 4, .is_unknown = true}, 200, 0, FLOW_FAIL, "attempts_exhausted"},
    {{.attempt = 3, .others_fare_well = true}, 503, 0, FLOW_FAIL, "attempts_exhausted"},
    {{.attempt = 3}, 503, 0, FLOW_DEFER, "route_http_503"},
    /* the look-up tells */
    {{.attempt = 2, .has_lookup = true, .is_unknown = true, .is_settled = true}, 422, 200, FLOW_COMPLETE, ""},
    {{.attempt = 2, .has_lookup = true, .is_unknown = true, .is_settled = true}, 422, 404, FLOW_REJECT, "no_funds"},
    {{.attempt = 2, .has_lookup = true, .is_unknown = true}, 422, 404, FLOW_DEFER, "settling"},
    {{.attempt = 2, .has_lookup = true, .is_unknown = true}, 422, 503, FLOW_RETRY, "route_http_503"},
    {{.attempt = 2, .has_lookup = true, .is_unknown = true, .is_expired = true}, 1, 200, FLOW_COMPLETE, ""},
    {{.attempt = 2, .has_lookup = true, .is_unknown = true, .is_expired = true, .is_settled = true},
     1,
     404,
     FLOW_FAIL,
     "route_key_expired"},
    {{.attempt = 2, .has_lookup = true, .is_unknown = true, .is_expired = true}, 1, 404, FLOW_DEFER, "settling"},
    {{.attempt = 4, .has_lookup = true, .is_unknown = true, .is_settled = true},
     1,
     404,
     FLOW_FAIL,
     "attempts_exhausted"},
};

START_TEST(an_answer_leads_to_its_end)
{
    struct end end;
    run_attempt(ends[_i].deliver, ends[_i].ask, &ends[_i].state, &end);
    ck_assert_int_eq(end.verdict.kind, ends[_i].kind);
    ck_assert_str_eq(end.code, ends[_i].code);
}

TEST(an_end_that_waits_for_late_deliveries_is_held)
{
    const struct state state = {.attempt = 2, .has_lookup = true, .is_unknown = true};
    struct end end;
    run_attempt(422, 404, &state, &end);
    ck_assert_str_eq(end.written.held_end, "refused");
    ck_assert_str_eq(end.written.held_end_code, "no_funds");
    ck_assert_int_ge(end.verdict.wait_ms, 29 * SECOND);
    ck_assert_int_le(end.verdict.wait_ms, 31 * SECOND); /* the settling time of the route, not of the issuer */
}

TEST(an_outage_that_outlasts_the_attempts_is_asked_about_and_goes_on)
{
    const struct state state = {.attempt = ATTEMPTS, .has_lookup = true};
    struct end end;
    run_attempt(503, 200, &state, &end);
    ck_assert_int_eq(end.verdict.kind, FLOW_COMPLETE);
    run_attempt(503, 404, &state, &end);
    ck_assert_int_eq(end.verdict.kind, FLOW_DEFER);
    ck_assert_str_eq(end.code, "route_http_503");
    ck_assert_ptr_null(end.written.held_end);
}

/* By the time in the id it is old: the database's clock may have been set back, so the key may be older than it seems.
 * Without a look-up only the database's clock can tell. */
TEST(a_key_that_may_be_older_is_asked_about_before_it_is_sent_again)
{
    struct state state = {.attempt = 2, .has_lookup = true, .is_unknown = true, .is_settled = true, .is_old = true};
    struct end end;
    run_attempt(200, 404, &state, &end);
    ck_assert_int_eq(end.questions, 1);
    ck_assert_int_eq(end.deliveries, 1);
    ck_assert_int_eq(end.verdict.kind, FLOW_COMPLETE);
    state.has_lookup = false;
    run_attempt(200, 404, &state, &end);
    ck_assert_int_eq(end.deliveries, 1);
    ck_assert_int_eq(end.verdict.kind, FLOW_COMPLETE);
}

START_TEST(no_delivery_leaves_when_a_clock_was_set)
{
    const struct state state = {.attempt = 1};
    start(&state);
    int64_t now_ms = clock_mono_ms(), wall_us = clock_wall_us();
    ck_assert_int_eq(flow_before_send(&flow, now_ms, wall_us).kind, FLOW_GO);
    struct flow_verdict verdict = flow_before_send(&flow, now_ms, wall_us + (_i ? 2 : -2) * 1000000);
    ck_assert_int_eq(verdict.kind, FLOW_DEFER);
    ck_assert_str_eq(verdict.code, "clock_stepped");
}

TEST(an_unsteady_clock_of_the_database_settles_nothing)
{
    const struct state state = {.attempt = 2, .has_lookup = true, .is_unknown = true, .is_settled = true};
    struct end end;
    db_clock.steady_since_us = clock_mono_us();
    run_attempt(422, 404, &state, &end);
    ck_assert_int_eq(end.verdict.kind, FLOW_DEFER);
    ck_assert_str_eq(end.code, "settling");
}

SUITE(flow_route)
{
    TCase *tcase = tcase_create("delivery");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, no_answer_in_any_state_breaks_a_rule, 0, ARRAY_SIZE(answers));
    tcase_add_loop_test(tcase, an_answer_leads_to_its_end, 0, ARRAY_SIZE(ends));
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, no_delivery_leaves_when_a_clock_was_set, 0, 2);
    suite_add_tcase(suite, tcase);
}
