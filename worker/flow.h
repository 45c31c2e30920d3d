/* One attempt over one event, and the runner that moves it. The steps themselves are issue_card.c's; only flow.c
 * changes a step and arms a lease, only flow_end.c ends an attempt.
 *
 *     claim -> check -> [gate] -> issue -> save -> link -> end
 *                           \-> lookup -> save | mark -> cancel -> unlink -> end
 *
 * A step starts exactly one asynchronous operation and reads its one outcome; its verdict names the next step or the
 * end.
 *
 * The gate: an attempt begins when the claim's rows are there, before they are committed. Check changes nothing
 * anywhere and is started at once; every other step, and every write, waits until the claim is known to be committed. */
#ifndef ISSUING_FLOW_H
#define ISSUING_FLOW_H

#include "common/base.h"
#include "common/http_client.h"
#include "common/outbox.h"
#include "common/uuid7.h"
#include "worker/credential.h"
#include "worker/issuer.h"
#include "worker/outcome.h"
#include "worker/target.h"
#include "worker/writer.h"

struct worker;
struct flow;

/* name, word, what it does, the peer it calls (issue_card.c; NULL = a database write) */
#define FLOW_STEPS(X)                                                              \
    X(CHECK, check, "ask core-api whether the user may have a card", core_of)      \
    X(LOOKUP, lookup, "ask the issuer what exists under our reference", issuer_of) \
    X(ISSUE, issue, "create the card, same key on every attempt", issuer_of)       \
    X(SAVE, save, "store the card, number encrypted, guarded by our lease", NULL)  \
    X(LINK, link, "tell core-api of the card, without its number", core_of)        \
    X(MARK, mark, "note that the card must go, before it goes", NULL)              \
    X(CANCEL, cancel, "cancel the card at the issuer", issuer_of)                  \
    X(UNLINK, unlink, "tell core-api that the card is gone", core_of)

enum flow_step {
#define X(name, word, text, peer) STEP_##name,
    FLOW_STEPS(X)
#undef X
        STEP_COUNT
};

enum flow_verdict_kind {
    FLOW_GO,       /* to `step` */
    FLOW_COMPLETE, /* COMPLETED */
    FLOW_REJECT,   /* REJECTED with `code` */
    FLOW_FAIL,     /* FAILED with `code` */
    FLOW_RETRY,    /* PENDING, backoff; the attempt counts; exhausted attempts are the runner's business */
    FLOW_DEFER,    /* PENDING, the attempt is given back */
    FLOW_DROP,     /* the lease is lost: no write, no effect */
};

struct flow_verdict {
    enum flow_verdict_kind kind;
    enum flow_step step;
    const char *code; /* REJECT, FAIL: reason; RETRY, DEFER: cause. Borrowed until the verdict is acted on */
    int64_t wait_ms;  /* RETRY, DEFER: at least; -1 = the usual */
    bool in_progress; /* DEFER by 409/425: bounded by the key's lifetime */
};

/* One row of the step table. */
struct flow_step_row {
    const char *name;
    const char *text;
    struct target *(*target)(struct worker *worker); /* NULL: a database write */
    /* Prepares the call (false: out of memory) or, without a target, puts the write. */
    bool (*ask)(struct flow *flow);
    /* Reads the finished call or write; returns what to do. */
    struct flow_verdict (*answer)(struct flow *flow, struct outcome *ret_outcome);
};
extern const struct flow_step_row flow_steps[STEP_COUNT];

/* So many attempts lost in a row with their worker: a look-up comes first; the event ends (outbox_sweep). */
#define FLOW_LOST_LOOKUP 4
#define FLOW_LOST_MAX 5

/* Why a look-up is made; it decides what "not found" means. */
enum flow_question {
    ASKED_NOTHING,
    ASKED_EXHAUSTED,     /* not found: FAILED attempts_exhausted */
    ASKED_KEY_EXPIRED,   /* not found: FAILED issuer_key_expired */
    ASKED_INELIGIBLE,    /* found: cancel; not found: REJECTED */
    ASKED_REFUSED,       /* not found: REJECTED with the issuer's code */
    ASKED_UNFORESEEN,    /* not found: FAILED issuer_http_<n> */
    ASKED_WORKER_LOST,   /* not found: FAILED worker_lost */
    ASKED_CONTRADICTION, /* not found: decides nothing, retry */
    ASKED_IN_OUTAGE, /* no attempts left, but nobody is answered: not found decides nothing, a deferral for held_code */
    ASKED_MARKED,    /* found: cancel; not found: decides nothing, the card was seen */
    ASKED_BEFORE_SENDING, /* the key may be older than the database's clock says; not found: sent again */
    ASKED_COUNT,
};
/* The word of a question in outbox_events.held_end; NULL where nothing is held for it. */
const char *flow_question_name(enum flow_question question);

