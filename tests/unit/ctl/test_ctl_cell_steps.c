/* The story: a mover may die at any step, and another one looks at both databases and goes on. So for every pair of
 * states there is one next step, and none of them may make two owners, delete rows that are nowhere else, or take a
 * bucket that somebody else moves. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/cells/cell_steps.h"
#include "tests/support/suite.h"

static const struct uuid move_1 = {.bytes = {1}}, move_2 = {.bytes = {2}};

static enum cell_step step_of(enum cell_wish wish, enum cell_state source, enum cell_state destination,
                              bool is_one_move)
{
    struct cell_side from = {.state = source, .move = move_1};
    struct cell_side to = {.state = destination, .move = is_one_move ? move_1 : move_2};
    struct cell_memory memory = {.is_copied = false};
    return cell_next_step(wish, &from, &to, &memory);
}

START_TEST(a_move_takes_its_steps_in_order_and_ends)
{
    static const enum cell_step expected[] = {
        CELL_STEP_LIST,  CELL_STEP_EXPECT, CELL_STEP_DRAIN,  CELL_STEP_CLOSE, CELL_STEP_COPY,
        CELL_STEP_LEAVE, CELL_STEP_ARRIVE, CELL_STEP_ROUTER, CELL_STEP_EMPTY, CELL_STEP_DONE,
    };
    struct cell_side source = {.state = CELL_HERE}, destination = {.state = CELL_AWAY};
    struct cell_memory memory = {.is_copied = false};
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
        enum cell_step step = cell_next_step(CELL_WISH_MOVE, &source, &destination, &memory);
        ck_assert_msg(step == expected[i], "step %zu is %s", i, cell_step_word(step));
        source.state = step == CELL_STEP_LIST    ? CELL_LISTING
                       : step == CELL_STEP_DRAIN ? CELL_DRAINING
                       : step == CELL_STEP_CLOSE ? CELL_CLOSED
                       : step == CELL_STEP_LEAVE ? CELL_GONE
                       : step == CELL_STEP_EMPTY ? CELL_AWAY
                                                 : source.state;
        destination.state = step == CELL_STEP_EXPECT   ? CELL_ARRIVING
                            : step == CELL_STEP_ARRIVE ? CELL_HERE
                                                       : destination.state;
        source.move = destination.move = move_1;
        memory.is_copied = memory.is_copied || step == CELL_STEP_COPY;
        memory.is_routed = memory.is_routed || step == CELL_STEP_ROUTER;
    }
}
END_TEST

START_TEST(every_pair_of_states_has_one_next_step)
{
    static const struct {
        enum cell_state source, destination;
        bool is_one_move;
        enum cell_step of_move, of_undo;
    } pairs[] = {
        {CELL_HERE, CELL_AWAY, true, CELL_STEP_LIST, CELL_STEP_DONE},
        {CELL_HERE, CELL_ARRIVING, true, CELL_STEP_REFUSE, CELL_STEP_REFUSE},
        {CELL_HERE, CELL_ARRIVING, false, CELL_STEP_REFUSE, CELL_STEP_REFUSE},
        {CELL_HERE, CELL_HERE, true, CELL_STEP_CONFLICT, CELL_STEP_CONFLICT},
        {CELL_LISTING, CELL_AWAY, true, CELL_STEP_EXPECT, CELL_STEP_OPEN},
        {CELL_LISTING, CELL_ARRIVING, true, CELL_STEP_DRAIN, CELL_STEP_OPEN},
        {CELL_LISTING, CELL_ARRIVING, false, CELL_STEP_REFUSE, CELL_STEP_OPEN},
        {CELL_DRAINING, CELL_AWAY, true, CELL_STEP_EXPECT, CELL_STEP_OPEN},
        {CELL_DRAINING, CELL_ARRIVING, true, CELL_STEP_CLOSE, CELL_STEP_OPEN},
        {CELL_DRAINING, CELL_ARRIVING, false, CELL_STEP_REFUSE, CELL_STEP_OPEN},
        {CELL_CLOSED, CELL_AWAY, true, CELL_STEP_EXPECT, CELL_STEP_OPEN},
        {CELL_CLOSED, CELL_ARRIVING, true, CELL_STEP_COPY, CELL_STEP_OPEN},
        {CELL_CLOSED, CELL_ARRIVING, false, CELL_STEP_REFUSE, CELL_STEP_OPEN},
        {CELL_CLOSED, CELL_HERE, true, CELL_STEP_CONFLICT, CELL_STEP_CONFLICT},
        {CELL_GONE, CELL_AWAY, true, CELL_STEP_CONFLICT, CELL_STEP_CONFLICT},
        {CELL_GONE, CELL_ARRIVING, true, CELL_STEP_ARRIVE, CELL_STEP_TOO_LATE},
        {CELL_GONE, CELL_ARRIVING, false, CELL_STEP_CONFLICT, CELL_STEP_CONFLICT},
        {CELL_GONE, CELL_HERE, true, CELL_STEP_ROUTER, CELL_STEP_TOO_LATE},
        {CELL_GONE, CELL_DRAINING, false, CELL_STEP_ROUTER, CELL_STEP_TOO_LATE},
        {CELL_AWAY, CELL_AWAY, true, CELL_STEP_CONFLICT, CELL_STEP_CONFLICT},
        {CELL_AWAY, CELL_ARRIVING, true, CELL_STEP_ARRIVE, CELL_STEP_TOO_LATE},
        {CELL_AWAY, CELL_ARRIVING, false, CELL_STEP_CONFLICT, CELL_STEP_CONFLICT},
        {CELL_AWAY, CELL_HERE, true, CELL_STEP_ROUTER, CELL_STEP_TOO_LATE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        const char *source = cell_state_word(pairs[i].source), *destination = cell_state_word(pairs[i].destination);
        enum cell_step of_move = step_of(CELL_WISH_MOVE, pairs[i].source, pairs[i].destination, pairs[i].is_one_move);
        enum cell_step of_undo = step_of(CELL_WISH_UNDO, pairs[i].source, pairs[i].destination, pairs[i].is_one_move);
        ck_assert_msg(of_move == pairs[i].of_move, "%s, %s: %s", source, destination, cell_step_word(of_move));
        ck_assert_msg(of_undo == pairs[i].of_undo, "undo %s, %s: %s", source, destination, cell_step_word(of_undo));
    }
}
END_TEST

/* Every pair, every wish, every memory: what must never happen. */
START_TEST(no_pair_leads_to_two_owners_or_to_lost_rows)
{
    for (int bits = 0; bits < 32; bits++) {
        for (int source = 0; source < CELL_STATE_COUNT; source++) {
            for (int destination = 0; destination < CELL_STATE_COUNT; destination++) {
                struct cell_side from = {.state = (enum cell_state)source, .move = move_1};
                struct cell_side to = {.state = (enum cell_state)destination, .move = bits & 1 ? move_1 : move_2};
                struct cell_memory memory = {bits & 2, bits & 4, bits & 8};
                enum cell_step step = cell_next_step(bits & 16 ? CELL_WISH_UNDO : CELL_WISH_MOVE, &from, &to, &memory);
                bool has_left = from.state == CELL_GONE || from.state == CELL_AWAY;
                bool may_leave_still = from.state == CELL_CLOSED && (bits & 1) != 0;
                if (step == CELL_STEP_ARRIVE)
                    ck_assert(has_left && to.state == CELL_ARRIVING && (bits & 1));
                if (step == CELL_STEP_LEAVE)
                    ck_assert(memory.is_copied && from.state == CELL_CLOSED && to.state == CELL_ARRIVING && (bits & 1));
                if (step == CELL_STEP_REFUSE)
                    ck_assert(!has_left && !may_leave_still && to.state == CELL_ARRIVING);
                if (step == CELL_STEP_EMPTY)
                    ck_assert(from.state == CELL_GONE && !memory.keeps_source && to.state != CELL_ARRIVING &&
                              to.state != CELL_AWAY && to.state != CELL_GONE);
                if (step == CELL_STEP_OPEN)
                    ck_assert(!has_left && to.state != CELL_HERE);
                if (step == CELL_STEP_LIST)
                    ck_assert(from.state == CELL_HERE && to.state == CELL_AWAY);
            }
        }
    }
}
END_TEST

