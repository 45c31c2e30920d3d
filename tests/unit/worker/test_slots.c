/* A worker that claims more than its peers can take lets leases run out while events wait; one that claims too little
 * leaves the others idle. A peer that is away or rests must not be sent a storm. And no type of events may keep another
 * one from the slots, however many of its events are due and however slow its target is. */
#include <check.h>
#include <stdlib.h>

#include "worker/flow/slots.h"
#include "tests/support/suite.h"

enum { SLOTS = 64, ISSUER_MAX = 8, CORE_MAX = 16, NOW_MS = 1000000, TYPES_MAX = 33 };

static struct target issuer, core, routes[TYPES_MAX];
static struct slots slots;
static struct slots_share *cards;
static const struct flow_env env = {0};

static void on_change(struct target *target)
{
    (void)target;
}

/* The first type has two targets, each of the others has one that takes route_max calls at a time. */
static void open_slots(int count, int types, int route_max)
{
    slots_done(&slots);
    ck_assert(slots_init(&slots, count, types, &env, NULL));
    cards = &slots.shares[0];
    cards->targets[0] = &issuer;
    cards->targets[1] = &core;
    for (int i = 1; i < types; i++) {
        target_init(&routes[i], 5, 1000, route_max, on_change);
        slots.shares[i].targets[0] = &routes[i];
    }
}

static void set_up(void)
{
    target_init(&issuer, 5, 1000, ISSUER_MAX, on_change);
    target_init(&core, 5, 1000, CORE_MAX, on_change);
    open_slots(SLOTS, 1, 0);
}

static void tear_down(void)
{
    slots_done(&slots);
}

static int capacity(void)
{
    return slots_capacity(&slots, cards, NOW_MS);
}

TEST(each_slot_is_taken_once_and_comes_back)
{
    struct flow *taken[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        taken[i] = slots_take(&slots, cards, false);
        ck_assert_ptr_nonnull(taken[i]);
        ck_assert_ptr_eq(taken[i]->env, &env);
        for (int other = 0; other < i; other++)
            ck_assert_ptr_ne(taken[i], taken[other]);
    }
    ck_assert_ptr_null(slots_take(&slots, cards, false));
    ck_assert_int_eq(slots.in_flight, SLOTS);
    slots_give_back(&slots, taken[7]);
    ck_assert_ptr_eq(slots_take(&slots, cards, false), taken[7]);
    ck_assert(!slots_are_empty(&slots));
    for (int i = 0; i < SLOTS; i++)
        slots_give_back(&slots, taken[i]);
    ck_assert(slots_are_empty(&slots));
    slots_grant(&slots, cards, 3);
    ck_assert(!slots_are_empty(&slots)); /* the answer may bring three */
    slots_settle(&slots, cards);
    ck_assert(slots_are_empty(&slots));
}

/* So many of its events are held. */
static void hold(struct slots_share *share, int count)
{
    while (slots_held(share) < count)
        ck_assert_ptr_nonnull(slots_take(&slots, share, false));
}

TEST(as_many_events_wait_as_the_slower_peer_works_on)
{
    ck_assert_int_eq(capacity(), 2 * ISSUER_MAX);
    hold(cards, 10);
    ck_assert_int_eq(capacity(), 2 * ISSUER_MAX - 10);
    hold(cards, SLOTS);
    ck_assert_int_eq(capacity(), 0);
    open_slots(SLOTS, 1, 0);
    issuer.breaker.limit = issuer.breaker.limit_max = 1000;
    core.breaker.limit = core.breaker.limit_max = 1000;
    ck_assert_int_eq(capacity(), SLOTS);
}

TEST(a_peer_that_recovers_gets_no_queue)
{
    issuer.breaker.limit = 3;
    ck_assert_int_eq(capacity(), 3);
    issuer.breaker.is_doubted = true; /* a 429 was its last answer */
    ck_assert_int_eq(capacity(), 1);
    hold(cards, 1);
    ck_assert_int_eq(capacity(), 0);
}

