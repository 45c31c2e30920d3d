/* The rows of a result, in binary format, read by position. Conversions from PostgreSQL's format are here and nowhere
 * else.
 *
 * A column must have the type that the reader names (int8, text, bool, uuid, bytea, timestamptz); a statement casts
 * where needed (jsonb is sent as text). A reader asserts on a wrong width. */
#ifndef ISSUING_PG_RESULT_H
#define ISSUING_PG_RESULT_H

#include "common/lib/base/base.h"
#include "common/lib/base/uuid7.h"

struct pg_rows; /* a PGresult; the function that returns it states its lifetime */

int pg_rows_count(const struct pg_rows *rows);
bool pg_is_null(const struct pg_rows *rows, int row, int column);
/* int2, int4 and int8 columns; 0 for NULL */
int64_t pg_int8(const struct pg_rows *rows, int row, int column);
/* false for NULL */
bool pg_bool(const struct pg_rows *rows, int row, int column);
/* text, bytea; {NULL,0} for NULL; a text is NUL-terminated */
struct slice pg_bytes(const struct pg_rows *rows, int row, int column);
/* text; NULL for NULL */
static inline const char *pg_text(const struct pg_rows *rows, int row, int column)
{
    return pg_bytes(rows, row, column).bytes;
}
/* timestamptz, as microseconds since 1970; 0 for NULL */
int64_t pg_time_us(const struct pg_rows *rows, int row, int column);
/* all zeros for NULL */
struct uuid pg_uuid(const struct pg_rows *rows, int row, int column);

#endif
