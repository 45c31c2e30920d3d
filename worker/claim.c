/* See claim.h. */
#include "worker/claim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/closing.h"
#include "common/base/log.h"
#include "common/base/trace.h"
#include "common/pg/sql/statements.h"
#include "worker/flow_run.h"

#define CLAIM_MAX 256    /* events by one statement */
#define SLACK_MIN_MS 100 /* an event that becomes visible so long after its time is still claimed without the sweep */
#define SLACK_MAX_MS 2000
#define SLACK_HELD_MS 60000 /* so long after a late event the slack begins to shrink */
#define CLAIM_TIMEOUT_MS 5000
#define ALONE_PAUSE_MS 20
#define REPLAY_LEAST_MS 60000 /* a first attempt of an event that is older by so much is a replay */
#define ALONE_PAUSE_FACTOR 4

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

/* Which events are claimed now. Events that may have killed a worker are tried alone: the worker holds no others. */
enum turn {
    /* Ordinary events are claimed. When there are lost events and the pause since the last one tried alone is over:
     * TURN_EMPTYING. */
    TURN_ORDINARY,
    /* Nothing is claimed until all slots are free; then one lost event is. It becomes TURN_ALONE, or, if the claim
     * failed or another worker has the event, TURN_ORDINARY. */
    TURN_EMPTYING,
    /* One lost event is at work, and nothing is claimed beside it. When its slot is free: TURN_ORDINARY, with a pause
     * that is longer than this turn was. */
    TURN_ALONE,
};

struct claim {
    struct claim_options options;
    uv_timer_t poll;
    uv_prepare_t prepare; /* the end of a loop turn */
    bool is_stopped;
    enum demand demand;
    bool has_backlog; /* the last claim was filled */

    struct pg_query query;
    bool is_in_flight;
    struct uuid token; /* of its leases */
    int64_t limit;     /* events that it may take */
    bool is_alone;     /* it takes one event that is tried alone */
    int64_t sent_ms, sent_us;

    enum turn turn;
    bool has_lost;           /* there are events that are tried alone */
    int64_t turn_started_ms; /* TURN_EMPTYING, TURN_ALONE: since then the ordinary events wait */
    int64_t alone_due_ms;    /* the next such turn does not begin before */

    int64_t bookmark_us;   /* -1 = from the beginning of the index */
    bool bookmark_is_void; /* it went back while a claim was in flight, whose bookmark must not count */
    int64_t answered_ms;   /* when the bookmark was last moved on */
    int64_t slack_ms;
    int64_t late_ms; /* when something was last found behind the bookmark */
    struct closing closing;
};

/* Columns of outbox_claim. */
enum {
    COL_ID,
    COL_USER,
    COL_PAYLOAD,
    COL_TRACEPARENT,
    COL_ATTEMPT,
    COL_SENT_AGE,
    COL_DEFERRED_AGE,
    COL_CARD,
    COL_CARD_ISSUER_ID,
    COL_CARD_LAST4,
    COL_CARD_MONTH,
    COL_CARD_YEAR,
    COL_CARD_STATUS,
    COL_REPLACES_ISSUER_ID,
    COL_CANCEL_CODE,
    COL_BOOKMARK,
    COL_SETTLE_AGE,
    COL_LOST, /* of the last row: whether there are events to be tried alone */
    COL_NOW,
    COL_DEFERRAL_COUNT,
    COL_DEFERRAL_CODE,
    COL_CHANGED_AGE,
    COL_HELD_END,
    COL_HELD_END_CODE,
    COL_PARAMETERS,
    COL_MADE,
    COL_FILLED, /* of the last row: there may be more that is due */
};

static void copy_text(char *to, size_t size, struct slice from)
{
    size_t length = from.bytes && from.length < size ? from.length : 0;
    if (length)
        memcpy(to, from.bytes, length);
    to[length] = '\0';
}

static void read_card(struct flow *flow, const struct pg_rows *rows, int row)
{
    flow->is_saved = !pg_is_null(rows, row, COL_CARD);
    flow->save = (struct write_save){0};
    if (!flow->is_saved)
        return;
    flow->save.card_id = pg_uuid(rows, row, COL_CARD);
    copy_text(flow->card.id, sizeof(flow->card.id), pg_bytes(rows, row, COL_CARD_ISSUER_ID));
    copy_text(flow->save.last4, sizeof(flow->save.last4), pg_bytes(rows, row, COL_CARD_LAST4));
    flow->save.exp_month = (int)pg_int8(rows, row, COL_CARD_MONTH);
    flow->save.exp_year = (int)pg_int8(rows, row, COL_CARD_YEAR);
}

