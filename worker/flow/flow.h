/* One attempt over one event: its data, its steps by name, and what is known of its sends and its key. The steps of
 * a card request:
 *
 *     claim -> check -> keep -> issue -> activate -> reveal -> save -> link -> retire -> end
 *                  \-> lookup -> (the same) | mark -> cancel -> unlink -> end
 *
 * A reissue that ends REJECTED or FAILED: -> review -> disown -> that end (flow_review.h).
 *
 * The steps of a delivery, an event of another type that a route (route/route.h) has:
 *
 *     claim -> deliver -> end
 *          \-> ask -> (the same)
 *
 * Activate, reveal, retire and verify are steps of profiles that declare their calls (common/core/issuer/profile.h),
 * keep is a step of profiles whose look-up is built from parameters; nothing else here depends on the issuer. A step
 * starts exactly one asynchronous operation and reads its one outcome; its verdict names the next step or the end.
 * The steps are in step.[ch]. common/core/decide/ decides what comes first, what follows a failure and when the next
 * attempt comes. flow_run.[ch] moves an attempt through the steps and is the only code that changes `step` and `wait`;
 * flow_end.[ch] describes the end to the writer. */
#ifndef ISSUING_FLOW_H
#define ISSUING_FLOW_H

#include "common/core/decide/decide.h"
#include "common/core/exporter.h"
#include "common/core/issuer/issuer.h"
#include "common/core/keyring.h"
#include "common/core/outbox.h"
#include "common/lib/base/base.h"
#include "common/lib/base/trace.h"
#include "common/lib/base/uuid7.h"
#include "worker/base/worker_env.h"
#include "worker/base/writer.h"
#include "worker/peers/event_parameters.h"
#include "worker/peers/peer.h"
#include "worker/peers/target.h"
#include "worker/route/route.h"

struct flow;
struct slots_share;

enum flow_peer { FLOW_PEER_NONE, FLOW_PEER_ISSUER, FLOW_PEER_CORE, FLOW_PEER_ROUTE };
#define FLOW_WRITES_NOTHING WRITE_KINDS

/* What the running step waits for. An attempt waits for one thing at a time, and each wait ends with exactly one
 * callback. */
enum flow_wait {
    /* Nothing is in flight. The slot is free, or the runner is about to start the next operation in the same
     * callback. */
    FLOW_WAIT_NONE,
    /* A longer lease is being written, because the call and the queue before it could outlast the lease that we hold.
     * When it is written, the attempt enters the peer's queue (FLOW_WAIT_TARGET), or sends its call if the peer has
     * admitted it already (FLOW_WAIT_CALL). If the lease is lost, the attempt is over and nothing of it is written. */
    FLOW_WAIT_LEASE,
    /* The call is in the peer's queue (target.h): the peer is at its limit of calls, or rests for a moment. Once
     * admitted, the call is sent (FLOW_WAIT_CALL), after a longer lease if the queue took too long (FLOW_WAIT_LEASE).
     * If the breaker opens or a long rest begins, the attempt is deferred (FLOW_WAIT_END). */
    FLOW_WAIT_TARGET,
    /* The HTTP call is in flight, and the attempt holds the peer's ticket. The answer gives the verdict: the next step,
     * or the end. */
    FLOW_WAIT_CALL,
    /* The write of a step (keep, save, mark) is in flight. When it is done, the next step begins. If the lease is lost,
     * the attempt is over; if the write was given up, the attempt ends as a retry (FLOW_WAIT_END). */
    FLOW_WAIT_WRITE,
    /* The write that ends the attempt is in flight. The slot is free afterwards, whether it succeeds or not: if nothing
     * was written, the lease runs out, and another attempt follows. */
    FLOW_WAIT_END,
    FLOW_WAITS,
};

/* How the flow of a mark differs (questions/mark.h). It has no lease, no ticket for a create, no review. */
struct flow_mark {
    /* The call of the current step is about to leave. A cause = it may not. */
    const char *(*leave)(struct flow *flow);
    /* What follows the current step: GO, or an end. */
    struct flow_verdict (*decide)(struct flow *flow, const struct outcome *outcome, const struct shown *shown);
    /* The last verdict; nothing is in flight. */
    void (*end)(struct flow *flow, const struct flow_verdict *verdict);
};

/* What all attempts of a worker share, or all marks. Owned by the worker, and outlives every flow. */
struct flow_env {
    const struct flow_mark *mark; /* NULL = its flows are attempts */
    const struct worker_env *worker;
    struct keyring *keyring; /* NULL = card numbers are not stored; replaced by a reload */
    bool is_draining;        /* attempts are given back before their next call */
    /* As writer_submit() of writer.h: op ends exactly once, from the loop. */
    void (*submit_write)(void *context, struct write_op *op);
    /* The slot is free. From the loop. */
    void (*on_ended)(void *context, struct flow *flow);
    /* The lease was lost after a create was sent: the event may have ended over a look-up that could not see the
     * card. */
    void (*on_create_lost)(void *context, const struct uuid *event_id);
    void *context;
};

