/* See flow_review.h. */
#include "worker/flow/flow_review.h"

#include <stdio.h>

#include "common/lib/base/log.h"
#include "worker/flow/step.h"
#include "worker/peers/core_api.h"

bool flow_review_begins(struct flow *flow, const struct flow_verdict *verdict)
{
    bool is_end = verdict->kind == FLOW_REJECT || verdict->kind == FLOW_FAIL;
    if (!is_end || flow->review.is_on || flow->route || !flow->payload.is_reissue || !flow->replaces_issuer_id[0] ||
        !issuer_profile_has(step_profile(flow), ISSUER_RETRIEVE))
        return false;
    flow->review = (struct flow_review){
        .is_on = true, .kind = verdict->kind, .step = flow->attempt.step, .outcome = flow->attempt.outcome};
    snprintf(flow->review.code, sizeof(flow->review.code), "%s", verdict->code);
    return true;
}

struct flow_verdict flow_review_end(struct flow *flow)
{
    const struct flow_review *review = &flow->review;
    flow->attempt.step = review->step;
    flow->attempt.asks_for = STEP_COUNT;
    flow->attempt.outcome = review->outcome;
    return verdict_end(review->kind, review->code);
}

/* The end follows, or the same call again. */
static struct flow_verdict over(struct flow *flow, const struct outcome *outcome, const char *unknown)
{
    /* guard: one lost answer hides no closed card */
    if (outcome->kind == OUTCOME_UNKNOWN && ++flow->review.tries < FLOW_REVIEW_TRIES)
        return verdict_go(flow->attempt.step);
    if (outcome->kind != OUTCOME_EXECUTED)
        log_warning(unknown, FLOW_IN_LOG(flow), LOG_TEXT("card_id", flow->payload.replaces),
                    LOG_TEXT("code", outcome->code), LOG_TEXT("detail", outcome->detail));
    return verdict_wait(FLOW_RETRY, outcome->code, -1);
}

/* ---- review: the old card is read at the issuer ---- */

struct flow_verdict step_review_read(struct flow *flow, struct outcome *ret_outcome)
{
    enum issuer_card_state state = ISSUER_CARD_NONE;
    issuer_read_retrieve(step_profile(flow), &flow->call, flow->replaces_issuer_id, &state, ret_outcome);
    flow->review.is_gone = ret_outcome->kind == OUTCOME_EXECUTED && state == ISSUER_CARD_GONE;
    /* guard: core-api learns that the card that was not replaced is closed */
    if (flow->review.is_gone)
        return verdict_go(STEP_DISOWN);
    return over(flow, ret_outcome, "the card that was not replaced could not be read; it is shown as before");
}

/* ---- disown: core-api removes it, as it removes the card of a request that was cancelled ---- */

bool step_disown_prepare(struct flow *flow)
{
    struct uuid card_id;
    return uuid_parse(flow->payload.replaces, strlen(flow->payload.replaces), &card_id) &&
           step_with_trace(flow, core_build_unlink(&flow->call, flow_peer(flow)->url, flow->user_id,
                                                   &flow->replaces_request_id, &card_id));
}

struct flow_verdict step_disown_read(struct flow *flow, struct outcome *ret_outcome)
{
    outcome_of_unlink(&flow->call, ret_outcome);
    return over(flow, ret_outcome, "core-api was not told that the card that was not replaced is closed");
}
