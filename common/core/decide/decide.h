/* What happens to an event: which step comes first, what must hold before a send, what follows a step that did not
 * succeed, and when the next attempt comes. The worker and `issuing-ctl explain` call the same functions over the same
 * structs.
 *
 * Whether a failure or a refusal is the event's fault or the peer's is decided by evidence: by what the peer answered
 * to other events in the same kind of call, as far as this worker saw it. Without evidence nothing ends: the attempt is
 * deferred, and the delay grows. No end is decided over an unknown outcome without a look-up.
 *
 * Pure: no clock, no random numbers, no logging; all of it is in struct view. */
#ifndef ISSUING_DECIDE_H
#define ISSUING_DECIDE_H

#include "common/core/decide/attempt.h"

enum flow_verdict_kind {
    FLOW_GO,       /* to `step` */
    FLOW_COMPLETE, /* COMPLETED; a `code` is a note for operators */
    FLOW_REJECT,   /* REJECTED with `code` */
    FLOW_FAIL,     /* FAILED with `code` */
    FLOW_RETRY,    /* PENDING, backoff; the attempt counts */
    FLOW_DEFER,    /* PENDING; the attempt is given back */
    FLOW_DROP,     /* the lease is lost: no write, no effect */
};

/* The result of a step. decide_settled() turns it into what is applied. */
struct flow_verdict {
    enum flow_verdict_kind kind;
    enum flow_step step;       /* GO */
    enum lookup_reason reason; /* GO to a look-up: why; LOOKUP_NONE = the flow's reason stays */
    /* REJECT, FAIL: the reason. RETRY, DEFER: the cause. COMPLETE: the note, NULL = none. GO with a reason: the flow's
     * pending_code; NULL = it stays. Borrowed until the verdict is applied. */
    const char *code;
    int64_t wait_ms;   /* RETRY, DEFER: the least wait; -1 = the usual one. Settled: the exact wait */
    bool in_progress;  /* DEFER by 409 or 425: bounded by the key's lifetime */
    bool keeps_streak; /* settled DEFER: the streak of 409 and 425 answers goes on */
    /* COMPLETE of a mark (decide_mark.h): the detail of its result; static, or NULL. With cancelled_at_issuer,
     * duplicate and reissued the user may read it. */
    const char *detail;
};

static inline struct flow_verdict verdict_go(enum flow_step step)
{
    return (struct flow_verdict){.kind = FLOW_GO, .step = step};
}

/* COMPLETE, REJECT, FAIL. */
static inline struct flow_verdict verdict_end(enum flow_verdict_kind kind, const char *code)
{
    return (struct flow_verdict){.kind = kind, .code = code};
}

/* RETRY, DEFER. */
static inline struct flow_verdict verdict_wait(enum flow_verdict_kind kind, const char *code, int64_t wait_ms)
{
    return (struct flow_verdict){.kind = kind, .code = code, .wait_ms = wait_ms};
}

static inline struct flow_verdict verdict_defer(enum outbox_cause cause, int64_t wait_ms)
{
    return verdict_wait(FLOW_DEFER, outbox_cause_name(cause), wait_ms);
}

/* The attempt begins: sets where it stands, by what earlier ones have left in the row, and returns what comes first:
 * GO to a step, an end, or a DEFER. */
struct flow_verdict decide_first(struct attempt *attempt, const struct attempt_rules *rules);
/* The last checks before a create or a delivery. GO to rules.send: it may leave. Else GO to a look-up, a check or a
 * keep that comes first, DEFER, or FAIL where nothing can be looked up. must_keep: the event must keep its parameters
 * before a create leaves. */
struct flow_verdict decide_before_send(const struct attempt *attempt, const struct view *view, bool must_keep);
/* What the coming attempt does, as far as the row tells: decide_first(), and where that leads to a create or a
 * delivery, decide_before_send() as if core-api agreed and nothing had to be kept. Sets where the attempt then
 * stands. */
struct flow_verdict decide_plan(struct attempt *attempt, const struct view *view);
/* Applies a GO to the attempt: sets its step and the reason of its look-up. */
void decide_go(struct attempt *attempt, const struct flow_verdict *verdict);
/* An unknown outcome is settled for this reason: GO to the look-up; where there is none, the end that is a question,
 * since an earlier send may have been executed. code: what REFUSED, INELIGIBLE, UNFORESEEN, IN_OUTAGE and BY_ANSWER end
 * with; NULL for the others. */
struct flow_verdict decide_look_up(const struct attempt_rules *rules, enum lookup_reason reason, const char *code);
/* The reason code of the end that belongs to a look-up for this reason; pending_code where it has none of its own. */
const char *decide_end_code(const struct attempt_rules *rules, enum lookup_reason reason, const char *pending_code);
/* What a look-up of cards has shown. */
enum issuer_found { ISSUER_FOUND_NONE, ISSUER_FOUND_ONE, ISSUER_FOUND_MORE, ISSUER_FOUND_CANCELLED };

/* What an answer has shown in addition to its outcome; each member belongs to some steps. Zeros: nothing. */
struct shown {
    bool was_resent;         /* issue, deliver: the answer is to the second sending; the first may have been executed */
    enum issuer_found found; /* lookup */
    bool is_ours;            /* lookup: the one card, or the cancelled one, is that which is stored or was just made */
    bool key_is_honoured;    /* issue: by this answer */
    bool is_gone, is_inactive; /* issue, activate, lookup, verify: the card */
    bool has_number;           /* the same: its number is known */
    bool was_executed;         /* ask */
};

/* What follows the answer to the current step's call. Changes where the attempt stands; writes are not calls. The
 * verdict's code may be that of the outcome. */
struct flow_verdict decide_answer(struct attempt *attempt, const struct view *view, const struct outcome *outcome,
                                  const struct shown *shown);
/* A look-up was answered: nothing was made, nothing was executed. Decides by its reason; while a send may still be on
 * its way, the end is held, and the verdict is a DEFER. */
struct flow_verdict decide_not_found(struct attempt *attempt, const struct view *view);
/* Turns a step's verdict into what is applied: a RETRY after the last attempt becomes a look-up, a FAIL or a DEFER; a
 * DEFER may become a look-up or a FAIL where the evidence is against the event; RETRY and DEFER get their exact delay.
 * Other verdicts pass unchanged. */
struct flow_verdict decide_settled(const struct attempt *attempt, const struct view *view, struct flow_verdict verdict);
/* Whether decide_settled() would pass it unchanged with any view. It does so with most verdicts: the step was executed,
 * and leads to the next one. */
bool decide_is_settled(const struct attempt *attempt, const struct flow_verdict *verdict);

#endif
