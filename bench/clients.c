/* See clients.h.
 *
 * Invariant: a client is in exactly one of: idle list, broken list, waiting for epoll (connecting, sending, reading).
 * on_answer comes exactly once for each request. Leaves out: chunked answers, TLS, names (an address is enough). */
#include "bench/clients.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RETRY_NS INT64_C(100000000)
#define EVENTS_MAX 512

enum state { BROKEN, CONNECTING, IDLE, SENDING, READING };

struct client {
    struct client *next; /* idle or broken list */
    int fd;
    enum state state;
    int64_t intended_ns;
    int status;                       /* READING: 0 until the head is whole */
    bool closes;                      /* the answer has "Connection: close" */
    size_t length, sent;              /* of buffer */
    size_t body_left;                 /* READING, with status: still to come */
    char buffer[CLIENTS_REQUEST_MAX]; /* the request while SENDING, the answer's head while READING */
};

int64_t clients_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void watch(struct clients *clients, struct client *client, int operation, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = client};
    if (epoll_ctl(clients->epoll, operation, client->fd, &event) != 0) {
        perror("epoll_ctl");
        abort(); /* no descriptor of ours is unknown to it: a bug, or no memory in the kernel */
    }
}

static void become_idle(struct clients *clients, struct client *client)
{
    client->state = IDLE;
    client->next = clients->idle;
    clients->idle = client;
    clients->idle_count++;
}

static void become_broken(struct clients *clients, struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
    client->state = BROKEN;
    client->next = clients->broken;
    clients->broken = client;
}

static void leave_idle(struct clients *clients, struct client *client)
{
    struct client **link = &clients->idle;
    while (*link != client)
        link = &(*link)->next;
    *link = client->next;
    clients->idle_count--;
}

static void start_opening(struct clients *clients, struct client *client)
{
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (client->fd < 0) {
        become_broken(clients, client);
        return;
    }
    int on = 1;
    (void)setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* ignoring: slower, not wrong */
    if (connect(client->fd, (struct sockaddr *)&clients->to, sizeof(clients->to)) != 0 && errno != EINPROGRESS) {
        become_broken(clients, client);
        return;
    }
    client->state = CONNECTING;
    watch(clients, client, EPOLL_CTL_ADD, EPOLLOUT);
}

static void open_broken(struct clients *clients)
{
    struct client *client = clients->broken;
    clients->broken = NULL;
    while (client) {
        struct client *next = client->next;
        start_opening(clients, client);
        client = next;
    }
}

static void end(struct clients *clients, struct client *client, int status, bool usable)
{
    int64_t intended_ns = client->intended_ns;
    if (usable) {
        become_idle(clients, client);
    } else {
        clients->open--;
        become_broken(clients, client);
    }
    clients->on_answer(clients->context, intended_ns, status);
}

static void go_on_sending(struct clients *clients, struct client *client)
{
    ssize_t sent = send(client->fd, client->buffer + client->sent, client->length - client->sent, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        end(clients, client, CLIENT_RESET, false);
        return;
    }
    client->sent += sent > 0 ? (size_t)sent : 0;
    if (client->sent < client->length)
        return;
    client->state = READING;
    client->status = 0;
    client->length = 0;
    watch(clients, client, EPOLL_CTL_MOD, EPOLLIN);
}

void clients_send(struct clients *clients, const char *request, size_t length, int64_t intended_ns)
{
    struct client *client = clients->idle;
    assert(client && length <= sizeof(client->buffer));
    leave_idle(clients, client);
    client->intended_ns = intended_ns;
    client->status = 0;
    client->length = 0;
    client->state = READING;
    ssize_t sent = send(client->fd, request, length, MSG_NOSIGNAL);
    if (sent == (ssize_t)length)
        return;
    /* An error that lasts is found when the rest is sent. */
    memcpy(client->buffer, request, length);
    client->length = length;
    client->sent = sent > 0 ? (size_t)sent : 0;
    client->state = SENDING;
    watch(clients, client, EPOLL_CTL_MOD, EPOLLOUT);
}

/* Reads status and framing from the head, which is whole and terminated. False = not what this program reads. */
static bool read_head(struct client *client, char *head, size_t head_length)
{
    if (head_length < 12 || memcmp(head, "HTTP/1.1 ", 9) != 0)
        return false;
    client->status = atoi(head + 9);
    client->closes = strcasestr(head, "\r\nConnection: close") != NULL;
    const char *length = strcasestr(head, "\r\nContent-Length:");
    bool has_body = client->status != 204 && client->status != 304;
    client->body_left = length ? strtoul(length + 17, NULL, 10) : 0;
    return client->status >= 200 && client->status < CLIENTS_STATUS_MAX && (length || !has_body);
}

