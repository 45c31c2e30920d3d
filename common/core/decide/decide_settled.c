/* See decide.h: when an attempt that did not succeed is over, and how long the event then waits. */
#include <string.h>

#include "common/core/decide/decide.h"
#include "common/lib/base/backoff.h"

#define DEFERRAL_MIN_MS 50
#define LOOKUP_REST_PART 8 /* of the time for which an outcome has been unknown */
#define LOOKUP_REST_MAX_MS (60 * INT64_C(1000))
#define DEFERRALS_PROVE 3 /* deferrals in a row for one cause, while others are answered well: the event's fault */

/* The new card is linked, so the request is done; that the old one may still be open is a note for operators. */
static struct flow_verdict complete_unretired(void)
{
    return verdict_end(FLOW_COMPLETE, outbox_cause_name(OUTBOX_CAUSE_RETIRE_REFUSED));
}

static struct flow_verdict retry(const struct attempt *attempt, const struct view *view, const char *code,
                                 int64_t least_ms)
{
    int64_t delay_ms =
        backoff_delay_ms(attempt->number, view->rules.retry_base_ms, view->rules.retry_cap_ms, view->random);
    return verdict_wait(FLOW_RETRY, code, delay_ms > least_ms ? delay_ms : least_ms);
}

static struct flow_verdict defer(const char *code, int64_t delay_ms, bool keeps_streak)
{
    struct flow_verdict verdict =
        verdict_wait(FLOW_DEFER, code, delay_ms > DEFERRAL_MIN_MS ? delay_ms : DEFERRAL_MIN_MS);
    verdict.keeps_streak = keeps_streak;
    return verdict;
}

/* ---- how long a deferral lasts ---- */

/* Which deferral in a row for this cause the coming one is; 1 = the first. */
static int deferral_number(const struct attempt *attempt, const char *code)
{
    bool is_same = code[0] && strcmp(attempt->deferral_code, code) == 0;
    return is_same ? attempt->deferral_count + 1 : 1;
}

static int64_t longer_ms(int64_t one_ms, int64_t other_ms)
{
    return one_ms > other_ms ? one_ms : other_ms;
}

static int64_t shorter_ms(int64_t one_ms, int64_t other_ms)
{
    return one_ms < other_ms ? one_ms : other_ms;
}

/* Between half and all of it. */
static int64_t jitter_ms(const struct view *view, int64_t most_ms)
{
    int64_t half_ms = most_ms / 2;
    return half_ms + backoff_delay_ms(1, half_ms, half_ms, view->random);
}

/* The delay of the number-th deferral in a row. Never so short that the event which has just failed a probe is the next
 * probe while another event is due, nor that it comes back while the peer rests. */
static int64_t grown_ms(const struct view *view, int number)
{
    const struct attempt_rules *rules = &view->rules;
    int64_t delay_ms = jitter_ms(view, backoff_ceiling_ms(number, rules->retry_base_ms, rules->retry_cap_ms));
    int64_t closed_ms = view->peer_closed_ms;
    return longer_ms(delay_ms, closed_ms > 0 ? closed_ms + jitter_ms(view, rules->retry_base_ms) : 0);
}

/* Another worker may speak to the event's issuer, during a change: soon at first, rarely in the end. */
static int64_t elsewhere_ms(const struct attempt *attempt, const struct view *view)
{
    int64_t age_ms = attempt->sent_age_ms >= 0 ? attempt->sent_age_ms : attempt->accepted_age_ms;
    return jitter_ms(view, shorter_ms(longer_ms(age_ms, view->rules.retry_base_ms), view->rules.retry_cap_ms));
}

/* A cause of our own: a short delay. A streak of 409 and 425: in proportion to how long it has lasted. */
static int64_t short_ms(const struct attempt *attempt, const struct view *view, bool in_progress)
{
    int64_t most_ms = view->rules.retry_base_ms;
    if (in_progress && attempt->deferred_age_ms > most_ms)
        most_ms = shorter_ms(attempt->deferred_age_ms, view->rules.retry_cap_ms);
    return jitter_ms(view, most_ms);
}

