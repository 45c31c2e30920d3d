/* See pg_place.h. */
#include "common/lib/pg/pg_place.h"

#include <stdio.h>
#include <string.h>

/* The columns of schema_version. */
enum { COL_NUMBER = 5, COL_PLACES, COL_HOME, COL_SERVER };

enum pg_place_fit pg_place_check(const struct pg_rows *rows, int place, int places, char ret_text[PG_FAULT_SIZE])
{
    bool has_row = !pg_is_null(rows, 0, COL_NUMBER);
    int number = has_row ? (int)pg_int8(rows, 0, COL_NUMBER) : 0,
        count = has_row ? (int)pg_int8(rows, 0, COL_PLACES) : 1;
    struct slice home = pg_bytes(rows, 0, COL_HOME), server = pg_bytes(rows, 0, COL_SERVER);
    /* guard: a database of another place is not used */
    if (number != place || count != places) {
        snprintf(ret_text, PG_FAULT_SIZE,
                 "the database is place %d of %d, and not place %d of %d: see database.url and "
                 "database.places",
                 number, count, place, places);
        return PG_PLACE_WRONG;
    }
    /* guard: a place that moved is looked for where it is */
    if (has_row && (home.length != server.length || memcmp(home.bytes, server.bytes, home.length) != 0)) {
        snprintf(ret_text, PG_FAULT_SIZE, "place %d is served by \"%.60s\", and this server is \"%.60s\"", place,
                 home.bytes, server.bytes);
        return PG_PLACE_ELSEWHERE;
    }
    return PG_PLACE_FITS;
}
