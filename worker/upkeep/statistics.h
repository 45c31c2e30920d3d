/* The statistics follow the events: within a second one worker of the cluster moves what the ends of events have left
 * in statistics_changes into outbox_statistics, in one short transaction (issuing.fold_statistics). No decision rests
 * on the statistics, so a fold waits for a connection that nobody else needs, and one that fails is simply made
 * again. */
#ifndef ISSUING_STATISTICS_H
#define ISSUING_STATISTICS_H

#include "worker/base/job.h"

struct statistics;

must_check bool statistics_open(const struct worker_env *env, struct statistics **ret_statistics, struct err *err);
/* There are changes, or may be. */
void statistics_wake(struct statistics *statistics);

#endif
