/* See issue_card.h. The steps are in the order in which they run; each has a prepare and a read function.
 *
 * Any attempt may die after any line. So every attempt starts at check (or at link once the card is stored) and sends
 * the same key again; nothing here depends on what an earlier attempt had in memory. Steps never call each other and
 * never touch timers, leases or tickets. */
#include "worker/issue_card.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/trace.h"
#include "worker/core_api.h"

#define X(name, word, text, peer, call, write) \
    static bool word##_prepare(struct flow *); \
    static struct flow_verdict word##_read(struct flow *, struct outcome *);
FLOW_STEPS(X)
#undef X

const struct flow_step_row flow_steps[STEP_COUNT] = {
#define X(name, word, text, peer, call, write) [STEP_##name] = {word##_prepare, word##_read},
    FLOW_STEPS(X)
#undef X
};

static struct flow_verdict go(enum flow_step step)
{
    return (struct flow_verdict){.kind = FLOW_GO, .step = step};
}

static struct flow_verdict end_with(enum flow_verdict_kind kind, const char *code)
{
    return (struct flow_verdict){.kind = kind, .code = code};
}

/* A look-up before the end; `code` is the reason to end with if nothing is found. */
static struct flow_verdict look_up_first(enum lookup_reason reason, const char *code)
{
    return (struct flow_verdict){.kind = FLOW_GO, .step = STEP_LOOKUP, .reason = reason, .code = code};
}

/* What every step returns when the peer has neither executed nor refused the call. */
static struct flow_verdict retry_or_defer(const struct outcome *outcome)
{
    switch (outcome->advice) {
    case ADVICE_RETRY:
    case ADVICE_LOOK_UP:
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = outcome->code, .wait_ms = outcome->wait_ms};
    case ADVICE_WAIT:
    case ADVICE_CONFIGURATION:
        return (struct flow_verdict){.kind = FLOW_DEFER, .code = outcome->code, .wait_ms = outcome->wait_ms};
    case ADVICE_WAIT_IN_PROGRESS:
        return (struct flow_verdict){
            .kind = FLOW_DEFER, .code = outcome->code, .wait_ms = outcome->wait_ms, .in_progress = true};
    case ADVICE_NONE:
    case ADVICE_REJECT:
    case ADVICE_FAIL:
        break;
    }
    assert(!"the step must decide on such an outcome");
    return (struct flow_verdict){.kind = FLOW_RETRY, .code = outbox_cause_name(OUTBOX_CAUSE_BUG), .wait_ms = -1};
}

/* The result of a step's write; `next` when it is done. */
static struct flow_verdict read_write(struct flow *flow, enum flow_step next, struct outcome *ret_outcome)
{
    *ret_outcome = (struct outcome){0};
    switch (flow->write_result) {
    case WRITE_DONE:
        ret_outcome->kind = OUTCOME_EXECUTED;
        return go(next);
    case WRITE_FENCED:
        ret_outcome->kind = OUTCOME_REFUSED;
        return (struct flow_verdict){.kind = FLOW_DROP};
    case WRITE_GIVEN_UP:
        ret_outcome->kind = OUTCOME_UNKNOWN;
        snprintf(ret_outcome->code, sizeof(ret_outcome->code), "%s", outbox_cause_name(OUTBOX_CAUSE_WRITE_FAILED));
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = ret_outcome->code, .wait_ms = -1};
    }
    assert(!"write results are covered above");
    return (struct flow_verdict){.kind = FLOW_DROP};
}

static const struct issuer_profile *profile_of(const struct flow *flow)
{
    return flow->env->parameters->profile;
}

static bool has_call(const struct flow *flow, enum issuer_call call)
{
    return issuer_profile_has(profile_of(flow), call);
}

/* Adds the header of the client's trace, or of a new trace where the client gave none. */
static bool with_trace(struct flow *flow, bool is_made)
{
    if (!is_made)
        return false;
    char trace[TRACE_SIZE];
    trace_make_child(flow->traceparent, trace);
    http_call_header(&flow->call, "traceparent", trace);
    return http_call_is_made(&flow->call);
}

