/* The story: two taps of one user may never be judged by one snapshot, so at most one acceptance of a user is ready or in
 * a batch at any time; and nobody is forgotten, overtaken by a later one of the same user, or decided twice, however
 * batches are taken, split and decided. */
#include "api/accept_queue.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define ITEMS 4000
#define USERS 60
#define TAKEN_MAX 16

static struct accept_queue *queue;
static struct acceptance items[ITEMS];
static char users[USERS][32];
static int user_of[ITEMS];
static bool is_out[USERS]; /* one of this user is taken */
static int visited;

static void set_up(void)
{
    queue = calloc(1, sizeof *queue);
    ck_assert_ptr_nonnull(queue);
    for (int i = 0; i < USERS; i++)
        (void)snprintf(users[i], sizeof users[i], "user-%d", i);
    for (int i = 0; i < USERS; i++)
        is_out[i] = false;
    visited = 0;
}

static void tear_down(void)
{
    free(queue);
}

static void put(int index, int user)
{
    items[index] = (struct acceptance){.user_id = users[user]};
    user_of[index] = user;
    ck_assert(accept_queue_put(queue, &items[index]));
}

static int take(void)
{
    int index = (int)(accept_queue_take(queue) - items);
    ck_assert_msg(!is_out[user_of[index]], "two of user %d at once", user_of[index]);
    is_out[user_of[index]] = true;
    return index;
}

static void leave(int index)
{
    is_out[user_of[index]] = false;
    accept_queue_leave(queue, &items[index]);
}

static uint64_t random_state;

static int random_below(int bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)(random_state % (uint64_t)bound);
}

START_TEST(different_users_go_in_the_order_they_came)
{
    for (int i = 0; i < USERS; i++)
        put(i, i);
    ck_assert_int_eq(queue->ready, USERS);
    for (int i = 0; i < USERS; i++)
        ck_assert_int_eq(take(), i);
    ck_assert_ptr_null(queue->first);
    for (int i = 0; i < USERS; i++)
        leave(i);
    ck_assert_int_eq(queue->held, 0);
}
END_TEST

START_TEST(a_users_next_one_waits_until_the_one_before_has_left)
{
    put(0, 7);
    put(1, 7);
    put(2, 8);
    put(3, 7);
    ck_assert_int_eq(take(), 0);
    ck_assert_int_eq(take(), 2);
    ck_assert_ptr_null(queue->first);
    leave(0);
    ck_assert_int_eq(take(), 1);
    leave(2);
    ck_assert_ptr_null(queue->first);
    leave(1);
    ck_assert_int_eq(take(), 3);
    leave(3);
    ck_assert_int_eq(queue->held, 0);
}
END_TEST

START_TEST(what_is_given_back_goes_first_in_its_order_and_alone)
{
    struct acceptance *batch[3];
    for (int i = 0; i < 4; i++)
        put(i, i);
    for (int i = 0; i < 3; i++)
        batch[i] = accept_queue_take(queue);
    accept_queue_give_back(queue, batch, 3);
    ck_assert_int_eq(queue->alone, 3);
    ck_assert_int_eq(queue->ready, 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(queue->alone, i < 3 ? 3 - i : 0);
        ck_assert_int_eq(take(), i);
    }
    ck_assert_int_eq(queue->alone, 0);
}
END_TEST

START_TEST(given_back_to_an_empty_line_they_are_its_end_too)
{
    struct acceptance *one;
    put(0, 0);
    one = accept_queue_take(queue);
    accept_queue_give_back(queue, &one, 1);
    put(1, 1);
    ck_assert_int_eq(take(), 0);
    ck_assert_int_eq(take(), 1);
    ck_assert_ptr_null(queue->first);
}
END_TEST

START_TEST(nobody_is_lost_doubled_or_overtaken_whatever_happens)
{
    int put_count = 0, left = 0, taken[TAKEN_MAX], taken_count = 0, last_of[USERS];
    random_state = 0x9E3779B97F4A7C15u;
    for (int i = 0; i < USERS; i++)
        last_of[i] = -1;
    while (left < ITEMS) {
        int what = random_below(4);
        if (what == 0 && put_count < ITEMS) {
            put(put_count, random_below(USERS));
            put_count++;
        } else if (what <= 2 && queue->first && taken_count < TAKEN_MAX) {
            taken[taken_count++] = take();
        } else if (what == 3 && taken_count > 0 && random_below(3) == 0) {
            struct acceptance *one = &items[taken[--taken_count]];
            is_out[user_of[taken[taken_count]]] = false;
            accept_queue_give_back(queue, &one, 1);
        } else if (taken_count > 0) {
            int place = random_below(taken_count), index = taken[place];
            ck_assert_int_gt(index, last_of[user_of[index]]);
            last_of[user_of[index]] = index;
            leave(index);
            left++;
            taken[place] = taken[--taken_count];
        }
        ck_assert_int_eq(queue->held, put_count - left);
    }
    ck_assert_int_eq(queue->held, 0);
    ck_assert_int_eq(queue->ready, 0);
    ck_assert_ptr_null(queue->first);
}
END_TEST

START_TEST(a_full_line_takes_nobody_more)
{
    static struct acceptance many[ACCEPT_QUEUE_MAX + 1];
    for (int i = 0; i < ACCEPT_QUEUE_MAX; i++) {
        many[i].user_id = users[i % USERS];
        ck_assert(accept_queue_put(queue, &many[i]));
    }
    many[ACCEPT_QUEUE_MAX].user_id = users[0];
    ck_assert(!accept_queue_put(queue, &many[ACCEPT_QUEUE_MAX]));
    ck_assert_int_eq(queue->held, ACCEPT_QUEUE_MAX);
    accept_queue_leave(queue, accept_queue_take(queue));
    ck_assert(accept_queue_put(queue, &many[ACCEPT_QUEUE_MAX]));
}
END_TEST

static void visit(struct acceptance *acceptance)
{
    ck_assert_int_eq(acceptance->tries, 0);
    *acceptance = (struct acceptance){.tries = 1}; /* it may be gone now */
    visited++;
}

START_TEST(the_last_words_reach_all_of_them_taken_or_not)
{
    for (int i = 0; i < 200; i++)
        put(i, i % USERS);
    for (int i = 0; i < TAKEN_MAX; i++)
        (void)take();
    accept_queue_end(queue, visit);
    ck_assert_int_eq(visited, 200);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("accept_queue");
    TCase *tcase = tcase_create("accept_queue");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, different_users_go_in_the_order_they_came);
    tcase_add_test(tcase, a_users_next_one_waits_until_the_one_before_has_left);
    tcase_add_test(tcase, what_is_given_back_goes_first_in_its_order_and_alone);
    tcase_add_test(tcase, given_back_to_an_empty_line_they_are_its_end_too);
    tcase_add_test(tcase, nobody_is_lost_doubled_or_overtaken_whatever_happens);
    tcase_add_test(tcase, a_full_line_takes_nobody_more);
    tcase_add_test(tcase, the_last_words_reach_all_of_them_taken_or_not);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
