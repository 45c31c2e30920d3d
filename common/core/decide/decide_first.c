/* See decide.h: where an attempt begins, and what must hold before a create or a delivery leaves. */
#include <assert.h>
#include <stdio.h>

#include "common/core/decide/decide.h"

#define CLOCK_STEP_US 1000000 /* how far our two clocks may drift apart during an attempt */

const char *decide_end_code(const struct attempt_rules *rules, enum lookup_reason reason, const char *pending_code)
{
    if (reason == LOOKUP_EXHAUSTED)
        return "attempts_exhausted";
    if (reason == LOOKUP_KEY_EXPIRED)
        return rules->key_expired;
    if (reason == LOOKUP_KEY_SPENT && rules->send == STEP_ISSUE) /* a delivery has no such answer */
        return "issuer_key_spent";
    return reason == LOOKUP_WORKER_LOST ? "worker_lost" : pending_code;
}

struct flow_verdict decide_look_up(const struct attempt_rules *rules, enum lookup_reason reason, const char *code)
{
    if (attempt_has_lookup(rules))
        return (struct flow_verdict){.kind = FLOW_GO, .step = rules->lookup, .reason = reason, .code = code};
    return verdict_end(FLOW_FAIL, decide_end_code(rules, reason, code));
}

/* ---- the first step ---- */

/* By what earlier attempts have left in the row. */
static struct flow_verdict choose_first_step(struct attempt *attempt, const struct attempt_rules *rules)
{
    /* guard: core-api is called before the issuer */
    attempt->step = attempt->is_saved ? STEP_LINK : rules->first;
    enum lookup_reason reason = lookup_reason_parse(attempt->held_end);
    /* guard: after two cards the look-up comes first */
    if (reason == LOOKUP_DUPLICATE && rules->lookup == STEP_LOOKUP) { /* also where a card is stored, or must go */
        attempt->lookup_reason = reason;
        attempt->end_is_held = true;
        attempt->step = rules->lookup;
        /* guard: while an end waits no create is sent */
    } else if (attempt->held_end[0] && attempt->unknown && reason != LOOKUP_NONE) {
        if (!attempt_has_lookup(rules)) /* any more */
            return decide_look_up(rules, reason, attempt->pending_code);
        attempt->lookup_reason = reason;
        attempt->end_is_held = true;
        attempt->step = rules->lookup;
    } else if (attempt->held_end[0]) { /* a card was stored after the end was decided */
        attempt->pending_code[0] = '\0';
    } else if (attempt->pending_code[0]) {
        /* An earlier attempt had begun to cancel: the card goes, whatever core-api answers now. */
        attempt->lookup_reason = LOOKUP_CARD_SEEN;
        attempt->step = attempt->is_saved ? STEP_CANCEL : STEP_LOOKUP;
    } else if (attempt->unknown && attempt->lost_count >= OUTBOX_LOST_LOOKUP) {
        /* A lost attempt may have done it: it is looked up, not done again. */
        if (!attempt_has_lookup(rules))
            return decide_look_up(rules, LOOKUP_WORKER_LOST, NULL);
        attempt->lookup_reason = LOOKUP_WORKER_LOST;
        attempt->step = rules->lookup;
    }
    return verdict_go(attempt->step);
}

struct flow_verdict decide_first(struct attempt *attempt, const struct attempt_rules *rules)
{
    attempt->unknown = attempt->sent_age_ms >= 0 && !attempt->is_saved;
    attempt->was_cancelled = attempt->may_arrive = attempt->is_looked_up = attempt->end_is_held = false;
    attempt->card_is_new = attempt->card_is_seen = attempt->is_delivered = attempt->is_frozen = attempt->is_unnumbered =
        false;
    attempt->asks_for = attempt->verifies = STEP_COUNT;
    attempt->lookup_reason = LOOKUP_NONE;
    attempt->outcome = (struct outcome){0};
    struct flow_verdict first = choose_first_step(attempt, rules);
    /* guard: nothing is done for an event of another issuer */
    if (attempt->is_of_other_issuer)
        return verdict_defer(OUTBOX_CAUSE_OTHER_ISSUER, -1);
    /* guard: a request of a newer api waits for a newer worker */
    if (attempt->is_newer)
        return verdict_defer(OUTBOX_CAUSE_NEWER_REQUEST, -1);
    if (!attempt->is_readable)
        return verdict_end(FLOW_FAIL, "payload_invalid");
    /* One attempt too many. What may have been executed is looked up (decide_before_send), a card that such a look-up
     * has found is linked or cancelled, however long its peers are away; the rest is a question. */
    /* guard: a stored card goes on however many attempts it took */
    bool is_open = attempt->unknown || attempt->is_saved;
    if (attempt_is_beyond(attempt, rules, attempt->number) && !is_open)
        return verdict_end(FLOW_FAIL, "attempts_exhausted");
    return first;
}

