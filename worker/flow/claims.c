/* See claims.h. */
#include "worker/flow/claims.h"

#include <stdlib.h>
#include <string.h>

#include "common/lib/base/closing.h"
#include "worker/flow/sweep.h"

/* One type. */
struct kind {
    struct route *route; /* NULL = CARD_ISSUE */
    const char *event_type;
    struct slots_share *share;
    struct claim *claim;
    struct sweep *sweeps[CLAIM_SOURCES]; /* sweeps_count of them, one for each source */
    int sweeps_count;
    bool is_watched; /* its claims and sweeps wait until something is due, instead of looking by themselves */
};

struct claims {
    const struct worker_env *env;
    struct slots *slots;
    struct turns turns;
    int sweeps_in_flight;
    struct kind kinds[1 + CONFIG_ROUTES_MAX]; /* count of them; the first is card requests */
    int count;
    struct closing closing;
};

int claims_types(const struct routes *routes)
{
    return 1 + routes->count;
}

static int sources_of(const struct kind *kind)
{
    return kind->route ? 1 : CLAIM_SOURCES;
}

static void on_clock_set_back(void *context)
{
    struct claims *claims = context;
    for (int i = 0; i < claims->count; i++)
        for (int number = 0; number < claims->kinds[i].sweeps_count; number++)
            /* guard: a clock that is set back is answered by a rebase */
            sweep_rebase(claims->kinds[i].sweeps[number]);
}

/* ---- open ---- */

static void set_targets(struct claims *claims, struct kind *kind)
{
    if (kind->route) {
        kind->share->targets[0] = &kind->route->peer.target;
        return;
    }
    kind->share->targets[0] = &claims->env->peers->issuer.target;
    kind->share->targets[1] = &claims->env->peers->core.target;
}

static bool open_claim(struct claims *claims, struct kind *kind, struct err *err)
{
    struct claim_options claim = {
        .env = claims->env,
        .event_type = kind->event_type,
        .route = kind->route,
        .slots = claims->slots,
        .share = kind->share,
        .turns = &claims->turns,
        .on_clock_set_back = on_clock_set_back,
        .context = claims,
    };
    return claim_open(&claim, &kind->claim, err);
}

static bool open_sweep(struct claims *claims, struct kind *kind, int64_t first_ms, struct err *err)
{
    struct sweep_options sweep = {
        .claim = kind->claim,
        .event_type = kind->event_type,
        .route = kind->route,
        .source = (enum claim_source)kind->sweeps_count,
        .in_flight = &claims->sweeps_in_flight,
        .first_ms = first_ms,
    };
    if (!sweep_open(&sweep, claims->env, &kind->sweeps[kind->sweeps_count], err))
        return false;
    kind->sweeps_count++;
    return true;
}

static bool open_kind(struct claims *claims, struct route *route, struct err *err)
{
    int64_t poll_ms = claims->env->config->worker.poll_interval_ms;
    /* One type after the other, so that their statements do not come at once. */
    int64_t first_ms = 1 + poll_ms * claims->count / claims_types(claims->env->routes);
    struct kind *kind = &claims->kinds[claims->count];
    *kind = (struct kind){
        .route = route,
        .event_type = route ? route->config->type : OUTBOX_EVENT_TYPE,
        .share = &claims->slots->shares[claims->count],
    };
    claims->count++;
    set_targets(claims, kind);
    bool is_open = open_claim(claims, kind, err);
    while (is_open && kind->sweeps_count < sources_of(kind))
        is_open = open_sweep(claims, kind, first_ms, err);
    return is_open;
}

bool claims_open(const struct worker_env *env, struct slots *slots, struct claims **ret_claims, struct err *err)
{
    struct claims *claims = calloc(1, sizeof(*claims));
    if (!claims)
        return err_set(err, ERR_MEMORY, "no memory for the claims");
    claims->env = env;
    claims->slots = slots;
    turns_init(&claims->turns, slots);
    bool is_open = open_kind(claims, NULL, err);
    for (int i = 0; is_open && i < env->routes->count; i++)
        is_open = open_kind(claims, &env->routes->routes[i], err);
    if (!is_open) {
        claims_close(claims, NULL, NULL);
        return false;
    }
    *ret_claims = claims;
    return true;
}

