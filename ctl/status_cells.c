/* See status_cells.h.
 *
 * Invariants: a cell that is away has its line, and the sums say that they lack it.
 * Left out: what one cell has beyond that: `status --cell NAME`. */
#include "ctl/status_cells.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/cluster.h"
#include "ctl/counts.h"
#include "ctl/lines.h"
#include "ctl/print.h"
#include "statements.h"

#define BUCKETS 1024
#define NOTE_SIZE 200
#define CODES_MAX 100 /* of FAILED events, that are shown */

struct cell_status {
    struct counts counts;
    int64_t workers;
    int64_t here, moving; /* buckets that this cell owns; in a state of a move */
    bool is_cell;         /* the database has buckets */
    int code;             /* exit code; CTL_DONE: it was read */
    char note[NOTE_SIZE];
};

struct all {
    struct cell_status cells[CONFIG_CELLS_MAX], sum;
    int count, away;
};

/* ---- reading ---- */

static void __attribute__((format(printf, 2, 3))) add_note(struct cell_status *cell, const char *format, ...)
{
    size_t length = strlen(cell->note);
    va_list values;
    if (length > 0)
        length += (size_t)snprintf(cell->note + length, sizeof(cell->note) - length, "; ");
    if (length >= sizeof(cell->note))
        return;
    va_start(values, format);
    vsnprintf(cell->note + length, sizeof(cell->note) - length, format, values);
    va_end(values);
}

static bool read_buckets(struct ctl *ctl, struct cell_status *cell, struct err *err)
{
    enum { HERE, MOVING, ALL };
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(ctl->db, &sql_operator_cell_counts, NULL, &rows, err))
        return false;
    cell->here = pg_int8(rows, 0, HERE);
    cell->moving = pg_int8(rows, 0, MOVING);
    cell->is_cell = pg_int8(rows, 0, ALL) > 0;
    return true;
}

static void take_cluster(struct cell_status *cell, const struct cluster *cluster)
{
    cell->workers = cluster->alive_count;
    if (cluster->alive_count == 0)
        add_note(cell, "no worker runs");
    for (int i = 0; i < cluster->target_count; i++) {
        const struct cluster_target *target = &cluster->targets[i];
        if (target->paused_us != 0 || cluster_is_shut(target))
            add_note(cell, "%s is %s", target->name, cluster_state(target));
    }
}

static bool read_cell(struct ctl *ctl, bool exact, struct cell_status *cell, struct err *err)
{
    struct cluster cluster = {0};
    bool done = ctl_connect(ctl, err) && counts_read(ctl, exact, &cell->counts, err) && read_buckets(ctl, cell, err) &&
                cluster_read(ctl->db, &cluster, err);
    if (done)
        take_cluster(cell, &cluster);
    cluster_done(&cluster);
    if (done && !cell->is_cell)
        add_note(cell, "not a cell yet: issuing-ctl cell init");
    if (done && cell->moving > 0)
        add_note(cell, "%" PRId64 " bucket%s on the move", cell->moving, cell->moving == 1 ? "" : "s");
    return done;
}

static void add_sum(struct cell_status *sum, const struct cell_status *cell)
{
    for (int i = 0; i < COUNTS_STATUSES; i++) {
        sum->counts.events[i] += cell->counts.events[i];
        sum->counts.estimated[i] = sum->counts.estimated[i] || cell->counts.estimated[i];
    }
    if (cell->counts.oldest_pending_s > sum->counts.oldest_pending_s)
        sum->counts.oldest_pending_s = cell->counts.oldest_pending_s;
    sum->workers += cell->workers;
    sum->here += cell->here;
    sum->moving += cell->moving;
}

static void note_sum(struct all *all)
{
    struct cell_status *sum = &all->sum;
    int failed = 0;
    for (int i = 0; i < all->count; i++)
        failed += all->cells[i].code != CTL_DONE;
    all->away = failed;
    if (failed > 0)
        add_note(sum, "without %d cell%s", failed, failed == 1 ? "" : "s");
    if (failed == 0 && sum->here != BUCKETS)
        add_note(sum, "%" PRId64 " buckets instead of %d: issuing-ctl cell status", sum->here, BUCKETS);
}

