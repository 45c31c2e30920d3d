/* The story: an operator asks whether the issuer has a card, and acts on the answer. Each pair of what we have and what
 * the issuer shows has one meaning; "nothing there" has none while a create may still be under way; a reissue is made
 * over nothing but a settled "nothing there". */
#include <check.h>
#include <string.h>

#include "common/core/decide/decide_mark.h"
#include "tests/support/suite.h"

#define NONE ISSUER_FOUND_NONE
#define ONE ISSUER_FOUND_ONE
#define MORE ISSUER_FOUND_MORE
#define DEAD ISSUER_FOUND_CANCELLED

static struct mark_facts facts_of(enum outbox_status status)
{
    return (struct mark_facts){.is_there = true, .status = status, .verifies = true};
}

static void with_card(struct mark_facts *facts)
{
    facts->has_card = true;
    facts->card_is_active = true;
}

static void expect(struct flow_verdict verdict, enum flow_verdict_kind kind, const char *code)
{
    ck_assert_int_eq(verdict.kind, kind);
    ck_assert_str_eq(verdict.code, code);
}

static void expect_step(struct flow_verdict verdict, enum flow_step step)
{
    ck_assert_int_eq(verdict.kind, FLOW_GO);
    ck_assert_int_eq(verdict.step, step);
}

static struct flow_verdict after(struct mark_facts *facts, enum flow_step step, enum outcome_kind kind,
                                 struct shown shown)
{
    const struct outcome outcome = {.kind = kind, .code = "issuer_http_500", .wait_ms = 7};
    return decide_mark(facts, step, STEP_LOOKUP, &outcome, &shown);
}

static struct flow_verdict found(const struct mark_facts *facts, enum issuer_found found, bool is_ours)
{
    struct mark_facts copy = *facts;
    return after(&copy, STEP_LOOKUP, OUTCOME_EXECUTED, (struct shown){.found = found, .is_ours = is_ours});
}

static struct flow_verdict asked(const struct mark_facts *facts, bool was_executed)
{
    struct mark_facts copy = *facts;
    return after(&copy, STEP_ASK, OUTCOME_EXECUTED, (struct shown){.was_executed = was_executed});
}

#define ends(facts, what, ours, result) expect(found(&(facts), what, ours), FLOW_COMPLETE, result)
#define goes(facts, what, ours, step) expect_step(found(&(facts), what, ours), step)
#define waits(facts, what) expect(found(&(facts), what, false), FLOW_DEFER, "settling")

TEST(an_event_that_is_open_or_done_needs_no_look_up)
{
    struct mark_facts gone = {0}, pending = facts_of(OUTBOX_PENDING), held = facts_of(OUTBOX_PROCESSING);
    struct mark_facts completed = facts_of(OUTBOX_COMPLETED);
    expect(decide_mark_first(&gone), FLOW_COMPLETE, "gone");
    expect(decide_mark_first(&pending), FLOW_COMPLETE, "open");
    expect(decide_mark_first(&held), FLOW_COMPLETE, "open");
    completed.has_card = true; /* replaced, or cancelled later */
    expect(decide_mark_first(&completed), FLOW_COMPLETE, "ok");
    completed.has_orphan = true; /* by this mark: core-api is not told yet */
    expect_step(decide_mark_first(&completed), STEP_LOOKUP);
    completed.has_orphan = false;
    completed.card_is_active = true;
    expect_step(decide_mark_first(&completed), STEP_LOOKUP);
}

TEST(a_failed_event_goes_on_with_its_card)
{
    struct mark_facts facts = facts_of(OUTBOX_FAILED);
    ends(facts, ONE, false, "found");
    ends(facts, NONE, false, "not_found");
    ends(facts, MORE, false, "duplicate");
    ends(facts, DEAD, false, "cancelled_at_issuer");
    facts.settle_left_ms = 5;
    ends(facts, ONE, false, "found");
    waits(facts, NONE);
    waits(facts, DEAD);
    facts.settle_left_ms = 0;
    with_card(&facts);
    ends(facts, ONE, true, "found");
    ends(facts, ONE, false, "duplicate");
    ends(facts, NONE, false, "missing");
    goes(facts, DEAD, false, STEP_UNLINK); /* a link may have been made */
    facts.was_unlinked = true;
    ends(facts, DEAD, false, "cancelled_at_issuer");
}

TEST(a_live_card_of_a_rejected_event_is_cancelled_and_then_unlinked)
{
    struct mark_facts facts = facts_of(OUTBOX_REJECTED);
    ends(facts, NONE, false, "ok");
    ends(facts, DEAD, false, "ok");
    goes(facts, ONE, false, STEP_MARK); /* it is noted first */
    goes(facts, MORE, false, STEP_MARK);
    facts.settle_left_ms = 5;
    waits(facts, NONE);
    goes(facts, ONE, false, STEP_MARK);
    facts.settle_left_ms = 0;
    facts.has_orphan = true; /* also one that an earlier worker cancelled before it died */
    ends(facts, DEAD, false, "orphan_cancelled");
    with_card(&facts);
    goes(facts, DEAD, false, STEP_UNLINK);
    facts.was_unlinked = true;
    ends(facts, DEAD, false, "orphan_cancelled");
    goes(facts, ONE, true, STEP_CANCEL);
}

