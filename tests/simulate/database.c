/* The connection to PostgreSQL: statements are sent, executed as one transaction each, and answered, or not. Stands in
 * for pg_pool.h and pg_result.h. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/pg/pg_pool.h"
#include "sim.h"
#include "statements.h"

/* ---- rows ---- */

struct cell {
    bool is_null;
    union {
        int64_t number;
        struct slice bytes;
        struct uuid uuid;
    };
};

struct pg_rows {
    int count, columns, next;
    struct cell cells[];
};

struct pg_rows *sim_rows_new(int rows_max, int columns)
{
    struct pg_rows *rows = sim_alloc(sizeof(*rows) + (size_t)rows_max * (size_t)columns * sizeof(struct cell));
    rows->columns = columns;
    return rows;
}

void sim_row_add(struct pg_rows *rows)
{
    rows->count++;
    rows->next = 0;
}

static struct cell *next_cell(struct pg_rows *rows)
{
    return &rows->cells[(rows->count - 1) * rows->columns + rows->next++];
}

void sim_put_null(struct pg_rows *rows)
{
    next_cell(rows)->is_null = true;
}

void sim_put_int8(struct pg_rows *rows, int64_t value)
{
    next_cell(rows)->number = value;
}

void sim_put_bool(struct pg_rows *rows, bool value)
{
    next_cell(rows)->number = value;
}

void sim_put_text(struct pg_rows *rows, const char *text)
{
    struct cell *cell = next_cell(rows);
    cell->is_null = !text;
    if (!text)
        return;
    size_t length = strlen(text);
    char *copy = sim_alloc(length + 1);
    memcpy(copy, text, length);
    cell->bytes = (struct slice){.bytes = copy, .length = length};
}

void sim_put_uuid(struct pg_rows *rows, const struct uuid *value)
{
    struct cell *cell = next_cell(rows);
    cell->is_null = !value;
    if (value)
        cell->uuid = *value;
}

static const struct cell *cell_of(const struct pg_rows *rows, int row, int column)
{
    return &rows->cells[row * rows->columns + column];
}

int __wrap_pg_rows_count(const struct pg_rows *rows);
int __wrap_pg_rows_count(const struct pg_rows *rows)
{
    return rows ? rows->count : 0;
}

bool __wrap_pg_is_null(const struct pg_rows *rows, int row, int column);
bool __wrap_pg_is_null(const struct pg_rows *rows, int row, int column)
{
    return cell_of(rows, row, column)->is_null;
}

int64_t __wrap_pg_int8(const struct pg_rows *rows, int row, int column);
int64_t __wrap_pg_int8(const struct pg_rows *rows, int row, int column)
{
    return cell_of(rows, row, column)->number;
}

bool __wrap_pg_bool(const struct pg_rows *rows, int row, int column);
bool __wrap_pg_bool(const struct pg_rows *rows, int row, int column)
{
    return cell_of(rows, row, column)->number != 0;
}

struct slice __wrap_pg_bytes(const struct pg_rows *rows, int row, int column);
struct slice __wrap_pg_bytes(const struct pg_rows *rows, int row, int column)
{
    const struct cell *cell = cell_of(rows, row, column);
    return cell->is_null ? (struct slice){.bytes = NULL} : cell->bytes;
}

struct uuid __wrap_pg_uuid(const struct pg_rows *rows, int row, int column);
struct uuid __wrap_pg_uuid(const struct pg_rows *rows, int row, int column)
{
    return cell_of(rows, row, column)->uuid;
}

/* ---- parameters ---- */

static uint32_t uint32_at(const char *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof(value));
    return be32toh(value);
}

static int64_t int64_at(const void *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof(value));
    return (int64_t)be64toh(value);
}

static struct uuid uuid_at(const void *bytes)
{
    struct uuid uuid = {{0}};
    if (bytes)
        memcpy(uuid.bytes, bytes, sizeof(uuid.bytes));
    return uuid;
}

bool sim_param_is_null(const struct sim_statement *statement, int number)
{
    return !statement->params[number].bytes;
}

int64_t sim_param_int8(const struct sim_statement *statement, int number)
{
    return sim_param_is_null(statement, number) ? 0 : int64_at(statement->params[number].bytes);
}

bool sim_param_bool(const struct sim_statement *statement, int number)
{
    return !sim_param_is_null(statement, number) && *(const char *)statement->params[number].bytes;
}

struct uuid sim_param_uuid(const struct sim_statement *statement, int number)
{
    return uuid_at(statement->params[number].bytes);
}

