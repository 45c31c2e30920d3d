/* The story: an operator asks whether the issuer has a card, and acts on the answer. Each pair of what we have and what
 * the issuer shows has one meaning; "nothing there" has none while a create may still be under way; a reissue is made
 * over nothing but a settled "nothing there". */
#include <check.h>
#include <string.h>

#include "worker/questions/mark_verdict.h"
#include "tests/support/suite.h"

#define NONE ISSUER_FOUND_NONE
#define ONE ISSUER_FOUND_ONE
#define MORE ISSUER_FOUND_MORE
#define DEAD ISSUER_FOUND_CANCELLED

static struct mark_facts facts_of(enum outbox_status status)
{
    return (struct mark_facts){.is_there = true, .status = status, .is_settled = true};
}

static void with_card(struct mark_facts *facts)
{
    facts->has_card = true;
    facts->card_is_active = true;
}

static void expect(struct mark_verdict verdict, enum mark_step step, const char *result)
{
    ck_assert_int_eq(verdict.step, step);
    if (result)
        ck_assert_str_eq(verdict.result, result);
}

#define ends(facts, found, ours, result) expect(mark_verdict_after_lookup(&(facts), found, ours), MARK_END, result)
#define goes(facts, found, ours, step) expect(mark_verdict_after_lookup(&(facts), found, ours), step, NULL)

TEST(an_event_that_is_open_or_done_needs_no_look_up)
{
    struct mark_facts gone = {0}, pending = facts_of(OUTBOX_PENDING), held = facts_of(OUTBOX_PROCESSING);
    struct mark_facts completed = facts_of(OUTBOX_COMPLETED);
    expect(mark_verdict_first(&gone), MARK_END, "gone");
    expect(mark_verdict_first(&pending), MARK_END, "open");
    expect(mark_verdict_first(&held), MARK_END, "open");
    completed.has_card = true; /* replaced, or cancelled later */
    expect(mark_verdict_first(&completed), MARK_END, "ok");
    completed.has_orphan = true; /* by this mark: core-api is not told yet */
    expect(mark_verdict_first(&completed), MARK_LOOK_UP, NULL);
    completed.has_orphan = false;
    completed.card_is_active = true;
    expect(mark_verdict_first(&completed), MARK_LOOK_UP, NULL);
}

TEST(a_failed_event_goes_on_with_its_card)
{
    struct mark_facts facts = facts_of(OUTBOX_FAILED);
    ends(facts, ONE, false, "found");
    ends(facts, NONE, false, "not_found");
    ends(facts, MORE, false, "duplicate");
    ends(facts, DEAD, false, "cancelled_at_issuer");
    facts.is_settled = false;
    ends(facts, ONE, false, "found");
    goes(facts, NONE, false, MARK_WAIT);
    goes(facts, DEAD, false, MARK_WAIT);
    facts.is_settled = true;
    with_card(&facts);
    ends(facts, ONE, true, "found");
    ends(facts, ONE, false, "duplicate");
    ends(facts, NONE, false, "missing");
    goes(facts, DEAD, false, MARK_UNLINK); /* a link may have been made */
    facts.was_unlinked = true;
    ends(facts, DEAD, false, "cancelled_at_issuer");
}

TEST(a_live_card_of_a_rejected_event_is_cancelled_and_then_unlinked)
{
    struct mark_facts facts = facts_of(OUTBOX_REJECTED);
    ends(facts, NONE, false, "ok");
    ends(facts, DEAD, false, "ok");
    goes(facts, ONE, false, MARK_CANCEL);
    goes(facts, MORE, false, MARK_CANCEL);
    facts.is_settled = false;
    goes(facts, NONE, false, MARK_WAIT);
    goes(facts, ONE, false, MARK_CANCEL);
    facts.is_settled = true;
    facts.has_orphan = true; /* also one that an earlier worker cancelled before it died */
    ends(facts, DEAD, false, "orphan_cancelled");
    with_card(&facts);
    goes(facts, DEAD, false, MARK_UNLINK);
    facts.was_unlinked = true;
    ends(facts, DEAD, false, "orphan_cancelled");
    goes(facts, ONE, true, MARK_CANCEL);
}

TEST(the_card_of_a_completed_event_has_the_state_that_the_issuer_shows)
{
    struct mark_facts facts = facts_of(OUTBOX_COMPLETED);
    with_card(&facts);
    ends(facts, ONE, true, "ok");
    ends(facts, ONE, false, "duplicate");
    ends(facts, MORE, true, "duplicate");
    ends(facts, NONE, false, "missing");
    goes(facts, DEAD, false, MARK_UNLINK); /* core-api removes it */
    facts.was_unlinked = true;
    ends(facts, DEAD, false, "cancelled_at_issuer");
    facts.is_frozen = true;
    ends(facts, ONE, true, "frozen");
    ends(facts, ONE, false, "duplicate");
}

TEST(a_reissue_is_made_over_nothing_but_a_settled_nothing)
{
    static const enum outbox_status others[] = {OUTBOX_PENDING, OUTBOX_PROCESSING, OUTBOX_COMPLETED, OUTBOX_REJECTED};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        struct mark_facts other = facts_of(others[i]);
        other.is_reissue = true;
        expect(mark_verdict_first(&other), MARK_END, "refused");
    }
    struct mark_facts facts = facts_of(OUTBOX_FAILED);
    facts.is_reissue = true;
    expect(mark_verdict_first(&facts), MARK_LOOK_UP, NULL);
    ends(facts, NONE, false, "reissued");
    ends(facts, ONE, false, "refused");
    ends(facts, MORE, false, "refused");
    ends(facts, DEAD, false, "refused");
    facts.is_settled = false;
    goes(facts, NONE, false, MARK_WAIT);
    with_card(&facts);
    expect(mark_verdict_first(&facts), MARK_END, "refused");
}

/* The receiver of a route says whether it has executed the event; "no" counts once no delivery can arrive any more. */
TEST(a_receiver_that_was_asked_decides_once_the_last_delivery_has_settled)
{
    struct mark_facts facts = facts_of(OUTBOX_FAILED);
    expect(mark_verdict_first(&facts), MARK_LOOK_UP, NULL);
    expect(mark_verdict_after_ask(&facts, true), MARK_END, "executed");
    expect(mark_verdict_after_ask(&facts, false), MARK_END, "not_executed");
    facts.is_settled = false;
    expect(mark_verdict_after_ask(&facts, true), MARK_END, "executed");
    expect(mark_verdict_after_ask(&facts, false), MARK_WAIT, NULL);
    facts.is_reissue = true;
    expect(mark_verdict_after_ask(&facts, false), MARK_END, "refused");
}

TEST(an_event_of_another_issuer_is_not_looked_up)
{
    struct mark_facts failed = facts_of(OUTBOX_FAILED), rejected = facts_of(OUTBOX_REJECTED);
    failed.is_elsewhere = rejected.is_elsewhere = true;
    failed.tries = rejected.tries = 1;
    expect(mark_verdict_first(&failed), MARK_LEAVE, NULL); /* to a worker of its issuer */
    failed.tries = rejected.tries = 9;
    expect(mark_verdict_first(&failed), MARK_END, "other_issuer");
    expect(mark_verdict_first(&rejected), MARK_LEAVE, NULL); /* nobody else looks for its card */
    failed.is_reissue = true;
    expect(mark_verdict_first(&failed), MARK_END, "refused");
    failed.is_elsewhere = false;
    expect(mark_verdict_first(&failed), MARK_LOOK_UP, NULL);
}

TESTS(mark_verdict)
