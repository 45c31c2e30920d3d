/* One peer (issuer, core-api, receiver) as the worker sees it: its breaker, its limit of calls, its rest, its pause,
 * the calls that wait, and the peer's recent answers. Needs no loop: peer.[ch] has the timer for the end of a rest.
 *
 * A call enters, is sent when it is admitted, and leaves with what the answer shows of the peer. While the breaker is
 * open no call waits: a call that enters, and a call that was waiting when it opened, is rejected at once and becomes a
 * deferral.
 *
 * Rest. A 429 rests the whole target, since the answer does not say whether it means one user or everybody. The first
 * one after a good answer rests it for TARGET_REST_LEAST_MS only, also with a longer Retry-After (the event itself
 * waits for the Retry-After). Then one call is sent. If it is answered well, it was one user's limit, and the others
 * follow. If it is answered 429 again, it is everybody's: the target rests for the Retry-After, or without one for a
 * pause that doubles with each 429 in a row. The breaker's limit of calls halves each time (breaker.h). While a target
 * rests, no event is claimed and no eligibility is checked; calls wait for the end of a rest of up to
 * TARGET_REST_WAIT_MS, before a longer one they are rejected.
 *
 * Pause. An operator's request (controls.h): no call starts, and those that wait are rejected as by an open breaker.
 * Calls in flight end as usual, and what they show still counts. A 410 to a delivery pauses the target likewise, for
 * all workers and until an operator resumes it. So do TARGET_REFUSALS_MAX creates of different events in a row that are
 * refused with one code, while none was executed since the worker began: one wrong value of the configuration refuses
 * every user for good.
 *
 * Evidence. Whether a failure is the event's or the peer's fault shows in the answers to other events. So the time of
 * the last good answer is stored for each kind of call, together with the last one to any other event: this answers
 * "was another event than this one answered well since then?". A kind is a step: a look-up that succeeds proves nothing
 * about creates, nor a check about links. All this is the view of one worker, in memory; it can only prevent the end of
 * an event, never cause it by its absence.
 *
 * Refusals (suspicion.h) of our credentials or configuration make a kind of call suspected. Then calls of that kind are
 * probes, one at a time, and the target counts as open; calls of other kinds go on as far as their flow lets them
 * (flow_ticket.h). Refusals of calls aside count against their events only.
 *
 * Questions of operators (questions/question.h) start beside the breaker and the queue, since they are asked when calls
 * fail or are slow: they count as in flight, and are not probes. They are not sent while the target is paused or
 * rests. */
#ifndef ISSUING_TARGET_H
#define ISSUING_TARGET_H

#include <sys/queue.h>

#include "common/lib/base/uuid7.h"
#include "worker/peers/breaker.h"
#include "worker/peers/suspicion.h"

#define TARGET_KINDS 17 /* of calls; at least as many as flows have steps */
#define TARGET_REST_LEAST_MS 200
#define TARGET_PAUSE_MAX_MS 30000
#define TARGET_REST_MAX_MS (5 * 60 * 1000)
#define TARGET_REST_WAIT_MS 1000
#define TARGET_REFUSALS_MAX 25 /* more than the alert IssuingMostRejected needs */
#define TARGET_WHY_SIZE 200

enum target_entry {
    TARGET_ADMITTED, /* send the call now; target_leave() is owed */
    TARGET_QUEUED,   /* on_admitted will be called */
    TARGET_REJECTED, /* it is paused, the breaker is open, or it rests for long; nothing is owed */
};

struct target_ticket {
    TAILQ_ENTRY(target_ticket) link;
    bool is_waiting;
    uint32_t epoch;
    int kind;             /* of the call, below TARGET_KINDS */
    bool is_repeated;     /* at its end: the event had this answer the last time, too, or it cost nothing new */
    bool is_aside;        /* its refusals count against its event only */
    bool is_dear;         /* it comes after a call that has effects */
    bool may_probe;       /* its event was claimed as a probe */
    bool is_probe;        /* private: it was admitted as one */
    struct uuid event_id; /* whose call it is */
    void (*on_admitted)(struct target_ticket *ticket, enum target_entry entry); /* TARGET_ADMITTED or TARGET_REJECTED */
};

struct target_answer {
    struct uuid event_id;
    int64_t at_ms; /* INT64_MIN = none */
};

