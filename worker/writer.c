/* See writer.h. A lane per kind of write: a FIFO and a few batches; each batch owns the arrays that its statement's
 * parameters point to. */
#include "worker/writer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/backoff.h"
#include "common/clock.h"
#include "common/sql/statements.h"

#define BATCH_MAX 256
#define BATCHES 2
#define PATIENCE_MS 10
#define ARRAYS_MAX 21
#define ARRAY_BYTES_MAX (1024 * 1024)
#define WRITE_TIMEOUT_MS 5000

struct batch {
    struct writer *writer;
    struct lane *lane;
    struct pg_ask ask;
    struct buf arrays[ARRAYS_MAX];
    struct write_op *ops[BATCH_MAX];
    int count;
    int tries;
    int64_t since_ms;
    bool is_busy;
    uv_timer_t again; /* waits before the next try */
};

struct lane {
    const struct sql_statement *statement;
    struct write_op *first, *last;
    int waiting; /* so many, from first to last */
    struct batch batches[BATCHES];
    int alone; /* so many of the first ops go one by one: their batch was refused */
};

struct writer {
    struct writer_options options;
    struct lane lanes[WRITE_KINDS];
    uv_prepare_t turn;   /* before the loop sleeps: what was put during a turn goes out together */
    uv_timer_t patience; /* gives it another turn */
    int open_handles;
    void (*on_closed)(void *context);
    void *closed_context;
};

static void append(struct lane *lane, struct write_op *op)
{
    op->next = NULL;
    if (lane->last)
        lane->last->next = op;
    else
        lane->first = op;
    lane->last = op;
    lane->waiting++;
}

/* Linked, done, nothing else to write: what outbox_complete takes for granted. */
static bool is_usual(const struct write_end *end)
{
    return end->status == OUTBOX_COMPLETED && strcmp(end->step, "link") == 0 &&
           strcmp(end->outcome, "completed") == 0 && !end->give_back && !end->clear_sent && !end->may_arrive &&
           !end->deferred && !end->unknown && !end->reason_code[0] && !end->last_error[0] && !end->cause[0] &&
           !end->detail[0] && !end->card_status && !end->replaces;
}

void writer_put(struct writer *writer, struct write_op *op)
{
    assert(op->kind != WRITE_COMPLETE);
    if (op->kind == WRITE_END && is_usual(op->end))
        op->kind = WRITE_COMPLETE;
    op->may_be_written = false;
    append(&writer->lanes[op->kind], op);
}

/* ---- filling the arrays ---- */

static void add_text(struct pg_array *array, const char *text)
{
    pg_array_add(array, text, text ? strlen(text) : 0);
}

static void add_text_or_null(struct pg_array *array, const char *text)
{
    add_text(array, text && text[0] ? text : NULL);
}

static void fill_save(struct batch *batch)
{
    static const enum pg_type types[] = {PG_UUID, PG_UUID, PG_UUID,  PG_TEXT, PG_TEXT,
                                         PG_INT8, PG_INT8, PG_BYTEA, PG_UUID};
    struct pg_array arrays[ARRAY_SIZE(types)];
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        pg_array_start(&arrays[i], &batch->arrays[i], types[i]);
    for (int i = 0; i < batch->count; i++) {
        const struct write_op *op = batch->ops[i];
        const struct write_save *save = op->save;
        pg_array_add_uuid(&arrays[0], &op->event_id);
        pg_array_add_uuid(&arrays[1], &op->token);
        pg_array_add_uuid(&arrays[2], &save->card_id);
        add_text(&arrays[3], save->issuer_card_id);
        add_text(&arrays[4], save->last4);
        pg_array_add_int8(&arrays[5], save->exp_month);
        pg_array_add_int8(&arrays[6], save->exp_year);
        pg_array_add(&arrays[7], save->record_length ? save->record : NULL, save->record_length);
        pg_array_add_uuid(&arrays[8], save->is_reissue ? &save->replaces : NULL);
    }
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        batch->ask.params[i] = pg_array_param(&arrays[i]);
}

static void fill_extend(struct batch *batch)
{
    struct pg_array ids, tokens;
    pg_array_start(&ids, &batch->arrays[0], PG_UUID);
    pg_array_start(&tokens, &batch->arrays[1], PG_UUID);
    for (int i = 0; i < batch->count; i++) {
        pg_array_add_uuid(&ids, &batch->ops[i]->event_id);
        pg_array_add_uuid(&tokens, &batch->ops[i]->token);
    }
    batch->ask.params[0] = pg_array_param(&ids);
    batch->ask.params[1] = pg_array_param(&tokens);
    batch->ask.params[2] = pg_param_int8(batch->writer->options.lease_ms);
}

