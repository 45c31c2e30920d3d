/* The steps that close a card (step.h): one that a reissue replaces, or one of this event that must go. */
#include <stdio.h>

#include "worker/flow/step.h"
#include "worker/peers/core_api.h"

/* ---- retire, cancel, verify: a card is closed at the issuer ---- */

static struct flow_verdict close_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_cancel(step_profile(flow), flow_step_call(flow->attempt.step), &flow->call, ret_outcome);
    return step_decide(flow, ret_outcome, (struct shown){0});
}

/* ---- retire: the card that a reissue replaces, once the new one is linked ---- */

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
    struct flow_verdict verdict = step_read_write(flow, STEP_CANCEL, ret_outcome);
    return flow->env->mark && verdict.kind == FLOW_GO ? step_decide(flow, ret_outcome, (struct shown){0}) : verdict;
}

/* ---- cancel: the issuer closes a card of this event ---- */

struct flow_verdict step_cancel_read(struct flow *flow, struct outcome *ret_outcome)
{
    return close_read(flow, ret_outcome);
}

/* ---- verify: the close was refused, perhaps because the card is closed already, so the card is read ---- */

struct flow_verdict step_verify_read(struct flow *flow, struct outcome *ret_outcome)
{
    const struct outcome refusal = *ret_outcome; /* of the previous step */
    const char *card_id = flow->attempt.verifies == STEP_RETIRE ? flow->replaces_issuer_id : flow->card.id;
    enum issuer_card_state state;
    issuer_read_retrieve(step_profile(flow), &flow->call, card_id, &state, ret_outcome);
    bool is_gone = ret_outcome->kind == OUTCOME_EXECUTED && state == ISSUER_CARD_GONE;
    if (ret_outcome->kind == OUTCOME_EXECUTED && !is_gone)
        snprintf(ret_outcome->detail, sizeof(ret_outcome->detail), "%s", refusal.detail);
    return step_decide(flow, ret_outcome, (struct shown){.is_gone = is_gone});
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
    return step_decide(flow, ret_outcome, (struct shown){0});
}
