/* One attempt over one event: its data, its steps by name, and what is known of its sends and its key. The steps of a
 * card request:
 *
 *     claim -> check -> keep -> issue -> activate -> reveal -> save -> link -> retire -> end
 *                  \-> lookup -> (the same) | mark -> cancel -> unlink -> end
 *
 * The steps of a delivery, an event of another type that a route (route/route.h) has:
 *
 *     claim -> deliver -> end
 *          \-> ask -> (the same)
 *
 * Activate, reveal, retire and verify are steps of profiles that declare their calls (issuer/profile.h), keep is a step
 * of profiles whose look-up is built from parameters; nothing else here depends on the issuer. A step starts exactly one
 * asynchronous operation and reads its one outcome; its verdict names the next step or the end. The steps are in
 * step.[ch]. flow_kind() and flow_limits() tell what differs between the two flows. flow_run.[ch] moves an attempt
 * through the steps and is the only code that changes `step` and `wait`; flow_verdict.[ch] decides when an attempt that
 * did not succeed is over; flow_end.[ch] describes the end to the writer. */
#ifndef ISSUING_FLOW_H
#define ISSUING_FLOW_H

#include "common/base/base.h"
#include "common/base/metrics.h"
#include "common/base/trace.h"
#include "common/base/uuid7.h"
#include "common/config/config.h"
#include "common/http_client/http_client.h"
#include "common/keyring.h"
#include "common/outbox.h"
#include "worker/db_clock.h"
#include "worker/event_parameters.h"
#include "worker/issuer/issuer.h"
#include "worker/outcome.h"
#include "worker/peer.h"
#include "worker/route/route.h"
#include "worker/target.h"
#include "worker/writer.h"

struct flow;
struct slots_share;
struct worker_series;

/* name, word, what it does, the peer that it calls, the call where that is the issuer, what it writes to the database */
#define FLOW_STEPS(X)                                                                                                 \
    X(CHECK, check, "ask core-api whether the user may have a card", FLOW_PEER_CORE, ISSUER_CALLS,                    \
      FLOW_WRITES_NOTHING)                                                                                            \
    X(LOOKUP, lookup, "ask the issuer what exists under our reference", FLOW_PEER_ISSUER, ISSUER_LOOKUP,              \
      FLOW_WRITES_NOTHING)                                                                                            \
    X(KEEP, keep, "keep what the issuer is told, so that a look-up finds the card", FLOW_PEER_NONE, ISSUER_CALLS,     \
      WRITE_KEEP)                                                                                                     \
    X(ISSUE, issue, "create the card, same key on every attempt", FLOW_PEER_ISSUER, ISSUER_CREATE,                    \
      FLOW_WRITES_NOTHING)                                                                                            \
    X(ACTIVATE, activate, "activate the card, which was made inactive", FLOW_PEER_ISSUER, ISSUER_ACTIVATE,            \
      FLOW_WRITES_NOTHING)                                                                                            \
    X(REVEAL, reveal, "read the card's number, which is stored encrypted", FLOW_PEER_ISSUER, ISSUER_REVEAL,           \
      FLOW_WRITES_NOTHING)                                                                                            \
    X(SAVE, save, "store the card, number encrypted, guarded by our lease", FLOW_PEER_NONE, ISSUER_CALLS, WRITE_SAVE) \
    X(LINK, link, "link the card at core-api, without its number", FLOW_PEER_CORE, ISSUER_CALLS, FLOW_WRITES_NOTHING) \
    X(RETIRE, retire, "close the card that was replaced", FLOW_PEER_ISSUER, ISSUER_RETIRE, FLOW_WRITES_NOTHING)       \
    X(MARK, mark, "note that the card must go, before it goes", FLOW_PEER_NONE, ISSUER_CALLS, WRITE_MARK)             \
    X(CANCEL, cancel, "cancel the card at the issuer", FLOW_PEER_ISSUER, ISSUER_CANCEL, FLOW_WRITES_NOTHING)          \
    X(VERIFY, verify, "read whether the card is gone, although its end was refused", FLOW_PEER_ISSUER,                \
      ISSUER_RETRIEVE, FLOW_WRITES_NOTHING)                                                                           \
    X(UNLINK, unlink, "remove the card from core-api", FLOW_PEER_CORE, ISSUER_CALLS, FLOW_WRITES_NOTHING)             \
    X(DELIVER, deliver, "send the event to its receiver, same key on every attempt", FLOW_PEER_ROUTE, ISSUER_CALLS,   \
      FLOW_WRITES_NOTHING)                                                                                            \
    X(ASK, ask, "ask the route's receiver whether the event was executed", FLOW_PEER_ROUTE, ISSUER_CALLS,             \
      FLOW_WRITES_NOTHING)

