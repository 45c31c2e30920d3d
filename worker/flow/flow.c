/* See flow.h. */
#include "worker/flow/flow.h"

#include <string.h>

#include "common/lib/base/backoff.h"
#include "common/lib/base/slice.h"
#include "worker/route/route_call.h"

#define ANSWER_MAX (64 * 1024)
#define SINCE_MARGIN_MS (2 * 24 * 3600 * INT64_C(1000))

void flow_init(struct flow *flow, const struct flow_env *env)
{
    memset(flow, 0, sizeof(*flow));
    flow->env = env;
    http_call_init(&flow->call, ANSWER_MAX);
}

void flow_forget(struct flow *flow)
{
    issuer_card_wipe(&flow->card);
    issuer_lookup_forget(&flow->lookup);
    buf_done(&flow->kept);
    buf_done(&flow->spans);
    buf_done(&flow->body);
    buf_done(&flow->result);
}

void flow_done(struct flow *flow)
{
    http_call_done(&flow->call);
    flow_forget(flow);
}

bool flow_take_delivery(struct flow *flow, struct route *route, struct slice user_id, struct slice payload)
{
    flow->route = route;
    flow->payload = (struct outbox_payload){0};
    flow->parameters = (struct event_parameters){0};
    flow->save = (struct write_save){0};
    flow->replaces_issuer_id[0] = flow->user_id[0] = '\0';
    flow->attempt.is_saved = flow->attempt.is_of_other_issuer = false;
    buf_init(&flow->body, ROUTE_PAYLOAD_MAX);
    if (!user_id.bytes || user_id.length == 0 || user_id.length > OUTBOX_USER_ID_MAX ||
        memchr(user_id.bytes, '\0', user_id.length) || !payload.bytes || payload.length > ROUTE_PAYLOAD_MAX)
        return false;
    slice_copy(user_id, flow->user_id, sizeof(flow->user_id));
    (void)buf_put(&flow->body, payload.bytes, payload.length); /* ignoring: the step sees that it failed */
    return true;
}

const char *flow_event_type(const struct flow *flow)
{
    return flow->route ? flow->route->config->type : OUTBOX_EVENT_TYPE;
}

/* ---- what a decision sees ---- */

struct attempt_rules flow_rules(const struct flow *flow)
{
    const struct config *config = flow->env->worker->config;
    if (flow->route)
        return attempt_rules_of_route(config, flow->route->config);
    struct attempt_rules rules = issuer_attempt_rules(config, flow->env->worker->parameters->profile);
    rules.stores_numbers = flow->env->keyring;
    rules.key_lifetime_ms = peers_key_lifetime_ms(flow->env->worker->peers, config);
    rules.settle_time_ms = peers_settle_time_ms(flow->env->worker->peers, config);
    return rules;
}

/* How long the peer still rests, or its breaker stays open. */
static int64_t closed_ms(const struct target *target, int64_t now_ms)
{
    int64_t closed_ms = target_rest_ms(target, now_ms);
    if (target->breaker.state == BREAKER_OPEN && target->breaker.probe_at_ms - now_ms > closed_ms)
        /* guard: an event that failed a probe is not the next one */
        closed_ms = target->breaker.probe_at_ms - now_ms;
    return closed_ms;
}

/* Of the peers that the event needs. */
static int64_t longer_rest_ms(const struct flow *flow, int64_t now_ms)
{
    if (flow->route)
        return target_rest_ms(&flow->route->peer.target, now_ms);
    int64_t issuer_ms = target_rest_ms(&flow->env->worker->peers->issuer.target, now_ms);
    int64_t core_ms = target_rest_ms(&flow->env->worker->peers->core.target, now_ms);
    return issuer_ms > core_ms ? issuer_ms : core_ms;
}

/* kind: of call, or -1 = any. */
static bool answers_others(const struct flow *flow, int kind, int64_t since_ms)
{
    return target_answers_others(&flow_peer(flow)->target, kind, &flow->attempt.event_id, since_ms);
}

struct view flow_view(const struct flow *flow, int64_t now_ms, int64_t wall_us)
{
    const struct attempt *attempt = &flow->attempt;
    const struct peer *peer = flow_peer(flow);
    struct view view = {
        .rules = flow_rules(flow),
        .now_ms = now_ms,
        .wall_us = wall_us,
        .steady_ms = db_clock_steady_ms(flow->env->worker->db_clock, now_ms * 1000),
        .random = backoff_random(),
        .peers_rest_ms = longer_rest_ms(flow, now_ms),
    };
    if (peer) {
        /* guard: what was answered while the claim was under way is not evidence */
        int64_t began_ms = attempt->claimed_ms + attempt->claim_took_ms;
        int64_t changed_ms = began_ms - attempt->changed_age_ms;
        int64_t steady_ms = now_ms - view.steady_ms;
        /* The age is the database's, and its clock may have been set forward. */
        /* guard: no evidence is from before a step of the database's clock */
        if (changed_ms < steady_ms)
            changed_ms = steady_ms;
        view.peer_closed_ms = closed_ms(&peer->target, now_ms);
        /* guard: only another event's answer is evidence, and only of the same kind of call */
        view.others_in_attempt = answers_others(flow, (int)attempt->step, began_ms);
        view.others_since_change = answers_others(flow, (int)attempt->step, changed_ms);
        view.others_in_any_call = answers_others(flow, -1, changed_ms);
        view.is_suspected = peer->target.suspicions[attempt->step].is_suspected;
    }
    return view;
}

/* ---- names and tables ---- */

static const struct {
    enum flow_peer peer;
    enum issuer_call call;
    enum write_kind write;
} steps[STEP_COUNT] = {
#define X(name, word, text, peer, call, write) [STEP_##name] = {peer, call, write},
    FLOW_STEPS(X)
#undef X
};

enum issuer_call flow_step_call(enum flow_step step)
{
    return steps[step].call;
}

enum write_kind flow_step_write(enum flow_step step)
{
    return steps[step].write;
}

struct peer *flow_peer(const struct flow *flow)
{
    switch (steps[flow->attempt.step].peer) {
    case FLOW_PEER_NONE:
        return NULL;
    case FLOW_PEER_ISSUER:
        return &flow->env->worker->peers->issuer;
    case FLOW_PEER_CORE:
        return &flow->env->worker->peers->core;
    case FLOW_PEER_ROUTE:
        /* guard: a route has a breaker of its own */
        return &flow->route->peer;
    }
    return NULL;
}

const char *flow_wait_name(enum flow_wait wait)
{
    static const char *const names[FLOW_WAITS] = {
        [FLOW_WAIT_NONE] = "none", [FLOW_WAIT_LEASE] = "lease", [FLOW_WAIT_TARGET] = "target",
        [FLOW_WAIT_CALL] = "call", [FLOW_WAIT_WRITE] = "write", [FLOW_WAIT_END] = "end",
    };
    return names[wait];
}

int64_t flow_lookup_since_ms(const struct uuid *event_id, int64_t made_ms)
{
    int64_t id_ms;
    int64_t since_ms = uuid7_time_ms(event_id, &id_ms) && id_ms < made_ms ? id_ms : made_ms;
    return since_ms > SINCE_MARGIN_MS ? since_ms - SINCE_MARGIN_MS : 0;
}
