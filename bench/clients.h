/* Keep-alive HTTP/1.1 connections to one peer, one request at a time on each, on epoll. A callback gets the result of
 * each request; the owner of the connections decides when to send the next. */
#ifndef ISSUING_BENCH_CLIENTS_H
#define ISSUING_BENCH_CLIENTS_H

#include <netinet/in.h>

#include "common/lib/base/base.h"

#define CLIENTS_REQUEST_MAX 4096
#define CLIENTS_STATUS_MAX 600

/* Instead of a status. */
enum client_end {
    CLIENT_RESET = 0,      /* the connection ended before the answer did */
    CLIENT_UNREADABLE = 1, /* no HTTP, or of a kind that this program does not read */
};

struct client;

struct clients {
    int epoll;
    struct sockaddr_in to;
    struct client *all; /* owned */
    size_t count, open, idle_count;
    struct client *idle;   /* first of those that wait for a request */
    struct client *broken; /* first of those to be opened again */
    int64_t retry_ns;
    /* The intended time is what clients_send() was given; status is an HTTP status or an enum client_end. */
    void (*on_answer)(void *context, int64_t intended_ns, int status);
    void *context;
};

int64_t clients_now_ns(void);
/* Opens all connections and waits until they are open. Writes the reason of a failure to standard error. */
must_check bool clients_open(struct clients *clients, size_t count, int64_t timeout_ns);
void clients_close(struct clients *clients);
/* Takes an idle connection (there must be one). The request is copied when it cannot be written at once. */
void clients_send(struct clients *clients, const char *request, size_t length, int64_t intended_ns);
/* Waits for at most that long, and calls on_answer for each answer that came. */
must_check bool clients_run_once(struct clients *clients, int64_t timeout_ns);

#endif