/* ---- evidence ---- */

/* This is at least the third answer of this kind in a row. */
static bool is_third_in_a_row(const struct attempt *attempt)
{
    /* guard: a refusal ends an event only the third time */
    return deferral_number(attempt, outcome_cause(&attempt->outcome)) >= DEFERRALS_PROVE;
}

/* A failure that is the peer's health ends nothing, however long it lasts, unless another event was answered well
 * during this attempt, or, where events are rare, between three such failures in a row. */
static bool others_are_answered_well(const struct attempt *attempt, const struct view *view)
{
    return view->others_in_attempt || (is_third_in_a_row(attempt) && view->others_since_change);
}

/* The look-up of this event fails in a way that is not a question of the peer's health: what came back cannot be read,
 * or it is answered by a 5xx, not in time or not to the end while other events are looked up well, during this attempt
 * or since the one before, which had failed like this. */
static bool lookup_fails_alone(const struct attempt *attempt, const struct view *view)
{
    /* guard: a look-up that fails for everybody is not a question */
    if (attempt->outcome.health != BREAKER_BAD)
        return true;
    bool was_sent = attempt->outcome.kind == OUTCOME_UNKNOWN;
    bool is_second = attempt_is_beyond(attempt, &view->rules, attempt->number);
    /* guard: a look-up that fails for this event alone is a question in the end */
    return was_sent && (is_second ? view->others_since_change : view->others_in_attempt);
}

/* ---- decisions ---- */

/* The current step is the look-up, or serves it. */
static bool is_looking_up(const struct attempt *attempt, const struct view *view)
{
    return attempt_purpose(attempt) == view->rules.lookup;
}

/* Before a look-up is repeated. It grows with the time for which the outcome has been unknown, however short the
 * retries are configured; 0 for other steps. */
static int64_t lookup_rest_ms(const struct attempt *attempt, const struct view *view)
{
    /* guard: look-ups become rarer */
    int64_t age_ms = is_looking_up(attempt, view) ? attempt->sent_age_ms / LOOKUP_REST_PART : 0;
    return jitter_ms(view, shorter_ms(age_ms, LOOKUP_REST_MAX_MS));
}

/* The issuer showed the card in this attempt, or it is looked up and found in every such attempt. */
static bool card_is_at_hand(const struct attempt *attempt)
{
    enum flow_step purpose = attempt_purpose(attempt);
    return purpose == STEP_CANCEL || purpose == STEP_MARK || purpose == STEP_ACTIVATE || purpose == STEP_REVEAL;
}

/* No more attempts: an unknown outcome is looked up first, then it is a question for a person. code: of the retry. */
static struct flow_verdict settle_exhausted(const struct attempt *attempt, const struct view *view, const char *code)
{
    /* guard: no end state over UNKNOWN without a look-up */
    bool is_open = attempt->unknown && !attempt->is_saved;
    /* guard: a retire that fails to the end does not fail the request */
    if (attempt_purpose(attempt) == STEP_RETIRE)
        return complete_unretired();
    /* The outcome cannot be known any more, and no key settles it: a question for a person. */
    /* guard: a look-up that cannot be read is a question in the end */
    if (is_open && is_looking_up(attempt, view) && attempt_is_long_unknown(attempt, view) &&
        lookup_fails_alone(attempt, view))
        return verdict_end(FLOW_FAIL, "outcome_unknown");
    /* The look-up itself got no answer: no end over an unknown outcome. */
    if (is_open && is_looking_up(attempt, view))
        return retry(attempt, view, code, lookup_rest_ms(attempt, view));
    if (is_open && !card_is_at_hand(attempt) && attempt->lookup_reason != LOOKUP_EXHAUSTED)
        return decide_look_up(&view->rules, LOOKUP_EXHAUSTED, NULL);
    return verdict_end(FLOW_FAIL, "attempts_exhausted");
}