const char *sim_param_text(const struct sim_statement *statement, int number)
{
    return (const char *)statement->params[number].bytes; /* copied with a NUL */
}

int sim_array_count(const struct sim_statement *statement, int number)
{
    const char *bytes = (const char *)statement->params[number].bytes;
    return bytes && uint32_at(bytes) > 0 ? (int)uint32_at(bytes + 12) : 0;
}

struct slice sim_array_item(const struct sim_statement *statement, int number, int item)
{
    const char *at = (const char *)statement->params[number].bytes + 20;
    for (; item > 0; item--)
        at += 4 + (uint32_at(at) == UINT32_MAX ? 0 : uint32_at(at));
    if (uint32_at(at) == UINT32_MAX)
        return (struct slice){.bytes = NULL};
    return (struct slice){.bytes = at + 4, .length = uint32_at(at)};
}

struct uuid sim_array_uuid(const struct sim_statement *statement, int number, int item)
{
    return uuid_at(sim_array_item(statement, number, item).bytes);
}

int64_t sim_array_int8(const struct sim_statement *statement, int number, int item)
{
    return int64_at(sim_array_item(statement, number, item).bytes);
}

bool sim_array_bool(const struct sim_statement *statement, int number, int item)
{
    return *(const char *)sim_array_item(statement, number, item).bytes != 0;
}

const char *sim_array_text(const struct sim_statement *statement, int number, int item)
{
    struct slice found = sim_array_item(statement, number, item);
    if (!found.bytes)
        return NULL;
    char *copy = sim_alloc(found.length + 1);
    memcpy(copy, found.bytes, found.length);
    return copy;
}

/* ---- statements ---- */

static const struct {
    const struct sql_statement *statement;
    int place;
} known[] = {
    {&sql_what_waits, SIM_AT_SWEEP},         {&sql_outbox_claim, SIM_AT_CLAIM},
    {&sql_outbox_sweep, SIM_AT_SWEEP},       {&sql_outbox_rebase, SIM_AT_SWEEP},
    {&sql_outbox_save, SIM_AT_SAVE},         {&sql_outbox_extend, SIM_AT_EXTEND},
    {&sql_outbox_keep, SIM_AT_NOTE},         {&sql_outbox_mark, SIM_AT_NOTE},
    {&sql_outbox_end, SIM_AT_END},           {&sql_outbox_complete, SIM_AT_END},
    {&sql_reconcile_ask, SIM_AT_MARKS},      {&sql_reconcile_take, SIM_AT_MARKS},
    {&sql_reconcile_put_back, SIM_AT_MARKS}, {&sql_reconcile_note_orphan, SIM_AT_MARKS},
    {&sql_reconcile_end, SIM_AT_MARKS},      {&sql_heartbeat, SIM_AT_BEAT},
    {&sql_heartbeat_routes, SIM_AT_BEAT},
};

static int place_of(const struct sql_statement *statement)
{
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (known[i].statement == statement)
            return known[i].place;
    return -1;
}

static void answer(struct sim_statement *statement, enum pg_kind kind, const char *sqlstate)
{
    if (statement->is_answered)
        return;
    statement->is_answered = true;
    struct pg_query_result result = {.kind = kind, .rows = kind == PG_DONE ? statement->rows : NULL};
    snprintf(result.sqlstate, sizeof(result.sqlstate), "%s", sqlstate);
    statement->query->on_result(statement->query, &result);
    free(statement->rows);
    statement->rows = NULL;
    if (statement->fault == SIM_NONE)
        free(statement);
}

static void on_done(void *subject, int64_t number)
{
    (void)number;
    answer(subject, PG_DONE, "");
}

static void on_unknown(void *subject, int64_t number)
{
    (void)number;
    answer(subject, PG_UNKNOWN, "");
}

static void on_not_sent(void *subject, int64_t number)
{
    (void)number;
    answer(subject, PG_NOT_SENT, "");
}

static void on_refused(void *subject, int64_t number)
{
    (void)number;
    answer(subject, PG_REFUSED, "40001");
}

/* number: whether it is answered. */
static void execute(void *subject, int64_t number)
{
    struct sim_statement *statement = subject;
    struct sim_worker *worker = statement->worker;
    statement->rows = sim_outbox_run(statement);
    if (worker->life != statement->life || !worker->is_up)
        return;
    if (statement->fault == SIM_CRASH_AFTER)
        sim_worker_kill(worker, sim_between(100 * MS, 20 * SECOND));
    else if (number)
        sim_after(sim_between(50, 3 * MS), worker, on_done, statement, 0);
}

