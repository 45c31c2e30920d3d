/* See decide_mark.h. */
#include "common/core/decide/decide_mark.h"

#define ELSEWHERE_TRIES 4 /* some seconds */
#define CANCELS_MAX 8     /* cards of one event cancelled before its mark is put back */

static struct flow_verdict end_with(const char *result, const char *detail)
{
    return (struct flow_verdict){.kind = FLOW_COMPLETE, .code = result, .detail = detail};
}

static struct flow_verdict put_back(const char *code, int64_t wait_ms)
{
    return verdict_wait(FLOW_DEFER, code, wait_ms > 0 ? wait_ms : -1);
}

static struct flow_verdict wait_for_settling(const struct mark_facts *facts)
{
    return put_back(outbox_cause_name(OUTBOX_CAUSE_SETTLING), facts->settle_left_ms);
}

/* A worker of the event's issuer may take the mark, during a change of issuers. No other code looks for a live card of
 * a REJECTED event. */
static struct flow_verdict look_up(const struct mark_facts *facts)
{
    /* guard: a mark of an event of another issuer looks up nothing */
    if (!facts->is_of_other_issuer)
        return verdict_go(facts->is_delivery ? STEP_ASK : STEP_LOOKUP);
    if (facts->tries < ELSEWHERE_TRIES || (!facts->is_reissue && facts->status == OUTBOX_REJECTED))
        return put_back(outbox_cause_name(OUTBOX_CAUSE_OTHER_ISSUER), -1);
    return facts->is_reissue ? end_with("refused", "other_issuer") : end_with("other_issuer", NULL);
}

/* Core-api removes the stored card. That of a completed event is noted first, so that it is shown as closed whether or
 * not core-api can be told. */
static struct flow_verdict unlink_card(const struct mark_facts *facts)
{
    /* guard: a card is shown as closed whether or not core-api can be told */
    return verdict_go(facts->status == OUTBOX_COMPLETED && !facts->has_orphan ? STEP_MARK : STEP_UNLINK);
}

struct flow_verdict decide_mark_first(const struct mark_facts *facts)
{
    if (!facts->is_there)
        return end_with("gone", NULL);
    if (facts->is_reissue) {
        if (facts->status != OUTBOX_FAILED)
            return end_with("refused", "not_failed");
        return facts->has_card ? end_with("refused", "card") : look_up(facts);
    }
    switch (facts->status) {
    case OUTBOX_PENDING:
    case OUTBOX_PROCESSING:
        return end_with("open", NULL);
    case OUTBOX_COMPLETED: /* a card that was replaced or cancelled later is not this event's matter */
        return facts->has_card && !facts->card_is_active && !facts->has_orphan ? end_with("ok", NULL) : look_up(facts);
    case OUTBOX_REJECTED:
    case OUTBOX_FAILED:
        return look_up(facts);
    }
    return end_with("open", NULL);
}

static struct flow_verdict decide_reissue(const struct mark_facts *facts)
{
    switch (facts->found) {
    case ISSUER_FOUND_NONE:
        return facts->settle_left_ms == 0 ? end_with("reissued", "The request was replaced by a new one:")
                                          : wait_for_settling(facts);
    case ISSUER_FOUND_ONE:
    case ISSUER_FOUND_MORE:
        return end_with("refused", "card_found");
    case ISSUER_FOUND_CANCELLED:
        return end_with("refused", "card_cancelled");
    }
    return wait_for_settling(facts);
}

static struct flow_verdict decide_failed(const struct mark_facts *facts)
{
    switch (facts->found) {
    case ISSUER_FOUND_NONE:
        if (facts->settle_left_ms != 0)
            return wait_for_settling(facts);
        return end_with(facts->card_is_active ? "missing" : "not_found", NULL);
    case ISSUER_FOUND_ONE:
        return !facts->has_card || facts->is_ours ? end_with("found", NULL)
                                                  : end_with("duplicate", outbox_reason_detail("issuer_duplicate"));
    case ISSUER_FOUND_MORE:
        return end_with("duplicate", outbox_reason_detail("issuer_duplicate"));
    case ISSUER_FOUND_CANCELLED:
        if (facts->settle_left_ms != 0)
            return wait_for_settling(facts);
        if (facts->has_card && !facts->was_unlinked)
            return unlink_card(facts); /* a link call for it may have reached core-api */
        return end_with("cancelled_at_issuer", outbox_reason_detail("card_cancelled"));
    }
    return wait_for_settling(facts);
}

