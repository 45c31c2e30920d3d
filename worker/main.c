/* issuing-worker: takes PENDING events, checks them with core-api, calls the issuer, stores and links the card; events
 * of other types are delivered by their routes. Any number may run.
 *
 * The order: options, loop, database, HTTP client, worker, admin listener (daemon_main()); then the loop; then the
 * drain in the opposite order. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/closing.h"
#include "common/base/log.h"
#include "common/daemon.h"
#include "common/http_client/http_client.h"
#include "common/outbox.h"
#include "common/pg/pg_listen.h"
#include "worker/breaker.h"
#include "common/issuer/issuer.h"
#include "common/issuer/parameters.h"
#include "worker/worker.h"
#include "worker/worker_metrics.h"
#include "worker/worker_status.h"

#define PIPELINE 8
#define WAITING_MAX 10000

struct program {
    struct daemon daemon;
    char name[96]; /* host:pid, as in lease_owner */
    struct http_client *http;
    struct worker *worker;
    struct pg_listen *listen;
    struct worker_status status;
};

static void on_scrape(void *context)
{
    struct program *program = context;
    worker_update_metrics(program->worker);
}

static void describe(void *context, char ret_text[DAEMON_STATUS_SIZE])
{
    struct program *program = context;
    struct worker_status *status = &program->status;
    int64_t now_us = clock_wall_us();
    status->in_flight = worker_in_flight(program->worker);
    /* While the database is away the last count says nothing of now. */
    status->knows_backlog = pg_pool_ready(program->daemon.pool) &&
                            outbox_gauges_backlog(program->daemon.gauges, &status->pending, &status->oldest_ms);
    worker_update_metrics(program->worker);
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
    worker_wake(program->worker, payload);
}

static void on_database_ready(void *context)
{
    on_wakeup(context, NULL);
}

static void on_reload(void *context)
{
    struct program *program = context;
    worker_reload(program->worker);
}

/* ---- stopping: worker drained -> worker, HTTP client, listener -> daemon ---- */

static void on_stop(void *context)
{
    struct program *program = context;
    worker_drain(program->worker);
}

static bool is_idle(void *context)
{
    struct program *program = context;
    return worker_is_idle(program->worker);
}

static void on_late(void *context)
{
    struct program *program = context;
    log_warning("leases will run out", LOG_NUMBER("in_flight", worker_in_flight(program->worker)));
}

static void close_modules(void *context, struct closing *closing)
{
    struct program *program = context;
    worker_close(program->worker, closing_part_closed, closing_part(closing));
    http_client_close(program->http, closing_part_closed, closing_part(closing));
    pg_listen_close(program->listen, closing_part_closed, closing_part(closing));
}

/* ---- starting ---- */

static void set_name(struct program *program)
{
    char host[64] = "host";
    (void)gethostname(host, sizeof(host) - 1); /* ignoring: the name is for people */
    snprintf(program->name, sizeof(program->name), "%s:%ld", host, (long)getpid());
}

static void name_targets(struct program *program)
{
    const struct config *config = &program->daemon.config;
    struct worker_status_target *targets = program->status.targets;
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

static bool open_worker(struct program *program, struct err *err)
{
    struct worker_options options = {
        .loop = &program->daemon.loop,
        .config = &program->daemon.config,
        .name = program->name,
        .pool = program->daemon.pool,
        .http = program->http,
        .metrics = program->daemon.metrics,
    };
    return worker_open(&options, &program->worker, err);
}

static bool open_modules(void *context, struct err *err)
{
    struct program *program = context;
    struct daemon *daemon = &program->daemon;
    set_name(program);
    name_targets(program);
    return open_http(program, err) && open_worker(program, err) &&
           pg_listen_open(&daemon->loop, daemon->config.database.url, OUTBOX_WAKE_CHANNEL, on_wakeup, program,
                          &program->listen, err);
}

/* The unit passes on what is in /etc/credstore and does not report what is missing there; the peer's 401 would be the
 * first sign of it. A client certificate is a credential too. */
static void warn_of_missing_credential(const char *peer, const char *file, const char *certificate_file)
{
    char name[64];
    snprintf(name, sizeof(name), "issuing.%s_credential", peer);
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

/* What the options' table does not know: the parameters of the issuer's profile, and that vendors want a credential. */
static bool check_more(const struct config *config, struct err *err)
{
    struct issuer_parameters parameters;
    warn_of_missing_credentials(config);
    return issuer_parameters_parse(issuer_profile_find(config->issuer.profile), config->issuer.parameters, &parameters,
                                   err);
}

static void on_started(void *context)
{
    struct program *program = context;
    const struct config *config = &program->daemon.config;
    warn_of_missing_credentials(config);
    log_info("started", LOG_TEXT("worker", program->name), LOG_TEXT("admin", config->worker.admin_listen),
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
        .on_stop = on_stop,
        .is_idle = is_idle,
        .close = close_modules,
        .on_late = on_late,
        .describe = describe,
        .context = &program,
    };
    return daemon_main(&program.daemon, argc, argv);
}
