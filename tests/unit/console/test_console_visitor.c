/* The story: on a machine with several users, each of them can connect to 127.0.0.1. The console answers those who
 * started it, so it must know whose connection it is, and must not be mistaken when that is hard to tell. */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/console/visitor.h"
#include "tests/support/suite.h"

#define NOBODY 65534

static struct visitors visitors;

static void set_up(void)
{
    struct err err;
    visitors_open(&visitors);
    ck_assert_msg(visitors_know_tcp(&visitors, &err), "%s", err.message);
}

static void tear_down(void)
{
    visitors_close(&visitors);
}

struct place {
    struct sockaddr_storage address;
    socklen_t length;
};

static struct place v4(const char *text, int port)
{
    struct place place = {.length = sizeof(struct sockaddr_in)};
    struct sockaddr_in *address = (struct sockaddr_in *)&place.address;
    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)port);
    ck_assert_int_eq(inet_pton(AF_INET, text, &address->sin_addr), 1);
    return place;
}

static struct place v6(const char *text, int port)
{
    struct place place = {.length = sizeof(struct sockaddr_in6)};
    struct sockaddr_in6 *address = (struct sockaddr_in6 *)&place.address;
    address->sin6_family = AF_INET6;
    address->sin6_port = htons((uint16_t)port);
    ck_assert_int_eq(inet_pton(AF_INET6, text, &address->sin6_addr), 1);
    return place;
}

/* Returns the listener and its port; -1 where this machine has no IPv6. */
static int listen_at(struct place place, int *ret_port)
{
    int fd = socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), off = 0;
    if (place.address.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (fd < 0 || bind(fd, (struct sockaddr *)&place.address, place.length) != 0) {
        ck_assert_int_eq(place.address.ss_family, AF_INET6);
        close(fd);
        return -1;
    }
    ck_assert_int_eq(listen(fd, 16), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&place.address, &place.length), 0);
    *ret_port = ntohs(((struct sockaddr_in *)&place.address)->sin_port);
    return fd;
}

static int dial(struct place place)
{
    int fd = socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&place.address, place.length), 0);
    return fd;
}

static int accept_one(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static void expect_user(int accepted, uid_t wanted, const char *what)
{
    uid_t user = (uid_t)-1;
    ck_assert_msg(visitors_user(&visitors, accepted, &user), "%s: unknown", what);
    ck_assert_msg(user == wanted, "%s: user %u", what, (unsigned)user);
}

/* A client of another user, which stays connected. */
static pid_t dial_as(uid_t user, struct place place)
{
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setresuid(user, user, user) != 0)
            _exit(1);
        dial(place);
        pause();
        _exit(0);
    }
    return child;
}

static void expect_both_users(int listener, struct place place, const char *what)
{
    int client = dial(place), accepted = accept_one(listener);
    expect_user(accepted, geteuid(), what);
    close(client);
    close(accepted);
    if (geteuid() != 0)
        return;
    pid_t child = dial_as(NOBODY, place);
    accepted = accept_one(listener);
    expect_user(accepted, NOBODY, what);
    close(accepted);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

TEST(the_user_of_a_connection_is_known_in_both_families)
{
    int port = 0;
    int listener = listen_at(v4("127.0.0.1", 0), &port);
    expect_both_users(listener, v4("127.0.0.1", port), "IPv4");
    int mapped = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (mapped >= 0) {
        close(mapped);
        expect_both_users(listener, v6("::ffff:127.0.0.1", port), "IPv4 by a socket of IPv6");
    }
    close(listener);
    listener = listen_at(v6("::1", 0), &port);
    if (listener < 0)
        return;
    expect_both_users(listener, v6("::1", port), "IPv6");
    close(listener);
    listener = listen_at(v6("::", 0), &port);
    expect_both_users(listener, v4("127.0.0.1", port), "IPv4 to a socket of IPv6");
    expect_both_users(listener, v6("::ffff:127.0.0.1", port), "mapped on both ends");
    close(listener);
}

TEST(the_user_of_a_socket_of_the_file_system_is_known)
{
    struct place place = {.length = sizeof(struct sockaddr_un)};
    struct sockaddr_un *address = (struct sockaddr_un *)&place.address;
    address->sun_family = AF_UNIX;
    snprintf(address->sun_path, sizeof(address->sun_path), "/tmp/test-console-visitor-%ld", (long)getpid());
    unlink(address->sun_path); /* of an earlier process with this number, which was killed */
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&place.address, place.length), 0);
    chmod(address->sun_path, 0666);
    ck_assert_int_eq(listen(listener, 16), 0);
    expect_both_users(listener, place, "a file");
    unlink(address->sun_path);
    close(listener);
}

