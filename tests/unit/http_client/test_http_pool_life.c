/* Calls over their time: deadlines in each state, peers to whom no connection can be made, the end of the
 * client in each state, many calls at once, and that nothing stays behind. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_client/http_client.h"
#include "common/lib/http_client/http_conn_limit.h"
#include "tests/unit/fault_injection.h"
#include "tests/unit/scripted_peer.h"
#include "tests/support/suite.h"

static char text[SCRIPTED_REQUEST_SIZE];

static void expect(struct scripted_call *call, enum http_result result)
{
    ck_assert_msg(call->call.result == result, "result %d: %s", (int)call->call.result, call->call.error);
    ck_assert_int_eq(call->ends, 1);
    http_call_done(&call->call);
}

static int call_and_receive(struct scripted_call *call, const char *path)
{
    scripted_call(call, path);
    int fd = scripted_accept();
    scripted_receive_any(fd);
    return fd;
}

static int pool_one_connection(void)
{
    struct scripted_call call;
    int fd = call_and_receive(&call, "/first");
    scripted_answer(fd, "first");
    scripted_wait(&call);
    expect(&call, HTTP_ANSWERED);
    return fd;
}

static void call_with_time(struct scripted_call *call, const char *path, int64_t timeout_ms)
{
    scripted_prepare(call, "POST", path);
    call->call.timeout_ms = timeout_ms;
    scripted_start(call);
}

/* ---- deadlines ---- */

/* A call that makes it look at the clock soon, where that stands: its deadline is the next one. */
static void call_that_wakes(struct scripted_call *call)
{
    call_with_time(call, "/other", 1);
}

static struct scripted_call *first_to_end(struct scripted_call *calls, int count)
{
    struct scripted_call *first = NULL;
    for (int i = 0; i < count; i++)
        if (calls[i].ends == 0 && (!first || calls[i].call.deadline_ms < first->call.deadline_ms))
            first = &calls[i];
    return first;
}

/* From the first deadline on by a clock that goes from each to the next. */
START_TEST(each_call_has_its_own_deadline_and_not_less_time)
{
    static struct scripted_call calls[40];
    static int fds[40];
    struct scripted_call other;
    for (int i = 0; i < 40; i++) {
        call_with_time(&calls[i], "/late", 600000 + 7 * ((i * 17) % 40));
        fds[i] = scripted_accept();
        scripted_receive_any(fds[i]);
        if (i % 2)
            scripted_send(fds[i], "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha");
    }
    clock_freeze(clock_wall_us(), (first_to_end(calls, 40)->call.deadline_ms - 1000) * 1000);
    call_that_wakes(&other);
    for (struct scripted_call *call; (call = first_to_end(calls, 40));) {
        int64_t deadline_ms = call->call.deadline_ms;
        clock_freeze(clock_wall_us(), deadline_ms * 1000);
        scripted_wait(call);
        for (int i = 0; i < 40; i++)
            ck_assert_int_eq(calls[i].ends, calls[i].call.deadline_ms <= deadline_ms);
        ck_assert_int_ge(call->call.took_us, call->call.timeout_ms * 1000 - 1000);
        ck_assert_int_le(call->call.took_us, call->call.timeout_ms * 1000);
    }
    for (int i = 0; i < 40; i++) {
        ck_assert_uint_eq(calls[i].call.answer.length, 0);
        ck_assert_str_eq(calls[i].call.error, "no answer in time");
        expect(&calls[i], HTTP_LOST);
    }
    scripted_wait(&other);
    http_call_done(&other.call);
    scripted_settle();
    for (int i = 0; i < 40; i++) {
        ck_assert(scripted_is_closed(fds[i])); /* an answer that comes too late must not be read */
        scripted_close(fds[i]);
    }
}

START_TEST(the_deadline_of_a_call_that_is_sent_again_stays_where_it_was)
{
    /* By a clock that stands: the second try begins when half of the time is over. */
    int fd = pool_one_connection();
    int64_t now_us = clock_mono_us();
    clock_freeze(clock_wall_us(), now_us);
    struct scripted_call call, other;
    call_with_time(&call, "/again", 60000);
    scripted_receive_any(fd);
    clock_freeze(clock_wall_us(), now_us + 30000000);
    scripted_close(fd);
    fd = scripted_accept();
    scripted_receive_any(fd);
    scripted_settle();
    ck_assert_int_eq(call.ends, 0);
    clock_freeze(clock_wall_us(), now_us + 59000000);
    call_that_wakes(&other);
    clock_freeze(clock_wall_us(), now_us + 60000000);
    scripted_wait(&call);
    scripted_wait(&other);
    http_call_done(&other.call);
    ck_assert(call.call.was_resent);
    ck_assert_int_eq(call.call.took_us, 60000000);
    expect(&call, HTTP_LOST);
    scripted_close(fd);
}

