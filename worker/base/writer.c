/* See writer.h. A lane for each kind of write: a batcher with its statement. Completions have two lanes, one for cards
 * and one for deliveries, since all rows of a batch have the same step, and so that neither waits for the other's
 * locks. */
#include "worker/base/writer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/again.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "statements.h"

#define BATCH_MAX 256
#define BATCHES 2
#define GATHER_MS 25
#define GATHER_MAX 128 /* items */
#define GATHER_PART 8  /* of the events in flight: the others keep the peers busy */
#define ARRAY_BYTES_MAX (1024 * 1024)
#define TIMEOUT_MS 5000

enum { LANE_DELIVERED = WRITE_KINDS, LANES };

struct lane {
    struct writer *writer;
    struct pg_batcher *batcher;
};

struct writer {
    const struct worker_env *env;
    void (*on_final)(void *context);
    void *context;
    struct lane lanes[LANES];
    struct again held; /* ends whose order is locked by another session */
    struct closing closing;
};

static struct write_op *op_of(const struct pg_batch_item *item)
{
    return container_of(item, struct write_op, item);
}

static struct pg_batcher *batcher_of(struct writer *writer, const struct write_op *op)
{
    bool is_delivery = op->kind == WRITE_COMPLETE && strcmp(op->end->step, "link") != 0;
    return writer->lanes[is_delivery ? LANE_DELIVERED : (int)op->kind].batcher;
}

void writer_submit(struct writer *writer, struct write_op *op)
{
    op->item.deadline_ms = op->deadline_ms;
    op->again.count = 0;
    pg_batcher_add(batcher_of(writer, op), &op->item);
}

static void on_due(void *context, struct again_item *item)
{
    struct write_op *op = container_of(item, struct write_op, again);
    pg_batcher_add_again(batcher_of(context, op), &op->item, true);
}

/* ---- the parameters, in the order of the statements in outbox.sql ---- */

static void add_text_or_null(struct pg_columns *columns, const char *text)
{
    pg_columns_add_text(columns, text[0] ? text : NULL);
}

static void add_guard(struct pg_columns *columns, const struct write_op *op)
{
    pg_columns_add_uuid(columns, &op->event_id);
    pg_columns_add_uuid(columns, &op->token);
}

static void add_save(void *context, struct pg_columns *columns, const struct pg_batch_item *item)
{
    (void)context;
    const struct write_op *op = op_of(item);
    const struct write_save *save = op->save;
    add_guard(columns, op);
    pg_columns_add_uuid(columns, &save->card_id);
    pg_columns_add_text(columns, save->issuer_card_id);
    pg_columns_add_text(columns, save->last4);
    pg_columns_add_int8(columns, save->exp_month);
    pg_columns_add_int8(columns, save->exp_year);
    pg_columns_add_bytea(columns, save->record_length ? save->record : NULL, save->record_length);
    pg_columns_add_uuid(columns, save->is_reissue ? &save->replaces : NULL);
}

static void add_extend(void *context, struct pg_columns *columns, const struct pg_batch_item *item)
{
    const struct lane *lane = context;
    add_guard(columns, op_of(item));
    pg_columns_set_scalar(columns, pg_param_int8(lane->writer->env->config->worker.lease_ms));
}

static void add_keep(void *context, struct pg_columns *columns, const struct pg_batch_item *item)
{
    (void)context;
    const struct write_op *op = op_of(item);
    add_guard(columns, op);
    pg_columns_add_text(columns, op->parameters);
}

static void add_mark(void *context, struct pg_columns *columns, const struct pg_batch_item *item)
{
    (void)context;
    const struct write_op *op = op_of(item);
    add_guard(columns, op);
    pg_columns_add_text(columns, op->cancel_code);
    pg_columns_add_text(columns, op->parameters);
}