/* No attempts are left, and there is no evidence against the event: it goes on as deferrals. An unknown outcome
 * is looked up all the same. */
static struct flow_verdict settle_in_outage(const struct attempt *attempt, const struct view *view, const char *code)
{
    const struct attempt_rules *rules = &view->rules;
    if (attempt->step == rules->send && attempt_has_lookup(rules) && attempt->unknown &&
        attempt->lookup_reason == LOOKUP_NONE)
        return decide_look_up(rules, LOOKUP_IN_OUTAGE, code);
    return defer(code, grown_ms(view, attempt->number + deferral_number(attempt, code)), false);
}

static struct flow_verdict settle_retry(const struct attempt *attempt, const struct view *view,
                                        struct flow_verdict verdict)
{
    if (!attempt_is_beyond(attempt, &view->rules, attempt->number + 1))
        return retry(attempt, view, verdict.code, longer_ms(verdict.wait_ms, lookup_rest_ms(attempt, view)));
    /* A last look-up is repeated until it is answered (see settle_exhausted()). */
    bool is_last_lookup = is_looking_up(attempt, view) && attempt->lookup_reason != LOOKUP_IN_OUTAGE &&
                          /* guard: an outage of look-ups ends no event that was never sent */
                          attempt->unknown;
    /* guard: a failure that is the target's health ends no event without evidence */
    if (attempt->outcome.health == BREAKER_BAD && !is_last_lookup && !others_are_answered_well(attempt, view))
        return settle_in_outage(attempt, view, attempt->outcome.code);
    return settle_exhausted(attempt, view, verdict.code);
}

/* What proves that 401, 403, 404, 405, 3xx are this event's alone, so that they are an unforeseen refusal, and how it
 * then ends. The third such answer in a row is always needed. */
static const struct {
    enum {
        PROVED_BY_KIND,   /* another event was answered well in this kind of call since the answer before */
        PROVED_BY_AGE,    /* in any kind of call, and the send is long past: the outcome will never be known */
        PROVED_BY_NUMBER, /* nothing else: whoever is to blame, the user has the new card */
    } proof;
    enum flow_verdict_kind end;
    const char *code; /* NULL: FAILED with the answer's own, after a look-up where the outcome is unknown */
} refusals[STEP_COUNT] = {
    [STEP_RETIRE] = {PROVED_BY_NUMBER, FLOW_COMPLETE, "retire_refused"},
    [STEP_LOOKUP] = {PROVED_BY_AGE, FLOW_FAIL, "outcome_unknown"},
    [STEP_ASK] = {PROVED_BY_AGE, FLOW_FAIL, "outcome_unknown"},
    [STEP_CANCEL] = {PROVED_BY_KIND, FLOW_FAIL, "cancel_failed"},
    [STEP_REVEAL] = {PROVED_BY_KIND, FLOW_FAIL, "reveal_refused"},
};

/* The event's last change is its last answer, whichever worker got it. */
static bool is_proved(const struct attempt *attempt, const struct view *view)
{
    if (!is_third_in_a_row(attempt))
        return false;
    switch (refusals[attempt_purpose(attempt)].proof) {
    case PROVED_BY_KIND:
        return view->others_since_change;
    case PROVED_BY_AGE:
        return attempt_is_long_unknown(attempt, view) && view->others_in_any_call;
    case PROVED_BY_NUMBER:
        return true;
    }
    return false;
}

static struct flow_verdict settle_refused(const struct attempt *attempt, const struct view *view)
{
    enum flow_step purpose = attempt_purpose(attempt);
    if (refusals[purpose].code)
        return verdict_end(refusals[purpose].end, refusals[purpose].code);
    if (attempt->unknown && !attempt->is_saved && !card_is_at_hand(attempt))
        return decide_look_up(&view->rules, LOOKUP_UNFORESEEN, attempt->outcome.code);
    return verdict_end(FLOW_FAIL, attempt->outcome.code);
}