START_TEST(a_call_that_never_got_a_connection_sent_nothing)
{
    scripted_fill_backlog();
    struct scripted_call call;
    call_with_time(&call, "/never", 30);
    scripted_wait(&call);
    ck_assert_str_eq(call.call.error, "no connection in time");
    expect(&call, HTTP_NOT_SENT);
    scripted_empty_backlog();
}

/* Story: on a busy machine the time of a call was over before its connection began, and the memory was blamed. A call
 * of one millisecond begins this short before the millisecond ends. */
static void call_before_the_end_of_a_millisecond(int64_t us)
{
    struct scripted_call call;
    scripted_prepare(&call, "POST", "/never");
    call.call.timeout_ms = 1;
    while (clock_mono_us() % 1000 < 1000 - us)
        continue;
    scripted_start(&call);
    scripted_wait(&call);
    ck_assert_str_eq(call.call.error, "no connection in time");
    expect(&call, HTTP_NOT_SENT);
}

START_TEST(a_call_whose_time_is_over_at_its_start_says_so)
{
    scripted_fill_backlog();
    for (int i = 0; i < 200; i++)
        call_before_the_end_of_a_millisecond(1 + i % 20);
    scripted_empty_backlog();
}

#define SLEPT_US (86400 * INT64_C(1000000))

START_TEST(a_machine_that_slept_sends_nothing_that_waited_for_a_connection)
{
    struct scripted_call call, other;
    call_with_time(&call, "/asleep", 60000);
    clock_advance(SLEPT_US); /* the timers of the loop do not notice */
    SCRIPTED_UNTIL(call.ends > 0 || scripted_has_connection());
    int fd = scripted_has_connection() ? scripted_accept() : -1; /* libuv 1.45: it ended before that */
    scripted_wait(&call);
    ck_assert_str_eq(call.call.error, "no connection in time");
    expect(&call, HTTP_NOT_SENT);
    if (fd >= 0)
        ck_assert(!scripted_is_asked(fd));
    call_with_time(&other, "/awake", 60000);
    int last_fd = fd < 0 || scripted_has_connection() ? scripted_accept() : fd; /* made for the call that was late */
    scripted_receive_any(last_fd);
    scripted_answer(last_fd, "ok");
    scripted_wait(&other);
    expect(&other, HTTP_ANSWERED);
    if (fd >= 0 && last_fd != fd)
        scripted_close(fd);
    scripted_close(last_fd);
    clock_release();
}

static size_t space; /* bytes that the kernel still takes */

static ssize_t send_into_space(int fd, const void *bytes, size_t length, int flags)
{
    if (space == 0) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t count = real_send(fd, bytes, length < space ? length : space, flags);
    space -= count > 0 ? (size_t)count : 0;
    return count;
}

START_TEST(a_machine_that_slept_sends_no_rest)
{
    int fd = pool_one_connection();
    struct scripted_call call;
    send_instead = send_into_space;
    space = 10;
    call_with_time(&call, "/asleep", 60000);
    send_instead = NULL;
    clock_advance(SLEPT_US);
    scripted_wait(&call);
    ck_assert_uint_eq(scripted_peek(fd, text), 10);
    ck_assert_str_eq(call.call.error, "no answer in time");
    expect(&call, HTTP_LOST);
    scripted_close(fd);
    clock_release();
}

START_TEST(a_call_that_waits_to_be_sent_again_is_lost_at_its_deadline)
{
    int fd = pool_one_connection();
    int64_t now_us = clock_mono_us();
    clock_freeze(clock_wall_us(), now_us);
    struct scripted_call call, other;
    call_with_time(&call, "/again", 60000);
    scripted_receive_any(fd);
    scripted_fill_backlog();
    scripted_close(fd);
    scripted_settle();
    ck_assert_int_eq(call.ends, 0);
    clock_freeze(clock_wall_us(), now_us + 59000000);
    call_that_wakes(&other);
    clock_freeze(clock_wall_us(), now_us + 60000000);
    scripted_wait(&call);
    scripted_wait(&other);
    http_call_done(&other.call);
    expect(&call, HTTP_LOST);
    scripted_empty_backlog();
}

