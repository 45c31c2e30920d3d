/* See decide.h: what follows the answer to a step's call. */
#include <assert.h>
#include <stdio.h>

#include "common/core/decide/decide.h"

/* ---- a look-up that found nothing ---- */

/* For this reason of the look-up, "not found" must hold also if a create or a delivery arrives later. */
static bool must_settle(enum lookup_reason reason)
{
    return reason != LOOKUP_CARD_SEEN && reason != LOOKUP_IN_OUTAGE && reason != LOOKUP_FIRST &&
           reason != LOOKUP_BY_ANSWER && reason != LOOKUP_AFTER_REPEAT;
}

/* The card or execution is not there, and can no longer appear. */
static struct flow_verdict settled_not_found(struct attempt *attempt, const struct attempt_rules *rules)
{
    enum lookup_reason reason = attempt->lookup_reason;
    switch (reason) {
    case LOOKUP_EXHAUSTED:
    case LOOKUP_KEY_EXPIRED:
    case LOOKUP_KEY_SPENT:
    case LOOKUP_UNFORESEEN:
    case LOOKUP_WORKER_LOST:
        return verdict_end(FLOW_FAIL, decide_end_code(rules, reason, attempt->pending_code));
    case LOOKUP_INELIGIBLE:
    case LOOKUP_REFUSED:
        return verdict_end(rules->refused_is_question ? FLOW_FAIL : FLOW_REJECT,
                           decide_end_code(rules, reason, attempt->pending_code));
    case LOOKUP_BEFORE_SENDING:
    case LOOKUP_FIRST:
        attempt->lookup_reason = LOOKUP_NONE;
        attempt->is_looked_up = true;
        attempt->end_is_held = false; /* of an event that was adopted */
        return verdict_go(reason == LOOKUP_FIRST ? rules->send : rules->first);
    case LOOKUP_BY_ANSWER:
        return verdict_wait(FLOW_RETRY, attempt->pending_code, -1);
    case LOOKUP_IN_OUTAGE:
        return verdict_wait(FLOW_DEFER, attempt->pending_code, -1);
    case LOOKUP_NONE:
    case LOOKUP_DUPLICATE:
    case LOOKUP_CONTRADICTION:
    case LOOKUP_CARD_SEEN:
    case LOOKUP_AFTER_REPEAT:
    case LOOKUP_REASONS:
        return verdict_wait(FLOW_RETRY, outbox_cause_name(rules->unreadable), -1);
    }
    assert(!"reasons are covered above");
    return verdict_end(FLOW_FAIL, "attempts_exhausted");
}

struct flow_verdict decide_not_found(struct attempt *attempt, const struct view *view)
{
    int64_t unsettled_ms = attempt_unsettled_ms(attempt, view);
    if (unsettled_ms == 0 || !must_settle(attempt->lookup_reason))
        return settled_not_found(attempt, &view->rules);
    /* A send may still be on its way, and would be executed behind any end. */
    attempt->end_is_held |=
        attempt->lookup_reason != LOOKUP_BEFORE_SENDING && lookup_reason_name(attempt->lookup_reason);
    return verdict_defer(OUTBOX_CAUSE_SETTLING, unsettled_ms);
}

/* The call was neither executed nor refused by the peer. */
static struct flow_verdict retry_or_defer(const struct outcome *outcome)
{
    switch (outcome->advice) {
    case ADVICE_RETRY:
    case ADVICE_LOOK_UP:
    case ADVICE_KEY_SPENT:
        return verdict_wait(FLOW_RETRY, outcome->code, outcome->wait_ms);
    case ADVICE_WAIT:
    case ADVICE_CONFIGURATION:
        return verdict_wait(FLOW_DEFER, outcome->code, outcome->wait_ms);
    case ADVICE_WAIT_IN_PROGRESS:
        return (struct flow_verdict){
            .kind = FLOW_DEFER, .code = outcome->code, .wait_ms = outcome->wait_ms, .in_progress = true};
    case ADVICE_NONE:
    case ADVICE_REJECT:
    case ADVICE_FAIL:
        break;
    }
    assert(!"the step must decide on such an outcome");
    return verdict_wait(FLOW_RETRY, outbox_cause_name(OUTBOX_CAUSE_BUG), -1);
}

/* ---- the card is at the issuer ---- */

/* What the card needs before it is stored. Each of these steps may be repeated, and an attempt that dies in one finds
 * the card again under its key, or by a look-up. */
static struct flow_verdict use_card(const struct attempt_rules *rules, const struct shown *shown)
{
    /* guard: an inactive card is made active before it is linked */
    if (shown->is_inactive && rules->activates)
        return verdict_go(STEP_ACTIVATE);
    return verdict_go(rules->stores_numbers && !shown->has_number && rules->reveals ? STEP_REVEAL : STEP_SAVE);
}

