/* What this worker tells the others about itself: one statement every few seconds writes the worker's row and one row
 * for each target (issuing.workers, issuing.worker_targets), and returns what operators ask of the targets
 * (controls.h). A statement before it, once a minute where this worker has no route, notes the routes
 * (issuing.note_routes). A wakeup makes the next heartbeat come at once, so that a control is obeyed within a second.
 *
 * The targets are paused until the first heartbeat is answered. If the database is away, that waits as claims do. If
 * the database answers but the controls cannot be read (HEARTBEAT_FAILURES_MAX times), the worker works without them:
 * the picture and the controls are for people, and no card may wait for them. For the same reason a later heartbeat
 * that fails changes nothing, and none ever delays another query.
 *
 * What all workers must have alike (config_each_agreed) is in the row too; the answer brings the times of the issuer
 * that count while they disagree (struct peers).
 *
 * A worker that ends removes its row. One that was killed counts as dead when it was not seen for a minute. */
#ifndef ISSUING_HEARTBEAT_H
#define ISSUING_HEARTBEAT_H

#include "worker/base/job.h"
#include "worker/flow/slots.h"

#define HEARTBEAT_INTERVAL_MS 5000
#define HEARTBEAT_GAP_MS 1000 /* between two of them, however many wakeups come */
#define HEARTBEAT_FAILURES_MAX 3

struct heartbeat;

/* All pointers are borrowed until the module is closed. */
struct heartbeat_options {
    const char *version;
    const struct slots *slots;
    /* A target was paused, resumed or probed. From the loop. */
    void (*on_obeyed)(void *context);
    /* While the worker drains: nothing else of it is running but its jobs, so its row may be removed. */
    bool (*is_rest_idle)(void *context);
    void *context;
};

/* Pauses the targets until the first answer. To be opened as the last job: after a stop the worker's row shows that it
 * drains; once is_rest_idle() and all other jobs are idle, the row is removed. It is idle when that is done, or could
 * not be. */
must_check bool heartbeat_open(const struct heartbeat_options *options, const struct worker_env *env,
                               struct heartbeat **ret_heartbeat, struct err *err);
/* A control may have changed. Cheap. */
void heartbeat_wake(struct heartbeat *heartbeat);
/* A breaker, a rest or the limit of calls of a target may have changed. Cheap; a new state of a breaker is written
 * within a second. */
void heartbeat_target_changed(struct heartbeat *heartbeat);

#endif
