/* The pass that deletes what has expired, makes the next partitions and drops those whose retention is over, erases
 * card numbers, and forgets keys whose events are gone; by one worker of the cluster at a time, in short
 * transactions. */
#ifndef ISSUING_HOUSEKEEPING_H
#define ISSUING_HOUSEKEEPING_H

#include "worker/base/job.h"

must_check bool housekeeping_open(const struct worker_env *env, struct err *err);

#endif