static void read_answer(struct clients *clients, struct client *client)
{
    static char body[16384]; /* what is not looked at */
    while (client->state == READING) {
        bool in_head = client->status == 0;
        /* One byte stays for the terminator. */
        size_t space = in_head ? sizeof(client->buffer) - 1 - client->length
                               : (client->body_left < sizeof(body) ? client->body_left : sizeof(body));
        ssize_t got = recv(client->fd, in_head ? client->buffer + client->length : body, space, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            end(clients, client, CLIENT_RESET, false);
            return;
        }
        if (in_head) {
            client->length += (size_t)got;
            client->buffer[client->length] = '\0';
            char *blank = strstr(client->buffer, "\r\n\r\n");
            if (!blank && client->length < sizeof(client->buffer) - 1)
                continue;
            if (blank)
                blank[2] = '\0';
            size_t head = blank ? (size_t)(blank + 4 - client->buffer) : 0;
            if (!blank || !read_head(client, client->buffer, head) || client->length - head > client->body_left) {
                end(clients, client, CLIENT_UNREADABLE, false);
                return;
            }
            client->body_left -= client->length - head;
        } else {
            client->body_left -= (size_t)got;
        }
        if (client->status != 0 && client->body_left == 0) {
            end(clients, client, client->status, !client->closes);
            return;
        }
    }
}

static void on_connected(struct clients *clients, struct client *client)
{
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        become_broken(clients, client);
        return;
    }
    watch(clients, client, EPOLL_CTL_MOD, EPOLLIN);
    clients->open++;
    become_idle(clients, client);
}

static void on_event(struct clients *clients, struct client *client)
{
    switch (client->state) {
    case BROKEN:
        break; /* an event of the connection that was */
    case CONNECTING:
        on_connected(clients, client);
        break;
    case IDLE: /* the peer closed it, or sends what nobody requested */
        leave_idle(clients, client);
        clients->open--;
        become_broken(clients, client);
        break;
    case SENDING:
        go_on_sending(clients, client);
        break;
    case READING:
        read_answer(clients, client);
        break;
    }
}

bool clients_run_once(struct clients *clients, int64_t timeout_ns)
{
    int64_t now = clients_now_ns();
    if (clients->broken && now >= clients->retry_ns) {
        clients->retry_ns = now + RETRY_NS;
        open_broken(clients);
    }
    if (clients->broken && clients->retry_ns - now < timeout_ns)
        timeout_ns = clients->retry_ns - now;
    if (timeout_ns < 0)
        timeout_ns = 0;
    struct timespec timeout = {.tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000};
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_pwait2(clients->epoll, events, EVENTS_MAX, &timeout, NULL);
    if (count < 0 && errno != EINTR) {
        perror("epoll_pwait2");
        return false;
    }
    for (int i = 0; i < count; i++)
        on_event(clients, events[i].data.ptr);
    return true;
}

bool clients_open(struct clients *clients, size_t count, int64_t timeout_ns)
{
    clients->epoll = epoll_create1(EPOLL_CLOEXEC);
    clients->all = calloc(count, sizeof(*clients->all));
    if (clients->epoll < 0 || !clients->all) {
        perror("connections");
        return false;
    }
    clients->count = count;
    for (size_t i = 0; i < count; i++) {
        clients->all[i].fd = -1;
        start_opening(clients, &clients->all[i]);
    }
    int64_t end_ns = clients_now_ns() + timeout_ns;
    while (clients->open < count) {
        int64_t left_ns = end_ns - clients_now_ns();
        if (left_ns <= 0) {
            fprintf(stderr, "only %zu of %zu connections could be opened\n", clients->open, count);
            return false;
        }
        if (!clients_run_once(clients, left_ns))
            return false;
    }
    return true;
}

void clients_close(struct clients *clients)
{
    for (size_t i = 0; i < clients->count; i++)
        if (clients->all[i].fd >= 0)
            close(clients->all[i].fd);
    free(clients->all);
    if (clients->epoll >= 0)
        close(clients->epoll);
    *clients = (struct clients){.epoll = -1};
}
