/* See claim.h. */
#include "worker/flow/claim.h"

#include <assert.h>
#include <stdlib.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/log.h"
#include "statements.h"
#include "worker/flow/claim_rows.h"
#include "worker/flow/flow_run.h"
#include "worker/flow/turns.h"

#define CLAIM_MAX 256    /* events by one statement */
#define SLACK_MIN_MS 100 /* an event that becomes visible so long after its time is still claimed without the sweep */
#define SLACK_MAX_MS 2000
#define SLACK_HELD_MS 60000 /* so long after a late event the slack begins to shrink */
#define CLAIM_TIMEOUT_MS 5000
#define LOOKS_MAX 20000 /* rows of both sources, where there may be many of the other one */

/* Whether a claim should be sent. */
enum demand {
    /* Nothing is known to be due. A wakeup or the poll changes it. */
    DEMAND_NONE,
    /* Something may be due: a wakeup came, or the last claim was filled and capacity appeared since. Under a backlog
     * the claim waits until it can take a good number of events (slots_claim_threshold). */
    DEMAND_DUE,
    /* The poll interval is over: the claim is sent with whatever capacity there is. */
    DEMAND_POLL,
};

/* The events of one source. */
struct lane {
    enum demand demand;
    bool has_backlog;      /* its last claim was filled: more are due */
    int64_t bookmark_us;   /* -1 = from the beginning of the index */
    bool bookmark_is_void; /* it went back while a claim was in flight, whose bookmark must not count */
    int64_t answered_ms;   /* when the bookmark was last moved on; 0 = never */
};

struct claim {
    struct claim_options options;
    uv_prepare_t prepare; /* the end of a loop iteration */
    bool is_stopped;
    struct lane lanes[CLAIM_SOURCES]; /* of a route's events there is only the first, for all of them */
    struct lane *lane;                /* of the last claim */
    struct turns_member lost;         /* events of the type that are tried alone */

    struct pg_query query;
    bool is_in_flight;
    struct uuid token; /* of its leases */
    bool is_alone;     /* it takes one event that is tried alone */
    bool is_probe;     /* of a suspected kind of call (suspicion.h) */
    bool is_chosen;    /* it does not simply take the oldest events */
    int64_t sent_ms, sent_us;

    int64_t slack_ms;
    int64_t late_ms; /* when something was last found behind the bookmark */
    struct closing closing;
};

static int lanes_count(const struct claim *claim)
{
    return claim->options.route ? 1 : CLAIM_SOURCES;
}

static bool has_demand(const struct claim *claim)
{
    return claim->lanes[CLAIM_CLIENTS].demand != DEMAND_NONE || claim->lanes[CLAIM_SERVICES].demand != DEMAND_NONE;
}

/* The others leave room for a type that has something to claim and may. */
static void set_demand(struct claim *claim, struct lane *lane, enum demand demand)
{
    lane->demand = demand;
    claim->options.share->is_hungry = has_demand(claim) && !claim->is_in_flight && !claim->is_stopped;
}

static void note_backlog(struct claim *claim, bool is_filled)
{
    claim->lane->has_backlog = is_filled;
    claim->options.share->has_backlog =
        claim->lanes[CLAIM_CLIENTS].has_backlog || claim->lanes[CLAIM_SERVICES].has_backlog;
}

static void wake(struct claim *claim, struct lane *lane)
{
    if (lane->demand == DEMAND_NONE)
        set_demand(claim, lane, DEMAND_DUE);
}

static void start_attempt(struct claim *claim, const struct pg_rows *rows, int row)
{
    struct flow *flow = slots_take(claim->options.slots, claim->options.share, claim->is_probe);
    assert(flow); /* the limit was granted of the free slots */
    flow->token = claim->token;
    flow->attempt.claimed_ms = claim->sent_ms;
    flow->attempt.claim_took_ms = clock_mono_ms() - claim->sent_ms;
    flow->lease_until_ms = claim->sent_ms + claim->options.env->config->worker.lease_ms;
    flow_run_start(flow, claim_rows_read(rows, row, claim->options.route, flow));
}

