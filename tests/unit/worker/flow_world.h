/* One attempt, a peer of ours on a real socket that plays the issuer, core-api and the receiver of a route, and the
 * writes of the attempt, which go to the test. What the tests of flow_run.c share. */
#ifndef ISSUING_FLOW_WORLD_H
#define ISSUING_FLOW_WORLD_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_server/http_server.h"
#include "tests/support/stuck.h"
#include "worker/base/worker_metrics.h"
#include "worker/flow/flow_run.h"

#define SECOND INT64_C(1000)
#define HOUR (3600 * SECOND)

enum { REQUESTS = 8, WRITES = 8 };
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
    struct routes routes; /* one, of the type PAYMENT_CHARGE */
    struct db_clock db_clock;
    struct parameters_env parameters;
    struct worker_env worker;
    struct flow_env env;
    struct flow flow;
    struct write_op *writes[WRITES];
    int write_count;
    int ended;    /* attempts */
    int reported; /* events that should be looked up */
    int open;
    char url[64], route_url[80], lookup_url[80];
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
    ck_assert(uuid_equal(event_id, &world.flow.attempt.event_id));
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
        int64_t until_ms = clock_mono_ms() + stuck_after_ms();                       \
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
    snprintf(world.url, sizeof(world.url), "http://127.0.0.1:%d", http_server_port(world.server));
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
    ck_assert(routes_open(&world.routes, &peers, NULL));
}

static void configure_route(struct config_route *route)
{
    static char post[] = "POST";
    snprintf(world.route_url, sizeof(world.route_url), "%s/charges", world.url);
    snprintf(world.lookup_url, sizeof(world.lookup_url), "%s/charges/{id}", world.url);
    *route = (struct config_route){
        .type = "PAYMENT_CHARGE",
        .url = world.route_url,
        .method = post,
        .timeout_ms = 3 * SECOND,
        .key_lifetime_ms = 24 * HOUR,
        .max_concurrency = 1,
        .max_attempts = 10,
        .lookup_url = world.lookup_url,
        .keep_result = true,
    };
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
    configure_route(&config->routes[0]);
    config->route_count = 1;
    world.db_clock = (struct db_clock){.is_known = true}; /* steady since long */
    world.metrics = worker_metrics_new();
    worker_series_open(&world.series, world.metrics);
    open_peers();
    world.parameters.profile = &issuer_generic;
    world.worker = (struct worker_env){
        .config = config,
        .parameters = &world.parameters,
        .peers = &world.peers,
        .routes = &world.routes,
        .db_clock = &world.db_clock,
        .series = &world.series,
    };
    world.env = (struct flow_env){
        .worker = &world.worker,
        .submit_write = submit_write,
        .on_ended = on_ended,
        .on_create_lost = on_create_lost,
    };
    struct flow *flow = &world.flow;
    flow_init(flow, &world.env);
    flow->attempt.event_id = uuid7_make();
    uuid_format(&flow->attempt.event_id, flow->event_text);
    snprintf(flow->user_id, sizeof(flow->user_id), "user-0");
    flow->attempt.number = 1;
    flow->attempt.sent_age_ms = flow->attempt.deferred_age_ms = flow->attempt.settle_age_ms = -1;
    flow->attempt.claimed_ms = clock_mono_ms();
    flow->lease_until_ms = flow->attempt.claimed_ms + config->worker.lease_ms;
}

static void on_closed(void *context)
{
    (void)context;
    world.open--;
}

static void tear_down(void)
{
    world.open = 4;
    peers_close(&world.peers, on_closed, NULL);
    routes_close(&world.routes, on_closed, NULL);
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

__attribute__((unused)) static void expect_request(int number, const char *path)
{
    run_until(world.request_count > number);
    ck_assert_int_eq(world.request_count, number + 1);
    struct slice got = world.requests[number]->path;
    ck_assert_msg(got.length == strlen(path) && memcmp(got.bytes, path, got.length) == 0, "%.*s", (int)got.length,
                  (const char *)got.bytes);
}

static struct write_op *expect_write(enum write_kind kind)
{
    run_until(world.write_count == 1);
    ck_assert_int_eq(world.writes[0]->kind, kind);
    return world.writes[0];
}

__attribute__((unused)) static void expect_end(enum outbox_status status, const char *code)
{
    struct write_op *op = expect_write(status == OUTBOX_COMPLETED ? WRITE_COMPLETE : WRITE_END);
    ck_assert_int_eq(op->end->status, status);
    ck_assert_str_eq(op->end->reason_code[0] ? op->end->reason_code : op->end->cause, code);
    ck_assert_int_eq(world.ended, 0);
    op->on_written(op, WRITE_DONE, "");
    ck_assert_int_eq(world.ended, 1);
}

#endif