static struct slice slice_of(const struct pg_param *param)
{
    if (param->inline_length > 0)
        return (struct slice){.bytes = (const char *)param->inline_bytes, .length = (size_t)param->inline_length};
    return (struct slice){.bytes = param->bytes, .length = (size_t)param->length};
}

/* A copy, since its owner may fill it anew while an earlier sending of it still runs. Each text gets a NUL. */
static struct sim_statement *copy_of(const struct pg_query *query)
{
    size_t size = 0;
    int count = query->statement->parameters;
    for (int i = 0; i < count; i++)
        size += slice_of(&query->params[i]).length + 1;
    struct sim_statement *statement = sim_alloc(sizeof(*statement) + size);
    char *to = (char *)(statement + 1);
    for (int i = 0; i < count; i++) {
        struct slice from = slice_of(&query->params[i]);
        if (!from.bytes)
            continue;
        memcpy(to, from.bytes, from.length);
        statement->params[i] = (struct slice){.bytes = to, .length = from.length};
        to += from.length + 1;
    }
    return statement;
}

/* The event that a statement for one event is about. */
static int event_of(const struct sim_statement *statement)
{
    if (statement->place < SIM_AT_SAVE || statement->place > SIM_AT_END || sim_array_count(statement, 0) == 0)
        return -1;
    struct uuid id = sim_array_uuid(statement, 0, 0);
    struct sim_event *event = sim_event_of(&id);
    return event ? (int)(event - sim.events) : -1;
}

/* Its time passes, and what becomes of it is not known; then it commits. */
static void send_late(struct sim_statement *statement)
{
    int64_t unknown_us = sim_between(20 * MS, 2 * SECOND);
    sim_after(unknown_us, statement->worker, on_unknown, statement, 0);
    sim_after(unknown_us + sim_between(0, 10 * SECOND), NULL, execute, statement, false);
}

static void dispatch(struct sim_statement *statement, int64_t delay_us)
{
    struct sim_worker *worker = statement->worker;
    switch ((int)statement->fault) {
    case SIM_DB_REFUSED:
        sim_after(delay_us, worker, on_refused, statement, 0);
        return;
    case SIM_DB_AWAY:
        sim_after(sim_between(1 * MS, 3 * SECOND), worker, on_not_sent, statement, 0);
        return;
    case SIM_DB_LOST_BEFORE:
        sim_after(sim_between(20 * MS, 5 * SECOND), worker, on_unknown, statement, 0);
        return;
    case SIM_DB_LOST_AFTER:
        sim_after(delay_us, NULL, execute, statement, false);
        sim_after(sim_between(20 * MS, 5 * SECOND), worker, on_unknown, statement, 0);
        return;
    case SIM_DB_LATE:
        send_late(statement);
        return;
    case SIM_CRASH_BEFORE:
        sim_worker_kill(worker, sim_between(100 * MS, 20 * SECOND));
        return;
    case SIM_CRASH_SENT:
        sim_after(delay_us, NULL, execute, statement, false);
        sim_worker_kill(worker, sim_between(100 * MS, 20 * SECOND));
        return;
    case SIM_FREEZE:
        sim_worker_freeze(worker, sim_between(100 * MS, 60 * SECOND));
        break;
    case SIM_SLOW:
        delay_us = sim_between(20 * MS, 4 * SECOND);
        break;
    default:
        break;
    }
    sim_after(delay_us, NULL, execute, statement, true);
}

void __wrap_pg_pool_submit(struct pg_pool *pool, struct pg_query *query);
void __wrap_pg_pool_submit(struct pg_pool *pool, struct pg_query *query)
{
    struct sim_worker *worker = (struct sim_worker *)pool;
    if (!worker->is_up)
        return;
    struct sim_statement *statement = copy_of(query);
    statement->statement = query->statement;
    statement->query = query;
    statement->worker = worker;
    statement->life = worker->life;
    statement->place = place_of(query->statement);
    if (statement->place < 0) { /* what is not modelled is never there */
        sim_after(sim_between(1 * MS, 5 * MS), worker, on_not_sent, statement, 0);
        return;
    }
    statement->event = event_of(statement);
    statement->fault = sim_fault_at(statement->place, statement->event, SIM_CRASH_BEFORE, SIM_DB_AWAY);
    if (statement->fault == SIM_NONE)
        statement->fault = sim_fault_at(statement->place, statement->event, SIM_SLOW, SIM_SLOW);
    dispatch(statement, sim_between(100, 5 * MS));
}

bool __wrap_pg_pool_ready(const struct pg_pool *pool);
bool __wrap_pg_pool_ready(const struct pg_pool *pool)
{
    (void)pool;
    return true;
}