/* ---- the answer ---- */

/* Before the first answer the database's clock is not known: it may have been set back, also while no worker ran. */
void claim_note_clock(struct claim *claim, int64_t db_us, int64_t sent_us)
{
    bool is_first = !claim->options.env->db_clock->is_known;
    switch (db_clock_note(claim->options.env->db_clock, db_us, sent_us, clock_mono_us())) {
    case DB_CLOCK_STEADY:
        /* guard: the first answer of the database is followed by a rebase */
        if (is_first)
            claim->options.on_clock_set_back(claim->options.context);
        return;
    case DB_CLOCK_SET_FORWARD:
        log_warning("the database's clock was set forward");
        return;
    case DB_CLOCK_SET_BACK:
        log_warning("the database's clock was set back");
        claim->options.on_clock_set_back(claim->options.context);
        return;
    }
}

static void note_claim(struct claim *claim, const struct claim_answer *answer)
{
    int64_t now_ms = clock_mono_ms();
    if (!claim->lane->bookmark_is_void && !claim->is_alone && !claim->is_chosen)
        claim->lane->bookmark_us = answer->bookmark_us;
    if (!claim->is_alone)
        claim->lane->answered_ms = now_ms;
    claim->lost.has_lost = answer->has_lost;
    if (claim->is_alone && answer->count > 0)
        turns_note_taken(claim->options.turns);
    else if (claim->is_alone) /* another worker has them */
        turns_end(claim->options.turns, now_ms);
    claim_note_clock(claim, answer->now_us, claim->sent_us);
}

static void on_claimed(struct pg_query *query, const struct pg_query_result *result)
{
    struct claim *claim = container_of(query, struct claim, query);
    struct slots_share *share = claim->options.share;
    claim->is_in_flight = false;
    note_backlog(claim, false);
    slots_settle(claim->options.slots, share);
    set_demand(claim, claim->lane, claim->lane->demand);
    if (result->kind != PG_DONE) {
        /* Unknown: events may be leased without a worker; their leases run out. The poll comes back. */
        if (result->kind != PG_NOT_SENT && !pg_sqlstate_is_moved(result->sqlstate))
            log_warning("a claim failed", LOG_TEXT("type", claim->options.event_type),
                        LOG_TEXT("sqlstate", result->sqlstate), LOG_TEXT("why", result->message));
        /* guard: a claim for one event alone that fails is followed by one for the others */
        if (claim->is_alone) /* ordinary events are next, also when such a claim always fails */
            turns_end(claim->options.turns, clock_mono_ms());
        return;
    }
    const struct claim_answer answer = claim_rows_answer(result->rows);
    metric_observe(claim->options.env->series->claim_seconds, (double)(clock_mono_us() - claim->sent_us) / 1e6);
    if (answer.count > 0)
        metric_observe(claim->options.env->series->claim_batch_size, answer.count);
    note_claim(claim, &answer);
    note_backlog(claim, !claim->is_alone && answer.is_filled);
    if (claim->is_alone)
        claim_wake(claim);
    else if (claim->lane->has_backlog)
        wake(claim, claim->lane);
    for (int row = 0; row < answer.count; row++)
        start_attempt(claim, result->rows, row);
}

/* ---- sending ---- */

/* As issuing.claim names it. */
static const char *choice_word(enum slots_choice choice)
{
    static const char *const words[] = {[SLOTS_OLDEST] = "oldest",
                                        [SLOTS_FRESH_FIRST] = "fresh_first",
                                        [SLOTS_FRESH] = "fresh",
                                        [SLOTS_REFUSED] = "refused",
                                        [SLOTS_NONE] = "fresh"};
    return words[choice];
}

/* The other source may have any number of events where this one's lie; or nobody knows yet. */
static bool is_beside_many(const struct claim *claim)
{
    const struct lane *other = &claim->lanes[claim->lane == claim->lanes];
    return lanes_count(claim) > 1 && (other->has_backlog || other->answered_ms == 0);
}

