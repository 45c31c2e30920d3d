/* See pg_columns.h. */
#include "common/lib/pg/pg_columns.h"

#include <assert.h>

void pg_columns_init(struct pg_columns *columns, size_t array_bytes_max)
{
    *columns = (struct pg_columns){0};
    for (int i = 0; i < PG_PARAMS_MAX; i++)
        buf_init(&columns->columns[i].buf, array_bytes_max);
}

void pg_columns_done(struct pg_columns *columns)
{
    for (int i = 0; i < PG_PARAMS_MAX; i++)
        buf_done(&columns->columns[i].buf);
}

void pg_columns_start(struct pg_columns *columns)
{
    columns->count = columns->next = columns->row_count = 0;
}

void pg_columns_start_row(struct pg_columns *columns)
{
    assert(columns->next == columns->count); /* the row before is complete */
    columns->next = 0;
    columns->row_count++;
}

/* type 0 = a scalar. */
static struct pg_column *next_column(struct pg_columns *columns, enum pg_type type)
{
    bool is_first_row = columns->row_count == 1;
    assert(columns->row_count > 0 && columns->next < (is_first_row ? PG_PARAMS_MAX : columns->count));
    struct pg_column *column = &columns->columns[columns->next++];
    if (is_first_row) {
        columns->count = columns->next;
        column->type = type;
        if (type)
            pg_array_start(&column->array, &column->buf, type);
    }
    assert(column->type == type);
    return column;
}

void pg_columns_add_uuid(struct pg_columns *columns, const struct uuid *uuid)
{
    pg_array_add_uuid(&next_column(columns, PG_UUID)->array, uuid);
}

void pg_columns_add_int8(struct pg_columns *columns, int64_t value)
{
    pg_array_add_int8(&next_column(columns, PG_INT8)->array, value);
}

void pg_columns_add_int8_or_null(struct pg_columns *columns, const int64_t *value)
{
    if (value)
        pg_columns_add_int8(columns, *value);
    else
        pg_array_add(&next_column(columns, PG_INT8)->array, NULL, 0);
}

void pg_columns_add_bool(struct pg_columns *columns, bool value)
{
    pg_array_add_bool(&next_column(columns, PG_BOOL)->array, value);
}

void pg_columns_add_text(struct pg_columns *columns, const char *text)
{
    pg_array_add_string(&next_column(columns, PG_TEXT)->array, text);
}

void pg_columns_add_slice(struct pg_columns *columns, struct slice text)
{
    pg_array_add(&next_column(columns, PG_TEXT)->array, text.bytes, text.length);
}

void pg_columns_add_bytea(struct pg_columns *columns, const void *bytes, size_t length)
{
    pg_array_add(&next_column(columns, PG_BYTEA)->array, bytes, length);
}

void pg_columns_set_scalar(struct pg_columns *columns, struct pg_param scalar)
{
    next_column(columns, (enum pg_type)0)->scalar = scalar;
}

bool pg_columns_finish(struct pg_columns *columns, struct pg_param *ret_params, int count)
{
    assert(columns->row_count > 0 && columns->next == columns->count && columns->count == count);
    bool has_failed = false;
    for (int i = 0; i < count; i++) {
        struct pg_column *column = &columns->columns[i];
        ret_params[i] = column->type ? pg_array_param(&column->array) : column->scalar;
        has_failed |= column->type && column->buf.failed;
    }
    return !has_failed;
}
