/* The steps that close a card (step.h): one that a reissue replaces, or one of this event that must go. */
#include <assert.h>
#include <stdio.h>

#include "worker/core_api.h"
#include "worker/step.h"

/* ---- retire, cancel, verify: a card is closed at the issuer ---- */

/* The card of `purpose` is closed. */
static struct flow_verdict closed(struct flow *flow, enum flow_step purpose)
{
    if (purpose == STEP_RETIRE)
        return step_end(FLOW_COMPLETE, NULL);
    flow->attempt.was_cancelled = true;
    flow->attempt.unknown = false;
    /* If the card was stored, a link of it may have reached core-api, or may still be on its way. */
    /* guard: core-api gets an unlink of a card that it may know */
    return flow->attempt.is_saved ? step_go(STEP_UNLINK) : step_end(FLOW_REJECT, flow->attempt.pending_code);
}

/* The issuer will not close the card of `purpose`. */
static struct flow_verdict not_closed(enum flow_step purpose)
{
    /* The new card is linked, so the request is completed, with a note for operators. */
    return purpose == STEP_RETIRE ? step_end(FLOW_COMPLETE, outbox_cause_name(OUTBOX_CAUSE_RETIRE_REFUSED))
                                  : step_end(FLOW_FAIL, "cancel_failed");
}

static struct flow_verdict close_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_cancel(step_profile(flow), flow_step_call(flow->attempt.step), &flow->call, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return closed(flow, flow->attempt.step);
    case OUTCOME_REFUSED:
        flow->attempt.verifies = flow->attempt.step;
        return step_has_call(flow, ISSUER_RETRIEVE) ? step_go(STEP_VERIFY) : not_closed(flow->attempt.step);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* repeating it does no harm */
        return decide_retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return decide_retry_or_defer(ret_outcome);
}

/* ---- retire: the card that a reissue replaces, once the new one is linked ---- */

bool step_retire_prepare(struct flow *flow)
{
    return step_prepare_issuer_call(flow);
}

struct flow_verdict step_retire_read(struct flow *flow, struct outcome *ret_outcome)
{
    return close_read(flow, ret_outcome);
}

/* ---- mark: from now on the card must go, even if this worker dies or core-api changes its answer ---- */

bool step_mark_prepare(struct flow *flow)
{
    (void)flow; /* the reason is in pending_code already */
    return true;
}

struct flow_verdict step_mark_read(struct flow *flow, struct outcome *ret_outcome)
{
    return step_read_write(flow, STEP_CANCEL, ret_outcome);
}

/* ---- cancel: the issuer closes a card of this event ---- */

bool step_cancel_prepare(struct flow *flow)
{
    return step_prepare_issuer_call(flow);
}

struct flow_verdict step_cancel_read(struct flow *flow, struct outcome *ret_outcome)
{
    return close_read(flow, ret_outcome);
}

/* ---- verify: the close was refused, perhaps because the card is closed already, so the card is read ---- */

bool step_verify_prepare(struct flow *flow)
{
    return step_prepare_issuer_call(flow);
}

struct flow_verdict step_verify_read(struct flow *flow, struct outcome *ret_outcome)
{
    const struct outcome refusal = *ret_outcome; /* of the previous step */
    const char *card_id = flow->attempt.verifies == STEP_RETIRE ? flow->replaces_issuer_id : flow->card.id;
    enum issuer_card_state state;
    issuer_read_retrieve(step_profile(flow), &flow->call, card_id, &state, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        if (state == ISSUER_CARD_GONE)
            return closed(flow, flow->attempt.verifies);
        snprintf(ret_outcome->detail, sizeof(ret_outcome->detail), "%s", refusal.detail);
        return not_closed(flow->attempt.verifies);
    case OUTCOME_REFUSED:
        return not_closed(flow->attempt.verifies);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* a GET changes nothing */
        return decide_retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return decide_retry_or_defer(ret_outcome);
}

/* ---- unlink: core-api removes the link, and refuses a link of this card that comes later ---- */

bool step_unlink_prepare(struct flow *flow)
{
    return step_with_trace(flow, core_build_unlink(&flow->call, flow_peer(flow)->url, flow->user_id,
                                                   &flow->attempt.event_id, &flow->save.card_id));
}

struct flow_verdict step_unlink_read(struct flow *flow, struct outcome *ret_outcome)
{
    outcome_of_unlink(&flow->call, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return step_end(FLOW_REJECT, flow->attempt.pending_code);
    case OUTCOME_REFUSED: /* a link to a cancelled card remains: a question for an operator */
        return step_end(FLOW_FAIL, ret_outcome->code);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* repeating the unlink does no harm */
        return decide_retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return decide_retry_or_defer(ret_outcome);
}
