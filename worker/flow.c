/* See flow.h. */
#include "worker/flow.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/issuer_key.h"

#define ANSWER_MAX (64 * 1024)
#define SINCE_MARGIN_MS (2 * 24 * 3600 * INT64_C(1000))
#define QUESTION_LIFETIME_MS (24 * 3600 * INT64_C(1000))

void flow_init(struct flow *flow, const struct flow_env *env)
{
    memset(flow, 0, sizeof(*flow));
    flow->env = env;
    http_call_init(&flow->call, ANSWER_MAX);
}

void flow_done(struct flow *flow)
{
    http_call_done(&flow->call);
    issuer_card_wipe(&flow->card);
    issuer_lookup_forget(&flow->lookup);
    buf_done(&flow->kept);
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
    return step == STEP_LOOKUP || step == STEP_ACTIVATE || step == STEP_REVEAL || step == STEP_RETIRE ||
           step == STEP_VERIFY;
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

bool flow_is_expired(const struct flow *flow, int64_t now_ms)
{
    const struct config *config = flow->env->config;
    return flow->sent_age_ms >= 0 &&
           flow_key_expired(flow->sent_age_ms + now_ms - flow->claimed_ms, config->issuer.key_lifetime_ms,
                            config->issuer.timeout_ms, config->issuer.settle_time_ms);
}

int64_t flow_question_lifetime_ms(const struct flow *flow)
{
    int64_t lifetime_ms = flow->env->config->issuer.key_lifetime_ms;
    return lifetime_ms < ISSUER_KEY_FOREVER_MS ? lifetime_ms : QUESTION_LIFETIME_MS;
}

bool flow_is_long_unknown(const struct flow *flow, int64_t now_ms)
{
    const struct config *config = flow->env->config;
    return flow->unknown && flow->sent_age_ms >= 0 &&
           flow_key_expired(flow->sent_age_ms + now_ms - flow->claimed_ms, flow_question_lifetime_ms(flow),
                            config->issuer.timeout_ms, config->issuer.settle_time_ms);
}

int64_t flow_unsettled_ms(const struct flow *flow, int64_t now_ms)
{
    const struct config *config = flow->env->config;
    if (flow->may_arrive)
        return config->issuer.settle_time_ms;
    int64_t age_ms = flow->settle_age_ms < 0 ? -1 : flow->settle_age_ms + now_ms - flow->claimed_ms;
    return flow_settle_left_ms(age_ms, db_clock_steady_ms(flow->env->db_clock, clock_mono_us()),
                               config->issuer.settle_time_ms, config->worker.lease_ms);
}
