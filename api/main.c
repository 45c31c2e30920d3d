/* issuing-api: accepts card requests over HTTP. Talks to PostgreSQL only; never to the issuer or core-api.
 *
 * Table of contents: options, loop, database, rooms, listeners; then the loop; then the drain in the opposite order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/log.h"
#include "common/pg_listen.h"
#include "common/schema.h"
#include "common/sd.h"

#define PIPELINE 32
#define WAITING_MAX 20000
#define DRAIN_LOOK_MS 10
#define DRAIN_EXTRA_MS 4000 /* CONTRACT 1: drained within max(timeouts) + 5 s */

static const struct metric_family families[] = {
#define X(id, name, type, help, label1, label2, buckets) {name, type, help, {label1, label2}, buckets},
    API_METRICS(X)
#undef X
};

struct program {
    struct config config;
    uv_loop_t loop;
    struct daemon daemon;
    struct api api;
    struct pg_listen *listen;
    uv_timer_t drain;
    int64_t drain_until_ms;
    int open_rooms;
    char why_not_ready[320];
};

static bool is_ready(void *context, const char **ret_why)
{
    struct program *program = context;
    if (pg_pool_ready(program->api.pool))
        return true;
    *ret_why = program->why_not_ready;
    return false;
}

static void on_pool_state(void *context, bool ready, const char *error_text)
{
    struct program *program = context;
    snprintf(program->why_not_ready, sizeof program->why_not_ready, "%s", ready ? "" : error_text);
    if (ready)
        log_info("database ready");
    else
        log_warning("database away", LOG_TEXT("why", error_text));
    sd_status(ready ? "accepting" : "waiting for the database");
}

static void on_db_error(void *context, const char sqlstate[6])
{
    struct program *program = context;
    char class[3] = {sqlstate[0], sqlstate[1], '\0'};
    metric_add(metrics_series(program->api.metrics, API_METRIC_DB_ERRORS, class, NULL), 1);
}

static void on_scrape(void *context)
{
    struct program *program = context;
    metric_set(metrics_series(program->api.metrics, API_METRIC_WAITING, NULL, NULL),
               waiters_count(program->api.waiters));
    metric_set(metrics_series(program->api.metrics, API_METRIC_CONNECTIONS, NULL, NULL),
               http_server_connections(program->api.server));
}

static void on_final_hint(void *context)
{
    struct program *program = context;
    waiters_hint(program->api.waiters);
}

/* ---- the way out: connections drained -> server, rooms, listener -> pool -> daemon ---- */

static void on_all_closed(void *context)
{
    (void)context; /* the loop has nothing left and ends by itself */
}

static void on_pool_closed(void *context)
{
    struct program *program = context;
    daemon_close(&program->daemon, on_all_closed);
}

static void on_room_closed(void *context)
{
    struct program *program = context;
    if (--program->open_rooms == 0)
        pg_pool_close(program->api.pool, on_pool_closed, program);
}

static void on_drain_closed(uv_handle_t *handle)
{
    (void)handle;
}

static void on_drain_look(uv_timer_t *timer)
{
    struct program *program = container_of(timer, struct program, drain);
    bool is_late = clock_mono_ms() >= program->drain_until_ms;
    if (!api_is_idle(&program->api) || (!http_server_is_drained(program->api.server) && !is_late)) {
        if (!is_late)
            return;
        /* Whatever is still being recorded is one transaction each: it commits or not, and the client's key tells. */
        acceptor_abandon(program->api.acceptor);
        log_error("the drain took too long", LOG_NUMBER("connections", http_server_connections(program->api.server)));
        exit(0);
    }
    uv_close((uv_handle_t *)&program->drain, on_drain_closed);
    program->open_rooms = 3;
    http_server_close(program->api.server, on_room_closed, program);
    api_close(&program->api, on_room_closed, program);
    pg_listen_close(program->listen, on_room_closed, program);
}

static void on_stop(void *context)
{
    struct program *program = context;
    const struct config *config = &program->config;
    int64_t call_ms =
        config->issuer.timeout_ms > config->core.timeout_ms ? config->issuer.timeout_ms : config->core.timeout_ms;
    program->drain_until_ms = clock_mono_ms() + call_ms + DRAIN_EXTRA_MS;
    waiters_stop(program->api.waiters);
    http_server_drain(program->api.server);
    uv_timer_start(&program->drain, on_drain_look, 0, DRAIN_LOOK_MS);
}

/* ---- the way in ---- */

static bool listen_for_clients(struct program *program, struct err *err)
{
    struct http_server_options options;
    http_server_defaults(&options);
    options.listen = program->config.api.listen;
    options.max_connections = (int)program->config.api.max_connections;
    options.on_request = api_on_request;
    options.on_refused = api_on_refused;
    options.context = &program->api;
    return http_server_open(&program->loop, &options, &program->api.server, err);
}

static bool start(struct program *program, struct err *err)
{
    struct config *config = &program->config;
    struct api *api = &program->api;
    api->config = config;
    api->loop = &program->loop;
    api->metrics = metrics_new(families, ARRAY_SIZE(families));
    if (!api->metrics)
        return err_set(err, ERR_MEMORY, "no memory for the metrics");
    struct pg_pool_options pool = {
        .conninfo = config->database.url,
        .application_name = "issuing-api",
        .connections = (int)config->database.connections,
        .pipeline = PIPELINE,
        .waiting_max = WAITING_MAX,
        .schema_least = SCHEMA_LEAST,
        .schema_most = SCHEMA_MOST,
        .on_state = on_pool_state,
        .on_error = on_db_error,
        .context = program,
    };
    snprintf(program->why_not_ready, sizeof program->why_not_ready, "not connected yet");
    uv_timer_init(&program->loop, &program->drain);
    program->daemon = (struct daemon){
        .loop = &program->loop,
        .name = "issuing-api",
        .metrics = api->metrics,
        .lag_metric = API_METRIC_LOOP_LAG,
        .build_metric = API_METRIC_BUILD_INFO,
        .admin_listen = config->api.admin_listen,
        .is_ready = is_ready,
        .on_scrape = on_scrape,
        .on_stop = on_stop,
        .context = program,
    };
    return pg_pool_open(&program->loop, &pool, &api->pool, err) && api_open(api, err) &&
           pg_listen_open(&program->loop, config->database.url, OUTBOX_FINAL_CHANNEL, on_final_hint, program,
                          &program->listen, err) &&
           listen_for_clients(program, err) && daemon_start(&program->daemon, err);
}

int main(int argc, char **argv)
{
    static struct program program;
    int done = daemon_options(&program.config, CONFIG_API, "issuing-api", argc, argv);
    if (done >= 0) {
        config_done(&program.config);
        return done;
    }
    struct err err = {0};
    if (uv_loop_init(&program.loop) != 0)
        return 1;
    if (!start(&program, &err)) {
        log_error("could not start", LOG_TEXT("why", err.message));
        return err_exit_code(err.kind);
    }
    log_info("started", LOG_TEXT("listen", program.config.api.listen),
             LOG_TEXT("admin", program.config.api.admin_listen),
             LOG_NUMBER("port", http_server_port(program.api.server)));
    sd_ready();
    bool is_clean = daemon_end_loop(&program.loop);
    metrics_free(program.api.metrics);
    config_done(&program.config);
    log_info("stopped");
    return is_clean ? 0 : 1;
}
