/* Calls in clear text over their time: deadlines in each state, peers to whom no connection can be made, the end of the
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

#include "common/clock.h"
#include "common/http_client.h"
#include "tests/unit/failing.h"
#include "tests/unit/http_hand.h"

static char text[HAND_REQUEST_SIZE];

static void expect(struct hand_call *call, enum http_fate fate)
{
    ck_assert_msg(call->call.fate == fate, "fate %d: %s", (int)call->call.fate, call->call.error);
    ck_assert_int_eq(call->ends, 1);
    http_call_done(&call->call);
}

static int call_and_hear(struct hand_call *call, const char *path)
{
    hand_call(call, path);
    int fd = hand_accept();
    hand_take(fd);
    return fd;
}

static int keep_one(void)
{
    struct hand_call call;
    int fd = call_and_hear(&call, "/first");
    hand_answer(fd, "first");
    hand_wait(&call);
    expect(&call, HTTP_ANSWERED);
    return fd;
}

static void call_with_time(struct hand_call *call, const char *path, int64_t timeout_ms)
{
    hand_prepare(call, "POST", path);
    call->call.timeout_ms = timeout_ms;
    hand_start(call);
}

/* ---- deadlines ---- */

START_TEST(each_call_has_its_own_deadline_and_not_less_time)
{
    static struct hand_call calls[40];
    static int fds[40];
    for (int i = 0; i < 40; i++) {
        call_with_time(&calls[i], "/late", 150 + 7 * ((i * 17) % 40));
        fds[i] = hand_accept();
        hand_take(fds[i]);
        if (i % 2)
            hand_say(fds[i], "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha");
    }
    for (int i = 0; i < 40; i++) {
        hand_wait(&calls[i]);
        ck_assert_int_ge(calls[i].call.took_us, calls[i].call.timeout_ms * 1000 - 1000);
        ck_assert_uint_eq(calls[i].call.answer.length, 0);
        ck_assert_str_eq(calls[i].call.error, "no answer in time");
        expect(&calls[i], HTTP_LOST);
    }
    hand_settle();
    for (int i = 0; i < 40; i++) {
        ck_assert(hand_is_left(fds[i])); /* an answer that comes too late must find nobody */
        hand_close(fds[i]);
    }
}
END_TEST

START_TEST(the_deadline_of_a_call_that_is_sent_again_stays_where_it_was)
{
    /* By a clock that stands: the second try begins when half of the time is over. */
    int fd = keep_one();
    int64_t now_us = clock_mono_us();
    clock_freeze(clock_wall_us(), now_us);
    struct hand_call call, other;
    call_with_time(&call, "/again", 60000);
    hand_take(fd);
    clock_freeze(clock_wall_us(), now_us + 30000000);
    hand_close(fd);
    fd = hand_accept();
    hand_take(fd);
    hand_settle();
    ck_assert_int_eq(call.ends, 0);
    clock_freeze(clock_wall_us(), now_us + 59000000);
    call_with_time(&other, "/other", 1); /* makes it look at the clock soon */
    clock_freeze(clock_wall_us(), now_us + 60000000);
    hand_wait(&call);
    hand_wait(&other);
    http_call_done(&other.call);
    ck_assert(call.call.was_resent);
    ck_assert_int_eq(call.call.took_us, 60000000);
    expect(&call, HTTP_LOST);
    hand_close(fd);
}
END_TEST

START_TEST(a_call_that_never_got_a_connection_sent_nothing)
{
    hand_have_no_room();
    struct hand_call call;
    call_with_time(&call, "/never", 30);
    hand_wait(&call);
    ck_assert_str_eq(call.call.error, "no connection in time");
    expect(&call, HTTP_NOT_SENT);
    hand_make_room();
}
END_TEST

#define SLEPT_US (86400 * INT64_C(1000000))

