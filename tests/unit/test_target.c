/* The story: events queue for a peer in order, up to its concurrency; the moment its breaker opens nobody waits for it any more, and after
 * the outage the queue goes on by itself. Nobody is told twice and nobody is forgotten. */
#include <check.h>

#include "common/clock.h"
#include "worker/target.h"

enum { TICKETS = 12, ROOM = 3, PROBE_MS = 2000 };

struct caller {
    struct target_ticket ticket;
    int go, shut;
    int turn; /* the how-manieth to be told */
};

static struct target target;
static struct caller callers[TICKETS];
static int changes, turns;
static bool leave_in_turn;

static void on_change(struct target *changed)
{
    ck_assert_ptr_eq(changed, &target);
    changes++;
}

static void on_turn(struct target_ticket *ticket, enum target_entry entry)
{
    struct caller *caller = container_of(ticket, struct caller, ticket);
    ck_assert(entry == TARGET_GO || entry == TARGET_SHUT);
    ck_assert(!ticket->is_waiting);
    caller->turn = ++turns;
    if (entry == TARGET_GO)
        caller->go++;
    else
        caller->shut++;
    if (leave_in_turn && entry == TARGET_GO)
        target_leave(&target, ticket, BREAKER_NOTHING);
}

static void set_up(void)
{
    clock_freeze(1, 1000 * 1000);
    changes = turns = 0;
    leave_in_turn = false;
    target_init(&target, "issuer", 2, PROBE_MS, ROOM, on_change);
    for (int i = 0; i < TICKETS; i++)
        callers[i] = (struct caller){.ticket = {.on_turn = on_turn}};
}

static void tear_down(void)
{
    clock_release();
}

static void later(int64_t ms)
{
    clock_freeze(1, clock_mono_us() + ms * 1000);
}

static enum target_entry enter(int i)
{
    return target_enter(&target, &callers[i].ticket);
}

static void leave(int i, enum breaker_result result)
{
    target_leave(&target, &callers[i].ticket, result);
}

static void fill(void)
{
    for (int i = 0; i < ROOM; i++)
        ck_assert_int_eq(enter(i), TARGET_GO);
}

/* How many more calls it would let in now. */
static int room(void)
{
    return breaker_room(&target.breaker, clock_mono_ms());
}

START_TEST(whoever_finds_room_goes_and_the_rest_wait)
{
    fill();
    for (int i = ROOM; i < TICKETS; i++) {
        ck_assert_int_eq(enter(i), TARGET_WAIT);
        ck_assert(callers[i].ticket.is_waiting);
    }
    ck_assert_int_eq(turns, 0);
}
END_TEST

START_TEST(one_who_leaves_lets_in_the_one_who_waited_longest)
{
    fill();
    for (int i = ROOM; i < TICKETS; i++)
        ck_assert_int_eq(enter(i), TARGET_WAIT);
    for (int i = 0; i < TICKETS; i++) {
        leave(i, BREAKER_GOOD);
        int told = i + ROOM < TICKETS ? i + 1 : TICKETS - ROOM;
        ck_assert_int_eq(turns, told);
        if (i + ROOM < TICKETS)
            ck_assert_int_eq(callers[i + ROOM].turn, i + 1);
    }
    for (int i = ROOM; i < TICKETS; i++) {
        ck_assert_int_eq(callers[i].go, 1);
        ck_assert_int_eq(callers[i].shut, 0);
    }
    ck_assert_ptr_null(target.first);
    ck_assert_ptr_null(target.last);
    ck_assert_int_eq(changes, TICKETS);
}
END_TEST

