/* One peer that the worker calls (issuer, core): its breaker, its concurrency limit, its rest, the calls that wait for
 * room, and what it answered of late.
 *
 * A call enters, makes its HTTP request when it is let in, and leaves with what it learnt. While the breaker is open
 * nobody waits: whoever enters, and whoever was waiting when it opened, is told so at once and becomes a deferral.
 *
 * Rest. A 429 rests the whole target, since the answer does not say whether it means one user or everybody. The first
 * one after a good answer rests it for TARGET_REST_LEAST_MS only, whatever Retry-After says (the event itself waits as
 * told). Then one call goes. Answered well, it was one user's limit, and the others go on. Answered 429 again, it is
 * everybody's: the target rests for the Retry-After, or without one for a pause that doubles with each 429 in a row.
 * The breaker's limit of calls halves each time (breaker.h). While a target rests, no event is claimed and no
 * eligibility question is asked; calls wait for the end of a rest of up to TARGET_REST_WAIT_MS, for a longer one they
 * are deferred.
 *
 * Evidence. Whether a failure is the event's or the target's is told by the answers to other events: the time of the
 * last good answer is kept for each kind of call, together with the last one to any other event, so that "was another
 * event than this one answered well since then?" has an answer. A kind is a step: a look-up that works says nothing
 * about creates. Refusals of our credentials or configuration trip the breaker only when TARGET_REFUSED_EVENTS different
 * events and `breaker.failures` answers in a row say so; an event that comes back and gets the same answer again counts
 * no second time. Look-ups neither count nor interrupt that row. All this is the
 * view of one worker, kept in memory; it can only keep an event from ending, never end one by its absence. */
#ifndef ISSUING_TARGET_H
#define ISSUING_TARGET_H

#include "common/uuid7.h"
#include "worker/breaker.h"

#define TARGET_KINDS 16 /* of calls; at least as many as flows have steps */
#define TARGET_REFUSED_EVENTS 3
#define TARGET_REST_LEAST_MS 200
#define TARGET_PAUSE_MAX_MS 30000
#define TARGET_REST_MAX_MS (5 * 60 * 1000)
#define TARGET_REST_WAIT_MS 1000

enum target_entry {
    TARGET_GO,   /* go now; target_leave() is owed */
    TARGET_WAIT, /* on_turn will say */
    TARGET_SHUT, /* the breaker is open, or the target rests for long; nothing is owed */
};

struct target_ticket {
    struct target_ticket *next;
    bool is_waiting;
    uint32_t epoch;
    int kind;             /* of the call, below TARGET_KINDS */
    bool is_repeated;     /* at its end: the event had this answer the last time, too */
    bool is_aside;        /* its refusals say nothing about other kinds of calls: a look-up */
    struct uuid event_id; /* whose call it is */
    void (*on_turn)(struct target_ticket *ticket, enum target_entry entry); /* TARGET_GO or TARGET_SHUT */
};

struct target_answer {
    struct uuid event_id;
    int64_t at_ms; /* INT64_MIN = none */
};

struct target {
    const char *name; /* "issuer", "core" */
    struct breaker breaker;
    struct target_ticket *first, *last; /* waiting, FIFO */
    bool is_calling;                    /* on_turn callbacks run: whoever leaves meanwhile need not call the next */
    int64_t rest_until_ms;
    int64_t pause_ms; /* the next rest without a Retry-After */
    /* By kind of call: the last good answer, and the last one to another event than that. */
    struct {
        struct target_answer last, other;
    } good[TARGET_KINDS];
    int refusals; /* in a row, without a good answer between them */
    struct uuid refused[TARGET_REFUSED_EVENTS];
    int refused_events;                       /* different ones among them, as far as there is room */
    void (*on_change)(struct target *target); /* the breaker's state changed, a rest began, or room appeared */
};

void target_init(struct target *target, const char *name, int failures_max, int64_t probe_interval_ms,
                 int concurrency_max, void (*on_change)(struct target *target));
/* The ticket's kind, is_aside, event_id and on_turn are set. */
enum target_entry target_enter(struct target *target, struct target_ticket *ticket);
/* retry_after_ms: as a 429 said; -1 = it did not. */
void target_leave(struct target *target, struct target_ticket *ticket, enum breaker_result result,
                  int64_t retry_after_ms);
/* To be called when a rest is over: lets in who waited for it. */
void target_wake(struct target *target);
/* How long it still rests; 0 = it does not. */
int64_t target_rest_ms(const struct target *target, int64_t now_ms);
/* Why no call shall be prepared for it now: "breaker_open", "target_resting"; NULL = calls may be. */
const char *target_closed_by(const struct target *target, int64_t now_ms);
/* Was another event answered well, in this kind of call (-1: in any), at or after since_ms? */
bool target_answers_others(const struct target *target, int kind, const struct uuid *event_id, int64_t since_ms);

#endif