TEST(a_peer_that_is_away_gets_its_probe_and_nothing_else)
{
    struct breaker *breaker = &core.breaker;
    breaker->state = BREAKER_OPEN;
    breaker->probe_at_ms = NOW_MS + 1;
    ck_assert_int_eq(capacity(), 0);
    ck_assert(!slots_target_is_open(cards, NOW_MS));
    breaker->probe_at_ms = NOW_MS;
    ck_assert_int_eq(capacity(), 1);
    ck_assert(slots_target_is_open(cards, NOW_MS));
    breaker->state = BREAKER_HALF_OPEN;
    ck_assert_int_eq(capacity(), 0);
}

static void suspect(struct target *target, int64_t fresh_at_ms, int64_t again_at_ms)
{
    struct suspicion *suspicion = &target->suspicions[1];
    suspicion->is_suspected = true;
    suspicion->fresh_at_ms = fresh_at_ms;
    suspicion->again_at_ms = again_at_ms;
    target->suspected = 1;
}

static void expect_probe(enum slots_choice choice)
{
    ck_assert(slots_is_probe(cards));
    ck_assert_int_eq(slots_choose(cards, NOW_MS), choice);
    ck_assert_int_eq(capacity(), choice != SLOTS_NONE);
    ck_assert_int_eq(slots_target_is_open(cards, NOW_MS), choice != SLOTS_NONE);
}

TEST(a_peer_that_refuses_gets_a_probe_of_the_kind_that_is_due)
{
    ck_assert_int_eq(slots_choose(cards, NOW_MS), SLOTS_OLDEST);
    hold(cards, 1); /* what began before does not delay it */
    suspect(&core, NOW_MS + 1, NOW_MS + 1);
    expect_probe(SLOTS_NONE);
    suspect(&core, NOW_MS, NOW_MS + 1);
    expect_probe(SLOTS_FRESH);
    suspect(&core, NOW_MS, NOW_MS);
    expect_probe(SLOTS_FRESH_FIRST);
    suspect(&core, NOW_MS + 1, NOW_MS);
    expect_probe(SLOTS_REFUSED);
    suspect(&issuer, NOW_MS, NOW_MS + 1); /* a fresh one would be refused by one, a refused one by the other */
    expect_probe(SLOTS_NONE);
    issuer.suspected = issuer.suspicions[1].is_suspected = 0;
    ck_assert_int_eq(slots_claim_threshold(&slots, cards, NOW_MS), 1);
    struct flow *probe = slots_take(&slots, cards, true);
    ck_assert(probe->is_probe);
    expect_probe(SLOTS_NONE); /* one at a time */
    slots_give_back(&slots, probe);
    expect_probe(SLOTS_REFUSED);
    core.suspected = core.suspicions[1].is_suspected = 0;
    core.suspicions[1].wary_until_ms = NOW_MS + 1;
    ck_assert_int_eq(slots_choose(cards, NOW_MS), SLOTS_FRESH_FIRST);
    ck_assert_int_eq(capacity(), 2 * ISSUER_MAX - 1);
}

TEST(nothing_is_claimed_while_a_peer_is_paused)
{
    core.is_paused = true;
    ck_assert_int_eq(capacity(), 0);
    core.is_paused = false;
    ck_assert_int_eq(capacity(), 2 * ISSUER_MAX);
}

TEST(nothing_is_claimed_while_a_peer_rests)
{
    issuer.rest_until_ms = NOW_MS + 1;
    ck_assert_int_eq(capacity(), 0);
    issuer.rest_until_ms = NOW_MS;
    ck_assert_int_eq(capacity(), 2 * ISSUER_MAX);
}

TEST(the_claim_threshold_is_a_part_of_the_slots_and_one_during_recovery)
{
    ck_assert_int_eq(slots_claim_threshold(&slots, cards, 0), SLOTS / 8);
    open_slots(4, 1, 0);
    ck_assert_int_eq(slots_claim_threshold(&slots, cards, 0), 1);
    open_slots(100000, 1, 0);
    ck_assert_int_eq(slots_claim_threshold(&slots, cards, 0), 128);
    open_slots(SLOTS, 1, 0);
    core.breaker.limit--;
    ck_assert_int_eq(slots_claim_threshold(&slots, cards, 0), 1);
}

