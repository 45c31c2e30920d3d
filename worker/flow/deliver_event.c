/* The steps of a delivery (step.h): deliver sends the event to its receiver under the event's key, ask looks up whether
 * it was executed. */
#include <stdio.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "common/lib/base/slice.h"
#include "worker/flow/step.h"
#include "worker/route/route_call.h"

static struct route_event event_of(const struct flow *flow)
{
    return (struct route_event){
        .event_id = flow->attempt.event_id,
        .user_id = flow->user_id,
        .payload = buf_slice(&flow->body),
        .created_ms = flow->made_ms,
        .trace = &flow->trace,
        .is_resent = flow->attempt.is_resent,
    };
}

/* Some receivers repeat what an earlier answer was, so the event keeps the last one. */
static void keep_result(struct flow *flow)
{
    struct slice result = route_read_result(&flow->call, flow->route);
    buf_done(&flow->result);
    buf_init(&flow->result, ROUTE_RESULT_MAX);
    if (result.length > 0 && !buf_put(&flow->result, result.bytes, result.length))
        log_warning("no memory to keep the answer to a delivery", FLOW_IN_LOG(flow));
}

static struct flow_verdict decide(struct flow *flow, const struct outcome *outcome, bool was_executed)
{
    struct flow_verdict verdict =
        step_decide(flow, outcome, (struct shown){.was_resent = flow->call.was_resent, .was_executed = was_executed});
    if (verdict.kind == FLOW_COMPLETE)
        keep_result(flow);
    return verdict;
}

/* The code becomes the event's reason, which many may read. */
static void hide_credential(const struct flow *flow, struct outcome *outcome)
{
    if (outcome->advice == ADVICE_REJECT && credential_is_in(flow->credential, slice_of(outcome->code)))
        snprintf(outcome->code, sizeof(outcome->code), "%s", outcome_route.refused);
}

/* ---- deliver: the call that must not be executed twice ---- */

bool step_deliver_prepare(struct flow *flow)
{
    const struct route_event event = event_of(flow);
    return !flow->body.failed && route_build_deliver(flow->route, &event, clock_wall_us() / 1000, &flow->call);
}

struct flow_verdict step_deliver_read(struct flow *flow, struct outcome *ret_outcome)
{
    outcome_of_delivery(&flow->call, ret_outcome);
    hide_credential(flow, ret_outcome);
    return decide(flow, ret_outcome, false);
}

/* ---- ask: only this, or the receiver's answer to the same key, ends an unknown outcome ---- */

bool step_ask_prepare(struct flow *flow)
{
    const struct route_event event = event_of(flow);
    return route_build_lookup(flow->route, &event, &flow->call);
}

struct flow_verdict step_ask_read(struct flow *flow, struct outcome *ret_outcome)
{
    bool was_executed = false;
    outcome_of_question(&flow->call, &was_executed, ret_outcome);
    return decide(flow, ret_outcome, was_executed);
}