/* Builds the issuer's call of the step. */
static bool prepare_issuer_call(struct flow *flow)
{
    const struct issuer_profile *profile = profile_of(flow);
    bool is_of_old_card = flow_purpose(flow) == STEP_RETIRE;
    const struct issuer_subject subject = {
        .base = flow_peer(flow)->url,
        .event_id = flow->event_id,
        .user_id = flow->user_id,
        .payload = &flow->payload,
        .replaces = flow->payload.is_reissue ? flow->replaces_issuer_id : NULL,
        .card_id = is_of_old_card ? flow->replaces_issuer_id : flow->card.id,
        .since_ms = flow_lookup_since_ms(&flow->event_id, flow->made_ms),
        .parameters = &flow->parameters.values,
        .lookup = &flow->lookup,
    };
    bool is_made = issuer_build(profile, flow_step_call(flow->step), &subject, &flow->call);
    flow->call.must_not_resend = flow->step == STEP_ISSUE && !profile->key_is_trusted;
    return profile->sends_trace ? with_trace(flow, is_made) : is_made;
}

/* ---- check: in every attempt, right before the issuer is called ---- */

static bool check_prepare(struct flow *flow)
{
    return with_trace(flow,
                      core_build_check(&flow->call, flow_peer(flow)->url, flow->user_id, flow->payload.is_reissue));
}

/* Only the parameters are wanted, for a step that comes next whether or not the user may have a card. */
static struct flow_verdict go_on_with_parameters(struct flow *flow, const struct outcome *outcome)
{
    enum flow_step next = flow->asks_for;
    if (outcome->kind == OUTCOME_NOT_EXECUTED || outcome->kind == OUTCOME_UNKNOWN)
        return retry_or_defer(outcome);
    if (outcome->advice == ADVICE_FAIL) /* this answer tells of no parameters */
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = outcome->code, .wait_ms = -1};
    flow->asks_for = STEP_COUNT;
    return go(next);
}

/* The user may have a card. */
static struct flow_verdict check_agreed(struct flow *flow, struct outcome *ret_outcome)
{
    const char *missing = issuer_parameters_missing(profile_of(flow), &flow->parameters.values);
    flow->checked_ms = clock_mono_ms();
    if (!missing)
        return go(STEP_ISSUE);
    event_parameters_missing(missing, ret_outcome);
    return retry_or_defer(ret_outcome);
}

