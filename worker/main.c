/* issuing-worker: takes PENDING events, checks them with core-api, calls the issuer, stores and links the card; events
 * of other types are delivered by their routes. Any number may run.
 *
 * The order: options, loop, database, HTTP client, worker, admin listener (daemon_main()); then the loop; then the
 * drain in the opposite order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/daemon.h"
#include "common/core/issuer/issuer.h"
#include "common/core/outbox.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/log.h"
#include "common/lib/http_client/http_client.h"
#include "common/lib/pg/pg_listen.h"
#include "worker/base/worker_metrics.h"
#include "worker/peers/breaker.h"
#include "worker/worker.h"
#include "worker/worker_status.h"

#define PIPELINE 8
#define WAITING_MAX 10000
#define RETIRE_POLL_MS 20

/* A worker with the configuration that it was opened with. */
struct generation {
    char name[96];         /* host:pid, after a reload of the routes host:pid.2 and so on, as in lease_owner */
    struct config config;  /* its texts belong to the daemon's, or to program.retired */
    struct worker *worker; /* NULL = closed, or being closed */
};

/* Routes that change are taken up by a new worker, while the old one drains beside it. */
struct program {
    struct daemon daemon;
    struct http_client *http;
    struct generation generations[2];
    struct generation *now;
    int number;            /* of generations so far */
    struct config retired; /* has the routes of the worker that drains */
    bool is_retiring;      /* one drains or is being closed */
    uv_timer_t retire;
    struct pg_listen *listen;
    struct worker_status status;
};

static struct generation *other_of(struct program *program)
{
    return &program->generations[program->now == &program->generations[0]];
}

static int in_flight(struct program *program)
{
    const struct worker *other = other_of(program)->worker;
    return worker_in_flight(program->now->worker) + (other ? worker_in_flight(other) : 0);
}

static void on_scrape(void *context)
{
    struct program *program = context;
    worker_update_metrics(program->now->worker);
}

static void describe(void *context, char ret_text[DAEMON_STATUS_SIZE])
{
    struct program *program = context;
    struct worker_status *status = &program->status;
    int64_t now_us = clock_wall_us();
    status->in_flight = in_flight(program);
    /* While the database is away the last count says nothing of now. */
    status->knows_backlog =
        pg_pool_ready(program->daemon.places[0].pool) &&
        outbox_gauges_backlog(program->daemon.places[0].gauges, &status->pending, &status->oldest_ms);
    worker_update_metrics(program->now->worker);
    for (size_t i = 0; i < ARRAY_SIZE(status->targets) && status->targets[i].name; i++) {
        const struct metric_series *breaker =
            metrics_series(program->daemon.metrics, DAEMON_METRIC_BREAKER_STATE, status->targets[i].name, NULL);
        worker_status_note(&status->targets[i], metric_value(breaker) == BREAKER_CLOSED, now_us);
    }
    worker_status_line(status, now_us, ret_text, DAEMON_STATUS_SIZE);
}

/* The api accepted a request, a service inserted events of a type, or it begins to listen. */
static void on_wakeup(void *context, const char *payload)
{
    struct program *program = context;
    worker_wake(program->now->worker, payload);
}

static void on_database_ready(void *context, int place)
{
    (void)place; /* it works in one */
    on_wakeup(context, NULL);
}

static void on_reload(void *context)
{
    struct program *program = context;
    worker_reload(program->now->worker);
}

/* ---- routes that change ---- */

static bool open_generation(struct program *program, struct generation *generation, struct err *err);
static void name_targets(struct program *program);

static void on_retired(void *context)
{
    struct program *program = context;
    config_done(&program->retired);
    program->is_retiring = false;
    log_info("the old routes are gone");
}

static void on_retire_timer(uv_timer_t *timer)
{
    struct program *program = container_of(timer, struct program, retire);
    struct generation *old = other_of(program);
    if (!worker_is_idle(old->worker))
        return;
    uv_timer_stop(timer);
    worker_close(old->worker, on_retired, program);
    old->worker = NULL;
}

static bool may_reload(void *context)
{
    const struct program *program = context;
    return !program->is_retiring;
}

static bool on_routes(void *context, struct config *retired, struct err *err)
{
    struct program *program = context;
    struct generation *old = program->now, *fresh = other_of(program);
    if (!open_generation(program, fresh, err))
        return false;
    program->now = fresh;
    program->retired = *retired;
    program->is_retiring = true;
    name_targets(program);
    worker_drain(old->worker);
    uv_timer_start(&program->retire, on_retire_timer, RETIRE_POLL_MS, RETIRE_POLL_MS);
    return true;
}

/* ---- stopping: worker drained -> worker, HTTP client, listener -> daemon ---- */

static void on_stop(void *context)
{
    struct program *program = context;
    worker_drain(program->now->worker);
}

static bool is_idle(void *context)
{
    struct program *program = context;
    return !program->is_retiring && worker_is_idle(program->now->worker);
}

static void on_late(void *context)
{
    struct program *program = context;
    log_warning("leases will run out", LOG_NUMBER("in_flight", in_flight(program)));
}

static void close_modules(void *context, struct closing *closing)
{
    struct program *program = context;
    closing_handle(closing, &program->retire);
    worker_close(program->now->worker, closing_part_closed, closing_part(closing));
    http_client_close(program->http, closing_part_closed, closing_part(closing));
    pg_listen_close(program->listen, closing_part_closed, closing_part(closing));
}

/* ---- starting ---- */

