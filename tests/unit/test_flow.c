/* Two stories.
 *
 * A key that the issuer may have forgotten makes a second card out of a retry. The boundary between "send again" and
 * "ask first" is one comparison, and it must be on the safe side to the millisecond.
 *
 * An attempt begins on rows that are not committed. If more than a question left before the commit and the commit
 * failed, another worker would make the same call with nobody knowing of the first; and a write would be taken for a
 * stale worker's. So the runner is held at its gate here, with a peer of ours on a real socket and a writer that only
 * notes what it is given. What comes behind the gate is shown by the end-to-end stories. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/http_server.h"
#include "worker/flow.h"
#include "worker/reconcile.h"
#include "worker/worker.h"

#define SECOND INT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)

static void expect_boundary(int64_t lifetime_ms, int64_t timeout_ms, int64_t boundary_ms)
{
    ck_assert_msg(!flow_key_expired(boundary_ms - 1, lifetime_ms, timeout_ms, 0), "%lld, %lld", (long long)lifetime_ms,
                  (long long)timeout_ms);
    ck_assert_msg(flow_key_expired(boundary_ms, lifetime_ms, timeout_ms, 0), "%lld, %lld", (long long)lifetime_ms,
                  (long long)timeout_ms);
    ck_assert(flow_key_expired(boundary_ms + 1, lifetime_ms, timeout_ms, 0));
    ck_assert(flow_key_expired(lifetime_ms, lifetime_ms, timeout_ms, 0));
    ck_assert(flow_key_expired(INT64_MAX / 2, lifetime_ms, timeout_ms, 0));
}

START_TEST(a_long_lifetime_has_a_margin_of_five_minutes)
{
    expect_boundary(24 * HOUR, 3 * SECOND, 24 * HOUR - 5 * MINUTE);
    expect_boundary(HOUR, 3 * SECOND, 55 * MINUTE);
    expect_boundary(50 * MINUTE, 3 * SECOND, 45 * MINUTE); /* a tenth is exactly five minutes */
}
END_TEST

START_TEST(a_shorter_lifetime_has_a_margin_of_its_tenth)
{
    expect_boundary(40 * MINUTE, 3 * SECOND, 36 * MINUTE);
    expect_boundary(60 * SECOND, 3 * SECOND, 54 * SECOND);
    expect_boundary(30 * SECOND, 3 * SECOND, 27 * SECOND); /* the tenth and the timeout are equal */
}
END_TEST

START_TEST(the_margin_is_never_shorter_than_one_call)
{
    expect_boundary(10 * SECOND, 3 * SECOND, 7 * SECOND);
    expect_boundary(60 * SECOND, 20 * SECOND, 40 * SECOND);
    expect_boundary(24 * HOUR, 10 * MINUTE, 24 * HOUR - 5 * MINUTE); /* but at most five minutes */
}
END_TEST

START_TEST(a_lifetime_shorter_than_one_call_is_over_at_once)
{
    ck_assert(flow_key_expired(0, 2 * SECOND, 3 * SECOND, 0));
    ck_assert(flow_key_expired(0, 3 * SECOND, 3 * SECOND, 0));
    ck_assert(!flow_key_expired(0, 3 * SECOND + 1, 3 * SECOND, 0));
    ck_assert(flow_key_expired(0, 0, 0, 0));
}
END_TEST

START_TEST(the_margin_is_never_shorter_than_the_settling_time)
{
    ck_assert(!flow_key_expired(50 * SECOND - 1, 80 * SECOND, 3 * SECOND, 30 * SECOND));
    ck_assert(flow_key_expired(50 * SECOND, 80 * SECOND, 3 * SECOND, 30 * SECOND));
    ck_assert(flow_key_expired(14 * HOUR, 24 * HOUR, 3 * SECOND, 10 * HOUR)); /* also above the five minutes */
}
END_TEST