struct target {
    struct breaker breaker;
    int suspected;                       /* kinds of calls */
    TAILQ_HEAD(, target_ticket) waiting; /* tickets, the oldest first */
    int waiting_count;
    bool is_admitting; /* on_admitted callbacks run: a call that leaves in one need not admit the next */
    bool is_paused;
    bool is_unusable; /* a file without which nothing may be sent there could not be read */
    /* Why this worker has paused it for all, and the database does not know yet (heartbeat.h); "" = it has not. */
    char stopped_why[TARGET_WHY_SIZE];
    /* The creates that were refused with one code, as long as none was executed. */
    struct {
        bool is_over; /* one was executed */
        int count;    /* of different events in a row */
        struct uuid last;
        char code[BREAKER_CAUSE_SIZE];
    } refused;
    int64_t rest_until_ms;
    int64_t pause_ms; /* the next rest without a Retry-After */
    /* By kind of call: the last good answer, and the last one to another event than that. */
    struct {
        struct target_answer last, other;
    } good[TARGET_KINDS];
    struct suspicion suspicions[TARGET_KINDS];
    void (*on_change)(struct target *target); /* the breaker, the rest or the pause changed, or a call may start */
};

/* on_change is called from within target_leave(), target_wake(), target_set_paused() and target_probe(). */
void target_init(struct target *target, int failures_max, int64_t probe_interval_ms, int concurrency_max,
                 void (*on_change)(struct target *target));
/* The ticket's kind, is_aside, is_dear, may_probe, event_id and on_admitted are set. */
enum target_entry target_enter(struct target *target, struct target_ticket *ticket);
/* The call of a question. NULL: send it now, target_leave() is owed, with BREAKER_BUSY or BREAKER_NOTHING. Else why it
 * may not be sent, for operators; nothing is owed. */
const char *target_enter_beside(struct target *target, struct target_ticket *ticket);
/* May call on_admitted of tickets that wait. cause: the code of the answer (breaker.h), NULL = none. retry_after_ms:
 * from a 429; -1 = it has none. */
void target_leave(struct target *target, struct target_ticket *ticket, enum breaker_result result, const char *cause,
                  int64_t retry_after_ms);
/* A create was answered. code: why it was refused, where no earlier create of the event may have been executed; NULL =
 * it was executed. To be called before target_leave(). */
void target_note_create(struct target *target, const struct uuid *event_id, const char *code);
/* To be called when a rest is over: admits the calls that waited for it. */
void target_wake(struct target *target);
/* Pauses or resumes it. From the loop only, since calls that wait may be rejected or admitted. */
void target_set_paused(struct target *target, bool is_paused);
/* A file of it cannot be used, or can be again: until then no call starts, as behind an open breaker without a
 * probe. */
void target_set_unusable(struct target *target, bool is_unusable);
/* The next call is due now: the probe of an open breaker or a suspected kind, the first one after a rest. No effect
 * otherwise. */
void target_probe(struct target *target);
/* How long it still rests; 0 = it does not. */
int64_t target_rest_ms(const struct target *target, int64_t now_ms);
/* Why no call may be prepared for the target now: "target_paused", "breaker_open", "target_resting"; NULL = one may. */
const char *target_closed_by(const struct target *target, int64_t now_ms);
/* As operators see it: OPEN also while a kind is suspected. */
enum breaker_state target_state(const struct target *target);
/* CLOSED: since it closed, or began; else since it opened. */
int64_t target_since_ms(const struct target *target);
/* The code of the last failure or refusal; "" = CLOSED. */
const char *target_cause(const struct target *target);
/* When the next probe may start that no fresh event is needed for; INT64_MIN = CLOSED, or there is none. */
int64_t target_probe_at_ms(const struct target *target);
/* The next time at which a rest ends or a probe of a suspected kind is due; INT64_MAX = none is to come. */
int64_t target_next_ms(const struct target *target, int64_t now_ms);
/* Which probes of the suspected kinds may start now: all of them must agree. Precondition: some are suspected. */
void target_probes_due(const struct target *target, int64_t now_ms, bool *ret_fresh, bool *ret_again);
/* Fresh events go first. */
bool target_is_wary(const struct target *target, int64_t now_ms);
/* Was another event answered well, in this kind of call (-1: in any), at or after since_ms? */
bool target_answers_others(const struct target *target, int kind, const struct uuid *event_id, int64_t since_ms);

#endif
