/* What the files of the pool share: pg_pool.c (queues, sending, opening, closing), which calls pg_pool_slots.c (the
 * life of a connection, and its silence) and is not called by it. Private to both. */
#ifndef ISSUING_PG_POOL_INTERNAL_H
#define ISSUING_PG_POOL_INTERNAL_H

#include "common/lib/base/buf.h"
#include "common/lib/base/closing.h"
#include "common/lib/pg/pg_abandoned.h"
#include "common/lib/pg/pg_conn.h"
#include "common/lib/pg/pg_history.h"
#include "common/lib/pg/pg_pool.h"
#include "common/lib/pg/pg_servers.h"

/* How many sessions to one server there may be beyond options.connections, to continue with while abandoned ones hang.
 * */
#define PG_POOL_SPARE 2
/* The precision of deadlines; it bounds how often a long queue is searched. */
#define PG_POOL_PRECISION_MS 10

enum slot_state {
    /* Its connection is down or connecting. When the connection is up, the slot goes to CHECKING. */
    SLOT_DOWN,
    /* The connection is up and belongs to the slot's own queries: the version of the schema, settings, what the server
     * is, whether it lacks commits, and, while sessions hang there, what they wait for. Each waits for its result,
     * within the time of the attempt. Goes to UP when the schema fits and the server is the primary, else back to
     * DOWN. */
    SLOT_CHECKING,
    /* Takes the queries of the pool. Goes to RETIRING when one of them is refused because the server is read-only, and
     * to DOWN when the connection is lost or abandoned, or another slot has found a newer primary. */
    SLOT_UP,
    /* The server became read-only (a failover): takes no more queries, and waits for the results of those in flight.
     * Then the connection is closed, and the slot goes to DOWN to find the new primary. */
    SLOT_RETIRING,
};

/* The slot's own queries. */
enum slot_check { SLOT_SCHEMA, SLOT_SETTINGS, SLOT_SERVER, SLOT_HISTORY, SLOT_WAITS, SLOT_CHECKS };

struct slot {
    struct pg_connection connection;
    struct pg_pool *pool;
    enum slot_state state; /* changed by slot_set_state() alone */
    bool is_unflushed;
    int yielding_count;        /* of those in flight */
    int64_t timeline;          /* of the server, which each promotion raises; 0 = unknown */
    struct pg_history history; /* of the server; while it is asked for, what was known then */
    struct pg_query checks[SLOT_CHECKS];
    struct buf pids; /* of the query about waits */
};

struct pg_pool {
    uv_loop_t *loop;
    struct pg_pool_options options; /* texts are our copies */
    uv_prepare_t prepare;
    uv_idle_t keep_awake; /* active while there is work for on_prepare(), so that the loop does not sleep over it */
    uv_timer_t deadline_timer;
    int64_t due_ms; /* when the deadline timer fires; only valid while it is active */
    struct pg_queries waiting;
    struct pg_queries yielding; /* waiting, too */
    struct pg_queries rejected; /* answered PG_NOT_SENT in the next iteration */
    struct pg_servers servers;  /* of all slots */
    struct pg_history history;  /* what was acknowledged */
    /* pg_pool_abandoned_max() of them, of which abandoned_count are not free. Together with the connections they are
     * never more than that, and pg_pool_sessions_max() to one server (pg_hosts.h). */
    struct pg_pool_abandoned {
        struct pg_abandoned session; /* first */
        struct pg_pool *pool;
        int target;
        int64_t timeline;
    } * abandoned;
    int abandoned_count;
    bool waits_for_standby; /* one of them did, when that was last checked */
    int in_flight_count;
    enum { REPORTED_NOTHING, REPORTED_READY, REPORTED_DOWN } reported;
    bool is_replacing;   /* the last session was ended while it was idle; the first attempt since then decides */
    char reason[256];    /* why it is down, as reported */
    enum pg_cause cause; /* the same in one word; PG_CAUSE_COUNT = it is ready */
    bool is_behind_pooler;
    bool is_closing, are_connections_closed;
    void (*on_closed)(void *context);
    void *closed_context;
    struct closing closing;
    struct slot slots[]; /* options.connections */
};

/* ---- pg_pool_slots.c ---- */

void slot_set_state(struct slot *slot, enum slot_state state);
/* A connection is up: checks what the server is, and goes to UP at once if there is nothing to check. */
void slot_begin_checks(struct slot *slot);
/* A query on the slot's connection has its result. false: it was one of the slot's own queries. */
must_check bool slot_take_result(struct slot *slot, struct pg_query *query, const struct pg_query_result *result);
/* Puts orphans in the places of late queries, whose owners are to get PG_UNKNOWN; abandons a connection that is silent.
 */
void slot_check_time(struct slot *slot, int64_t now_ms, struct pg_queries *ret_detached);
/* The query is a copy without an owner, which keeps the place of one that was late. */
bool pg_pool_is_orphan(const struct pg_query *query);
/* The connection is down. */
void slot_end(struct slot *slot, const char *reason);
/* Of pg_connection_hooks. */
void pg_pool_on_abandoned(struct pg_connection *connection, PGconn *session, int syncs, int target);
int pg_pool_sessions_max(const struct pg_pool *pool); /* to one server */
int pg_pool_abandoned_max(const struct pg_pool *pool);
/* As many sessions hang as there may be to one server, and none is in use: no query can be sent. */
bool pg_pool_is_hung(const struct pg_pool *pool);
/* Why the pool is down: the known cause of a hang, else what the servers know, or `reason`. */
enum pg_cause pg_pool_find_cause(const struct pg_pool *pool, const char *reason, char *ret_text, size_t size);
/* Of pool->servers. */
void pg_pool_on_news(void *pool);

#endif