static bool one_is_asked(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        if (scripted_peek(fds[i], text) > 0)
            return true;
    return false;
}

START_TEST(the_deadline_of_one_call_does_not_end_another_that_waits_for_the_same_peer)
{
    struct scripted_call hasty[10], patient;
    scripted_fill_backlog();
    for (int i = 0; i < 10; i++)
        call_with_time(&hasty[i], "/hasty", 30 + 3 * i);
    call_with_time(&patient, "/patient", 60000);
    for (int i = 0; i < 10; i++) {
        scripted_wait(&hasty[i]);
        expect(&hasty[i], HTTP_NOT_SENT);
    }
    for (int i = 0; i < 50; i++) { /* what they had begun ends a little later */
        scripted_run_once();
        uv_sleep(1);
    }
    ck_assert_msg(patient.ends == 0, "%s", patient.call.error);
    scripted_empty_backlog();
    /* When the kernel tries again, after a second. Several may have been on their way, and any of them is asked. */
    int fds[1 + 10 + 1], count = 0;
    while (patient.ends == 0) {
        SCRIPTED_UNTIL(scripted_has_connection() || one_is_asked(fds, count));
        if (scripted_has_connection()) {
            ck_assert_int_lt(count, (int)ARRAY_SIZE(fds));
            fds[count++] = scripted_accept();
        }
        for (int i = 0; i < count; i++)
            if (scripted_peek(fds[i], text) > 0) {
                scripted_receive_any(fds[i]);
                scripted_answer(fds[i], "at last");
                scripted_wait(&patient);
            }
    }
    expect(&patient, HTTP_ANSWERED);
    for (int i = 0; i < count; i++)
        scripted_close(fds[i]);
}

START_TEST(time_in_plenty_does_not_overflow)
{
    struct scripted_call call;
    scripted_prepare(&call, "POST", "/long");
    call.call.timeout_ms = INT64_MAX / 4;
    scripted_start(&call);
    int fd = scripted_accept();
    scripted_receive_any(fd);
    scripted_answer(fd, "yes");
    scripted_wait(&call);
    expect(&call, HTTP_ANSWERED);
    scripted_close(fd);
}

/* ---- a peer whose backlog is full ---- */

#define CROWD 200

START_TEST(a_crowd_that_waits_for_a_peer_gets_its_answers_when_he_comes_alive)
{
    static struct scripted_call crowd[CROWD];
    static int fds[CROWD];
    int count = 0, answered = 0, before = scripted_descriptors();
    scripted_fill_backlog();
    for (int i = 0; i < CROWD; i++)
        scripted_call(&crowd[i], "/crowd");
    scripted_settle();
    ck_assert_int_lt(scripted_descriptors(), before + 64 + 10); /* the limit of connections being made */
    scripted_empty_backlog();
    while (answered < CROWD) {
        SCRIPTED_UNTIL(scripted_has_connection() || scripted.ended > answered);
        answered = scripted.ended;
        if (scripted_has_connection())
            fds[count++] = scripted_accept();
        for (int i = 0; i < count; i++) {
            if (scripted_peek(fds[i], text) == 0)
                continue;
            scripted_receive_any(fds[i]);
            scripted_answer(fds[i], "one of many");
        }
        scripted_run_once();
        answered = scripted.ended;
    }
    for (int i = 0; i < CROWD; i++)
        expect(&crowd[i], HTTP_ANSWERED);
    for (int i = 0; i < count; i++)
        scripted_close(fds[i]);
}

START_TEST(no_call_of_many_waits_for_the_answer_to_another)
{
    static struct scripted_call crowd[CROWD];
    static int fds[CROWD];
    for (int i = 0; i < CROWD; i++)
        scripted_call(&crowd[i], "/crowd");
    for (int i = 0; i < CROWD; i++) {
        fds[i] = scripted_accept();
        scripted_receive_any(fds[i]);
    }
    for (int i = 0; i < CROWD; i++)
        scripted_answer(fds[i], "at last");
    for (int i = 0; i < CROWD; i++) {
        scripted_wait(&crowd[i]);
        expect(&crowd[i], HTTP_ANSWERED);
        scripted_close(fds[i]);
    }
}

