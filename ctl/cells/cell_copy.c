/* See cell_copy.h.
 *
 * Invariants: the destination's row of the bucket is locked before the first row is copied, so that an undo waits for
 * the copy or the copy finds nothing to do; nothing is committed whose fingerprints differ; rows that are there
 * already are compared and never copied a second time.
 * Left out: which columns and rows belong to a bucket (issuing.cell_copy). */
#include "ctl/cells/cell_copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "statements.h"

enum { COL_NAME, COL_OUT, COL_IN };
enum { COL_TABLE, COL_ROWS, COL_CHECKSUM };

static const char *text_of(const struct pg_rows *rows, int row, int column)
{
    const char *text = pg_bytes(rows, row, column).bytes;
    return text ? text : "";
}

static bool ask_bucket(struct cell_db *cell, const struct sql_statement *statement, int bucket,
                       struct pg_rows **ret_rows, struct err *err)
{
    const struct pg_param params[] = {pg_param_int8(bucket)};
    return cell_query(cell, statement, params, ret_rows, err);
}

static int64_t total_rows(const struct pg_rows *fingerprint)
{
    int64_t total = 0;
    for (int row = 0; row < pg_rows_count(fingerprint); row++)
        total += pg_int8(fingerprint, row, COL_ROWS);
    return total;
}

static bool are_equal(const struct pg_rows *source, const struct pg_rows *destination, int bucket, struct err *err)
{
    if (pg_rows_count(source) == 0 || pg_rows_count(source) != pg_rows_count(destination))
        return err_set(err, ERR_REFUSED, "the two cells compare different tables");
    for (int row = 0; row < pg_rows_count(source); row++) {
        const char *table = text_of(source, row, COL_TABLE);
        if (strcmp(table, text_of(destination, row, COL_TABLE)) != 0)
            return err_set(err, ERR_REFUSED, "the two cells compare different tables");
        if (pg_int8(source, row, COL_ROWS) != pg_int8(destination, row, COL_ROWS) ||
            strcmp(text_of(source, row, COL_CHECKSUM), text_of(destination, row, COL_CHECKSUM)) != 0)
            return err_set(err, ERR_REFUSED,
                           "bucket %d differs in %s: %" PRId64 " rows in the source, %" PRId64 " in the destination",
                           bucket, table, pg_int8(source, row, COL_ROWS), pg_int8(destination, row, COL_ROWS));
    }
    return true;
}

bool cell_compare(struct cell_db *source, struct cell_db *destination, int bucket, int64_t *ret_rows, struct err *err)
{
    pg_rows_scope struct pg_rows *of_source = NULL, *of_destination = NULL;
    if (!ask_bucket(source, &sql_cell_fingerprint, bucket, &of_source, err) ||
        !ask_bucket(destination, &sql_cell_fingerprint, bucket, &of_destination, err) ||
        !are_equal(of_source, of_destination, bucket, err))
        return false;
    *ret_rows = total_rows(of_source);
    return true;
}

/* ---- the two transactions ---- */

static bool begin(struct cell_db *cell, const struct sql_statement *statement, int64_t until_ms, struct err *err)
{
    int64_t left_ms = until_ms - clock_mono_ms();
    const struct pg_param params[] = {pg_param_int8(left_ms)};
    if (left_ms <= 0)
        return err_set(err, ERR_REFUSED, "the rows were not copied in time");
    return cell_query(cell, statement, NULL, NULL, err) && cell_query(cell, &sql_cell_copy_timeout, params, NULL, err);
}

static void rollback(struct cell_db *cell)
{
    struct err ignored;
    if (!pg_sync_is_lost(cell->ctl.db) && !cell_query(cell, &sql_cell_rollback, NULL, NULL, &ignored))
        cell_close(cell); /* nothing may stay open */
}

static bool hold(struct cell_db *destination, int bucket, const struct uuid *move, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_int8(bucket), pg_param_uuid(move)};
    if (!cell_query(destination, &sql_cell_hold, params, &rows, err))
        return false;
    return pg_int8(rows, 0, 0) == 1 ||
           err_set(err, ERR_REFUSED, "cell %s does not expect bucket %d under this move any more", destination->name,
                   bucket);
}

bool cell_is_copied(struct cell_db *destination, int bucket, bool *ret_is_there, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!ask_bucket(destination, &sql_cell_is_copied, bucket, &rows, err))
        return false;
    *ret_is_there = pg_bool(rows, 0, 0);
    return true;
}

static bool copy_tables(struct cell_db *source, struct cell_db *destination, int bucket, int64_t until_ms,
                        struct cell_copied *copied, struct err *err)
{
    pg_rows_scope struct pg_rows *outs = NULL, *ins = NULL;
    if (!ask_bucket(source, &sql_cell_copy, bucket, &outs, err) ||
        !ask_bucket(destination, &sql_cell_copy, bucket, &ins, err))
        return false;
    if (pg_rows_count(outs) == 0 || pg_rows_count(outs) != pg_rows_count(ins))
        return err_set(err, ERR_REFUSED, "the two cells copy different tables");
    for (int row = 0; row < pg_rows_count(outs); row++) {
        const char *table = text_of(outs, row, COL_NAME);
        struct pg_copied of_table = {.rows = 0};
        if (strcmp(table, text_of(ins, row, COL_NAME)) != 0)
            return err_set(err, ERR_REFUSED, "the two cells copy different tables");
        if (!pg_sync_copy(source->ctl.db, text_of(outs, row, COL_OUT), destination->ctl.db, text_of(ins, row, COL_IN),
                          until_ms, &of_table, err))
            return err_prefix(err, "%s", table);
        copied->rows += of_table.rows;
        copied->bytes += of_table.bytes;
    }
    return true;
}

static bool copy_and_compare(struct cell_db *source, struct cell_db *destination, int bucket, const struct uuid *move,
                             int64_t until_ms, struct cell_copied *copied, struct err *err)
{
    int64_t rows;
    return hold(destination, bucket, move, err) && cell_is_copied(destination, bucket, &copied->was_there, err) &&
           (copied->was_there || copy_tables(source, destination, bucket, until_ms, copied, err)) &&
           cell_compare(source, destination, bucket, &rows, err) &&
           cell_query(destination, &sql_cell_commit, NULL, NULL, err);
}

bool cell_copy(struct cell_db *source, struct cell_db *destination, int bucket, const struct uuid *move,
               int64_t until_ms, struct cell_copied *ret_copied, struct err *err)
{
    struct cell_copied copied = {.rows = 0};
    bool is_done = begin(source, &sql_cell_begin_read, until_ms, err) &&
                   begin(destination, &sql_cell_begin, until_ms, err) &&
                   copy_and_compare(source, destination, bucket, move, until_ms, &copied, err);
    rollback(source);
    if (!is_done)
        rollback(destination);
    else
        *ret_copied = copied;
    return is_done;
}
