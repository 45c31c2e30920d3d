/* A worker that claims more than its peers can take lets leases run out while events wait; one that claims too little
 * leaves the others idle. And a peer that is away or rests must not be sent a storm. */
#include <check.h>
#include <stdlib.h>

#include "worker/slots.h"

enum { SLOTS = 64, ISSUER_MAX = 8, CORE_MAX = 16, NOW_MS = 1000000 };

static struct peers peers;
static struct slots slots;
static const struct flow_env env = {0};

static void on_change(struct target *target)
{
    (void)target;
}

static void set_up(void)
{
    target_init(&peers.issuer.target, 5, 1000, ISSUER_MAX, on_change);
    target_init(&peers.core.target, 5, 1000, CORE_MAX, on_change);
    ck_assert(slots_init(&slots, SLOTS, &env, NULL));
}

static void tear_down(void)
{
    slots_done(&slots);
}

static int capacity(void)
{
    return slots_capacity(&slots, &peers, NOW_MS);
}

START_TEST(each_slot_is_taken_once_and_comes_back)
{
    struct flow *taken[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        taken[i] = slots_take(&slots);
        ck_assert_ptr_nonnull(taken[i]);
        ck_assert_ptr_eq(taken[i]->env, &env);
        for (int other = 0; other < i; other++)
            ck_assert_ptr_ne(taken[i], taken[other]);
    }
    ck_assert_ptr_null(slots_take(&slots));
    ck_assert_int_eq(slots.in_flight, SLOTS);
    slots_give_back(&slots, taken[7]);
    ck_assert_ptr_eq(slots_take(&slots), taken[7]);
}
END_TEST

START_TEST(as_many_events_wait_as_the_slower_peer_works_on)
{
    ck_assert_int_eq(capacity(), 2 * ISSUER_MAX);
    slots.in_flight = 10;
    ck_assert_int_eq(capacity(), 2 * ISSUER_MAX - 10);
    slots.in_flight = SLOTS;
    ck_assert_int_eq(capacity(), 0);
    slots.in_flight = 0;
    peers.issuer.target.breaker.limit = peers.issuer.target.breaker.limit_max = 1000;
    peers.core.target.breaker.limit = peers.core.target.breaker.limit_max = 1000;
    ck_assert_int_eq(capacity(), SLOTS);
}
END_TEST

START_TEST(a_peer_that_recovers_gets_no_queue)
{
    peers.issuer.target.breaker.limit = 3;
    ck_assert_int_eq(capacity(), 3);
    peers.issuer.target.breaker.is_doubted = true; /* a 429 was its last answer */
    ck_assert_int_eq(capacity(), 1);
    slots.in_flight = 1;
    ck_assert_int_eq(capacity(), 0);
}
END_TEST

START_TEST(a_peer_that_is_away_gets_its_probe_and_nothing_else)
{
    struct breaker *breaker = &peers.core.target.breaker;
    breaker->state = BREAKER_OPEN;
    breaker->probe_at_ms = NOW_MS + 1;
    ck_assert_int_eq(capacity(), 0);
    breaker->probe_at_ms = NOW_MS;
    ck_assert_int_eq(capacity(), 1);
    breaker->state = BREAKER_HALF_OPEN;
    ck_assert_int_eq(capacity(), 0);
}
END_TEST

START_TEST(nothing_is_claimed_while_a_peer_is_paused)
{
    peers.core.target.is_paused = true;
    ck_assert_int_eq(capacity(), 0);
    peers.core.target.is_paused = false;
    ck_assert_int_eq(capacity(), 2 * ISSUER_MAX);
}
END_TEST

START_TEST(nothing_is_claimed_while_a_peer_rests)
{
    peers.issuer.target.rest_until_ms = NOW_MS + 1;
    ck_assert_int_eq(capacity(), 0);
    peers.issuer.target.rest_until_ms = NOW_MS;
    ck_assert_int_eq(capacity(), 2 * ISSUER_MAX);
}
END_TEST

START_TEST(the_claim_threshold_is_a_part_of_the_slots_and_one_during_recovery)
{
    ck_assert_int_eq(slots_claim_threshold(&slots, &peers), SLOTS / 8);
    slots.count = 4;
    ck_assert_int_eq(slots_claim_threshold(&slots, &peers), 1);
    slots.count = 100000;
    ck_assert_int_eq(slots_claim_threshold(&slots, &peers), 32);
    slots.count = SLOTS;
    peers.core.target.breaker.limit--;
    ck_assert_int_eq(slots_claim_threshold(&slots, &peers), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slots");
    TCase *tcase = tcase_create("slots");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, each_slot_is_taken_once_and_comes_back);
    tcase_add_test(tcase, as_many_events_wait_as_the_slower_peer_works_on);
    tcase_add_test(tcase, a_peer_that_recovers_gets_no_queue);
    tcase_add_test(tcase, a_peer_that_is_away_gets_its_probe_and_nothing_else);
    tcase_add_test(tcase, nothing_is_claimed_while_a_peer_is_paused);
    tcase_add_test(tcase, nothing_is_claimed_while_a_peer_rests);
    tcase_add_test(tcase, the_claim_threshold_is_a_part_of_the_slots_and_one_during_recovery);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