/* ---- several types ---- */

static void open_wide(int count, int types)
{
    issuer.breaker.limit = issuer.breaker.limit_max = core.breaker.limit = core.breaker.limit_max = 10000;
    open_slots(count, types, 10000);
}

static int capacity_of(int type)
{
    return slots_capacity(&slots, &slots.shares[type], NOW_MS);
}

/* It has more events than slots. */
static void starve(int type)
{
    slots.shares[type].is_hungry = slots.shares[type].has_backlog = true;
}

TEST(an_idle_route_costs_cards_its_small_part_and_no_more)
{
    static const struct {
        int count, types, cards_get;
    } cases[] = {{128, 2, 112}, {128, 4, 104}, {128, 33, 96}, {64, 33, 48}, {4, 33, 3}, {2, 33, 2}, {1, 33, 1}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        open_wide(cases[i].count, cases[i].types);
        starve(0);
        ck_assert_int_eq(capacity(), cases[i].cards_get);
    }
}

TEST(a_route_that_is_away_costs_cards_nothing)
{
    open_wide(128, 2);
    starve(0);
    starve(1); /* with a million events waiting */
    routes[1].breaker.state = BREAKER_OPEN;
    routes[1].breaker.probe_at_ms = NOW_MS + 1;
    ck_assert_int_eq(capacity(), 128);
    ck_assert_int_eq(capacity_of(1), 0);
    routes[1].breaker.probe_at_ms = NOW_MS;
    ck_assert_int_eq(capacity(), 127);
    ck_assert_int_eq(capacity_of(1), 1); /* the probe */
}

TEST(a_slow_route_that_took_everything_gives_cards_their_half_back)
{
    open_wide(128, 2);
    starve(1);
    ck_assert_int_eq(capacity_of(1), 112);
    hold(&slots.shares[1], 112);
    starve(0);
    ck_assert_int_eq(capacity(), 16);
    hold(cards, 16);
    for (int i = 0; i < 48; i++) { /* an event of the route ends: the slot is for cards */
        slots.shares[1].in_flight--;
        slots.in_flight--;
        ck_assert_int_eq(capacity_of(1), 0);
        ck_assert_int_eq(capacity(), 1);
        slots.shares[0].in_flight++;
        slots.in_flight++;
    }
    ck_assert_int_eq(slots_held(cards), 64);
    slots.shares[1].in_flight--;
    slots.in_flight--;
    ck_assert_int_eq(capacity_of(1), 1); /* now the route has less than its half */
    ck_assert_int_eq(capacity(), 0);
}

TEST(a_claim_that_may_find_nothing_takes_no_more_than_a_small_part)
{
    open_wide(128, 33);
    cards->is_hungry = true;
    ck_assert_int_eq(capacity(), 16);
    cards->has_backlog = true;
    ck_assert_int_eq(capacity(), 96);
    open_wide(128, 2);
    slots.shares[1].is_hungry = true; /* by its poll */
    ck_assert_int_eq(capacity_of(1), 16);
    slots_grant(&slots, &slots.shares[1], 16);
    slots.shares[1].is_hungry = false;
    starve(0);
    ck_assert_int_eq(capacity(), 112);
    slots_settle(&slots, &slots.shares[1]);
    slots.shares[1].has_backlog = true;
    slots.shares[1].is_hungry = false;
    ck_assert_int_eq(capacity(), 112);
}

TEST(what_a_claim_in_flight_may_take_is_nobody_elses)
{
    open_wide(128, 2);
    starve(0);
    slots_grant(&slots, cards, 112);
    starve(1);
    ck_assert_int_eq(capacity_of(1), 16);
    slots_grant(&slots, &slots.shares[1], 16);
    ck_assert_int_eq(capacity_of(0), 0);
}

/* libcheck notes each assertion that holds in a file: in these loops that takes longer than the test. */
static void expect(bool holds, const char *what, int found)
{
    if (!holds)
        ck_abort_msg("%s: %d", what, found);
}

