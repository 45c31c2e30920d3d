/* See cell_db.h.
 *
 * Invariants: an open session has the schema of this program and the name of its section (or no name yet); each answer
 * is limited, so a database that hangs ends a step and not the program.
 * Left out: what a state means (cell_steps.c). */
#include "ctl/cells/cell_db.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "statements.h"

#define ANSWER_MS 20000    /* the longest wait for an answer of a step */
#define STATEMENT_MS 15000 /* the server ends a statement before */

bool cells_init(struct cells *ret_cells, const struct config *config, const struct action *action, struct err *err)
{
    struct cells *cells = ret_cells;
    if (config->cell_count == 0)
        return err_set(err, ERR_CONFIG, "no cell is configured: a section [cell.NAME] with its url for each");
    *cells = (struct cells){.config = config, .action = action, .count = config->cell_count};
    for (int i = 0; i < cells->count; i++)
        cells->list[i] =
            (struct cell_db){.name = config->cells[i].name, .ctl = {.config = config, .cell = &config->cells[i]}};
    return true;
}

void cell_close(struct cell_db *cell)
{
    pg_sync_close(cell->ctl.db);
    cell->ctl.db = NULL;
}

void cells_done(struct cells *cells)
{
    for (int i = 0; i < cells->count; i++)
        cell_close(&cells->list[i]);
}

bool cells_find(const struct cells *cells, const char *name, int *ret_index, struct err *err)
{
    int index = config_find_cell(cells->config, name);
    if (index < 0)
        return err_set(err, ERR_USAGE, "there is no cell %.40s: the configuration has no [cell.%.40s]", name, name);
    *ret_index = index;
    return true;
}

bool cell_query(struct cell_db *cell, const struct sql_statement *statement, const struct pg_param *params,
                struct pg_rows **ret_rows, struct err *err)
{
    return pg_sync_query(cell->ctl.db, statement, params, ret_rows, err) || err_prefix(err, "cell %s", cell->name);
}

static bool set_session(struct cell_db *cell, struct err *err)
{
    const struct pg_param params[] = {pg_param_int8(STATEMENT_MS)};
    pg_sync_limit(cell->ctl.db, ANSWER_MS);
    return pg_sync_query(cell->ctl.db, &sql_cell_session, params, NULL, err);
}

/* Only the owner writes audit rows by this. */
static bool set_actor(struct cells *cells, struct cell_db *cell, struct err *err)
{
    struct pg_param params[ACTION_PARAMS];
    action_params(cells->action, params);
    return !cell->is_owner || pg_sync_query(cell->ctl.db, &sql_cell_actor, params, NULL, err);
}

void cell_limit(struct cell_db *cell, int64_t answer_ms)
{
    pg_sync_limit(cell->ctl.db, answer_ms > 0 ? answer_ms : ANSWER_MS);
}

bool cell_be_patient(struct cell_db *cell, bool is_patient, struct err *err)
{
    const struct pg_param params[] = {pg_param_int8(is_patient ? 0 : STATEMENT_MS)};
    if (!cell_query(cell, &sql_cell_statement_timeout, params, NULL, err))
        return false;
    pg_sync_limit(cell->ctl.db, is_patient ? 0 : ANSWER_MS);
    return true;
}

/* Two sections with one database would move a bucket onto itself. */
static bool check_other_cells(const struct cells *cells, const struct cell_db *cell, struct err *err)
{
    for (int i = 0; i < cells->count; i++) {
        const struct cell_db *other = &cells->list[i];
        if (other != cell && other->identity[0] != '\0' && strcmp(other->identity, cell->identity) == 0)
            return err_set(err, ERR_CONFIG, "[cell.%s] and [cell.%s] are the same database", other->name, cell->name);
    }
    return true;
}

