/* See flow_verdict.h. */
#include "worker/flow_verdict.h"

#include <string.h>

#include "common/base/backoff.h"

#define DEFERRAL_MIN_MS 50
#define LOOKUP_REST_PART 8 /* of the time for which an outcome has been unknown */
#define LOOKUP_REST_MAX_MS (60 * INT64_C(1000))
#define DEFERRALS_PROVE 3 /* so many in a row for one cause, while others are answered well, are the event's fault */

static struct flow_verdict fail(const char *code)
{
    return (struct flow_verdict){.kind = FLOW_FAIL, .code = code};
}

/* The new card is linked, so the request is done; that the old one may still be open is a note for operators. */
static struct flow_verdict complete_unretired(void)
{
    return (struct flow_verdict){.kind = FLOW_COMPLETE, .code = outbox_cause_name(OUTBOX_CAUSE_RETIRE_REFUSED)};
}

static struct flow_verdict retry(const struct flow *flow, const char *code, int64_t least_ms)
{
    const struct config *config = flow->env->config;
    int64_t delay_ms = backoff_delay_ms(flow->attempt, config->retry.base_ms, config->retry.cap_ms, backoff_random());
    return (struct flow_verdict){
        .kind = FLOW_RETRY, .code = code, .wait_ms = delay_ms > least_ms ? delay_ms : least_ms};
}

static struct flow_verdict defer(const char *code, int64_t delay_ms, bool keeps_streak)
{
    return (struct flow_verdict){
        .kind = FLOW_DEFER,
        .code = code,
        .wait_ms = delay_ms > DEFERRAL_MIN_MS ? delay_ms : DEFERRAL_MIN_MS,
        .keeps_streak = keeps_streak,
    };
}

/* ---- how long a deferral lasts ---- */

/* Which deferral in a row for this cause the coming one is; 1 = the first. */
static int deferral_number(const struct flow *flow, const char *code)
{
    bool is_same = code[0] && strcmp(flow->deferral_code, code) == 0;
    return is_same ? flow->deferral_count + 1 : 1;
}

static int64_t longer_ms(int64_t one_ms, int64_t other_ms)
{
    return one_ms > other_ms ? one_ms : other_ms;
}

/* Between half and all of it. */
static int64_t jitter_ms(int64_t most_ms)
{
    return most_ms / 2 + (int64_t)(backoff_random() % (uint64_t)(most_ms / 2 + 1));
}

/* The delay of the number-th deferral in a row. Never so short that the event which has just failed a probe is the next
 * probe while another event is due, nor that it comes back while the peer rests. */
static int64_t grown_ms(const struct flow *flow, int number, int64_t now_ms)
{
    const struct config *config = flow->env->config;
    const struct peer *peer = flow_peer(flow);
    int64_t delay_ms = jitter_ms(backoff_ceiling_ms(number, config->retry.base_ms, config->retry.cap_ms));
    if (!peer)
        return delay_ms;
    const struct target *target = &peer->target;
    int64_t closed_ms = target_rest_ms(target, now_ms);
    if (target->breaker.state == BREAKER_OPEN && target->breaker.probe_at_ms - now_ms > closed_ms)
        closed_ms = target->breaker.probe_at_ms - now_ms;
    int64_t least_ms = closed_ms > 0 ? closed_ms + jitter_ms(config->retry.base_ms) : 0;
    return delay_ms > least_ms ? delay_ms : least_ms;
}

/* Another worker may speak to the event's issuer, during a change: soon at first, rarely in the end. */
static int64_t elsewhere_ms(const struct flow *flow)
{
    const struct config *config = flow->env->config;
    int64_t most_ms = flow->sent_age_ms >= 0 ? flow->sent_age_ms : flow->accepted_age_ms;
    most_ms = longer_ms(most_ms, config->retry.base_ms);
    return jitter_ms(most_ms < config->retry.cap_ms ? most_ms : config->retry.cap_ms);
}

/* A cause of our own: a short delay. A streak of 409 and 425: in proportion to how long it has lasted. */
static int64_t short_ms(const struct flow *flow, bool in_progress)
{
    const struct config *config = flow->env->config;
    int64_t most_ms = config->retry.base_ms;
    if (in_progress && flow->deferred_age_ms > most_ms)
        most_ms = flow->deferred_age_ms < config->retry.cap_ms ? flow->deferred_age_ms : config->retry.cap_ms;
    return jitter_ms(most_ms);
}

/* Of the peers that the event needs. */
static int64_t longer_rest_ms(const struct flow *flow, int64_t now_ms)
{
    if (flow->route)
        return target_rest_ms(&flow->route->peer.target, now_ms);
    int64_t issuer_ms = target_rest_ms(&flow->env->peers->issuer.target, now_ms);
    int64_t core_ms = target_rest_ms(&flow->env->peers->core.target, now_ms);
    return longer_ms(issuer_ms, core_ms);
}