static struct flow_verdict check_read(struct flow *flow, struct outcome *ret_outcome)
{
    struct core_eligibility answer;
    core_read_check(&flow->call, profile_of(flow), &answer, ret_outcome);
    bool is_eligible = ret_outcome->kind == OUTCOME_EXECUTED;
    if (is_eligible || ret_outcome->advice == ADVICE_REJECT)
        event_parameters_take(&flow->parameters, flow->env->parameters, flow->user_id, is_eligible, &answer);
    if (flow->asks_for != STEP_COUNT)
        return go_on_with_parameters(flow, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return check_agreed(flow, ret_outcome);
    case OUTCOME_REFUSED:
        if (ret_outcome->advice == ADVICE_FAIL)
            return flow->unknown ? look_up_first(LOOKUP_UNFORESEEN, ret_outcome->code)
                                 : end_with(FLOW_FAIL, ret_outcome->code);
        /* The user may not have a card, but an earlier attempt may have made one. */
        return flow->unknown ? look_up_first(LOOKUP_INELIGIBLE, ret_outcome->code)
                             : end_with(FLOW_REJECT, ret_outcome->code);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* a GET changes nothing at core-api */
        return retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return retry_or_defer(ret_outcome);
}

/* ---- the card is at the issuer: what it needs before it is stored ---- */

/* Each of these steps may be repeated, and an attempt that dies in one finds the card again under its key, or by a
 * look-up. */
static struct flow_verdict use_card(const struct flow *flow)
{
    if (flow->card.state == ISSUER_CARD_INACTIVE && has_call(flow, ISSUER_ACTIVATE))
        return go(STEP_ACTIVATE);
    bool needs_number = flow->env->keyring && flow->card.number_length == 0;
    return go(needs_number && has_call(flow, ISSUER_REVEAL) ? STEP_REVEAL : STEP_SAVE);
}

/* ---- lookup: only this, or the issuer's answer to the same key, ends an unknown outcome ---- */

static bool lookup_prepare(struct flow *flow)
{
    return prepare_issuer_call(flow);
}

/* What "not found" means for this reason must hold also when a create arrives later. */
static bool must_settle(enum lookup_reason reason)
{
    return reason != LOOKUP_CARD_SEEN && reason != LOOKUP_IN_OUTAGE && reason != LOOKUP_FIRST &&
           reason != LOOKUP_BY_ANSWER && reason != LOOKUP_AFTER_REPEAT;
}

static struct flow_verdict not_found(struct flow *flow)
{
    int64_t unsettled_ms = flow_unsettled_ms(flow, clock_mono_ms());
    if (unsettled_ms > 0 && must_settle(flow->lookup_reason)) {
        /* A create may still be on its way, and would make a card behind any end. */
        flow->end_is_held = lookup_reason_name(flow->lookup_reason) != NULL;
        return (struct flow_verdict){
            .kind = FLOW_DEFER, .code = outbox_cause_name(OUTBOX_CAUSE_SETTLING), .wait_ms = unsettled_ms};
    }
    switch (flow->lookup_reason) {
    case LOOKUP_EXHAUSTED:
        return end_with(FLOW_FAIL, "attempts_exhausted");
    case LOOKUP_KEY_EXPIRED:
        return end_with(FLOW_FAIL, "issuer_key_expired");
    case LOOKUP_INELIGIBLE:
    case LOOKUP_REFUSED:
        return end_with(FLOW_REJECT, flow->pending_code);
    case LOOKUP_UNFORESEEN:
        return end_with(FLOW_FAIL, flow->pending_code);
    case LOOKUP_WORKER_LOST:
        return end_with(FLOW_FAIL, "worker_lost");
    case LOOKUP_BEFORE_SENDING:
        flow->lookup_reason = LOOKUP_NONE;
        flow->is_looked_up = true;
        return go(STEP_CHECK);
    case LOOKUP_FIRST:
        flow->lookup_reason = LOOKUP_NONE;
        flow->is_looked_up = true;
        return go(STEP_ISSUE);
    case LOOKUP_AFTER_REPEAT: /* it does not show our card yet; once that is stored, no create follows */
        return use_card(flow);
    case LOOKUP_BY_ANSWER:
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = flow->pending_code, .wait_ms = -1};
    case LOOKUP_IN_OUTAGE:
        return (struct flow_verdict){.kind = FLOW_DEFER, .code = flow->pending_code, .wait_ms = -1};
    case LOOKUP_NONE:
    case LOOKUP_CONTRADICTION:
    case LOOKUP_CARD_SEEN:
    case LOOKUP_REASONS:
        return (struct flow_verdict){
            .kind = FLOW_RETRY, .code = outbox_cause_name(OUTBOX_CAUSE_ISSUER_UNREADABLE), .wait_ms = -1};
    }
    assert(!"reasons are covered above");
    return end_with(FLOW_FAIL, "attempts_exhausted");
}

/* One live card. */
static struct flow_verdict found(struct flow *flow)
{
    const struct issuer_card *card = &flow->lookup.card;
    if (flow->lookup_reason == LOOKUP_AFTER_REPEAT)
        return strcmp(card->id, flow->card.id) == 0 ? use_card(flow) : end_with(FLOW_FAIL, "issuer_duplicate");
    flow->card = *card;
    flow->card_is_seen = true;
    if (flow->lookup_reason == LOOKUP_CARD_SEEN)
        return go(STEP_CANCEL);
    return flow->lookup_reason == LOOKUP_INELIGIBLE ? go(STEP_MARK) : use_card(flow);
}

