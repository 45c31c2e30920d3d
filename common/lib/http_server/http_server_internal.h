/* Private to the HTTP server: what its files share. README.md in this folder describes how they work together.
 *
 * http_server.c       the listener: accepting, the limit of connections, the sweep for deadlines, drain and close
 * http_conn_read.c    bytes of a connection into requests, one after the other
 * http_conn.c         one connection: opening, what its deadlines lead to, what the server's drain does to it
 * http_pressure.c     which connection gives way when connections or memory run short
 * http_conn_write.c   replies of handlers, refusals by the server itself, and the watch over clients that do not read
 * http_conn_state.c   the states of a connection: deadlines, queues, draining after the last reply, closing
 * http_origin.c       which client a connection belongs to, and the limit of each address
 * http_slot.c         the memory of one request
 * http_parse.c        bytes into one request; it and http_slot.c are the files that know llhttp
 * http_head.c         what a request line and a header block must look like
 * http_reply.c        one reply into bytes
 *
 * A file calls those below it in this list only.
 *
 * An idle connection is small. What a request needs (a slot: header fields, buffers, parser) is borrowed from the
 * server with the first byte and given back with the reply, so thousands of idle connections cost little and a busy one
 * allocates nothing. */
#ifndef ISSUING_HTTP_SERVER_INTERNAL_H
#define ISSUING_HTTP_SERVER_INTERNAL_H

#include <sys/queue.h>

#include "common/lib/base/closing.h"
#include "common/lib/http_server/http_origin.h"
#include "common/lib/http_server/http_server.h"

#define HTTP_READ_SIZE ((size_t)16 * 1024) /* one read; also the most that is stored unread behind a running request */
/* How long the input of a connection is drained after its last reply (http_conn_state.c): in all, without a byte, and
 * while the server drains. A proxy may send a large body to its end before it reads the reply. */
#define HTTP_LINGER_MS 30000
#define HTTP_LINGER_QUIET_MS 5000
#define HTTP_LINGER_DRAIN_MS 1000
#define HTTP_NEW_DRAIN_MS 1000 /* for the first request of a connection, when the server drains */
/* guard: a refused client is drained until it reads */
#define HTTP_LINGER_BYTES ((size_t)16 << 20)
/* Bytes drained between two sweeps, of one connection and of all; beyond them TCP makes the client wait. */
#define HTTP_LINGER_RATE ((size_t)4 << 20)
#define HTTP_LINGER_RATE_ALL ((size_t)32 << 20)

/* ---- http_head.c ---- */

#define HTTP_METHOD_MAX 32 /* bytes */

struct http_refusal {
    int status;         /* 0 = nothing to refuse */
    const char *detail; /* static text */
};

struct http_line {
    enum http_method method;
    size_t method_length;
    size_t target_length;    /* the target begins one byte behind the method */
    size_t authority_length; /* of "http://host:port", before its path; 0 = the target has origin form */
    bool is_1_0;
};

/* `line` is without its CRLF and has no control characters but HT. */
struct http_refusal http_check_line(struct slice line, size_t target_max, struct http_line *ret_line);
/* The rules that llhttp lacks. *ret_expects: there is an "Expect: 100-continue" to be honoured. */
struct http_refusal http_check_fields(const struct http_request *request, bool is_1_0, bool *ret_expects);
/* Of a target in absolute form: its scheme and authority name what Host names. */
struct http_refusal http_check_authority(const struct http_request *request, struct slice authority);

/* ---- http_slot.c, http_parse.c ---- */

/* One request from its first byte to its reply. */
struct http_slot {
    struct http_request request;
    struct http_conn *conn;      /* NULL once the connection is gone and only the handler still holds the request */
    struct http_slot *next_free; /* in the server's free list */
    bool is_handed_over;         /* the handler has it, until its reply */
    bool is_at_head;             /* handed over to on_head */
    bool is_answered; /* by on_head: the rest of its body is read and dropped, and the handler does not hear of it */
    bool keep_alive;  /* the client wants it, by version and Connection */
    bool is_1_0;
    bool wants_continue;         /* Expect: 100-continue, and there is a body to wait for */
    struct http_refusal refusal; /* set with HTTP_REFUSED */
};