/* The claim that the attempt stands on. */
enum flow_claim {
    CLAIM_ASKED, /* not committed yet */
    CLAIM_HELD,
    CLAIM_LOST, /* not committed, or nobody knows: nothing may come of the attempt */
};

struct flow {
    struct worker *worker;
    struct flow *next; /* the free slots; or those that wait for the same claim */

    /* the event, as claimed */
    struct uuid event_id, token;
    char event_text[UUID_TEXT_SIZE];
    char user_id[OUTBOX_USER_ID_MAX + 1];
    struct outbox_payload payload;
    char replaces_issuer_id[CARD_ISSUER_ID_MAX + 1];
    char traceparent[56]; /* "" = none */
    int attempt;
    int64_t sent_age_ms;     /* at the claim: age of the first send that may have arrived; -1 = surely none */
    int64_t deferred_age_ms; /* of the row of 409/425 answers; -1 = none */
    int64_t settle_age_ms;   /* at the claim: age of the last send that may still be on its way; -1 = there is none */
    int lost_count;          /* attempts in a row before this one that were lost with their worker */
    int64_t wall_offset_us;  /* at the claim: our wall clock less the steady one */
    int deferral_count;      /* deferrals in a row for the same cause */
    char deferral_code[OUTBOX_REASON_CODE_SIZE]; /* that cause; "" = the last attempt was no deferral */
    int64_t changed_age_ms;                      /* since the event last changed: was deferred, failed, or was made */
    int64_t claimed_ms, lease_until_ms;          /* monotonic */

    /* where it stands */
    enum flow_claim claim;
    void (*at_gate)(struct flow *flow); /* what waits for the claim; NULL = nothing */
    struct flow_verdict verdict;        /* the last one */
    enum flow_step step;
    bool is_busy; /* the slot holds an event */
    bool unknown; /* the issuer may have a card for this event that we do not know: sticky, until stored or cancelled */
    bool may_arrive;    /* a create of this attempt may still be on its way to the issuer */
    bool is_looked_up;  /* nothing was found, and every earlier send has settled: a create makes the only card */
    bool sent_create;   /* a create of this attempt has left */
    bool is_readable;   /* the payload */
    bool is_saved;      /* a row in cards */
    bool was_cancelled; /* the saved card was cancelled at the issuer in this attempt */
    int64_t checked_ms; /* when core-api said yes */
    int64_t step_started_us;
    enum flow_question question;
    /* A look-up found nothing, or will: the end that belongs to `question` waits until no create can arrive any more.
     * Nothing else is sent meanwhile, by this attempt or a later one. */
    bool is_held;
    char held_end[16]; /* at the claim: the question of the end that is held; "" = none */
    /* The reason to end with after look-up or cancel; at the claim: cancel_code, or that of the held end. */
    char held_code[OUTBOX_REASON_CODE_SIZE];
    struct issuer_card card;
    struct write_save save;
    struct outcome outcome; /* of the last step */

    /* the one operation in flight */
    struct http_call call;
    struct credential *credential; /* that the call on its way left with; NULL = none */
    struct target_ticket ticket;
    bool holds_ticket;
    void (*after_extension)(struct flow *flow);
    int64_t extended_ms; /* when the longer lease was asked for */
    struct write_op write;
    enum write_result write_result;
    struct write_end end;
};

/* Sets up a slot once / frees what it owns. */
void flow_init(struct flow *flow, struct worker *worker);
void flow_done(struct flow *flow);
/* Begins the attempt that is being claimed into the slot (fields above filled in). payload_is_usable false: another
 * service wrote what cannot be read; FAILED payload_invalid. Until one of the next two is called, once, it does not go
 * beyond the gate, and does not end. */
void flow_begin(struct flow *flow, bool payload_is_usable);
/* The claim is committed: the attempt goes on, and ends with worker_flow_ended(). */
void flow_claim_held(struct flow *flow);
/* It is not, or nobody knows: the attempt is dropped without a trace, with worker_flow_ended(), at once or when its
 * question is answered. */
void flow_claim_lost(struct flow *flow);
/* Past the key's lifetime less its margin an UNKNOWN event is never sent again. The margin is never shorter than the
 * settling time: what is delivered late must still arrive within the lifetime. Pure. */
bool flow_key_expired(int64_t age_ms, int64_t lifetime_ms, int64_t timeout_ms, int64_t settle_ms);
/* How long "not found" may not be believed yet, because a create may still be on its way: 0 = it may. age_ms: of the
 * last such send, -1 = there is none; steady_ms: how long the database's clock has been seen to run evenly. A worker
 * whose lease was taken over may send until that lease would have ended, so the steady time covers it too. Pure. */
int64_t flow_settle_left_ms(int64_t age_ms, int64_t steady_ms, int64_t settle_ms, int64_t lease_ms);
const char *flow_step_name(enum flow_step step);

#endif
