/* See row.h. */
#include "ctl/row.h"

#include "common/lib/base/uuid7.h"

static void read_uuid_text(const struct pg_rows *rows, int row, int column, char *ret_text)
{
    struct uuid id = pg_uuid(rows, row, column);
    ret_text[0] = '\0';
    if (!pg_is_null(rows, row, column))
        uuid_format(&id, ret_text);
}

void row_read(const struct pg_rows *rows, int row, const struct row_field *fields, size_t count, void *ret_struct)
{
    for (int column = 0; column < (int)count; column++) {
        void *member = (char *)ret_struct + fields[column].offset;
        switch (fields[column].kind) {
        case ROW_KIND_TEXT:
            *(const char **)member = pg_text(rows, row, column);
            break;
        case ROW_KIND_NUMBER:
            *(int64_t *)member = pg_int8(rows, row, column);
            break;
        case ROW_KIND_BOOL:
            *(bool *)member = pg_bool(rows, row, column);
            break;
        case ROW_KIND_TIME:
            *(int64_t *)member = pg_time_us(rows, row, column);
            break;
        case ROW_KIND_UUID:
            *(struct uuid *)member = pg_uuid(rows, row, column);
            break;
        case ROW_KIND_UUID_TEXT:
            read_uuid_text(rows, row, column, member);
            break;
        }
    }
}