/* Another service may have written anything: false = payload_invalid. */
static bool read_request(struct flow *flow, const struct pg_rows *rows, int row)
{
    struct slice user = pg_bytes(rows, row, COL_USER), payload = pg_bytes(rows, row, COL_PAYLOAD);
    struct outbox_fault faults[OUTBOX_FAULTS_MAX];
    copy_text(flow->user_id, sizeof(flow->user_id), user);
    copy_text(flow->replaces_issuer_id, sizeof(flow->replaces_issuer_id), pg_bytes(rows, row, COL_REPLACES_ISSUER_ID));
    if (!outbox_user_id_is_valid(user.bytes, user.length) ||
        outbox_payload_read(payload.bytes, payload.length, &flow->payload, faults) != 0)
        return false;
    return !flow->payload.is_reissue || flow->replaces_issuer_id[0] != '\0';
}

/* Since the acceptance, for the metrics. Of a first attempt the database measures it. Later the id tells, which bears the
 * time of the api's clock; an id of another kind tells nothing. A replay is a first attempt by its count only. */
static int64_t accepted_age_ms(const struct flow *flow, int64_t db_ms)
{
    int64_t made_ms;
    bool has_time = uuid7_time_ms(&flow->event_id, &made_ms);
    bool is_first = flow->attempt <= 1 && flow->deferral_count == 0 && flow->lost_count == 0;
    if (is_first && (!has_time || db_ms - made_ms < flow->changed_age_ms + REPLAY_LEAST_MS))
        return flow->changed_age_ms;
    if (!has_time)
        return -1;
    return db_ms > made_ms ? db_ms - made_ms : 0;
}

static void start_attempt(struct claim *claim, const struct pg_rows *rows, int row)
{
    struct flow *flow = slots_take(claim->options.slots);
    assert(flow); /* the limit was the free slots, and only claims take them */
    flow->event_id = pg_uuid(rows, row, COL_ID);
    uuid_format(&flow->event_id, flow->event_text);
    flow->token = claim->token;
    flow->attempt = (int)pg_int8(rows, row, COL_ATTEMPT);
    flow->sent_age_ms = pg_is_null(rows, row, COL_SENT_AGE) ? -1 : pg_int8(rows, row, COL_SENT_AGE);
    flow->deferred_age_ms = pg_is_null(rows, row, COL_DEFERRED_AGE) ? -1 : pg_int8(rows, row, COL_DEFERRED_AGE);
    flow->settle_age_ms = pg_is_null(rows, row, COL_SETTLE_AGE) ? -1 : pg_int8(rows, row, COL_SETTLE_AGE);
    flow->lost_count = (int)pg_int8(rows, row, COL_LOST);
    flow->deferral_count = (int)pg_int8(rows, row, COL_DEFERRAL_COUNT);
    copy_text(flow->deferral_code, sizeof(flow->deferral_code), pg_bytes(rows, row, COL_DEFERRAL_CODE));
    flow->changed_age_ms = pg_int8(rows, row, COL_CHANGED_AGE);
    flow->accepted_age_ms = accepted_age_ms(flow, pg_int8(rows, pg_rows_count(rows) - 1, COL_NOW) / 1000);
    flow->claimed_ms = claim->sent_ms;
    flow->lease_until_ms = claim->sent_ms + claim->options.config->worker.lease_ms;
    struct slice trace = pg_bytes(rows, row, COL_TRACEPARENT);
    copy_text(flow->traceparent, sizeof(flow->traceparent), trace_is_valid(trace) ? trace : (struct slice){0});
    copy_text(flow->held_end, sizeof(flow->held_end), pg_bytes(rows, row, COL_HELD_END));
    if (!pg_is_null(rows, row, COL_CANCEL_CODE))
        flow->held_end[0] = '\0'; /* its card was seen, and must go */
    copy_text(flow->pending_code, sizeof(flow->pending_code),
              pg_bytes(rows, row, flow->held_end[0] ? COL_HELD_END_CODE : COL_CANCEL_CODE));
    read_card(flow, rows, row);
    bool is_readable = read_request(flow, rows, row);
    flow->made_ms = pg_int8(rows, row, COL_MADE);
    event_parameters_start(&flow->parameters, flow->env->parameters, flow->user_id,
                           pg_bytes(rows, row, COL_PARAMETERS));
    flow_run_start(flow, is_readable);
}

