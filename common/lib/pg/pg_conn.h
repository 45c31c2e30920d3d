/* One libpq connection on the loop: it connects, sends queries in pipeline mode, and connects again after a loss. The
 * pool and the listener embed it. Private to common/lib/pg.
 *
 * An attempt to connect goes to one address of one host, which the servers choose (pg_servers.h). It has 5 seconds, or
 * less where there are other hosts (pg_hosts_limit_ms), from its start to pg_connection_settle(), including the checks
 * of the owner; then it is given up. */
#ifndef ISSUING_PG_CONN_H
#define ISSUING_PG_CONN_H

#include <uv.h>

#include "common/lib/base/closing.h"
#include "common/lib/pg/pg_libpq.h"
#include "common/lib/pg/pg_names.h"
#include "common/lib/pg/pg_query.h"
#include "common/lib/pg/pg_servers.h"

struct pg_connection;

/* All called from the loop. Each except on_abandoned may call pg_connection_lose() or pg_connection_close(). */
struct pg_connection_hooks {
    /* Of pg_connection_abandon(), before on_down: from now on the owner owns the session, in which `syncs` Syncs have
     * not been answered. It is counted at `target` until the owner calls pg_hosts_leave(). */
    void (*on_abandoned)(struct pg_connection *connection, PGconn *session, int syncs, int target);
    void (*on_up)(struct pg_connection *connection); /* queries may be sent; it is not settled yet */
    void (*on_down)(struct pg_connection *connection, const char *reason);
    void (*on_result)(struct pg_connection *connection, struct pg_query *query,
                      const struct pg_query_result *result); /* never PG_NOT_SENT */
    /* NULL: what comes is dropped. Behind a pooler that mixes clients up, notifications for others may come. */
    void (*on_notify)(struct pg_connection *connection, const char *payload);
    void (*on_closed)(struct pg_connection *connection);
};

enum pg_connection_state {
    /* No session. The timer runs until the next attempt. Then, if the servers have a target to try, the connection goes
     * to CONNECTING; else they are asked again every 50 ms. */
    PG_STATE_DOWN,
    /* libpq does the handshake. The poll handle waits for what PQconnectPoll needs, and the timer for the end of the
     * attempt's time. Goes to UP, or back to DOWN when libpq or the time is at its end. */
    PG_STATE_CONNECTING,
    /* The session is in pipeline mode and takes queries. The poll handle waits for results, and for space to write
     * while something is buffered. Until pg_connection_settle() the timer still runs to the end of the attempt's
     * time. Goes to DOWN when the connection is lost or abandoned; queries in flight are then answered PG_UNKNOWN. */
    PG_STATE_UP,
    /* For ever: waits for libuv to close the handles, then calls on_closed. */
    PG_STATE_CLOSED,
};

struct pg_watch;

struct pg_connection {
    uv_loop_t *loop;
    const struct pg_connection_hooks *hooks;
    struct pg_servers *servers;     /* borrowed; connections may share them */
    int target;                     /* of the session or attempt; -1 = none */
    enum pg_connection_state state; /* changed by set_state() alone */
    PGconn *libpq;
    struct pg_watch *watch; /* its poll handle, a new one for each descriptor; freed by its close callback */
    int events;
    uv_timer_t timer;            /* DOWN: the next attempt; CONNECTING and unsettled: the deadline */
    struct closing closing;      /* the timer and every poll handle */
    struct pg_queries in_flight; /* sent, in the order of their results */
    int64_t first_since_ms;      /* monotonic: since when the server has worked on nothing before the first in flight */
    struct pg_names names;       /* of this session */
    PGresult *result;            /* of the first in flight; it counts only once its Sync is confirmed */
    struct pg_notices notices;   /* its doubt is about the commit of the first in flight */
    enum pg_seen verdict;        /* of the owner's checks; PG_SEEN_NOTHING = none */
    bool is_cut;                 /* the attempt ends without a verdict */
    int64_t limit_ms;            /* of the attempt */
    int64_t settled_ms;          /* 0 = not settled */
    bool is_ended;               /* in on_down: the server ended the session, in which nothing was in flight */
};

/* The servers must outlive the connection. */
void pg_connection_init(struct pg_connection *connection, uv_loop_t *loop, const struct pg_connection_hooks *hooks,
                        struct pg_servers *servers);
/* DOWN only: the next attempt comes after delay_ms. Starts the first one, too. */
void pg_connection_wake(struct pg_connection *connection, int64_t delay_ms);
/* The owner's checks have passed: the deadline ends. May be repeated. */
void pg_connection_settle(struct pg_connection *connection);
/* UP only. false: nothing of it was sent, the query is still the caller's, and the connection is not usable any more:
 * lose it. true: it is in flight, or was answered PG_UNKNOWN inside. Only from the loop. */
must_check bool pg_connection_send(struct pg_connection *connection, struct pg_query *query);
/* After sending: writes what is buffered, and waits for space where it did not all go out. */
void pg_connection_flush(struct pg_connection *connection);
/* `replacement` replaces `query`, which is in flight: the on_result of `replacement` gets the result. `query` and what
 * it points to are not accessed any more. */
void pg_connection_replace(struct pg_connection *connection, struct pg_query *query, struct pg_query *replacement);
/* Closes the session, calls on_down, answers what is in flight PG_UNKNOWN, and connects again after a backoff. reason
 * NULL: libpq's own message. */
void pg_connection_lose(struct pg_connection *connection, const char *reason);
/* As pg_connection_lose(), of a session that is not settled: what the owner's checks found. */
void pg_connection_refuse(struct pg_connection *connection, enum pg_seen verdict, const char *reason);
/* As pg_connection_lose(), of an attempt or a session that is not settled: it is no longer of use. */
void pg_connection_cut(struct pg_connection *connection, const char *reason);
/* As pg_connection_lose(), but the session stays open: on_abandoned gets it. Settled only. */
void pg_connection_abandon(struct pg_connection *connection, const char *reason);
/* As pg_connection_lose(), but without on_down, and it does not connect again; on_closed follows from the loop. */
void pg_connection_close(struct pg_connection *connection);

#endif