static void set_pending(struct attempt *attempt, const char *code)
{
    snprintf(attempt->pending_code, sizeof(attempt->pending_code), "%s", code);
}

/* A card that cannot be used must not stay. */
static struct flow_verdict mark(struct attempt *attempt, const char *code)
{
    set_pending(attempt, code);
    return verdict_go(STEP_MARK);
}

/* The issuer has shown more than one card before, so a create that may still arrive may make another one, and a stored
 * card need not be the one that is left. */
static struct flow_verdict found_duplicate(struct attempt *attempt, const struct view *view, const struct shown *shown)
{
    /* guard: after two cards no look-up decides before the last send has settled */
    int64_t unsettled_ms = shown->found == ISSUER_FOUND_MORE ? 0 : attempt_unsettled_ms(attempt, view);
    bool is_ours = !attempt->is_saved || shown->is_ours;
    if (unsettled_ms > 0)
        return verdict_defer(OUTBOX_CAUSE_SETTLING, unsettled_ms);
    if (shown->found == ISSUER_FOUND_NONE || shown->found == ISSUER_FOUND_MORE ||
        /* guard: after two cards only the stored one is linked */
        (shown->found == ISSUER_FOUND_ONE && !is_ours))
        return verdict_end(FLOW_FAIL, "issuer_duplicate");
    if (shown->found == ISSUER_FOUND_CANCELLED) {
        if (attempt->pending_code[0] == '\0')
            set_pending(attempt, "card_cancelled");
        return attempt->is_saved ? verdict_go(STEP_MARK) : verdict_end(FLOW_REJECT, attempt->pending_code);
    }
    attempt->end_is_held = !attempt->is_saved; /* until the card is stored, a later attempt must not send */
    attempt->card_is_seen = true;
    if (attempt->pending_code[0])
        return verdict_go(STEP_CANCEL);
    return attempt->is_saved ? verdict_go(STEP_LINK) : use_card(&view->rules, shown);
}

/* One live card. */
static struct flow_verdict found_one(struct attempt *attempt, const struct view *view, const struct shown *shown)
{
    if (attempt->lookup_reason == LOOKUP_AFTER_REPEAT && !shown->is_ours)
        return verdict_end(FLOW_FAIL, "issuer_duplicate");
    attempt->card_is_seen = true;
    if (attempt->lookup_reason == LOOKUP_CARD_SEEN)
        return verdict_go(STEP_CANCEL);
    return attempt->lookup_reason == LOOKUP_INELIGIBLE ? verdict_go(STEP_MARK) : use_card(&view->rules, shown);
}

static struct flow_verdict looked_up(struct attempt *attempt, const struct view *view, const struct shown *as_shown)
{
    bool is_after_repeat = attempt->lookup_reason == LOOKUP_AFTER_REPEAT; /* shows what our own create has answered */
    struct shown left = *as_shown, *shown = &left;
    attempt->is_frozen = left.is_inactive && !is_after_repeat && !view->rules.makes_inactive;
    /* guard: a card that was frozen is not activated */
    left.is_inactive &= !attempt->is_frozen;
    if (attempt->lookup_reason == LOOKUP_DUPLICATE)
        return found_duplicate(attempt, view, shown);
    if (shown->found != ISSUER_FOUND_NONE) {
        attempt->end_is_held = false;
        /* guard: a card that was found is not forgotten, though no send is on record */
        attempt->unknown = !attempt->is_saved;
    }
    switch (shown->found) {
    case ISSUER_FOUND_NONE:
        /* It does not show our card yet; once stored, no create follows. */
        return is_after_repeat ? use_card(&view->rules, shown) : decide_not_found(attempt, view);
    case ISSUER_FOUND_ONE:
        return found_one(attempt, view, shown);
    case ISSUER_FOUND_MORE:
        return verdict_end(FLOW_FAIL, "issuer_duplicate");
    case ISSUER_FOUND_CANCELLED: /* by a cancel of ours that got no answer, or by another party */
        if (is_after_repeat && !shown->is_ours)
            return use_card(&view->rules, shown); /* an earlier one; ours is not shown yet */
        return verdict_end(FLOW_REJECT,
                           attempt->lookup_reason == LOOKUP_CARD_SEEN ? attempt->pending_code : "card_cancelled");
    }
    assert(!"results are covered above");
    return decide_not_found(attempt, view);
}

