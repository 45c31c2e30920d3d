/* See acceptor.h. accept_queue.h decides which request of a user may go; pg_batch.h makes the batches.
 *
 * Invariant: the queue holds a request from acceptor_submit() to its one decision; the batcher has at most one of each
 * user. */
#include "api/acceptor.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/accept_check.h"
#include "api/accept_queue.h"
#include "common/lib/base/again.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/log.h"
#include "common/lib/base/slice.h"
#include "common/lib/pg/pg_batch.h"
#include "statements.h"

#define BATCH_MAX 64
#define BATCHES_MAX 16
#define ARRAY_BYTES_MAX (4 * 1024 * 1024)
#define TIMEOUT_MS 5000
#define AWAY_TIMEOUT_MS 1000  /* while no connection is up */
#define ACCEPT_WITHIN_MS 8000 /* from acceptor_submit() to a verdict, however often it is tried */
#define LOG_GAP_MS 1000       /* between lines about requests that were given up */
#define BUSY_WITHIN_MS 2000   /* from the first try that found the user's lock taken to the end of the last */
#define BUSY_BASE_MS 5        /* between such tries, growing */
#define BUSY_CAP_MS 100
#define NOTE_AFTER 3      /* requests that were given up for their users' locks */
#define NOTE_FOR_MS 60000 /* after the last of them */

struct acceptor {
    struct acceptor_options options;
    struct accept_queue queue;
    struct pg_batcher *batcher;
    struct accept_check check;
    struct acceptance *refused; /* by the schema; they are sent once more after the check */
    struct again busy;          /* those whose users' locks are taken */
    int user_locks;             /* requests given up for it, none of them NOTE_FOR_MS after the one before */
    int64_t user_lock_ms;       /* the last */
    char note[120];
    int64_t given_up_logged_ms; /* when the log got the last line about requests that were given up */
    struct closing closing;
};

static struct acceptance *acceptance_of(const struct pg_batch_item *item)
{
    return container_of(item, struct acceptance, item);
}

bool acceptor_submit(struct acceptor *acceptor, struct acceptance *acceptance)
{
    acceptance->item.since_ms = clock_mono_ms();
    acceptance->item.deadline_ms = acceptance->item.since_ms + ACCEPT_WITHIN_MS;
    acceptance->was_repeated = acceptance->was_checked = false;
    acceptance->again.count = 0;
    switch (accept_queue_add(&acceptor->queue, acceptance)) {
    case ACCEPT_QUEUE_READY:
        pg_batcher_add(acceptor->batcher, &acceptance->item);
        return true;
    case ACCEPT_QUEUE_BEHIND:
        return true;
    case ACCEPT_QUEUE_FULL:
        return false;
    }
    assert(!"the queue has no other results");
    return false;
}

static void decide(struct acceptor *acceptor, struct acceptance *acceptance, enum acceptance_verdict verdict)
{
    struct acceptance *next = accept_queue_remove(&acceptor->queue, acceptance);
    if (next)
        pg_batcher_add(acceptor->batcher, &next->item);
    acceptance->on_decided(acceptance, verdict);
}

/* ---- hooks of the batcher ---- */

/* In the order of the parameters in accept.sql. */
static void add_row(void *context, struct pg_columns *columns, const struct pg_batch_item *item)
{
    const struct config *config = ((struct acceptor *)context)->options.config;
    const struct acceptance *acceptance = acceptance_of(item);
    pg_columns_add_uuid(columns, &acceptance->proposed_id);
    pg_columns_add_text(columns, acceptance->user_id);
    pg_columns_add_slice(columns, (struct slice){acceptance->client_key.text, acceptance->client_key.length});
    pg_columns_add_bytea(columns, acceptance->fingerprint, FINGERPRINT_SIZE);
    pg_columns_add_slice(columns, acceptance->payload);
    pg_columns_add_slice(columns, acceptance->traceparent);
    pg_columns_add_slice(columns, acceptance->tracestate);
    pg_columns_set_scalar(columns, pg_param_int8(config->limit.count));
    pg_columns_set_scalar(columns, pg_param_int8(config->limit.window_ms));
    pg_columns_set_scalar(columns, pg_param_bool(config->limit.counts == LIMIT_COUNTS_ATTEMPTS));
    pg_columns_set_scalar(columns, pg_param_int8(config->idempotency.retention_ms));
}

