/* A door to the test's PostgreSQL: an address of 127.0.0.0/8 whose connections are passed on to the server's socket,
 * by a thread. A door can be frozen: what is connected hears nothing more, and what connects gets no answer, as from a
 * host that stands still. A door can be promoted: the server behind it seems to be on a later timeline. */
#ifndef ISSUING_TEST_DOOR_H
#define ISSUING_TEST_DOOR_H

#include <arpa/inet.h>
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DOOR_PAIRS 64

struct door {
    int listener, port;
    int pairs[DOOR_PAIRS][2]; /* client and server; -1 = none */
    atomic_bool is_frozen, is_promoted, is_over;
    atomic_int count; /* connections that were passed on */
    char socket[108]; /* of the server: "@name" */
    pthread_t thread;
};

static inline int door_connect(const struct door *door)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[108];
    int length = snprintf(name, sizeof(name), "%s/.s.PGSQL.5432", door->socket);
    memcpy(address.sun_path, name, (size_t)length);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, size) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static inline void door_close_pair(struct door *door, int i)
{
    (void)close(door->pairs[i][0]);
    (void)close(door->pairs[i][1]);
    door->pairs[i][0] = door->pairs[i][1] = -1;
}

static inline void door_accept(struct door *door)
{
    int client = accept(door->listener, NULL, NULL), server = door_connect(door), i = 0;
    while (i < DOOR_PAIRS && door->pairs[i][0] >= 0)
        i++;
    if (client < 0 || server < 0 || i == DOOR_PAIRS) {
        (void)close(client);
        (void)close(server);
        return;
    }
    door->pairs[i][0] = client;
    door->pairs[i][1] = server;
    door->count++;
}

/* session_server asks for the timeline as a number of 32 bits: with one more it is twice as high. */
static inline void door_raise_timeline(char *bytes, size_t length)
{
    char *found = memmem(bytes, length, "::bit(32)::", 11);
    if (found)
        memcpy(found, "::bit(33)::", 11);
}

static inline void door_pass(struct door *door, int i, int side)
{
    char bytes[65536];
    ssize_t length = recv(door->pairs[i][side], bytes, sizeof(bytes), MSG_DONTWAIT);
    if (length > 0 && side == 0 && door->is_promoted)
        door_raise_timeline(bytes, (size_t)length);
    if (length <= 0 || send(door->pairs[i][1 - side], bytes, (size_t)length, MSG_NOSIGNAL) != length)
        door_close_pair(door, i);
}

static inline void *door_run(void *context)
{
    struct door *door = context;
    while (!door->is_over) {
        struct pollfd polls[1 + 2 * DOOR_PAIRS];
        polls[0] = (struct pollfd){.fd = door->listener, .events = POLLIN};
        for (int i = 0; i < 2 * DOOR_PAIRS; i++)
            polls[1 + i] = (struct pollfd){.fd = door->pairs[i / 2][i % 2], .events = POLLIN};
        if (door->is_frozen) {
            (void)poll(NULL, 0, 5);
            continue;
        }
        if (poll(polls, 1 + 2 * DOOR_PAIRS, 5) <= 0 || door->is_frozen)
            continue;
        for (int i = 0; i < 2 * DOOR_PAIRS; i++)
            if (polls[1 + i].revents && door->pairs[i / 2][i % 2] >= 0)
                door_pass(door, i / 2, i % 2);
        if (polls[0].revents)
            door_accept(door);
    }
    return NULL;
}

/* address: 127.0.0.x. port 0 = any. */
static inline void door_open(struct door *door, const char *address, int port, const char *socket_name)
{
    struct sockaddr_in bound = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t length = sizeof(bound);
    memset(door, 0, sizeof(*door));
    memset(door->pairs, 0xff, sizeof(door->pairs));
    snprintf(door->socket, sizeof(door->socket), "%s", socket_name);
    ck_assert_int_eq(inet_pton(AF_INET, address, &bound.sin_addr), 1);
    door->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(setsockopt(door->listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
    ck_assert_int_eq(bind(door->listener, (struct sockaddr *)&bound, length), 0);
    ck_assert_int_eq(listen(door->listener, 64), 0);
    ck_assert_int_eq(getsockname(door->listener, (struct sockaddr *)&bound, &length), 0);
    door->port = ntohs(bound.sin_port);
    ck_assert_int_eq(pthread_create(&door->thread, NULL, door_run, door), 0);
}

static inline void door_shut(struct door *door)
{
    door->is_over = true;
    (void)pthread_join(door->thread, NULL);
    (void)close(door->listener);
    for (int i = 0; i < DOOR_PAIRS; i++)
        if (door->pairs[i][0] >= 0)
            door_close_pair(door, i);
}

#endif