static bool check_identity(struct cells *cells, struct cell_db *cell, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(cell->ctl.db, &sql_cell_identity, NULL, &rows, err))
        return false;
    const char *name = pg_bytes(rows, 0, 0).bytes, *identity = pg_bytes(rows, 0, 1).bytes;
    snprintf(cell->identity, sizeof(cell->identity), "%s", identity ? identity : "");
    cell->is_made = name != NULL;
    cell->is_owner = pg_bool(rows, 0, 3);
    if (pg_bool(rows, 0, 2))
        return err_set(err, ERR_AWAY, "this server is a standby: add target_session_attrs=read-write to its url");
    if (!check_other_cells(cells, cell, err))
        return false;
    return !name || strcmp(name, cell->name) == 0 ||
           err_set(err, ERR_CONFIG, "the database says that it is the cell %.40s", name);
}

bool cell_open(struct cells *cells, int index, struct err *err)
{
    struct cell_db *cell = &cells->list[index];
    if (cell->ctl.db && !pg_sync_is_lost(cell->ctl.db))
        return true;
    cell_close(cell);
    cell->identity[0] = '\0';
    if (ctl_connect(&cell->ctl, err) && set_session(cell, err) && check_identity(cells, cell, err) &&
        set_actor(cells, cell, err))
        return true;
    cell_close(cell);
    cell->identity[0] = '\0';
    return err_prefix(err, "cell %s", cell->name);
}

bool cell_demand_mover(const struct cell_db *cell, struct err *err)
{
    if (!cell->is_made)
        return err_set(err, ERR_CONFIG, "cell %s: the database is no cell yet: issuing-ctl cell init %s", cell->name,
                       cell->name);
    return cell->is_owner ||
           err_set(err, ERR_CONFIG, "cell %s: only the owner of the tables may move buckets: connect as issuing_owner",
                   cell->name);
}

/* ---- the states ---- */

static bool read_row(const struct pg_rows *rows, int row, struct cell_side *ret_side, struct err *err)
{
    struct cell_side side = {.move = pg_uuid(rows, row, 3), .age_us = pg_int8(rows, row, 4)};
    const char *state = pg_bytes(rows, row, 1).bytes, *other = pg_bytes(rows, row, 2).bytes;
    if (!state || !cell_state_parse(state, &side.state))
        return err_set(err, ERR_DATABASE, "bucket %" PRId64 " has an unknown state", pg_int8(rows, row, 0));
    snprintf(side.other, sizeof(side.other), "%s", other ? other : "");
    *ret_side = side;
    return true;
}

bool cell_read_side(struct cell_db *cell, int bucket, struct cell_side *ret_side, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_int8(bucket)};
    if (!cell_query(cell, &sql_cell_side, params, &rows, err))
        return false;
    if (pg_rows_count(rows) != 1)
        return err_set(err, ERR_DATABASE, "cell %s has no row of bucket %d", cell->name, bucket);
    return read_row(rows, 0, ret_side, err) || err_prefix(err, "cell %s", cell->name);
}

bool cell_read_sides(struct cell_db *cell, struct cell_side *sides, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!cell_query(cell, &sql_cell_sides, NULL, &rows, err))
        return false;
    memset(sides, 0, CELL_BUCKETS * sizeof(*sides));
    for (int row = 0; row < pg_rows_count(rows); row++) {
        int64_t bucket = pg_int8(rows, row, 0);
        if (bucket < 0 || bucket >= CELL_BUCKETS)
            return err_set(err, ERR_DATABASE, "cell %s has a bucket %" PRId64, cell->name, bucket);
        if (!read_row(rows, row, &sides[bucket], err))
            return err_prefix(err, "cell %s", cell->name);
    }
    return true;
}

struct pg_param cell_buckets_param(const struct cell_buckets *buckets, struct buf *room)
{
    struct pg_array array;
    buf_init(room, 64 * 1024);
    pg_array_start(&array, room, PG_INT8);
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++)
        if (buckets->has[bucket])
            pg_array_add_int8(&array, bucket);
    return pg_array_param(&array);
}
