/* The steps that lead to a card (step.h), in the order in which they run; each has a prepare and a read function. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "worker/core_api.h"
#include "worker/step.h"

#define PAGE_REPEATS_MAX 4 /* of a look-up's page that is answered 429 */

/* ---- check: in every attempt, right before the issuer is called ---- */

bool step_check_prepare(struct flow *flow)
{
    return step_with_trace(
        flow, core_build_check(&flow->call, flow_peer(flow)->url, flow->user_id, flow->payload.is_reissue));
}

/* Only the parameters are wanted, for a step that comes next whether or not the user may have a card. */
static struct flow_verdict go_on_with_parameters(struct flow *flow, const struct outcome *outcome)
{
    enum flow_step next = flow->attempt.asks_for;
    if (outcome->kind == OUTCOME_NOT_EXECUTED || outcome->kind == OUTCOME_UNKNOWN)
        return decide_retry_or_defer(outcome);
    if (outcome->advice == ADVICE_FAIL) /* this answer tells of no parameters */
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = outcome->code, .wait_ms = -1};
    flow->attempt.asks_for = STEP_COUNT;
    return step_go(next);
}

/* The user may have a card. */
static struct flow_verdict check_agreed(struct flow *flow, struct outcome *ret_outcome)
{
    const char *missing = issuer_parameters_missing(step_profile(flow), &flow->parameters.values);
    flow->attempt.checked_ms = clock_mono_ms();
    if (!missing)
        return step_go(STEP_ISSUE);
    event_parameters_missing(missing, ret_outcome);
    return decide_retry_or_defer(ret_outcome);
}

