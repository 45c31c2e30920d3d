/* What a statement gave: rows in binary format, read by position. The conversion lives here and nowhere else.
 *
 * Columns must be of the type the reader names (int8, text, bool, uuid, bytea, timestamptz); statements cast where
 * needed
 * (`extract(epoch ...)` times are sent as int8 microseconds, jsonb as text). A reader asserts on a wrong width. */
#ifndef ISSUING_PG_RESULT_H
#define ISSUING_PG_RESULT_H

#include "common/base.h"
#include "common/uuid7.h"

struct pg_rows; /* a PGresult; valid only as long as its giver says */

int pg_rows_count(const struct pg_rows *rows);
bool pg_is_null(const struct pg_rows *rows, int row, int column);
int64_t pg_int8(const struct pg_rows *rows, int row, int column); /* int2, int4 and int8 columns; 0 for NULL */
bool pg_bool(const struct pg_rows *rows, int row, int column);    /* false for NULL */
struct slice pg_bytes(const struct pg_rows *rows, int row,
                      int column); /* text, bytea; {NULL,0} for NULL; text is NUL-terminated */
int64_t pg_time_us(const struct pg_rows *rows, int row,
                   int column); /* timestamptz as microseconds since 1970; 0 for NULL */
struct uuid pg_uuid(const struct pg_rows *rows, int row, int column); /* all zero for NULL */

#endif
