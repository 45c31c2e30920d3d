/* The steps that lead to a card (step.h), in the order in which they run: what each prepares, unless it is a call to
 * the issuer, and what it reads. */
#include <stdio.h>
#include <string.h>

#include "common/core/card.h"
#include "worker/flow/step.h"
#include "worker/peers/core_api.h"

#define PAGE_REPEATS_MAX 4 /* of a look-up's page that is answered 429 */

/* ---- check: in every attempt, right before the issuer is called ---- */

bool step_check_prepare(struct flow *flow)
{
    return step_with_trace(
        flow, core_build_check(&flow->call, flow_peer(flow)->url, flow->user_id, flow->payload.is_reissue));
}

struct flow_verdict step_check_read(struct flow *flow, struct outcome *ret_outcome)
{
    struct core_eligibility answer;
    core_read_check(&flow->call, step_profile(flow), &answer, ret_outcome);
    bool is_eligible = ret_outcome->kind == OUTCOME_EXECUTED;
    if (is_eligible || ret_outcome->advice == ADVICE_REJECT)
        event_parameters_take(&flow->parameters, flow->env->worker->parameters, flow->user_id, is_eligible, &answer);
    const char *missing = issuer_parameters_missing(step_profile(flow), &flow->parameters.values);
    if (is_eligible && flow->attempt.asks_for == STEP_COUNT && missing)
        event_parameters_missing(missing, ret_outcome);
    return step_decide(flow, ret_outcome, (struct shown){0});
}

/* What is known of the card. */
static struct shown shown_of(const struct flow *flow)
{
    return (struct shown){
        .was_resent = flow->call.was_resent,
        .is_gone = flow->card.state == ISSUER_CARD_GONE,
        .is_inactive = flow->card.state == ISSUER_CARD_INACTIVE,
        .has_number = flow->card.number_length > 0,
    };
}

/* ---- lookup: only this, or the issuer's answer to the same key, ends an unknown outcome ---- */

/* All pages were read. One live card is the event's, unless another one is stored, or was just made. */
static struct flow_verdict read_found(struct flow *flow, const struct outcome *outcome)
{
    const struct issuer_lookup *lookup = &flow->lookup;
    enum issuer_found found = issuer_lookup_found(lookup);
    const char *id = found == ISSUER_FOUND_CANCELLED ? lookup->gone_id : lookup->card.id;
    bool is_ours = strcmp(id, flow->card.id) == 0;
    bool is_taken = found == ISSUER_FOUND_ONE && flow->attempt.lookup_reason != LOOKUP_AFTER_REPEAT;
    if (flow->env->mark || (is_taken && !flow->attempt.is_saved))
        flow->card = lookup->card;
    struct shown shown = shown_of(flow);
    shown.found = found;
    shown.is_ours = is_ours;
    return step_decide(flow, outcome, shown);
}

/* A look-up that started again at each 429 would never end where it has more pages than the issuer allows calls. The
 * page waits for the end of the target's rest. */
static bool may_repeat_page(const struct flow *flow, const struct outcome *outcome)
{
    return outcome->advice == ADVICE_WAIT && flow->lookup.pages > 0 && flow->lookup.busy <= PAGE_REPEATS_MAX;
}

struct flow_verdict step_lookup_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_lookup(step_profile(flow), &flow->call, &flow->attempt.event_id, &flow->lookup, ret_outcome);
    /* guard: a page that is answered 429 is asked for again */
    if (may_repeat_page(flow, ret_outcome))
        return verdict_go(STEP_LOOKUP);
    if (ret_outcome->kind != OUTCOME_EXECUTED)
        return step_decide(flow, ret_outcome, (struct shown){0});
    if (!flow->lookup.is_done)
        return verdict_go(STEP_LOOKUP); /* the next page is a call of its own */
    struct flow_verdict verdict = read_found(flow, ret_outcome);
    issuer_lookup_forget(&flow->lookup);
    return verdict;
}

/* ---- keep: a card that this worker makes, and dies, is found by what the look-up is built from ---- */

