/* The story: one user opened nine thousand connections and read lists on all of them, and the reads of all other users
 * waited behind. So each user has a line, the lines are served in turn, and a read that cannot be served in time is
 * refused at once. The clock is the test's own. */
#include "api/read_queue.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/suite.h"

#define READS 6000
#define USERS 30
#define OF_USER 8
#define MS 1000

static struct users *users;
static struct read_queue queue;
static struct reading reads[READS];
static struct user *known[USERS];
static int64_t now_us;

static void set_up(void)
{
    users = calloc(1, sizeof(*users));
    ck_assert_ptr_nonnull(users);
    read_queue_init(&queue);
    queue.running_max = 24;
    queue.running_of_user_max = OF_USER;
    queue.wait_max_us = 3000 * MS;
    now_us = 1000 * MS;
    for (int i = 0; i < USERS; i++) {
        char id[16];
        snprintf(id, sizeof(id), "user-%d", i);
        known[i] = users_take(users, id);
        ck_assert_ptr_nonnull(known[i]);
    }
}

static void tear_down(void)
{
    for (int i = 0; i < USERS; i++)
        users_release(users, known[i]);
    ck_assert_int_eq(users->count, 0);
    free(users);
}

static const char *put(int index, int user)
{
    reads[index] = (struct reading){.user = known[user]};
    return read_queue_add(&queue, &reads[index], now_us);
}

static void put_many(int from, int count, int user)
{
    for (int i = 0; i < count; i++)
        ck_assert_ptr_null(put(from + i, user));
}

/* -1 = no read may go. */
static int take(void)
{
    struct reading *reading = read_queue_take(&queue);
    return reading ? (int)(reading - reads) : -1;
}

static void leave(int index)
{
    read_queue_finish(&queue, &reads[index], now_us);
}

TEST(a_user_has_eight_out_and_the_others_go_on)
{
    put_many(0, 100, 0);
    for (int i = 0; i < OF_USER; i++)
        ck_assert_int_eq(take(), i);
    ck_assert_int_eq(take(), -1);
    put_many(100, 1, 1);
    ck_assert_int_eq(take(), 100);
    ck_assert_int_eq(take(), -1);
    leave(3); /* in whatever order they end */
    ck_assert_int_eq(take(), 8);
    ck_assert_int_eq(take(), -1);
    ck_assert_int_eq(queue.running, 9);
    ck_assert_int_eq(queue.waiting, 91);
}

TEST(lines_are_served_in_turn)
{
    queue.running_max = 1;
    put_many(0, 50, 0);
    put_many(100, 2, 1);
    put_many(200, 3, 2);
    static const int wanted[] = {0, 100, 200, 1, 101, 201, 2, 202, 3, 4, 5};
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        int index = take();
        ck_assert_int_eq(index, wanted[i]);
        ck_assert_int_eq(take(), -1);
        leave(index);
    }
    put_many(300, 1, 3); /* who comes now is next but one */
    ck_assert_int_eq(take(), 6);
    leave(6);
    ck_assert_int_eq(take(), 300);
}

TEST(no_more_are_out_than_the_connections_take)
{
    for (int user = 0; user < USERS; user++)
        put_many(user * 10, 2, user);
    for (int i = 0; i < 24; i++)
        ck_assert_int_eq(take(), i * 10);
    ck_assert_int_eq(take(), -1);
    leave(50);
    ck_assert_int_eq(take(), 240);
    ck_assert_int_eq(take(), -1);
}

TEST(a_line_has_an_end)
{
    put_many(0, READ_QUEUE_WAITING_OF_USER, 0);
    ck_assert_str_eq(put(READ_QUEUE_WAITING_OF_USER, 0), "Too many calls of this user wait.");
    put_many(READ_QUEUE_WAITING_OF_USER + 1, 1, 1);
    ck_assert_int_eq(take(), 0);
    put_many(READ_QUEUE_WAITING_OF_USER, 1, 0);
}

