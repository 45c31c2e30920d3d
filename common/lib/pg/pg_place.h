/* Which of several databases this is (migrations/schema/24_place.sql), as schema_version tells it on each new
 * connection. */
#ifndef ISSUING_PG_PLACE_H
#define ISSUING_PG_PLACE_H

#include "common/lib/pg/pg_result.h"
#include "common/lib/pg/pg_settings.h"

enum pg_place_fit {
    PG_PLACE_FITS,
    PG_PLACE_WRONG,     /* it is another place, or one of another number of places */
    PG_PLACE_ELSEWHERE, /* other servers may serve this place */
};

/* rows: of schema_version. Unless it fits, ret_text says why. */
enum pg_place_fit pg_place_check(const struct pg_rows *rows, int place, int places, char ret_text[PG_FAULT_SIZE]);

#endif