/* Only cards that are cancelled: by a cancel of ours that got no answer, or by another party. */
static struct flow_verdict found_cancelled(struct flow *flow)
{
    if (flow->lookup_reason == LOOKUP_AFTER_REPEAT && strcmp(flow->lookup.gone_id, flow->card.id) != 0)
        return use_card(flow); /* an earlier one; ours is not shown yet */
    return end_with(FLOW_REJECT, flow->lookup_reason == LOOKUP_CARD_SEEN ? flow->pending_code : "card_cancelled");
}

static struct flow_verdict read_found(struct flow *flow)
{
    enum issuer_found what = issuer_lookup_found(&flow->lookup);
    if (what != ISSUER_FOUND_NONE)
        flow->end_is_held = false;
    switch (what) {
    case ISSUER_FOUND_NONE:
        return not_found(flow);
    case ISSUER_FOUND_ONE:
        return found(flow);
    case ISSUER_FOUND_MORE:
        return end_with(FLOW_FAIL, "issuer_duplicate");
    case ISSUER_FOUND_CANCELLED:
        return found_cancelled(flow);
    }
    assert(!"results are covered above");
    return not_found(flow);
}

static struct flow_verdict lookup_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_lookup(profile_of(flow), &flow->call, &flow->event_id, &flow->lookup, ret_outcome);
    if (ret_outcome->kind != OUTCOME_EXECUTED)
        return retry_or_defer(ret_outcome);
    if (!flow->lookup.is_done)
        return go(STEP_LOOKUP); /* the next page is a call of its own */
    struct flow_verdict verdict = read_found(flow);
    issuer_lookup_forget(&flow->lookup);
    return verdict;
}

/* ---- issue: the call that must not happen twice ---- */

static bool issue_prepare(struct flow *flow)
{
    return prepare_issuer_call(flow);
}

static struct flow_verdict issue_executed(struct flow *flow)
{
    bool was_unknown = flow->unknown;
    flow->unknown = true; /* only this process knows of the card until it is stored */
    if (flow->card.state == ISSUER_CARD_GONE)
        return look_up_first(LOOKUP_CONTRADICTION, "");
    flow->card_is_seen = true;
    if (was_unknown && !profile_of(flow)->key_is_trusted)
        return look_up_first(LOOKUP_AFTER_REPEAT, NULL); /* an earlier create may have made another one */
    return use_card(flow);
}

static struct flow_verdict issue_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_create(profile_of(flow), &flow->call, &flow->event_id, &flow->card, ret_outcome);
    flow->unknown |= flow->call.was_resent; /* the answer is to the second sending; the first may have made a card */
    flow->may_arrive =
        flow->call.was_resent || ret_outcome->kind == OUTCOME_UNKNOWN || ret_outcome->advice == ADVICE_WAIT_IN_PROGRESS;
    if (flow->call.result == HTTP_NOT_SENT && !flow->call.was_resent)
        flow->sent_create = false;
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return issue_executed(flow);
    case OUTCOME_REFUSED:
        if (ret_outcome->advice == ADVICE_FAIL)
            return flow->unknown ? look_up_first(LOOKUP_UNFORESEEN, ret_outcome->code)
                                 : end_with(FLOW_FAIL, ret_outcome->code);
        return flow->unknown ? look_up_first(LOOKUP_REFUSED, ret_outcome->code)
                             : end_with(FLOW_REJECT, ret_outcome->code);
    case OUTCOME_NOT_EXECUTED: /* proves nothing about earlier attempts: unknown stays as it is */
        if (ret_outcome->advice == ADVICE_WAIT_IN_PROGRESS)
            flow->unknown = true; /* a call with our key is being executed: it may make the card */
        return retry_or_defer(ret_outcome);
    case OUTCOME_UNKNOWN:
        flow->unknown = true;
        if (ret_outcome->advice == ADVICE_LOOK_UP)
            return look_up_first(LOOKUP_BY_ANSWER, ret_outcome->code);
        return retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return retry_or_defer(ret_outcome);
}