enum http_progress {
    HTTP_MORE,      /* all bytes used, the request is not complete */
    HTTP_HEAD_DONE, /* the header block is complete and accepted; a body follows */
    HTTP_COMPLETE,  /* the request may be handled; unused bytes belong to the next request */
    HTTP_REFUSED,   /* answer with the status of the refusal, and close */
    HTTP_BROKEN,    /* out of memory */
};

/* NULL: no memory. `limits` must outlive the slot. */
struct http_slot *http_slot_new(const struct http_server_options *limits);
void http_slot_free(struct http_slot *slot);
/* Makes the slot ready for the next request; its memory stays. */
void http_slot_begin(struct http_slot *slot, int64_t started_us);
/* The request was answered at its head: the rest of it is read to its end and not stored. */
void http_slot_drop_body(struct http_slot *slot);
/* Overwrites what the request carried (tokens) and gives back unusually large memory. */
void http_slot_wipe(struct http_slot *slot);
/* For tests: its head (0) and its body (1), as they lie in memory. */
struct buf http_slot_buffer(const struct http_slot *slot, int which);
/* Bytes of memory that the slot takes. */
size_t http_slot_memory(const struct http_slot *slot);
/* Bytes of the body that are still to come, by Content-Length; 0 without one. */
uint64_t http_slot_announced(const struct http_slot *slot);
/* Whether anything but empty lines has been read. */
bool http_slot_is_begun(const struct http_slot *slot);
/* Reads bytes of the request until it is complete, refused, or the bytes are used up. Never looks past the end of the
 * request. The result depends on the bytes only, not on how they were cut into pieces. */
enum http_progress http_slot_read(struct http_slot *slot, const char *bytes, size_t length, size_t *ret_used);

/* ---- http_reply.c ---- */

struct http_date {
    int64_t second;
    char text[30]; /* "Sun, 06 Nov 1994 08:49:37 GMT" */
};

struct http_reply_style {
    struct http_date *date;
    const char *server_name; /* may be NULL */
    bool no_body;            /* the length only: HEAD, or the body is sent from where it lies */
    bool is_last;            /* "Connection: close" */
    bool say_keep_alive;     /* to a 1.0 client that wants it */
    int64_t idle_ms;         /* in Keep-Alive; 0 = the header is left out */
};

/* Appends the whole reply; false: no memory, and `out` is as before but for `failed`. */
bool http_reply_build(struct buf *out, const struct http_reply *reply, const struct http_reply_style *style);

/* ---- connections ---- */

/* What a connection does now. http_conn_set_state() moves it, sets the deadline named here, and knows which moves
 * exist. */
enum http_conn_state {
    /* Nothing of the next request was read. Waits for its first byte, or for the client to take the last reply. A
     * trusted proxy's PROXY header is read in this state, too. Deadline: idle_timeout_ms; header_timeout_ms for a PROXY
     * header and while the server drains. Then the connection is closed without a reply. Next: HEAD; LINGER after the
     * last reply. */
    HTTP_CONN_IDLE,
    /* The header block is being read into a slot. Deadline: header_timeout_ms, then 408. Next: BODY, RUNNING when there
     * is no body, IDLE when the request was refused. */
    HTTP_CONN_HEAD,
    /* The header block is complete and accepted; the body is being read, or dropped when on_head answered. Deadline:
     * body_timeout_ms, then 408. Next: RUNNING with the whole body, and for the time of on_head; IDLE when it was
     * refused or dropped to its end. */
    HTTP_CONN_BODY,
    /* The handler has the request. No deadline: the handler's own limits apply. Unread bytes wait in the tail. Next:
     * IDLE with the reply; BODY when on_head returns. */
    HTTP_CONN_RUNNING,
    /* The last reply is sent and our side is shut; input is drained. Deadline: HTTP_LINGER_QUIET_MS after the last
     * byte, linger_until_ms at the latest. Next: CLOSED. */
    HTTP_CONN_LINGER,
    /* The handle is closing; only its close callback is still to come. A handler may still hold the request. */
    HTTP_CONN_CLOSED,
};