static void read_all(struct ctl *ctl, bool exact, struct all *all)
{
    struct err err;
    all->count = ctl->config->cell_count;
    for (int i = 0; i < all->count; i++) {
        struct cell_status *cell = &all->cells[i];
        ctl->cell = &ctl->config->cells[i];
        if (!read_cell(ctl, exact, cell, &err)) {
            counts_done(&cell->counts);
            cell->note[0] = '\0';
            cell->code = err_exit_code(err.kind);
            const char *away = "the database is away: ";
            bool has_prefix = strncmp(err.message, away, strlen(away)) == 0;
            add_note(cell, "%s%s",
                     err.kind == ERR_AWAY ? "AWAY: " : "FAILED: ", err.message + (has_prefix ? strlen(away) : 0));
        } else {
            add_sum(&all->sum, cell);
        }
        pg_sync_close(ctl->db);
        ctl->db = NULL;
    }
    ctl->cell = NULL;
    note_sum(all);
}

/* ---- text ---- */

static void add_row(struct table *table, const char *name, const struct cell_status *cell)
{
    static const enum outbox_status order[] = {OUTBOX_PROCESSING, OUTBOX_FAILED, OUTBOX_REJECTED, OUTBOX_COMPLETED};
    const struct counts *counts = &cell->counts;
    char span[PRINT_SPAN_SIZE];
    table_add(table, name);
    if (cell->code != CTL_DONE) {
        for (size_t i = 0; i < ARRAY_SIZE(order) + 4; i++)
            table_add(table, NULL);
        table_add(table, cell->note);
        return;
    }
    counts_add(table, counts->events[OUTBOX_PENDING], counts->estimated[OUTBOX_PENDING]);
    table_add(table, counts->events[OUTBOX_PENDING] > 0 ? print_span(counts->oldest_pending_s * 1000000, span) : NULL);
    for (size_t i = 0; i < ARRAY_SIZE(order); i++)
        counts_add(table, counts->events[order[i]], counts->estimated[order[i]]);
    counts_add(table, cell->workers, false);
    counts_add(table, cell->here, false);
    table_add(table, cell->note);
}

static bool print_cells(const struct ctl *ctl, const struct all *all)
{
    static const char *const heads[] = {"CELL",      "PENDING", "OLDEST",  "PROCESSING", "FAILED", "REJECTED",
                                        "COMPLETED", "WORKERS", "BUCKETS", "NOTE",       NULL};
    struct table table;
    table_init(&table, heads);
    for (int i = 0; i < all->count; i++)
        add_row(&table, ctl->config->cells[i].name, &all->cells[i]);
    add_row(&table, "all", &all->sum);
    bool whole = table_flush(&table, stdout);
    table_done(&table);
    if (all->sum.counts.estimated[OUTBOX_COMPLETED])
        puts("\nabout: estimated from the statistics of the databases; `status --exact` counts all events");
    return whole;
}

/* Why events FAILED, over all cells. Texts are borrowed from the cells' rows. */
struct failed {
    const char *code, *type;
    int64_t events, since_us;
    char cells[160];
};

static void take_failed(struct failed *failed, const char *cell, int64_t events, int64_t since_us)
{
    size_t length = strlen(failed->cells);
    char number[PRINT_NUMBER_SIZE];
    failed->events += events;
    if (failed->since_us == 0 || since_us < failed->since_us)
        failed->since_us = since_us;
    snprintf(failed->cells + length, sizeof(failed->cells) - length, "%s%s %s", length > 0 ? ", " : "", cell,
             print_number(events, number));
}