static void set_params(struct claim *claim, int limit, enum slots_choice choice)
{
    const struct claim_options *options = &claim->options;
    const struct lane *lane = claim->lane;
    struct pg_param *params = claim->query.params;
    bool is_bounded = is_beside_many(claim) && !claim->is_alone && !claim->is_chosen;
    params[0] = pg_param_uuid(&claim->token);
    params[1] = pg_param_int8(limit);
    params[2] = pg_param_int8(options->env->config->worker.lease_ms);
    params[3] = pg_param_string(options->env->name);
    params[4] = lane->bookmark_us >= 0 ? pg_param_int8(lane->bookmark_us) : pg_param_null();
    params[5] = pg_param_int8(claim->slack_ms);
    params[6] = pg_param_bool(claim->is_alone);
    params[7] = pg_param_string(options->event_type);
    params[8] = pg_param_bool(options->route && options->route->config->ordered);
    params[9] = params[10] = pg_param_null();
    if (!options->route) {
        params[9] = pg_param_string(options->env->config->issuer.profile);
        params[10] = pg_param_string(options->env->peers->issuer_address);
    }
    params[11] = pg_param_string(choice_word(choice));
    params[12] = claim_source_param(options->route, (enum claim_source)(lane - claim->lanes));
    params[13] = is_bounded ? pg_param_int8(LOOKS_MAX) : pg_param_null();
}

static void send_claim(struct claim *claim, struct lane *lane, int capacity, bool is_alone)
{
    const struct claim_options *options = &claim->options;
    struct pg_query *query = &claim->query;
    int64_t now_ms = clock_mono_ms();
    enum slots_choice choice = is_alone ? SLOTS_OLDEST : slots_choose(options->share, now_ms);
    int limit = is_alone ? 1 : capacity < CLAIM_MAX ? capacity : CLAIM_MAX;
    claim->is_in_flight = true;
    claim->lane = lane;
    set_demand(claim, lane, DEMAND_NONE);
    slots_grant(options->slots, options->share, limit);
    claim->is_alone = is_alone;
    claim->is_probe = slots_is_probe(options->share);
    claim->is_chosen = choice != SLOTS_OLDEST;
    if (is_alone)
        turns_note_sent(options->turns, &claim->lost);
    claim->sent_us = clock_mono_us();
    claim->sent_ms = claim->sent_us / 1000;
    lane->bookmark_is_void = false;
    claim->token = uuid4_make();
    query->statement = &sql_outbox_claim;
    set_params(claim, limit, choice);
    query->timeout_ms = CLAIM_TIMEOUT_MS;
    query->on_result = on_claimed;
    pg_pool_submit(options->env->pool, query);
}

/* Under a backlog a claim waits until it can take a good number of events; each slot that becomes free is a new
 * check. */
static bool is_worth_it(const struct claim *claim, const struct lane *lane, int capacity, int64_t now_ms)
{
    const struct slots_share *share = claim->options.share;
    bool may_wait = share->has_backlog && lane->demand == DEMAND_DUE && slots_held(share) > 0;
    return capacity >= (may_wait ? slots_claim_threshold(claim->options.slots, share, now_ms) : 1);
}

/* The sources take turns. */
static struct lane *next_lane(struct claim *claim)
{
    struct lane *other = &claim->lanes[claim->lane == claim->lanes];
    /* guard: clients and services take turns in the claims of cards */
    return other->demand != DEMAND_NONE ? other : claim->lane;
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct claim *claim = container_of(prepare, struct claim, prepare);
    const struct claim_options *options = &claim->options;
    if (claim->is_in_flight || claim->is_stopped || (!has_demand(claim) && !claim->lost.has_lost))
        return;
    int64_t now_ms = clock_mono_ms();
    enum turns_answer turn = turns_ask(options->turns, &claim->lost, now_ms);
    if (turn == TURNS_WAIT || (turn == TURNS_TAKE && !has_demand(claim)))
        return;
    bool is_alone = turn == TURNS_TAKE_ALONE; /* then the slots are all free */
    int capacity =
        is_alone ? slots_target_room(options->share, now_ms) : slots_capacity(options->slots, options->share, now_ms);
    struct lane *lane = next_lane(claim);
    if (is_worth_it(claim, lane, capacity, now_ms)) /* else the demand stays */
        send_claim(claim, lane, capacity, is_alone);
}

