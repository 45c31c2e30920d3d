/* What runs beside the attempts: the pass that makes the next partitions and drops those whose retention is over; by one
 * worker of the cluster at a time, in short transactions. */
#ifndef ISSUING_HOUSEKEEPING_H
#define ISSUING_HOUSEKEEPING_H

#include "worker/base/job.h"

must_check bool housekeeping_open(const struct worker_env *env, struct err *err);

#endif
