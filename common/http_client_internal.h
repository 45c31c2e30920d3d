/* What the rooms of the HTTP client share: the client, its origins, and a call's end. Private to http_client.c,
 * http_transfer.c (https, by libcurl), http_plain.c (clear text) and http_connect.c.
 *
 * A way (http_transfer.c, http_plain.c) takes a call over when its start says NULL, and ends it once, from the loop, by
 * http_call_answered() or http_call_failed(). */
#ifndef ISSUING_HTTP_CLIENT_INTERNAL_H
#define ISSUING_HTTP_CLIENT_INTERNAL_H

#include <curl/curl.h>

#include "common/http_client.h"
#include "common/http_loop.h"

#define HTTP_ORIGINS_MAX 8
#define HTTP_HEADER_MAX (32 * 1024) /* bytes of one answer's header, interim answers and trailers included */
#define HTTP_INPUT_SIZE (16 * 1024)

struct http_calls {
    struct http_call *first, *last;
    int count;
};

/* Scheme, host and port: what calls must share to share a connection. One without calls is given up for another. */
struct http_origin {
    struct http_client *client;
    char *text; /* owned, as the URLs begin; NULL = unused */
    size_t text_length;
    char *host;     /* owned; as the Host header says it */
    CURLU *address; /* parsed once for all calls */
    bool is_https;
    int calls; /* that it is used by */

    /* of http_transfer.c */
    struct http_lane *open_lanes; /* those with room for calls; the first is filled up first */
    struct http_lane **lanes;     /* owned */
    int lanes_count, next_lane;

    /* of http_plain.c: a call is in one of the lists */
    struct http_calls waiting; /* for a connection, any */
    struct http_calls fresh;   /* for a new one: the kept one that they left on was dead */
    struct http_calls sent;    /* each has a connection */
    struct http_kept *idle;    /* connections, the last used first */
    struct http_connect *connects;
    int idle_count, connecting;
};

struct http_client {
    uv_loop_t *uv;
    struct http_client_options options;
    struct authorities *authorities; /* NULL = as the options say */
    struct http_loop loop;           /* libcurl's */
    struct http_origin origins[HTTP_ORIGINS_MAX];
    struct http_call *unstarted, **unstarted_tail;
    uv_timer_t ender; /* ends calls that never started, and closes */
    int open_parts;
    bool is_closing;
    void (*on_closed)(void *context);
    void *closed_context;

    /* of http_transfer.c */
    struct http_transfer *transfers; /* on their way */

    /* of http_plain.c */
    struct http_lane *connect_lane;
    uv_timer_t deadline;         /* ends calls whose time is over */
    int64_t due_ms;              /* when it does; meaningful while it runs */
    uv_timer_t reaper;           /* closes connections that nobody needed for long */
    struct buf request;          /* that is being sent; wiped after it */
    char input[HTTP_INPUT_SIZE]; /* what was read; wiped after it was taken */
};

/* ANSWERED: status, header and body are filled in. May free the call or start it again. */
void http_call_answered(struct http_call *call);
/* LOST or NOT_SENT, as may_be_sent says. Any text; it is cut and made harmless. */
void http_call_failed(struct http_call *call, const char *why);
/* A request leaves, or may leave, from now on. */
void http_call_leaves(struct http_call *call);
/* Its time is over. To be asked before a byte is sent: the timer that ends the call may fire late, above all after a
 * suspension, and by then whoever started the call may have lost the right to it. */
bool http_call_is_late(const struct http_call *call);

/* https. start returns why it did not start, or NULL. */
const char *http_transfer_start(struct http_client *client, struct http_call *call);
void http_transfer_stop_all(struct http_client *client, const char *why);
/* After the last call; before the loop of libcurl is closed. */
void http_transfer_done(struct http_client *client);
/* Where an easy handle may go, and what it must leave alone; the constants of every one of ours. */
must_check bool http_transfer_set_common(CURL *easy, char *problem);

/* http. */
void http_plain_open(struct http_client *client);
const char *http_plain_start(struct http_client *client, struct http_call *call);
void http_plain_stop_all(struct http_client *client, const char *why);
void http_plain_leave(struct http_origin *origin);
/* Handles close; each counted in open_parts. */
void http_plain_close(struct http_client *client);
void http_client_part_closed(struct http_client *client);

/* A TCP connection: libcurl looks up the name, tries the addresses of both families and keeps the time. Later, once,
 * from the loop: on_end with a connected descriptor, which is the receiver's, or -1 and why, NULL = its time is over.
 * false: out of memory. */
must_check bool http_connect_start(struct http_origin *origin, int64_t timeout_ms,
                                   void (*on_end)(struct http_origin *origin, int fd, const char *why));
/* on_end of those that are on their way is not called. */
void http_connect_stop_all(struct http_origin *origin);

#endif