START_TEST(a_machine_that_slept_sends_nothing_that_waited_for_a_connection)
{
    struct hand_call call, other;
    call_with_time(&call, "/asleep", 60000);
    clock_advance(SLEPT_US); /* the timers of the loop do not notice */
    hand_wait(&call);
    ck_assert_str_eq(call.call.error, "no connection in time");
    expect(&call, HTTP_NOT_SENT);
    int fd = hand_accept();
    ck_assert_uint_eq(hand_peek(fd, text), 0);
    call_with_time(&other, "/awake", 60000);
    int last_fd = hand_has_connection() ? hand_accept() : fd; /* made for the call that was late */
    hand_take(last_fd);
    hand_answer(last_fd, "ok");
    hand_wait(&other);
    expect(&other, HTTP_ANSWERED);
    hand_close(fd);
    if (last_fd != fd)
        hand_close(last_fd);
    clock_release();
}
END_TEST

static ssize_t send_little(int fd, const void *bytes, size_t length, int flags)
{
    return real_send(fd, bytes, length < 10 ? length : 10, flags);
}

START_TEST(a_machine_that_slept_sends_no_rest)
{
    int fd = keep_one();
    struct hand_call call;
    send_instead = send_little;
    call_with_time(&call, "/asleep", 60000);
    send_instead = NULL;
    clock_advance(SLEPT_US);
    hand_wait(&call);
    ck_assert_uint_eq(hand_peek(fd, text), 10);
    ck_assert_str_eq(call.call.error, "no answer in time");
    expect(&call, HTTP_LOST);
    hand_close(fd);
    clock_release();
}
END_TEST

START_TEST(a_call_that_waits_to_be_sent_again_is_lost_at_its_deadline)
{
    int fd = keep_one();
    struct hand_call call;
    call_with_time(&call, "/again", 500);
    hand_take(fd);
    hand_have_no_room();
    hand_close(fd);
    hand_wait(&call);
    expect(&call, HTTP_LOST);
    hand_make_room();
}
END_TEST

START_TEST(the_deadline_of_one_call_does_not_end_another_that_waits_for_the_same_peer)
{
    struct hand_call hasty[10], patient;
    hand_have_no_room();
    for (int i = 0; i < 10; i++)
        call_with_time(&hasty[i], "/hasty", 30 + 3 * i);
    call_with_time(&patient, "/patient", 60000);
    for (int i = 0; i < 10; i++) {
        hand_wait(&hasty[i]);
        expect(&hasty[i], HTTP_NOT_SENT);
    }
    for (int i = 0; i < 50; i++) { /* what they had begun ends a little later */
        hand_turn();
        uv_sleep(1);
    }
    ck_assert_msg(patient.ends == 0, "%s", patient.call.error);
    hand_make_room();
    int fd = hand_accept(); /* when the kernel tries again, after a second */
    hand_take(fd);
    hand_answer(fd, "patience");
    hand_wait(&patient);
    expect(&patient, HTTP_ANSWERED);
    hand_close(fd);
}
END_TEST

START_TEST(time_in_plenty_does_not_overflow)
{
    struct hand_call call;
    hand_prepare(&call, "POST", "/long");
    call.call.timeout_ms = INT64_MAX / 4;
    hand_start(&call);
    int fd = hand_accept();
    hand_take(fd);
    hand_answer(fd, "yes");
    hand_wait(&call);
    expect(&call, HTTP_ANSWERED);
    hand_close(fd);
}
END_TEST

/* ---- a peer that has no room ---- */

#define CROWD 200

START_TEST(a_crowd_that_waits_for_a_peer_gets_its_answers_when_he_comes_alive)
{
    static struct hand_call crowd[CROWD];
    static int fds[CROWD];
    int count = 0, answered = 0, before = hand_descriptors();
    hand_have_no_room();
    for (int i = 0; i < CROWD; i++)
        hand_call(&crowd[i], "/crowd");
    hand_settle();
    ck_assert_int_lt(hand_descriptors(), before + 64 + 10); /* so many connect at a time */
    hand_make_room();
    while (answered < CROWD) {
        HAND_UNTIL(hand_has_connection() || hand.ended > answered);
        answered = hand.ended;
        if (hand_has_connection())
            fds[count++] = hand_accept();
        for (int i = 0; i < count; i++) {
            if (hand_peek(fds[i], text) == 0)
                continue;
            hand_take(fds[i]);
            hand_answer(fds[i], "one of many");
        }
        hand_turn();
        answered = hand.ended;
    }
    for (int i = 0; i < CROWD; i++)
        expect(&crowd[i], HTTP_ANSWERED);
    for (int i = 0; i < count; i++)
        hand_close(fds[i]);
}
END_TEST

