/* See worker.h. */
#include "worker/worker.h"

#include <assert.h>
#include <stdlib.h>

#include "common/core/issuer/create_members.h"
#include "common/core/keyring.h"
#include "common/lib/base/closing.h"
#include "common/lib/pg/wakeup.h"
#include "statements.h"
#include "worker/base/db_clock.h"
#include "worker/base/job.h"
#include "worker/base/worker_metrics.h"
#include "worker/base/writer.h"
#include "worker/flow/claims.h"
#include "worker/flow/flow.h"
#include "worker/flow/slots.h"
#include "worker/peers/peer.h"
#include "worker/questions/issuer_check.h"
#include "worker/questions/issuer_listing.h"
#include "worker/questions/lost_creates.h"
#include "worker/questions/reconcile.h"
#include "worker/route/route.h"
#include "worker/upkeep/heartbeat.h"
#include "worker/upkeep/housekeeping.h"
#include "worker/upkeep/statistics.h"
#include "worker/watch.h"
#include "worker/worker_files.h"

struct worker {
    struct worker_options options;
    struct peers peers;
    struct routes routes;
    struct worker_series series;
    struct db_clock db_clock;
    struct parameters_env parameters;
    struct jobs jobs;
    struct worker_env env;
    struct create_members *members; /* NULL = none are configured */
    struct flow_env flow_env;       /* owns the keyring */
    struct slots slots;
    struct writer *writer;
    struct claims *claims;
    struct statistics *statistics;
    struct lost_creates *lost_creates;
    struct reconcile *reconcile;
    struct issuer_check *issuer_check;
    struct issuer_listing *issuer_listing;
    struct heartbeat *heartbeat;
    struct wakeup final_wakeup; /* for the api, whose clients wait for final events */
    struct closing closing;
};

/* ---- what the modules report ---- */

static void on_capacity_changed(void *context)
{
    struct worker *worker = context;
    claims_capacity_changed(worker->claims);
    if (worker->heartbeat) /* it is opened last, and pauses the targets */
        heartbeat_target_changed(worker->heartbeat);
}

static void on_flow_ended(void *context, struct flow *flow)
{
    struct worker *worker = context;
    slots_give_back(&worker->slots, flow);
    claims_event_ended(worker->claims, flow->share);
}

static void on_create_lost(void *context, const struct uuid *event_id)
{
    struct worker *worker = context;
    lost_creates_add(worker->lost_creates, event_id);
}

static void submit_write(void *context, struct write_op *op)
{
    struct worker *worker = context;
    writer_submit(worker->writer, op);
}

static void on_final(void *context)
{
    struct worker *worker = context;
    wakeup_send(&worker->final_wakeup);
}

static void on_mark_result(void *context)
{
    struct worker *worker = context;
    wakeup_send(&worker->final_wakeup);
    claims_wake(worker->claims, NULL); /* an event may be PENDING now */
}

static void on_control_obeyed(void *context)
{
    struct worker *worker = context;
    claims_wake(worker->claims, NULL);
}

/* Besides the jobs. */
static bool is_rest_idle(void *context)
{
    const struct worker *worker = context;
    return worker->slots.in_flight == 0 && claims_are_idle(worker->claims) && wakeup_is_idle(&worker->final_wakeup);
}

/* ---- open ---- */

static struct worker_files files_of(struct worker *worker)
{
    const struct worker_options *options = &worker->options;
    return (struct worker_files){
        .config = options->config,
        .http = options->http,
        .peers = &worker->peers,
        .routes = &worker->routes,
        .keyring = &worker->flow_env.keyring,
    };
}

/* The profile, and what is the same for every user. */
static bool read_profile(struct worker *worker, struct err *err)
{
    const struct config *config = worker->options.config;
    worker->parameters.profile = issuer_profile_of(config);
    if (!worker->parameters.profile)
        return err_set(err, ERR_CONFIG, "issuer.profile \"%.40s\" is unknown", config->issuer.profile);
    if (!issuer_url_check(worker->parameters.profile, config->issuer.url, err) ||
        !create_members_open(worker->parameters.profile, config, &worker->members, err))
        return false;
    worker->parameters.profile = create_members_profile(worker->members, worker->parameters.profile);
    if (!issuer_parameters_parse(worker->parameters.profile, config->issuer.parameters, &worker->parameters.fixed, err))
        return false;
    create_members_fill(worker->members, &worker->parameters.fixed);
    return true;
}

static bool open_peers(struct worker *worker, struct err *err)
{
    const struct worker_options *options = &worker->options;
    struct peers_options peers = {
        .loop = options->loop,
        .config = options->config,
        .http = options->http,
        .issuer_credential = &worker->parameters.profile->credential,
        .metrics = options->metrics,
        .on_capacity_changed = on_capacity_changed,
        .context = worker,
    };
    peers_open(&worker->peers, &peers);
    return routes_open(&worker->routes, &peers, err);
}

static bool open_slots(struct worker *worker, struct err *err)
{
    struct flow_env *env = &worker->flow_env;
    env->worker = &worker->env;
    env->submit_write = submit_write;
    env->on_ended = on_flow_ended;
    env->on_create_lost = on_create_lost;
    env->context = worker;
    return slots_init(&worker->slots, (int)worker->options.config->worker.max_in_flight, claims_types(&worker->routes),
                      env, err);
}