static enum acceptance_verdict verdict_of(struct slice text)
{
    static const char *const words[] = {
        [ACCEPTANCE_ACCEPTED] = "accepted", [ACCEPTANCE_REPLAYED] = "replayed",
        [ACCEPTANCE_REUSED] = "reused",     [ACCEPTANCE_NOT_REPLACEABLE] = "not_replaceable",
        [ACCEPTANCE_LIMITED] = "limited",   [ACCEPTANCE_IN_PROGRESS] = "recording",
        [ACCEPTANCE_USER_BUSY] = "busy",
    };
    int verdict = slice_among(text, words, ARRAY_SIZE(words));
    /* of a newer schema: a repeat with the same key finds out */
    return verdict >= 0 ? (enum acceptance_verdict)verdict : ACCEPTANCE_UNAVAILABLE;
}

enum { COL_VERDICT, COL_EVENT_ID, COL_CREATED_AT, COL_USED, COL_OLDEST_AT, COL_FREES_AT, COL_DECIDED_AT };

static void read_row(struct acceptance *acceptance, const struct pg_rows *rows, int row, int64_t window_us)
{
    int64_t decided_us = pg_time_us(rows, row, COL_DECIDED_AT);
    bool has_oldest = !pg_is_null(rows, row, COL_OLDEST_AT), has_frees = !pg_is_null(rows, row, COL_FREES_AT);
    acceptance->event_id = pg_uuid(rows, row, COL_EVENT_ID);
    acceptance->created_us = pg_time_us(rows, row, COL_CREATED_AT);
    acceptance->used = pg_int8(rows, row, COL_USED);
    acceptance->oldest_in_us = has_oldest ? pg_time_us(rows, row, COL_OLDEST_AT) + window_us - decided_us : -1;
    acceptance->frees_in_us = has_frees ? pg_time_us(rows, row, COL_FREES_AT) - decided_us : 0;
    acceptance->decided_us = clock_mono_us();
}

static bool fail(struct acceptor *acceptor, struct acceptance *acceptance, enum acceptance_failure failure)
{
    metric_add(acceptor->options.failures[failure], 1);
    decide(acceptor, acceptance,
           failure == ACCEPTANCE_USER_LOCK && acceptance->item.may_be_done ? ACCEPTANCE_IN_PROGRESS
           : failure == ACCEPTANCE_USER_LOCK                               ? ACCEPTANCE_USER_BUSY
           : failure == ACCEPTANCE_MOVED                                   ? ACCEPTANCE_USER_MOVING
                                                                           : ACCEPTANCE_UNAVAILABLE);
    return false;
}

/* ---- users whose locks are taken ---- */

static void give_up_busy(struct acceptor *acceptor, struct acceptance *acceptance)
{
    int64_t now_ms = clock_mono_ms();
    if (now_ms - acceptor->user_lock_ms > NOTE_FOR_MS)
        acceptor->user_locks = 0;
    if (acceptor->user_locks++ == 0)
        log_warning("another session holds a user's lock, whose request is not recorded");
    acceptor->user_lock_ms = now_ms;
    (void)fail(acceptor, acceptance, ACCEPTANCE_USER_LOCK);
}

static void on_due(void *context, struct again_item *item)
{
    struct acceptor *acceptor = context;
    pg_batcher_add_again(acceptor->batcher, &container_of(item, struct acceptance, again)->item, false);
}

/* is_recorded: another call recorded it under the same key. */
static void try_again(struct acceptor *acceptor, struct acceptance *acceptance, bool is_recorded)
{
    int64_t now_ms = clock_mono_ms(), last_ms = acceptance->item.deadline_ms - BUSY_CAP_MS;
    if (acceptance->again.count == 0)
        acceptance->again_until_ms = now_ms + BUSY_WITHIN_MS < last_ms ? now_ms + BUSY_WITHIN_MS : last_ms;
    if (now_ms < acceptance->again_until_ms)
        again_add(&acceptor->busy, &acceptance->again);
    else if (is_recorded)
        decide(acceptor, acceptance, ACCEPTANCE_IN_PROGRESS);
    else
        give_up_busy(acceptor, acceptance);
}