struct flow_verdict step_check_read(struct flow *flow, struct outcome *ret_outcome)
{
    struct core_eligibility answer;
    core_read_check(&flow->call, step_profile(flow), &answer, ret_outcome);
    bool is_eligible = ret_outcome->kind == OUTCOME_EXECUTED;
    if (is_eligible || ret_outcome->advice == ADVICE_REJECT)
        event_parameters_take(&flow->parameters, flow->env->parameters, flow->user_id, is_eligible, &answer);
    if (flow->attempt.asks_for != STEP_COUNT)
        return go_on_with_parameters(flow, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return check_agreed(flow, ret_outcome);
    case OUTCOME_REFUSED:
        if (ret_outcome->advice == ADVICE_FAIL)
            return flow->attempt.unknown ? flow_look_up(flow, LOOKUP_UNFORESEEN, ret_outcome->code)
                                         : step_end(FLOW_FAIL, ret_outcome->code);
        /* The user may not have a card, but an earlier attempt may have made one. */
        return flow->attempt.unknown ? flow_look_up(flow, LOOKUP_INELIGIBLE, ret_outcome->code)
                                     : step_end(FLOW_REJECT, ret_outcome->code);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* a GET changes nothing at core-api */
        return decide_retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return decide_retry_or_defer(ret_outcome);
}

/* ---- the card is at the issuer: what it needs before it is stored ---- */

/* Each of these steps may be repeated, and an attempt that dies in one finds the card again under its key, or by a
 * look-up. */
static struct flow_verdict use_card(const struct flow *flow)
{
    /* guard: an inactive card is made active before it is linked */
    if (flow->card.state == ISSUER_CARD_INACTIVE && step_has_call(flow, ISSUER_ACTIVATE))
        return step_go(STEP_ACTIVATE);
    bool needs_number = flow->env->keyring && flow->card.number_length == 0;
    return step_go(needs_number && step_has_call(flow, ISSUER_REVEAL) ? STEP_REVEAL : STEP_SAVE);
}

/* ---- lookup: only this, or the issuer's answer to the same key, ends an unknown outcome ---- */

bool step_lookup_prepare(struct flow *flow)
{
    return step_prepare_issuer_call(flow);
}

static struct flow_verdict not_found(struct flow *flow)
{
    if (flow->attempt.lookup_reason ==
        LOOKUP_AFTER_REPEAT) /* it does not show our card yet; once stored, no create follows */
        return use_card(flow);
    return step_not_found(flow);
}

/* One live card. */
static struct flow_verdict found(struct flow *flow)
{
    const struct issuer_card *card = &flow->lookup.card;
    if (flow->attempt.lookup_reason == LOOKUP_AFTER_REPEAT)
        return strcmp(card->id, flow->card.id) == 0 ? use_card(flow) : step_end(FLOW_FAIL, "issuer_duplicate");
    flow->card = *card;
    flow->attempt.card_is_seen = true;
    if (flow->attempt.lookup_reason == LOOKUP_CARD_SEEN)
        return step_go(STEP_CANCEL);
    return flow->attempt.lookup_reason == LOOKUP_INELIGIBLE ? step_go(STEP_MARK) : use_card(flow);
}

/* Only cards that are cancelled: by a cancel of ours that got no answer, or by another party. */
static struct flow_verdict found_cancelled(struct flow *flow)
{
    if (flow->attempt.lookup_reason == LOOKUP_AFTER_REPEAT && strcmp(flow->lookup.gone_id, flow->card.id) != 0)
        return use_card(flow); /* an earlier one; ours is not shown yet */
    return step_end(FLOW_REJECT,
                    flow->attempt.lookup_reason == LOOKUP_CARD_SEEN ? flow->attempt.pending_code : "card_cancelled");
}

/* The issuer has shown more than one card before, so a create that may still arrive may make another one, and a stored
 * card need not be the one that is left. */
static struct flow_verdict read_duplicate(struct flow *flow, enum issuer_found what)
{
    const struct view view = flow_view(flow, clock_mono_ms(), clock_wall_us());
    /* guard: after two cards nothing is believed before the last send has settled */
    int64_t unsettled_ms = what == ISSUER_FOUND_MORE ? 0 : attempt_unsettled_ms(&flow->attempt, &view);
    bool is_ours = !flow->attempt.is_saved || strcmp(flow->lookup.card.id, flow->card.id) == 0;
    if (unsettled_ms > 0)
        return (struct flow_verdict){
            .kind = FLOW_DEFER, .code = outbox_cause_name(OUTBOX_CAUSE_SETTLING), .wait_ms = unsettled_ms};
    /* guard: after two cards only the stored one is linked */
    if (what == ISSUER_FOUND_NONE || what == ISSUER_FOUND_MORE || (what == ISSUER_FOUND_ONE && !is_ours))
        return step_end(FLOW_FAIL, "issuer_duplicate");
    if (what == ISSUER_FOUND_CANCELLED) {
        if (flow->attempt.pending_code[0] == '\0')
            snprintf(flow->attempt.pending_code, sizeof(flow->attempt.pending_code), "card_cancelled");
        return flow->attempt.is_saved ? step_go(STEP_MARK) : step_end(FLOW_REJECT, flow->attempt.pending_code);
    }
    flow->attempt.end_is_held = !flow->attempt.is_saved; /* until the card is stored, a later attempt must not send */
    if (!flow->attempt.is_saved)
        flow->card = flow->lookup.card;
    flow->attempt.card_is_seen = true;
    if (flow->attempt.pending_code[0])
        return step_go(STEP_CANCEL);
    return flow->attempt.is_saved ? step_go(STEP_LINK) : use_card(flow);
}

static struct flow_verdict read_found(struct flow *flow)
{
    enum issuer_found what = issuer_lookup_found(&flow->lookup);
    if (flow->attempt.lookup_reason == LOOKUP_DUPLICATE)
        return read_duplicate(flow, what);
    if (what != ISSUER_FOUND_NONE)
        flow->attempt.end_is_held = false;
    switch (what) {
    case ISSUER_FOUND_NONE:
        return not_found(flow);
    case ISSUER_FOUND_ONE:
        return found(flow);
    case ISSUER_FOUND_MORE:
        return step_end(FLOW_FAIL, "issuer_duplicate");
    case ISSUER_FOUND_CANCELLED:
        return found_cancelled(flow);
    }
    assert(!"results are covered above");
    return not_found(flow);
}

/* A look-up that began anew at each 429 would never end where it has more pages than the issuer allows calls. The page
 * waits for the end of the target's rest. */
static bool may_repeat_page(const struct flow *flow, const struct outcome *outcome)
{
    return outcome->advice == ADVICE_WAIT && flow->lookup.pages > 0 && flow->lookup.busy <= PAGE_REPEATS_MAX;
}

struct flow_verdict step_lookup_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_lookup(step_profile(flow), &flow->call, &flow->attempt.event_id, &flow->lookup, ret_outcome);
    /* guard: a page that is answered 429 is asked for again */
    if (may_repeat_page(flow, ret_outcome))
        return step_go(STEP_LOOKUP);
    if (ret_outcome->kind != OUTCOME_EXECUTED)
        return decide_retry_or_defer(ret_outcome);
    if (!flow->lookup.is_done)
        return step_go(STEP_LOOKUP); /* the next page is a call of its own */
    struct flow_verdict verdict = read_found(flow);
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

bool step_issue_prepare(struct flow *flow)
{
    return step_prepare_issuer_call(flow);
}

static struct flow_verdict issue_executed(struct flow *flow)
{
    bool was_unknown = flow->attempt.unknown;
    flow->attempt.unknown = true; /* only this process knows of the card until it is stored */
    if (flow->card.state == ISSUER_CARD_GONE)
        return flow_look_up(flow, LOOKUP_CONTRADICTION, "");
    flow->attempt.card_is_seen = true;
    /* guard: a create that succeeds behind an unknown one is looked up once more */
    if (was_unknown && !step_profile(flow)->key_is_trusted)
        /* guard: where keys are not trusted, a create behind an unknown one is looked up once more */
        return flow_look_up(flow, LOOKUP_AFTER_REPEAT, NULL); /* an earlier create may have made another one */
    return use_card(flow);
}

struct flow_verdict step_issue_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_create(step_profile(flow), &flow->call, &flow->attempt.event_id, &flow->card, ret_outcome);
    /* The answer is to the second sending; the first may have made a card. */
    /* guard: a refusal after a second sending leaves the first one open */
    flow->attempt.unknown |= flow->call.was_resent;
    flow->attempt.may_arrive =
        flow->call.was_resent || ret_outcome->kind == OUTCOME_UNKNOWN || ret_outcome->advice == ADVICE_WAIT_IN_PROGRESS;
    if (flow->call.result == HTTP_NOT_SENT && !flow->call.was_resent)
        flow->sent_create = false;
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return issue_executed(flow);
    case OUTCOME_REFUSED:
        if (ret_outcome->advice == ADVICE_FAIL)
            return flow->attempt.unknown ? flow_look_up(flow, LOOKUP_UNFORESEEN, ret_outcome->code)
                                         : step_end(FLOW_FAIL, ret_outcome->code);
        /* guard: a refusal after UNKNOWN is looked up first */
        return flow->attempt.unknown ? flow_look_up(flow, LOOKUP_REFUSED, ret_outcome->code)
                                     : step_end(FLOW_REJECT, ret_outcome->code);
    case OUTCOME_NOT_EXECUTED: /* proves nothing about earlier attempts: unknown stays as it is */
        if (ret_outcome->advice == ADVICE_WAIT_IN_PROGRESS)
            flow->attempt.unknown = true; /* a call with our key is being executed: it may make the card */
        return decide_retry_or_defer(ret_outcome);
    case OUTCOME_UNKNOWN:
        flow->attempt.unknown = true;
        if (ret_outcome->advice == ADVICE_LOOK_UP)
            return flow_look_up(flow, LOOKUP_BY_ANSWER, ret_outcome->code);
        return decide_retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return decide_retry_or_defer(ret_outcome);
}