/* ---- run ---- */

void claims_wake(struct claims *claims, const char *type)
{
    if (type && type[0] == '\0')
        claim_wake_source(claims->kinds[0].claim, CLAIM_CLIENTS);
    else if (type && strcmp(type, OUTBOX_EVENT_TYPE) == 0)
        claim_wake_source(claims->kinds[0].claim, CLAIM_SERVICES);
    else
        for (int i = 0; i < claims->count; i++)
            if (!type || strcmp(type, claims->kinds[i].event_type) == 0)
                claim_wake(claims->kinds[i].claim);
}

void claims_capacity_changed(struct claims *claims)
{
    for (int i = 0; i < claims->count; i++)
        claim_capacity_changed(claims->kinds[i].claim);
}

void claims_event_ended(struct claims *claims, const struct slots_share *share)
{
    const struct kind *kind = &claims->kinds[share - claims->slots->shares];
    claims_capacity_changed(claims);
    if (!kind->route) /* an end may be to be told */
        claims_wake(claims, OUTBOX_ENDED_TYPE);
    else if (kind->route->config->ordered) /* the next event of its user may be due now */
        claim_wake(kind->claim);
}

/* ---- the poll ---- */

static void watch(struct kind *kind, bool is_watched)
{
    kind->is_watched = is_watched;
    for (int i = 0; i < kind->sweeps_count; i++)
        sweep_watch(kind->sweeps[i], is_watched);
}

static bool may_be_watched(const struct kind *kind)
{
    for (int i = 0; i < kind->sweeps_count; i++)
        if (!sweep_is_cheap(kind->sweeps[i]))
            return false;
    return true;
}

void claims_add_watched(struct claims *claims, struct pg_array *types)
{
    for (int i = 0; i < claims->count; i++) {
        struct kind *kind = &claims->kinds[i];
        if (!kind->is_watched && may_be_watched(kind))
            watch(kind, true);
        if (kind->is_watched)
            pg_array_add_string(types, kind->event_type);
    }
}

void claims_poll(struct claims *claims, struct slice type)
{
    for (int i = 0; i < claims->count; i++) {
        struct kind *kind = &claims->kinds[i];
        if (type.bytes ? !slice_is(type, kind->event_type) : kind->is_watched)
            continue;
        claim_poll(kind->claim);
        for (int number = 0; number < kind->sweeps_count; number++)
            /* guard: what is due behind the bookmark wakes the sweep */
            sweep_wake(kind->sweeps[number]);
    }
}

void claims_unwatch(struct claims *claims)
{
    for (int i = 0; i < claims->count; i++)
        watch(&claims->kinds[i], false);
}

void claims_note_clock(struct claims *claims, int64_t db_us, int64_t sent_us)
{
    claim_note_clock(claims->kinds[0].claim, db_us, sent_us);
}

/* ---- drain, close ---- */

void claims_stop(struct claims *claims)
{
    for (int i = 0; i < claims->count; i++)
        claim_stop(claims->kinds[i].claim);
}

bool claims_are_idle(const struct claims *claims)
{
    for (int i = 0; i < claims->count; i++)
        if (!claim_is_idle(claims->kinds[i].claim))
            return false;
    return true;
}

void claims_close(struct claims *claims, void (*on_closed)(void *context), void *context)
{
    closing_start(&claims->closing, free, claims, on_closed, context);
    for (int i = 0; i < claims->count; i++)
        if (claims->kinds[i].claim) /* the last one may have failed to open */
            claim_close(claims->kinds[i].claim, closing_part_closed, closing_part(&claims->closing));
    closing_end(&claims->closing);
}