START_TEST(nobody_in_a_crowd_waits_for_the_answer_to_another)
{
    static struct hand_call crowd[CROWD];
    static int fds[CROWD];
    for (int i = 0; i < CROWD; i++)
        hand_call(&crowd[i], "/crowd");
    for (int i = 0; i < CROWD; i++) {
        fds[i] = hand_accept();
        hand_take(fds[i]);
    }
    for (int i = 0; i < CROWD; i++)
        hand_answer(fds[i], "at last");
    for (int i = 0; i < CROWD; i++) {
        hand_wait(&crowd[i]);
        expect(&crowd[i], HTTP_ANSWERED);
        hand_close(fds[i]);
    }
}
END_TEST

START_TEST(a_crowd_before_a_closed_door_is_told_so)
{
    static struct hand_call crowd[CROWD];
    hand_stop_listening();
    for (int i = 0; i < CROWD; i++)
        hand_call(&crowd[i], "/crowd");
    HAND_UNTIL(hand.ended == CROWD);
    for (int i = 0; i < CROWD; i++)
        expect(&crowd[i], HTTP_NOT_SENT);
}
END_TEST

START_TEST(an_address_is_given_up_with_the_connections_that_were_on_their_way_to_it)
{
    /* The call that wanted one was served by another; then other addresses need the room. */
    struct hand_call first, second;
    int fd = keep_one();
    hand_call(&first, "/first");
    hand_take(fd);
    hand_settle();
    int before = hand_descriptors();
    hand_have_no_room();
    hand_call(&second, "/second");
    hand_settle();
    ck_assert_int_gt(hand_descriptors(), before + 2); /* the fillers, and one on its way */
    hand_answer(fd, "first");
    hand_take(fd);
    hand_answer(fd, "second");
    hand_wait(&second);
    hand_wait(&first);
    expect(&first, HTTP_ANSWERED);
    expect(&second, HTTP_ANSWERED);
    hand_make_room();
    for (int i = 1; i <= 9; i++) {
        char url[64];
        snprintf(url, sizeof(url), "http://127.0.0.1:%0*d/other", 5 + i, hand.port);
        struct hand_call call;
        hand_prepare(&call, "GET", url);
        hand_start(&call);
        int other = hand_accept();
        hand_take(other);
        hand_answer(other, "other");
        hand_wait(&call);
        expect(&call, HTTP_ANSWERED);
        hand_close(other);
        hand_settle();
    }
    ck_assert(hand_is_left(fd));
    hand_close(fd);
    ck_assert_int_eq(hand_descriptors(), before - 2); /* both ends of the one that was kept */
}
END_TEST

/* ---- the end of the client ---- */

static size_t room; /* that the kernel has left */

static ssize_t send_into_room(int fd, const void *bytes, size_t length, int flags)
{
    if (room == 0) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t count = real_send(fd, bytes, length < room ? length : room, flags);
    room -= count > 0 ? (size_t)count : 0;
    return count;
}

static void close_client(struct hand_call *call)
{
    (void)call;
    hand_close_client();
}

/* Two idle connections; the second one is the next that is used. */
static void keep_two(int fds[2])
{
    struct hand_call calls[2];
    for (int i = 0; i < 2; i++)
        fds[i] = call_and_hear(&calls[i], "/first");
    for (int i = 0; i < 2; i++) {
        hand_answer(fds[i], "first");
        hand_wait(&calls[i]);
        expect(&calls[i], HTTP_ANSWERED);
    }
}