static void fill_mark(struct batch *batch)
{
    struct pg_array ids, tokens, codes;
    pg_array_start(&ids, &batch->arrays[0], PG_UUID);
    pg_array_start(&tokens, &batch->arrays[1], PG_UUID);
    pg_array_start(&codes, &batch->arrays[2], PG_TEXT);
    for (int i = 0; i < batch->count; i++) {
        pg_array_add_uuid(&ids, &batch->ops[i]->event_id);
        pg_array_add_uuid(&tokens, &batch->ops[i]->token);
        add_text(&codes, batch->ops[i]->cancel_code);
    }
    batch->ask.params[0] = pg_array_param(&ids);
    batch->ask.params[1] = pg_array_param(&tokens);
    batch->ask.params[2] = pg_array_param(&codes);
}

static void fill_end(struct batch *batch)
{
    /* in the order of outbox_end's parameters; 0 stands where $16, a scalar, is */
    static const int types[] = {PG_UUID, PG_UUID, PG_TEXT, PG_INT8, PG_BOOL, PG_BOOL, PG_BOOL, PG_TEXT,
                                PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_BOOL, 0,
                                PG_INT8, PG_TEXT, PG_UUID, PG_BOOL, PG_TEXT, PG_TEXT};
    struct pg_array arrays[ARRAY_SIZE(types)];
    for (size_t i = 0, slot = 0; i < ARRAY_SIZE(types); i++)
        if (types[i])
            pg_array_start(&arrays[i], &batch->arrays[slot++], (enum pg_type)types[i]);
    for (int i = 0; i < batch->count; i++) {
        const struct write_op *op = batch->ops[i];
        const struct write_end *end = op->end;
        bool has_reason = end->reason_code[0] != '\0';
        pg_array_add_uuid(&arrays[0], &op->event_id);
        pg_array_add_uuid(&arrays[1], &op->token);
        add_text(&arrays[2], outbox_status_name(end->status));
        pg_array_add_int8(&arrays[3], end->delay_ms);
        pg_array_add_bool(&arrays[4], end->give_back);
        pg_array_add_bool(&arrays[5], end->clear_sent);
        pg_array_add_bool(&arrays[6], end->deferred);
        add_text_or_null(&arrays[7], end->reason_code);
        add_text(&arrays[8], has_reason ? outbox_reason_detail(end->reason_code) : NULL);
        add_text_or_null(&arrays[9], end->last_error);
        add_text(&arrays[10], end->step);
        add_text(&arrays[11], end->outcome);
        add_text_or_null(&arrays[12], end->cause);
        add_text_or_null(&arrays[13], end->detail);
        pg_array_add_bool(&arrays[14], end->unknown);
        pg_array_add_int8(&arrays[16], end->took_ms);
        add_text(&arrays[17], end->card_status);
        pg_array_add_uuid(&arrays[18], end->replaces ? &end->replaced : NULL);
        pg_array_add_bool(&arrays[19], end->may_arrive);
        add_text(&arrays[20], end->held_end);
        add_text_or_null(&arrays[21], end->held_end_code);
    }
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (types[i])
            batch->ask.params[i] = pg_array_param(&arrays[i]);
    const char *worker = batch->writer->options.worker_name;
    batch->ask.params[15] = pg_param_text(worker, strlen(worker));
}

static void fill_complete(struct batch *batch)
{
    struct pg_array ids, tokens, tooks;
    pg_array_start(&ids, &batch->arrays[0], PG_UUID);
    pg_array_start(&tokens, &batch->arrays[1], PG_UUID);
    pg_array_start(&tooks, &batch->arrays[2], PG_INT8);
    for (int i = 0; i < batch->count; i++) {
        pg_array_add_uuid(&ids, &batch->ops[i]->event_id);
        pg_array_add_uuid(&tokens, &batch->ops[i]->token);
        pg_array_add_int8(&tooks, batch->ops[i]->end->took_ms);
    }
    const char *worker = batch->writer->options.worker_name;
    batch->ask.params[0] = pg_array_param(&ids);
    batch->ask.params[1] = pg_array_param(&tokens);
    batch->ask.params[2] = pg_param_text(worker, strlen(worker));
    batch->ask.params[3] = pg_array_param(&tooks);
}

static bool fill(struct batch *batch)
{
    switch (batch->ops[0]->kind) {
    case WRITE_SAVE:
        fill_save(batch);
        break;
    case WRITE_EXTEND:
        fill_extend(batch);
        break;
    case WRITE_MARK:
        fill_mark(batch);
        break;
    case WRITE_END:
        fill_end(batch);
        break;
    case WRITE_COMPLETE:
        fill_complete(batch);
        break;
    case WRITE_KINDS:
        assert(!"no kind");
        break;
    }
    for (int i = 0; i < ARRAYS_MAX; i++)
        if (batch->arrays[i].failed)
            return false;
    return true;
}

