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
 * mark.[ch] with mark_row.c is one mark, common/core/decide/decide_mark.h decides, lost_creates.[ch] are the marks that a worker
 * leaves itself. */
#ifndef ISSUING_RECONCILE_H
#define ISSUING_RECONCILE_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/base/metrics.h"
#include "worker/base/db_clock.h"
#include "worker/questions/question.h"

struct reconcile;

/* All pointers are borrowed until the module is closed. */
struct reconcile_options {
    const struct question_env *env;
    const struct db_clock *db_clock;
    struct metrics *metrics;
    struct exporter *exporter; /* NULL = nobody wants spans */
    /* A mark has ended with a result: an event may have become final, or PENDING. From the loop. */
    void (*on_result)(void *context);
    void *context;
};

must_check bool reconcile_open(const struct reconcile_options *options, struct reconcile **ret_reconcile,
                               struct err *err);
/* An attempt that had lost its lease may have made a card: soon the event is looked up. What cannot be noted before the
 * process ends is logged. */
void reconcile_report(struct reconcile *reconcile, const struct uuid *event_id);
/* There may be marks. */
void reconcile_wake(struct reconcile *reconcile);
/* No mark is taken after it; those that are held are put back before their next call. */
void reconcile_stop(struct reconcile *reconcile);
/* No mark is held and no statement is in flight. */
bool reconcile_is_idle(const struct reconcile *reconcile);
/* Precondition: reconcile_is_idle(). on_closed is called from the loop. */
void reconcile_close(struct reconcile *reconcile, void (*on_closed)(void *context), void *context);

#endif