static bool open_questions(struct worker *worker, struct err *err)
{
    const struct worker_env *env = &worker->env;
    return lost_creates_open(env, &worker->lost_creates, err) &&
           reconcile_open(env, on_mark_result, worker, &worker->reconcile, err) &&
           issuer_check_open(env, &worker->issuer_check, err) && issuer_listing_open(env, &worker->issuer_listing, err);
}

/* Precondition: those that it wakes are open. */
static bool open_watch(struct worker *worker, struct err *err)
{
    struct watch_options watch = {
        .claims = worker->claims,
        .reconcile = worker->reconcile,
        .statistics = worker->statistics,
        .issuer_check = worker->issuer_check,
        .issuer_listing = worker->issuer_listing,
    };
    return watch_open(&watch, &worker->env, err);
}

/* Precondition: the claims are open, which hear of the targets. */
static bool open_heartbeat(struct worker *worker, struct err *err)
{
    struct heartbeat_options heartbeat = {
        .version = ISSUING_VERSION,
        .slots = &worker->slots,
        .on_obeyed = on_control_obeyed,
        .is_rest_idle = is_rest_idle,
        .context = worker,
    };
    return heartbeat_open(&heartbeat, &worker->env, &worker->heartbeat, err);
}

bool worker_check(const struct worker_options *options, struct err *err)
{
    static struct worker worker;
    worker.options = *options;
    struct worker_files files = files_of(&worker);
    return read_profile(&worker, err) && open_peers(&worker, err) &&
           worker_files_load(&files, options->may_lack_files_of_routes, err);
}

static bool open_modules(struct worker *worker, struct err *err)
{
    const struct worker_env *env = &worker->env;
    return wakeup_open(&worker->final_wakeup, env->loop, env->pool, &sql_notify_final, err) &&
           open_slots(worker, err) && writer_open(env, on_final, worker, &worker->writer, err) &&
           claims_open(env, &worker->slots, &worker->claims, err) && housekeeping_open(env, err) &&
           statistics_open(env, &worker->statistics, err) && open_questions(worker, err) && open_watch(worker, err) &&
           open_heartbeat(worker, err);
}

static void set_env(struct worker *worker)
{
    const struct worker_options *options = &worker->options;
    worker_series_open(&worker->series, options->metrics);
    worker->env = (struct worker_env){
        .loop = options->loop,
        .pool = options->pool,
        .config = options->config,
        .name = options->name,
        .peers = &worker->peers,
        .routes = &worker->routes,
        .parameters = &worker->parameters,
        .series = &worker->series,
        .db_clock = &worker->db_clock,
        .exporter = options->exporter,
        .jobs = &worker->jobs,
    };
}

static void close_modules(struct worker *worker, void (*on_closed)(void *context), void *context);

bool worker_open(const struct worker_options *options, struct worker **ret_worker, struct err *err)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    if (!worker)
        return err_set(err, ERR_MEMORY, "no memory for the worker");
    worker->options = *options;
    set_env(worker);
    if (!read_profile(worker, err)) {
        free(worker);
        return false;
    }
    struct worker_files files = files_of(worker);
    if (!open_peers(worker, err) || !worker_files_load(&files, options->may_lack_files_of_routes, err) ||
        !open_modules(worker, err)) {
        close_modules(worker, NULL, NULL); /* none of them has begun: the loop has not turned */
        return false;
    }
    *ret_worker = worker;
    return true;
}

/* ---- run ---- */

void worker_reload(struct worker *worker)
{
    struct worker_files files = files_of(worker);
    worker_files_reload(&files);
}

void worker_wake(struct worker *worker, const char *type)
{
    claims_wake(worker->claims, type);
    if (!type || type[0] == '\0')
        heartbeat_wake(worker->heartbeat);
}

int worker_in_flight(const struct worker *worker)
{
    return worker->slots.in_flight;
}

void worker_update_metrics(struct worker *worker)
{
    metric_set(metrics_series(worker->options.metrics, WORKER_METRIC_IN_FLIGHT, NULL, NULL), worker->slots.in_flight);
    peers_update_metrics(&worker->peers);
    routes_update_metrics(&worker->routes);
}

/* ---- drain, close ---- */

bool worker_is_idle(const struct worker *worker)
{
    return jobs_are_idle(&worker->jobs, NULL);
}

void worker_drain(struct worker *worker)
{
    worker->flow_env.is_draining = true;
    claims_stop(worker->claims);
    jobs_stop(&worker->jobs);
}

static void release(void *module)
{
    struct worker *worker = module;
    jobs_free(&worker->jobs);
    slots_done(&worker->slots);
    keyring_free(worker->flow_env.keyring);
    create_members_close(worker->members);
    free(worker);
}

/* Those that are open. */
static void close_modules(struct worker *worker, void (*on_closed)(void *context), void *context)
{
    struct closing *closing = &worker->closing;
    closing_start(closing, release, worker, on_closed, context);
    wakeup_close(&worker->final_wakeup);
    peers_close(&worker->peers, closing_part_closed, closing_part(closing));
    routes_close(&worker->routes, closing_part_closed, closing_part(closing));
    if (worker->writer)
        writer_close(worker->writer, closing_part_closed, closing_part(closing));
    if (worker->claims)
        claims_close(worker->claims, closing_part_closed, closing_part(closing));
    jobs_close(&worker->jobs, closing);
    closing_end(closing);
}

void worker_close(struct worker *worker, void (*on_closed)(void *context), void *context)
{
    assert(worker_is_idle(worker));
    close_modules(worker, on_closed, context);
}