enum flow_step {
#define X(name, word, text, peer, call, write) STEP_##name,
    FLOW_STEPS(X)
#undef X
        STEP_COUNT
};

enum flow_peer { FLOW_PEER_NONE, FLOW_PEER_ISSUER, FLOW_PEER_CORE, FLOW_PEER_ROUTE };
#define FLOW_WRITES_NOTHING WRITE_KINDS

/* What the running step waits for. An attempt waits for one thing at a time, and each wait ends with exactly one
 * callback. */
enum flow_wait {
    /* Nothing is in flight. The slot is free, or the runner is about to start the next operation in the same
     * callback. */
    FLOW_WAIT_NONE,
    /* A longer lease is being written, because the call and the queue before it could outlast the lease that we hold.
     * When it is written, the attempt enters the peer's queue (FLOW_WAIT_TURN), or sends its call if the peer has
     * admitted it already (FLOW_WAIT_CALL). If the lease is lost, the attempt is over and nothing of it is written. */
    FLOW_WAIT_LEASE,
    /* The call stands in the peer's queue (target.h): the peer is at its limit of calls, or rests for a moment. Once
     * admitted, the call is sent (FLOW_WAIT_CALL), after a longer lease if the queue took too long (FLOW_WAIT_LEASE).
     * If the breaker opens or a long rest begins, the attempt is deferred (FLOW_WAIT_END). */
    FLOW_WAIT_TURN,
    /* The HTTP call is in flight, and the attempt holds the peer's ticket. The answer gives the verdict: the next step,
     * or the end. */
    FLOW_WAIT_CALL,
    /* The write of a step (keep, save, mark) is in flight. When it is done, the next step begins. If the lease is lost,
     * the attempt is over; if the write was given up, the attempt ends as a retry (FLOW_WAIT_END). */
    FLOW_WAIT_WRITE,
    /* The write that ends the attempt is in flight. Whatever comes of it, the slot is free afterwards: where nothing
     * was written, the lease runs out, and another attempt follows. */
    FLOW_WAIT_END,
    FLOW_WAITS,
};

/* Why a look-up is made; it decides what "not found" means. */
enum lookup_reason {
    LOOKUP_NONE,
    LOOKUP_EXHAUSTED,   /* not found: FAILED attempts_exhausted */
    LOOKUP_KEY_EXPIRED, /* not found: FAILED issuer_key_expired, route_key_expired */
    LOOKUP_INELIGIBLE,  /* found: cancel; not found: REJECTED with pending_code */
    LOOKUP_REFUSED,     /* not found: REJECTED with the code of the issuer or receiver */
    LOOKUP_UNFORESEEN,  /* not found: FAILED issuer_http_<n>, route_http_<n> */
    LOOKUP_WORKER_LOST, /* not found: FAILED worker_lost */
    /* The issuer has shown more than one card. Nothing is sent, stored or linked before it shows exactly one; several or
     * none: FAILED issuer_duplicate again. */
    LOOKUP_DUPLICATE,
    LOOKUP_CONTRADICTION, /* not found: decides nothing, retry */
    /* No attempts are left, but the peer answers no other event either. Not found decides nothing: a deferral for
     * pending_code. */
    LOOKUP_IN_OUTAGE,
    LOOKUP_CARD_SEEN, /* found: cancel; not found: decides nothing, since the card was seen by an earlier attempt */
    /* The key may be older than the database's clock shows, or is not trusted. Not found, and settled: the create or
     * delivery is sent. */
    LOOKUP_BEFORE_SENDING,
    LOOKUP_FIRST,        /* the profile looks before each repeat. Not found: the create is sent */
    LOOKUP_BY_ANSWER,    /* a repeat would be answered the same. Not found: decides nothing, retry for pending_code */
    LOOKUP_AFTER_REPEAT, /* the create was executed behind an unknown one, and the key is not trusted: two cards? */
    LOOKUP_REASONS,
};

