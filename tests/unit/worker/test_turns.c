/* An event that may have killed its worker is tried while the worker holds nothing else, of any type: or it would take
 * the events of others along. And while it waits for that, or its target is away, the others must go on. */
#include <check.h>
#include <stdlib.h>

#include "worker/flow/turns.h"
#include "tests/support/suite.h"

enum { TYPES = 3 };

static struct target targets[TYPES];
static struct slots slots;
static struct turns turns;
static struct turns_member members[TYPES];
static const struct flow_env env = {0};
static int64_t now_ms;

static void on_change(struct target *target)
{
    (void)target;
}

static void set_up(void)
{
    now_ms = 1000000;
    ck_assert(slots_init(&slots, 8, TYPES, &env, NULL));
    turns_init(&turns, &slots);
    for (int i = 0; i < TYPES; i++) {
        target_init(&targets[i], 5, 1000, 4, on_change);
        slots.shares[i].targets[0] = &targets[i];
        turns_join(&turns, &members[i], &slots.shares[i]);
    }
}

static void tear_down(void)
{
    slots_done(&slots);
}

static void expect(enum turns_answer first, enum turns_answer second, enum turns_answer third)
{
    ck_assert_int_eq(turns_ask(&turns, &members[0], now_ms), first);
    ck_assert_int_eq(turns_ask(&turns, &members[1], now_ms), second);
    ck_assert_int_eq(turns_ask(&turns, &members[2], now_ms), third);
}

/* The claim of an event that is tried alone finds it; the event ends after so long. */
static void try_alone(int type, int64_t took_ms)
{
    slots_grant(&slots, &slots.shares[type], 1);
    turns_note_sent(&turns, &members[type]);
    expect(TURNS_WAIT, TURNS_WAIT, TURNS_WAIT); /* the claim is in flight */
    slots_settle(&slots, &slots.shares[type]);
    struct flow *flow = slots_take(&slots, &slots.shares[type], false);
    turns_note_taken(&turns);
    now_ms += took_ms;
    expect(TURNS_WAIT, TURNS_WAIT, TURNS_WAIT);
    slots_give_back(&slots, flow);
}

TEST(without_lost_events_all_types_claim)
{
    expect(TURNS_TAKE, TURNS_TAKE, TURNS_TAKE);
}

TEST(a_lost_event_of_one_type_waits_until_the_slots_of_all_are_free)
{
    struct flow *flow = slots_take(&slots, &slots.shares[2], false);
    members[1].has_lost = true;
    expect(TURNS_WAIT, TURNS_WAIT, TURNS_WAIT);
    slots_give_back(&slots, flow);
    slots_grant(&slots, &slots.shares[0], 4); /* a claim that was sent before may bring events */
    expect(TURNS_WAIT, TURNS_WAIT, TURNS_WAIT);
    slots_settle(&slots, &slots.shares[0]);
    expect(TURNS_WAIT, TURNS_TAKE_ALONE, TURNS_WAIT);
}

TEST(after_it_the_others_have_a_pause_that_is_longer_than_its_turn_was)
{
    members[1].has_lost = true;
    expect(TURNS_WAIT, TURNS_TAKE_ALONE, TURNS_WAIT);
    try_alone(1, 500);
    expect(TURNS_TAKE, TURNS_TAKE, TURNS_TAKE);
    now_ms += 4 * 500;
    expect(TURNS_TAKE, TURNS_TAKE, TURNS_TAKE);
    now_ms += 20;
    expect(TURNS_WAIT, TURNS_TAKE_ALONE, TURNS_WAIT);
}

TEST(types_with_lost_events_take_turns)
{
    int tried[TYPES] = {0};
    members[0].has_lost = members[2].has_lost = true;
    for (int turn = 0; turn < 6; turn++) {
        for (int i = 0; i < TYPES; i++) {
            if (turns_ask(&turns, &members[i], now_ms) == TURNS_TAKE_ALONE) {
                tried[i]++;
                try_alone(i, 10);
                break;
            }
        }
        ck_assert_int_eq(turns_ask(&turns, &members[1], now_ms), TURNS_TAKE);
        now_ms += 4 * 10 + 20;
    }
    ck_assert_int_eq(tried[0], 3);
    ck_assert_int_eq(tried[1], 0);
    ck_assert_int_eq(tried[2], 3);
}

TEST(nobody_waits_for_a_lost_event_whose_target_is_away)
{
    members[1].has_lost = true;
    targets[1].breaker.state = BREAKER_OPEN;
    targets[1].breaker.probe_at_ms = now_ms + 1000;
    expect(TURNS_TAKE, TURNS_TAKE, TURNS_TAKE);
    targets[1].is_paused = true;
    expect(TURNS_TAKE, TURNS_TAKE, TURNS_TAKE);
    members[0].has_lost = true;
    expect(TURNS_TAKE_ALONE, TURNS_WAIT, TURNS_WAIT);
    members[0].has_lost = false; /* another worker has it */
    turns_end(&turns, now_ms);
    now_ms += 1000;
    expect(TURNS_TAKE, TURNS_TAKE, TURNS_TAKE);
}

TEST(a_target_that_closes_while_the_slots_become_empty_stops_nobody)
{
    struct flow *flow = slots_take(&slots, &slots.shares[0], false);
    members[1].has_lost = true;
    expect(TURNS_WAIT, TURNS_WAIT, TURNS_WAIT);
    targets[1].is_paused = true;
    expect(TURNS_TAKE, TURNS_TAKE, TURNS_TAKE);
    slots_give_back(&slots, flow);
}

TEST(a_full_target_is_not_away)
{
    members[1].has_lost = true;
    struct flow *flows[8];
    for (int i = 0; i < 8; i++)
        flows[i] = slots_take(&slots, &slots.shares[1], false);
    expect(TURNS_WAIT, TURNS_WAIT, TURNS_WAIT);
    for (int i = 0; i < 8; i++)
        slots_give_back(&slots, flows[i]);
    expect(TURNS_WAIT, TURNS_TAKE_ALONE, TURNS_WAIT);
}

TESTS_BETWEEN(turns, set_up, tear_down)