START_TEST(closing_ends_a_call_in_every_state_once_and_says_what_left)
{
    for (int i = 0; i < 2; i++) {
        int idle[2], fds[4];
        struct hand_call sent, half, part, untouched, again, waiting, closing;
        keep_two(idle);
        hand_call(&again, "/again");
        hand_take(idle[1]);
        hand_call(&closing, "/closing");
        hand_take(idle[0]);
        fds[0] = call_and_hear(&sent, "/sent");
        fds[1] = call_and_hear(&half, "/half");
        hand_say(fds[1], "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal");
        send_instead = send_into_room;
        room = 10;
        hand_call(&part, "/part");
        fds[2] = hand_accept();
        HAND_UNTIL(room == 0);
        hand_call(&untouched, "/untouched");
        fds[3] = hand_accept();
        hand_settle();
        hand_have_no_room();
        hand_close(idle[1]); /* `again` waits for another connection from now on */
        hand_call(&waiting, "/waiting");
        hand_settle();
        ck_assert_int_eq(sent.ends + half.ends + part.ends + untouched.ends + again.ends + waiting.ends, 0);
        closing.then = close_client;
        if (i == 0) {
            closing.then = NULL;
            hand_close_client();
        } else {
            hand_answer(idle[0], "and close");
        }
        HAND_UNTIL(hand.is_closed);
        send_instead = NULL;
        ck_assert_uint_eq(hand_peek(fds[2], text), 10);
        ck_assert_uint_eq(hand_peek(fds[3], text), 0);
        ck_assert_str_eq(waiting.call.error, "the client is closing");
        expect(&sent, HTTP_LOST);
        expect(&half, HTTP_LOST);
        expect(&part, HTTP_LOST);
        expect(&untouched, HTTP_NOT_SENT);
        expect(&again, HTTP_LOST);
        expect(&waiting, HTTP_NOT_SENT);
        expect(&closing, i == 0 ? HTTP_LOST : HTTP_ANSWERED);
        hand_make_room();
        while (hand_has_connection()) /* of calls that waited in vain */
            hand_close(hand_accept());
        hand_close(idle[0]);
        for (int j = 0; j < 4; j++)
            hand_close(fds[j]);
        hand_open(64);
    }
}
END_TEST

START_TEST(closing_while_everybody_is_idle_leaves_nothing)
{
    int fds[2];
    keep_two(fds);
    hand_close_client();
    HAND_UNTIL(hand.is_closed);
    for (int i = 0; i < 2; i++) {
        ck_assert(hand_is_left(fds[i]));
        hand_close(fds[i]);
    }
}
END_TEST

static int starts_left;

static void start_again(struct hand_call *call)
{
    if (starts_left-- <= 0)
        return;
    if (call->ends == 4)
        call->call.timeout_ms = 20;
    hand_make(call, "POST", "/again");
    hand_start(call);
}

START_TEST(a_call_may_be_started_again_from_every_kind_of_end)
{
    struct hand_call call;
    hand_prepare(&call, "POST", "/again");
    call.then = start_again;
    starts_left = 4;
    hand_start(&call);
    int fd = hand_accept();
    hand_take(fd);
    hand_answer(fd, "1");
    HAND_UNTIL(call.ends == 1); /* answered; on the same connection again */
    hand_take(fd);
    hand_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n2");
    HAND_UNTIL(call.ends == 2); /* answered; on another one */
    hand_close(fd);
    fd = hand_accept();
    hand_take(fd);
    hand_reset(fd);
    HAND_UNTIL(call.ends == 3); /* lost */
    fd = hand_accept();
    hand_take(fd);
    hand_say(fd, "no HTTP");
    HAND_UNTIL(call.ends == 4); /* lost; the next one has little time */
    hand_close(fd);
    HAND_UNTIL(call.ends == 5);
    ck_assert_int_ne(call.call.fate, HTTP_ANSWERED);
    hand_settle();
    ck_assert_int_eq(call.ends, 5);
    ck_assert_int_eq(starts_left, -1);
    http_call_done(&call.call);
}
END_TEST

static void free_call(struct hand_call *call)
{
    http_call_done(&call->call);
    memset(call, 0x5a, sizeof(*call));
    free(call);
}