/* ---- one batch's life ---- */

static void on_answer(struct pg_ask *ask, const struct pg_answer *answer);
static void on_again(uv_timer_t *timer);

static void send_batch(struct batch *batch)
{
    batch->ask.statement = batch->lane->statement;
    batch->ask.timeout_ms = WRITE_TIMEOUT_MS;
    batch->ask.on_answer = on_answer;
    pg_pool_ask(batch->writer->options.pool, &batch->ask);
}

static bool is_end(const struct write_op *op)
{
    return op->kind == WRITE_END || op->kind == WRITE_COMPLETE;
}

static void finish(struct batch *batch, int index, enum write_result result, const char *why)
{
    struct write_op *op = batch->ops[index];
    if (result == WRITE_FENCED && op->may_be_written && is_end(op))
        result = WRITE_DONE; /* most likely our own earlier run ended it; either way nothing is left to do */
    op->on_written(op, result, why);
}

static int by_event(const void *left, const void *right)
{
    return memcmp(&(*(struct write_op *const *)left)->event_id, &(*(struct write_op *const *)right)->event_id,
                  sizeof(struct uuid));
}

static int event_against(const void *key, const void *element)
{
    return memcmp(key, &(*(struct write_op *const *)element)->event_id, sizeof(struct uuid));
}

static void batch_done(struct batch *batch, const struct pg_rows *rows)
{
    bool any_final = false;
    qsort(batch->ops, (size_t)batch->count, sizeof batch->ops[0], by_event);
    for (int i = 0; i < batch->count; i++)
        batch->ops[i]->matched = false;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        struct uuid id = pg_uuid(rows, row, 0);
        struct write_op **found = bsearch(&id, batch->ops, (size_t)batch->count, sizeof batch->ops[0], event_against);
        if (!found)
            continue;
        (*found)->matched = true;
        if ((*found)->kind == WRITE_SAVE)
            (*found)->save->card_id = pg_uuid(rows, row, 1);
        any_final |= is_end(*found) && outbox_status_is_final((*found)->end->status);
    }
    for (int i = 0; i < batch->count; i++)
        finish(batch, i, batch->ops[i]->matched ? WRITE_DONE : WRITE_FENCED, "");
    if (any_final)
        batch->writer->options.on_final(batch->writer->options.context);
}

/* Back to the head of the lane, each to go alone: one of them is what the database refuses. */
static void split(struct batch *batch)
{
    struct lane *lane = batch->lane;
    for (int i = batch->count - 1; i >= 0; i--) {
        batch->ops[i]->next = lane->first;
        lane->first = batch->ops[i];
        if (!lane->last)
            lane->last = batch->ops[i];
    }
    lane->waiting += batch->count;
    lane->alone += batch->count;
}

static void on_answer(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct batch *batch = container_of(ask, struct batch, ask);
    if (answer->kind == PG_DONE) {
        batch_done(batch, answer->rows);
        batch->is_busy = false;
        return;
    }
    if (answer->kind == PG_REFUSED && !pg_sqlstate_is_transient(answer->sqlstate)) {
        if (batch->count > 1)
            split(batch);
        else
            finish(batch, 0, WRITE_GIVEN_UP, answer->message);
        batch->is_busy = false;
        return;
    }
    int kept = 0;
    int64_t now_ms = clock_mono_ms();
    for (int i = 0; i < batch->count; i++) {
        batch->ops[i]->may_be_written |= answer->kind == PG_UNKNOWN;
        if (now_ms >= batch->ops[i]->deadline_ms)
            finish(batch, i, WRITE_GIVEN_UP, answer->message);
        else
            batch->ops[kept++] = batch->ops[i];
    }
    batch->count = kept;
    if (kept == 0) {
        batch->is_busy = false;
        return;
    }
    uv_timer_start(&batch->again, on_again, (uint64_t)backoff_delay_ms(++batch->tries, 20, 1000, backoff_random()) + 1,
                   0);
}

static void on_again(uv_timer_t *timer)
{
    struct batch *batch = container_of(timer, struct batch, again);
    if (fill(batch)) {
        send_batch(batch);
        return;
    }
    for (int i = 0; i < batch->count; i++)
        finish(batch, i, WRITE_GIVEN_UP, "out of memory");
    batch->is_busy = false;
}