enum flow_verdict_kind {
    FLOW_GO,       /* to `step` */
    FLOW_COMPLETE, /* COMPLETED; a `code` is a note for operators */
    FLOW_REJECT,   /* REJECTED with `code` */
    FLOW_FAIL,     /* FAILED with `code` */
    FLOW_RETRY,    /* PENDING, backoff; the attempt counts */
    FLOW_DEFER,    /* PENDING; the attempt is given back */
    FLOW_DROP,     /* the lease is lost: no write, no effect */
};

/* What follows a step. Steps make it; flow_verdict_settle() turns it into what is applied. */
struct flow_verdict {
    enum flow_verdict_kind kind;
    enum flow_step step;       /* GO */
    enum lookup_reason reason; /* GO to a look-up: why; LOOKUP_NONE = the flow's reason stays */
    /* REJECT, FAIL: the reason. RETRY, DEFER: the cause. COMPLETE: the note, NULL = none. GO with a reason: the flow's
     * pending_code; NULL = it stays. Borrowed until the verdict is applied. */
    const char *code;
    int64_t wait_ms;   /* RETRY, DEFER: at least so long; -1 = the usual delay. Settled: exactly so long */
    bool in_progress;  /* DEFER by 409 or 425: bounded by the key's lifetime */
    bool keeps_streak; /* settled DEFER: the streak of 409 and 425 answers goes on */
};

/* What all attempts of a worker share. Owned by the worker, and outlives every flow. */
struct flow_env {
    const struct config *config;
    struct peers *peers;
    struct routes *routes;
    const struct db_clock *db_clock;
    const struct parameters_env *parameters; /* with the issuer's profile */
    struct keyring *keyring;                 /* NULL = card numbers are not stored; replaced by a reload */
    struct worker_series *series;            /* of its metrics */
    bool is_draining;                        /* attempts are given back before their next call */
    /* As writer_submit() of writer.h: op ends exactly once, from the loop. */
    void (*submit_write)(void *context, struct write_op *op);
    /* The slot is free. From the loop. */
    void (*on_ended)(void *context, struct flow *flow);
    /* The lease was lost after a create was sent: the event may have ended over a look-up that could not see the
     * card. */
    void (*on_create_lost)(void *context, const struct uuid *event_id);
    void *context;
};

struct flow {
    const struct flow_env *env;
    struct flow *next;         /* slots.c: the next free slot */
    struct slots_share *share; /* slots.c: of its type */
    struct route *route;       /* that delivers the event; NULL = the event is a card request */

    /* The event, as claimed. Ages are in ms, at the claim. */
    struct uuid event_id, token;
    char event_text[UUID_TEXT_SIZE];
    char user_id[OUTBOX_USER_ID_MAX + 1];
    struct outbox_payload payload; /* of a card request */
    struct buf body;               /* of a delivery: the payload as PostgreSQL writes it */
    char replaces_issuer_id[CARD_ISSUER_ID_MAX + 1];
    char traceparent[TRACE_SIZE]; /* "" = none */
    int attempt;
    int64_t sent_age_ms;     /* of the first send that may have arrived; -1 = there is certainly none */
    int64_t deferred_age_ms; /* of the streak of 409 and 425 answers; -1 = there is none */
    int64_t settle_age_ms;   /* of the last send that may still be on its way; -1 = there is none */
    int lost_count;          /* attempts in a row before this one that were lost with their worker */
    int64_t wall_offset_us;  /* our wall clock less the steady one */
    int deferral_count;      /* deferrals in a row for the same cause */
    char deferral_code[OUTBOX_REASON_CODE_SIZE]; /* that cause; "" = the last attempt was no deferral */
    int64_t changed_age_ms;             /* since the event last changed: was deferred, failed, or was created */
    int64_t accepted_age_ms;            /* since it was accepted; -1 = not known. For the metrics */
    int64_t claimed_ms, lease_until_ms; /* by clock_mono_ms() */
    int64_t made_ms;                    /* when the event was made: Unix time by the database's clock */
    char held_end[16];                  /* the word of the lookup_reason whose end is held; "" = none */
    struct event_parameters parameters; /* that its calls are built from */

