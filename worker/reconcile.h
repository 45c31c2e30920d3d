/* Marks of operators, and of workers themselves: "look this event up at the issuer, and act" (issuing.peer_checks).
 *
 *     take -> [look-up] -> decide -> end
 *                            \-> note the orphan -> cancel -> look-up ... -> unlink -> end
 *
 * A mark is polled for at worker.poll_interval, taken under a lease and a token, and ended by one function of the
 * database that checks the token and the state of the event that was judged, and makes every change in one transaction.
 * So a worker that dies anywhere leaves a mark that another one takes up, and what was done is done once. Calls go
 * through the targets as those of flows do. While a breaker is open a mark may go as its probe, now and then, because
 * there may be no event to probe with; but its answer does not close the breaker. A few marks at a time, so that a bulk
 * reconcile does not stop the cards.
 *
 * "Not found" decides nothing while a create may still be under way (reconcile_is_settled). */
#ifndef ISSUING_RECONCILE_H
#define ISSUING_RECONCILE_H

#include "common/base.h"
#include "common/err.h"
#include "common/outbox.h"
#include "worker/issuer.h"

struct worker;
struct reconcile;

/* An attempt that had lost its lease may have made a card: soon the event is looked up. What cannot be noted before the
 * process ends is told in the log. */
void reconcile_report(struct reconcile *reconcile, const struct uuid *event_id);
must_check bool reconcile_open(struct worker *worker, struct reconcile **ret_reconcile, struct err *err);
/* No mark is taken after it; those that are held are given back before their next call. */
void reconcile_stop(struct reconcile *reconcile);
bool reconcile_is_idle(const struct reconcile *reconcile);
/* Wants an idle one. on_closed from the loop. */
void reconcile_close(struct reconcile *reconcile, void (*on_closed)(void *context), void *context);

/* ---- pure ---- */

/* What is known of the event of a mark. */
struct reconcile_facts {
    bool is_reissue; /* the mark wants a new event in its place; else it is a reconcile */
    bool is_there;   /* the event; the rest is of it */
    enum outbox_status status;
    bool is_settled;
    bool has_card;       /* a card is stored */
    bool card_is_active; /* and it is neither replaced nor cancelled */
    bool has_orphan; /* a live card of this REJECTED event was found and cancelled, by this worker or an earlier one */
    bool was_unlinked; /* core-api knows that the stored card is gone */
};

enum reconcile_step {
    RECONCILE_LOOK,   /* ask the issuer */
    RECONCILE_WAIT,   /* not settled: ask again later */
    RECONCILE_CANCEL, /* the card that was found, at the issuer */
    RECONCILE_UNLINK, /* the stored card, at core-api */
    RECONCILE_END,    /* with `result` */
};

struct reconcile_verdict {
    enum reconcile_step step;
    const char *result; /* END; static */
    const char
        *detail; /* END; static, or NULL. With cancelled_at_issuer, duplicate and reissued the user may read it */
};

/* Before the look-up: LOOK or END. */
struct reconcile_verdict reconcile_begin(const struct reconcile_facts *facts);
/* After it. is_ours: the one card that was found is the stored one. */
struct reconcile_verdict reconcile_decide(const struct reconcile_facts *facts, enum issuer_found found, bool is_ours);

#endif