/* ---- evidence ---- */

static bool answers_others(const struct flow *flow, int kind, int64_t since_ms)
{
    return target_answers_others(&flow_peer(flow)->target, kind, &flow->event_id, since_ms);
}

/* This is at least the third answer of this kind in a row, and another event was answered well since the one before.
 * kind: of call, or -1 = any. The event's last change is its last answer, whichever worker got it. */
static bool is_third_beside_good_ones(const struct flow *flow, int kind)
{
    return deferral_number(flow, flow->outcome.code) >= DEFERRALS_PROVE &&
           answers_others(flow, kind, flow->claimed_ms - flow->changed_age_ms);
}

/* A failure that is the peer's health ends nothing, however long it lasts, unless another event was answered well
 * during this attempt, or, where events are rare, between three such failures in a row. */
static bool others_fare_better(const struct flow *flow)
{
    return answers_others(flow, (int)flow->step, flow->claimed_ms) || is_third_beside_good_ones(flow, (int)flow->step);
}

/* The look-up of this event fails in a way that is no question of the peer's health: what came back cannot be read, or
 * it is answered by a 5xx, not in time or not to the end while other events are looked up well, during this attempt or
 * since the one before, which had failed like this. */
static bool lookup_fails_alone(const struct flow *flow)
{
    if (flow->outcome.health != BREAKER_BAD)
        return true;
    bool was_sent = flow->outcome.kind == OUTCOME_UNKNOWN;
    bool is_second = flow->attempt > flow_limits(flow).max_attempts;
    return was_sent && answers_others(flow, (int)flow->step, flow->claimed_ms - (is_second ? flow->changed_age_ms : 0));
}

/* Look-ups are refused three times in a row while the peer answers others, and the send is long past: the
 * outcome will never be known, so it is a question for a person. */
static bool lookup_is_hopeless(const struct flow *flow, int64_t now_ms)
{
    return flow_is_long_unknown(flow, now_ms) && is_third_beside_good_ones(flow, -1);
}

/* ---- decisions ---- */

/* The current step is the look-up, or serves it. */
static bool is_looking_up(const struct flow *flow)
{
    return flow_purpose(flow) == flow_kind(flow)->lookup;
}

/* Before a look-up is repeated. It grows with the time for which the outcome has been unknown, however short the retries
 * are configured; 0 for other steps. */
static int64_t lookup_rest_ms(const struct flow *flow)
{
    int64_t age_ms = is_looking_up(flow) ? flow->sent_age_ms / LOOKUP_REST_PART : 0;
    return jitter_ms(age_ms < LOOKUP_REST_MAX_MS ? age_ms : LOOKUP_REST_MAX_MS);
}

/* The issuer showed the card in this attempt, or it is looked up and found in every such attempt. */
static bool card_is_at_hand(const struct flow *flow)
{
    enum flow_step purpose = flow_purpose(flow);
    return purpose == STEP_CANCEL || purpose == STEP_MARK || purpose == STEP_ACTIVATE || purpose == STEP_REVEAL;
}

/* No more attempts: an unknown outcome is looked up first, then it is a question for a person. code: of the retry. */
static struct flow_verdict settle_exhausted(const struct flow *flow, const char *code, int64_t now_ms)
{
    bool is_open = flow->unknown && !flow->is_saved;
    if (flow_purpose(flow) == STEP_RETIRE)
        return complete_unretired();
    /* The outcome cannot be known any more, and no key settles it: a question for a person. */
    if (is_open && is_looking_up(flow) && flow_is_long_unknown(flow, now_ms) && lookup_fails_alone(flow))
        return fail("outcome_unknown");
    /* The look-up itself got no answer: no end over an unknown outcome. */
    if (is_open && is_looking_up(flow))
        return retry(flow, code, lookup_rest_ms(flow));
    if (is_open && !card_is_at_hand(flow) && flow->lookup_reason != LOOKUP_EXHAUSTED)
        return flow_look_up(flow, LOOKUP_EXHAUSTED, NULL);
    return fail("attempts_exhausted");
}

/* No attempts are left, and there is no evidence against the event: it goes on as deferrals. An unknown outcome
 * is looked up all the same. */
static struct flow_verdict settle_in_outage(const struct flow *flow, const char *code, int64_t now_ms)
{
    const struct flow_kind *kind = flow_kind(flow);
    if (flow->step == kind->send && flow_has_lookup(flow) && flow->unknown && flow->lookup_reason == LOOKUP_NONE)
        return flow_look_up(flow, LOOKUP_IN_OUTAGE, code);
    return defer(code, grown_ms(flow, flow->attempt + deferral_number(flow, code), now_ms), false);
}

