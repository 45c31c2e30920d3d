/* The story: who owns a bucket is read from many databases, of which one may be away and two may contradict each other.
 * The router gets no map that guesses. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/cells/cell_view.h"
#include "tests/support/suite.h"

enum { A, B, C };
static const struct uuid move_1 = {.bytes = {1}}, move_2 = {.bytes = {2}};
static struct cell_view view;

/* Three cells; a has everything. */
static void set_up(void)
{
    memset(&view, 0, sizeof(view));
    view.count = 3;
    view.names[A] = "a";
    view.names[B] = "b";
    view.names[C] = "c";
    for (int cell = 0; cell < view.count; cell++)
        view.is_read[cell] = true;
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++)
        view.sides[A][bucket].state = CELL_HERE;
}

static void set(int cell, int bucket, enum cell_state state, const char *other, const struct uuid *move)
{
    struct cell_side *side = &view.sides[cell][bucket];
    side->state = state;
    strcpy(side->other, other);
    side->move = *move;
}

START_TEST(calls_belong_to_the_source_until_it_has_left_and_then_to_the_destination)
{
    static const enum cell_state before[] = {CELL_LISTING, CELL_DRAINING, CELL_CLOSED};
    static struct cell_map map;
    struct err err;
    set_up();
    set(B, 17, CELL_ARRIVING, "a", &move_1);
    for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
        set(A, 17, before[i], "b", &move_1);
        ck_assert_int_eq(cell_view_owner(&view, 17), A);
    }
    set(A, 17, CELL_GONE, "b", &move_1);
    ck_assert_int_eq(cell_view_owner(&view, 17), B);
    ck_assert(cell_view_map(&view, &map, &err));
    ck_assert_str_eq(map.names[17], "b");
    ck_assert_str_eq(map.names[18], "a");
}
END_TEST

START_TEST(no_map_is_made_while_a_bucket_is_nowhere_or_twice_or_may_be_in_a_cell_that_is_away)
{
    static struct cell_map map;
    struct err err;
    set_up();
    set(B, 3, CELL_HERE, "", &move_1);
    ck_assert(!cell_view_map(&view, &map, &err));
    ck_assert_int_eq(err.kind, ERR_REFUSED);
    ck_assert_str_eq(err.message, "in more than one cell: 3");
    set_up();
    set(A, 5, CELL_AWAY, "", &move_1);
    ck_assert(!cell_view_map(&view, &map, &err));
    ck_assert_str_eq(err.message, "in no cell: 5");
    view.is_read[C] = false;
    ck_assert(!cell_view_map(&view, &map, &err));
    ck_assert_int_eq(err.kind, ERR_AWAY);
}
END_TEST

START_TEST(a_move_comes_from_the_cell_that_has_the_bucket_or_has_left_it_for_the_destination)
{
    struct err err;
    int from = -1;
    set_up();
    ck_assert(cell_view_source(&view, 1, B, &from, &err) && from == A);
    ck_assert(cell_view_source(&view, 1, A, &from, &err) && from == A);
    set(A, 1, CELL_CLOSED, "b", &move_1);
    ck_assert(cell_view_source(&view, 1, B, &from, &err) && from == A);
    ck_assert(!cell_view_source(&view, 1, C, &from, &err)); /* it is on its way to b */
    set(A, 1, CELL_GONE, "b", &move_1);
    set(B, 1, CELL_ARRIVING, "a", &move_1);
    ck_assert(cell_view_source(&view, 1, B, &from, &err) && from == A);
    ck_assert(!cell_view_source(&view, 1, C, &from, &err));
    set(A, 1, CELL_AWAY, "b", &move_1); /* emptied by somebody else before it arrived */
    ck_assert(cell_view_source(&view, 1, B, &from, &err) && from == A);
    set(A, 1, CELL_AWAY, "b", &move_2);
    ck_assert(!cell_view_source(&view, 1, B, &from, &err));
    set(A, 1, CELL_GONE, "b", &move_1);
    set(B, 1, CELL_HERE, "a", &move_1);
    ck_assert(cell_view_source(&view, 1, B, &from, &err) && from == A); /* still to be emptied */
    ck_assert(cell_view_source(&view, 1, C, &from, &err) && from == B);
}
END_TEST

START_TEST(a_bucket_that_two_cells_claim_is_not_moved)
{
    struct err err;
    int cell;
    set_up();
    set(B, 1, CELL_LISTING, "c", &move_1);
    ck_assert(!cell_view_source(&view, 1, C, &cell, &err));
    ck_assert_str_eq(err.message, "bucket 1 is in a and in b");
    ck_assert(!cell_view_destination(&view, 1, &cell, &err));
}
END_TEST

START_TEST(rows_of_an_undone_move_elsewhere_are_removed_first)
{
    struct err err;
    int from;
    set_up();
    set(B, 1, CELL_ARRIVING, "a", &move_1);
    ck_assert(!cell_view_source(&view, 1, C, &from, &err));
    ck_assert(cell_view_source(&view, 1, B, &from, &err) && from == A);
}
END_TEST

START_TEST(a_bucket_that_may_be_in_a_cell_that_is_away_is_not_called_lost)
{
    struct err err;
    int from;
    set_up();
    set(A, 1, CELL_AWAY, "c", &move_1);
    view.is_read[C] = false;
    ck_assert_int_eq(cell_view_owner(&view, 1), CELL_UNKNOWN);
    ck_assert(!cell_view_source(&view, 1, B, &from, &err));
    ck_assert_int_eq(err.kind, ERR_AWAY);
}
END_TEST

START_TEST(an_undo_finds_where_the_bucket_was_on_its_way_to)
{
    struct err err;
    int to = -1;
    set_up();
    ck_assert(!cell_view_destination(&view, 1, &to, &err));
    set(A, 1, CELL_LISTING, "b", &move_1);
    ck_assert(cell_view_destination(&view, 1, &to, &err) && to == B);
    set(A, 1, CELL_HERE, "b", &move_1);
    set(C, 1, CELL_ARRIVING, "a", &move_1);
    ck_assert(cell_view_destination(&view, 1, &to, &err) && to == C);
}
END_TEST

SUITE(ctl_cell_view)
{
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, calls_belong_to_the_source_until_it_has_left_and_then_to_the_destination);
    tcase_add_test(tests, no_map_is_made_while_a_bucket_is_nowhere_or_twice_or_may_be_in_a_cell_that_is_away);
    tcase_add_test(tests, a_move_comes_from_the_cell_that_has_the_bucket_or_has_left_it_for_the_destination);
    tcase_add_test(tests, a_bucket_that_two_cells_claim_is_not_moved);
    tcase_add_test(tests, rows_of_an_undone_move_elsewhere_are_removed_first);
    tcase_add_test(tests, a_bucket_that_may_be_in_a_cell_that_is_away_is_not_called_lost);
    tcase_add_test(tests, an_undo_finds_where_the_bucket_was_on_its_way_to);
    suite_add_tcase(suite, tests);
}