static struct flow_verdict issued(struct attempt *attempt, const struct view *view, const struct shown *shown)
{
    bool was_unknown = attempt->unknown;
    attempt->unknown = true; /* only this process knows of the card until it is stored */
    if (shown->is_gone)
        return decide_look_up(&view->rules, LOOKUP_CONTRADICTION, "");
    attempt->card_is_seen = true;
    /* guard: a create that succeeds behind an unknown one is looked up once more */
    if (was_unknown && !view->rules.key_is_trusted && !shown->key_is_honoured)
        /* guard: where keys are not trusted, a create behind an unknown one is looked up once more */
        return decide_look_up(&view->rules, LOOKUP_AFTER_REPEAT, NULL); /* an earlier one may have made another card */
    return use_card(&view->rules, shown);
}

/* ---- a card is closed ---- */

static struct flow_verdict completed(const struct attempt *attempt)
{
    if (attempt->is_frozen)
        return verdict_end(FLOW_COMPLETE, outbox_cause_name(OUTBOX_CAUSE_CARD_INACTIVE));
    return verdict_end(FLOW_COMPLETE, attempt->is_unnumbered ? outbox_cause_name(OUTBOX_CAUSE_NUMBER_HIDDEN) : NULL);
}

/* The card of `purpose` is closed. */
static struct flow_verdict closed(struct attempt *attempt, enum flow_step purpose)
{
    if (purpose == STEP_RETIRE)
        return completed(attempt);
    attempt->was_cancelled = true;
    attempt->unknown = false;
    /* If the card was stored, a link of it may have reached core-api, or may still be on its way. */
    /* guard: core-api gets an unlink of a card that it may know */
    return attempt->is_saved ? verdict_go(STEP_UNLINK) : verdict_end(FLOW_REJECT, attempt->pending_code);
}

/* The issuer will not close the card of `purpose`. */
static struct flow_verdict not_closed(enum flow_step purpose)
{
    /* The new card is linked, so the request is completed, with a note for operators. */
    return purpose == STEP_RETIRE ? verdict_end(FLOW_COMPLETE, outbox_cause_name(OUTBOX_CAUSE_RETIRE_REFUSED))
                                  : verdict_end(FLOW_FAIL, "cancel_failed");
}

/* ---- by the step ---- */

static struct flow_verdict delivered(struct attempt *attempt)
{
    attempt->unknown = attempt->may_arrive = attempt->end_is_held = false;
    attempt->is_delivered = true;
    return verdict_end(FLOW_COMPLETE, NULL);
}

static struct flow_verdict executed(struct attempt *attempt, const struct view *view, const struct shown *shown)
{
    switch (attempt->step) {
    case STEP_CHECK:
        attempt->checked_ms = view->now_ms;
        return verdict_go(STEP_ISSUE);
    case STEP_LOOKUP:
        return looked_up(attempt, view, shown);
    case STEP_ISSUE:
        return issued(attempt, view, shown);
    case STEP_ACTIVATE:
        return use_card(&view->rules, shown);
    case STEP_REVEAL:
        /* guard: a card that is shown without its number is stored without it, with a note */
        attempt->is_unnumbered = !shown->has_number;
        return verdict_go(STEP_SAVE);
    case STEP_LINK:
        return attempt->is_reissue && view->rules.retires ? verdict_go(STEP_RETIRE) : completed(attempt);
    case STEP_RETIRE:
    case STEP_CANCEL:
        return closed(attempt, attempt->step);
    case STEP_VERIFY:
        return shown->is_gone ? closed(attempt, attempt->verifies) : not_closed(attempt->verifies);
    case STEP_UNLINK:
        return verdict_end(FLOW_REJECT, attempt->pending_code);
    case STEP_DELIVER:
        return delivered(attempt);
    case STEP_ASK:
        return shown->was_executed ? delivered(attempt) : decide_not_found(attempt, view);
    case STEP_KEEP:
    case STEP_SAVE:
    case STEP_MARK:
    case STEP_REVIEW: /* the event's end is decided already (worker/flow/flow_review.h) */
    case STEP_DISOWN:
    case STEP_COUNT:
        break;
    }
    assert(!"a write is not a call");
    return verdict_end(FLOW_DROP, NULL);
}

/* The user may not have a card, the issuer or the receiver refuses: what an earlier attempt may have done is looked
 * up. */
static struct flow_verdict refused_before(const struct attempt *attempt, const struct view *view,
                                          const struct outcome *outcome)
{
    bool is_foreseen = outcome->advice == ADVICE_REJECT;
    enum lookup_reason reason = attempt->step == STEP_CHECK ? LOOKUP_INELIGIBLE : LOOKUP_REFUSED;
    /* guard: a refusal after UNKNOWN is looked up first */
    /* guard: a refusal behind an unknown delivery is not a refusal */
    if (attempt->unknown)
        return decide_look_up(&view->rules, is_foreseen ? reason : LOOKUP_UNFORESEEN, outcome->code);
    /* guard: a refusal is a question where the route says so */
    return verdict_end(is_foreseen && !view->rules.refused_is_question ? FLOW_REJECT : FLOW_FAIL, outcome->code);
}