const char *acceptor_note(struct acceptor *acceptor)
{
    if (acceptor->user_locks < NOTE_AFTER || clock_mono_ms() - acceptor->user_lock_ms > NOTE_FOR_MS)
        return "";
    snprintf(acceptor->note, sizeof(acceptor->note), "%d requests were not recorded: other sessions hold users' locks",
             acceptor->user_locks);
    return acceptor->note;
}

/* The rows come back in the order of the items. */
static void on_done(void *context, struct pg_batch_item **items, int count, const struct pg_rows *rows)
{
    struct acceptor *acceptor = context;
    int64_t window_us = acceptor->options.config->limit.window_ms * 1000;
    bool any_accepted = false;
    assert(pg_rows_count(rows) == count);
    metric_observe(acceptor->options.batch_size, count);
    for (int i = 0; i < count; i++) {
        enum acceptance_verdict verdict = verdict_of(pg_bytes(rows, i, COL_VERDICT));
        if (verdict == ACCEPTANCE_USER_BUSY || verdict == ACCEPTANCE_IN_PROGRESS) {
            try_again(acceptor, acceptance_of(items[i]), verdict == ACCEPTANCE_IN_PROGRESS);
            continue;
        }
        any_accepted |= verdict == ACCEPTANCE_ACCEPTED;
        read_row(acceptance_of(items[i]), rows, i, window_us);
        decide(acceptor, acceptance_of(items[i]), verdict);
    }
    /* guard: an acceptance wakes the workers, and a repeat does not */
    if (any_accepted)
        wakeup_send(acceptor->options.wakeup);
}

/* Constraints; names and rights; schemas; features; errors that functions raise: a plan that was withdrawn by the check
 * may have been in the way. */
static bool is_of_schema(const char *sqlstate)
{
    static const char *const classes[] = {"23", "42", "3F", "0A", "P0"};
    for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
        if (strncmp(sqlstate, classes[i], 2) == 0)
            return true;
    return false;
}

/* A full lock table, disk or memory: the requests are tried again, and readiness follows the check. */
static void on_transient(void *context, const char sqlstate[6])
{
    struct acceptor *acceptor = context;
    if (accept_check_is_needed(sqlstate))
        accept_check_start(&acceptor->check);
}

static bool on_refused(void *context, struct pg_batch_item *item, const struct pg_query_result *result)
{
    struct acceptor *acceptor = context;
    struct acceptance *acceptance = acceptance_of(item);
    bool is_schema = is_of_schema(result->sqlstate);
    /* guard: a user that is not served is told from a database that is away */
    if (pg_sqlstate_is_moved(result->sqlstate))
        return fail(acceptor, acceptance, ACCEPTANCE_MOVED);
    /* unique_violation: another service inserted a row between the look and the insert. The next look finds it. */
    if (strcmp(result->sqlstate, "23505") == 0 && !acceptance->was_repeated) {
        acceptance->was_repeated = true;
        return true;
    }
    /* guard: what the schema refuses is sent once more after the check */
    if (is_schema && !acceptance->was_checked) {
        acceptance->was_checked = true;
        acceptance->next_refused = acceptor->refused;
        acceptor->refused = acceptance;
        accept_check_start(&acceptor->check);
        return false;
    }
    if (accept_check_is_needed(result->sqlstate))
        accept_check_start(&acceptor->check);
    char trace_id[TRACE_ID_SIZE];
    trace_id_of(acceptance->traceparent, &acceptance->proposed_id, trace_id);
    log_error("a request could not be recorded", LOG_TEXT("trace_id", trace_id), LOG_TEXT("sqlstate", result->sqlstate),
              LOG_TEXT("why", result->message));
    return fail(acceptor, acceptance,
                strcmp(result->sqlstate, "55P03") == 0    ? ACCEPTANCE_LOCK
                : is_schema || acceptor->check.why_not[0] ? ACCEPTANCE_SCHEMA
                                                          : ACCEPTANCE_OTHER);
}