/* ---- activate: the issuer makes cards inactive ---- */

static bool activate_prepare(struct flow *flow)
{
    return prepare_issuer_call(flow);
}

static struct flow_verdict activate_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_activate(profile_of(flow), &flow->call, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        flow->card.state = ISSUER_CARD_ACTIVE;
        return use_card(flow);
    case OUTCOME_REFUSED:
        if (ret_outcome->advice == ADVICE_FAIL)
            return end_with(FLOW_FAIL, ret_outcome->code);
        /* A card that cannot be used must not stay. */
        snprintf(flow->pending_code, sizeof(flow->pending_code), "%s", ret_outcome->code);
        return go(STEP_MARK);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* repeating it does no harm */
        return retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return retry_or_defer(ret_outcome);
}

/* ---- reveal: the number, where it is stored and the issuer tells it by a call of its own ---- */

static bool reveal_prepare(struct flow *flow)
{
    return prepare_issuer_call(flow);
}

static struct flow_verdict reveal_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_reveal(profile_of(flow), &flow->call, &flow->card, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return go(STEP_SAVE);
    case OUTCOME_REFUSED: /* the card is fine; whether it is linked without its number is a question */
        return end_with(FLOW_FAIL, "reveal_refused");
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* a GET changes nothing */
        return retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return retry_or_defer(ret_outcome);
}

/* ---- save: before core-api learns of the card ---- */

static bool save_prepare(struct flow *flow)
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
            snprintf(flow->outcome.detail, sizeof(flow->outcome.detail), "%.150s", err.message);
            return false;
        }
    }
    return true;
}

static struct flow_verdict save_read(struct flow *flow, struct outcome *ret_outcome)
{
    flow->is_saved = flow->write_result == WRITE_DONE;
    return read_write(flow, STEP_LINK, ret_outcome);
}

/* ---- link: core-api learns of the card ---- */

static bool link_prepare(struct flow *flow)
{
    struct core_link link = {
        .event_id = flow->event_id,
        .card_id = flow->save.card_id,
        .exp_month = flow->save.exp_month,
        .exp_year = flow->save.exp_year,
        .is_reissue = flow->payload.is_reissue,
        .replaces = flow->payload.replaces,
    };
    memcpy(link.last4, flow->save.last4, sizeof(link.last4));
    return with_trace(flow, core_build_link(&flow->call, flow_peer(flow)->url, flow->user_id, &link));
}

