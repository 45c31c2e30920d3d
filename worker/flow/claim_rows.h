/* The answer of a claim (issuing.claim), read into flows. */
#ifndef ISSUING_CLAIM_ROWS_H
#define ISSUING_CLAIM_ROWS_H

#include "common/lib/pg/pg_result.h"
#include "worker/flow/flow.h"

/* What the answer says of the claim. */
struct claim_answer {
    int count; /* of events */
    /* Until then everything due is claimed, in microseconds since 1970 by the database's clock. Not of a claim for an
     * event that is tried alone. */
    int64_t bookmark_us;
    bool has_lost;  /* there are events that have to be tried alone */
    bool is_filled; /* there may be more events that are due */
    int64_t now_us; /* the database's clock, as above */
};
struct claim_answer claim_rows_answer(const struct pg_rows *rows);
/* Fills what the flow holds of its event; token, claimed_ms and lease_until_ms stay. Another service may have written
 * anything: false = payload_invalid. route: NULL = the event is a card request. */
must_check bool claim_rows_read(const struct pg_rows *rows, int row, struct route *route, struct flow *flow);

#endif
