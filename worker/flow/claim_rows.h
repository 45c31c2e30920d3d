/* The answer of a claim (issuing.claim), read into flows. */
#ifndef ISSUING_CLAIM_ROWS_H
#define ISSUING_CLAIM_ROWS_H

#include "common/lib/pg/pg_result.h"
#include "worker/flow/flow.h"

/* How many events; there is always a row. */
int claim_rows_count(const struct pg_rows *rows);
/* Fills what the flow holds of its event; token, claimed_ms and lease_until_ms stay. Another service may have written
 * anything: false = payload_invalid. route: NULL = the event is a card request. */
must_check bool claim_rows_read(const struct pg_rows *rows, int row, struct route *route, struct flow *flow);

/* Of the claim: */

/* Until then everything due is claimed, in microseconds since 1970 by the database's clock. Not of a claim for an event
 * that is tried alone. */
int64_t claim_rows_bookmark_us(const struct pg_rows *rows);
/* There are events that have to be tried alone. */
bool claim_rows_has_lost(const struct pg_rows *rows);
/* There may be more events that are due. */
bool claim_rows_is_filled(const struct pg_rows *rows);
/* The database's clock, as above. */
int64_t claim_rows_now_us(const struct pg_rows *rows);

#endif
