/* How a sweep paces its looks: how wide the next one is, and how long it rests before it. Pure: it has no clock and no
 * connection.
 *
 * What a look costs has two parts. One grows with the entries that it visits; it decides how wide the next look may be,
 * and is followed by a rest fifty times as long. The other is there for a look at nothing too (planning, JIT, a remote
 * hop, a busy server): the looks at the young events show it, and a narrower look would not make it smaller. Therefore:
 * - a walk is always at least twice as fast as events age, however much a look costs;
 * - a walk that has lasted SWEEP_WALK_MS ends with one look at all that is left: everything is looked at within three
 *   minutes, as long as such a look is answered within its time limit (sweep.c), and reads no more than SWEEP_LOOKS
 *   rows.
 * Only events that nobody claims are more, such as a backlog behind a pause: each poll looks at that many rows of it,
 * so that a worker that may not work costs the same however long the backlog is. */
#ifndef ISSUING_SWEEP_PACE_H
#define ISSUING_SWEEP_PACE_H

#include "common/lib/base/base.h"

#define SWEEP_UNBOUNDED INT64_MAX
#define SWEEP_YOUNG_MS 2000 /* a walk begins at this age; what is younger is looked at at every interval */
#define SWEEP_WALK_MS 90000
#define SWEEP_YOUNG_COSTS 4
#define SWEEP_LOOKS 2000 /* rows that a look reads a poll, but what is due together is read together */

struct sweep_pace {
    int64_t poll_interval_ms;
    int64_t young_costs_ms[SWEEP_YOUNG_COSTS]; /* of the last looks at the young events; -1 = none yet */
    int young_next;
    int64_t began_ms;       /* the walk */
    int64_t age_ms;         /* where the walk has got to */
    int64_t width_ms;       /* of the next look; SWEEP_UNBOUNDED = at all that is left */
    int64_t least_width_ms; /* of this walk: where the next one begins */
    int64_t patience_ms;    /* how long a walk may last; longer after a look at all that was left was not answered */
};

void sweep_pace_init(struct sweep_pace *pace, int64_t poll_interval_ms, int64_t now_ms);
/* After a look at the young events. Returns when the next one is due. */
int64_t sweep_pace_young(struct sweep_pace *pace, int64_t now_ms, int64_t cost_ms);
/* After a look of the walk, at so many rows. was_full: there is more where it looked. Returns when the next one is
 * due. */
int64_t sweep_pace_old(struct sweep_pace *pace, int64_t now_ms, int64_t cost_ms, int64_t looked, bool was_full);
/* After a look of the walk that was not answered within limit_ms: it did not happen. Returns when the next one is
 * due. */
int64_t sweep_pace_late(struct sweep_pace *pace, int64_t now_ms, int64_t limit_ms);

#endif