TEST(the_card_of_a_completed_event_has_the_state_that_the_issuer_shows)
{
    struct mark_facts facts = facts_of(OUTBOX_COMPLETED);
    with_card(&facts);
    ends(facts, ONE, true, "ok");
    ends(facts, ONE, false, "duplicate");
    ends(facts, MORE, true, "duplicate");
    ends(facts, NONE, false, "missing");
    goes(facts, DEAD, false, STEP_MARK); /* it is shown as closed */
    facts.has_orphan = true;
    goes(facts, DEAD, false, STEP_UNLINK); /* core-api removes it */
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
        expect(decide_mark_first(&other), FLOW_COMPLETE, "refused");
    }
    struct mark_facts facts = facts_of(OUTBOX_FAILED);
    facts.is_reissue = true;
    expect_step(decide_mark_first(&facts), STEP_LOOKUP);
    ends(facts, NONE, false, "reissued");
    ends(facts, ONE, false, "refused");
    ends(facts, MORE, false, "refused");
    ends(facts, DEAD, false, "refused");
    facts.settle_left_ms = 5;
    waits(facts, NONE);
    with_card(&facts);
    expect(decide_mark_first(&facts), FLOW_COMPLETE, "refused");
}

/* The receiver of a route says whether it has executed the event; "no" counts once no delivery can arrive any more. */
TEST(a_receiver_that_was_asked_decides_once_the_last_delivery_has_settled)
{
    struct mark_facts facts = facts_of(OUTBOX_FAILED);
    facts.is_delivery = true;
    expect_step(decide_mark_first(&facts), STEP_ASK);
    expect(asked(&facts, true), FLOW_COMPLETE, "executed");
    expect(asked(&facts, false), FLOW_COMPLETE, "not_executed");
    facts.settle_left_ms = 5;
    expect(asked(&facts, true), FLOW_COMPLETE, "executed");
    expect(asked(&facts, false), FLOW_DEFER, "settling");
    facts.is_reissue = true;
    expect(asked(&facts, false), FLOW_COMPLETE, "refused");
}

TEST(an_event_of_another_issuer_is_not_looked_up)
{
    struct mark_facts failed = facts_of(OUTBOX_FAILED), rejected = facts_of(OUTBOX_REJECTED);
    failed.is_of_other_issuer = rejected.is_of_other_issuer = true;
    failed.tries = rejected.tries = 1;
    expect(decide_mark_first(&failed), FLOW_DEFER, "other_issuer"); /* to a worker of its issuer */
    failed.tries = rejected.tries = 9;
    expect(decide_mark_first(&failed), FLOW_COMPLETE, "other_issuer");
    expect(decide_mark_first(&rejected), FLOW_DEFER, "other_issuer"); /* nobody else looks for its card */
    failed.is_reissue = true;
    expect(decide_mark_first(&failed), FLOW_COMPLETE, "refused");
    failed.is_of_other_issuer = false;
    expect_step(decide_mark_first(&failed), STEP_LOOKUP);
}

/* A cancel that is refused is looked at, where the issuer reads one card; then an operator must close the card. */
TEST(a_card_that_the_issuer_does_not_close_is_left_to_an_operator)
{
    struct mark_facts facts = facts_of(OUTBOX_REJECTED);
    expect_step(after(&facts, STEP_MARK, OUTCOME_EXECUTED, (struct shown){0}), STEP_CANCEL);
    ck_assert(facts.has_orphan);
    expect_step(after(&facts, STEP_CANCEL, OUTCOME_REFUSED, (struct shown){0}), STEP_VERIFY);
    expect(after(&facts, STEP_VERIFY, OUTCOME_EXECUTED, (struct shown){0}), FLOW_COMPLETE, "orphan_left");
    expect(after(&facts, STEP_VERIFY, OUTCOME_REFUSED, (struct shown){0}), FLOW_COMPLETE, "orphan_left");
    expect_step(after(&facts, STEP_VERIFY, OUTCOME_EXECUTED, (struct shown){.is_gone = true}), STEP_LOOKUP);
    facts.verifies = false;
    expect(after(&facts, STEP_CANCEL, OUTCOME_REFUSED, (struct shown){0}), FLOW_COMPLETE, "orphan_left");
    for (facts.cancels = 0; facts.cancels < 7;)
        expect_step(after(&facts, STEP_CANCEL, OUTCOME_EXECUTED, (struct shown){0}), STEP_LOOKUP);
    expect(after(&facts, STEP_CANCEL, OUTCOME_EXECUTED, (struct shown){0}), FLOW_DEFER, "many_cards");
}

TEST(a_call_that_got_no_answer_decides_nothing)
{
    static const enum flow_step steps[] = {STEP_CHECK, STEP_LOOKUP, STEP_CANCEL, STEP_VERIFY, STEP_UNLINK, STEP_ASK};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct mark_facts facts = facts_of(OUTBOX_REJECTED);
        struct flow_verdict verdict = after(&facts, steps[i], OUTCOME_UNKNOWN, (struct shown){0});
        ck_assert_int_eq(verdict.kind, FLOW_DEFER);
        ck_assert_int_eq(verdict.wait_ms, 7);
    }
}

TESTS(decide_mark)
