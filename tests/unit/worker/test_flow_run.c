/* An attempt makes the calls of its steps, and ends with one write of its result. The runner runs here with a peer of
 * ours on a real socket, and the writes go to the test. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/http_server/http_server.h"
#include "worker/flow_run.h"
#include "worker/worker_metrics.h"

#define SECOND INT64_C(1000)
#define HOUR (3600 * SECOND)

/* ---- an attempt ---- */

enum { REQUESTS = 8, WRITES = 8, DEADLINE_MS = 30000 };
#define ELIGIBLE "{\"eligible\":true}"
#define INELIGIBLE "{\"eligible\":false,\"reason\":\"blocked\"}"

static struct {
    uv_loop_t loop;
    struct http_server *server;
    struct http_client *http;
    struct http_request *requests[REQUESTS]; /* of both peers, as they came */
    int request_count;
    struct config config;
    struct worker_series series;
    struct metrics *metrics;
    struct peers peers;
    struct db_clock db_clock;
    struct parameters_env parameters;
    struct flow_env env;
    struct flow flow;
    struct write_op *writes[WRITES];
    int write_count;
    int ended;    /* attempts */
    int reported; /* events that should be looked up */
    int open;
    char url[64];
} world;

static void submit_write(void *context, struct write_op *op)
{
    (void)context;
    ck_assert_int_lt(world.write_count, WRITES);
    world.writes[world.write_count++] = op;
}

static void on_ended(void *context, struct flow *flow)
{
    (void)context;
    ck_assert_ptr_eq(flow, &world.flow);
    ck_assert(!flow->is_busy);
    ck_assert_int_eq(flow->wait, FLOW_WAIT_NONE);
    world.ended++;
}

static void on_create_lost(void *context, const struct uuid *event_id)
{
    (void)context;
    ck_assert(uuid_equal(event_id, &world.flow.event_id));
    world.reported++;
}

static void on_capacity_changed(void *context)
{
    (void)context;
}

static void on_request(void *context, struct http_request *request)
{
    (void)context;
    ck_assert_int_lt(world.request_count, REQUESTS);
    world.requests[world.request_count++] = request;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer; /* wakes the loop, so that the deadline is looked at */
}

