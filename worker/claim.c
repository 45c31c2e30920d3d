/* See claim.h. */
#include "worker/claim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/sql/statements.h"
#include "worker/sweep.h"
#include "worker/worker.h"

#define CLAIM_MAX 256    /* events by one statement */
#define SLACK_MIN_MS 100 /* so long after its time an event may become visible and still be claimed without the sweep */
#define SLACK_MAX_MS 2000
#define SLACK_KEPT_MS 60000
#define CLAIM_TIMEOUT_MS 5000
#define ALONE_PAUSE_MS 20
#define ALONE_PAUSE_FACTOR 4

struct claim {
    struct worker *worker;
    uv_timer_t poll;
    uv_prepare_t turn;
    int open_handles;
    struct pg_ask ask;
    bool is_asking;
    bool wanted;      /* something may be due */
    bool polled;      /* long enough waited: with whatever room there is */
    bool more_likely; /* the last claim was filled to the brim */
    bool is_stopped;
    struct uuid token;
    int64_t asked_limit, asked_ms, asked_us;
    bool asked_alone;          /* for one event that is tried alone */
    bool has_lost;             /* such events are there */
    bool is_emptying;          /* no others are claimed, so that the worker becomes empty */
    bool is_alone;             /* one is at work */
    int64_t alone_since_ms;    /* since the others were held back */
    int64_t alone_due_ms;      /* not before */
    int64_t bookmark_us;       /* -1 = from the beginning */
    int64_t answered_ms;       /* when the bookmark was last moved on */
    int64_t slack_ms, late_ms; /* late_ms: when something was last found behind the bookmark */
    bool went_back;            /* while a claim was in flight: its bookmark is void */
    bool is_careful;           /* the last one was not committed: the next one begins nothing before its commit */
    /* On rows that are not committed yet; by their `next`. */
    struct flow *begun, **begun_end;
    void (*on_closed)(void *context);
    void *closed_context;
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
};

static void copy_text(char *to, size_t size, struct slice from)
{
    size_t length = from.bytes && from.length < size ? from.length : 0;
    if (length)
        memcpy(to, from.bytes, length);
    to[length] = '\0';
}

static bool is_traceparent(struct slice text)
{
    if (!text.bytes || text.length != 55 || memcmp(text.bytes, "00-", 3) != 0 || text.bytes[35] != '-' ||
        text.bytes[52] != '-')
        return false;
    for (size_t i = 3; i < 55; i++)
        if (i != 35 && i != 52 && !strchr("0123456789abcdef", text.bytes[i]))
            return false;
    return memcmp(text.bytes + 3, "00000000000000000000000000000000", 32) != 0;
}

static void read_card(struct flow *flow, const struct pg_rows *rows, int row)
{
    flow->is_saved = !pg_is_null(rows, row, COL_CARD);
    memset(&flow->save, 0, sizeof flow->save);
    if (!flow->is_saved)
        return;
    flow->save.card_id = pg_uuid(rows, row, COL_CARD);
    copy_text(flow->card.id, sizeof flow->card.id, pg_bytes(rows, row, COL_CARD_ISSUER_ID));
    copy_text(flow->save.last4, sizeof flow->save.last4, pg_bytes(rows, row, COL_CARD_LAST4));
    flow->save.exp_month = (int)pg_int8(rows, row, COL_CARD_MONTH);
    flow->save.exp_year = (int)pg_int8(rows, row, COL_CARD_YEAR);
}

/* What another service wrote may be anything: false = payload_invalid. */
static bool read_request(struct flow *flow, const struct pg_rows *rows, int row)
{
    struct slice user = pg_bytes(rows, row, COL_USER), payload = pg_bytes(rows, row, COL_PAYLOAD);
    struct outbox_fault faults[OUTBOX_FAULTS_MAX];
    copy_text(flow->user_id, sizeof flow->user_id, user);
    copy_text(flow->replaces_issuer_id, sizeof flow->replaces_issuer_id, pg_bytes(rows, row, COL_REPLACES_ISSUER_ID));
    if (!outbox_user_id_is_valid(user.bytes, user.length) ||
        outbox_payload_read(payload.bytes, payload.length, &flow->payload, faults) != 0)
        return false;
    return !flow->payload.is_reissue || flow->replaces_issuer_id[0] != '\0';
}

/* What it may do before the claim is committed is flow.h's. */
static void begin(struct claim *claim, const struct pg_rows *rows, int row)
{
    struct flow *flow = worker_take_slot(claim->worker);
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
    copy_text(flow->deferral_code, sizeof flow->deferral_code, pg_bytes(rows, row, COL_DEFERRAL_CODE));
    flow->changed_age_ms = pg_int8(rows, row, COL_CHANGED_AGE);
    flow->claimed_ms = claim->asked_ms;
    flow->lease_until_ms = claim->asked_ms + claim->worker->config->worker.lease_ms;
    struct slice trace = pg_bytes(rows, row, COL_TRACEPARENT);
    copy_text(flow->traceparent, sizeof flow->traceparent, is_traceparent(trace) ? trace : (struct slice){0});
    copy_text(flow->held_end, sizeof flow->held_end, pg_bytes(rows, row, COL_HELD_END));
    if (!pg_is_null(rows, row, COL_CANCEL_CODE))
        flow->held_end[0] = '\0'; /* its card was seen, and goes */
    copy_text(flow->held_code, sizeof flow->held_code,
              pg_bytes(rows, row, flow->held_end[0] ? COL_HELD_END_CODE : COL_CANCEL_CODE));
    read_card(flow, rows, row);
    bool is_readable = read_request(flow, rows, row);
    flow->next = NULL;
    *claim->begun_end = flow;
    claim->begun_end = &flow->next;
    flow_begin(flow, is_readable);
}

