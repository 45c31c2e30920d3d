/* issuing-api: accepts card requests over HTTP. Talks to PostgreSQL only; never to the issuer or core-api.
 *
 * Table of contents: options, loop, database, rooms, listeners; then the loop; then the drain in the opposite order. */
#include "api/api.h"
#include "common/daemon.h"
#include "common/log.h"

#define PIPELINE 32
#define WAITING_MAX 20000

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
    int open_rooms;
};

static void on_scrape(void *context)
{
    struct program *program = context;
    metric_set(metrics_series(program->api.metrics, API_METRIC_WAITING, NULL, NULL),
               waiters_count(program->api.waiters));
    metric_set(metrics_series(program->api.metrics, API_METRIC_CONNECTIONS, NULL, NULL),
               http_server_connections(program->api.server));
}

static void on_reload(void *context)
{
    struct program *program = context;
    api_reload(&program->api);
}

/* ---- the way out: connections drained -> server, rooms, listener -> daemon ---- */

static void on_stop(void *context)
{
    struct program *program = context;
    waiters_stop(program->api.waiters);
    http_server_drain(program->api.server);
}

static bool is_idle(void *context)
{
    struct program *program = context;
    return api_is_idle(&program->api) && http_server_is_drained(program->api.server);
}

static void on_late(void *context)
{
    struct program *program = context;
    acceptor_abandon(program->api.acceptor);
}

static void on_room_closed(void *context)
{
    struct program *program = context;
    if (--program->open_rooms == 0)
        daemon_close(&program->daemon);
}

static void on_drained(void *context)
{
    struct program *program = context;
    program->open_rooms = 2;
    http_server_close(program->api.server, on_room_closed, program);
    api_close(&program->api, on_room_closed, program);
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
    struct daemon *daemon = &program->daemon;
    api->config = config;
    api->loop = &program->loop;
    api->metrics = metrics_new(families, ARRAY_SIZE(families));
    if (!api->metrics)
        return err_set(err, ERR_MEMORY, "no memory for the metrics");
    *daemon = (struct daemon){
        .loop = &program->loop,
        .name = "issuing-api",
        .config = config,
        .metrics = api->metrics,
        .lag_metric = API_METRIC_LOOP_LAG,
        .build_metric = API_METRIC_BUILD_INFO,
        .db_errors_metric = API_METRIC_DB_ERRORS,
        .admin_listen = config->api.admin_listen,
        .pipeline = PIPELINE,
        .waiting_max = WAITING_MAX,
        .on_scrape = on_scrape,
        .on_reload = on_reload,
        .on_stop = on_stop,
        .is_idle = is_idle,
        .on_drained = on_drained,
        .on_late = on_late,
        .context = program,
    };
    if (!daemon_open(daemon, err))
        return false;
    api->pool = daemon->pool;
    return api_open(api, err) && listen_for_clients(program, err) && daemon_start(daemon, err);
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
    bool is_clean = daemon_run(&program.loop);
    metrics_free(program.api.metrics);
    config_done(&program.config);
    log_info("stopped");
    return is_clean ? 0 : 1;
}
