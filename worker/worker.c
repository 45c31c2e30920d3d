/* See worker.h. */
#include "worker/worker.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/sql/statements.h"
#include "worker/claim.h"
#include "worker/reconcile.h"
#include "worker/sweep.h"

#define GOOD_ROOM_MAX 32

static struct worker *the_worker_of(struct target *target)
{
    return strcmp(target->name, "issuer") == 0 ? container_of(target, struct worker, issuer)
                                               : container_of(target, struct worker, core);
}

static void on_wake(uv_timer_t *timer);

static const char *breaker_word(enum breaker_state state)
{
    switch (state) {
    case BREAKER_CLOSED:
        return "closed";
    case BREAKER_HALF_OPEN:
        return "half-open";
    case BREAKER_OPEN:
        return "open";
    }
    return "?";
}

/* The shorter rest of the two, for those who wait for its end. */
static void wake_after_rest(struct worker *worker)
{
    int64_t now_ms = clock_mono_ms();
    int64_t rest_ms = target_rest_ms(&worker->issuer, now_ms), core_ms = target_rest_ms(&worker->core, now_ms);
    if (rest_ms == 0 || (core_ms > 0 && core_ms < rest_ms))
        rest_ms = core_ms;
    if (rest_ms > 0)
        uv_timer_start(&worker->wake, on_wake, (uint64_t)rest_ms, 0);
}

/* A rest may have become longer meanwhile: then it is waited for again. */
static void on_wake(uv_timer_t *timer)
{
    struct worker *worker = container_of(timer, struct worker, wake);
    int64_t now_ms = clock_mono_ms();
    if (target_rest_ms(&worker->issuer, now_ms) == 0)
        target_wake(&worker->issuer);
    if (target_rest_ms(&worker->core, now_ms) == 0)
        target_wake(&worker->core);
    wake_after_rest(worker);
}

static void on_target_change(struct target *target)
{
    struct worker *worker = the_worker_of(target);
    struct metric_series *gauge = metrics_series(worker->metrics, WORKER_METRIC_BREAKER_STATE, target->name, NULL);
    enum breaker_state before = (enum breaker_state)metric_value(gauge);
    enum breaker_state now = target->breaker.state;
    metric_set(gauge, now);
    if (before != now && (now == BREAKER_OPEN || now == BREAKER_CLOSED))
        log_at(now == BREAKER_OPEN ? LOG_WARNING : LOG_INFO, "breaker", LOG_TEXT("target", target->name),
               LOG_TEXT("state", breaker_word(now)),
               LOG_NUMBER("probe_in_ms", now == BREAKER_OPEN ? target->breaker.probe_at_ms - clock_mono_ms() : 0));
    wake_after_rest(worker);
    claim_room_changed(worker->claim);
}

static void on_final(void *context)
{
    struct worker *worker = context;
    nudge_send(&worker->final_nudge);
}

void worker_count(struct worker *worker, enum worker_metric metric, const char *label1, const char *label2)
{
    metric_add(metrics_series(worker->metrics, metric, label1, label2), 1);
}

/* ---- room and slots ---- */

/* No more events are held than a peer can soon take: what runs there, and as many waiting, so that a wait is about one
 * call long and the lease
 * outlasts it. While the peer recovers, no more than it is offered; while it is away, one for the probe, and only when
 * that is due; while it rests, none, and after a rest one. */
static int room_at(const struct worker *worker, const struct target *target, int room)
{
    const struct breaker *breaker = &target->breaker;
    int most = room;
    int64_t now_ms = clock_mono_ms();
    if (target_rest_ms(target, now_ms) > 0)
        return 0;
    switch (breaker->state) {
    case BREAKER_CLOSED:
        if (breaker->is_doubted)
            most = 1 - worker->in_flight;
        else
            most = (breaker->limit < breaker->limit_max ? breaker->limit : 2 * breaker->limit) - worker->in_flight;
        break;
    case BREAKER_HALF_OPEN:
        most = 0;
        break;
    case BREAKER_OPEN:
        most = breaker_room(breaker, now_ms) - worker->in_flight;
        break;
    }
    return most < room ? most : room;
}

int worker_room(const struct worker *worker)
{
    if (worker->is_draining)
        return 0;
    int room = (int)worker->config->worker.max_in_flight - worker->in_flight;
    room = room_at(worker, &worker->issuer, room);
    room = room_at(worker, &worker->core, room);
    return room > 0 ? room : 0;
}

int worker_good_room(const struct worker *worker)
{
    const struct breaker *issuer = &worker->issuer.breaker, *core = &worker->core.breaker;
    if (issuer->limit < issuer->limit_max || core->limit < core->limit_max)
        return 1; /* recovering: the limit, not the slots, says what is much */
    int64_t good = worker->config->worker.max_in_flight / 8;
    return good > GOOD_ROOM_MAX ? GOOD_ROOM_MAX : good > 1 ? (int)good : 1;
}

struct flow *worker_take_slot(struct worker *worker)
{
    struct flow *flow = worker->free_slots;
    if (flow) {
        worker->free_slots = flow->next;
        worker->in_flight++;
    }
    return flow;
}

void worker_flow_ended(struct worker *worker, struct flow *flow)
{
    flow->next = worker->free_slots;
    worker->free_slots = flow;
    worker->in_flight--;
    assert(worker->in_flight >= 0);
    claim_room_changed(worker->claim);
}

/* ---- open, drain, close ---- */

static bool load_credential(const char *option, const char *path, struct credential **credential, struct err *err)
{
    if (!path)
        return true;
    struct credential *fresh = NULL;
    if (!credential_load(path, &fresh, err))
        return err_prefix(err, "%s", option);
    credential_release(*credential); /* calls on their way keep theirs */
    *credential = fresh;
    return true;
}

