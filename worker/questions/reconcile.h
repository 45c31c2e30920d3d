/* Takes marks of operators, and of workers themselves: "look this event up at the issuer, and act"
 * (issuing.marks). An event of a route is looked up at the lookup_url: was it executed?
 *
 *     take -> [look-up] -> decide -> end
 *                            \-> note the orphan -> cancel -> look-up ... -> unlink -> end
 *
 * Marks are taken when the poll finds some (watch.h). A mark is taken under a lease and a token, and ended by one
 * function of the database that checks the token and the state of the event that was judged, and makes every change in
 * one transaction. So a worker that dies anywhere leaves a mark that another one takes up, and nothing is done twice.
 * Calls go through the targets as those of attempts do. While a breaker is open a mark may go as its probe, now and
 * then, because there may be no event to probe with; but its answer does not close the breaker. While the issuer or the
 * route is paused no mark of its events is taken. A worker holds few marks at a time, so that a bulk reconcile does not
 * stop the cards.
 *
 * mark.[ch] with mark_row.c is one mark, common/core/decide/decide_mark.h decides. */
#ifndef ISSUING_RECONCILE_H
#define ISSUING_RECONCILE_H

#include "worker/base/job.h"

struct reconcile;

/* on_result: a mark has ended with a result: an event may have become final, or PENDING. From the loop. After a stop no
 * mark is taken; those that are held are put back before their next call. */
must_check bool reconcile_open(const struct worker_env *env, void (*on_result)(void *context), void *context,
                               struct reconcile **ret_reconcile, struct err *err);
/* There may be marks. */
void reconcile_wake(struct reconcile *reconcile);

#endif