    /* Where the attempt stands. */
    enum flow_step step;
    enum flow_wait wait;
    bool is_busy;  /* the slot holds an event */
    bool is_probe; /* it was claimed while a kind of call was suspected at one of its targets */
    /* A card request: the issuer may have a card for this event that we do not know; until it is stored or cancelled.
     * A delivery: the receiver may have executed the event. */
    bool unknown;
    bool may_arrive;    /* a create or delivery of this attempt may still be on its way */
    bool is_looked_up;  /* nothing was found: the next send is the only one that acts, or meets its key */
    bool card_is_seen;  /* the issuer has shown the live card that is in `card` */
    bool sent_create;   /* a create of this attempt has left */
    bool is_readable;   /* the payload */
    bool is_elsewhere;  /* it, or the card that it is to replace, belongs to another issuer: nothing is done */
    bool is_saved;      /* there is a row in cards */
    bool is_delivered;  /* the route's receiver has executed the event */
    bool was_cancelled; /* the saved card was cancelled at the issuer in this attempt */
    int64_t checked_ms; /* when core-api agreed */
    int64_t step_started_us;
    /* CHECK only asks for the parameters of this step, which is next; STEP_COUNT = it asks whether the user may have a
     * card. */
    enum flow_step asks_for;
    enum flow_step verifies; /* VERIFY: CANCEL or RETIRE, which was refused */
    enum lookup_reason lookup_reason;
    /* A look-up found nothing, or is going to: the end that belongs to lookup_reason waits until no create or delivery
     * can arrive any more. Meanwhile nothing else is sent, neither by this attempt nor by a later one. */
    bool end_is_held;
    /* The reason to end with after a look-up or cancel. At the claim: cancel_code, or that of the held end; "" =
     * none. */
    char pending_code[OUTBOX_REASON_CODE_SIZE];
    struct issuer_card card;
    struct issuer_lookup lookup; /* the pages that were read; begins anew with each reason */
    struct write_save save;
    struct outcome outcome; /* of the last step */

    /* The one operation in flight. */
    struct http_call call;
    struct credential *credential; /* that the call was sent with; NULL = none */
    struct target_ticket ticket;
    bool holds_ticket;         /* admitted by the peer; target_leave() is owed */
    struct target_ticket turn; /* of the create, reserved before core-api is asked (flow_turn.h) */
    bool holds_turn;           /* target_leave() at the issuer is owed */
    int64_t extended_ms;       /* when the longer lease was requested */
    struct write_op write;
    enum write_result write_result;
    struct write_end end;
    struct buf kept;   /* the parameters that are being written; empty = none */
    struct buf result; /* the answer of the route's receiver, which the event keeps; empty = none */
};

/* So many attempts lost in a row with their worker: a look-up comes first; the event ends (outbox_sweep). */
#define FLOW_LOST_LOOKUP OUTBOX_LOST_LOOKUP
#define FLOW_LOST_MAX OUTBOX_LOST_MAX

/* What differs between card requests and deliveries, with a look-up or without one. */
struct flow_kind {
    enum flow_step first, send; /* the first step, and the one whose call must not happen twice */
    enum flow_step lookup;      /* settles an unknown outcome; STEP_COUNT = nothing does but the answer to a repeat */
    const char *key_expired;    /* the reason */
    enum outbox_cause unreadable;
};

/* What bounds the attempts of an event: options of the issuer, or of the route. */
struct flow_limits {
    int64_t key_lifetime_ms, timeout_ms, settle_time_ms;
    int64_t max_attempts;
};