static struct flow_verdict link_read(struct flow *flow, struct outcome *ret_outcome)
{
    core_read_link(&flow->call, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return flow->payload.is_reissue && has_call(flow, ISSUER_RETIRE) ? go(STEP_RETIRE)
                                                                         : end_with(FLOW_COMPLETE, NULL);
    case OUTCOME_REFUSED:
        if (ret_outcome->advice == ADVICE_FAIL || flow->env->config->core.on_link_refused == LINK_REFUSED_KEEP)
            return end_with(FLOW_FAIL, ret_outcome->code);
        snprintf(flow->pending_code, sizeof(flow->pending_code), "%s", ret_outcome->code);
        return go(STEP_MARK);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* repeating the link does no harm */
        return retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return retry_or_defer(ret_outcome);
}

/* ---- retire, cancel, verify: a card is closed at the issuer ---- */

/* The card of `purpose` is closed. */
static struct flow_verdict closed(struct flow *flow, enum flow_step purpose)
{
    if (purpose == STEP_RETIRE)
        return end_with(FLOW_COMPLETE, NULL);
    flow->was_cancelled = true;
    flow->unknown = false;
    /* A link of this card may have reached core-api, or still be on its way there: once the card was stored. */
    return flow->is_saved ? go(STEP_UNLINK) : end_with(FLOW_REJECT, flow->pending_code);
}

/* The card of `purpose` is not closed, and will not be. */
static struct flow_verdict not_closed(enum flow_step purpose)
{
    /* The new card is linked, so that the request is done: a note for operators. */
    return purpose == STEP_RETIRE ? end_with(FLOW_COMPLETE, outbox_cause_name(OUTBOX_CAUSE_RETIRE_REFUSED))
                                  : end_with(FLOW_FAIL, "cancel_failed");
}

static struct flow_verdict close_read(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_cancel(profile_of(flow), flow_step_call(flow->step), &flow->call, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return closed(flow, flow->step);
    case OUTCOME_REFUSED:
        flow->verifies = flow->step;
        return has_call(flow, ISSUER_RETRIEVE) ? go(STEP_VERIFY) : not_closed(flow->step);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* repeating it does no harm */
        return retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return retry_or_defer(ret_outcome);
}

/* ---- retire: the card that a reissue replaces, once the new one is linked ---- */

static bool retire_prepare(struct flow *flow)
{
    return prepare_issuer_call(flow);
}

static struct flow_verdict retire_read(struct flow *flow, struct outcome *ret_outcome)
{
    return close_read(flow, ret_outcome);
}

/* ---- mark: from here on the card goes, even if this worker dies or core-api changes its answer ---- */

static bool mark_prepare(struct flow *flow)
{
    (void)flow; /* the reason is in pending_code already */
    return true;
}

static struct flow_verdict mark_read(struct flow *flow, struct outcome *ret_outcome)
{
    return read_write(flow, STEP_CANCEL, ret_outcome);
}

/* ---- cancel: the card may not be used ---- */

static bool cancel_prepare(struct flow *flow)
{
    return prepare_issuer_call(flow);
}

static struct flow_verdict cancel_read(struct flow *flow, struct outcome *ret_outcome)
{
    return close_read(flow, ret_outcome);
}

/* ---- verify: a card that was closed before cannot be closed again, so it is read ---- */

static bool verify_prepare(struct flow *flow)
{
    return prepare_issuer_call(flow);
}

static struct flow_verdict verify_read(struct flow *flow, struct outcome *ret_outcome)
{
    const struct outcome refusal = *ret_outcome; /* of the step before */
    const char *card_id = flow->verifies == STEP_RETIRE ? flow->replaces_issuer_id : flow->card.id;
    enum issuer_card_state state;
    issuer_read_retrieve(profile_of(flow), &flow->call, card_id, &state, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        if (state == ISSUER_CARD_GONE)
            return closed(flow, flow->verifies);
        snprintf(ret_outcome->detail, sizeof(ret_outcome->detail), "%s", refusal.detail);
        return not_closed(flow->verifies);
    case OUTCOME_REFUSED:
        return not_closed(flow->verifies);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* a GET changes nothing */
        return retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return retry_or_defer(ret_outcome);
}

/* ---- unlink: core-api forgets the card, and remembers that a link that comes later is void ---- */

static bool unlink_prepare(struct flow *flow)
{
    return with_trace(flow, core_build_unlink(&flow->call, flow_peer(flow)->url, flow->user_id, &flow->event_id,
                                              &flow->save.card_id));
}

static struct flow_verdict unlink_read(struct flow *flow, struct outcome *ret_outcome)
{
    core_read_unlink(&flow->call, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return end_with(FLOW_REJECT, flow->pending_code);
    case OUTCOME_REFUSED: /* a link to a cancelled card remains: a question for an operator */
        return end_with(FLOW_FAIL, ret_outcome->code);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* repeating the unlink does no harm */
        return retry_or_defer(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return retry_or_defer(ret_outcome);
}