bool step_keep_prepare(struct flow *flow)
{
    return step_write_parameters(flow);
}

struct flow_verdict step_keep_read(struct flow *flow, struct outcome *ret_outcome)
{
    flow->parameters.is_kept |= flow->write_result == WRITE_DONE;
    return step_read_write(flow, STEP_ISSUE, ret_outcome);
}

/* ---- issue: the call that must not happen twice ---- */

struct flow_verdict step_issue_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_create(step_profile(flow), &flow->call, &flow->attempt.event_id, &flow->card, ret_outcome);
    if (flow->call.result == HTTP_NOT_SENT && !flow->call.was_resent)
        flow->sent_create = false;
    struct shown shown = shown_of(flow);
    shown.key_is_honoured = issuer_honoured_key(step_profile(flow), &flow->call, &flow->attempt.event_id);
    return step_decide(flow, ret_outcome, shown);
}

/* ---- activate: the issuer makes cards inactive ---- */

struct flow_verdict step_activate_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_activate(step_profile(flow), &flow->call, ret_outcome);
    if (ret_outcome->kind == OUTCOME_EXECUTED)
        flow->card.state = ISSUER_CARD_ACTIVE;
    return step_decide(flow, ret_outcome, shown_of(flow));
}

/* ---- reveal: the number, where it is stored and the issuer tells it by a call of its own ---- */

struct flow_verdict step_reveal_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_reveal(step_profile(flow), &flow->call, &flow->card, ret_outcome);
    if (ret_outcome->kind == OUTCOME_REFUSED && flow->env->worker->config->card.number_refused == NUMBER_REFUSED_KEEP)
        ret_outcome->health = BREAKER_GOOD; /* it is expected, and counts against no peer */
    return step_decide(flow, ret_outcome, shown_of(flow));
}

/* ---- save: before core-api learns of the card ---- */

bool step_save_prepare(struct flow *flow)
{
    struct keyring *keyring = flow->env->keyring;
    struct write_save *save = &flow->save;
    *save = (struct write_save){0};
    /* guard: a card has the same id however often it is stored */
    save->card_id = card_id_from(&flow->attempt.event_id);
    save->issuer_card_id = flow->card.id;
    memcpy(save->last4, flow->card.last4, sizeof(save->last4));
    save->exp_month = flow->card.exp_month;
    save->exp_year = flow->card.exp_year;
    save->is_reissue =
        flow->payload.is_reissue && uuid_parse(flow->payload.replaces, strlen(flow->payload.replaces), &save->replaces);
    if (keyring && flow->card.number_length > 0) {
        struct err err = {0};
        if (!keyring_seal(keyring, flow->user_id, &save->card_id, flow->card.number, flow->card.number_length,
                          save->record, &save->record_length, &err)) {
            snprintf(flow->attempt.outcome.detail, sizeof(flow->attempt.outcome.detail), "%.150s", err.message);
            return false;
        }
    }
    return true;
}

struct flow_verdict step_save_read(struct flow *flow, struct outcome *ret_outcome)
{
    flow->attempt.is_saved = flow->attempt.card_is_new = flow->write_result == WRITE_DONE;
    flow->attempt.end_is_held &= !flow->attempt.is_saved;
    return step_read_write(flow, STEP_LINK, ret_outcome);
}

/* ---- link: core-api learns of the card ---- */

bool step_link_prepare(struct flow *flow)
{
    struct core_link link = {
        .event_id = flow->attempt.event_id,
        .card_id = flow->save.card_id,
        .exp_month = flow->save.exp_month,
        .exp_year = flow->save.exp_year,
        .is_reissue = flow->payload.is_reissue,
        .replaces = flow->payload.replaces,
    };
    memcpy(link.last4, flow->save.last4, sizeof(link.last4));
    return step_with_trace(flow, core_build_link(&flow->call, flow_peer(flow)->url, flow->user_id, &link));
}

struct flow_verdict step_link_read(struct flow *flow, struct outcome *ret_outcome)
{
    outcome_of_link(&flow->call, ret_outcome);
    return step_decide(flow, ret_outcome, (struct shown){0});
}