static bool load_keyring(struct worker *worker, struct err *err)
{
    const struct config *config = worker->config;
    return config->card.store != CARD_STORE_ENCRYPTED ||
           keyring_load_over(config->card.keys_file, &worker->keyring, err) || err_prefix(err, "card.keys_file");
}

static bool load_authorities(struct worker *worker, struct err *err)
{
    const char *path = worker->config->tls.ca_file;
    struct authorities *authorities = NULL;
    if (!path)
        return true;
    if (!authorities_load(path, &authorities, err))
        return err_prefix(err, "tls.ca_file");
    http_client_trust(worker->http, authorities);
    authorities_release(authorities);
    return true;
}

static bool load_issuer_credential(struct worker *worker, struct err *err)
{
    return load_credential("issuer.credential_file", worker->config->issuer.credential_file, &worker->issuer_credential,
                           err);
}

static bool load_core_credential(struct worker *worker, struct err *err)
{
    return load_credential("core.credential_file", worker->config->core.credential_file, &worker->core_credential, err);
}

/* Each reads one file; when it cannot, what was read before stays. */
static bool (*const loads[])(struct worker *worker, struct err *err) = {load_keyring, load_issuer_credential,
                                                                        load_core_credential, load_authorities};

void worker_reload(struct worker *worker)
{
    for (size_t i = 0; i < ARRAY_SIZE(loads); i++) {
        struct err err = {0};
        if (!loads[i](worker, &err))
            log_error("a file cannot be used, the old one stays in force", LOG_TEXT("why", err.message));
    }
}

static bool make_slots(struct worker *worker, struct err *err)
{
    size_t count = (size_t)worker->config->worker.max_in_flight;
    worker->slots = calloc(count, sizeof *worker->slots);
    if (!worker->slots)
        return err_set(err, ERR_MEMORY, "no memory for %zu slots", count);
    for (size_t i = count; i-- > 0;) {
        flow_init(&worker->slots[i], worker);
        worker->slots[i].next = worker->free_slots;
        worker->free_slots = &worker->slots[i];
    }
    return true;
}

bool worker_open(struct worker *worker, struct err *err)
{
    const struct config *config = worker->config;
    for (size_t i = 0; i < ARRAY_SIZE(loads); i++)
        if (!loads[i](worker, err))
            return false;
    target_init(&worker->issuer, "issuer", (int)config->breaker.failures, config->breaker.probe_interval_ms,
                (int)config->issuer.max_concurrency, on_target_change);
    target_init(&worker->core, "core", (int)config->breaker.failures, config->breaker.probe_interval_ms,
                (int)config->core.max_concurrency, on_target_change);
    metric_set(metrics_series(worker->metrics, WORKER_METRIC_BREAKER_STATE, "issuer", NULL), 0);
    metric_set(metrics_series(worker->metrics, WORKER_METRIC_BREAKER_STATE, "core", NULL), 0);
    metric_add(metrics_series(worker->metrics, WORKER_METRIC_LEASE_LOST, NULL, NULL), 0);
    uv_timer_init(worker->loop, &worker->wake);
    if (!nudge_open(&worker->final_nudge, worker->loop, worker->pool, &sql_notify_final, err) ||
        !make_slots(worker, err))
        return false;
    struct writer_options options = {
        .loop = worker->loop,
        .pool = worker->pool,
        .worker_name = worker->name,
        .lease_ms = config->worker.lease_ms,
        .on_final = on_final,
        .context = worker,
    };
    return writer_open(&options, &worker->writer, err) && claim_open(worker, &worker->claim, err) &&
           sweep_open(worker, &worker->sweep, err) && housekeeping_open(worker, &worker->housekeeping, err) &&
           reconcile_open(worker, &worker->reconcile, err);
}

bool worker_is_idle(const struct worker *worker)
{
    return worker->in_flight == 0 && claim_is_idle(worker->claim) && sweep_is_idle(worker->sweep) &&
           housekeeping_is_idle(worker->housekeeping) && reconcile_is_idle(worker->reconcile) &&
           !worker->final_nudge.is_busy;
}

void worker_drain(struct worker *worker)
{
    worker->is_draining = true;
    claim_stop(worker->claim);
    sweep_stop(worker->sweep);
    housekeeping_stop(worker->housekeeping);
    reconcile_stop(worker->reconcile);
}

static void on_room_closed(void *context)
{
    struct worker *worker = context;
    if (--worker->open_rooms > 0)
        return;
    for (int64_t i = 0; i < worker->config->worker.max_in_flight; i++)
        flow_done(&worker->slots[i]);
    free(worker->slots);
    nudge_close(&worker->final_nudge);
    keyring_free(worker->keyring);
    credential_release(worker->issuer_credential);
    credential_release(worker->core_credential);
    worker->on_closed(worker->closed_context);
}

static void on_wake_closed(uv_handle_t *handle)
{
    on_room_closed(container_of((uv_timer_t *)handle, struct worker, wake));
}

void worker_close(struct worker *worker, void (*on_closed)(void *context), void *context)
{
    assert(worker_is_idle(worker));
    worker->on_closed = on_closed;
    worker->closed_context = context;
    worker->open_rooms = 6;
    uv_close((uv_handle_t *)&worker->wake, on_wake_closed);
    writer_close(worker->writer, on_room_closed, worker);
    claim_close(worker->claim, on_room_closed, worker);
    sweep_close(worker->sweep, on_room_closed, worker);
    housekeeping_close(worker->housekeeping, on_room_closed, worker);
    reconcile_close(worker->reconcile, on_room_closed, worker);
}
