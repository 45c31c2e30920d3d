/* See flow.h. */
#include "worker/flow.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/issuer_key.h"
#include "worker/route/route_call.h"

#define ANSWER_MAX (64 * 1024)
#define SINCE_MARGIN_MS (2 * 24 * 3600 * INT64_C(1000))
#define QUESTION_LIFETIME_MS (24 * 3600 * INT64_C(1000))

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
    flow->is_saved = flow->is_elsewhere = false;
    buf_init(&flow->body, ROUTE_PAYLOAD_MAX);
    if (!user_id.bytes || user_id.length == 0 || user_id.length > OUTBOX_USER_ID_MAX ||
        memchr(user_id.bytes, '\0', user_id.length) || !payload.bytes || payload.length > ROUTE_PAYLOAD_MAX)
        return false;
    memcpy(flow->user_id, user_id.bytes, user_id.length);
    flow->user_id[user_id.length] = '\0';
    (void)buf_put(&flow->body, payload.bytes, payload.length); /* ignoring: the step sees that it failed */
    return true;
}

/* ---- the two flows ---- */

const struct flow_kind *flow_kind(const struct flow *flow)
{
    static const struct flow_kind card = {
        .first = STEP_CHECK,
        .send = STEP_ISSUE,
        .lookup = STEP_LOOKUP,
        .key_expired = "issuer_key_expired",
        .unreadable = OUTBOX_CAUSE_ISSUER_UNREADABLE,
    };
    static const struct flow_kind delivery = {
        .first = STEP_DELIVER,
        .send = STEP_DELIVER,
        .lookup = STEP_COUNT,
        .key_expired = "route_key_expired",
        .unreadable = OUTBOX_CAUSE_ROUTE_UNREADABLE,
    };
    static const struct flow_kind asked_delivery = {
        .first = STEP_DELIVER,
        .send = STEP_DELIVER,
        .lookup = STEP_ASK,
        .key_expired = "route_key_expired",
        .unreadable = OUTBOX_CAUSE_ROUTE_UNREADABLE,
    };
    if (!flow->route)
        return &card;
    return flow->route->config->lookup_url ? &asked_delivery : &delivery;
}

struct flow_limits flow_limits(const struct flow *flow)
{
    const struct config *config = flow->env->config;
    const struct route *route = flow->route;
    if (route)
        return (struct flow_limits){.key_lifetime_ms = route->config->key_lifetime_ms,
                                    .timeout_ms = route->config->timeout_ms,
                                    .settle_time_ms = route->settle_time_ms,
                                    .max_attempts = route->config->max_attempts};
    return (struct flow_limits){.key_lifetime_ms = config->issuer.key_lifetime_ms,
                                .timeout_ms = config->issuer.timeout_ms,
                                .settle_time_ms = config->issuer.settle_time_ms,
                                .max_attempts = config->retry.max_attempts};
}

bool flow_has_lookup(const struct flow *flow)
{
    return flow_kind(flow)->lookup != STEP_COUNT;
}

const char *flow_event_type(const struct flow *flow)
{
    return flow->route ? flow->route->config->type : OUTBOX_EVENT_TYPE;
}

const char *flow_end_code(const struct flow *flow, enum lookup_reason reason, const char *pending_code)
{
    if (reason == LOOKUP_EXHAUSTED)
        return "attempts_exhausted";
    if (reason == LOOKUP_KEY_EXPIRED)
        return flow_kind(flow)->key_expired;
    return reason == LOOKUP_WORKER_LOST ? "worker_lost" : pending_code;
}

struct flow_verdict flow_look_up(const struct flow *flow, enum lookup_reason reason, const char *code)
{
    if (flow_has_lookup(flow))
        return (struct flow_verdict){.kind = FLOW_GO, .step = flow_kind(flow)->lookup, .reason = reason, .code = code};
    return (struct flow_verdict){.kind = FLOW_FAIL, .code = flow_end_code(flow, reason, code)};
}

/* ---- names and tables ---- */

static const struct {
    const char *name, *text;
    enum flow_peer peer;
    enum issuer_call call;
    enum write_kind write;
} steps[STEP_COUNT] = {
#define X(name, word, text, peer, call, write) [STEP_##name] = {#word, text, peer, call, write},
    FLOW_STEPS(X)
#undef X
};

const char *flow_step_name(enum flow_step step)
{
    return steps[step].name;
}

const char *flow_step_text(enum flow_step step)
{
    return steps[step].text;
}

enum issuer_call flow_step_call(enum flow_step step)
{
    return steps[step].call;
}

enum write_kind flow_step_write(enum flow_step step)
{
    return steps[step].write;
}