/* What a connection waits for its client to do, in the order in which they give way (http_pressure.c). */
enum http_wait {
    HTTP_WAIT_REQUEST, /* to begin a request */
    HTTP_WAIT_END,     /* to end a connection that is answered */
    HTTP_WAIT_HEAD,    /* to end a head */
    HTTP_WAIT_READER,  /* to take a reply */
    HTTP_WAIT_BODY,    /* to end a body */
    HTTP_WAIT_NONE,    /* nothing, or it may not give way */
};

struct http_conn {
    uv_tcp_t tcp;
    struct http_server *server;
    LIST_ENTRY(http_conn) all;
    TAILQ_ENTRY(http_conn) ready;
    struct http_slot *slot; /* owned; NULL when idle */
    enum http_conn_state state;
    bool is_ready; /* in the server's list of connections whose tail is to be worked through */
    bool is_reading;
    bool is_over;        /* the last reply was given: once sent, linger and close */
    bool is_surplus;     /* above a limit: accepted only to be refused */
    bool is_preferred;   /* http_prefer() */
    bool had_request;    /* the first byte of one, at least */
    bool client_is_done; /* end of input: no more requests, but those read are still answered */
    int64_t deadline_ms; /* of the state; INT64_MAX = none */
    struct http_origin origin;
    struct buf tail; /* read but not yet looked at */
    int64_t tail_us; /* when the tail's first byte was read */
    /* http_conn_write.c */
    int writes;      /* waiting for the client to take their bytes */
    bool is_watched; /* the kernel may still hold much of a reply */
    int64_t write_deadline_ms;
    size_t unsent;  /* bytes that were not taken when write_deadline_ms was set */
    size_t pending; /* bytes copied for writes */
    /* draining */
    int64_t linger_until_ms;
    size_t lingered, lingered_now; /* bytes drained: in all, since the last sweep */
    /* queues and sums */
    enum http_wait wait;
    TAILQ_ENTRY(http_conn) waiting;
    TAILQ_ENTRY(http_conn) large;
    bool is_large;
    size_t memory, counted; /* when the connection was last placed */
};

LIST_HEAD(http_conn_list, http_conn);
TAILQ_HEAD(http_conn_queue, http_conn);

struct http_server {
    uv_loop_t *loop;
    struct http_server_options options;
    const struct http_reader *reader;
    char *server_name;
    uv_poll_t listener;
    uv_timer_t accept_pause;
    uv_timer_t sweep;
    uv_idle_t run_ready;                     /* works through the tails of the connections in `ready` */
    int listen_fd;                           /* -1 when no longer listening */
    struct sockaddr_storage address;         /* of the listening socket */
    int connections, surplus, closing_count; /* closing_count: those of `connections` that are closed and not surplus */
    bool is_draining, is_closing;
    bool has_preferred;     /* a connection was */
    struct closing closing; /* of the server's handles and its connections; started when the server opens */
    void (*on_closed)(void *context);
    void *closed_context;
    struct http_conn_list conns;
    struct http_conn_queue ready;
    struct http_conn_queue waiting[HTTP_WAIT_NONE]; /* the longest waiting first */
    struct http_conn_queue large; /* wait for a head or a reader and count; the longest counting first */
    int lingering;
    size_t lingered_now;        /* bytes drained since the last sweep */
    size_t memory, most_memory; /* of all connections; its most since memory was last given back */
    size_t counted;             /* what counts against memory_max */
    struct http_server_counts counts;
    struct http_conn *gathering; /* its replies are collected in `gathered` while its input is being worked through */
    struct buf gathered, scratch;
    struct address_caps *caps; /* NULL = no limit for each address */
    struct http_slot *free_slots;
    int free_slot_count;
    struct http_date date;
    char read_bytes[HTTP_READ_SIZE]; /* shared: a read is used up or copied before the next */
};

