/* See claims.h. */
#include "worker/claims.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/closing.h"
#include "worker/sweep.h"

/* One type. */
struct kind {
    struct route *route; /* NULL = CARD_ISSUE */
    const char *event_type;
    struct slots_share *share;
    struct claim *claim;
    struct sweep *sweeps[CLAIM_SOURCES]; /* of a route only the first */
};

struct claims {
    struct claims_options options;
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
        for (int source = 0; source < sources_of(&claims->kinds[i]); source++)
            /* guard: a clock that is set back is answered by a rebase */
            sweep_rebase(claims->kinds[i].sweeps[source]);
}

/* ---- open ---- */

static void set_targets(struct claims *claims, struct kind *kind)
{
    if (kind->route) {
        kind->share->targets[0] = &kind->route->peer.target;
        return;
    }
    kind->share->targets[0] = &claims->options.peers->issuer.target;
    kind->share->targets[1] = &claims->options.peers->core.target;
}

/* How long after the first type this one polls first, so that the statements of all types do not come at once. */
static int64_t turn_ms(const struct claims *claims, int number)
{
    return 1 + claims->options.config->worker.poll_interval_ms * number / claims_types(claims->options.routes);
}

static bool open_claim(struct claims *claims, struct kind *kind, int64_t first_ms, struct err *err)
{
    const struct claims_options *options = &claims->options;
    struct claim_options claim = {
        .loop = options->loop,
        .pool = options->pool,
        .config = options->config,
        .worker_name = options->worker_name,
        .event_type = kind->event_type,
        .route = kind->route,
        .issuer_origin = options->peers->issuer.origin,
        .slots = options->slots,
        .share = kind->share,
        .turns = &claims->turns,
        .first_poll_ms = first_ms,
        .series = options->series,
        .db_clock = options->db_clock,
        .on_clock_set_back = on_clock_set_back,
        .context = claims,
    };
    return claim_open(&claim, &kind->claim, err);
}

static bool open_sweep(struct claims *claims, struct kind *kind, enum claim_source source, int64_t first_ms,
                       struct err *err)
{
    struct sweep_options sweep = {
        .loop = claims->options.loop,
        .pool = claims->options.pool,
        .claim = kind->claim,
        .event_type = kind->event_type,
        .route = kind->route,
        .source = source,
        .in_flight = &claims->sweeps_in_flight,
        .first_ms = first_ms,
        .series = claims->options.series,
        .poll_interval_ms = claims->options.config->worker.poll_interval_ms,
    };
    return sweep_open(&sweep, &kind->sweeps[source], err);
}

static bool open_kind(struct claims *claims, struct route *route, struct err *err)
{
    int64_t first_ms = turn_ms(claims, claims->count);
    struct kind *kind = &claims->kinds[claims->count];
    *kind = (struct kind){
        .route = route,
        .event_type = route ? route->config->type : OUTBOX_EVENT_TYPE,
        .share = &claims->options.slots->shares[claims->count],
    };
    claims->count++;
    set_targets(claims, kind);
    bool is_open = open_claim(claims, kind, first_ms, err);
    for (int source = 0; is_open && source < sources_of(kind); source++)
        is_open = open_sweep(claims, kind, source, first_ms, err);
    return is_open;
}

bool claims_open(const struct claims_options *options, struct claims **ret_claims, struct err *err)
{
    struct claims *claims = calloc(1, sizeof(*claims));
    if (!claims)
        return err_set(err, ERR_MEMORY, "no memory for the claims");
    claims->options = *options;
    turns_init(&claims->turns, options->slots);
    if (!open_kind(claims, NULL, err))
        return false;
    for (int i = 0; i < options->routes->count; i++)
        if (!open_kind(claims, &options->routes->routes[i], err))
            return false;
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
    const struct kind *kind = &claims->kinds[share - claims->options.slots->shares];
    claims_capacity_changed(claims);
    if (!kind->route) /* an end may be to be told */
        claims_wake(claims, OUTBOX_ENDED_TYPE);
    else if (kind->route->config->ordered) /* the next event of its user may be due now */
        claim_wake(kind->claim);
}

/* ---- drain, close ---- */

void claims_stop(struct claims *claims)
{
    for (int i = 0; i < claims->count; i++) {
        claim_stop(claims->kinds[i].claim);
        for (int source = 0; source < sources_of(&claims->kinds[i]); source++)
            sweep_stop(claims->kinds[i].sweeps[source]);
    }
}

bool claims_are_idle(const struct claims *claims)
{
    for (int i = 0; i < claims->count; i++) {
        if (!claim_is_idle(claims->kinds[i].claim))
            return false;
        for (int source = 0; source < sources_of(&claims->kinds[i]); source++)
            if (!sweep_is_idle(claims->kinds[i].sweeps[source]))
                return false;
    }
    return true;
}

void claims_close(struct claims *claims, void (*on_closed)(void *context), void *context)
{
    closing_start(&claims->closing, free, claims, on_closed, context);
    for (int i = 0; i < claims->count; i++) {
        claim_close(claims->kinds[i].claim, closing_part_closed, closing_part(&claims->closing));
        for (int source = 0; source < sources_of(&claims->kinds[i]); source++)
            sweep_close(claims->kinds[i].sweeps[source], closing_part_closed, closing_part(&claims->closing));
    }
    closing_end(&claims->closing);
}