bool flow_step_is_aside(enum flow_step step)
{
    return step != STEP_CHECK && step != STEP_ISSUE && step != STEP_LINK && step != STEP_DELIVER;
}

struct peer *flow_peer(const struct flow *flow)
{
    switch (steps[flow->step].peer) {
    case FLOW_PEER_NONE:
        return NULL;
    case FLOW_PEER_ISSUER:
        return &flow->env->peers->issuer;
    case FLOW_PEER_CORE:
        return &flow->env->peers->core;
    case FLOW_PEER_ROUTE:
        return &flow->route->peer;
    }
    return NULL;
}

enum flow_step flow_purpose(const struct flow *flow)
{
    enum flow_step step = flow->step;
    if (step == STEP_CHECK && flow->asks_for != STEP_COUNT)
        step = flow->asks_for;
    return step == STEP_VERIFY ? flow->verifies : step;
}

const char *flow_wait_name(enum flow_wait wait)
{
    static const char *const names[FLOW_WAITS] = {
        [FLOW_WAIT_NONE] = "none", [FLOW_WAIT_LEASE] = "lease", [FLOW_WAIT_TURN] = "turn",
        [FLOW_WAIT_CALL] = "call", [FLOW_WAIT_WRITE] = "write", [FLOW_WAIT_END] = "end",
    };
    return names[wait];
}

const char *lookup_reason_name(enum lookup_reason reason)
{
    static const char *const names[LOOKUP_REASONS] = {
#define X(name, word) [LOOKUP_##name] = #word,
        OUTBOX_HELD_ENDS(X)
#undef X
    };
    return names[reason];
}

enum lookup_reason lookup_reason_parse(const char *name)
{
    for (int i = 0; i < LOOKUP_REASONS; i++) {
        const char *known = lookup_reason_name((enum lookup_reason)i);
        if (known && strcmp(name, known) == 0)
            return (enum lookup_reason)i;
    }
    return LOOKUP_NONE;
}

/* ---- sends and the key ---- */

int64_t flow_lookup_since_ms(const struct uuid *event_id, int64_t made_ms)
{
    int64_t id_ms;
    int64_t since_ms = uuid7_time_ms(event_id, &id_ms) && id_ms < made_ms ? id_ms : made_ms;
    return since_ms > SINCE_MARGIN_MS ? since_ms - SINCE_MARGIN_MS : 0;
}

bool flow_key_expired(int64_t age_ms, int64_t lifetime_ms, int64_t timeout_ms, int64_t settle_ms)
{
    return age_ms >= issuer_key_sendable_ms(lifetime_ms, timeout_ms, settle_ms);
}

int64_t flow_settle_left_ms(int64_t age_ms, int64_t steady_ms, int64_t settle_ms, int64_t lease_ms)
{
    if (age_ms < 0)
        return 0;
    int64_t left_ms = settle_ms - age_ms, unsteady_ms = settle_ms + lease_ms - steady_ms;
    if (left_ms < unsteady_ms)
        left_ms = unsteady_ms;
    return left_ms > 0 ? left_ms : 0;
}

/* lifetime_ms: of the key. */
static bool is_sent_before(const struct flow *flow, int64_t lifetime_ms, int64_t now_ms)
{
    struct flow_limits limits = flow_limits(flow);
    return flow->sent_age_ms >= 0 && flow_key_expired(flow->sent_age_ms + now_ms - flow->claimed_ms, lifetime_ms,
                                                      limits.timeout_ms, limits.settle_time_ms);
}

bool flow_is_expired(const struct flow *flow, int64_t now_ms)
{
    return is_sent_before(flow, flow_limits(flow).key_lifetime_ms, now_ms);
}

int64_t flow_question_lifetime_ms(const struct flow *flow)
{
    int64_t lifetime_ms = flow_limits(flow).key_lifetime_ms;
    return lifetime_ms < ISSUER_KEY_FOREVER_MS ? lifetime_ms : QUESTION_LIFETIME_MS;
}

bool flow_is_long_unknown(const struct flow *flow, int64_t now_ms)
{
    return flow->unknown && is_sent_before(flow, flow_question_lifetime_ms(flow), now_ms);
}

int64_t flow_unsettled_ms(const struct flow *flow, int64_t now_ms)
{
    int64_t settle_ms = flow_limits(flow).settle_time_ms;
    if (flow->may_arrive)
        return settle_ms;
    int64_t age_ms = flow->settle_age_ms < 0 ? -1 : flow->settle_age_ms + now_ms - flow->claimed_ms;
    return flow_settle_left_ms(age_ms, db_clock_steady_ms(flow->env->db_clock, clock_mono_us()), settle_ms,
                               flow->env->config->worker.lease_ms);
}