/* ---- before a send ---- */

/* By the database's clock, or by that of another machine, whose time a UUIDv7 as the event's id contains: the
 * database's may have been set back. If the event is younger by both than a key may be, the key is alive, whatever was
 * sent with it. */
static bool may_be_older(const struct attempt *attempt, const struct view *view)
{
    const struct attempt_rules *rules = &view->rules;
    int64_t age_ms = attempt->accepted_age_ms + view->now_ms - attempt->claimed_ms, made_ms;
    if (uuid7_time_ms(&attempt->event_id, &made_ms) && age_ms < view->wall_us / 1000 - made_ms)
        age_ms = view->wall_us / 1000 - made_ms;
    return attempt_key_expired(age_ms, rules->key_lifetime_ms, rules->timeout_ms, rules->settle_time_ms);
}

/* What may have been sent is looked up before its create or delivery leaves. LOOKUP_NONE: it need not be, or cannot:
 * then only the database's clock tells the age of the key. */
static enum lookup_reason reason_to_look(const struct attempt *attempt, const struct view *view)
{
    const struct attempt_rules *rules = &view->rules;
    if (attempt->is_looked_up || !attempt_has_lookup(rules))
        return LOOKUP_NONE;
    bool is_old = may_be_older(attempt, view);
    /* No send is on record, but the record may be that of an older state of the database, and the key over. */
    /* guard: an event that is older than its key is looked up before its first create */
    if (!attempt->unknown)
        return is_old && rules->send == STEP_ISSUE ? LOOKUP_FIRST : LOOKUP_NONE;
    /* guard: a clock that was set back prolongs no key */
    /* guard: a repeat whose key is not trusted is looked up first, and settles */
    /* guard: where keys are not trusted, not found must have settled before a repeat */
    if (is_old || !rules->key_is_trusted)
        return LOOKUP_BEFORE_SENDING;
    return rules->looks_first ? LOOKUP_FIRST : LOOKUP_NONE;
}

struct flow_verdict decide_before_send(const struct attempt *attempt, const struct view *view, bool must_keep)
{
    const struct attempt_rules *rules = &view->rules;
    int64_t drift_us = view->wall_us - view->now_ms * 1000 - attempt->wall_offset_us;
    /* One of our clocks was set, or stopped while the machine was suspended: the lease may be over. */
    /* guard: no create leaves after a step of our clock */
    if (drift_us > CLOCK_STEP_US || drift_us < -CLOCK_STEP_US)
        return verdict_defer(OUTBOX_CAUSE_CLOCK_STEPPED, 0);
    /* Past its lifetime the key may be forgotten, and the same request would be executed again: look up, never send. */
    if (attempt->unknown && attempt_is_expired(attempt, view))
        return decide_look_up(rules, attempt->deferred_age_ms >= 0 ? LOOKUP_EXHAUSTED : LOOKUP_KEY_EXPIRED, NULL);
    if (attempt_is_beyond(attempt, rules, attempt->number)) /* its last attempt was lost with its worker */
        return decide_look_up(rules, LOOKUP_EXHAUSTED, NULL);
    enum lookup_reason reason = reason_to_look(attempt, view);
    if (reason != LOOKUP_NONE)
        return decide_look_up(rules, reason, NULL);
    if (rules->send != STEP_ISSUE)
        return verdict_go(rules->send);
    /* The check is too old: the user may have been blocked since. */
    if (view->now_ms - attempt->checked_ms > rules->timeout_ms)
        return verdict_go(STEP_CHECK);
    return verdict_go(must_keep ? STEP_KEEP : STEP_ISSUE);
}

/* ---- together ---- */

void decide_go(struct attempt *attempt, const struct flow_verdict *verdict)
{
    if (verdict->reason != LOOKUP_NONE) {
        assert(verdict->code != attempt->pending_code);
        attempt->lookup_reason = verdict->reason;
        if (verdict->code)
            snprintf(attempt->pending_code, sizeof(attempt->pending_code), "%s", verdict->code);
    }
    attempt->step = verdict->step;
}

struct flow_verdict decide_plan(struct attempt *attempt, const struct view *view)
{
    struct flow_verdict verdict = decide_first(attempt, &view->rules);
    if (verdict.kind != FLOW_GO || verdict.step != view->rules.first)
        return verdict;
    attempt->step = view->rules.send;
    attempt->checked_ms = view->now_ms;
    verdict = decide_before_send(attempt, view, false);
    if (verdict.kind == FLOW_GO)
        decide_go(attempt, &verdict);
    return verdict;
}