START_TEST(when_it_opens_everybody_who_waits_is_told_at_once)
{
    fill();
    for (int i = ROOM; i < TICKETS; i++)
        ck_assert_int_eq(enter(i), TARGET_WAIT);
    leave(0, BREAKER_TRIP);
    for (int i = ROOM; i < TICKETS; i++) {
        ck_assert_int_eq(callers[i].shut, 1);
        ck_assert_int_eq(callers[i].go, 0);
        ck_assert_int_eq(callers[i].turn, i - ROOM + 1);
    }
    ck_assert_ptr_null(target.first);
    leave(1, BREAKER_GOOD); /* old news: nothing changes */
    leave(2, BREAKER_GOOD);
    ck_assert_int_eq(turns, TICKETS - ROOM);
    ck_assert_int_eq(target.breaker.state, BREAKER_OPEN);
}
END_TEST

START_TEST(while_it_is_open_whoever_enters_is_told_and_owes_nothing)
{
    ck_assert_int_eq(enter(0), TARGET_GO);
    leave(0, BREAKER_TRIP);
    ck_assert_int_eq(enter(1), TARGET_SHUT);
    ck_assert(!callers[1].ticket.is_waiting);
    ck_assert_int_eq(target.breaker.in_flight, 0);
    ck_assert_int_eq(room(), 0);
}
END_TEST

START_TEST(after_the_interval_one_probe_goes_and_the_others_are_still_told)
{
    ck_assert_int_eq(enter(0), TARGET_GO);
    leave(0, BREAKER_TRIP);
    later(PROBE_MS - 1);
    ck_assert_int_eq(enter(1), TARGET_SHUT);
    later(1);
    ck_assert_int_eq(room(), 1);
    ck_assert_int_eq(enter(2), TARGET_GO);
    ck_assert_int_eq(enter(3), TARGET_SHUT);
    leave(2, BREAKER_GOOD);
    ck_assert_int_eq(target.breaker.state, BREAKER_CLOSED);
    ck_assert_int_eq(enter(4), TARGET_GO);
    ck_assert_int_eq(enter(5), TARGET_WAIT); /* one at a time at first */
    leave(4, BREAKER_GOOD);
    ck_assert_int_eq(callers[5].go, 1);
    ck_assert_int_eq(room(), 1); /* two at a time now, one of them is out */
}
END_TEST

START_TEST(nobody_overtakes_the_queue)
{
    fill();
    ck_assert_int_eq(enter(3), TARGET_WAIT);
    target.breaker.limit_max = target.breaker.limit = ROOM + 2; /* room without anybody leaving */
    ck_assert_int_eq(enter(4), TARGET_WAIT);
    leave(0, BREAKER_GOOD);
    ck_assert_int_eq(callers[3].turn, 1);
    ck_assert_int_eq(callers[4].turn, 2);
}
END_TEST

START_TEST(a_turn_that_is_given_back_at_once_is_the_next_ones)
{
    fill();
    for (int i = ROOM; i < TICKETS; i++)
        ck_assert_int_eq(enter(i), TARGET_WAIT);
    leave_in_turn = true;
    leave(0, BREAKER_GOOD);
    for (int i = ROOM; i < TICKETS; i++)
        ck_assert_int_eq(callers[i].go, 1);
    ck_assert_int_eq(turns, TICKETS - ROOM);
    ck_assert_int_eq(target.breaker.in_flight, ROOM - 1);
    ck_assert_ptr_null(target.first);
    ck_assert_ptr_null(target.last);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("target");
    TCase *tcase = tcase_create("target");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, whoever_finds_room_goes_and_the_rest_wait);
    tcase_add_test(tcase, one_who_leaves_lets_in_the_one_who_waited_longest);
    tcase_add_test(tcase, when_it_opens_everybody_who_waits_is_told_at_once);
    tcase_add_test(tcase, while_it_is_open_whoever_enters_is_told_and_owes_nothing);
    tcase_add_test(tcase, after_the_interval_one_probe_goes_and_the_others_are_still_told);
    tcase_add_test(tcase, nobody_overtakes_the_queue);
    tcase_add_test(tcase, a_turn_that_is_given_back_at_once_is_the_next_ones);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
