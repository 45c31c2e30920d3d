/* What to do with a mark (reconcile.h), by what we have and what the issuer, or the receiver of a route, shows. Pure.
 *
 * "Not found" decides nothing while a create or delivery may still be under way (is_settled). */
#ifndef ISSUING_MARK_VERDICT_H
#define ISSUING_MARK_VERDICT_H

#include "common/lib/base/base.h"
#include "common/core/outbox.h"
#include "common/core/issuer/issuer.h"

/* What is known of the event of a mark. */
struct mark_facts {
    bool is_reissue; /* the mark requests a new event in its place; else it is a reconcile */
    bool is_there;   /* the event exists; the other members are about it */
    enum outbox_status status;
    bool is_settled;     /* no create or delivery of it can still be on its way */
    bool has_card;       /* a card is stored */
    bool card_is_active; /* and it is neither replaced nor cancelled; it may be frozen */
    bool is_frozen;      /* the one card that was found: the issuer authorizes nothing with it at present */
    /* A live card of this REJECTED event was found and cancelled, or the card of this COMPLETED one was found closed, by
     * this worker or an earlier one. */
    bool has_orphan;
    bool is_elsewhere; /* it belongs to another issuer than this worker's */
    int tries;         /* of the mark, this one included */
    bool was_unlinked; /* core-api knows that the stored card is gone */
};

enum mark_step {
    MARK_LOOK_UP, /* at the issuer, or at the receiver */
    MARK_WAIT,    /* not settled: look up again later */
    MARK_LEAVE,   /* to a worker of the event's issuer */
    MARK_CANCEL,  /* the card that was found, at the issuer */
    MARK_UNLINK,  /* the stored card, at core-api */
    MARK_END,     /* with `result` */
};

struct mark_verdict {
    enum mark_step step;
    const char *result; /* END; static */
    /* END; static, or NULL. With cancelled_at_issuer, duplicate and reissued the user may read it. */
    const char *detail;
};

/* Before the look-up: LOOK_UP, LEAVE or END. */
struct mark_verdict mark_verdict_first(const struct mark_facts *facts);
/* After the look-up. is_ours: the one card that was found is the stored one. */
struct mark_verdict mark_verdict_after_lookup(const struct mark_facts *facts, enum issuer_found found, bool is_ours);
/* After the receiver of a route was asked: WAIT or END. */
struct mark_verdict mark_verdict_after_ask(const struct mark_facts *facts, bool was_executed);

#endif
