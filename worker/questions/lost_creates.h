/* Events whose attempt found its lease lost after it had sent a create: the event may have ended since, over a look-up
 * that could not see the card. Each is reported to the database, where it becomes a mark to look it up
 * (issuing.add_mark). */
#ifndef ISSUING_LOST_CREATES_H
#define ISSUING_LOST_CREATES_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/pg/pg_pool.h"

#define LOST_CREATES_MAX 256 /* that wait to be reported */

struct lost_creates {
    struct pg_pool *pool;
    struct uuid event_ids[LOST_CREATES_MAX];
    int count;
    int sent_count; /* so many of the first are in flight to the database */
    struct pg_query query;
    struct buf ids;
};

void lost_creates_init(struct lost_creates *lost, struct pg_pool *pool);
/* Adds one and sends it. When there are too many already, it is logged instead, for an operator. */
void lost_creates_add(struct lost_creates *lost, const struct uuid *event_id);
/* Sends what waits, unless a statement is in flight. To be called by a timer: what was not answered is sent once
 * more. */
void lost_creates_send(struct lost_creates *lost);
/* No statement is in flight. */
bool lost_creates_is_idle(const struct lost_creates *lost);
/* Precondition: lost_creates_is_idle(). What was not reported is logged. */
void lost_creates_done(struct lost_creates *lost);

#endif