/* ---- http_conn_state.c ---- */

#define HTTP_NO_DEADLINE INT64_MAX

static inline uv_stream_t *http_conn_stream(struct http_conn *conn)
{
    return (uv_stream_t *)&conn->tcp;
}

/* The only way to change the state: sets the state's deadline, also when the state stays the same. */
void http_conn_set_state(struct http_conn *conn, enum http_conn_state state);
/* After every event of a connection: decides what it waits for now. */
void http_conn_update(struct http_conn *conn);
/* Puts it into the queue of what it waits for, and counts its memory. */
void http_conn_place(struct http_conn *conn);
/* A request begins: when the connection waits again, it is behind those that wait already. */
void http_conn_leave_queue(struct http_conn *conn);
/* Whether bytes may be made into requests now. */
bool http_conn_takes_input(const struct http_conn *conn);
/* Bytes were drained. */
void http_conn_linger_took(struct http_conn *conn, size_t length);
/* The sweep: draining goes on. */
void http_conn_linger_resume(struct http_conn *conn);
/* The server drains: the time left is short. */
void http_conn_linger_hurry(struct http_conn *conn);
/* The request is over: wipes its slot and gives the slot back to the server. */
void http_conn_release_slot(struct http_conn *conn);
/* Ends the connection at once; on_gone, if a handler holds a request, comes from the loop. May be called again. */
void http_conn_close(struct http_conn *conn);
/* Likewise, and what the client has not taken yet is thrown away. */
void http_conn_reset(struct http_conn *conn);
/* Overwrites the bytes of a buffer and empties it; a buffer above keep_capacity is freed. Replies carry card numbers
 * and input carries tokens: neither stays in memory longer than needed. */
void http_wipe(struct buf *buf, size_t keep_capacity);

/* ---- http_conn.c ---- */

/* Takes an accepted, non-blocking socket; closes it when there is no memory. A surplus connection is answered 503 and
 * closed. */
void http_conn_open(struct http_server *server, int fd, bool is_surplus);
/* Returns whether to go on; otherwise the connection waits, or its end has begun. */
bool http_conn_accept_origin(struct http_conn *conn, enum http_origin_verdict verdict);
/* Acts on the deadlines that have passed. */
void http_conn_expire(struct http_conn *conn, int64_t now_ms);
/* Closes the connection if no request is under way on it. */
void http_conn_drain(struct http_conn *conn);

/* ---- http_conn_read.c ---- */

/* What the loop calls when bytes of a connection have come, and while there are connections in server->ready. */
struct http_reader {
    uv_read_cb on_read;
    uv_idle_cb on_ready;
};
extern const struct http_reader http_conn_reader;

/* ---- http_conn_write.c ---- */

/* Answers a request that no handler will see, and ends the connection: after a framing error it is unknown where the
 * next request begins. */
void http_conn_refuse(struct http_conn *conn, int status, const char *detail);
/* Answers 503 to the request that is being read, and ends the connection. */
void http_conn_turn_away(struct http_conn *conn);

#define HTTP_NO_BYTES ((struct slice){"", 0})

/* Sends what it can at once, `out` and then `fixed`, and stores the rest: of `out` a copy, while `fixed` must stay
 * where it is. Wipes `out`. An error closes the connection. */
void http_conn_flush(struct http_conn *conn, struct buf *out, struct slice fixed);
/* Whether the client has not taken enough of its reply within write_timeout_ms. */
bool http_conn_is_unread(struct http_conn *conn, int64_t now_ms);

/* ---- http_pressure.c ---- */

/* Closes the connection that can best be spared; false: there is none. */
bool http_pressure_close_one(struct http_server *server);
/* Whether this many more bytes would be within memory_max, when those that may give way have done so. */
bool http_pressure_fits(struct http_server *server, uint64_t bytes);
/* Brings the memory below memory_max if it can; `conn` is the one that has just grown. */
void http_pressure_relieve(struct http_conn *conn);
/* Gives memory back to the system when much less is in use than was. */
void http_pressure_sweep(struct http_server *server);

#endif