/* A clock that stands: no call takes any time, and no rate is better than another. */
START_TEST(a_peer_that_answers_at_once_gets_few_connections)
{
    static struct scripted_call crowd[CROWD];
    static int fds[CROWD];
    int count = 0;
    clock_freeze(clock_wall_us(), clock_mono_us());
    for (int i = 0; i < CROWD; i++)
        scripted_call(&crowd[i], "/crowd");
    while (scripted.ended < CROWD) {
        if (scripted_has_connection())
            fds[count++] = scripted_accept();
        for (int i = 0; i < count; i++) {
            if (!scripted_is_asked(fds[i]))
                continue;
            scripted_receive_any(fds[i]);
            scripted_answer(fds[i], "at once");
        }
        scripted_run_once();
    }
    ck_assert_int_le(count, 2 * HTTP_CONN_LIMIT_LEAST);
    for (int i = 0; i < CROWD; i++)
        expect(&crowd[i], HTTP_ANSWERED);
    for (int i = 0; i < count; i++)
        scripted_close(fds[i]);
}

START_TEST(many_calls_to_a_peer_that_refuses_connections_all_fail)
{
    static struct scripted_call crowd[CROWD];
    scripted_stop_listening();
    for (int i = 0; i < CROWD; i++)
        scripted_call(&crowd[i], "/crowd");
    SCRIPTED_UNTIL(scripted.ended == CROWD);
    for (int i = 0; i < CROWD; i++)
        expect(&crowd[i], HTTP_NOT_SENT);
}

#define OTHER_ADDRESSES 73 /* one more than a client has at once */

/* The connection on which a request comes; one that was on its way for longer may arrive before it. */
static int accept_asking(void)
{
    int fd = scripted_accept();
    while (!scripted_is_asked(fd)) {
        scripted_run_once();
        if (scripted_has_connection()) {
            scripted_close(fd);
            fd = scripted_accept();
        }
    }
    return fd;
}

START_TEST(an_address_is_given_up_with_the_connections_that_were_on_their_way_to_it)
{
    /* The call that waited for one was given another; then other addresses need the place. */
    struct scripted_call first, second;
    int fd = pool_one_connection();
    scripted_call(&first, "/first");
    scripted_receive_any(fd);
    scripted_settle();
    int before = scripted_descriptors();
    scripted_fill_backlog();
    scripted_call(&second, "/second");
    scripted_settle();
    ck_assert_int_gt(scripted_descriptors(), before + 2); /* the fillers, and one on its way */
    scripted_answer(fd, "first");
    scripted_receive_any(fd);
    scripted_answer(fd, "second");
    scripted_wait(&second);
    scripted_wait(&first);
    expect(&first, HTTP_ANSWERED);
    expect(&second, HTTP_ANSWERED);
    scripted_empty_backlog();
    for (int i = 1; i <= OTHER_ADDRESSES; i++) {
        char url[160];
        snprintf(url, sizeof(url), "http://127.0.0.1:%0*d/other", 5 + i, scripted.port);
        struct scripted_call call;
        scripted_prepare(&call, "GET", url);
        scripted_start(&call);
        int other = accept_asking();
        scripted_receive_any(other);
        scripted_answer(other, "other");
        scripted_wait(&call);
        expect(&call, HTTP_ANSWERED);
        scripted_close(other);
        scripted_settle();
    }
    ck_assert(scripted_is_closed(fd));
    scripted_close(fd);
    ck_assert_int_eq(scripted_descriptors(), before - 2); /* both ends of the pooled one */
}

/* ---- the end of the client ---- */

static void close_client(struct scripted_call *call)
{
    (void)call;
    scripted_close_client();
}

/* Two idle connections; the second one is the next that is used. */
static void keep_two(int fds[2])
{
    struct scripted_call calls[2];
    for (int i = 0; i < 2; i++)
        fds[i] = call_and_receive(&calls[i], "/first");
    for (int i = 0; i < 2; i++) {
        scripted_answer(fds[i], "first");
        scripted_wait(&calls[i]);
        expect(&calls[i], HTTP_ANSWERED);
    }
}