/* ---- activate: the issuer makes cards inactive ---- */

bool step_activate_prepare(struct flow *flow)
{
    return step_prepare_issuer_call(flow);
}

struct flow_verdict step_activate_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_activate(step_profile(flow), &flow->call, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        flow->card.state = ISSUER_CARD_ACTIVE;
        return use_card(flow);
    case OUTCOME_REFUSED:
        if (ret_outcome->advice == ADVICE_FAIL)
            return step_end(FLOW_FAIL, ret_outcome->code);
        /* A card that cannot be used must not stay. */
        snprintf(flow->attempt.pending_code, sizeof(flow->attempt.pending_code), "%s", ret_outcome->code);
        return step_go(STEP_MARK);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* repeating it does no harm */
        return decide_retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return decide_retry_or_defer(ret_outcome);
}

/* ---- reveal: the number, where it is stored and the issuer tells it by a call of its own ---- */

bool step_reveal_prepare(struct flow *flow)
{
    return step_prepare_issuer_call(flow);
}

struct flow_verdict step_reveal_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_reveal(step_profile(flow), &flow->call, &flow->card, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return step_go(STEP_SAVE);
    case OUTCOME_REFUSED: /* the card is fine; whether it is linked without its number is a question */
        return step_end(FLOW_FAIL, "reveal_refused");
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* a GET changes nothing */
        return decide_retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return decide_retry_or_defer(ret_outcome);
}

/* ---- save: before core-api learns of the card ---- */

bool step_save_prepare(struct flow *flow)
{
    struct keyring *keyring = flow->env->keyring;
    struct write_save *save = &flow->save;
    *save = (struct write_save){0};
    save->card_id = uuid7_make();
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
    flow->attempt.is_saved = flow->write_result == WRITE_DONE;
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
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return flow->payload.is_reissue && step_has_call(flow, ISSUER_RETIRE) ? step_go(STEP_RETIRE)
                                                                              : step_end(FLOW_COMPLETE, NULL);
    case OUTCOME_REFUSED:
        if (ret_outcome->advice == ADVICE_FAIL || flow->env->config->core.on_link_refused == LINK_REFUSED_KEEP)
            return step_end(FLOW_FAIL, ret_outcome->code);
        snprintf(flow->attempt.pending_code, sizeof(flow->attempt.pending_code), "%s", ret_outcome->code);
        return step_go(STEP_MARK);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* repeating the link does no harm */
        return decide_retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return decide_retry_or_defer(ret_outcome);
}