START_TEST(a_call_may_be_freed_from_every_kind_of_end)
{
    static const char *const said[] = {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
                                       "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
                                       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx",
                                       "no HTTP",
                                       "",
                                       NULL};
    for (size_t i = 0; i < ARRAY_SIZE(said) + 1; i++) {
        int ended = hand.ended;
        struct hand_call *call = malloc(sizeof(*call));
        hand_prepare(call, "POST", i < ARRAY_SIZE(said) ? "/free" : "http://127.0.0.1:1/");
        call->then = free_call;
        if (i < ARRAY_SIZE(said) && !said[i])
            call->call.timeout_ms = 20;
        hand_start(call);
        if (i < ARRAY_SIZE(said) && said[i]) {
            int fd = hand_accept();
            hand_take(fd);
            hand_say(fd, said[i]);
            hand_close(fd);
        }
        HAND_UNTIL(hand.ended == ended + 1);
    }
}
END_TEST

/* ---- nothing stays ---- */

enum ending { KEPT, CLOSED, NO_ANSWER, RESET, HALF, GARBAGE, LATE, REFUSED, NOT_MADE, BABBLING, RESENT, ENDINGS };

static const char *const answers[ENDINGS] = {
    [KEPT] = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept",
    [BABBLING] = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkeptand by the way",
    [RESENT] = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept",
    [CLOSED] = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n2",
    [HALF] = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal",
    [GARBAGE] = "HTTP/1.1 200 OK\r\nContent-Length: 9x\r\n\r\nhal",
};

static void play_unheard(struct hand_call *call, enum ending ending)
{
    hand_prepare(call, "POST", ending == REFUSED ? "http://127.0.0.1:1/" : "/play");
    if (ending == LATE)
        call->call.timeout_ms = 2;
    if (ending == NOT_MADE) {
        buf_put_text(&call->call.lines, "X: a\nb");
        http_call_end_line(&call->call);
    }
    hand_start(call);
    hand_wait(call);
    ck_assert(call->call.fate == HTTP_NOT_SENT || (ending == LATE && call->call.fate == HTTP_LOST));
    http_call_done(&call->call);
}

static void play(struct hand_call *call, enum ending ending)
{
    int fd = call_and_hear(call, "/play");
    if (answers[ending])
        hand_say(fd, answers[ending]);
    if (ending == RESENT) {
        hand_wait(call);
        expect(call, HTTP_ANSWERED);
        hand_call(call, "/again");
        hand_take(fd);
    }
    if (ending == RESET)
        hand_reset(fd);
    else
        hand_close(fd);
    if (ending == RESENT) {
        fd = hand_accept();
        hand_take(fd);
        hand_close(fd);
    }
    hand_wait(call);
    expect(call, ending == KEPT || ending == CLOSED || ending == BABBLING ? HTTP_ANSWERED : HTTP_LOST);
}

START_TEST(a_thousand_calls_that_end_in_every_way_leave_no_descriptor)
{
    int before = 0;
    for (int i = 0; i < 1000 + ENDINGS; i++) {
        struct hand_call call;
        enum ending ending = (enum ending)(i % ENDINGS);
        if (i == ENDINGS) /* what is opened once is there from now on */
            before = hand_descriptors();
        if (ending == LATE || ending == REFUSED || ending == NOT_MADE)
            play_unheard(&call, ending);
        else
            play(&call, ending);
        hand_settle();
        while (hand_has_connection()) /* of one that was too late */
            hand_close(hand_accept());
        hand_settle();
    }
    ck_assert_int_eq(hand_descriptors(), before);
}
END_TEST

