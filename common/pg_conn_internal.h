/* One connection as the pool and the listener hold it. Private to pg_*.c.
 *
 * States: DOWN (the timer runs to the next try) -> CONNECTING -> UP -> DOWN ...; CLOSED from any, for ever. The first 5
 * seconds must see it from the try to pg_connection_settle(), checks of the owner included; else it is given up. */
#ifndef ISSUING_PG_CONN_INTERNAL_H
#define ISSUING_PG_CONN_INTERNAL_H

#include <uv.h>

#include "common/pg_conn.h"
#include "common/pg_libpq.h"

struct pg_connection;

/* A queue of asks, by their `next`. */
struct pg_asks {
    struct pg_ask *first, *last;
    int count;
};
void pg_asks_put(struct pg_asks *asks, struct pg_ask *ask);
void pg_asks_put_front(struct pg_asks *asks, struct pg_ask *ask);
struct pg_ask *pg_asks_take(struct pg_asks *asks); /* NULL when empty */

/* All called from the loop. Each may ask for pg_connection_lose() or pg_connection_close() of the same connection. */
struct pg_connection_hooks {
    /* Before each try; NULL = always. While it says no, it is asked again and again. */
    bool (*may_connect)(struct pg_connection *connection);
    /* Of pg_connection_abandon(): the session is the owner's from now on, with so many Syncs on their way in it. Before
     * on_down; it may not lose or close the connection. */
    void (*on_abandoned)(struct pg_connection *connection, PGconn *session, int syncs);
    void (*on_up)(struct pg_connection *connection); /* may be sent to; not settled yet */
    void (*on_down)(struct pg_connection *connection, const char *reason);
    void (*on_answer)(struct pg_connection *connection, struct pg_ask *ask,
                      const struct pg_answer *answer); /* PG_NOT_SENT never */
    void (*on_notify)(struct pg_connection *connection);
    void (*on_closed)(struct pg_connection *connection);
};

enum pg_connection_state { PG_STATE_DOWN, PG_STATE_CONNECTING, PG_STATE_UP, PG_STATE_CLOSED };

struct pg_connection {
    uv_loop_t *loop;
    const struct pg_connection_hooks *hooks;
    const char *conninfo, *application_name; /* borrowed */
    enum pg_connection_state state;
    PGconn *libpq;
    uv_poll_t *poll; /* a fresh one for each descriptor; frees itself when closed */
    int events;
    uv_timer_t timer; /* DOWN: the next try; CONNECTING and unsettled: the deadline */
    int handles;      /* not yet closed by libuv */
    struct pg_hosts hosts;
    struct pg_asks in_flight; /* sent, in the order of their answers */
    struct pg_names names;    /* of this session */
    PGresult *result;         /* of the first in flight; it counts only once the Sync behind it is confirmed */
    struct pg_doubt doubt;    /* about the commit of the first in flight */
    int attempts;
    int64_t settled_ms; /* 0 = not settled */
};

void pg_connection_init(struct pg_connection *connection, uv_loop_t *loop, const struct pg_connection_hooks *hooks,
                        const char *conninfo, const char *application_name);
/* The first try, in the next turn of the loop. */
void pg_connection_start(struct pg_connection *connection);
/* The owner is content with it: the deadline ends. */
void pg_connection_settle(struct pg_connection *connection);
/* UP only. false: nothing of it was sent, the ask is still the caller's, and the connection is of no use any more: lose
 * it. true: it is in flight, or was answered PG_UNKNOWN within. Only from the loop. */
must_check bool pg_connection_send(struct pg_connection *connection, struct pg_ask *ask);
/* After sending: pushes what is buffered, and watches for room where it did not all go out. */
void pg_connection_flush(struct pg_connection *connection);
/* Closes it, calls on_down, answers what is in flight PG_UNKNOWN, and tries again after a backoff. reason NULL: what
 * libpq says. */
void pg_connection_lose(struct pg_connection *connection, const char *reason);
/* As lose, but the session is not closed: on_abandoned gets it. UP only. */
void pg_connection_abandon(struct pg_connection *connection, const char *reason);
/* As lose, without on_down and for ever; on_closed follows from the loop. */
void pg_connection_close(struct pg_connection *connection);

#endif