/* The last row is the bookmark. */
static int count_events(const struct pg_rows *rows)
{
    assert(pg_rows_count(rows) > 0);
    return pg_rows_count(rows) - 1;
}

/* ---- turns ---- */

/* Ordinary events are next. The next turn of an event alone comes after a pause that is longer than this turn was. */
static void end_turn(struct claim *claim)
{
    int64_t now_ms = clock_mono_ms();
    claim->turn = TURN_ORDINARY;
    claim->alone_due_ms = now_ms + (now_ms - claim->turn_started_ms) * ALONE_PAUSE_FACTOR + ALONE_PAUSE_MS;
}

/* Moves from turn to turn. False: no claim may be sent now. *ret_is_alone: the claim is for one event that is tried
 * alone. */
static bool take_turn(struct claim *claim, bool *ret_is_alone)
{
    int64_t now_ms = clock_mono_ms();
    bool is_empty = claim->options.slots->in_flight == 0;
    *ret_is_alone = false;
    if (claim->turn == TURN_ALONE) {
        if (!is_empty)
            return false;
        end_turn(claim);
        if (claim->demand == DEMAND_NONE)
            claim->demand = DEMAND_DUE;
    }
    if (!claim->has_lost || now_ms < claim->alone_due_ms)
        return true;
    if (claim->turn == TURN_ORDINARY) {
        claim->turn = TURN_EMPTYING;
        claim->turn_started_ms = now_ms;
    }
    *ret_is_alone = true;
    return is_empty;
}

/* ---- the answer ---- */