/* What was refused before the check is sent once more: the check may have removed what was in the way. */
static void on_checked(struct accept_check *check)
{
    struct acceptor *acceptor = container_of(check, struct acceptor, check);
    while (acceptor->refused) {
        struct acceptance *acceptance = acceptor->refused;
        acceptor->refused = acceptance->next_refused;
        pg_batcher_add(acceptor->batcher, &acceptance->item);
    }
}

/* The pool logs that the database is away. A database that is there and refuses again and again, with a full disk for
 * example, would be seen nowhere but in a metric. */
static void on_given_up(void *context, struct pg_batch_item *item, const char *why)
{
    struct acceptor *acceptor = context;
    int64_t now_ms = clock_mono_ms();
    if (pg_pool_ready(acceptor->options.pool) && now_ms - acceptor->given_up_logged_ms >= LOG_GAP_MS) {
        acceptor->given_up_logged_ms = now_ms;
        log_error("requests could not be recorded in time", LOG_TEXT("why", why));
    }
    (void)fail(acceptor, acceptance_of(item), ACCEPTANCE_LATE);
}

static const struct pg_batcher_hooks hooks = {
    .add_row = add_row,
    .on_done = on_done,
    .on_refused = on_refused,
    .on_transient = on_transient,
    .on_given_up = on_given_up,
};

/* ---- open, close ---- */

bool acceptor_open(const struct acceptor_options *options, struct acceptor **ret_acceptor, struct err *err)
{
    struct acceptor *acceptor = calloc(1, sizeof(*acceptor));
    if (!acceptor)
        return err_set(err, ERR_MEMORY, "no memory for the acceptor");
    acceptor->options = *options;
    /* One connection stays free for reads where there is more than one. */
    int64_t connections = options->config->database.connections;
    int64_t batches = connections > 1 ? connections - 1 : 1;
    struct pg_batcher_options batcher = {
        .loop = options->loop,
        .pool = options->pool,
        .statement = &sql_accept_batch,
        .hooks = &hooks,
        .context = acceptor,
        .batch_count = batches > BATCHES_MAX ? BATCHES_MAX : (int)batches,
        .items_max = BATCH_MAX,
        .array_bytes_max = ARRAY_BYTES_MAX,
        .growth = 1,
        .timeout_ms = TIMEOUT_MS,
        .away_timeout_ms = AWAY_TIMEOUT_MS,
        .retry_base_ms = 10,
        .retry_cap_ms = 500,
    };
    if (!pg_batcher_open(&batcher, &acceptor->batcher, err)) {
        free(acceptor);
        return false;
    }
    acceptor->busy =
        (struct again){.base_ms = BUSY_BASE_MS, .cap_ms = BUSY_CAP_MS, .on_due = on_due, .context = acceptor};
    again_open(&acceptor->busy, options->loop);
    acceptor->check = (struct accept_check){.pool = options->pool, .on_checked = on_checked};
    accept_check_open(&acceptor->check, options->loop);
    *ret_acceptor = acceptor;
    return true;
}

static void abandon(struct acceptance *acceptance)
{
    acceptance->on_decided(acceptance, ACCEPTANCE_UNAVAILABLE);
}

void acceptor_abandon(struct acceptor *acceptor)
{
    accept_queue_visit(&acceptor->queue, abandon);
}

int acceptor_held(const struct acceptor *acceptor)
{
    return acceptor->queue.held_count;
}

const char *acceptor_why_not(const struct acceptor *acceptor)
{
    return acceptor->check.why_not;
}

bool acceptor_is_idle(const struct acceptor *acceptor)
{
    return acceptor->queue.held_count == 0 && accept_check_is_idle(&acceptor->check) &&
           pg_batcher_is_idle(acceptor->batcher);
}

void acceptor_close(struct acceptor *acceptor, void (*on_closed)(void *context), void *context)
{
    assert(acceptor_is_idle(acceptor));
    closing_start(&acceptor->closing, free, acceptor, on_closed, context);
    accept_check_close(&acceptor->check, &acceptor->closing);
    again_close(&acceptor->busy, &acceptor->closing);
    pg_batcher_close(acceptor->batcher, closing_part_closed, closing_part(&acceptor->closing));
    closing_end(&acceptor->closing);
}
