/* See mark_verdict.h. */
#include "worker/questions/mark_verdict.h"

#define ELSEWHERE_TRIES 4 /* some seconds */

static struct mark_verdict end_with(const char *result, const char *detail)
{
    return (struct mark_verdict){.step = MARK_END, .result = result, .detail = detail};
}

static struct mark_verdict go(enum mark_step step)
{
    return (struct mark_verdict){.step = step};
}

/* A worker of the event's issuer may take the mark, during a change of issuers. A live card behind a REJECTED event has
 * nobody else who looks for it. */
static struct mark_verdict look_up(const struct mark_facts *facts)
{
    /* guard: a mark of an event of another issuer looks up nothing */
    if (!facts->is_elsewhere)
        return go(MARK_LOOK_UP);
    if (facts->tries < ELSEWHERE_TRIES || (!facts->is_reissue && facts->status == OUTBOX_REJECTED))
        return go(MARK_LEAVE);
    return facts->is_reissue ? end_with("refused", "other_issuer") : end_with("other_issuer", NULL);
}

struct mark_verdict mark_verdict_first(const struct mark_facts *facts)
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

static struct mark_verdict decide_reissue(const struct mark_facts *facts, enum issuer_found found)
{
    switch (found) {
    case ISSUER_FOUND_NONE:
        return facts->is_settled ? end_with("reissued", "The request was replaced by a new one:") : go(MARK_WAIT);
    case ISSUER_FOUND_ONE:
    case ISSUER_FOUND_MORE:
        return end_with("refused", "card_found");
    case ISSUER_FOUND_CANCELLED:
        return end_with("refused", "card_cancelled");
    }
    return go(MARK_WAIT);
}

static struct mark_verdict decide_failed(const struct mark_facts *facts, enum issuer_found found, bool is_ours)
{
    switch (found) {
    case ISSUER_FOUND_NONE:
        if (!facts->is_settled)
            return go(MARK_WAIT);
        return end_with(facts->card_is_active ? "missing" : "not_found", NULL);
    case ISSUER_FOUND_ONE:
        return !facts->has_card || is_ours ? end_with("found", NULL)
                                           : end_with("duplicate", outbox_reason_detail("issuer_duplicate"));
    case ISSUER_FOUND_MORE:
        return end_with("duplicate", outbox_reason_detail("issuer_duplicate"));
    case ISSUER_FOUND_CANCELLED:
        if (!facts->is_settled)
            return go(MARK_WAIT);
        if (facts->has_card && !facts->was_unlinked)
            return go(MARK_UNLINK); /* a link call for it may have reached core-api */
        return end_with("cancelled_at_issuer", outbox_reason_detail("card_cancelled"));
    }
    return go(MARK_WAIT);
}

static struct mark_verdict decide_rejected(const struct mark_facts *facts, enum issuer_found found)
{
    if (found == ISSUER_FOUND_ONE || found == ISSUER_FOUND_MORE)
        return go(MARK_CANCEL);
    if (!facts->is_settled)
        return go(MARK_WAIT);
    if (!facts->has_orphan)
        return end_with("ok", NULL);
    if (facts->has_card && !facts->was_unlinked)
        return go(MARK_UNLINK);
    return end_with("orphan_cancelled", NULL);
}

static struct mark_verdict decide_completed(const struct mark_facts *facts, enum issuer_found found, bool is_ours)
{
    switch (found) {
    case ISSUER_FOUND_NONE:
        return end_with("missing", NULL);
    case ISSUER_FOUND_ONE:
        if (!is_ours)
            return end_with("duplicate", NULL);
        return end_with(facts->is_frozen ? "frozen" : "ok", NULL);
    case ISSUER_FOUND_MORE:
        return end_with("duplicate", NULL);
    case ISSUER_FOUND_CANCELLED:
        /* guard: core-api learns that the issuer has closed a card */
        if (facts->has_card && !facts->was_unlinked)
            return go(MARK_UNLINK);
        return end_with("cancelled_at_issuer", NULL);
    }
    return go(MARK_WAIT);
}

struct mark_verdict mark_verdict_after_lookup(const struct mark_facts *facts, enum issuer_found found, bool is_ours)
{
    if (facts->is_reissue)
        return decide_reissue(facts, found);
    switch (facts->status) {
    case OUTBOX_PENDING:
    case OUTBOX_PROCESSING:
        return end_with("open", NULL);
    case OUTBOX_FAILED:
        return decide_failed(facts, found, is_ours);
    case OUTBOX_REJECTED:
        return decide_rejected(facts, found);
    case OUTBOX_COMPLETED:
        return decide_completed(facts, found, is_ours);
    }
    return end_with("open", NULL);
}

struct mark_verdict mark_verdict_after_ask(const struct mark_facts *facts, bool was_executed)
{
    if (facts->is_reissue) /* a delivery has no other key to be sent with */
        return end_with("refused", "no_card_request");
    if (was_executed)
        return end_with("executed", NULL);
    return facts->is_settled ? end_with("not_executed", NULL) : go(MARK_WAIT);
}