static struct flow_verdict settle_deferral(const struct attempt *attempt, const struct view *view,
                                           struct flow_verdict verdict)
{
    const struct outcome *outcome = &attempt->outcome;
    if (attempt->is_of_other_issuer)
        return defer(verdict.code, elsewhere_ms(attempt, view), attempt->deferred_age_ms >= 0);
    if (attempt->lookup_reason == LOOKUP_IN_OUTAGE && outcome->kind == OUTCOME_EXECUTED) /* looked up, and not found */
        return settle_in_outage(attempt, view, attempt->pending_code);
    if (verdict.in_progress && attempt->deferred_age_ms >= attempt_question_lifetime_ms(&view->rules))
        return settle_exhausted(attempt, view, verdict.code);
    if (outcome->advice == ADVICE_CONFIGURATION && is_proved(attempt, view))
        return settle_refused(attempt, view);
    bool is_ours = outcome->code[0] == '\0'; /* breaker, rest, drain: nothing was sent */
    int64_t delay_ms = verdict.wait_ms;
    if (verdict.in_progress || is_ours) {
        if (delay_ms < 0)
            delay_ms = short_ms(attempt, view, verdict.in_progress);
        if (is_ours)
            delay_ms += view->peers_rest_ms;
    } else {
        /* A failed probe (BAD) proves nothing about the event. An answer to the event itself does, and its delays
         * grow. */
        bool is_probe = outcome->health == BREAKER_BAD;
        int64_t grown = grown_ms(view, is_probe ? 1 : deferral_number(attempt, verdict.code));
        delay_ms = longer_ms(delay_ms, longer_ms(grown, lookup_rest_ms(attempt, view)));
    }
    /* A deferral that we caused does not end the streak of 409 and 425 answers. */
    return defer(verdict.code, delay_ms, verdict.in_progress || (is_ours && attempt->deferred_age_ms >= 0));
}

/* A delivery was refused, as those of other events are, while none is taken: the secret, a clock or the receiver's
 * release may be wrong. Where the route says that a refusal is final, the third one of an event in a row is. */
static bool is_refused_with_others(const struct attempt *attempt, const struct view *view)
{
    return attempt->step == STEP_DELIVER && attempt->outcome.kind == OUTCOME_REFUSED && view->is_suspected &&
           (view->rules.refused_is_question || !is_third_in_a_row(attempt));
}

static struct flow_verdict settle(const struct attempt *attempt, const struct view *view, struct flow_verdict verdict)
{
    /* guard: what is refused to everybody ends no event */
    if (is_refused_with_others(attempt, view))
        verdict = verdict_wait(FLOW_DEFER, outcome_cause(&attempt->outcome), -1);
    switch (verdict.kind) {
    case FLOW_RETRY:
        return settle_retry(attempt, view, verdict);
    case FLOW_DEFER:
        return settle_deferral(attempt, view, verdict);
    case FLOW_GO:
    case FLOW_COMPLETE:
    case FLOW_REJECT:
    case FLOW_FAIL:
    case FLOW_DROP:
        return verdict;
    }
    return verdict;
}

struct flow_verdict decide_settled(const struct attempt *attempt, const struct view *view, struct flow_verdict verdict)
{
    verdict = settle(attempt, view, verdict);
    /* guard: what was executed before it was sent again stays executed */
    if (attempt->is_resent && (verdict.kind == FLOW_REJECT || verdict.kind == FLOW_FAIL))
        return verdict_end(FLOW_COMPLETE, outbox_cause_name(OUTBOX_CAUSE_RESEND_FAILED));
    return verdict;
}

bool decide_is_settled(const struct attempt *attempt, const struct flow_verdict *verdict)
{
    /* guard: what was refused is settled by what others are answered */
    return attempt->outcome.kind != OUTCOME_REFUSED &&
           (verdict->kind == FLOW_GO || verdict->kind == FLOW_COMPLETE || verdict->kind == FLOW_DROP);
}