/* The kernel calls root the owner of a socket that nobody has open any more: a console of root would admit whoever
 * sends its request and closes at once. */
TEST(whoever_has_closed_is_unknown)
{
    int port = 0, listener = listen_at(v4("127.0.0.1", 0), &port);
    uid_t user;
    int client = dial(v4("127.0.0.1", port));
    ck_assert_int_eq(send(client, "GET /", 5, 0), 5);
    close(client);
    int accepted = accept_one(listener);
    ck_assert(!visitors_user(&visitors, accepted, &user));
    close(accepted);
    client = dial(v4("127.0.0.1", port));
    shutdown(client, SHUT_WR); /* it still waits for its answer */
    accepted = accept_one(listener);
    expect_user(accepted, geteuid(), "half closed");
    close(client);
    ck_assert(!visitors_user(&visitors, accepted, &user));
    ck_assert(!visitors_user(&visitors, listener, &user));
    ck_assert(!visitors_user(&visitors, -1, &user));
    close(accepted);
    close(listener);
}

/* Below the range from which the kernel gives a connect its port: one of that range may be in use for a connection of
 * somebody else, or wait for the end of one, and then nobody can listen there. */
#define PORT_FIRST 20000
#define PORTS 12000
#define PORTS_TRIED 20

/* A connected client whose own end is at *ret_place. */
static int dial_from_a_port(struct place to, struct place *ret_place)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    for (int tries = 0;; tries++) {
        uint32_t any = 0;
        ck_assert_int_eq(getrandom(&any, sizeof(any), 0), sizeof(any));
        *ret_place = v4("127.0.0.1", PORT_FIRST + (int)(any % PORTS));
        if (bind(fd, (struct sockaddr *)&ret_place->address, ret_place->length) == 0)
            break;
        ck_assert_int_lt(tries, 1000);
    }
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to.address, to.length), 0);
    return fd;
}

/* Returns a listener at place, or -1 when it is in use, also after some seconds. */
static int listen_where_nobody_is(struct place place)
{
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    for (int tries = 0; tries < 50; tries++) {
        if (bind(fd, (struct sockaddr *)&place.address, place.length) == 0 && listen(fd, 1) == 0)
            return fd;
        usleep(100 * 1000);
    }
    close(fd);
    return -1;
}

/* The client is gone, the kernel has forgotten it, and somebody who is admitted listens at its port. */
TEST(a_listener_at_the_port_of_the_client_is_not_the_client)
{
    int port = 0, second = 1, accepted = -1, other = -1, listener = listen_at(v4("127.0.0.1", 0), &port);
    uid_t user;
    for (int tries = 0; other < 0; tries++) {
        struct place place;
        ck_assert_int_lt(tries, PORTS_TRIED);
        close(accepted);
        int client = dial_from_a_port(v4("127.0.0.1", port), &place);
        accepted = accept_one(listener);
        setsockopt(client, IPPROTO_TCP, TCP_LINGER2, &second, sizeof(second)); /* until it is forgotten */
        close(client);
        usleep(1500 * 1000);
        other = listen_where_nobody_is(place);
    }
    struct place peer = {.length = sizeof(peer.address)};
    ck_assert_int_eq(getpeername(accepted, (struct sockaddr *)&peer.address, &peer.length), 0);
    ck_assert(!visitors_user(&visitors, accepted, &user));
    close(other);
    close(accepted);
    close(listener);
}

START_TEST(who_started_it_by_sudo_is_admitted_too)
{
    static const char *const odd[] = {"",      "-1",    "0x3e8",      "1000 ",
                                      "1000x", "+1000", "4294967295", "99999999999999999999"};
    setenv("SUDO_UID", "1000", 1);
    visitors_open(&visitors);
    ck_assert(visitors_admit(&visitors, geteuid()) && visitors_admit(&visitors, 1000));
    ck_assert(!visitors_admit(&visitors, 1001) && !visitors_admit(&visitors, NOBODY));
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
        setenv("SUDO_UID", odd[i], 1);
        visitors_open(&visitors);
        ck_assert_msg(visitors.starter == geteuid(), "%s", odd[i]);
    }
    unsetenv("SUDO_UID");
    visitors_open(&visitors);
    ck_assert(visitors_admit(&visitors, geteuid()) && !visitors_admit(&visitors, geteuid() + 1));
}

SUITE(console_visitor)
{
    TCase *tests = tcase_create("visitor");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
    TCase *users = tcase_create("users");
    tcase_add_test(users, who_started_it_by_sudo_is_admitted_too);
    suite_add_tcase(suite, users);
}