#define run_until(condition)                                                         \
    do {                                                                             \
        uv_timer_t tick;                                                             \
        int64_t until_ms = clock_mono_ms() + DEADLINE_MS;                            \
        (void)uv_timer_init(&world.loop, &tick);                                     \
        (void)uv_timer_start(&tick, on_tick, 10, 10);                                \
        while (!(condition)) {                                                       \
            ck_assert_msg(clock_mono_ms() < until_ms, "never came: %s", #condition); \
            (void)uv_run(&world.loop, UV_RUN_ONCE);                                  \
        }                                                                            \
        uv_close((uv_handle_t *)&tick, NULL);                                        \
        (void)uv_run(&world.loop, UV_RUN_NOWAIT);                                    \
    } while (0)

static void open_server(void)
{
    struct http_server_options options;
    http_server_defaults(&options);
    options.listen = "127.0.0.1:0";
    options.on_request = on_request;
    ck_assert(http_server_open(&world.loop, &options, &world.server, NULL));
    (void)snprintf(world.url, sizeof(world.url), "http://127.0.0.1:%d", http_server_port(world.server));
}

static void open_peers(void)
{
    struct http_client_options client = {.connections_max = 4, .answer_max = 64 * 1024};
    ck_assert(http_client_open(&world.loop, &client, &world.http, NULL));
    struct peers_options peers = {
        .loop = &world.loop,
        .config = &world.config,
        .http = world.http,
        .metrics = world.metrics,
        .on_capacity_changed = on_capacity_changed,
    };
    peers_open(&world.peers, &peers);
}

static void set_up(void)
{
    memset(&world, 0, sizeof(world));
    ck_assert_int_eq(uv_loop_init(&world.loop), 0);
    open_server();
    struct config *config = &world.config;
    config->issuer.url = config->core.url = world.url;
    config->issuer.timeout_ms = config->core.timeout_ms = 3 * SECOND;
    config->issuer.max_concurrency = config->core.max_concurrency = 1;
    config->issuer.key_lifetime_ms = 24 * HOUR;
    config->issuer.settle_time_ms = 30 * SECOND;
    config->breaker.failures = 5;
    config->breaker.probe_interval_ms = SECOND;
    config->retry.max_attempts = 10;
    config->retry.base_ms = config->retry.cap_ms = SECOND;
    config->worker.lease_ms = 30 * SECOND;
    world.db_clock = (struct db_clock){.is_known = true}; /* steady since long */
    world.metrics = worker_metrics_new();
    worker_series_open(&world.series, world.metrics);
    open_peers();
    world.parameters.profile = &issuer_generic;
    world.env = (struct flow_env){
        .config = config,
        .parameters = &world.parameters,
        .peers = &world.peers,
        .db_clock = &world.db_clock,
        .series = &world.series,
        .submit_write = submit_write,
        .on_ended = on_ended,
        .on_create_lost = on_create_lost,
    };
    struct flow *flow = &world.flow;
    flow_init(flow, &world.env);
    flow->event_id = uuid7_make();
    uuid_format(&flow->event_id, flow->event_text);
    (void)snprintf(flow->user_id, sizeof(flow->user_id), "user-0");
    flow->attempt = 1;
    flow->sent_age_ms = flow->deferred_age_ms = flow->settle_age_ms = -1;
    flow->claimed_ms = clock_mono_ms();
    flow->lease_until_ms = flow->claimed_ms + config->worker.lease_ms;
}

static void on_closed(void *context)
{
    (void)context;
    world.open--;
}

static void tear_down(void)
{
    world.open = 3;
    peers_close(&world.peers, on_closed, NULL);
    http_client_close(world.http, on_closed, NULL);
    http_server_close(world.server, on_closed, NULL);
    run_until(world.open == 0);
    flow_done(&world.flow);
    metrics_free(world.metrics);
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
    run_until(world.request_count > number);
    ck_assert_int_eq(world.request_count, number + 1);
    struct slice got = world.requests[number]->path;
    ck_assert_msg(got.length == strlen(path) && memcmp(got.bytes, path, got.length) == 0, "%.*s", (int)got.length,
                  (const char *)got.bytes);
}

/* The slot is free, and neither peer holds or awaits a call of the attempt. */
static void expect_dropped(int requests)
{
    ck_assert_int_eq(world.ended, 1);
    ck_assert_int_eq(world.request_count, requests);
    ck_assert_int_eq(world.peers.issuer.target.breaker.in_flight, 0);
    ck_assert_int_eq(world.peers.core.target.breaker.in_flight, 0);
    ck_assert_ptr_null(world.peers.core.target.first);
    ck_assert_int_eq(world.write_count, 0);
}

static struct write_op *expect_write(enum write_kind kind)
{
    run_until(world.write_count == 1);
    ck_assert_int_eq(world.writes[0]->kind, kind);
    return world.writes[0];
}

static void expect_end(enum outbox_status status, const char *code)
{
    struct write_op *op = expect_write(status == OUTBOX_COMPLETED ? WRITE_COMPLETE : WRITE_END);
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

/* Starts the attempt; core-api has received its first call. */
static void start_and_expect_check(struct flow *flow)
{
    flow_run_start(flow, true);
    expect_request(0, "/v1/users/user-0/card-eligibility");
}

START_TEST(a_create_follows_when_core_api_agrees)
{
    start_and_expect_check(&world.flow);
    ck_assert_int_eq(world.peers.issuer.target.breaker.in_flight, 0);
    answer(0, 200, ELIGIBLE);
    refuse_create(1);
}
END_TEST

/* An attempt that finds its lease lost after a create reports the event: it may have ended over a look-up that could
 * not see the card. An attempt that has sent nothing reports nothing. */
START_TEST(a_lease_that_is_lost_after_a_create_is_reported)
{
    struct flow *flow = &world.flow;
    start_and_expect_check(flow);
    answer(0, 200, _i ? ELIGIBLE : INELIGIBLE);
    if (_i) {
        expect_request(1, "/v1/cards");
        answer(1, 422, "{\"code\":\"no\"}");
    }
    struct write_op *op = expect_write(WRITE_END);
    ck_assert_int_eq(world.reported, 0);
    op->on_written(op, WRITE_FENCED, "");
    ck_assert_int_eq(world.ended, 1);
    ck_assert_int_eq(world.reported, _i);
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

START_TEST(an_answer_of_core_api_ends_the_attempt)
{
    start_and_expect_check(&world.flow);
    answer(0, answers[_i].status, answers[_i].body);
    expect_end(answers[_i].end, answers[_i].code);
    ck_assert_int_eq(world.request_count, 1);
}
END_TEST

START_TEST(a_payload_that_cannot_be_read_ends_the_event_without_a_call)
{
    flow_run_start(&world.flow, false);
    expect_end(OUTBOX_FAILED, "payload_invalid");
    ck_assert_int_eq(world.request_count, 0);
}
END_TEST

START_TEST(an_attempt_too_many_ends_the_event_without_a_call)
{
    world.flow.attempt = 11;
    flow_run_start(&world.flow, true);
    expect_end(OUTBOX_FAILED, "attempts_exhausted");
    ck_assert_int_eq(world.request_count, 0);
}
END_TEST

/* Attempts that start at another step than check. */
static const struct {
    bool is_saved;
    const char *pending_code;
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

static void start_elsewhere(struct flow *flow, int i)
{
    flow->is_saved = others[i].is_saved;
    flow->sent_age_ms = flow->settle_age_ms = HOUR;
    (void)snprintf(flow->card.id, sizeof flow->card.id, "card-1");
    (void)snprintf(flow->save.last4, sizeof flow->save.last4, "1111");
    (void)snprintf(flow->pending_code, sizeof flow->pending_code, "%s", others[i].pending_code);
    flow_run_start(flow, true);
}

START_TEST(an_attempt_goes_on_at_the_step_that_the_row_shows)
{
    start_elsewhere(&world.flow, _i);
    expect_request(0, others[_i].path);
    answer(0, others[_i].status, others[_i].body);
    expect_end(others[_i].end, others[_i].code);
}
END_TEST

START_TEST(a_longer_lease_is_written_before_a_call_that_could_outlast_it)
{
    struct flow *flow = &world.flow;
    flow->lease_until_ms = clock_mono_ms() + SECOND;
    flow_run_start(flow, true);
    struct write_op *op = expect_write(WRITE_EXTEND);
    ck_assert_int_eq(world.request_count, 0);
    world.write_count = 0;
    op->on_written(op, WRITE_DONE, "");
    expect_request(0, "/v1/users/user-0/card-eligibility");
    answer(0, 200, ELIGIBLE);
    refuse_create(1);
}
END_TEST

/* ---- a machine that was suspended ---- */

#define SLEPT_US (86400 * INT64_C(1000000))

START_TEST(no_create_leaves_when_the_machine_slept_after_the_claim)
{
    struct flow *flow = &world.flow;
    flow_run_start(flow, true);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    answer(0, 200, ELIGIBLE);
    clock_advance(SLEPT_US); /* before the answer is read */
    run_until(world.write_count > 0 || world.request_count > 1);
    ck_assert_int_eq(world.request_count, 1);
    struct write_op *op = expect_write(WRITE_EXTEND); /* its deadline is the end of the lease, which is over */
    ck_assert_int_lt(op->deadline_ms, clock_mono_ms());
    world.write_count = 0;
    op->on_written(op, WRITE_FENCED, "");
    expect_dropped(1);
    clock_release();
}
END_TEST

START_TEST(no_create_leaves_when_the_machine_slept_while_the_call_was_queued)
{
    struct flow *flow = &world.flow;
    struct target_ticket blocker = {.on_admitted = NULL};
    ck_assert_int_eq(target_enter(&world.peers.issuer.target, &blocker), TARGET_ADMITTED);
    flow_run_start(flow, true);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    answer(0, 200, ELIGIBLE);
    run_until(flow->step == STEP_ISSUE && flow->wait == FLOW_WAIT_TURN);
    clock_advance(SLEPT_US);
    target_leave(&world.peers.issuer.target, &blocker, BREAKER_GOOD, NULL, -1);
    run_until(world.write_count > 0 || world.request_count > 1);
    ck_assert_int_eq(world.request_count, 1);
    struct write_op *op = expect_write(WRITE_EXTEND);
    world.write_count = 0;
    op->on_written(op, WRITE_FENCED, "");
    expect_dropped(1);
    clock_release();
}
END_TEST

START_TEST(an_attempt_that_may_not_call_is_given_back)
{
    world.env.is_draining = _i == 0;
    if (_i == 1)
        world.peers.issuer.target.breaker.state = BREAKER_HALF_OPEN;
    flow_run_start(&world.flow, true);
    ck_assert(expect_write(WRITE_END)->end->give_back);
    expect_end(OUTBOX_PENDING, _i == 0 ? "drain" : "breaker_open");
    ck_assert_int_eq(world.request_count, 0);
}
END_TEST

/* ---- peers that are away or rest ---- */

START_TEST(an_event_that_failed_a_probe_comes_back_after_the_next_probe)
{
    struct flow *flow = &world.flow;
    struct breaker *breaker = &world.peers.core.target.breaker;
    breaker->state = BREAKER_OPEN;
    breaker->probe_at_ms = 0;
    breaker->probe_interval_ms = 4 * SECOND;
    start_and_expect_check(flow);
    answer(0, 503, "{}");
    const struct write_end *end = expect_write(WRITE_END)->end;
    ck_assert_int_eq(breaker->state, BREAKER_OPEN);
    ck_assert(end->give_back);
    ck_assert_int_gt(clock_mono_ms() + end->delay_ms, breaker->probe_at_ms);
}
END_TEST

START_TEST(core_api_is_not_called_while_the_issuer_rests)
{
    struct flow *flow = &world.flow;
    world.peers.issuer.target.rest_until_ms = clock_mono_ms() + 60 * SECOND;
    flow_run_start(flow, true);
    const struct write_end *end = expect_write(WRITE_END)->end;
    ck_assert(end->give_back);
    ck_assert_int_ge(end->delay_ms, 50 * SECOND);
    expect_end(OUTBOX_PENDING, "target_resting");
    ck_assert_int_eq(world.request_count, 0);
}
END_TEST

START_TEST(core_api_is_not_called_while_the_issuer_is_paused)
{
    target_set_paused(&world.peers.issuer.target, true);
    flow_run_start(&world.flow, true);
    ck_assert(expect_write(WRITE_END)->end->give_back);
    expect_end(OUTBOX_PENDING, "target_paused");
    ck_assert_int_eq(world.request_count, 0);
}
END_TEST

/* The operator pauses the issuer while core-api answers, while the call waits in the queue, or while the lease of the
 * admitted call is extended: no create leaves, and no attempt is used up. */
START_TEST(a_pause_holds_back_a_create_at_the_last_moment)
{
    struct flow *flow = &world.flow;
    struct target *issuer = &world.peers.issuer.target;
    struct target_ticket blocker = {.on_admitted = NULL};
    start_and_expect_check(flow);
    if (_i > 0)
        ck_assert_int_eq(target_enter(issuer, &blocker), TARGET_ADMITTED);
    else
        target_set_paused(issuer, true);
    answer(0, 200, ELIGIBLE);
    if (_i > 0)
        run_until(flow->wait == FLOW_WAIT_TURN);
    if (_i == 1)
        target_set_paused(issuer, true);
    if (_i == 2) {
        flow->lease_until_ms = clock_mono_ms() + SECOND;
        target_leave(issuer, &blocker, BREAKER_GOOD, NULL, -1);
        struct write_op *op = expect_write(WRITE_EXTEND);
        world.write_count = 0;
        target_set_paused(issuer, true);
        op->on_written(op, WRITE_DONE, "");
    }
    ck_assert(expect_write(WRITE_END)->end->give_back);
    expect_end(OUTBOX_PENDING, "target_paused");
    ck_assert_int_eq(world.request_count, 1);
    if (_i == 1)
        target_leave(issuer, &blocker, BREAKER_GOOD, NULL, -1);
    ck_assert_int_eq(issuer->breaker.in_flight, 0);
}
END_TEST

/* The waits of an attempt are visible: one at a time, each for what is in flight. */
START_TEST(an_attempt_shows_what_it_waits_for)
{
    struct flow *flow = &world.flow;
    struct target_ticket blocker = {.on_admitted = NULL};
    ck_assert_int_eq(flow->wait, FLOW_WAIT_NONE);
    flow->lease_until_ms = clock_mono_ms() + SECOND;
    ck_assert_int_eq(target_enter(&world.peers.core.target, &blocker), TARGET_ADMITTED);
    flow_run_start(flow, true);
    ck_assert_int_eq(flow->wait, FLOW_WAIT_LEASE);
    struct write_op *op = expect_write(WRITE_EXTEND);
    world.write_count = 0;
    op->on_written(op, WRITE_DONE, "");
    ck_assert_int_eq(flow->wait, FLOW_WAIT_TURN);
    target_leave(&world.peers.core.target, &blocker, BREAKER_GOOD, NULL, -1);
    ck_assert_int_eq(flow->wait, FLOW_WAIT_CALL);
    expect_request(0, "/v1/users/user-0/card-eligibility");
    answer(0, 200, INELIGIBLE);
    run_until(world.write_count == 1);
    ck_assert_int_eq(flow->wait, FLOW_WAIT_END);
    expect_end(OUTBOX_REJECTED, "blocked");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("flow_run");
    TCase *tcase = tcase_create("attempt");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_create_follows_when_core_api_agrees);
    tcase_add_loop_test(tcase, a_lease_that_is_lost_after_a_create_is_reported, 0, 2);
    tcase_add_loop_test(tcase, an_answer_of_core_api_ends_the_attempt, 0, ARRAY_SIZE(answers));
    tcase_add_test(tcase, a_payload_that_cannot_be_read_ends_the_event_without_a_call);
    tcase_add_test(tcase, an_attempt_too_many_ends_the_event_without_a_call);
    tcase_add_loop_test(tcase, an_attempt_goes_on_at_the_step_that_the_row_shows, 0, ARRAY_SIZE(others));
    tcase_add_test(tcase, a_longer_lease_is_written_before_a_call_that_could_outlast_it);
    tcase_add_loop_test(tcase, an_attempt_that_may_not_call_is_given_back, 0, 2);
    tcase_add_test(tcase, no_create_leaves_when_the_machine_slept_after_the_claim);
    tcase_add_test(tcase, no_create_leaves_when_the_machine_slept_while_the_call_was_queued);
    tcase_add_test(tcase, an_event_that_failed_a_probe_comes_back_after_the_next_probe);
    tcase_add_test(tcase, core_api_is_not_called_while_the_issuer_rests);
    tcase_add_test(tcase, core_api_is_not_called_while_the_issuer_is_paused);
    tcase_add_loop_test(tcase, a_pause_holds_back_a_create_at_the_last_moment, 0, 3);
    tcase_add_test(tcase, an_attempt_shows_what_it_waits_for);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