START_TEST(closing_ends_a_call_in_every_state_once_and_reports_what_left)
{
    for (int i = 0; i < 2; i++) {
        int idle[2], fds[4];
        struct scripted_call sent, half, part, untouched, again, waiting, closing;
        keep_two(idle);
        scripted_call(&again, "/again");
        scripted_receive_any(idle[1]);
        scripted_call(&closing, "/closing");
        scripted_receive_any(idle[0]);
        fds[0] = call_and_receive(&sent, "/sent");
        fds[1] = call_and_receive(&half, "/half");
        scripted_send(fds[1], "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal");
        send_instead = send_into_space;
        space = 10;
        scripted_call(&part, "/part");
        fds[2] = scripted_accept();
        SCRIPTED_UNTIL(space == 0);
        scripted_call(&untouched, "/untouched");
        fds[3] = scripted_accept();
        scripted_settle();
        scripted_fill_backlog();
        scripted_close(idle[1]); /* `again` waits for another connection from now on */
        scripted_call(&waiting, "/waiting");
        scripted_settle();
        ck_assert_int_eq(sent.ends + half.ends + part.ends + untouched.ends + again.ends + waiting.ends, 0);
        closing.then = close_client;
        if (i == 0) {
            closing.then = NULL;
            scripted_close_client();
        } else {
            scripted_answer(idle[0], "and close");
        }
        SCRIPTED_UNTIL(scripted.is_closed);
        send_instead = NULL;
        ck_assert_uint_eq(scripted_peek(fds[2], text), 10);
        ck_assert_uint_eq(scripted_peek(fds[3], text), 0);
        ck_assert_str_eq(waiting.call.error, "the client is closing");
        expect(&sent, HTTP_LOST);
        expect(&half, HTTP_LOST);
        expect(&part, HTTP_LOST);
        expect(&untouched, HTTP_NOT_SENT);
        expect(&again, HTTP_LOST);
        expect(&waiting, HTTP_NOT_SENT);
        expect(&closing, i == 0 ? HTTP_LOST : HTTP_ANSWERED);
        scripted_empty_backlog();
        while (scripted_has_connection()) /* of calls that were not answered */
            scripted_close(scripted_accept());
        scripted_close(idle[0]);
        for (int j = 0; j < 4; j++)
            scripted_close(fds[j]);
        scripted_open(64);
    }
}

START_TEST(closing_while_everybody_is_idle_leaves_nothing)
{
    int fds[2];
    keep_two(fds);
    scripted_close_client();
    SCRIPTED_UNTIL(scripted.is_closed);
    for (int i = 0; i < 2; i++) {
        ck_assert(scripted_is_closed(fds[i]));
        scripted_close(fds[i]);
    }
}

static int starts_left;

static void start_again(struct scripted_call *call)
{
    if (starts_left-- <= 0)
        return;
    if (call->ends == 4)
        call->call.timeout_ms = 20;
    scripted_make(call, "POST", "/again");
    scripted_start(call);
}