/* The end of a reissue that made no card, while its old card is read (flow_review.h). */
struct flow_review {
    bool is_on;
    bool is_gone; /* the old card is closed at the issuer */
    int tries;    /* of its calls that got no definite answer */
    enum flow_verdict_kind kind;
    enum flow_step step; /* in which it ended */
    struct outcome outcome;
    char code[OUTBOX_REASON_CODE_SIZE];
};

/* The first fields of a line of the log about a flow or a mark. */
#define FLOW_IN_LOG(flow) LOG_TEXT("event_id", (flow)->event_text), LOG_TEXT("trace_id", (flow)->trace.id)

struct flow {
    const struct flow_env *env;
    struct flow *next;         /* slots.c: the next free slot */
    struct slots_share *share; /* slots.c: of its type */
    struct route *route;       /* that delivers the event; NULL = the event is a card request */

    /* The event, as claimed. Ages are in ms, at the claim. */
    struct uuid token;
    char event_text[UUID_TEXT_SIZE];
    char user_id[OUTBOX_USER_ID_MAX + 1];
    struct outbox_payload payload; /* of a card request */
    struct buf body;               /* of a delivery: the payload as PostgreSQL writes it */
    char replaces_issuer_id[CARD_ISSUER_ID_MAX + 1];
    struct uuid replaces_request_id; /* that the card to replace was made for */
    struct trace trace;              /* its calls go on with it */
    char span_id[SPAN_ID_SIZE];      /* of the attempt; "" = no spans of it are sent */
    char span_parent[SPAN_ID_SIZE];
    struct buf spans; /* of its calls, span_count of them */
    int span_count;
    int64_t lease_until_ms;             /* by clock_mono_ms() */
    int64_t made_ms;                    /* when the event was made: Unix time by the database's clock */
    struct event_parameters parameters; /* that its calls are built from */

    /* Where the attempt stands. */
    struct attempt attempt; /* claimed_ms by clock_mono_ms() */
    enum flow_wait wait;
    bool is_busy; /* the slot holds an event */
    /* It was claimed while a kind of call was suspected at one of its targets. Of a mark: its call is the probe of an
     * open breaker. */
    bool is_probe;
    bool sent_create;    /* a create of this attempt has left */
    bool create_is_late; /* it ended after the lease: it may have left after another worker's look-up */
    int64_t started_us, step_started_us;
    struct issuer_card card;
    struct issuer_lookup lookup; /* the pages that were read; starts again with each reason */
    struct write_save save;
    struct flow_review review;

    /* The one operation in flight. */
    struct http_call call;
    struct credential *credential; /* that the call was sent with; NULL = none */
    struct target_ticket ticket;
    bool holds_ticket;             /* admitted by the peer; target_leave() is owed */
    struct target_ticket reserved; /* of the create, reserved before core-api is asked (flow_ticket.h) */
    bool holds_reserved;           /* target_leave() at the issuer is owed */
    int64_t extended_ms;           /* when the longer lease was requested */
    struct write_op write;
    enum write_result write_result;
    struct write_end end;
    struct buf kept;   /* the parameters that are being written; empty = none */
    struct buf result; /* the answer of the route's receiver, which the event keeps; empty = none */
};

/* Sets up a slot once / frees what it owns. env must outlive it. */
void flow_init(struct flow *flow, const struct flow_env *env);
void flow_done(struct flow *flow);
/* The slot is for an event of this route: user_id and payload are what is delivered, any bytes. False: they cannot be
 * delivered (payload_invalid). Without memory for the body it is true, and the attempt is given back. */
bool flow_take_delivery(struct flow *flow, struct route *route, struct slice user_id, struct slice payload);
/* Frees what the slot holds of its event. */
void flow_forget(struct flow *flow);

/* As outbox_events.event_type. */
const char *flow_event_type(const struct flow *flow);

/* ISSUER_CALLS: it does not call the issuer. */
enum issuer_call flow_step_call(enum flow_step step);
/* FLOW_WRITES_NOTHING: it calls a peer. */
enum write_kind flow_step_write(enum flow_step step);
/* The peer that the current step calls; NULL: it writes to the database. */
struct peer *flow_peer(const struct flow *flow);
const char *flow_wait_name(enum flow_wait wait);
/* The rules of the event's flow: by options, and by what the issuer's profile declares. */
struct attempt_rules flow_rules(const struct flow *flow);
/* now_ms by clock_mono_ms(), wall_us by clock_wall_us(). Draws the jitter from backoff_random(). To settle a verdict
 * it is made after target_leave(), since it shows the state of the peers. */
struct view flow_view(const struct flow *flow, int64_t now_ms, int64_t wall_us);
/* The time from which on a look-up must see cards: well before the event, since our clocks and the issuer's may
 * differ by hours. made_ms: by the database's clock; the id has the time of another clock. Pure. */
int64_t flow_lookup_since_ms(const struct uuid *event_id, int64_t made_ms);

#endif
