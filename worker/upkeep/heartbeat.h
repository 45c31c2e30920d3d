/* What this worker tells the others about itself: one statement every few seconds writes the worker's row and one row
 * for each target (issuing.workers, issuing.worker_targets), and returns what operators ask of the targets
 * (controls.h). A statement before it, once a minute where this worker has no route, notes the routes
 * (issuing.note_routes). A wakeup makes the next heartbeat come at once, so that a control is obeyed within a second.
 *
 * The targets are paused until the first heartbeat is answered. If the database is away, that waits as claims do. If the
 * database answers but the controls cannot be read (HEARTBEAT_FAILURES_MAX times), the worker works without them: the
 * picture and the controls are for people, and no card may wait for them. For the same reason a later heartbeat that
 * fails changes nothing, and none ever stands in the way of another query.
 *
 * What all workers must have alike (config_each_agreed) stands in the row too; the answer brings the times of the
 * issuer that count while they disagree (struct peers).
 *
 * A worker that ends removes its row. One that was killed counts as dead when it was not seen for a minute. */
#ifndef ISSUING_HEARTBEAT_H
#define ISSUING_HEARTBEAT_H

#include <uv.h>

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/pg/pg_pool.h"
#include "worker/flow/slots.h"
#include "worker/peers/peer.h"
#include "worker/route/route.h"

#define HEARTBEAT_INTERVAL_MS 5000
#define HEARTBEAT_GAP_MS 1000 /* between two of them, however many wakeups come */
#define HEARTBEAT_FAILURES_MAX 3

struct heartbeat;

/* All pointers are borrowed until the module is closed. */
struct heartbeat_options {
    uv_loop_t *loop;
    struct pg_pool *pool;
    const char *worker_name; /* host:pid, as in leases */
    const char *version;
    const struct config *config;
    struct peers *peers; /* with the times that the workers agree on */
    struct routes *routes;
    const struct slots *slots;
    /* A target was paused, resumed or probed. From the loop. */
    void (*on_obeyed)(void *context);
    /* While the worker drains: nothing else of it is running, so its row may be removed. */
    bool (*is_rest_idle)(void *context);
    void *context;
};

/* Pauses the targets until the first answer. */
must_check bool heartbeat_open(const struct heartbeat_options *options, struct heartbeat **ret_heartbeat,
                               struct err *err);
/* A control may have changed. Cheap. */
void heartbeat_wake(struct heartbeat *heartbeat);
/* A breaker, a rest or the limit of calls of a target may have changed. Cheap; a new state of a breaker is written
 * within a second. */
void heartbeat_target_changed(struct heartbeat *heartbeat);
/* From now on the worker's row shows that it drains; once is_rest_idle(), the row is removed. */
void heartbeat_stop(struct heartbeat *heartbeat);
/* After heartbeat_stop(): the row is removed, or could not be, and no statement is in flight. */
bool heartbeat_is_idle(const struct heartbeat *heartbeat);
/* Precondition: heartbeat_is_idle(). on_closed is called from the loop. */
void heartbeat_close(struct heartbeat *heartbeat, void (*on_closed)(void *context), void *context);

#endif
