/* Events whose attempt found its lease lost after it had sent a create: the event may have ended since, over a look-up
 * that could not see the card. Each is reported to its place in the database, where it becomes a mark to look it up
 * (issuing.add_mark). A place that does not answer does not hold up the others. */
#ifndef ISSUING_LOST_CREATES_H
#define ISSUING_LOST_CREATES_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/pg/pg_pool.h"

#define LOST_CREATES_MAX 256 /* that wait to be reported */

struct lost_create {
    struct uuid event_id;
    int place;
    bool is_sent; /* it is in flight to the database */
};

struct lost_creates {
    struct pg_pool *pool;
    struct lost_create events[LOST_CREATES_MAX];
    int count;
    bool is_sending;
    struct pg_query query;
    struct buf ids;
};

void lost_creates_init(struct lost_creates *lost, struct pg_pool *pool);
/* Adds one and sends it. When there are too many already, it is logged instead, for an operator. */
void lost_creates_add(struct lost_creates *lost, int place, const struct uuid *event_id);
/* Sends what waits, one place after the other, unless a statement is in flight. To be called by a timer: what was not answered is sent once
 * more. */
void lost_creates_send(struct lost_creates *lost);
/* No statement is in flight. */
bool lost_creates_is_idle(const struct lost_creates *lost);
/* Precondition: lost_creates_is_idle(). What was not reported is logged. */
void lost_creates_done(struct lost_creates *lost);

#endif