START_TEST(a_send_settles_after_its_time_by_both_clocks)
{
    const int64_t settle_ms = 30 * SECOND, lease_ms = 20 * SECOND, long_steady = 24 * HOUR;
    ck_assert_int_eq(flow_settle_left_ms(-1, 0, settle_ms, lease_ms), 0); /* nothing was sent */
    ck_assert_int_eq(flow_settle_left_ms(0, long_steady, settle_ms, lease_ms), 30 * SECOND);
    ck_assert_int_eq(flow_settle_left_ms(29 * SECOND, long_steady, settle_ms, lease_ms), SECOND);
    ck_assert_int_eq(flow_settle_left_ms(30 * SECOND, long_steady, settle_ms, lease_ms), 0);
    /* The database's clock was set forward a moment ago: its ages prove nothing yet. */
    ck_assert_int_eq(flow_settle_left_ms(2 * HOUR, 0, settle_ms, lease_ms), 50 * SECOND);
    ck_assert_int_eq(flow_settle_left_ms(2 * HOUR, 49 * SECOND, settle_ms, lease_ms), SECOND);
    ck_assert_int_eq(flow_settle_left_ms(2 * HOUR, 50 * SECOND, settle_ms, lease_ms), 0);
}
END_TEST

START_TEST(what_was_sent_just_now_is_not_expired)
{
    ck_assert(!flow_key_expired(0, 24 * HOUR, 3 * SECOND, 0));
    ck_assert(!flow_key_expired(1, 24 * HOUR, 3 * SECOND, 0));
}
END_TEST

START_TEST(every_step_has_a_row_and_a_name_of_its_own)
{
    for (int step = 0; step < STEP_COUNT; step++) {
        const struct flow_step_row *row = &flow_steps[step];
        ck_assert_ptr_nonnull(row->name);
        ck_assert_ptr_nonnull(row->text);
        ck_assert_ptr_nonnull(row->ask);
        ck_assert_ptr_nonnull(row->answer);
        ck_assert_str_eq(flow_step_name((enum flow_step)step), row->name);
        for (int other = 0; other < step; other++)
            ck_assert_str_ne(row->name, flow_steps[other].name);
    }
    ck_assert_str_eq(flow_step_name(STEP_CHECK), "check");
    ck_assert(!flow_steps[STEP_SAVE].target); /* the database has no breaker */
    ck_assert(flow_steps[STEP_ISSUE].target);
}
END_TEST

/* ---- the gate ---- */

enum { FLOWS = 2, REQUESTS = 8, WRITES = 8, PATIENCE_MS = 30000 };
#define ELIGIBLE "{\"eligible\":true}"
#define INELIGIBLE "{\"eligible\":false,\"reason\":\"blocked\"}"

static struct {
    int reported; /* events that should be looked up */
    uv_loop_t loop;
    struct http_server *server;
    struct http_request *requests[REQUESTS]; /* both peers', as they came */
    int request_count;
    struct config config;
    struct worker worker;
    struct flow flows[FLOWS];
    struct write_op *writes[WRITES];
    int write_count, ended, open;
    char url[64];
} world;

void reconcile_report(struct reconcile *reconcile, const struct uuid *event_id)
{
    (void)reconcile;
    (void)event_id;
    world.reported++;
}

/* In place of the worker's own: what it would do with them is other tests' story. */
void writer_put(struct writer *writer, struct write_op *op)
{
    (void)writer;
    ck_assert_int_lt(world.write_count, WRITES);
    world.writes[world.write_count++] = op;
}

void worker_flow_ended(struct worker *worker, struct flow *flow)
{
    ck_assert_ptr_eq(worker, &world.worker);
    ck_assert(!flow->is_busy);
    world.ended++;
}

void worker_count(struct worker *worker, enum worker_metric metric, const char *label1, const char *label2)
{
    (void)worker;
    (void)metric;
    (void)label1;
    (void)label2;
}

static void on_request(void *context, struct http_request *request)
{
    (void)context;
    ck_assert_int_lt(world.request_count, REQUESTS);
    world.requests[world.request_count++] = request;
}

static void on_change(struct target *target)
{
    (void)target;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer; /* the loop shall turn */
}