/* The last row is the bookmark. */
static int count_events(const struct pg_rows *rows)
{
    assert(pg_rows_count(rows) > 0);
    return pg_rows_count(rows) - 1;
}

static void begin_all(struct claim *claim, const struct pg_rows *rows)
{
    for (int row = 0; row < count_events(rows); row++)
        begin(claim, rows, row);
}

static void on_rows(struct pg_ask *ask, const struct pg_rows *rows)
{
    begin_all(container_of(ask, struct claim, ask), rows);
}

/* None of them ends, and so none leaves the list, before it is told. */
static void tell_begun(struct claim *claim, void (*tell)(struct flow *flow))
{
    struct flow *flow = claim->begun;
    claim->begun = NULL;
    while (flow) {
        struct flow *next = flow->next; /* a slot that it leaves goes to another list */
        tell(flow);
        flow = next;
    }
}

/* The next turn to try an event alone comes after a pause, longer than this one held the others back. */
static void end_turn(struct claim *claim)
{
    int64_t now_ms = clock_mono_ms();
    claim->is_emptying = claim->is_alone = false;
    claim->alone_due_ms = now_ms + (now_ms - claim->alone_since_ms) * ALONE_PAUSE_FACTOR + ALONE_PAUSE_MS;
}

static void note_last_row(struct claim *claim, const struct pg_rows *rows, int count)
{
    struct worker *worker = claim->worker;
    claim->has_lost = pg_int8(rows, count, COL_LOST) > 0;
    if (claim->asked_alone) {
        claim->is_emptying = false;
        claim->is_alone = count > 0;
        if (count == 0) /* another worker has them */
            end_turn(claim);
    }
    switch (db_clock_note(&worker->db_clock, pg_int8(rows, count, COL_NOW), claim->asked_us, clock_mono_us())) {
    case DB_CLOCK_STEADY:
        return;
    case DB_CLOCK_SET_FORWARD:
        log_warning("the database's clock was set forward");
        return;
    case DB_CLOCK_SET_BACK:
        log_warning("the database's clock was set back");
        sweep_rebase(worker->sweep);
        return;
    }
}

static void on_claimed(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct claim *claim = container_of(ask, struct claim, ask);
    claim->is_asking = false;
    claim->more_likely = false;
    if (answer->kind != PG_DONE) {
        /* Unknown: events may be leased to nobody; their leases run out. The poll comes back. */
        if (answer->kind != PG_NOT_SENT)
            log_warning("a claim failed", LOG_TEXT("sqlstate", answer->sqlstate), LOG_TEXT("why", answer->message));
        claim->is_careful = true;
        if (claim->asked_alone) /* the others' turn, also when such a claim always fails */
            end_turn(claim);
        tell_begun(claim, flow_claim_lost);
        return;
    }
    if (!ask->on_rows)
        begin_all(claim, answer->rows);
    claim->is_careful = false;
    int count = count_events(answer->rows);
    if (!claim->went_back && !claim->asked_alone)
        claim->bookmark_us = pg_int8(answer->rows, count, COL_BOOKMARK);
    claim->answered_ms = clock_mono_ms();
    note_last_row(claim, answer->rows, count);
    claim->more_likely = !claim->asked_alone && count >= claim->asked_limit;
    if (claim->more_likely || claim->asked_alone)
        claim->wanted = true;
    tell_begun(claim, flow_claim_held);
}

/* Events that may be what kills a worker are tried one by one, with nothing else in this worker's hands. The others are not claimed while such a
 * turn waits for the worker to be empty, nor while it runs; so there is a pause between two turns, longer than a turn. Returns false: not now. */
static bool take_turns(struct claim *claim, bool *ret_alone)
{
    int64_t now_ms = clock_mono_ms();
    *ret_alone = false;
    if (claim->is_alone && claim->worker->in_flight == 0) {
        end_turn(claim);
        claim->wanted = true;
    }
    if (claim->is_alone)
        return false;
    if (!claim->has_lost || now_ms < claim->alone_due_ms)
        return true;
    if (!claim->is_emptying) {
        claim->is_emptying = true;
        claim->alone_since_ms = now_ms;
    }
    *ret_alone = true;
    return claim->worker->in_flight == 0;
}