void claim_poll(struct claim *claim)
{
    for (int i = 0; i < lanes_count(claim) && !claim->is_stopped; i++)
        set_demand(claim, &claim->lanes[i], DEMAND_POLL);
    if (claim->slack_ms > SLACK_MIN_MS && clock_mono_ms() - claim->late_ms >= SLACK_HELD_MS) {
        claim->slack_ms /= 2;
        claim->late_ms = clock_mono_ms();
    }
}

int64_t claim_bookmark_us(const struct claim *claim, enum claim_source source)
{
    const struct lane *lane = &claim->lanes[source];
    /* When nothing could be claimed for long, the bookmark of a dead worker may have been ahead of ours. */
    bool is_fresh = clock_mono_ms() - lane->answered_ms < claim->options.env->config->worker.lease_ms;
    return is_fresh ? lane->bookmark_us : -1;
}

void claim_go_back(struct claim *claim, enum claim_source source, int64_t due_us)
{
    struct lane *lane = &claim->lanes[source];
    wake(claim, lane);
    if (lane->bookmark_us < 0 || due_us >= lane->bookmark_us)
        return;
    /* guard: the claims go back to what became visible late */
    lane->bookmark_us = due_us;
    lane->bookmark_is_void = true;
    claim->late_ms = clock_mono_ms();
    if (claim->slack_ms < SLACK_MAX_MS)
        claim->slack_ms = claim->slack_ms * 2 < SLACK_MAX_MS ? claim->slack_ms * 2 : SLACK_MAX_MS;
}

void claim_wake_source(struct claim *claim, enum claim_source source)
{
    wake(claim, &claim->lanes[source]);
}

void claim_wake(struct claim *claim)
{
    for (int i = 0; i < lanes_count(claim); i++)
        wake(claim, &claim->lanes[i]);
}

void claim_capacity_changed(struct claim *claim)
{
    for (int i = 0; i < lanes_count(claim); i++)
        if (claim->lanes[i].has_backlog)
            wake(claim, &claim->lanes[i]);
}

struct pg_param claim_source_param(const struct route *route, enum claim_source source)
{
    return route ? pg_param_null() : pg_param_bool(source == CLAIM_SERVICES);
}

/* ---- open, drain, close ---- */

bool claim_open(const struct claim_options *options, struct claim **ret_claim, struct err *err)
{
    struct claim *claim = calloc(1, sizeof(*claim));
    if (!claim)
        return err_set(err, ERR_MEMORY, "no memory for the claims");
    claim->options = *options;
    claim->lane = claim->lanes;
    claim->lanes[CLAIM_CLIENTS].bookmark_us = claim->lanes[CLAIM_SERVICES].bookmark_us = -1;
    claim->slack_ms = SLACK_MIN_MS;
    turns_join(options->turns, &claim->lost, options->share);
    uv_prepare_init(options->env->loop, &claim->prepare);
    uv_prepare_start(&claim->prepare, on_prepare);
    *ret_claim = claim;
    return true;
}

void claim_stop(struct claim *claim)
{
    claim->is_stopped = true;
    set_demand(claim, claim->lane, claim->lane->demand);
}

bool claim_is_idle(const struct claim *claim)
{
    return !claim->is_in_flight;
}

void claim_close(struct claim *claim, void (*on_closed)(void *context), void *context)
{
    assert(claim_is_idle(claim));
    closing_start(&claim->closing, free, claim, on_closed, context);
    closing_handle(&claim->closing, &claim->prepare);
    closing_end(&claim->closing);
}