static void start_batch(struct lane *lane, struct batch *batch)
{
    int most = lane->alone > 0 ? 1 : BATCH_MAX;
    batch->count = 0;
    batch->tries = 0;
    while (lane->first && batch->count < most) {
        struct write_op *op = lane->first;
        lane->first = op->next;
        if (!lane->first)
            lane->last = NULL;
        batch->ops[batch->count++] = op;
        lane->waiting--;
        if (lane->alone > 0)
            lane->alone--;
    }
    batch->is_busy = true;
    batch->since_ms = clock_mono_ms();
    if (fill(batch))
        send_batch(batch);
    else /* memory is short: later it may not be */
        uv_timer_start(&batch->again, on_again, 100, 0);
}

static void on_patience(uv_timer_t *timer)
{
    (void)timer; /* the turn that follows looks for itself */
}

/* At once where none of its kind is out. Beside another only when it is twice as large, so that batches grow with the load
 * instead of competing in the database, or when that one hangs (a lock, a slow disk). */
static bool is_worth_a_batch(const struct lane *lane)
{
    for (int i = 0; i < BATCHES; i++) {
        const struct batch *batch = &lane->batches[i];
        if (batch->is_busy && lane->waiting < 2 * batch->count && clock_mono_ms() - batch->since_ms < PATIENCE_MS)
            return false;
    }
    return true;
}

static void on_turn(uv_prepare_t *prepare)
{
    struct writer *writer = container_of(prepare, struct writer, turn);
    for (int kind = 0; kind < WRITE_KINDS; kind++) {
        struct lane *lane = &writer->lanes[kind];
        for (int i = 0; i < BATCHES && lane->first; i++) {
            if (lane->batches[i].is_busy)
                continue;
            if (is_worth_a_batch(lane))
                start_batch(lane, &lane->batches[i]);
            else if (!uv_is_active((uv_handle_t *)&writer->patience))
                uv_timer_start(&writer->patience, on_patience, PATIENCE_MS, 0);
        }
    }
}

/* ---- open, close ---- */

bool writer_open(const struct writer_options *options, struct writer **ret_writer, struct err *err)
{
    struct writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return err_set(err, ERR_MEMORY, "no memory for the writer");
    writer->options = *options;
    writer->lanes[WRITE_SAVE].statement = &sql_outbox_save;
    writer->lanes[WRITE_EXTEND].statement = &sql_outbox_extend;
    writer->lanes[WRITE_MARK].statement = &sql_outbox_mark;
    writer->lanes[WRITE_END].statement = &sql_outbox_end;
    writer->lanes[WRITE_COMPLETE].statement = &sql_outbox_complete;
    for (int kind = 0; kind < WRITE_KINDS; kind++) {
        for (int i = 0; i < BATCHES; i++) {
            struct batch *batch = &writer->lanes[kind].batches[i];
            batch->writer = writer;
            batch->lane = &writer->lanes[kind];
            for (int j = 0; j < ARRAYS_MAX; j++)
                buf_init(&batch->arrays[j], ARRAY_BYTES_MAX);
            uv_timer_init(options->loop, &batch->again);
            writer->open_handles++;
        }
    }
    uv_prepare_init(options->loop, &writer->turn);
    uv_prepare_start(&writer->turn, on_turn);
    uv_timer_init(options->loop, &writer->patience);
    writer->open_handles += 2;
    *ret_writer = writer;
    return true;
}

static void handle_closed(struct writer *writer)
{
    if (--writer->open_handles > 0)
        return;
    for (int kind = 0; kind < WRITE_KINDS; kind++)
        for (int i = 0; i < BATCHES; i++)
            for (int j = 0; j < ARRAYS_MAX; j++)
                buf_done(&writer->lanes[kind].batches[i].arrays[j]);
    void (*on_closed)(void *context) = writer->on_closed;
    void *context = writer->closed_context;
    free(writer);
    on_closed(context);
}

static void on_batch_closed(uv_handle_t *handle)
{
    handle_closed(container_of((uv_timer_t *)handle, struct batch, again)->writer);
}

static void on_turn_closed(uv_handle_t *handle)
{
    handle_closed(container_of((uv_prepare_t *)handle, struct writer, turn));
}

static void on_patience_closed(uv_handle_t *handle)
{
    handle_closed(container_of((uv_timer_t *)handle, struct writer, patience));
}

void writer_close(struct writer *writer, void (*on_closed)(void *context), void *context)
{
    writer->on_closed = on_closed;
    writer->closed_context = context;
    for (int kind = 0; kind < WRITE_KINDS; kind++) {
        assert(!writer->lanes[kind].first);
        for (int i = 0; i < BATCHES; i++) {
            assert(!writer->lanes[kind].batches[i].is_busy);
            uv_close((uv_handle_t *)&writer->lanes[kind].batches[i].again, on_batch_closed);
        }
    }
    uv_close((uv_handle_t *)&writer->turn, on_turn_closed);
    uv_close((uv_handle_t *)&writer->patience, on_patience_closed);
}
