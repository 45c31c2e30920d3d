/* Finds what lies behind the bookmark of a type's claims in one place and should not: leases that ran out, and events that became
 * visible late.
 *
 * The claims walk the index of due events from their bookmark on and never look back. The sweep does: at the last two
 * seconds with every poll, and at all that is older in passes, from young to old, so that an event that ages meanwhile
 * is not missed. Where the index is clean, a pass is one look, at every poll. Behind a snapshot that another session
 * holds open, a look visits every entry that no vacuum may remove; then a pass is cut into looks of about ten
 * milliseconds, each followed by a rest fifty times as long, so that other statements do not notice (sweep_pace.h).
 *
 * The sweeps of all types have SWEEP_MOST statements in flight at most, so that they never take all connections. One
 * that is slow rests longest, and the others go on meanwhile. */
#ifndef ISSUING_SWEEP_H
#define ISSUING_SWEEP_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/pg/pg_pool.h"
#include "worker/claim.h"

#define SWEEP_MOST 2

struct sweep;

/* The pointers are borrowed until the sweep is closed. */
struct sweep_options {
    uv_loop_t *loop;
    struct pg_pool *pool;
    struct claim *claim; /* of the type */
    const char *event_type;
    const struct route *route;
    int place;                /* of the events */
    enum claim_source source; /* of card requests */
    int *in_flight;           /* statements of the sweeps of all types; 0 at first */
    int64_t first_ms;         /* before the first look: the sweeps of several types look one after the other */
    struct worker_series *series;
    int64_t poll_interval_ms;
};

must_check bool sweep_open(const struct sweep_options *options, struct sweep **ret_sweep, struct err *err);
/* No look starts after it. */
void sweep_stop(struct sweep *sweep);
/* No statement is in flight. */
bool sweep_is_idle(const struct sweep *sweep);
/* The database's clock was set back, or may have been: soon, open events that bear times to come get times of now. */
void sweep_rebase(struct sweep *sweep);
/* Precondition: sweep_is_idle(). on_closed is called from the loop. */
void sweep_close(struct sweep *sweep, void (*on_closed)(void *context), void *context);

#endif
