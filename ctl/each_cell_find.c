/* See each_cell_find.h.
 *
 * Invariants: a row in a cell that does not own the bucket (gone, away, arriving) is a copy, on which nothing may act.
 * Left out: what is done there (each_cell.c). */
#include "ctl/each_cell_find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/uuid7.h"
#include "ctl/lines.h"
#include "statements.h"

/* ---- one cell's answer ---- */

/* The states of a bucket in which this cell owns it (docs/scaling.md); NULL: the database has no cells. */
static bool is_owner(const char *state)
{
    static const char *const owners[] = {"here", "listing", "draining", "closed"};
    for (size_t i = 0; i < ARRAY_SIZE(owners); i++)
        /* guard: an operator acts on no copy of an event */
        if (!state || strcmp(state, owners[i]) == 0)
            return true;
    return false;
}

static void take_answer(struct found *found, int cell, const char *state)
{
    if (!is_owner(state)) {
        found->copy = cell;
        snprintf(found->copy_state, sizeof(found->copy_state), "%s", state);
        return;
    }
    if (found->owner_count++ == 0)
        found->owner = cell;
    else
        found->other_owner = cell;
}

static void take_away(struct found *found, int cell, const struct err *err)
{
    if (found->away_count++ > 0)
        return;
    found->away = cell;
    found->away_reason = *err;
}

/* Asks one cell. rows are owned by the caller. */
static bool ask_cell(struct ctl *ctl, int cell, const struct sql_statement *statement, const struct pg_param *params,
                     struct pg_rows **ret_rows, struct err *err)
{
    ctl->cell = &ctl->config->cells[cell];
    bool done = ctl_connect(ctl, err) && pg_sync_query(ctl->db, statement, params, ret_rows, err);
    pg_sync_close(ctl->db);
    ctl->db = NULL;
    ctl->cell = NULL;
    return done;
}

static struct found nobody(void)
{
    return (struct found){.owner = -1, .other_owner = -1, .copy = -1, .away = -1};
}

/* ---- events ---- */

static void take_events(struct found *found, const struct uuid *ids, int count, int cell, const struct pg_rows *rows)
{
    for (int row = 0; row < pg_rows_count(rows); row++) {
        struct uuid id = pg_uuid(rows, row, 0);
        for (int i = 0; i < count; i++)
            if (uuid_equal(&ids[i], &id))
                take_answer(&found[i], cell, pg_bytes(rows, row, 1).bytes);
    }
}

static bool find_parsed(struct ctl *ctl, const struct uuid *ids, int count, struct found *found, struct err *err)
{
    struct pg_array array;
    struct buf buf;
    buf_init(&buf, 64 + 32 * (size_t)count);
    pg_array_start(&array, &buf, PG_UUID);
    for (int i = 0; i < count; i++)
        pg_array_add_uuid(&array, &ids[i]);
    const struct pg_param params[] = {pg_array_param(&array)};
    bool done = !buf.failed || err_set(err, ERR_MEMORY, "out of memory");
    for (int cell = 0; done && cell < ctl->config->cell_count; cell++) {
        pg_rows_scope struct pg_rows *rows = NULL;
        struct err away;
        if (ask_cell(ctl, cell, &sql_operator_cell_of_events, params, &rows, &away))
            take_events(found, ids, count, cell, rows);
        else
            for (int i = 0; i < count; i++)
                take_away(&found[i], cell, &away);
    }
    buf_done(&buf);
    return done;
}

bool find_events(struct ctl *ctl, char **ids, int count, struct found **ret_found, struct err *err)
{
    struct uuid *parsed = calloc((size_t)count, sizeof(*parsed));
    struct found *found = calloc((size_t)count, sizeof(*found));
    bool done = (parsed && found) || err_set(err, ERR_MEMORY, "out of memory");
    for (int i = 0; done && i < count; i++) {
        found[i] = nobody();
        done = uuid_parse(ids[i], strlen(ids[i]), &parsed[i]) ||
               err_set(err, ERR_USAGE, "%.60s is not an event id", ids[i]);
    }
    done = done && find_parsed(ctl, parsed, count, found, err);
    free(parsed);
    if (!done)
        free(found);
    else
        *ret_found = found;
    return done;
}

/* ---- a user ---- */

bool find_user(struct ctl *ctl, const char *user, struct found *ret_found, struct err *err)
{
    const struct pg_param params[] = {pg_param_text(user, strlen(user))};
    *ret_found = nobody();
    for (int cell = 0; cell < ctl->config->cell_count; cell++) {
        pg_rows_scope struct pg_rows *rows = NULL;
        if (!ask_cell(ctl, cell, &sql_operator_cell_of_user, params, &rows, err))
            take_away(ret_found, cell, err);
        else
            take_answer(ret_found, cell, pg_bytes(rows, 0, 0).bytes);
    }
    return true;
}

/* ---- in words ---- */

int found_code(const struct ctl *ctl, const struct found *found, const char *what, char *ret_why, size_t size)
{
    const struct config_cell *cells = ctl->config->cells;
    if (found->owner_count == 1)
        return CTL_DONE;
    if (found->owner_count > 1) {
        snprintf(ret_why, size, "both %s and %s own the %.100s: see issuing-ctl cell status", cells[found->owner].name,
                 cells[found->other_owner].name, what);
        return CTL_REFUSED;
    }
    if (found->away_count > 0) {
        snprintf(ret_why, size, "no cell that answered has the %.100s; %s did not: %.200s", what,
                 cells[found->away].name, found->away_reason.message);
        return err_exit_code(found->away_reason.kind);
    }
    if (found->copy >= 0 && strcmp(found->copy_state, "away") != 0) {
        snprintf(ret_why, size,
                 "the bucket of the %.100s is on the move: it is %s in %s; try again, or finish the move", what,
                 found->copy_state, cells[found->copy].name);
        return CTL_REFUSED;
    }
    snprintf(ret_why, size, "no cell has the %.100s", what);
    return CTL_REFUSED;
}