static void set_name(struct program *program, struct generation *generation)
{
    char host[64] = "host", suffix[16] = "";
    (void)gethostname(host, sizeof(host) - 1); /* ignoring: the name is for people */
    if (program->number++ > 0)
        snprintf(suffix, sizeof(suffix), ".%d", program->number);
    snprintf(generation->name, sizeof(generation->name), "%s:%ld%s", host, (long)getpid(), suffix);
}

static void name_targets(struct program *program)
{
    const struct config *config = &program->daemon.config;
    struct worker_status_target *targets = program->status.targets;
    memset(targets, 0, sizeof(program->status.targets));
    targets[0].name = "issuer";
    targets[1].name = "core";
    for (int i = 0; i < config->route_count; i++)
        targets[2 + i].name = config->routes[i].type;
}

static bool open_http(struct program *program, struct err *err)
{
    const struct config *config = &program->daemon.config;
    int64_t calls_max = config->issuer.max_concurrency + config->core.max_concurrency;
    for (int i = 0; i < config->route_count; i++)
        calls_max += config->routes[i].max_concurrency;
    struct http_client_options options = {
        .connections_max = (int)calls_max,
        .answer_max = ISSUER_LOOKUP_ANSWER_MAX, /* the largest; each call has its own */
    };
    return http_client_open(&program->daemon.loop, &options, &program->http, err);
}

static bool open_generation(struct program *program, struct generation *generation, struct err *err)
{
    bool is_first = program->number == 0;
    struct worker_options options = {
        .loop = &program->daemon.loop,
        .config = &generation->config,
        .name = generation->name,
        .pool = program->daemon.places[0].pool,
        .http = program->http,
        .metrics = program->daemon.metrics,
        .exporter = program->daemon.exporter,
        .may_lack_files_of_routes = is_first, /* later the old routes stay in force */
    };
    set_name(program, generation);
    generation->config = program->daemon.config;
    return worker_open(&options, &generation->worker, err);
}

static bool open_modules(void *context, struct err *err)
{
    struct program *program = context;
    struct daemon *daemon = &program->daemon;
    program->now = &program->generations[0];
    name_targets(program);
    uv_timer_init(&daemon->loop, &program->retire);
    return open_http(program, err) && open_generation(program, program->now, err) &&
           pg_listen_open(&daemon->loop, daemon->places[0].url, OUTBOX_WAKE_CHANNEL, on_wakeup, program,
                          &program->listen, err);
}

/* The unit passes on what is in /etc/credstore and does not report what is missing there; the peer's 401 would be the
 * first sign of it. A client certificate is a credential too. */
static void warn_of_missing_credential(const char *peer, const char *file, const char *certificate_file)
{
    char name[64];
    snprintf(name, sizeof(name), "%s_credential", peer);
    if (getenv("CREDENTIALS_DIRECTORY") && !file && !certificate_file)
        log_warning("there is no credential for a peer: calls carry none", LOG_TEXT("target", peer),
                    LOG_TEXT("missing", name));
}

static void warn_of_missing_credentials(const struct config *config)
{
    if (issuer_profile_find(config->issuer.profile) != &issuer_generic && !config->issuer.credential_file)
        log_warning("there is no credential for the issuer: a vendor refuses calls that carry none; only a proxy in "
                    "between could add it",
                    LOG_TEXT("profile", config->issuer.profile), LOG_TEXT("missing", "issuer.credential_file"));
    else
        warn_of_missing_credential("issuer", config->issuer.credential_file, config->issuer.client_cert_file);
    warn_of_missing_credential("core", config->core.credential_file, config->core.client_cert_file);
}

/* Checks that the table of options cannot make: the issuer's profile, the named files, and that vendors want a
 * credential. */
static bool check_more(const struct config *config, struct err *err)
{
    struct http_client_options http = {.connections_max = 1, .answer_max = ISSUER_LOOKUP_ANSWER_MAX};
    struct worker_options options = {
        .loop = uv_default_loop(), .config = config, .name = "", .metrics = worker_metrics_new()};
    warn_of_missing_credentials(config);
    if (!options.metrics)
        return err_set(err, ERR_MEMORY, "no memory for the metrics");
    return http_client_open(options.loop, &http, &options.http, err) && worker_check(&options, err);
}

static void on_started(void *context)
{
    struct program *program = context;
    const struct config *config = &program->daemon.config;
    warn_of_missing_credentials(config);
    log_info("started", LOG_TEXT("worker", program->now->name), LOG_TEXT("admin", config->worker.admin_listen),
             LOG_TEXT("issuer", config->issuer.url), LOG_TEXT("core", config->core.url),
             LOG_NUMBER("routes", config->route_count), LOG_NUMBER("max_in_flight", config->worker.max_in_flight));
}

int main(int argc, char **argv)
{
    static struct program program;
    program.daemon = (struct daemon){
        .name = "issuing-worker",
        .program = CONFIG_WORKER,
        .new_metrics = worker_metrics_new,
        .pipeline = PIPELINE,
        .waiting_max = WAITING_MAX,
        .check_more = check_more,
        .open = open_modules,
        .on_started = on_started,
        .on_database_ready = on_database_ready,
        .on_scrape = on_scrape,
        .on_reload = on_reload,
        .on_routes = on_routes,
        .may_reload = may_reload,
        .on_stop = on_stop,
        .is_idle = is_idle,
        .close = close_modules,
        .on_late = on_late,
        .describe = describe,
        .context = &program,
    };
    return daemon_main(&program.daemon, argc, argv);
}
