/* The part of the audit trail that is decided, row by row (audit_export.h). */
#include <stdio.h>

#include "common/lib/base/clock.h"
#include "ctl/audit/audit_export.h"
#include "statements.h"

#define ROWS 1000 /* of one statement */

bool audit_ask_settled(struct audit_export *export, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(export->ctl->db, &sql_operator_audit_settled, NULL, &rows, err))
        return false;
    export->settled = pg_int8(rows, 0, 0);
    snprintf(export->held, sizeof(export->held), "%s", pg_is_null(rows, 0, 1) ? "" : pg_text(rows, 0, 1));
    clock_format(pg_time_us(rows, 0, 2), export->kept_from);
    export->now_us = pg_time_us(rows, 0, 3);
    return true;
}

bool audit_reader_next(struct audit_reader *reader, int64_t most, struct audit_row *ret_row, struct err *err)
{
    *err = (struct err){.kind = ERR_NONE};
    if (reader->row >= pg_rows_count(reader->rows) && !reader->is_last) {
        const struct pg_param params[] = {pg_param_int8(reader->behind), pg_param_int8(reader->export->settled),
                                          pg_param_int8(ROWS)};
        struct pg_rows *rows = NULL;
        if (!pg_sync_query(reader->export->ctl->db, &sql_operator_audit_by_id, params, &rows, err))
            return false;
        pg_rows_free(reader->rows);
        reader->rows = rows;
        reader->row = 0;
        reader->is_last = pg_rows_count(rows) < ROWS;
    }
    if (reader->row >= pg_rows_count(reader->rows) || !audit_row(reader->rows, reader->row, ret_row) ||
        ret_row->cursor.id > most)
        return false;
    reader->behind = ret_row->cursor.id;
    reader->row++;
    return true;
}
