/* What to do with a mark (worker/questions/reconcile.h), by what we have and what the issuer, or the receiver of a
 * route, shows. Pure.
 *
 * The verdicts: GO to a step; COMPLETE with the result as `code`; DEFER, which puts the mark back. "Not found" decides
 * nothing while a create or delivery may still be under way. */
#ifndef ISSUING_DECIDE_MARK_H
#define ISSUING_DECIDE_MARK_H

#include "common/core/decide/decide.h"

/* What is known of a mark and its event. */
struct mark_facts {
    bool is_reissue;  /* the mark requests a new event instead of this one; else it is a reconcile */
    bool is_there;    /* the event exists; the other members are about it */
    bool is_delivery; /* by a route; else it is a card request */
    enum outbox_status status;
    int64_t settle_left_ms;  /* until no create or delivery of it can be on its way; 0 = none can; -1 = not known */
    bool has_card;           /* a card is stored */
    bool card_is_active;     /* and it is neither replaced nor cancelled; it may be frozen */
    bool is_of_other_issuer; /* it belongs to another issuer than this worker's */
    bool verifies;           /* the issuer's profile reads one card */
    int tries;               /* of the mark, this one included */
    /* A live card of this REJECTED event was found and cancelled, or the card of this COMPLETED one was found closed,
     * by this worker or an earlier one. */
    bool has_orphan;
    /* What this run has shown. */
    enum issuer_found found;
    bool is_ours;      /* the one card that was found is the stored one */
    bool is_frozen;    /* the issuer authorizes nothing with it at present */
    bool was_unlinked; /* core-api knows that the stored card is gone */
    int cancels;       /* of cards */
};

/* Before any call. */
struct flow_verdict decide_mark_first(const struct mark_facts *facts);
/* What follows the answer to a call, or the write of STEP_MARK. step: the one that was answered. asks_for: as struct
 * attempt. */
struct flow_verdict decide_mark(struct mark_facts *facts, enum flow_step step, enum flow_step asks_for,
                                const struct outcome *outcome, const struct shown *shown);

#endif