TEST(a_read_that_could_not_be_served_in_time_is_refused_at_once)
{
    queue.running_max = 1;
    put_many(0, 1, 0);
    put_many(1, 1000, 1);
    ck_assert_int_eq(take(), 0);
    leave(0);
    for (int i = 1; i <= 600; i++) { /* each takes 10 ms */
        ck_assert_int_eq(take(), i);
        now_us += 10 * MS;
        leave(i);
    }
    ck_assert(queue.interval_us > 9.9 * MS && queue.interval_us <= 10 * MS);
    ck_assert_str_eq(put(READS - 1, 1), "More calls wait than can be answered in time.");
    ck_assert_ptr_null(put(READS - 1, 2)); /* another user is second in turn, and so in time */
    while (queue.waiting > 290) {
        int index = take();
        now_us += 10 * MS;
        leave(index);
    }
    ck_assert_ptr_null(put(READS - 2, 1));
}

TEST(what_was_measured_before_a_pause_does_not_count)
{
    queue.running_max = 1;
    put_many(0, 400, 0);
    for (int i = 0; i < 400; i++) {
        ck_assert_int_eq(take(), i);
        now_us += 2000 * MS; /* it hung */
        leave(i);
    }
    put_many(0, 400, 0);
    ck_assert_int_eq(queue.waiting, 400);
}

TEST(who_waited_too_long_leaves_the_line)
{
    put_many(0, 20, 0);
    for (int i = 0; i < OF_USER; i++)
        ck_assert_int_eq(take(), i);
    now_us += 10 * MS;
    put_many(100, 1, 1);
    put_many(20, 5, 0);
    for (int i = 8; i < 20; i++)
        ck_assert_ptr_eq(read_queue_take_late(&queue, now_us), &reads[i]);
    ck_assert_ptr_null(read_queue_take_late(&queue, now_us));
    ck_assert_int_eq(queue.waiting, 6);
    ck_assert_int_eq(take(), 100);
    leave(0);
    ck_assert_int_eq(take(), 20);
    ck_assert_ptr_eq(read_queue_take_late(&queue, now_us + 1), &reads[21]);
    leave(1);
    ck_assert_int_eq(take(), 22);
}

TEST(a_user_whose_last_read_was_late_is_out_of_turn)
{
    queue.running_max = 1;
    put_many(0, 1, 0);
    ck_assert_int_eq(take(), 0);
    for (int user = 1; user <= 3; user++)
        put_many(user * 10, 1, user);
    now_us += MS;
    put_many(40, 1, 4);
    put_many(21, 1, 2);
    for (int user = 1; user <= 3; user++)
        ck_assert_ptr_eq(read_queue_take_late(&queue, now_us), &reads[user * 10]);
    leave(0);
    ck_assert_int_eq(take(), 21); /* the second kept its place */
    leave(21);
    ck_assert_int_eq(take(), 40);
    leave(40);
    ck_assert_int_eq(take(), -1);
    ck_assert(TAILQ_EMPTY(&queue.users));
}

TEST(no_read_is_forgotten_whatever_the_order)
{
    static int state[READS]; /* 0 = nowhere, 1 waits, 2 is out */
    uint64_t random = 88172645463325252u;
    int came = 0, went = 0;
    for (int step = 0; step < 200000; step++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        int index = (int)(random >> 8) & 1023;
        if (state[index] == 0 && random % 3 == 0) {
            ck_assert_ptr_null(put(index, index % USERS));
            state[index] = 1;
            came++;
        } else if (state[index] == 2) {
            leave(index);
            state[index] = 0;
            went++;
        }
        now_us += 10;
        struct reading *late = random % 7 == 0 ? read_queue_take_late(&queue, now_us - 2000) : NULL;
        if (late) {
            ck_assert_int_eq(state[late - reads], 1);
            state[late - reads] = 0;
            went++;
        }
        for (int taken = random % 2 ? take() : -1; taken >= 0; taken = take()) {
            ck_assert_int_eq(state[taken], 1);
            ck_assert_int_le(reads[taken].user->running, OF_USER);
            state[taken] = 2;
        }
        ck_assert_int_eq(came - went, queue.waiting + queue.running);
    }
    for (int i = 0; i < 1024; i++)
        if (state[i] == 2)
            leave(i);
    for (int taken = take(); taken >= 0; taken = take())
        leave(taken);
    ck_assert_int_eq(queue.waiting + queue.running + queue.users_waiting, 0);
    ck_assert(TAILQ_EMPTY(&queue.by_age));
}

TESTS_BETWEEN(read_queue, set_up, tear_down)