static void add_end(void *context, struct pg_columns *columns, const struct pg_batch_item *item)
{
    const struct lane *lane = context;
    const struct write_op *op = op_of(item);
    const struct write_end *end = op->end;
    add_guard(columns, op);
    pg_columns_add_text(columns, outbox_status_name(end->status));
    pg_columns_add_int8(columns, end->delay_ms);
    pg_columns_add_bool(columns, end->give_back);
    pg_columns_add_bool(columns, end->clear_sent);
    pg_columns_add_bool(columns, end->deferred);
    add_text_or_null(columns, end->reason_code);
    pg_columns_add_text(columns, end->reason_code[0] ? outbox_reason_detail(end->reason_code) : NULL);
    add_text_or_null(columns, end->last_error);
    pg_columns_add_text(columns, end->step);
    pg_columns_add_text(columns, end->outcome);
    add_text_or_null(columns, end->cause);
    add_text_or_null(columns, end->detail);
    pg_columns_add_bool(columns, end->unknown);
    pg_columns_add_int8(columns, end->took_ms);
    pg_columns_add_text(columns, end->card_status);
    pg_columns_add_uuid(columns, end->replaces ? &end->replaced : NULL);
    pg_columns_add_bool(columns, end->may_arrive);
    pg_columns_add_text(columns, end->held_end);
    add_text_or_null(columns, end->held_end_code);
    pg_columns_add_text(columns, op->parameters);
    pg_columns_add_text(columns, op->result);
    pg_columns_set_scalar(columns, pg_param_string(lane->writer->env->name));
}

static void add_complete(void *context, struct pg_columns *columns, const struct pg_batch_item *item)
{
    const struct lane *lane = context;
    const struct write_op *op = op_of(item);
    const struct write_end *end = op->end;
    assert(write_end_kind(end) == WRITE_COMPLETE); /* the statement writes nothing of what makes another end */
    add_guard(columns, op);
    pg_columns_set_scalar(columns, pg_param_string(lane->writer->env->name));
    pg_columns_add_int8(columns, end->took_ms);
    pg_columns_set_scalar(columns, pg_param_string(end->step));
    pg_columns_add_text(columns, op->result);
}

/* ---- the results ---- */

/* The first column of each statement; the second of save. */
enum { COL_EVENT_ID, COL_CARD_ID };

static bool is_end(const struct write_op *op)
{
    return op->kind == WRITE_END || op->kind == WRITE_COMPLETE;
}

static int compare_items(const void *left, const void *right)
{
    const struct write_op *left_op = op_of(*(struct pg_batch_item *const *)left);
    const struct write_op *right_op = op_of(*(struct pg_batch_item *const *)right);
    return memcmp(&left_op->event_id, &right_op->event_id, sizeof(struct uuid));
}

static int compare_event_id(const void *event_id, const void *item)
{
    return memcmp(event_id, &op_of(*(struct pg_batch_item *const *)item)->event_id, sizeof(struct uuid));
}

static void end_by_guard(struct write_op *op)
{
    bool is_done = op->has_row;
    /* Most likely our own earlier try ended the attempt; either way there is nothing left to write. */
    if (!is_done && op->item.may_be_done && is_end(op))
        is_done = true;
    op->on_written(op, is_done ? WRITE_DONE : WRITE_FENCED, "");
}

/* An event whose token has changed has no row. */
static void on_done(void *context, struct pg_batch_item **items, int count, const struct pg_rows *rows)
{
    const struct writer *writer = ((struct lane *)context)->writer;
    bool any_final = false;
    qsort(items, (size_t)count, sizeof(items[0]), compare_items);
    for (int i = 0; i < count; i++)
        op_of(items[i])->has_row = false;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        struct uuid event_id = pg_uuid(rows, row, COL_EVENT_ID);
        struct pg_batch_item **found = bsearch(&event_id, items, (size_t)count, sizeof(items[0]), compare_event_id);
        if (!found)
            continue;
        struct write_op *op = op_of(*found);
        op->has_row = true;
        if (op->kind == WRITE_SAVE)
            op->save->card_id = pg_uuid(rows, row, COL_CARD_ID);
        any_final |= is_end(op) && outbox_status_is_final(op->end->status);
    }
    for (int i = 0; i < count; i++)
        end_by_guard(op_of(items[i]));
    if (any_final)
        writer->on_final(writer->context);
}

