/* See attempt.h. */
#include "common/core/decide/attempt.h"

#include <string.h>

#include "common/core/issuer_key.h"

#define QUESTION_LIFETIME_MS (24 * 3600 * INT64_C(1000))

struct attempt_rules attempt_rules_of_route(const struct config *config, const struct config_route *route)
{
    return (struct attempt_rules){
        .first = STEP_DELIVER,
        .send = STEP_DELIVER,
        .lookup = route->lookup_url ? STEP_ASK : STEP_COUNT,
        .key_expired = "route_key_expired",
        .unreadable = OUTBOX_CAUSE_ROUTE_UNREADABLE,
        /* guard: the key of a route has the lifetime of its route */
        .key_lifetime_ms = route->key_lifetime_ms,
        .timeout_ms = route->timeout_ms,
        /* guard: the look-up of a route decides only when the last send is settled */
        .settle_time_ms = issuer_key_route_settle_ms(route->key_lifetime_ms, route->timeout_ms),
        /* guard: a route counts attempts of its own */
        .max_attempts = route->max_attempts,
        .retry_base_ms = route->retry_base_ms,
        .retry_cap_ms = route->retry_cap_ms,
        .retry_for_ms = route->retry_for_ms,
        .lease_ms = config->worker.lease_ms,
        .refused_is_question = route->on_refused == ON_REFUSED_QUESTION,
        .key_is_trusted = true, /* by its documents, docs/routes.md */
    };
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

/* Cut to its place; NULL = "". */
static void copy_code(char *to, size_t size, const char *from)
{
    size_t length = from ? strnlen(from, size - 1) : 0;
    if (length > 0)
        memcpy(to, from, length);
    to[length] = '\0';
}

void attempt_set_end(struct attempt *attempt, const char *held_end, const char *held_end_code, const char *cancel_code)
{
    bool is_duplicate = held_end && lookup_reason_parse(held_end) == LOOKUP_DUPLICATE;
    /* guard: a card that must go is looked up first after two cards */
    bool is_held = held_end && held_end[0] && (is_duplicate || !cancel_code);
    const char *code = is_held && !is_duplicate ? held_end_code : cancel_code;
    copy_code(attempt->held_end, sizeof(attempt->held_end), is_held ? held_end : NULL);
    copy_code(attempt->pending_code, sizeof(attempt->pending_code), code);
}

enum flow_step attempt_purpose(const struct attempt *attempt)
{
    enum flow_step step = attempt->step;
    if (step == STEP_CHECK && attempt->asks_for != STEP_COUNT)
        step = attempt->asks_for;
    return step == STEP_VERIFY ? attempt->verifies : step;
}

bool attempt_has_lookup(const struct attempt_rules *rules)
{
    return rules->lookup != STEP_COUNT;
}

bool attempt_is_beyond(const struct attempt *attempt, const struct attempt_rules *rules, int64_t number)
{
    /* guard: attempts go on for the time of their route */
    return number > rules->max_attempts &&
           (rules->retry_for_ms == 0 || attempt->accepted_age_ms >= rules->retry_for_ms);
}

/* ---- sends and the key ---- */

bool attempt_key_expired(int64_t age_ms, int64_t lifetime_ms, int64_t timeout_ms, int64_t settle_ms)
{
    return age_ms >= issuer_key_sendable_ms(lifetime_ms, timeout_ms, settle_ms);
}

int64_t attempt_settle_left_ms(int64_t age_ms, int64_t steady_ms, int64_t settle_ms, int64_t lease_ms)
{
    if (age_ms < 0)
        return 0;
    /* guard: not found decides only when the last send is as old as the settling time */
    /* guard: not found decides only when the clock was steady for the settling time */
    /* guard: the steady time covers the lease of a worker that was replaced */
    int64_t left_ms = settle_ms - age_ms, unsteady_ms = settle_ms + lease_ms - steady_ms;
    if (left_ms < unsteady_ms)
        left_ms = unsteady_ms;
    return left_ms > 0 ? left_ms : 0;
}

/* lifetime_ms: of the key. */
static bool is_sent_before(const struct attempt *attempt, const struct view *view, int64_t lifetime_ms)
{
    return attempt->sent_age_ms >= 0 &&
           attempt_key_expired(attempt->sent_age_ms + view->now_ms - attempt->claimed_ms, lifetime_ms,
                               view->rules.timeout_ms, view->rules.settle_time_ms);
}

bool attempt_is_expired(const struct attempt *attempt, const struct view *view)
{
    return is_sent_before(attempt, view, view->rules.key_lifetime_ms);
}

int64_t attempt_question_lifetime_ms(const struct attempt_rules *rules)
{
    int64_t lifetime_ms = rules->key_lifetime_ms;
    /* guard: a question comes up also where the key lives for ever */
    return lifetime_ms < ISSUER_KEY_FOREVER_MS ? lifetime_ms : QUESTION_LIFETIME_MS;
}

bool attempt_is_long_unknown(const struct attempt *attempt, const struct view *view)
{
    return attempt->unknown && is_sent_before(attempt, view, attempt_question_lifetime_ms(&view->rules));
}

int64_t attempt_unsettled_ms(const struct attempt *attempt, const struct view *view)
{
    if (attempt->may_arrive)
        return view->rules.settle_time_ms;
    /* guard: the time that a claim took makes no send older */
    int64_t passed_ms = view->now_ms - attempt->claimed_ms - attempt->claim_took_ms;
    int64_t age_ms = attempt->settle_age_ms < 0 ? -1 : attempt->settle_age_ms + passed_ms;
    return attempt_settle_left_ms(age_ms, view->steady_ms, view->rules.settle_time_ms, view->rules.lease_ms);
}