START_TEST(a_call_may_be_started_again_from_every_kind_of_end)
{
    struct scripted_call call;
    scripted_prepare(&call, "POST", "/again");
    call.then = start_again;
    starts_left = 4;
    scripted_start(&call);
    int fd = scripted_accept();
    scripted_receive_any(fd);
    scripted_answer(fd, "1");
    SCRIPTED_UNTIL(call.ends == 1); /* answered; on the same connection again */
    scripted_receive_any(fd);
    scripted_send(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n2");
    SCRIPTED_UNTIL(call.ends == 2); /* answered; on another one */
    scripted_close(fd);
    fd = scripted_accept();
    scripted_receive_any(fd);
    scripted_reset(fd);
    SCRIPTED_UNTIL(call.ends == 3); /* lost */
    fd = scripted_accept();
    scripted_receive_any(fd);
    scripted_send(fd, "no HTTP");
    SCRIPTED_UNTIL(call.ends == 4); /* lost; the next one has little time */
    scripted_close(fd);
    SCRIPTED_UNTIL(call.ends == 5);
    ck_assert_int_ne(call.call.result, HTTP_ANSWERED);
    scripted_settle();
    ck_assert_int_eq(call.ends, 5);
    ck_assert_int_eq(starts_left, -1);
    http_call_done(&call.call);
}

static void free_call(struct scripted_call *call)
{
    http_call_done(&call->call);
    memset(call, 0x5a, sizeof(*call));
    free(call);
}

START_TEST(a_call_may_be_freed_from_every_kind_of_end)
{
    static const char *const replies[] = {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
                                          "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
                                          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx",
                                          "no HTTP",
                                          "",
                                          NULL};
    for (size_t i = 0; i < ARRAY_SIZE(replies) + 1; i++) {
        int ended = scripted.ended;
        struct scripted_call *call = malloc(sizeof(*call));
        scripted_prepare(call, "POST", i < ARRAY_SIZE(replies) ? "/free" : "http://127.0.0.1:1/");
        call->then = free_call;
        if (i < ARRAY_SIZE(replies) && !replies[i])
            call->call.timeout_ms = 20;
        scripted_start(call);
        if (i < ARRAY_SIZE(replies) && replies[i]) {
            int fd = scripted_accept();
            scripted_receive_any(fd);
            scripted_send(fd, replies[i]);
            scripted_close(fd);
        }
        SCRIPTED_UNTIL(scripted.ended == ended + 1);
    }
}

/* ---- nothing stays ---- */

enum ending { POOLED, CLOSED, NO_ANSWER, RESET, HALF, GARBAGE, LATE, REFUSED, NOT_MADE, BABBLING, RESENT, ENDINGS };

static const char *const answers[ENDINGS] = {
    [POOLED] = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npool",
    [BABBLING] = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npooland by the way",
    [RESENT] = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npool",
    [CLOSED] = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n2",
    [HALF] = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal",
    [GARBAGE] = "HTTP/1.1 200 OK\r\nContent-Length: 9x\r\n\r\nhal",
};

static void play_unanswered(struct scripted_call *call, enum ending ending)
{
    scripted_prepare(call, "POST", ending == REFUSED ? "http://127.0.0.1:1/" : "/play");
    if (ending == LATE)
        call->call.timeout_ms = 2;
    if (ending == NOT_MADE)
        http_call_header(&call->call, "X", "a\nb");
    scripted_start(call);
    scripted_wait(call);
    ck_assert(call->call.result == HTTP_NOT_SENT || (ending == LATE && call->call.result == HTTP_LOST));
    http_call_done(&call->call);
}

static void play(struct scripted_call *call, enum ending ending)
{
    int fd = call_and_receive(call, "/play");
    if (answers[ending])
        scripted_send(fd, answers[ending]);
    if (ending == RESENT) {
        scripted_wait(call);
        expect(call, HTTP_ANSWERED);
        scripted_call(call, "/again");
        scripted_receive_any(fd);
    }
    if (ending == RESET)
        scripted_reset(fd);
    else
        scripted_close(fd);
    if (ending == RESENT) {
        fd = scripted_accept();
        scripted_receive_any(fd);
        scripted_close(fd);
    }
    scripted_wait(call);
    expect(call, ending == POOLED || ending == CLOSED || ending == BABBLING ? HTTP_ANSWERED : HTTP_LOST);
}

START_TEST(hundreds_of_calls_that_end_in_every_way_leave_no_descriptor)
{
    int before = 0;
    for (int i = 0; i < 31 * ENDINGS; i++) {
        struct scripted_call call;
        enum ending ending = (enum ending)(i % ENDINGS);
        if (i == ENDINGS) /* what is opened once is there from now on */
            before = scripted_descriptors();
        if (ending == LATE || ending == REFUSED || ending == NOT_MADE)
            play_unanswered(&call, ending);
        else
            play(&call, ending);
        scripted_settle();
        while (scripted_has_connection()) /* of one that was too late */
            scripted_close(scripted_accept());
        scripted_settle();
    }
    ck_assert_int_eq(scripted_descriptors(), before);
}

/* Three calls while only that number of descriptors is left; returns the number of answered ones. */
static int call_with_descriptors(int free_ones)
{
    struct rlimit files, few;
    getrlimit(RLIMIT_NOFILE, &files);
    int next = fcntl(0, F_DUPFD, 0), fds[8], count = 0, answered = 0;
    close(next);
    few = files;
    few.rlim_cur = (rlim_t)(next + free_ones);
    struct scripted_call calls[3];
    setrlimit(RLIMIT_NOFILE, &few);
    for (int i = 0; i < 3; i++)
        scripted_call(&calls[i], "/files");
    for (int i = 0; i < 50; i++)
        scripted_run_once();
    setrlimit(RLIMIT_NOFILE, &files);
    while (scripted_has_connection())
        fds[count++] = scripted_accept();
    for (int i = 0; i < count; i++) {
        if (scripted_peek(fds[i], text) > 0) {
            scripted_receive_any(fds[i]);
            scripted_send(fds[i], "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    }
    for (int i = 0; i < 3; i++) {
        scripted_wait(&calls[i]);
        answered += calls[i].call.result == HTTP_ANSWERED;
        expect(&calls[i], calls[i].call.result == HTTP_ANSWERED ? HTTP_ANSWERED : HTTP_NOT_SENT);
    }
    for (int i = 0; i < count; i++)
        scripted_close(fds[i]);
    scripted_settle();
    return answered;
}

START_TEST(without_descriptors_nothing_is_sent_and_with_them_all_is_well)
{
    ck_assert_int_eq(call_with_descriptors(0), 0);
    ck_assert_int_eq(call_with_descriptors(1), 0);
    for (int i = 2; i < 6; i++)
        (void)call_with_descriptors(i);
    ck_assert_int_eq(call_with_descriptors(20), 3);
}

/* ---- addresses ---- */

static bool listen_at(struct sockaddr *address, socklen_t length)
{
    scripted_stop_listening();
    scripted.listener = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int yes = 1;
    setsockopt(scripted.listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    return scripted.listener >= 0 && bind(scripted.listener, address, length) == 0 &&
           listen(scripted.listener, 16) == 0 && getsockname(scripted.listener, address, &length) == 0;
}

static void expect_host(const char *url, const char *host)
{
    struct scripted_call call;
    char line[128];
    snprintf(line, sizeof(line), "\r\nHost: %s\r\n", host);
    scripted_prepare(&call, "GET", url);
    scripted_start(&call);
    int fd = scripted_accept();
    scripted_receive(fd, text);
    ck_assert_msg(strstr(text, line) != NULL, "%s", text);
    ck_assert_ptr_eq(strstr(text, "GET /x?y HTTP/1.1\r\n"), text);
    scripted_send(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    scripted_wait(&call);
    expect(&call, HTTP_ANSWERED);
    scripted_close(fd);
}

TEST(an_address_of_version_six_is_called_and_named_in_brackets)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (!listen_at((struct sockaddr *)&address, sizeof(address)))
        return; /* a machine without */
    char url[64], host[64];
    snprintf(host, sizeof(host), "[::1]:%d", ntohs(address.sin6_port));
    snprintf(url, sizeof(url), "http://[::1]:%d/x?y", ntohs(address.sin6_port));
    expect_host(url, host);
}

TEST(a_name_is_called_wherever_it_listens)
{
    char url[64], host[64];
    snprintf(host, sizeof(host), "localhost:%d", scripted.port);
    snprintf(url, sizeof(url), "http://localhost:%d/x?y", scripted.port);
    expect_host(url, host);
}

TEST(the_host_is_named_with_its_port_unless_that_is_the_schemes)
{
    char url[64], host[64];
    snprintf(host, sizeof(host), "127.0.0.1:%d", scripted.port);
    snprintf(url, sizeof(url), "HTTP://127.0.0.1:0%d/x?y", scripted.port);
    expect_host(url, host);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(80)};
    address.sin_addr.s_addr = htonl(0x7f4d1105); /* 127.77.17.5, which nothing else uses */
    if (!listen_at((struct sockaddr *)&address, sizeof(address)))
        return; /* not allowed to */
    expect_host("http://127.77.17.5/x?y", "127.77.17.5");
    expect_host("http://127.77.17.5:80/x?y", "127.77.17.5");
}

/* ---- many ---- */

#define LANES 100
#define CALLS 10000

struct lane {
    struct scripted_call call;
    int id;
};

static struct lane lanes[LANES];
static int fds[10 * LANES]; /* the peer's ends */
static int started, right;

static void start_next(struct scripted_call *call)
{
    struct lane *lane = container_of(call, struct lane, call);
    char path[32];
    if (call->ends > 0) {
        ck_assert_msg(call->call.result == HTTP_ANSWERED, "%s", call->call.error);
        right += call->call.answer.length > 0 && atoi(call->call.answer.bytes) == lane->id;
    }
    if (started == CALLS)
        return;
    lane->id = ++started;
    snprintf(path, sizeof(path), "/id/%d", lane->id);
    scripted_make(call, started % 2 ? "POST" : "GET", path);
    scripted_start(call);
}

/* Answers the requests that have arrived, in another order, in one piece, in two, or in chunks. */
static void serve_some(unsigned int *seed, int count)
{
    for (int n = 0; n < count; n++) {
        int fd = fds[rand_r(seed) % (unsigned int)count], id;
        if (!scripted_is_asked(fd))
            continue;
        scripted_receive(fd, text);
        ck_assert_int_eq(sscanf(text, "%*s /id/%d ", &id), 1);
        char answer[256];
        int split = rand_r(seed) % 3, length = snprintf(answer, sizeof(answer), "%d", id);
        length =
            split == 2
                ? snprintf(answer, sizeof(answer),
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%d\r\n0\r\n\r\n", length, id)
                : snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%d", length, id);
        if (split == 0)
            scripted_send_bytes(fd, answer, (size_t)length);
        for (int at = 0; split > 0 && at < length; at += 30) {
            scripted_send_bytes(fd, answer + at, (size_t)(length - at < 30 ? length - at : 30));
            scripted_run_once();
        }
    }
}

START_TEST(ten_thousand_calls_of_which_a_hundred_are_under_way_each_get_their_own_answer)
{
    unsigned int seed = 4711;
    int count = 0;
    started = right = 0;
    for (int i = 0; i < LANES; i++) {
        scripted_prepare(&lanes[i].call, "GET", "/unused");
        lanes[i].call.then = start_next;
        start_next(&lanes[i].call);
    }
    while (scripted.ended < CALLS) {
        while (scripted_has_connection()) {
            ck_assert_int_lt(count, 10 * LANES);
            fds[count++] = scripted_accept();
        }
        serve_some(&seed, count);
        scripted_run_once();
    }
    ck_assert_int_eq(right, CALLS);
    ck_assert_int_eq(scripted.ended, CALLS);
    for (int i = 0; i < LANES; i++)
        http_call_done(&lanes[i].call.call);
    for (int i = 0; i < count; i++)
        scripted_close(fds[i]);
}

static void add_tests(Suite *suite, const char *scheme, void (*set_up)(void))
{
    TCase *tests = tcase_create(scheme);
    tcase_add_checked_fixture(tests, set_up, scripted_tear_down);
    tcase_add_test(tests, each_call_has_its_own_deadline_and_not_less_time);
    tcase_add_test(tests, the_deadline_of_a_call_that_is_sent_again_stays_where_it_was);
    tcase_add_test(tests, a_call_that_never_got_a_connection_sent_nothing);
    tcase_add_test(tests, a_call_whose_time_is_over_at_its_start_says_so);
    tcase_add_test(tests, a_machine_that_slept_sends_nothing_that_waited_for_a_connection);
    tcase_add_test(tests, a_machine_that_slept_sends_no_rest);
    tcase_add_test(tests, a_call_that_waits_to_be_sent_again_is_lost_at_its_deadline);
    tcase_add_test(tests, the_deadline_of_one_call_does_not_end_another_that_waits_for_the_same_peer);
    tcase_add_test(tests, time_in_plenty_does_not_overflow);
    tcase_add_test(tests, a_crowd_that_waits_for_a_peer_gets_its_answers_when_he_comes_alive);
    tcase_add_test(tests, no_call_of_many_waits_for_the_answer_to_another);
    tcase_add_test(tests, a_peer_that_answers_at_once_gets_few_connections);
    tcase_add_test(tests, many_calls_to_a_peer_that_refuses_connections_all_fail);
    tcase_add_test(tests, an_address_is_given_up_with_the_connections_that_were_on_their_way_to_it);
    tcase_add_test(tests, closing_ends_a_call_in_every_state_once_and_reports_what_left);
    tcase_add_test(tests, closing_while_everybody_is_idle_leaves_nothing);
    tcase_add_test(tests, a_call_may_be_started_again_from_every_kind_of_end);
    tcase_add_test(tests, a_call_may_be_freed_from_every_kind_of_end);
    tcase_add_test(tests, hundreds_of_calls_that_end_in_every_way_leave_no_descriptor);
    tcase_add_test(tests, without_descriptors_nothing_is_sent_and_with_them_all_is_well);
    tcase_add_test(tests, ten_thousand_calls_of_which_a_hundred_are_under_way_each_get_their_own_answer);
    suite_add_tcase(suite, tests);
}

SUITE(http_pool_life)
{
    add_tests(suite, "http", scripted_set_up);
    add_tests(suite, "https", scripted_set_up_tls);
    TCase *addresses = tcase_create("addresses");
    tcase_add_checked_fixture(addresses, scripted_set_up, scripted_tear_down);
    ADD_TESTS(addresses);
    suite_add_tcase(suite, addresses);
}