static struct flow_verdict decide_rejected(const struct mark_facts *facts)
{
    if (facts->found == ISSUER_FOUND_ONE || facts->found == ISSUER_FOUND_MORE)
        /* guard: an orphan is noted before it is cancelled */
        return verdict_go(facts->has_orphan ? STEP_CANCEL : STEP_MARK);
    if (facts->settle_left_ms != 0)
        return wait_for_settling(facts);
    if (!facts->has_orphan)
        return end_with("ok", NULL);
    if (facts->has_card && !facts->was_unlinked)
        return unlink_card(facts);
    return end_with("orphan_cancelled", NULL);
}

static struct flow_verdict decide_completed(const struct mark_facts *facts)
{
    switch (facts->found) {
    case ISSUER_FOUND_NONE:
        return end_with("missing", NULL);
    case ISSUER_FOUND_ONE:
        if (!facts->is_ours)
            return end_with("duplicate", NULL);
        return end_with(facts->is_frozen ? "frozen" : "ok", NULL);
    case ISSUER_FOUND_MORE:
        return end_with("duplicate", NULL);
    case ISSUER_FOUND_CANCELLED:
        /* guard: core-api learns that the issuer has closed a card */
        if (facts->has_card && !facts->was_unlinked)
            return unlink_card(facts);
        return end_with("cancelled_at_issuer", NULL);
    }
    return wait_for_settling(facts);
}

static struct flow_verdict decide_found(const struct mark_facts *facts)
{
    if (facts->is_reissue)
        return decide_reissue(facts);
    switch (facts->status) {
    case OUTBOX_PENDING:
    case OUTBOX_PROCESSING:
        return end_with("open", NULL);
    case OUTBOX_FAILED:
        return decide_failed(facts);
    case OUTBOX_REJECTED:
        return decide_rejected(facts);
    case OUTBOX_COMPLETED:
        return decide_completed(facts);
    }
    return end_with("open", NULL);
}

static struct flow_verdict decide_asked(const struct mark_facts *facts, bool was_executed)
{
    if (facts->is_reissue) /* a delivery has no other key to be sent with */
        return end_with("refused", "no_card_request");
    if (was_executed)
        return end_with("executed", NULL);
    return facts->settle_left_ms == 0 ? end_with("not_executed", NULL) : wait_for_settling(facts);
}

/* The card that was found is cancelled; there may be another one. */
static struct flow_verdict decide_cancelled(struct mark_facts *facts)
{
    return ++facts->cancels < CANCELS_MAX ? verdict_go(STEP_LOOKUP) : put_back("many_cards", -1);
}

/* The call was executed. */
static struct flow_verdict decide_executed(struct mark_facts *facts, enum flow_step step, enum flow_step asks_for,
                                           const struct shown *shown)
{
    if (step == STEP_CHECK)
        return verdict_go(asks_for);
    if (step == STEP_ASK)
        return decide_asked(facts, shown->was_executed);
    if (step == STEP_CANCEL || (step == STEP_VERIFY && shown->is_gone))
        return decide_cancelled(facts);
    if (step == STEP_VERIFY)
        return end_with("orphan_left", "the issuer refuses to cancel the card");
    if (step == STEP_MARK) {
        facts->has_orphan = true;
        return verdict_go(facts->status == OUTBOX_COMPLETED ? STEP_UNLINK : STEP_CANCEL);
    }
    if (step == STEP_LOOKUP) {
        facts->found = shown->found;
        facts->is_ours = shown->is_ours;
    }
    facts->was_unlinked |= step == STEP_UNLINK;
    return decide_found(facts);
}

struct flow_verdict decide_mark(struct mark_facts *facts, enum flow_step step, enum flow_step asks_for,
                                const struct outcome *outcome, const struct shown *shown)
{
    if (outcome->kind == OUTCOME_EXECUTED)
        return decide_executed(facts, step, asks_for, shown);
    if (outcome->kind == OUTCOME_REFUSED && step == STEP_CANCEL && facts->verifies)
        return verdict_go(STEP_VERIFY);
    if (outcome->kind == OUTCOME_REFUSED && (step == STEP_CANCEL || step == STEP_VERIFY))
        return end_with("orphan_left", "the issuer refuses to cancel the card");
    /* Whether the user may have a card is not the question. */
    if (step == STEP_CHECK && outcome->advice == ADVICE_REJECT)
        return verdict_go(asks_for);
    return put_back(outcome->code, outcome->wait_ms);
}