/* Three calls with so many descriptors to be had; returns how many were answered. */
static int call_with_descriptors(int free_ones)
{
    struct rlimit files, few;
    getrlimit(RLIMIT_NOFILE, &files);
    int next = fcntl(0, F_DUPFD, 0), fds[8], count = 0, answered = 0;
    close(next);
    few = files;
    few.rlim_cur = (rlim_t)(next + free_ones);
    struct hand_call calls[3];
    setrlimit(RLIMIT_NOFILE, &few);
    for (int i = 0; i < 3; i++)
        hand_call(&calls[i], "/files");
    for (int i = 0; i < 50; i++)
        hand_turn();
    setrlimit(RLIMIT_NOFILE, &files);
    while (hand_has_connection())
        fds[count++] = hand_accept();
    for (int i = 0; i < count; i++) {
        if (hand_peek(fds[i], text) > 0) {
            hand_take(fds[i]);
            hand_say(fds[i], "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    }
    for (int i = 0; i < 3; i++) {
        hand_wait(&calls[i]);
        answered += calls[i].call.fate == HTTP_ANSWERED;
        expect(&calls[i], calls[i].call.fate == HTTP_ANSWERED ? HTTP_ANSWERED : HTTP_NOT_SENT);
    }
    for (int i = 0; i < count; i++)
        hand_close(fds[i]);
    hand_settle();
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
END_TEST

/* ---- addresses ---- */

static bool listen_at(struct sockaddr *address, socklen_t length)
{
    hand_stop_listening();
    hand.listener = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int yes = 1;
    setsockopt(hand.listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    return hand.listener >= 0 && bind(hand.listener, address, length) == 0 && listen(hand.listener, 16) == 0 &&
           getsockname(hand.listener, address, &length) == 0;
}

static void expect_host(const char *url, const char *host)
{
    struct hand_call call;
    char line[128];
    snprintf(line, sizeof(line), "\r\nHost: %s\r\n", host);
    hand_prepare(&call, "GET", url);
    hand_start(&call);
    int fd = hand_accept();
    hand_hear(fd, text);
    ck_assert_msg(strstr(text, line) != NULL, "%s", text);
    ck_assert_ptr_eq(strstr(text, "GET /x?y HTTP/1.1\r\n"), text);
    hand_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    hand_wait(&call);
    expect(&call, HTTP_ANSWERED);
    hand_close(fd);
}

START_TEST(an_address_of_version_six_is_called_and_named_in_brackets)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    if (!listen_at((struct sockaddr *)&address, sizeof(address)))
        return; /* a machine without */
    char url[64], host[64];
    snprintf(host, sizeof(host), "[::1]:%d", ntohs(address.sin6_port));
    snprintf(url, sizeof(url), "http://[::1]:%d/x?y", ntohs(address.sin6_port));
    expect_host(url, host);
}
END_TEST

START_TEST(a_name_is_called_wherever_it_listens)
{
    char url[64], host[64];
    snprintf(host, sizeof(host), "localhost:%d", hand.port);
    snprintf(url, sizeof(url), "http://localhost:%d/x?y", hand.port);
    expect_host(url, host);
}
END_TEST

START_TEST(the_host_is_named_with_its_port_unless_that_is_the_schemes)
{
    char url[64], host[64];
    snprintf(host, sizeof(host), "127.0.0.1:%d", hand.port);
    snprintf(url, sizeof(url), "HTTP://127.0.0.1:0%d/x?y", hand.port);
    expect_host(url, host);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(80)};
    address.sin_addr.s_addr = htonl(0x7f4d1105); /* 127.77.17.5, where nobody else is */
    if (!listen_at((struct sockaddr *)&address, sizeof(address)))
        return; /* not allowed to */
    expect_host("http://127.77.17.5/x?y", "127.77.17.5");
    expect_host("http://127.77.17.5:80/x?y", "127.77.17.5");
}
END_TEST

/* ---- many ---- */

#define LANES 100
#define CALLS 10000

struct lane {
    struct hand_call call;
    int id;
    int fd; /* the peer's end of some connection */
};

static struct lane lanes[LANES];
static int asked, right;

static void ask(struct hand_call *call)
{
    struct lane *lane = container_of(call, struct lane, call);
    char path[32];
    if (call->ends > 0) {
        ck_assert_msg(call->call.fate == HTTP_ANSWERED, "%s", call->call.error);
        right += call->call.answer.length > 0 && atoi(call->call.answer.bytes) == lane->id;
    }
    if (asked == CALLS)
        return;
    lane->id = ++asked;
    snprintf(path, sizeof(path), "/id/%d", lane->id);
    hand_make(call, asked % 2 ? "POST" : "GET", path);
    hand_start(call);
}

/* Answers whoever has asked, in an order of its own, in one piece, in two, or in chunks. */
static void serve_some(unsigned int *seed, int count)
{
    for (int n = 0; n < count; n++) {
        int fd = lanes[rand_r(seed) % (unsigned int)count].fd, id;
        if (hand_peek(fd, text) == 0)
            continue;
        hand_hear(fd, text);
        ck_assert_int_eq(sscanf(text, "%*s /id/%d ", &id), 1);
        char answer[256];
        int split = rand_r(seed) % 3, length = snprintf(answer, sizeof(answer), "%d", id);
        length =
            split == 2
                ? snprintf(answer, sizeof(answer),
                           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%d\r\n0\r\n\r\n", length, id)
                : snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%d", length, id);
        if (split == 0)
            hand_say_bytes(fd, answer, (size_t)length);
        for (int at = 0; split > 0 && at < length; at += 30) {
            hand_say_bytes(fd, answer + at, (size_t)(length - at < 30 ? length - at : 30));
            hand_turn();
        }
    }
}

START_TEST(ten_thousand_calls_over_a_hundred_connections_each_get_their_own_answer)
{
    unsigned int seed = 4711;
    int count = 0;
    asked = right = 0;
    for (int i = 0; i < LANES; i++) {
        hand_prepare(&lanes[i].call, "GET", "/unused");
        lanes[i].call.then = ask;
        ask(&lanes[i].call);
    }
    while (hand.ended < CALLS) {
        while (hand_has_connection()) {
            ck_assert_int_lt(count, LANES);
            lanes[count++].fd = hand_accept();
        }
        serve_some(&seed, count);
        hand_turn();
    }
    ck_assert_int_eq(right, CALLS);
    ck_assert_int_eq(hand.ended, CALLS);
    for (int i = 0; i < LANES; i++)
        http_call_done(&lanes[i].call.call);
    for (int i = 0; i < count; i++)
        hand_close(lanes[i].fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_plain_life");
    TCase *tests = tcase_create("http_plain_life");
    tcase_add_checked_fixture(tests, hand_set_up, hand_tear_down);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, each_call_has_its_own_deadline_and_not_less_time);
    tcase_add_test(tests, the_deadline_of_a_call_that_is_sent_again_stays_where_it_was);
    tcase_add_test(tests, a_call_that_never_got_a_connection_sent_nothing);
    tcase_add_test(tests, a_machine_that_slept_sends_nothing_that_waited_for_a_connection);
    tcase_add_test(tests, a_machine_that_slept_sends_no_rest);
    tcase_add_test(tests, a_call_that_waits_to_be_sent_again_is_lost_at_its_deadline);
    tcase_add_test(tests, the_deadline_of_one_call_does_not_end_another_that_waits_for_the_same_peer);
    tcase_add_test(tests, time_in_plenty_does_not_overflow);
    tcase_add_test(tests, a_crowd_that_waits_for_a_peer_gets_its_answers_when_he_comes_alive);
    tcase_add_test(tests, nobody_in_a_crowd_waits_for_the_answer_to_another);
    tcase_add_test(tests, a_crowd_before_a_closed_door_is_told_so);
    tcase_add_test(tests, an_address_is_given_up_with_the_connections_that_were_on_their_way_to_it);
    tcase_add_test(tests, closing_ends_a_call_in_every_state_once_and_says_what_left);
    tcase_add_test(tests, closing_while_everybody_is_idle_leaves_nothing);
    tcase_add_test(tests, a_call_may_be_started_again_from_every_kind_of_end);
    tcase_add_test(tests, a_call_may_be_freed_from_every_kind_of_end);
    tcase_add_test(tests, a_thousand_calls_that_end_in_every_way_leave_no_descriptor);
    tcase_add_test(tests, without_descriptors_nothing_is_sent_and_with_them_all_is_well);
    tcase_add_test(tests, an_address_of_version_six_is_called_and_named_in_brackets);
    tcase_add_test(tests, a_name_is_called_wherever_it_listens);
    tcase_add_test(tests, the_host_is_named_with_its_port_unless_that_is_the_schemes);
    tcase_add_test(tests, ten_thousand_calls_over_a_hundred_connections_each_get_their_own_answer);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