#define turn_until(condition)                                                        \
    do {                                                                             \
        uv_timer_t tick;                                                             \
        int64_t until_ms = clock_mono_ms() + PATIENCE_MS;                            \
        (void)uv_timer_init(&world.loop, &tick);                                     \
        (void)uv_timer_start(&tick, on_tick, 10, 10);                                \
        while (!(condition)) {                                                       \
            ck_assert_msg(clock_mono_ms() < until_ms, "never came: %s", #condition); \
            (void)uv_run(&world.loop, UV_RUN_ONCE);                                  \
        }                                                                            \
        uv_close((uv_handle_t *)&tick, NULL);                                        \
        (void)uv_run(&world.loop, UV_RUN_NOWAIT);                                    \
    } while (0)

static const struct metric_family families[] = {
#define X(id, name, type, help, label1, label2, buckets) {name, type, help, {label1, label2}, buckets},
    WORKER_METRICS(X)
#undef X
};

static void set_up(void)
{
    memset(&world, 0, sizeof world);
    ck_assert_int_eq(uv_loop_init(&world.loop), 0);
    struct http_server_options options;
    http_server_defaults(&options);
    options.listen = "127.0.0.1:0";
    options.on_request = on_request;
    ck_assert(http_server_open(&world.loop, &options, &world.server, NULL));
    (void)snprintf(world.url, sizeof world.url, "http://127.0.0.1:%d", http_server_port(world.server));
    world.config.issuer.url = world.config.core.url = world.url;
    world.config.issuer.timeout_ms = world.config.core.timeout_ms = 3 * SECOND;
    world.config.issuer.key_lifetime_ms = 24 * HOUR;
    world.config.issuer.settle_time_ms = 30 * SECOND;
    world.worker.db_clock = (struct db_clock){.is_known = true}; /* steady since long */
    world.config.retry.max_attempts = 10;
    world.config.retry.base_ms = world.config.retry.cap_ms = SECOND;
    world.config.worker.lease_ms = 30 * SECOND;
    struct worker *worker = &world.worker;
    worker->config = &world.config;
    worker->loop = &world.loop;
    worker->metrics = metrics_new(families, ARRAY_SIZE(families));
    target_init(&worker->issuer, "issuer", 5, SECOND, 1, on_change);
    target_init(&worker->core, "core", 5, SECOND, 1, on_change);
    struct http_client_options client = {.connections_max = 4, .answer_max = 64 * 1024};
    ck_assert(http_client_open(&world.loop, &client, &worker->http, NULL));
    for (int i = 0; i < FLOWS; i++) {
        struct flow *flow = &world.flows[i];
        flow_init(flow, worker);
        flow->event_id = uuid7_make();
        uuid_format(&flow->event_id, flow->event_text);
        (void)snprintf(flow->user_id, sizeof flow->user_id, "user-%d", i);
        flow->attempt = 1;
        flow->sent_age_ms = flow->deferred_age_ms = flow->settle_age_ms = -1;
        flow->claimed_ms = clock_mono_ms();
        flow->lease_until_ms = flow->claimed_ms + world.config.worker.lease_ms;
    }
}

static void on_closed(void *context)
{
    (void)context;
    world.open--;
}

static void tear_down(void)
{
    world.open = 2;
    http_client_close(world.worker.http, on_closed, NULL);
    http_server_close(world.server, on_closed, NULL);
    turn_until(world.open == 0);
    for (int i = 0; i < FLOWS; i++)
        flow_done(&world.flows[i]);
    metrics_free(world.worker.metrics);
    ck_assert_int_eq(uv_loop_close(&world.loop), 0);
}

static void answer(int number, int status, const char *body)
{
    struct http_reply reply = {
        .status = status, .content_type = "application/json", .body = body, .body_length = strlen(body)};
    http_reply(world.requests[number], &reply);
}

static void expect_request(int number, const char *path)
{
    turn_until(world.request_count > number);
    ck_assert_int_eq(world.request_count, number + 1);
    struct slice got = world.requests[number]->path;
    ck_assert_msg(got.length == strlen(path) && memcmp(got.bytes, path, got.length) == 0, "%.*s", (int)got.length,
                  (const char *)got.bytes);
}

/* It stands at the gate, and so many requests have left in all; no write, and nothing to the issuer. */
static void expect_waiting(const struct flow *flow, int requests)
{
    ck_assert(flow->is_busy && flow->at_gate);
    ck_assert_int_eq(world.request_count, requests);
    ck_assert_int_eq(world.worker.issuer.breaker.in_flight, 0);
    ck_assert_int_eq(world.write_count, 0);
}

/* It left its slot, and neither it nor the targets know anything of it any more. */
static void expect_dropped(int requests)
{
    ck_assert_int_eq(world.ended, 1);
    ck_assert_int_eq(world.request_count, requests);
    ck_assert_int_eq(world.worker.issuer.breaker.in_flight, 0);
    ck_assert_int_eq(world.worker.core.breaker.in_flight, 0);
    ck_assert_ptr_null(world.worker.core.first);
    ck_assert_int_eq(world.write_count, 0);
}

static struct write_op *expect_write(enum write_kind kind)
{
    turn_until(world.write_count == 1);
    ck_assert_int_eq(world.writes[0]->kind, kind);
    return world.writes[0];
}

static void expect_end(enum outbox_status status, const char *code)
{
    struct write_op *op = expect_write(WRITE_END);
    ck_assert_int_eq(op->end->status, status);
    ck_assert_str_eq(op->end->reason_code[0] ? op->end->reason_code : op->end->cause, code);
    ck_assert_int_eq(world.ended, 0);
    op->on_written(op, WRITE_DONE, "");
    ck_assert_int_eq(world.ended, 1);
}

/* The issuer refuses, and so the attempt ends. */
static void refuse_create(int number)
{
    expect_request(number, "/v1/cards");
    answer(number, 422, "{\"code\":\"no\"}");
    expect_end(OUTBOX_REJECTED, "no");
}

static void ask_and_wait_at_the_gate(struct flow *flow, int status, const char *body)
{
    flow_begin(flow, true);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    ck_assert(!flow->at_gate);
    answer(0, status, body);
    turn_until(world.worker.core.breaker.in_flight == 0);
    expect_waiting(flow, 1);
    ck_assert_int_eq(world.worker.core.breaker.in_flight, 0);
}

START_TEST(nothing_but_the_question_leaves_before_the_claim_is_committed)
{
    struct flow *flow = &world.flows[0];
    ask_and_wait_at_the_gate(flow, 200, ELIGIBLE);
    flow_claim_held(flow);
    ck_assert(!flow->at_gate);
    refuse_create(1);
}
END_TEST

START_TEST(a_claim_that_is_committed_before_the_answer_holds_nothing_up)
{
    struct flow *flow = &world.flows[0];
    flow_begin(flow, true);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    flow_claim_held(flow);
    ck_assert_int_eq(world.write_count, 0);
    answer(0, 200, ELIGIBLE);
    refuse_create(1);
}
END_TEST

START_TEST(what_waits_at_the_gate_goes_with_its_claim)
{
    struct flow *flow = &world.flows[0];
    ask_and_wait_at_the_gate(flow, 200, ELIGIBLE);
    flow_claim_lost(flow);
    expect_dropped(1);
}
END_TEST

START_TEST(a_question_in_flight_is_awaited_when_the_claim_is_lost)
{
    struct flow *flow = &world.flows[0];
    flow_begin(flow, true);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    flow_claim_lost(flow);
    ck_assert_int_eq(world.ended, 0);
    ck_assert_int_eq(world.worker.core.breaker.in_flight, 1);
    answer(0, _i ? 500 : 200, ELIGIBLE);
    turn_until(world.ended);
    expect_dropped(1);
    ck_assert_int_eq(world.worker.core.breaker.failures, _i); /* the answer says all the same how core-api is */
}
END_TEST

START_TEST(whoever_waits_for_its_turn_asks_nothing_when_the_claim_is_lost)
{
    struct flow *first = &world.flows[0], *second = &world.flows[1];
    flow_begin(first, true);
    flow_begin(second, true);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    ck_assert(second->ticket.is_waiting);
    flow_claim_held(first);
    flow_claim_lost(second);
    ck_assert_int_eq(world.ended, 0);
    answer(0, 200, ELIGIBLE);
    turn_until(world.ended);
    ck_assert(first->is_busy && !second->is_busy);
    world.ended = 0;
    refuse_create(1);
}
END_TEST

static const struct {
    int status;
    const char *body;
    enum outbox_status end;
    const char *code;
} answers[] = {
    {200, INELIGIBLE, OUTBOX_REJECTED, "blocked"},   {404, "{}", OUTBOX_REJECTED, "user_not_found"},
    {418, "{}", OUTBOX_FAILED, "core_http_418"},     {503, "{}", OUTBOX_PENDING, "core_http_503"},
    {401, "{}", OUTBOX_PENDING, "core_http_401"},    {429, "{}", OUTBOX_PENDING, "core_http_429"},
    {200, "[1]", OUTBOX_PENDING, "core_unreadable"},
};

START_TEST(no_answer_of_core_api_is_written_before_the_claim_is_committed)
{
    struct flow *flow = &world.flows[0];
    ask_and_wait_at_the_gate(flow, answers[_i].status, answers[_i].body);
    flow_claim_held(flow);
    expect_end(answers[_i].end, answers[_i].code);
}
END_TEST

START_TEST(no_answer_of_core_api_is_written_when_the_claim_is_lost)
{
    struct flow *flow = &world.flows[0];
    ask_and_wait_at_the_gate(flow, answers[_i].status, answers[_i].body);
    flow_claim_lost(flow);
    expect_dropped(1);
}
END_TEST

START_TEST(a_payload_that_cannot_be_read_is_written_down_when_the_claim_is_committed)
{
    struct flow *flow = &world.flows[0];
    flow_begin(flow, false);
    expect_waiting(flow, 0);
    if (_i) {
        flow_claim_lost(flow);
        expect_dropped(0);
    } else {
        flow_claim_held(flow);
        expect_end(OUTBOX_FAILED, "payload_invalid");
    }
}
END_TEST

START_TEST(an_attempt_too_many_is_written_down_when_the_claim_is_committed)
{
    struct flow *flow = &world.flows[0];
    flow->attempt = 11;
    flow_begin(flow, true);
    expect_waiting(flow, 0);
    if (_i) {
        flow_claim_lost(flow);
        expect_dropped(0);
    } else {
        flow_claim_held(flow);
        expect_end(OUTBOX_FAILED, "attempts_exhausted");
    }
}
END_TEST

/* Attempts that begin elsewhere than at check. */
static const struct {
    bool is_saved;
    const char *held_code;
    const char *path;
    int status; /* that ends it */
    const char *body;
    enum outbox_status end;
    const char *code;
} others[] = {
    {true, "", "/v1/users/user-0/cards", 200, "{}", OUTBOX_COMPLETED, ""},
    {true, "gone", "/v1/cards/card-1/cancel", 422, "{}", OUTBOX_FAILED, "cancel_failed"},
    {false, "gone", "/v1/cards", 200, "{\"cards\":[]}", OUTBOX_PENDING, "issuer_unreadable"}, /* it was seen */
};

static void begin_elsewhere(struct flow *flow, int i)
{
    flow->is_saved = others[i].is_saved;
    flow->sent_age_ms = flow->settle_age_ms = HOUR;
    (void)snprintf(flow->card.id, sizeof flow->card.id, "card-1");
    (void)snprintf(flow->save.last4, sizeof flow->save.last4, "1111");
    (void)snprintf(flow->held_code, sizeof flow->held_code, "%s", others[i].held_code);
    flow_begin(flow, true);
    expect_waiting(flow, 0);
    ck_assert_int_eq(world.worker.core.breaker.in_flight, 0);
}

START_TEST(link_cancel_and_look_up_wait_for_the_commit)
{
    struct flow *flow = &world.flows[0];
    begin_elsewhere(flow, _i);
    flow_claim_held(flow);
    expect_request(0, others[_i].path);
    answer(0, others[_i].status, others[_i].body);
    expect_end(others[_i].end, others[_i].code);
}
END_TEST

START_TEST(link_cancel_and_look_up_go_with_their_claim)
{
    struct flow *flow = &world.flows[0];
    begin_elsewhere(flow, _i);
    flow_claim_lost(flow);
    expect_dropped(0);
}
END_TEST

START_TEST(a_longer_lease_is_asked_for_when_the_claim_is_committed)
{
    struct flow *flow = &world.flows[0];
    flow->lease_until_ms = clock_mono_ms() + SECOND;
    flow_begin(flow, true);
    expect_waiting(flow, 0);
    if (_i) {
        flow_claim_lost(flow);
        expect_dropped(0);
        return;
    }
    flow_claim_held(flow);
    struct write_op *op = expect_write(WRITE_EXTEND);
    world.write_count = 0;
    op->on_written(op, WRITE_DONE, "");
    expect_request(0, "/v1/users/user-0/card-eligibility");
    answer(0, 200, ELIGIBLE);
    refuse_create(1);
}
END_TEST

START_TEST(a_turn_that_waits_for_the_commit_is_given_back_with_the_claim)
{
    struct flow *first = &world.flows[0], *second = &world.flows[1];
    flow_begin(first, true);
    flow_begin(second, true);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    second->lease_until_ms = clock_mono_ms() + SECOND; /* it waits for its turn so long */
    answer(0, 200, ELIGIBLE);
    turn_until(!second->ticket.is_waiting);
    ck_assert(second->holds_ticket);
    expect_waiting(first, 1);
    flow_claim_lost(first);
    world.ended = 0;
    flow_claim_lost(second);
    expect_dropped(1);
}
END_TEST

/* ---- a machine that was suspended ---- */

#define SLEPT_US (86400 * INT64_C(1000000))

START_TEST(no_create_leaves_when_the_machine_slept_after_the_claim)
{
    struct flow *flow = &world.flows[0];
    flow_begin(flow, true);
    flow_claim_held(flow);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    answer(0, 200, ELIGIBLE);
    clock_advance(SLEPT_US); /* before the answer is read */
    turn_until(world.write_count > 0 || world.request_count > 1);
    ck_assert_int_eq(world.request_count, 1);
    struct write_op *op = expect_write(WRITE_EXTEND); /* by whose deadline the lease is over */
    ck_assert_int_lt(op->deadline_ms, clock_mono_ms());
    world.write_count = 0;
    op->on_written(op, WRITE_FENCED, "");
    expect_dropped(1);
    clock_release();
}
END_TEST

START_TEST(no_create_leaves_when_the_machine_slept_while_it_waited_for_its_turn)
{
    struct flow *flow = &world.flows[0];
    struct target_ticket blocker = {.on_turn = NULL};
    ck_assert_int_eq(target_enter(&world.worker.issuer, &blocker), TARGET_GO);
    flow_begin(flow, true);
    flow_claim_held(flow);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    answer(0, 200, ELIGIBLE);
    turn_until(flow->step == STEP_ISSUE && flow->ticket.is_waiting);
    clock_advance(SLEPT_US);
    target_leave(&world.worker.issuer, &blocker, BREAKER_GOOD, -1);
    turn_until(world.write_count > 0 || world.request_count > 1);
    ck_assert_int_eq(world.request_count, 1);
    struct write_op *op = expect_write(WRITE_EXTEND);
    world.write_count = 0;
    op->on_written(op, WRITE_FENCED, "");
    expect_dropped(1);
    clock_release();
}
END_TEST

START_TEST(nothing_is_handed_back_before_the_claim_is_committed)
{
    struct flow *flow = &world.flows[0];
    if (_i < 2)
        world.worker.is_draining = true;
    else
        world.worker.issuer.breaker.state = BREAKER_HALF_OPEN;
    flow_begin(flow, true);
    expect_waiting(flow, 0);
    ck_assert_int_eq(world.worker.core.breaker.in_flight, 0);
    if (_i == 0) {
        flow_claim_lost(flow);
        expect_dropped(0);
        return;
    }
    flow_claim_held(flow);
    ck_assert(expect_write(WRITE_END)->end->give_back);
    expect_end(OUTBOX_PENDING, _i == 1 ? "drain" : "breaker_open");
}
END_TEST

/* ---- whose fault it is ---- */

static const struct uuid another = {.bytes = {1}};

/* Core-api is asked whether the user may have a card, by the last attempt, and answers this. */
static struct flow *ask_for_the_last_time(int status)
{
    struct flow *flow = &world.flows[0];
    flow->attempt = 10;
    ask_and_wait_at_the_gate(flow, status, "{}");
    return flow;
}

static void another_was_answered(enum flow_step step, int64_t at_ms)
{
    world.worker.core.good[step].last = (struct target_answer){.event_id = another, .at_ms = at_ms};
}

START_TEST(a_failure_ends_no_event_while_nobody_else_is_answered)
{
    struct flow *flow = ask_for_the_last_time(503);
    if (_i == 1) /* before this attempt */
        another_was_answered(STEP_CHECK, flow->claimed_ms - 1);
    if (_i == 2) /* in another kind of call */
        another_was_answered(STEP_LINK, clock_mono_ms());
    if (_i == 3) { /* this event itself */
        another_was_answered(STEP_CHECK, clock_mono_ms());
        world.worker.core.good[STEP_CHECK].last.event_id = flow->event_id;
    }
    flow_claim_held(flow);
    ck_assert(expect_write(WRITE_END)->end->give_back);
    expect_end(OUTBOX_PENDING, "core_http_503");
}
END_TEST

START_TEST(a_failure_of_the_last_attempt_ends_an_event_that_fails_alone)
{
    struct flow *flow = ask_for_the_last_time(503);
    another_was_answered(STEP_CHECK, flow->claimed_ms);
    flow_claim_held(flow);
    expect_end(OUTBOX_FAILED, "attempts_exhausted");
}
END_TEST

START_TEST(where_events_are_rare_the_third_failure_in_a_row_ends_one_that_fails_alone)
{
    struct flow *flow = ask_for_the_last_time(503);
    flow->deferral_count = _i ? 2 : 1;
    flow->changed_age_ms = 5 * SECOND;
    (void)snprintf(flow->deferral_code, sizeof flow->deferral_code, "core_http_503");
    another_was_answered(STEP_CHECK, flow->claimed_ms - 5 * SECOND);
    flow_claim_held(flow);
    expect_end(_i ? OUTBOX_FAILED : OUTBOX_PENDING, _i ? "attempts_exhausted" : "core_http_503");
}
END_TEST

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

START_TEST(a_third_refusal_ends_an_event_when_another_was_answered_in_between)
{
    struct flow *flow = &world.flows[0];
    flow->deferral_count = refused[_i].count;
    flow->changed_age_ms = 5 * SECOND;
    (void)snprintf(flow->deferral_code, sizeof flow->deferral_code, "%s", refused[_i].code);
    ask_and_wait_at_the_gate(flow, 403, "{}");
    if (refused[_i].answered_age_ms >= 0)
        another_was_answered(STEP_CHECK, flow->claimed_ms - refused[_i].answered_age_ms);
    ck_assert_int_eq(world.worker.core.breaker.state, BREAKER_CLOSED);
    flow_claim_held(flow);
    expect_end(refused[_i].ends ? OUTBOX_FAILED : OUTBOX_PENDING, "core_http_403");
}
END_TEST

START_TEST(the_delays_of_a_row_of_deferrals_grow)
{
    struct flow *flow = &world.flows[0];
    world.config.retry.cap_ms = 300 * SECOND;
    flow->deferral_count = 5;
    (void)snprintf(flow->deferral_code, sizeof flow->deferral_code, "core_http_%d", _i ? 429 : 403);
    ask_and_wait_at_the_gate(flow, _i ? 429 : 403, "{}");
    flow_claim_held(flow);
    const struct write_end *end = expect_write(WRITE_END)->end;
    ck_assert(end->give_back);
    ck_assert_int_ge(end->delay_ms, 16 * SECOND);
    ck_assert_int_le(end->delay_ms, 32 * SECOND);
}
END_TEST

START_TEST(who_fails_a_probe_comes_back_after_the_next_one)
{
    struct flow *flow = &world.flows[0];
    struct breaker *breaker = &world.worker.core.breaker;
    breaker->state = BREAKER_OPEN;
    breaker->probe_at_ms = 0;
    breaker->probe_interval_ms = 4 * SECOND;
    ask_and_wait_at_the_gate(flow, 503, "{}");
    ck_assert_int_eq(breaker->state, BREAKER_OPEN);
    flow_claim_held(flow);
    const struct write_end *end = expect_write(WRITE_END)->end;
    ck_assert(end->give_back);
    ck_assert_int_gt(clock_mono_ms() + end->delay_ms, breaker->probe_at_ms);
}
END_TEST

START_TEST(nobody_is_asked_while_the_issuer_rests)
{
    struct flow *flow = &world.flows[0];
    world.worker.issuer.rest_until_ms = clock_mono_ms() + 60 * SECOND;
    flow_begin(flow, true);
    expect_waiting(flow, 0);
    ck_assert_int_eq(world.worker.core.breaker.in_flight, 0);
    flow_claim_held(flow);
    const struct write_end *end = expect_write(WRITE_END)->end;
    ck_assert(end->give_back);
    ck_assert_int_ge(end->delay_ms, 50 * SECOND);
    expect_end(OUTBOX_PENDING, "target_resting");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("flow");
    TCase *tcase = tcase_create("flow");
    tcase_add_test(tcase, a_long_lifetime_has_a_margin_of_five_minutes);
    tcase_add_test(tcase, a_shorter_lifetime_has_a_margin_of_its_tenth);
    tcase_add_test(tcase, the_margin_is_never_shorter_than_one_call);
    tcase_add_test(tcase, a_lifetime_shorter_than_one_call_is_over_at_once);
    tcase_add_test(tcase, the_margin_is_never_shorter_than_the_settling_time);
    tcase_add_test(tcase, a_send_settles_after_its_time_by_both_clocks);
    tcase_add_test(tcase, what_was_sent_just_now_is_not_expired);
    tcase_add_test(tcase, every_step_has_a_row_and_a_name_of_its_own);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("gate");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, nothing_but_the_question_leaves_before_the_claim_is_committed);
    tcase_add_test(tcase, a_claim_that_is_committed_before_the_answer_holds_nothing_up);
    tcase_add_test(tcase, what_waits_at_the_gate_goes_with_its_claim);
    tcase_add_loop_test(tcase, a_question_in_flight_is_awaited_when_the_claim_is_lost, 0, 2);
    tcase_add_test(tcase, whoever_waits_for_its_turn_asks_nothing_when_the_claim_is_lost);
    tcase_add_loop_test(tcase, no_answer_of_core_api_is_written_before_the_claim_is_committed, 0, ARRAY_SIZE(answers));
    tcase_add_loop_test(tcase, no_answer_of_core_api_is_written_when_the_claim_is_lost, 0, ARRAY_SIZE(answers));
    tcase_add_loop_test(tcase, a_payload_that_cannot_be_read_is_written_down_when_the_claim_is_committed, 0, 2);
    tcase_add_loop_test(tcase, an_attempt_too_many_is_written_down_when_the_claim_is_committed, 0, 2);
    tcase_add_loop_test(tcase, link_cancel_and_look_up_wait_for_the_commit, 0, ARRAY_SIZE(others));
    tcase_add_loop_test(tcase, link_cancel_and_look_up_go_with_their_claim, 0, ARRAY_SIZE(others));
    tcase_add_loop_test(tcase, a_longer_lease_is_asked_for_when_the_claim_is_committed, 0, 2);
    tcase_add_test(tcase, a_turn_that_waits_for_the_commit_is_given_back_with_the_claim);
    tcase_add_loop_test(tcase, nothing_is_handed_back_before_the_claim_is_committed, 0, 3);
    tcase_add_test(tcase, no_create_leaves_when_the_machine_slept_after_the_claim);
    tcase_add_test(tcase, no_create_leaves_when_the_machine_slept_while_it_waited_for_its_turn);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("fault");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, a_failure_ends_no_event_while_nobody_else_is_answered, 0, 4);
    tcase_add_test(tcase, a_failure_of_the_last_attempt_ends_an_event_that_fails_alone);
    tcase_add_loop_test(tcase, where_events_are_rare_the_third_failure_in_a_row_ends_one_that_fails_alone, 0, 2);
    tcase_add_loop_test(tcase, a_third_refusal_ends_an_event_when_another_was_answered_in_between, 0,
                        ARRAY_SIZE(refused));
    tcase_add_loop_test(tcase, the_delays_of_a_row_of_deferrals_grow, 0, 2);
    tcase_add_test(tcase, who_fails_a_probe_comes_back_after_the_next_one);
    tcase_add_test(tcase, nobody_is_asked_while_the_issuer_rests);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