static struct flow_verdict settle_retry(const struct flow *flow, struct flow_verdict verdict, int64_t now_ms)
{
    if (flow->attempt < flow_limits(flow).max_attempts)
        return retry(flow, verdict.code, longer_ms(verdict.wait_ms, lookup_rest_ms(flow)));
    /* A last look-up is repeated until it is answered (see settle_exhausted()). */
    bool is_last_lookup = is_looking_up(flow) && flow->lookup_reason != LOOKUP_IN_OUTAGE && !flow->is_saved;
    if (flow->outcome.health == BREAKER_BAD && !is_last_lookup && !others_fare_better(flow))
        return settle_in_outage(flow, flow->outcome.code, now_ms);
    return settle_exhausted(flow, verdict.code, now_ms);
}

/* 401, 403, 404, 405, 3xx for this event alone is an unforeseen refusal. False: nothing is proved yet. */
static bool settle_refused(const struct flow *flow, int64_t now_ms, struct flow_verdict *ret_verdict)
{
    enum flow_step purpose = flow_purpose(flow);
    bool is_third = purpose == STEP_RETIRE ? deferral_number(flow, flow->outcome.code) >= DEFERRALS_PROVE
                    : is_looking_up(flow)  ? lookup_is_hopeless(flow, now_ms)
                                           : is_third_beside_good_ones(flow, (int)flow->step);
    if (!is_third)
        return false;
    if (purpose == STEP_RETIRE) /* whoever is to blame, the user has the new card */
        *ret_verdict = complete_unretired();
    else if (is_looking_up(flow))
        *ret_verdict = fail("outcome_unknown");
    else if (purpose == STEP_CANCEL)
        *ret_verdict = fail("cancel_failed");
    else if (purpose == STEP_REVEAL)
        *ret_verdict = fail("reveal_refused");
    else if (flow->unknown && !flow->is_saved && !card_is_at_hand(flow))
        *ret_verdict = flow_look_up(flow, LOOKUP_UNFORESEEN, flow->outcome.code);
    else
        *ret_verdict = fail(flow->outcome.code);
    return true;
}

static struct flow_verdict settle_deferral(const struct flow *flow, struct flow_verdict verdict, int64_t now_ms)
{
    if (flow->is_elsewhere)
        return defer(verdict.code, elsewhere_ms(flow), flow->deferred_age_ms >= 0);
    if (flow->lookup_reason == LOOKUP_IN_OUTAGE &&
        flow->outcome.kind == OUTCOME_EXECUTED) /* looked up, and not found */
        return settle_in_outage(flow, flow->pending_code, now_ms);
    if (verdict.in_progress && flow->deferred_age_ms >= flow_question_lifetime_ms(flow))
        return settle_exhausted(flow, verdict.code, now_ms);
    struct flow_verdict refused;
    if (flow->outcome.advice == ADVICE_CONFIGURATION && settle_refused(flow, now_ms, &refused))
        return refused;
    bool is_ours = flow->outcome.code[0] == '\0'; /* breaker, rest, drain: nothing was sent */
    int64_t delay_ms = verdict.wait_ms;
    if (verdict.in_progress || is_ours) {
        if (delay_ms < 0)
            delay_ms = short_ms(flow, verdict.in_progress);
        if (is_ours)
            delay_ms += longer_rest_ms(flow, now_ms);
    } else {
        /* A failed probe (BAD) proves nothing about the event. An answer to the event itself does, and its delays
         * grow. */
        bool is_probe = flow->outcome.health == BREAKER_BAD;
        int64_t grown = grown_ms(flow, is_probe ? 1 : deferral_number(flow, flow->outcome.code), now_ms);
        delay_ms = longer_ms(delay_ms, longer_ms(grown, lookup_rest_ms(flow)));
    }
    /* A deferral that we caused does not end the streak of 409 and 425 answers. */
    return defer(verdict.code, delay_ms, verdict.in_progress || (is_ours && flow->deferred_age_ms >= 0));
}

struct flow_verdict flow_verdict_settle(const struct flow *flow, struct flow_verdict verdict, int64_t now_ms)
{
    switch (verdict.kind) {
    case FLOW_RETRY:
        return settle_retry(flow, verdict, now_ms);
    case FLOW_DEFER:
        return settle_deferral(flow, verdict, now_ms);
    case FLOW_GO:
    case FLOW_COMPLETE:
    case FLOW_REJECT:
    case FLOW_FAIL:
    case FLOW_DROP:
        return verdict;
    }
    return verdict;
}