static bool on_refused(void *context, struct pg_batch_item *item, const struct pg_query_result *result)
{
    struct writer *writer = ((struct lane *)context)->writer;
    struct write_op *op = op_of(item);
    if (strcmp(result->sqlstate, "ISBSY") == 0 && clock_mono_ms() < op->deadline_ms)
        again_add(&writer->held, &op->again);
    else
        op->on_written(op, WRITE_GIVEN_UP, result->message);
    return false;
}

static void on_given_up(void *context, struct pg_batch_item *item, const char *why)
{
    (void)context;
    op_of(item)->on_written(op_of(item), WRITE_GIVEN_UP, why);
}

/* ---- open, close ---- */

static const struct {
    const struct sql_statement *statement;
    struct pg_batcher_hooks hooks;
} lanes[LANES] = {
    [WRITE_SAVE] = {&sql_outbox_save, {add_save, on_done, on_refused, on_given_up, NULL}},
    [WRITE_EXTEND] = {&sql_outbox_extend, {add_extend, on_done, on_refused, on_given_up, NULL}},
    [WRITE_KEEP] = {&sql_outbox_keep, {add_keep, on_done, on_refused, on_given_up, NULL}},
    [WRITE_MARK] = {&sql_outbox_mark, {add_mark, on_done, on_refused, on_given_up, NULL}},
    [WRITE_END] = {&sql_outbox_end, {add_end, on_done, on_refused, on_given_up, NULL}},
    [WRITE_COMPLETE] = {&sql_outbox_complete, {add_complete, on_done, on_refused, on_given_up, NULL}},
    [LANE_DELIVERED] = {&sql_outbox_complete, {add_complete, on_done, on_refused, on_given_up, NULL}},
};

bool writer_open(const struct worker_env *env, void (*on_final)(void *context), void *context,
                 struct writer **ret_writer, struct err *err)
{
    struct writer *writer = calloc(1, sizeof(*writer));
    if (!writer)
        return err_set(err, ERR_MEMORY, "no memory for the writer");
    writer->env = env;
    writer->on_final = on_final;
    writer->context = context;
    int part = (int)env->config->worker.max_in_flight / GATHER_PART,
        gather_items = part < GATHER_MAX ? part : GATHER_MAX;
    writer->held = (struct again){.base_ms = 20, .cap_ms = 1000, .on_due = on_due, .context = writer};
    again_open(&writer->held, env->loop);
    for (int i = 0; i < LANES; i++) {
        struct lane *lane = &writer->lanes[i];
        struct pg_batcher_options batcher = {
            .loop = env->loop,
            .pool = env->pool,
            .statement = lanes[i].statement,
            .hooks = &lanes[i].hooks,
            .context = lane,
            .batch_count = BATCHES,
            .items_max = BATCH_MAX,
            .array_bytes_max = ARRAY_BYTES_MAX,
            .growth = 2,
            .gather_ms = GATHER_MS,
            .gather_items = gather_items,
            .timeout_ms = TIMEOUT_MS,
            .retry_base_ms = 20,
            .retry_cap_ms = 1000,
        };
        lane->writer = writer;
        if (!pg_batcher_open(&batcher, &lane->batcher, err)) {
            writer_close(writer, NULL, NULL);
            return false;
        }
    }
    *ret_writer = writer;
    return true;
}

void writer_close(struct writer *writer, void (*on_closed)(void *context), void *context)
{
    closing_start(&writer->closing, free, writer, on_closed, context);
    for (int i = 0; i < LANES; i++)
        if (writer->lanes[i].batcher)
            pg_batcher_close(writer->lanes[i].batcher, closing_part_closed, closing_part(&writer->closing));
    again_close(&writer->held, &writer->closing);
    closing_end(&writer->closing);
}