/* Sets up a slot once / frees what it owns. env must outlive it. */
void flow_init(struct flow *flow, const struct flow_env *env);
void flow_done(struct flow *flow);
/* The slot is for an event of this route: user_id and payload are what is delivered, any bytes. False: they cannot be
 * delivered (payload_invalid). Without memory for the body it is true, and the attempt is given back. */
bool flow_take_delivery(struct flow *flow, struct route *route, struct slice user_id, struct slice payload);
/* Frees what the slot holds of its event. */
void flow_forget(struct flow *flow);

const struct flow_kind *flow_kind(const struct flow *flow);
struct flow_limits flow_limits(const struct flow *flow);
bool flow_has_lookup(const struct flow *flow);
/* As outbox_events.event_type. */
const char *flow_event_type(const struct flow *flow);

const char *flow_step_name(enum flow_step step);
/* What the step does, for the log. */
const char *flow_step_text(enum flow_step step);
/* ISSUER_CALLS: it does not call the issuer. */
enum issuer_call flow_step_call(enum flow_step step);
/* FLOW_WRITES_NOTHING: it calls a peer. */
enum write_kind flow_step_write(enum flow_step step);
/* Not every event makes the step's call. What it is refused for, such as a credential that may not read numbers, must not
 * stop the others. */
bool flow_step_is_aside(enum flow_step step);
/* The peer that the current step calls; NULL: it writes to the database. */
struct peer *flow_peer(const struct flow *flow);
/* What the current step is for: a CHECK that only asks for parameters, and a VERIFY, serve another step. */
enum flow_step flow_purpose(const struct flow *flow);
const char *flow_wait_name(enum flow_wait wait);
/* The word of a reason in outbox_events.held_end; NULL where no end is held for it. */
const char *lookup_reason_name(enum lookup_reason reason);
/* LOOKUP_NONE: it is no such word. */
enum lookup_reason lookup_reason_parse(const char *name);

/* An earlier attempt may have sent a create or delivery, and its key may be forgotten by now, or soon will be. */
bool flow_is_expired(const struct flow *flow, int64_t now_ms);
/* After so long an unknown outcome becomes a question: the lifetime of its key, or a day where the key lives for ever. */
int64_t flow_question_lifetime_ms(const struct flow *flow);
/* The outcome has been unknown for so long, less the key's margin. */
bool flow_is_long_unknown(const struct flow *flow, int64_t now_ms);
/* So long no look-up that finds nothing may decide; 0 = it may. */
int64_t flow_unsettled_ms(const struct flow *flow, int64_t now_ms);

/* An unknown outcome is settled for this reason: GO to the look-up; where there is none, the end that is a question,
 * since an earlier send may have been executed. code: what REFUSED, INELIGIBLE, UNFORESEEN, IN_OUTAGE and BY_ANSWER end
 * with; NULL for the others. */
struct flow_verdict flow_look_up(const struct flow *flow, enum lookup_reason reason, const char *code);
/* The reason code of the end that belongs to a look-up for this reason; pending_code where it has none of its own. */
const char *flow_end_code(const struct flow *flow, enum lookup_reason reason, const char *pending_code);

/* The time from which on a look-up must see cards: well before the event, since our clocks and the issuer's may differ by
 * hours. made_ms: by the database's clock; the id bears the time of another one. Pure. */
int64_t flow_lookup_since_ms(const struct uuid *event_id, int64_t made_ms);

/* Past the key's lifetime less its margin an UNKNOWN event is never sent again. The margin is never shorter than the
 * settling time: what is delivered late must still arrive within the lifetime. Pure. */
bool flow_key_expired(int64_t age_ms, int64_t lifetime_ms, int64_t timeout_ms, int64_t settle_ms);
/* How long "not found" may not be believed yet, because a create or delivery may still be on its way: 0 = it may.
 * age_ms: of the last such send, -1 = there is none; steady_ms: how long the database's clock has been seen to run
 * evenly. A worker whose lease was taken over may send until that lease would have ended, so the steady time covers it
 * too. Pure. */
int64_t flow_settle_left_ms(int64_t age_ms, int64_t steady_ms, int64_t settle_ms, int64_t lease_ms);

#endif