static void note_clock(struct claim *claim, int64_t db_us)
{
    switch (db_clock_note(claim->options.db_clock, db_us, claim->sent_us, clock_mono_us())) {
    case DB_CLOCK_STEADY:
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

static void note_last_row(struct claim *claim, const struct pg_rows *rows, int count)
{
    if (!claim->bookmark_is_void && !claim->is_alone)
        claim->bookmark_us = pg_int8(rows, count, COL_BOOKMARK);
    claim->answered_ms = clock_mono_ms();
    claim->has_lost = pg_int8(rows, count, COL_LOST) > 0;
    if (claim->is_alone && count > 0)
        claim->turn = TURN_ALONE;
    else if (claim->is_alone) /* another worker has them */
        end_turn(claim);
    note_clock(claim, pg_int8(rows, count, COL_NOW));
}

static void on_claimed(struct pg_query *query, const struct pg_query_result *result)
{
    struct claim *claim = container_of(query, struct claim, query);
    claim->is_in_flight = false;
    claim->has_backlog = false;
    if (result->kind != PG_DONE) {
        /* Unknown: events may be leased without a worker; their leases run out. The poll comes back. */
        if (result->kind != PG_NOT_SENT)
            log_warning("a claim failed", LOG_TEXT("sqlstate", result->sqlstate), LOG_TEXT("why", result->message));
        if (claim->is_alone) /* ordinary events are next, also when such a claim always fails */
            end_turn(claim);
        return;
    }
    int count = count_events(result->rows);
    metric_observe(claim->options.series->claim_seconds, (double)(clock_mono_us() - claim->sent_us) / 1e6);
    if (count > 0)
        metric_observe(claim->options.series->claim_batch_size, count);
    note_last_row(claim, result->rows, count);
    claim->has_backlog = !claim->is_alone && pg_bool(result->rows, count, COL_FILLED);
    if ((claim->has_backlog || claim->is_alone) && claim->demand == DEMAND_NONE)
        claim->demand = DEMAND_DUE;
    for (int row = 0; row < count; row++)
        start_attempt(claim, result->rows, row);
}

/* ---- sending ---- */

static void send_claim(struct claim *claim, int capacity, bool is_alone)
{
    const struct claim_options *options = &claim->options;
    struct pg_query *query = &claim->query;
    claim->demand = DEMAND_NONE;
    claim->is_in_flight = true;
    claim->limit = capacity < CLAIM_MAX ? capacity : CLAIM_MAX;
    claim->is_alone = is_alone;
    claim->sent_us = clock_mono_us();
    claim->sent_ms = claim->sent_us / 1000;
    claim->bookmark_is_void = false;
    claim->token = uuid4_make();
    query->statement = &sql_outbox_claim;
    query->params[0] = pg_param_uuid(&claim->token);
    query->params[1] = pg_param_int8(claim->limit);
    query->params[2] = pg_param_int8(options->config->worker.lease_ms);
    query->params[3] = pg_param_text(options->worker_name, strlen(options->worker_name));
    query->params[4] = claim->bookmark_us >= 0 ? pg_param_int8(claim->bookmark_us) : pg_param_null();
    query->params[5] = pg_param_int8(claim->slack_ms);
    query->params[6] = pg_param_bool(is_alone);
    query->params[7] = pg_param_text(OUTBOX_EVENT_TYPE, strlen(OUTBOX_EVENT_TYPE));
    query->params[8] = pg_param_bool(false);
    query->timeout_ms = CLAIM_TIMEOUT_MS;
    query->on_result = on_claimed;
    pg_pool_submit(options->pool, query);
}

static void on_loop_turn(uv_prepare_t *prepare)
{
    struct claim *claim = container_of(prepare, struct claim, prepare);
    const struct slots *slots = claim->options.slots;
    bool is_alone;
    if (claim->is_in_flight || claim->is_stopped || !take_turn(claim, &is_alone) || claim->demand == DEMAND_NONE)
        return;
    int capacity = slots_capacity(slots, claim->options.peers, clock_mono_ms());
    /* Under a backlog a claim waits until it can take a good number of events; each slot that becomes free is a new
     * check. */
    bool may_wait = claim->has_backlog && claim->demand == DEMAND_DUE && slots->in_flight > 0;
    int least = may_wait ? slots_claim_threshold(slots, claim->options.peers) : 1;
    if (capacity >= least) /* else the demand stays */
        send_claim(claim, capacity, is_alone);
}

static void on_poll(uv_timer_t *timer)
{
    struct claim *claim = container_of(timer, struct claim, poll);
    if (claim->is_stopped)
        return;
    claim->demand = DEMAND_POLL;
    if (claim->slack_ms > SLACK_MIN_MS && clock_mono_ms() - claim->late_ms >= SLACK_HELD_MS) {
        claim->slack_ms /= 2;
        claim->late_ms = clock_mono_ms();
    }
}

int64_t claim_bookmark_us(const struct claim *claim)
{
    /* When nothing could be claimed for long, the bookmark of a dead worker may have been ahead of ours. */
    bool is_fresh = clock_mono_ms() - claim->answered_ms < claim->options.config->worker.lease_ms;
    return is_fresh ? claim->bookmark_us : -1;
}

void claim_go_back(struct claim *claim, int64_t due_us)
{
    claim_wake(claim);
    if (claim->bookmark_us < 0 || due_us >= claim->bookmark_us)
        return;
    claim->bookmark_us = due_us;
    claim->bookmark_is_void = true;
    claim->late_ms = clock_mono_ms();
    if (claim->slack_ms < SLACK_MAX_MS)
        claim->slack_ms = claim->slack_ms * 2 < SLACK_MAX_MS ? claim->slack_ms * 2 : SLACK_MAX_MS;
}

void claim_wake(struct claim *claim)
{
    if (claim->demand == DEMAND_NONE)
        claim->demand = DEMAND_DUE;
}

void claim_capacity_changed(struct claim *claim)
{
    if (claim->has_backlog)
        claim_wake(claim);
}

/* ---- open, drain, close ---- */

bool claim_open(const struct claim_options *options, struct claim **ret_claim, struct err *err)
{
    struct claim *claim = calloc(1, sizeof(*claim));
    if (!claim)
        return err_set(err, ERR_MEMORY, "no memory for the claims");
    claim->options = *options;
    claim->bookmark_us = -1;
    claim->slack_ms = SLACK_MIN_MS;
    uv_timer_init(options->loop, &claim->poll);
    uv_timer_start(&claim->poll, on_poll, 1, (uint64_t)options->config->worker.poll_interval_ms);
    uv_prepare_init(options->loop, &claim->prepare);
    uv_prepare_start(&claim->prepare, on_loop_turn);
    *ret_claim = claim;
    return true;
}

void claim_stop(struct claim *claim)
{
    claim->is_stopped = true;
    uv_timer_stop(&claim->poll);
}

bool claim_is_idle(const struct claim *claim)
{
    return !claim->is_in_flight;
}

void claim_close(struct claim *claim, void (*on_closed)(void *context), void *context)
{
    assert(claim_is_idle(claim));
    closing_start(&claim->closing, free, claim, on_closed, context);
    closing_handle(&claim->closing, &claim->poll);
    closing_handle(&claim->closing, &claim->prepare);
    closing_end(&claim->closing);
}
