/* The steps that issue a card, in the order they run; the table first, then each step as ask (starts one operation) and
 * answer (reads its one outcome).
 *
 * Any attempt may die after any line. So every attempt starts at check (or at link once the card is stored) and sends
 * the same key again; nothing
 * here depends on what an earlier attempt remembered in memory. Steps never call each other and never touch timers,
 * leases or tickets. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/backoff.h"
#include "common/clock.h"
#include "worker/core_api.h"
#include "worker/flow_internal.h"
#include "worker/worker.h"

static struct target *issuer_of(struct worker *worker)
{
    return &worker->issuer;
}

static struct target *core_of(struct worker *worker)
{
    return &worker->core;
}

#define X(name, word, text, peer)          \
    static bool word##_ask(struct flow *); \
    static struct flow_verdict word##_answer(struct flow *, struct outcome *);
FLOW_STEPS(X)
#undef X

/* name and text (flow.h), the peer (none: a database write), ask, answer */
const struct flow_step_row flow_steps[STEP_COUNT] = {
#define X(name, word, text, peer) [STEP_##name] = {#word, text, peer, word##_ask, word##_answer},
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

/* Looks up first, keeping the reason to end with if nothing is found. */
static struct flow_verdict look_up_first(struct flow *flow, enum flow_question question, const char *code)
{
    flow->question = question;
    snprintf(flow->held_code, sizeof flow->held_code, "%s", code);
    return go(STEP_LOOKUP);
}

/* What every step does with a peer that neither did it nor refused it. */
static struct flow_verdict try_again(const struct outcome *outcome)
{
    switch (outcome->advice) {
    case ADVICE_RETRY:
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
    assert(!"an outcome that asks for a decision of the step");
    return (struct flow_verdict){.kind = FLOW_RETRY, .code = "bug", .wait_ms = -1};
}

/* What a guarded write of ours came to; `next` when it is done. */
static struct flow_verdict read_write(struct flow *flow, enum flow_step next, struct outcome *ret_outcome)
{
    memset(ret_outcome, 0, sizeof *ret_outcome);
    switch (flow->write_result) {
    case WRITE_DONE:
        ret_outcome->kind = OUTCOME_EXECUTED;
        return go(next);
    case WRITE_FENCED:
        ret_outcome->kind = OUTCOME_REFUSED;
        return (struct flow_verdict){.kind = FLOW_DROP};
    case WRITE_GIVEN_UP:
        ret_outcome->kind = OUTCOME_UNKNOWN;
        snprintf(ret_outcome->code, sizeof ret_outcome->code, "write_failed");
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = ret_outcome->code, .wait_ms = -1};
    }
    assert(!"write results are covered above");
    return (struct flow_verdict){.kind = FLOW_DROP};
}

static void put_hex(char *out, uint64_t value)
{
    for (int i = 15; i >= 0; i--, value >>= 4)
        out[i] = "0123456789abcdef"[value & 15];
}

/* The client's trace with a span of this call's own (W3C Trace Context); a new trace where the client gave none. */
static bool with_trace(struct flow *flow, bool is_made)
{
    if (!is_made)
        return false;
    char trace[] = "00-................................-................-00";
    if (flow->traceparent[0]) {
        memcpy(trace, flow->traceparent, sizeof trace - 1);
    } else {
        put_hex(trace + 3, backoff_random() | 1);
        put_hex(trace + 19, backoff_random());
    }
    put_hex(trace + 36, backoff_random() | 1);
    buf_put_text(&flow->call.lines, "traceparent: ");
    buf_put_text(&flow->call.lines, trace);
    http_call_end_line(&flow->call);
    return http_call_is_made(&flow->call);
}

/* ---- check: asked at every attempt, right before the issuer is ---- */

static bool check_ask(struct flow *flow)
{
    return with_trace(
        flow, core_ask_check(&flow->call, flow->worker->config->core.url, flow->user_id, flow->payload.is_reissue));
}

static struct flow_verdict check_answer(struct flow *flow, struct outcome *ret_outcome)
{
    core_read_check(&flow->call, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        flow->checked_ms = clock_mono_ms();
        return go(STEP_ISSUE);
    case OUTCOME_REFUSED:
        if (ret_outcome->advice == ADVICE_FAIL)
            return flow->unknown ? look_up_first(flow, ASKED_UNFORESEEN, ret_outcome->code)
                                 : end_with(FLOW_FAIL, ret_outcome->code);
        /* The user may not have a card; but an earlier attempt may have made one. */
        return flow->unknown ? look_up_first(flow, ASKED_INELIGIBLE, ret_outcome->code)
                             : end_with(FLOW_REJECT, ret_outcome->code);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* a question changes nothing at core-api */
        return try_again(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return try_again(ret_outcome);
}

/* ---- lookup: the only way out of an unknown outcome besides the issuer's own answer to the same key ---- */

static bool lookup_ask(struct flow *flow)
{
    return with_trace(flow, issuer_ask_lookup(&flow->call, flow->worker->config->issuer.url, &flow->event_id));
}

static struct flow_verdict not_found(struct flow *flow)
{
    int64_t unsettled_ms = flow_unsettled_ms(flow);
    if (unsettled_ms > 0 && flow->question != ASKED_MARKED && flow->question != ASKED_IN_OUTAGE) {
        /* A create may still be on its way, and would make a card behind any end. */
        flow->is_held = flow_question_name(flow->question) != NULL;
        return (struct flow_verdict){.kind = FLOW_DEFER, .code = "settling", .wait_ms = unsettled_ms};
    }
    switch (flow->question) {
    case ASKED_EXHAUSTED:
        return end_with(FLOW_FAIL, "attempts_exhausted");
    case ASKED_KEY_EXPIRED:
        return end_with(FLOW_FAIL, "issuer_key_expired");
    case ASKED_INELIGIBLE:
    case ASKED_REFUSED:
        return end_with(FLOW_REJECT, flow->held_code);
    case ASKED_UNFORESEEN:
        return end_with(FLOW_FAIL, flow->held_code);
    case ASKED_WORKER_LOST:
        return end_with(FLOW_FAIL, "worker_lost");
    case ASKED_BEFORE_SENDING:
        flow->question = ASKED_NOTHING;
        flow->is_looked_up = true;
        return go(STEP_CHECK);
    case ASKED_IN_OUTAGE:
        return (struct flow_verdict){.kind = FLOW_DEFER, .code = flow->held_code, .wait_ms = -1};
    case ASKED_NOTHING:
    case ASKED_CONTRADICTION:
    case ASKED_MARKED:
    case ASKED_COUNT:
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = "issuer_unreadable", .wait_ms = -1};
    }
    assert(!"questions are covered above");
    return end_with(FLOW_FAIL, "attempts_exhausted");
}

static struct flow_verdict lookup_answer(struct flow *flow, struct outcome *ret_outcome)
{
    enum issuer_found found = ISSUER_FOUND_NONE;
    issuer_read_lookup(&flow->call, &flow->event_id, &found, &flow->card, ret_outcome);
    if (ret_outcome->kind != OUTCOME_EXECUTED)
        return try_again(ret_outcome);
    if (found != ISSUER_FOUND_NONE)
        flow->is_held = false;
    switch (found) {
    case ISSUER_FOUND_NONE:
        return not_found(flow);
    case ISSUER_FOUND_ONE:
        if (flow->question == ASKED_MARKED)
            return go(STEP_CANCEL);
        return go(flow->question == ASKED_INELIGIBLE ? STEP_MARK : STEP_SAVE);
    case ISSUER_FOUND_MORE:
        return end_with(FLOW_FAIL, "issuer_duplicate");
    case ISSUER_FOUND_CANCELLED: /* by us, whose cancel was not answered; or by somebody else */
        return end_with(FLOW_REJECT, flow->question == ASKED_MARKED ? flow->held_code : "card_cancelled");
    }
    assert(!"finds are covered above");
    return not_found(flow);
}

/* ---- issue: the call that must not happen twice ---- */

static bool issue_ask(struct flow *flow)
{
    return with_trace(flow, issuer_ask_create(&flow->call, flow->worker->config->issuer.url, &flow->event_id,
                                              flow->user_id, &flow->payload, flow->replaces_issuer_id));
}

static struct flow_verdict issue_answer(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_create(&flow->call, &flow->event_id, &flow->card, ret_outcome);
    flow->unknown |= flow->call.was_resent; /* the answer is to the second sending; the first may have made a card */
    flow->may_arrive =
        flow->call.was_resent || ret_outcome->kind == OUTCOME_UNKNOWN || ret_outcome->advice == ADVICE_WAIT_IN_PROGRESS;
    if (flow->call.fate == HTTP_NOT_SENT && !flow->call.was_resent)
        flow->sent_create = false;
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        flow->unknown = true; /* until it is stored, only this process knows */
        if (flow->card.is_cancelled)
            return look_up_first(flow, ASKED_CONTRADICTION, "");
        return go(STEP_SAVE);
    case OUTCOME_REFUSED:
        if (ret_outcome->advice == ADVICE_FAIL)
            return flow->unknown ? look_up_first(flow, ASKED_UNFORESEEN, ret_outcome->code)
                                 : end_with(FLOW_FAIL, ret_outcome->code);
        return flow->unknown ? look_up_first(flow, ASKED_REFUSED, ret_outcome->code)
                             : end_with(FLOW_REJECT, ret_outcome->code);
    case OUTCOME_NOT_EXECUTED: /* says nothing about earlier attempts: unknown stays as it is */
        if (ret_outcome->advice == ADVICE_WAIT_IN_PROGRESS)
            flow->unknown = true; /* some call with our key is at work there: it may make the card */
        return try_again(ret_outcome);
    case OUTCOME_UNKNOWN:
        flow->unknown = true;
        return try_again(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return try_again(ret_outcome);
}

/* ---- save: before anybody is told ---- */

static bool save_ask(struct flow *flow)
{
    struct worker *worker = flow->worker;
    struct write_save *save = &flow->save;
    memset(save, 0, sizeof *save);
    save->card_id = uuid7_make();
    save->issuer_card_id = flow->card.id;
    memcpy(save->last4, flow->card.last4, sizeof save->last4);
    save->exp_month = flow->card.exp_month;
    save->exp_year = flow->card.exp_year;
    save->is_reissue =
        flow->payload.is_reissue && uuid_parse(flow->payload.replaces, strlen(flow->payload.replaces), &save->replaces);
    if (worker->keyring && flow->card.number_length > 0) {
        struct err err;
        if (!keyring_seal(worker->keyring, flow->user_id, &save->card_id, flow->card.number, flow->card.number_length,
                          save->record, &save->record_length, &err)) {
            snprintf(flow->outcome.detail, sizeof flow->outcome.detail, "%.150s", err.message);
            return false;
        }
    }
    flow->write = (struct write_op){
        .kind = WRITE_SAVE,
        .event_id = flow->event_id,
        .token = flow->token,
        .deadline_ms = flow->lease_until_ms,
        .save = save,
        .on_written = flow->write.on_written,
    };
    writer_put(worker->writer, &flow->write);
    return true;
}

static struct flow_verdict save_answer(struct flow *flow, struct outcome *ret_outcome)
{
    flow->is_saved = flow->write_result == WRITE_DONE;
    return read_write(flow, STEP_LINK, ret_outcome);
}

/* ---- link: core-api learns of the card ---- */

static bool link_ask(struct flow *flow)
{
    struct core_link link = {
        .request_id = flow->event_id,
        .card_id = flow->save.card_id,
        .exp_month = flow->save.exp_month,
        .exp_year = flow->save.exp_year,
        .is_reissue = flow->payload.is_reissue,
        .replaces = flow->payload.replaces,
    };
    memcpy(link.last4, flow->save.last4, sizeof link.last4);
    return with_trace(flow, core_ask_link(&flow->call, flow->worker->config->core.url, flow->user_id, &link));
}

static struct flow_verdict link_answer(struct flow *flow, struct outcome *ret_outcome)
{
    core_read_link(&flow->call, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return end_with(FLOW_COMPLETE, NULL);
    case OUTCOME_REFUSED:
        if (ret_outcome->advice == ADVICE_FAIL || flow->worker->config->core.on_link_refused == LINK_REFUSED_KEEP)
            return end_with(FLOW_FAIL, ret_outcome->code);
        snprintf(flow->held_code, sizeof flow->held_code, "%s", ret_outcome->code);
        return go(STEP_MARK);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* the same link again does no harm */
        return try_again(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return try_again(ret_outcome);
}

/* ---- mark: from here on the card goes, also if this worker dies or core-api changes its mind ---- */

static bool mark_ask(struct flow *flow)
{
    flow->write = (struct write_op){
        .kind = WRITE_MARK,
        .event_id = flow->event_id,
        .token = flow->token,
        .deadline_ms = flow->lease_until_ms,
        .cancel_code = flow->held_code,
        .on_written = flow->write.on_written,
    };
    writer_put(flow->worker->writer, &flow->write);
    return true;
}

static struct flow_verdict mark_answer(struct flow *flow, struct outcome *ret_outcome)
{
    return read_write(flow, STEP_CANCEL, ret_outcome);
}

/* ---- cancel: a card that may not be used ---- */

static bool cancel_ask(struct flow *flow)
{
    return with_trace(flow,
                      issuer_ask_cancel(&flow->call, flow->worker->config->issuer.url, &flow->event_id, flow->card.id));
}

static struct flow_verdict cancel_answer(struct flow *flow, struct outcome *ret_outcome)
{
    issuer_read_cancel(&flow->call, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        flow->was_cancelled = true;
        flow->unknown = false;
        /* A link of this card may have reached core-api, or still be on its way there: once the card was stored. */
        return flow->is_saved ? go(STEP_UNLINK) : end_with(FLOW_REJECT, flow->held_code);
    case OUTCOME_REFUSED:
        return end_with(FLOW_FAIL, "cancel_failed");
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN:
        return try_again(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return try_again(ret_outcome);
}

/* ---- unlink: core-api forgets the card, and remembers that a link that comes later is void ---- */

static bool unlink_ask(struct flow *flow)
{
    return with_trace(flow, core_ask_unlink(&flow->call, flow->worker->config->core.url, flow->user_id, &flow->event_id,
                                            &flow->save.card_id));
}

static struct flow_verdict unlink_answer(struct flow *flow, struct outcome *ret_outcome)
{
    core_read_unlink(&flow->call, ret_outcome);
    switch (ret_outcome->kind) {
    case OUTCOME_EXECUTED:
        return end_with(FLOW_REJECT, flow->held_code);
    case OUTCOME_REFUSED: /* a link beside a cancelled card: an operator's question */
        return end_with(FLOW_FAIL, ret_outcome->code);
    case OUTCOME_NOT_EXECUTED:
    case OUTCOME_UNKNOWN: /* the same unlink again does no harm */
        return try_again(ret_outcome);
    }
    assert(!"outcome kinds are covered above");
    return try_again(ret_outcome);
}
