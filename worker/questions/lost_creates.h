/* Events whose attempt found its lease lost after it had sent a create: the event may have ended since, over a look-up
 * that could not see the card. Each is reported to the database, where it becomes a mark to look it up
 * (issuing.add_mark). */
#ifndef ISSUING_LOST_CREATES_H
#define ISSUING_LOST_CREATES_H

#include "common/lib/base/uuid7.h"
#include "worker/base/job.h"

struct lost_creates;

must_check bool lost_creates_open(const struct worker_env *env, struct lost_creates **ret_lost, struct err *err);
/* Adds one and sends it; one that is not answered well is sent once more after worker.poll_interval, unless the worker
 * drains. When there are too many already, it is logged instead, for an operator, and so is what was not reported when
 * the worker ends. */
void lost_creates_add(struct lost_creates *lost, const struct uuid *event_id);

#endif
