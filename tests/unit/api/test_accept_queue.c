/* The story: two taps of one user may never be judged by one snapshot, so at most one request of a user is ready or in
 * a batch at any time. No request is forgotten, overtaken by a later one of the same user, or decided twice. */
#include "api/accept_queue.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/suite.h"

#define ITEMS 4000
#define USERS 60

static struct accept_queue *queue;
static struct acceptance items[ITEMS];
static char users[USERS][32];
static int user_of[ITEMS];
static bool is_ready[USERS]; /* one of this user is ready */
static int visited;

static void set_up(void)
{
    queue = calloc(1, sizeof(*queue));
    ck_assert_ptr_nonnull(queue);
    for (int i = 0; i < USERS; i++)
        snprintf(users[i], sizeof(users[i]), "user-%d", i);
    for (int i = 0; i < USERS; i++)
        is_ready[i] = false;
    visited = 0;
}

static void tear_down(void)
{
    free(queue);
}

static bool add(int index, int user)
{
    items[index] = (struct acceptance){.user_id = users[user]};
    user_of[index] = user;
    enum accept_queue_result result = accept_queue_add(queue, &items[index]);
    ck_assert_int_eq(result, is_ready[user] ? ACCEPT_QUEUE_BEHIND : ACCEPT_QUEUE_READY);
    is_ready[user] = true;
    return result == ACCEPT_QUEUE_READY;
}

/* The user's next one; -1 = there is none. */
static int decide(int index)
{
    struct acceptance *next = accept_queue_remove(queue, &items[index]);
    is_ready[user_of[index]] = next != NULL;
    if (!next)
        return -1;
    ck_assert_int_eq(user_of[next - items], user_of[index]);
    return (int)(next - items);
}

static uint64_t random_state;

static int random_below(int bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)(random_state % (uint64_t)bound);
}

TEST(different_users_do_not_wait_for_each_other)
{
    for (int i = 0; i < USERS; i++)
        ck_assert(add(i, i));
    for (int i = 0; i < USERS; i++)
        ck_assert_int_eq(decide(i), -1);
    ck_assert_int_eq(queue->held_count, 0);
}

TEST(a_users_next_one_waits_until_the_one_before_is_decided)
{
    ck_assert(add(0, 7));
    ck_assert(!add(1, 7));
    ck_assert(add(2, 8));
    ck_assert(!add(3, 7));
    ck_assert_int_eq(decide(0), 1);
    ck_assert_int_eq(decide(2), -1);
    ck_assert_int_eq(decide(1), 3);
    ck_assert_int_eq(decide(3), -1);
    ck_assert_int_eq(queue->held_count, 0);
}

TEST(no_request_is_lost_doubled_or_overtaken_whatever_happens)
{
    int added = 0, decided = 0, ready[USERS], ready_count = 0, last_of[USERS];
    random_state = 0x9E3779B97F4A7C15u;
    for (int i = 0; i < USERS; i++)
        last_of[i] = -1;
    while (decided < ITEMS) {
        if (added < ITEMS && random_below(2) == 0) {
            if (add(added, random_below(USERS)))
                ready[ready_count++] = added;
            added++;
        } else if (ready_count > 0) {
            int place = random_below(ready_count), index = ready[place], next = decide(index);
            ck_assert_int_gt(index, last_of[user_of[index]]);
            last_of[user_of[index]] = index;
            decided++;
            ready[place] = next >= 0 ? next : ready[--ready_count];
        }
        ck_assert_int_eq(queue->held_count, added - decided);
        ck_assert_int_le(ready_count, USERS);
    }
    ck_assert_int_eq(ready_count, 0);
}

TEST(a_full_queue_takes_no_more)
{
    static struct acceptance many[ACCEPT_QUEUE_MAX + 1];
    for (int i = 0; i < ACCEPT_QUEUE_MAX; i++) {
        many[i].user_id = users[i % USERS];
        ck_assert_int_ne(accept_queue_add(queue, &many[i]), ACCEPT_QUEUE_FULL);
    }
    many[ACCEPT_QUEUE_MAX].user_id = users[0];
    ck_assert_int_eq(accept_queue_add(queue, &many[ACCEPT_QUEUE_MAX]), ACCEPT_QUEUE_FULL);
    ck_assert_int_eq(queue->held_count, ACCEPT_QUEUE_MAX);
    ck_assert_ptr_eq(accept_queue_remove(queue, &many[0]), &many[USERS]);
    ck_assert_int_eq(accept_queue_add(queue, &many[ACCEPT_QUEUE_MAX]), ACCEPT_QUEUE_BEHIND);
}

TEST(the_queue_is_never_one_users)
{
    static struct acceptance many[ACCEPT_QUEUE_OF_USER + 2];
    for (int i = 0; i < ACCEPT_QUEUE_OF_USER + 2; i++)
        many[i].user_id = users[0];
    for (int i = 0; i < ACCEPT_QUEUE_OF_USER; i++)
        ck_assert_int_ne(accept_queue_add(queue, &many[i]), ACCEPT_QUEUE_FULL);
    ck_assert_int_eq(accept_queue_add(queue, &many[ACCEPT_QUEUE_OF_USER]), ACCEPT_QUEUE_FULL);
    ck_assert_int_eq(queue->held_count, ACCEPT_QUEUE_OF_USER);
    ck_assert(add(0, 1));
    ck_assert_ptr_eq(accept_queue_remove(queue, &many[0]), &many[1]); /* which knows how many there are */
    ck_assert_int_eq(accept_queue_add(queue, &many[ACCEPT_QUEUE_OF_USER]), ACCEPT_QUEUE_BEHIND);
    ck_assert_int_eq(accept_queue_add(queue, &many[ACCEPT_QUEUE_OF_USER + 1]), ACCEPT_QUEUE_FULL);
}

static void visit(struct acceptance *acceptance)
{
    ck_assert_int_eq(acceptance->used, 0);
    *acceptance = (struct acceptance){.used = 1}; /* it may be gone now */
    visited++;
}

TEST(a_visit_reaches_every_request)
{
    for (int i = 0; i < 200; i++)
        (void)add(i, i % USERS);
    accept_queue_visit(queue, visit);
    ck_assert_int_eq(visited, 200);
}

TESTS_BETWEEN(accept_queue, set_up, tear_down)
