/* The story: an operator asks whether the issuer has a card, and acts on the answer. Each pair of what we have and what the
 * issuer shows has one meaning; "nothing there" has none while a create may still be under way; a reissue is made over
 * nothing but a settled "nothing there". */
#include <check.h>
#include <string.h>

#include "worker/reconcile.h"

#define NONE ISSUER_FOUND_NONE
#define ONE ISSUER_FOUND_ONE
#define MORE ISSUER_FOUND_MORE
#define DEAD ISSUER_FOUND_CANCELLED

static struct reconcile_facts facts_of(enum outbox_status status)
{
    return (struct reconcile_facts){.is_there = true, .status = status, .is_settled = true};
}

static void with_card(struct reconcile_facts *facts)
{
    facts->has_card = true;
    facts->card_is_active = true;
}

static void expect(struct reconcile_verdict verdict, enum reconcile_step step, const char *result)
{
    ck_assert_int_eq(verdict.step, step);
    if (result)
        ck_assert_str_eq(verdict.result, result);
}

#define ends(facts, found, ours, result) expect(reconcile_decide(&(facts), found, ours), RECONCILE_END, result)
#define goes(facts, found, ours, step) expect(reconcile_decide(&(facts), found, ours), step, NULL)

START_TEST(what_needs_no_question_is_not_asked)
{
    struct reconcile_facts gone = {0}, pending = facts_of(OUTBOX_PENDING), held = facts_of(OUTBOX_PROCESSING);
    struct reconcile_facts completed = facts_of(OUTBOX_COMPLETED);
    expect(reconcile_begin(&gone), RECONCILE_END, "gone");
    expect(reconcile_begin(&pending), RECONCILE_END, "open");
    expect(reconcile_begin(&held), RECONCILE_END, "open");
    completed.has_card = true; /* replaced, or cancelled later */
    expect(reconcile_begin(&completed), RECONCILE_END, "ok");
    completed.card_is_active = true;
    expect(reconcile_begin(&completed), RECONCILE_LOOK, NULL);
}
END_TEST

START_TEST(a_failed_event_goes_on_with_its_card)
{
    struct reconcile_facts facts = facts_of(OUTBOX_FAILED);
    ends(facts, ONE, false, "found");
    ends(facts, NONE, false, "not_found");
    ends(facts, MORE, false, "duplicate");
    ends(facts, DEAD, false, "cancelled_at_issuer");
    facts.is_settled = false;
    ends(facts, ONE, false, "found");
    goes(facts, NONE, false, RECONCILE_WAIT);
    goes(facts, DEAD, false, RECONCILE_WAIT);
    facts.is_settled = true;
    with_card(&facts);
    ends(facts, ONE, true, "found");
    ends(facts, ONE, false, "duplicate");
    ends(facts, NONE, false, "missing");
    goes(facts, DEAD, false, RECONCILE_UNLINK); /* a link may have been made */
    facts.was_unlinked = true;
    ends(facts, DEAD, false, "cancelled_at_issuer");
}
END_TEST

START_TEST(a_live_card_of_a_rejected_event_is_cancelled_and_then_unlinked)
{
    struct reconcile_facts facts = facts_of(OUTBOX_REJECTED);
    ends(facts, NONE, false, "ok");
    ends(facts, DEAD, false, "ok");
    goes(facts, ONE, false, RECONCILE_CANCEL);
    goes(facts, MORE, false, RECONCILE_CANCEL);
    facts.is_settled = false;
    goes(facts, NONE, false, RECONCILE_WAIT);
    goes(facts, ONE, false, RECONCILE_CANCEL);
    facts.is_settled = true;
    facts.has_orphan = true; /* also one that an earlier worker cancelled before it died */
    ends(facts, DEAD, false, "orphan_cancelled");
    with_card(&facts);
    goes(facts, DEAD, false, RECONCILE_UNLINK);
    facts.was_unlinked = true;
    ends(facts, DEAD, false, "orphan_cancelled");
    goes(facts, ONE, true, RECONCILE_CANCEL);
}
END_TEST

START_TEST(a_completed_event_is_only_compared)
{
    struct reconcile_facts facts = facts_of(OUTBOX_COMPLETED);
    with_card(&facts);
    ends(facts, ONE, true, "ok");
    ends(facts, ONE, false, "duplicate");
    ends(facts, MORE, true, "duplicate");
    ends(facts, NONE, false, "missing");
    ends(facts, DEAD, false, "cancelled_at_issuer");
}
END_TEST

START_TEST(a_reissue_is_made_over_nothing_but_a_settled_nothing)
{
    static const enum outbox_status others[] = {OUTBOX_PENDING, OUTBOX_PROCESSING, OUTBOX_COMPLETED, OUTBOX_REJECTED};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        struct reconcile_facts other = facts_of(others[i]);
        other.is_reissue = true;
        expect(reconcile_begin(&other), RECONCILE_END, "refused");
    }
    struct reconcile_facts facts = facts_of(OUTBOX_FAILED);
    facts.is_reissue = true;
    expect(reconcile_begin(&facts), RECONCILE_LOOK, NULL);
    ends(facts, NONE, false, "reissued");
    ends(facts, ONE, false, "refused");
    ends(facts, MORE, false, "refused");
    ends(facts, DEAD, false, "refused");
    facts.is_settled = false;
    goes(facts, NONE, false, RECONCILE_WAIT);
    with_card(&facts);
    expect(reconcile_begin(&facts), RECONCILE_END, "refused");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reconcile");
    TCase *tcase = tcase_create("reconcile");
    tcase_add_test(tcase, what_needs_no_question_is_not_asked);
    tcase_add_test(tcase, a_failed_event_goes_on_with_its_card);
    tcase_add_test(tcase, a_live_card_of_a_rejected_event_is_cancelled_and_then_unlinked);
    tcase_add_test(tcase, a_completed_event_is_only_compared);
    tcase_add_test(tcase, a_reissue_is_made_over_nothing_but_a_settled_nothing);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
