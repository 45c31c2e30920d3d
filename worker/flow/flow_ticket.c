/* See flow_ticket.h. */
#include "worker/flow/flow_ticket.h"

#include <assert.h>
#include <string.h>

static struct target *issuer_of(const struct flow *flow)
{
    return &flow->env->worker->peers->issuer.target;
}

static bool is_suspected(const struct flow *flow)
{
    if (flow->route)
        return flow->route->peer.target.suspected > 0;
    return issuer_of(flow)->suspected > 0 || flow->env->worker->peers->core.target.suspected > 0;
}

const char *flow_ticket_closed(const struct flow *flow, int64_t now_ms)
{
    if (flow->env->mark || (flow->attempt.step != STEP_CHECK && flow->attempt.step != STEP_ISSUE))
        return NULL;
    /* guard: no card is begun that cannot be linked */
    if (is_suspected(flow) && !flow->is_probe)
        return outbox_cause_name(OUTBOX_CAUSE_BREAKER_OPEN);
    /* Both peers are looked at before core-api is called, so that neither an outage nor a rate limit of the issuer
     * causes a storm of eligibility checks. */
    /* guard: core-api is not called while the issuer's breaker is open, nor while the issuer rests */
    return flow->attempt.step == STEP_CHECK ? target_closed_by(issuer_of(flow), now_ms) : NULL;
}

int64_t flow_ticket_wait_ms(const struct flow *flow)
{
    const struct peers *peers = flow->env->worker->peers;
    bool is_away = flow->route ? flow->route->peer.target.breaker.state != BREAKER_CLOSED
                               : peers->issuer.target.breaker.state != BREAKER_CLOSED ||
                                     peers->core.target.breaker.state != BREAKER_CLOSED;
    /* It was not refused: it is due as soon as others are answered well. Until then it is not claimed. */
    return is_suspected(flow) && !is_away ? 0 : -1;
}

/* ---- the reserved ticket ---- */

bool flow_ticket_is_needed(const struct flow *flow)
{
    if (flow->attempt.step != STEP_CHECK || flow->attempt.asks_for != STEP_COUNT || flow->holds_reserved)
        return false;
    const struct breaker *breaker = &issuer_of(flow)->breaker;
    /* guard: a limited issuer's create has its ticket before the question */
    return breaker->state == BREAKER_CLOSED && (breaker->is_doubted || breaker->limit < breaker->limit_max);
}

static void fill_ticket(const struct flow *flow, enum flow_step step, struct target_ticket *ticket)
{
    static_assert(STEP_COUNT <= TARGET_KINDS, "a step is a kind of call");
    ticket->kind = (int)step;
    ticket->is_aside = flow_step_is_aside(step);
    ticket->is_dear = step == STEP_LINK;
    ticket->may_probe = flow->is_probe && !flow->env->mark;
    ticket->event_id = flow->attempt.event_id;
}

enum target_entry flow_ticket_reserve(struct flow *flow,
                                      void (*on_admitted)(struct target_ticket *ticket, enum target_entry entry))
{
    assert(!flow->holds_reserved);
    fill_ticket(flow, STEP_ISSUE, &flow->reserved);
    flow->reserved.on_admitted = on_admitted;
    enum target_entry entry = target_enter(issuer_of(flow), &flow->reserved);
    flow->holds_reserved = entry == TARGET_ADMITTED;
    return entry;
}

void flow_ticket_keep(struct flow *flow)
{
    assert(flow->attempt.step == STEP_ISSUE && flow->holds_ticket && !flow->holds_reserved);
    flow->reserved = flow->ticket;
    flow->holds_reserved = true;
    flow->holds_ticket = false;
}

bool flow_ticket_use(struct flow *flow)
{
    if (flow->attempt.step != STEP_ISSUE || !flow->holds_reserved)
        return false;
    /* guard: a reserved ticket ends with a 429 */
    if (flow->reserved.epoch != issuer_of(flow)->breaker.epoch) {
        flow_ticket_release(flow);
        return false;
    }
    flow->ticket = flow->reserved;
    flow->holds_ticket = true;
    flow->holds_reserved = false;
    return true;
}

void flow_ticket_release(struct flow *flow)
{
    if (!flow->holds_reserved)
        return;
    flow->holds_reserved = false;
    target_leave(issuer_of(flow), &flow->reserved, BREAKER_NOTHING, NULL, -1);
}

/* ---- the ticket ---- */

enum target_entry flow_ticket_enter(struct flow *flow,
                                    void (*on_admitted)(struct target_ticket *ticket, enum target_entry entry))
{
    fill_ticket(flow, flow->attempt.step, &flow->ticket);
    flow->ticket.on_admitted = on_admitted;
    enum target_entry entry = target_enter(&flow_peer(flow)->target, &flow->ticket);
    flow->holds_ticket = entry == TARGET_ADMITTED;
    return entry;
}

void flow_ticket_return(struct flow *flow)
{
    if (!flow->holds_ticket)
        return;
    flow->holds_ticket = false;
    target_leave(&flow_peer(flow)->target, &flow->ticket, BREAKER_NOTHING, NULL, -1);
}

/* A call of a mark shows only whether the peer can be reached. Look-ups and cancels that succeed prove nothing about
 * creates and links: as a probe, such a call does not close the breaker, or each look-up would send creates into an
 * outage and use up their attempts. */
static enum breaker_result health_of_mark(const struct flow *flow)
{
    if (flow->attempt.outcome.kind == OUTCOME_EXECUTED)
        /* guard: a look-up that went well does not close the breaker */
        return flow->is_probe ? BREAKER_NOTHING : BREAKER_GOOD;
    return flow->call.result != HTTP_ANSWERED ? BREAKER_BAD : BREAKER_NOTHING;
}

void flow_ticket_leave(struct flow *flow, struct flow_verdict *verdict)
{
    struct target *target = &flow_peer(flow)->target;
    const struct outcome *outcome = &flow->attempt.outcome;
    if (flow->env->mark) {
        flow->holds_ticket = false;
        flow->ticket.is_repeated = flow->attempt.number > 1;
        target_leave(target, &flow->ticket, health_of_mark(flow), outcome_cause(outcome), outcome->wait_ms);
        return;
    }
    /* Only a closed breaker counts failures: neither a failed probe nor a call that was in flight when it opened is an
     * attempt. */
    if (verdict->kind == FLOW_RETRY && outcome->health == BREAKER_BAD && target->breaker.state != BREAKER_CLOSED)
        /* guard: a failed probe is not an attempt */
        verdict->kind = FLOW_DEFER;
    flow->holds_ticket = false;
    /* guard: the link of a card that was there before puts no fresh probe off */
    flow->ticket.is_repeated = (flow->attempt.step == STEP_LINK && !flow->attempt.card_is_new) ||
                               strcmp(flow->attempt.deferral_code, outcome_cause(outcome)) == 0;
    /* guard: a refusal after a create that may have been executed does not show that none was */
    if (flow->attempt.step == STEP_ISSUE && outcome->kind == OUTCOME_REFUSED && !flow->attempt.unknown)
        target_note_create(target, &flow->attempt.event_id, outcome->code);
    else if (flow->attempt.step == STEP_ISSUE && outcome->kind == OUTCOME_EXECUTED)
        target_note_create(target, &flow->attempt.event_id, NULL);
    target_leave(target, &flow->ticket, outcome->health, outcome_cause(outcome), outcome->wait_ms);
}