/* Random types, slots, targets, demands and lengths of events: all that is promised, at each step. */
struct world {
    int due[TYPES_MAX];       /* events that wait */
    int claimed[TYPES_MAX];   /* by the claim in flight; -1 = there is none */
    int64_t waits[TYPES_MAX]; /* grants to others since it asked in vain */
    bool is_slow[TYPES_MAX];
    struct flow *held[256];
};

static void claim_in_turn(struct world *world, int type)
{
    struct slots_share *share = &slots.shares[type];
    share->is_hungry = world->due[type] > 0 && world->claimed[type] < 0;
    if (!share->is_hungry)
        return;
    int limit = slots_capacity(&slots, share, NOW_MS);
    int room = slots_target_room(share, NOW_MS);
    expect(limit <= slots.count - slots.in_flight - slots.granted && limit <= room, "capacity", limit);
    if (limit < 1)
        return;
    slots_grant(&slots, share, limit);
    world->claimed[type] = world->due[type] < limit ? world->due[type] : limit;
    share->is_hungry = false;
    for (int other = 0; other < slots.shares_count; other++)
        if (other != type && slots.shares[other].is_hungry && slots_held(&slots.shares[other]) == 0 &&
            slots_target_is_open(&slots.shares[other], NOW_MS))
            world->waits[other]++;
    world->waits[type] = 0;
}

static void answer(struct world *world, int type)
{
    struct slots_share *share = &slots.shares[type];
    if (world->claimed[type] < 0)
        return;
    share->has_backlog = world->claimed[type] == share->granted;
    slots_settle(&slots, share);
    for (; world->claimed[type] > 0; world->claimed[type]--, world->due[type]--) {
        struct flow *flow = slots_take(&slots, share, false);
        expect(flow != NULL, "slots left", world->claimed[type]);
        world->held[flow - slots.flows] = flow;
    }
    world->claimed[type] = -1;
}

static void end_some(struct world *world)
{
    for (int i = 0; i < slots.count; i++) {
        if (!world->held[i])
            continue;
        bool is_slow = world->is_slow[world->held[i]->share - slots.shares];
        if (rand() % (is_slow ? 200 : 4) == 0) {
            slots_give_back(&slots, world->held[i]);
            world->held[i] = NULL;
        }
    }
}

START_TEST(no_demand_starves_a_type_and_the_slots_are_never_overrun)
{
    srand((unsigned)_i);
    struct world world = {0};
    int types = 1 + rand() % TYPES_MAX, count = 1 + rand() % (_i % 2 ? 256 : 20);
    open_wide(count, types);
    for (int type = 0; type < types; type++) {
        world.claimed[type] = -1;
        world.is_slow[type] = rand() % 4 == 0;
        if (type > 0)
            routes[type].breaker.limit = routes[type].breaker.limit_max = 1 + rand() % 64;
        if (type > 0 && rand() % 5 == 0) {
            routes[type].breaker.state = BREAKER_OPEN;
            routes[type].breaker.probe_at_ms = NOW_MS + 1;
        }
    }
    for (int step = 0; step < 3000; step++) {
        int first = rand() % types;
        for (int type = 0; type < types; type++)
            world.due[type] += rand() % 10 == 0 ? rand() % 50 : 0;
        for (int i = 0; i < types; i++)
            claim_in_turn(&world, (first + i) % types);
        for (int type = 0; type < types; type++)
            if (rand() % 2)
                answer(&world, type);
        end_some(&world);
        int held = 0;
        for (int type = 0; type < types; type++) {
            held += slots_held(&slots.shares[type]);
            expect(slots.shares[type].in_flight >= 0, "in flight", slots.shares[type].in_flight);
            /* Each of the others may be served twice before it: once with what it asked for before. */
            expect(world.waits[type] <= 3 * types, "waits", world.waits[type]);
        }
        expect(held <= count, "held", held);
    }
}

SUITE(slots)
{
    TCase *tcase = tcase_create("slots");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, no_demand_starves_a_type_and_the_slots_are_never_overrun, 0, 20);
    suite_add_tcase(suite, tcase);
}
