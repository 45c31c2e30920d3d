/* Finds what lies behind the bookmark of a type's claims and should not: leases that ran out, and events that became
 * visible late.
 *
 * The claims walk the index of due events from their bookmark on and never look back. The sweep does: it looks at the
 * last two seconds once a second at most, and at everything older in passes, from young to old, so that an event that
 * ages meanwhile is not missed. Where the index is clean, a pass is one look; then watch.h watches at a lower cost, and
 * the sweep rests until something is due. Behind a snapshot that another session holds open, a look visits every entry
 * that no vacuum may remove; then a pass is cut into looks of about ten milliseconds, each followed by a rest fifty
 * times as long, so that other statements do not notice (sweep_pace.h). Of a backlog that nobody may claim, each poll
 * looks at one piece.
 *
 * The sweeps of all types have SWEEP_MOST statements in flight at most, so that they never take all connections. One
 * that is slow rests longest, and the others go on meanwhile. */
#ifndef ISSUING_SWEEP_H
#define ISSUING_SWEEP_H

#include "worker/base/job.h"
#include "worker/flow/claim.h"

#define SWEEP_MOST 2
#define SWEEP_EVERY_MS 1000

struct sweep;

/* The pointers are borrowed until the sweep is closed. */
struct sweep_options {
    struct claim *claim; /* of the type */
    const char *event_type;
    const struct route *route;
    enum claim_source source; /* of card requests */
    int *in_flight;           /* statements of the sweeps of all types; 0 at first */
    int64_t first_ms;         /* before the first look: the sweeps of several types look one after the other */
};

/* The looks come every worker.poll_interval, and no more frequently than SWEEP_EVERY_MS. */
must_check bool sweep_open(const struct sweep_options *options, const struct worker_env *env, struct sweep **ret_sweep,
                           struct err *err);
/* true: from now on it looks after a sweep_wake() only, until false is passed. */
void sweep_watch(struct sweep *sweep, bool is_watched);
/* Something may be due: it looks at all there is, soon; a second at most after the last look. */
void sweep_wake(struct sweep *sweep);
/* Its last look went over everything, and cost little. */
bool sweep_is_cheap(const struct sweep *sweep);
/* The database's clock was set back, or may have been: soon, open events whose times are in the future get the present
 * time. */
void sweep_rebase(struct sweep *sweep);

#endif
