/* The parameters of a statement that handles many rows at once. Each parameter is an array with one element for each
 * row, or a scalar that is the same for all rows. One call describes one parameter, its type and its value together, in
 * the order of the statement's parameters, and every row makes the same calls:
 *
 *     pg_columns_start(&columns);
 *     for (each item) {
 *         pg_columns_start_row(&columns);
 *         pg_columns_add_uuid(&columns, &item->id);                   $1::uuid[]
 *         pg_columns_add_text(&columns, item->code);                  $2::text[]
 *         pg_columns_set_scalar(&columns, pg_param_int8(lease_ms));   $3::int8
 *     }
 *     if (!pg_columns_finish(&columns, query->params, statement->parameters))
 *         ... out of memory ...
 *
 * Pure: no libpq. The memory is reused for the next statement. */
#ifndef ISSUING_PG_COLUMNS_H
#define ISSUING_PG_COLUMNS_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/pg/pg_param.h"

struct pg_columns {
    struct pg_column {
        enum pg_type type;      /* 0 = a scalar */
        struct buf buf;         /* owned; the array's bytes */
        struct pg_array array;  /* unless it is a scalar */
        struct pg_param scalar; /* if it is one */
    } columns[PG_PARAMS_MAX];
    int count;     /* columns; the first row determines them */
    int next;      /* the column that the next call adds to */
    int row_count; /* the row under construction included */
};

/* array_bytes_max bounds the memory of each column; a row beyond it makes pg_columns_finish() fail. */
void pg_columns_init(struct pg_columns *columns, size_t array_bytes_max);
void pg_columns_done(struct pg_columns *columns);
/* No rows yet. What pg_columns_finish() returned before is not valid any more. */
void pg_columns_start(struct pg_columns *columns);
void pg_columns_start_row(struct pg_columns *columns);
void pg_columns_add_uuid(struct pg_columns *columns, const struct uuid *uuid); /* NULL = null */
void pg_columns_add_int8(struct pg_columns *columns, int64_t value);
void pg_columns_add_int8_or_null(struct pg_columns *columns, const int64_t *value); /* NULL = null */
void pg_columns_add_bool(struct pg_columns *columns, bool value);
void pg_columns_add_text(struct pg_columns *columns, const char *text);                  /* NULL = null */
void pg_columns_add_slice(struct pg_columns *columns, struct slice text);                /* bytes NULL = null */
void pg_columns_add_bytea(struct pg_columns *columns, const void *bytes, size_t length); /* bytes NULL = null */
void pg_columns_set_scalar(struct pg_columns *columns, struct pg_param scalar);
/* At least one row is there and complete, and it has `count` columns. The parameters are borrowed from the columns
 * until the next start. false: out of memory, or a column is too long; ret_params is not valid. */
must_check bool pg_columns_finish(struct pg_columns *columns, struct pg_param *ret_params, int count);

#endif
