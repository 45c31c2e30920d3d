/* Events that may have killed a worker are tried alone, while the worker holds no other event of any type. The
 * ordinary events of all types wait for that time, then have a pause that is longer than that took. Types that have
 * such events take turns. A type whose target takes no calls waits, and the other types do not wait for it. */
#ifndef ISSUING_TURNS_H
#define ISSUING_TURNS_H

#include "worker/flow/slots.h"

enum turns_state {
    /* Ordinary events are claimed. When there are lost events and the pause since the last one tried alone is over:
     * TURNS_EMPTYING. */
    TURNS_ORDINARY,
    /* Nothing is claimed until all slots are free; then one lost event is. It becomes TURNS_ALONE, or, if the claim
     * failed or another worker has the event, TURNS_ORDINARY. */
    TURNS_EMPTYING,
    /* One lost event is being tried, and nothing is claimed beside it. When its slot is free: TURNS_ORDINARY. */
    TURNS_ALONE,
};

/* Of one type. */
struct turns_member {
    struct turns_member *next;       /* private */
    const struct slots_share *share; /* of the type */
    bool has_lost;                   /* there are events of it that have to be tried alone */
    int64_t tried;                   /* private: the number of the type's last turn */
};

struct turns {
    const struct slots *slots;
    enum turns_state state;
    struct turns_member *members;
    int64_t started_ms; /* the ordinary events wait since then */
    int64_t due_ms;     /* the next turn of a lost event does not begin before */
    int64_t count;      /* of turns so far */
};

enum turns_answer {
    TURNS_WAIT,       /* no claim may be sent */
    TURNS_TAKE,       /* the claim is for ordinary events */
    TURNS_TAKE_ALONE, /* the claim is for one event that is tried alone */
};

void turns_init(struct turns *turns, const struct slots *slots);
/* Both outlive the claims. */
void turns_join(struct turns *turns, struct turns_member *member, const struct slots_share *share);
/* What this type may claim now. */
enum turns_answer turns_ask(struct turns *turns, const struct turns_member *member, int64_t now_ms);
/* The claim of an event that is tried alone was sent / took one / took none or failed. */
void turns_note_sent(struct turns *turns, struct turns_member *member);
void turns_note_taken(struct turns *turns);
void turns_end(struct turns *turns, int64_t now_ms);

#endif