static void on_turn(uv_prepare_t *prepare)
{
    struct claim *claim = container_of(prepare, struct claim, turn);
    bool alone;
    if (claim->is_asking || claim->is_stopped || !take_turns(claim, &alone) || !claim->wanted)
        return;
    int room = worker_room(claim->worker);
    /* Under a backlog a claim waits until it can take a good number; each slot that ends looks again. */
    int least =
        claim->more_likely && !claim->polled && claim->worker->in_flight > 0 ? worker_good_room(claim->worker) : 1;
    if (room < least)
        return; /* `wanted` stays: claim_room_changed or the poll comes */
    claim->wanted = claim->polled = false;
    claim->is_asking = true;
    claim->asked_limit = room < CLAIM_MAX ? room : CLAIM_MAX;
    claim->asked_alone = alone;
    claim->asked_us = clock_mono_us();
    claim->asked_ms = claim->asked_us / 1000;
    claim->went_back = false;
    claim->begun_end = &claim->begun;
    claim->token = uuid4_make();
    claim->ask.statement = &sql_outbox_claim;
    claim->ask.params[0] = pg_param_uuid(&claim->token);
    claim->ask.params[1] = pg_param_int8(claim->asked_limit);
    claim->ask.params[2] = pg_param_int8(claim->worker->config->worker.lease_ms);
    claim->ask.params[3] = pg_param_text(claim->worker->name, strlen(claim->worker->name));
    claim->ask.params[4] = claim->bookmark_us >= 0 ? pg_param_int8(claim->bookmark_us) : pg_param_null();
    claim->ask.params[5] = pg_param_int8(claim->slack_ms);
    claim->ask.params[6] = pg_param_bool(alone);
    claim->ask.timeout_ms = CLAIM_TIMEOUT_MS;
    /* A database that commits nothing must not make every poll a question to core-api. */
    claim->ask.on_rows = claim->is_careful ? NULL : on_rows;
    claim->ask.on_answer = on_claimed;
    pg_pool_ask(claim->worker->pool, &claim->ask);
}

static void on_poll(uv_timer_t *timer)
{
    struct claim *claim = container_of(timer, struct claim, poll);
    if (claim->is_stopped)
        return;
    claim->wanted = claim->polled = true;
    if (claim->slack_ms > SLACK_MIN_MS && clock_mono_ms() - claim->late_ms >= SLACK_KEPT_MS) {
        claim->slack_ms /= 2;
        claim->late_ms = clock_mono_ms();
    }
}

int64_t claim_bookmark_us(const struct claim *claim)
{
    /* Where nothing could be claimed for long, a dead worker may have been further on than we are. */
    bool is_fresh = clock_mono_ms() - claim->answered_ms < claim->worker->config->worker.lease_ms;
    return is_fresh ? claim->bookmark_us : -1;
}

void claim_go_back(struct claim *claim, int64_t due_us)
{
    claim->wanted = true;
    if (claim->bookmark_us < 0 || due_us >= claim->bookmark_us)
        return;
    claim->bookmark_us = due_us;
    claim->went_back = true;
    claim->late_ms = clock_mono_ms();
    if (claim->slack_ms < SLACK_MAX_MS)
        claim->slack_ms = claim->slack_ms * 2 < SLACK_MAX_MS ? claim->slack_ms * 2 : SLACK_MAX_MS;
}

void claim_hint(struct claim *claim)
{
    claim->wanted = true;
}

void claim_room_changed(struct claim *claim)
{
    if (claim->more_likely)
        claim->wanted = true;
}

bool claim_open(struct worker *worker, struct claim **ret_claim, struct err *err)
{
    struct claim *claim = calloc(1, sizeof *claim);
    if (!claim)
        return err_set(err, ERR_MEMORY, "no memory for the claims");
    claim->worker = worker;
    claim->bookmark_us = -1;
    claim->slack_ms = SLACK_MIN_MS;
    uv_timer_init(worker->loop, &claim->poll);
    uv_timer_start(&claim->poll, on_poll, 1, (uint64_t)worker->config->worker.poll_interval_ms);
    uv_prepare_init(worker->loop, &claim->turn);
    uv_prepare_start(&claim->turn, on_turn);
    claim->open_handles = 2;
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
    return !claim->is_asking;
}

static void handle_closed(struct claim *claim)
{
    if (--claim->open_handles > 0)
        return;
    void (*on_closed)(void *context) = claim->on_closed;
    void *context = claim->closed_context;
    free(claim);
    on_closed(context);
}

static void on_poll_closed(uv_handle_t *handle)
{
    handle_closed(container_of((uv_timer_t *)handle, struct claim, poll));
}

static void on_turn_closed(uv_handle_t *handle)
{
    handle_closed(container_of((uv_prepare_t *)handle, struct claim, turn));
}

void claim_close(struct claim *claim, void (*on_closed)(void *context), void *context)
{
    assert(claim_is_idle(claim) && !claim->begun);
    claim->on_closed = on_closed;
    claim->closed_context = context;
    uv_close((uv_handle_t *)&claim->poll, on_poll_closed);
    uv_close((uv_handle_t *)&claim->turn, on_turn_closed);
}