static struct flow_verdict refused(struct attempt *attempt, const struct view *view, const struct outcome *outcome)
{
    bool is_foreseen = outcome->advice == ADVICE_REJECT;
    switch (attempt->step) {
    case STEP_CHECK:
    case STEP_ISSUE:
    case STEP_DELIVER:
        return refused_before(attempt, view, outcome);
    case STEP_ACTIVATE:
        return is_foreseen ? mark(attempt, outcome->code) : verdict_end(FLOW_FAIL, outcome->code);
    case STEP_REVEAL: /* the card is fine; whether it is linked without its number is a question, or configured */
        attempt->is_unnumbered = view->rules.keeps_unnumbered;
        return attempt->is_unnumbered ? verdict_go(STEP_SAVE) : verdict_end(FLOW_FAIL, "reveal_refused");
    case STEP_LINK:
        return is_foreseen && !view->rules.keeps_refused_link ? mark(attempt, outcome->code)
                                                              : verdict_end(FLOW_FAIL, outcome->code);
    case STEP_RETIRE:
    case STEP_CANCEL:
        attempt->verifies = attempt->step;
        return view->rules.verifies ? verdict_go(STEP_VERIFY) : not_closed(attempt->step);
    case STEP_VERIFY:
        return not_closed(attempt->verifies);
    case STEP_UNLINK: /* a link to a cancelled card remains: a question for an operator */
        return verdict_end(FLOW_FAIL, outcome->code);
    case STEP_LOOKUP:
    case STEP_ASK:
    case STEP_KEEP:
    case STEP_SAVE:
    case STEP_MARK:
    case STEP_REVIEW:
    case STEP_DISOWN:
    case STEP_COUNT:
        break;
    }
    assert(!"a look-up that is refused is unknown");
    return retry_or_defer(outcome);
}

/* What a create or delivery may have left behind. NOT_EXECUTED proves nothing about earlier ones: unknown stays. */
static void note_sent(struct attempt *attempt, const struct outcome *outcome, const struct shown *shown)
{
    /* guard: a delivery without an answer is unknown, not failed */
    bool is_at_work = outcome->kind == OUTCOME_UNKNOWN || outcome->advice == ADVICE_WAIT_IN_PROGRESS;
    /* guard: a refusal after a second sending leaves the first one open */
    attempt->unknown |= shown->was_resent || is_at_work;
    attempt->may_arrive = shown->was_resent || is_at_work;
}

/* Only the parameters are wanted, for a step that comes next whether or not the user may have a card. */
static struct flow_verdict go_on_with_parameters(struct attempt *attempt, const struct outcome *outcome)
{
    enum flow_step next = attempt->asks_for;
    if (outcome->kind == OUTCOME_NOT_EXECUTED || outcome->kind == OUTCOME_UNKNOWN)
        return retry_or_defer(outcome);
    if (outcome->advice == ADVICE_FAIL) /* this answer tells of no parameters */
        return verdict_wait(FLOW_RETRY, outcome->code, -1);
    attempt->asks_for = STEP_COUNT;
    return verdict_go(next);
}

struct flow_verdict decide_answer(struct attempt *attempt, const struct view *view, const struct outcome *outcome,
                                  const struct shown *shown)
{
    if (attempt->step == view->rules.send)
        note_sent(attempt, outcome, shown);
    if (attempt->step == STEP_CHECK && attempt->asks_for != STEP_COUNT)
        return go_on_with_parameters(attempt, outcome);
    switch (outcome->kind) {
    case OUTCOME_EXECUTED:
        return executed(attempt, view, shown);
    case OUTCOME_REFUSED:
        return refused(attempt, view, outcome);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* repeating any call but a create or a delivery does no harm */
        if (outcome->advice == ADVICE_LOOK_UP && attempt->step == STEP_ISSUE)
            return decide_look_up(&view->rules, LOOKUP_BY_ANSWER, outcome->code);
        /* guard: a failure that is kept under the key is not asked for again */
        if (outcome->advice == ADVICE_KEY_SPENT && attempt->step == STEP_ISSUE)
            return decide_look_up(&view->rules, LOOKUP_KEY_SPENT, NULL);
        return retry_or_defer(outcome);
    }
    assert(!"outcome kinds are covered above");
    return retry_or_defer(outcome);
}