START_TEST(no_move_is_not_the_same_move)
{
    struct cell_side source = {.state = CELL_AWAY}, destination = {.state = CELL_ARRIVING};
    ck_assert(!cell_is_one_move(&source, &destination));
    source.move = destination.move = move_1;
    ck_assert(cell_is_one_move(&source, &destination));
}
END_TEST

START_TEST(words_of_states_and_steps_are_read_back)
{
    enum cell_state state;
    enum cell_step step;
    for (int i = 0; i < CELL_STATE_COUNT; i++)
        ck_assert(cell_state_parse(cell_state_word((enum cell_state)i), &state) && state == (enum cell_state)i);
    for (int i = 0; i < CELL_STEP_COUNT; i++)
        ck_assert(cell_step_parse(cell_step_word((enum cell_step)i), &step) && step == (enum cell_step)i);
    ck_assert(!cell_state_parse("", &state) && !cell_step_parse("Copy", &step));
}
END_TEST

SUITE(ctl_cell_steps)
{
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, a_move_takes_its_steps_in_order_and_ends);
    tcase_add_test(tests, every_pair_of_states_has_one_next_step);
    tcase_add_test(tests, no_pair_leads_to_two_owners_or_to_lost_rows);
    tcase_add_test(tests, no_move_is_not_the_same_move);
    tcase_add_test(tests, words_of_states_and_steps_are_read_back);
    suite_add_tcase(suite, tests);
}
