/* See pg_result.h.
 *
 * Invariants: struct pg_rows is a PGresult under another name, so that no other folder needs libpq's header. A wrong
 * width or position is a bug of ours (statement and reader disagree); without assertions it reads as NULL. Left out:
 * types that no statement returns. */
#include "common/lib/pg/pg_result.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "common/lib/pg/pg_libpq.h"

#define PG_EPOCH_US INT64_C(946684800000000) /* PostgreSQL counts microseconds since 2000-01-01 */

static const PGresult *result_of(const struct pg_rows *rows)
{
    return (const PGresult *)rows;
}

int pg_rows_count(const struct pg_rows *rows)
{
    return rows ? PQntuples(result_of(rows)) : 0;
}

/* There is such a value, and it is not NULL. */
static bool has_value(const struct pg_rows *rows, int row, int column)
{
    bool is_inside = row >= 0 && row < pg_rows_count(rows) && column >= 0 && column < PQnfields(result_of(rows));
    assert(is_inside);
    return is_inside && PQgetisnull(result_of(rows), row, column) == 0;
}

bool pg_is_null(const struct pg_rows *rows, int row, int column)
{
    return !has_value(rows, row, column);
}

/* The bytes of a column that has a fixed width; NULL for SQL NULL. */
static const void *fixed(const struct pg_rows *rows, int row, int column, int width)
{
    if (!has_value(rows, row, column))
        return NULL;
    bool is_right = PQfformat(result_of(rows), column) == 1 && PQgetlength(result_of(rows), row, column) == width;
    assert(is_right);
    return is_right ? PQgetvalue(result_of(rows), row, column) : NULL;
}

int64_t pg_int8(const struct pg_rows *rows, int row, int column)
{
    if (!has_value(rows, row, column))
        return 0;
    int width = PQgetlength(result_of(rows), row, column);
    bool is_right = PQfformat(result_of(rows), column) == 1 && (width == 2 || width == 4 || width == 8);
    assert(is_right);
    const void *bytes = is_right ? PQgetvalue(result_of(rows), row, column) : NULL;
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    if (bytes && width == 2) {
        memcpy(&two, bytes, sizeof(two));
        return (int16_t)be16toh(two);
    }
    if (bytes && width == 4) {
        memcpy(&four, bytes, sizeof(four));
        return (int32_t)be32toh(four);
    }
    if (bytes && width == 8) {
        memcpy(&eight, bytes, sizeof(eight));
        return (int64_t)be64toh(eight);
    }
    return 0;
}

bool pg_bool(const struct pg_rows *rows, int row, int column)
{
    const unsigned char *byte = fixed(rows, row, column, 1);
    return byte && *byte != 0;
}

struct slice pg_bytes(const struct pg_rows *rows, int row, int column)
{
    if (!has_value(rows, row, column))
        return (struct slice){.bytes = NULL};
    return (struct slice){.bytes = PQgetvalue(result_of(rows), row, column),
                          .length = (size_t)PQgetlength(result_of(rows), row, column)};
}

struct uuid pg_uuid(const struct pg_rows *rows, int row, int column)
{
    struct uuid uuid = {.bytes = {0}};
    const void *bytes = fixed(rows, row, column, (int)sizeof(uuid.bytes));
    if (bytes)
        memcpy(uuid.bytes, bytes, sizeof(uuid.bytes));
    return uuid;
}

int64_t pg_time_us(const struct pg_rows *rows, int row, int column)
{
    return pg_is_null(rows, row, column) ? 0 : pg_int8(rows, row, column) + PG_EPOCH_US;
}