static int collect_failed(const struct ctl *ctl, const struct all *all, struct failed *failed)
{
    int count = 0;
    for (int i = 0; i < all->count; i++) {
        const struct pg_rows *rows = all->cells[i].counts.failed;
        for (int row = 0; row < pg_rows_count(rows); row++) {
            const char *code = pg_bytes(rows, row, FAILED_CODE).bytes, *type = pg_bytes(rows, row, FAILED_TYPE).bytes;
            int at = 0;
            while (at < count && (strcmp(failed[at].code, code) != 0 || strcmp(failed[at].type, type) != 0))
                at++;
            if (at == CODES_MAX)
                continue;
            if (at == count)
                failed[count++] = (struct failed){.code = code, .type = type};
            take_failed(&failed[at], ctl->config->cells[i].name, pg_int8(rows, row, FAILED_EVENTS),
                        pg_time_us(rows, row, FAILED_SINCE));
        }
    }
    return count;
}

static int by_events(const void *left, const void *right)
{
    const struct failed *one = left, *other = right;
    return (one->events < other->events) - (one->events > other->events);
}

static bool print_failed(const struct ctl *ctl, const struct all *all)
{
    static const char *const heads[] = {"FAILED BECAUSE", "TYPE", "EVENTS", "SINCE", "WHERE", NULL};
    struct failed failed[CODES_MAX];
    struct table table;
    char time[PRINT_TIME_SIZE];
    int count = collect_failed(ctl, all, failed);
    if (count == 0)
        return true;
    qsort(failed, (size_t)count, sizeof(failed[0]), by_events);
    table_init(&table, heads);
    for (int i = 0; i < count; i++) {
        table_add(&table, failed[i].code);
        table_add(&table, failed[i].type);
        counts_add(&table, failed[i].events, false);
        table_add(&table, print_time(failed[i].since_us, time));
        table_add(&table, failed[i].cells);
    }
    putchar('\n');
    bool whole = table_flush(&table, stdout);
    table_done(&table);
    puts("\nWhich: issuing-ctl list --cell all --status FAILED --code CODE    "
         "One of them: issuing-ctl explain --cell all ID");
    return whole;
}

/* ---- JSON ---- */

static bool set_facts(struct json *object, const struct cell_status *cell)
{
    return json_set_integer(object, "workers", cell->workers) && json_set_integer(object, "buckets", cell->here) &&
           json_set_integer(object, "buckets_moving", cell->moving) &&
           json_set_text(object, "note", cell->note[0] ? cell->note : NULL);
}

/* "all" is the name of no cell. */
static bool print_cell_json(const char *name, const struct cell_status *cell, int away)
{
    struct json *object = cell->code == CTL_DONE ? counts_json(&cell->counts) : json_new_object();
    bool whole = object &&
                 (cell->code != CTL_DONE ? json_set_text(object, "error", cell->note) : set_facts(object, cell)) &&
                 (away < 0 || json_set_integer(object, "cells_away", away));
    if (!whole) {
        json_free(object);
        return false;
    }
    lines_name(name);
    whole = print_json(object, stdout);
    lines_name(NULL);
    return whole;
}

static bool print_as_json(const struct ctl *ctl, const struct all *all)
{
    bool whole = true;
    for (int i = 0; whole && i < all->count; i++)
        whole = print_cell_json(ctl->config->cells[i].name, &all->cells[i], -1);
    return whole && print_cell_json("all", &all->sum, all->away);
}

int status_cells(struct ctl *ctl, bool exact)
{
    struct all *all = calloc(1, sizeof(*all));
    struct err err;
    int code = CTL_DONE;
    if (all)
        read_all(ctl, exact, all);
    bool whole = all && (ctl->json ? print_as_json(ctl, all) : print_cells(ctl, all) && print_failed(ctl, all));
    for (int i = 0; all && i < all->count; i++) {
        code = all->cells[i].code > code ? all->cells[i].code : code;
        counts_done(&all->cells[i].counts);
    }
    free(all);
    if (whole)
        return code;
    err_set(&err, ERR_MEMORY, "out of memory");
    return ctl_fail(&err);
}
