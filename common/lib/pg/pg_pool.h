/* A fixed number of connections, and the queries that wait for them.
 *
 * A query goes at once to the connection with the fewest in flight (at most `pipeline` on one); otherwise it waits in a
 * FIFO queue. One with less than a fifth of its time left, or less than a second, is not sent any more: it is answered
 * PG_NOT_SENT. Queries that yield are never on all connections that are up, unless there is only one; those that do not
 * yield are sent first.
 *
 * Connections connect again for ever. They share what they know of the hosts: while no primary is known, each host is
 * probed by one connection at a time, at most about once a second; as soon as one has found the primary, all go there
 * (pg_hosts.h). Sessions to a server that is no longer a primary, because another was promoted after it, are given up
 * at once. A connection is silent when one statement is not answered within its time, counted from when the server had
 * nothing to do before it. Then the connection is given up and a new one is opened (packets to the server may be
 * dropped silently). A query that is late behind others that are answered ends PG_UNKNOWN, and its connection stays. A
 * session that was given up is watched until the server is done with it, and is counted: there are never more than 2
 * sessions beyond `connections` to one server. When all of them hang, queries are answered PG_NOT_SENT at once, and
 * on_state reports the cause, until one of them ends or another server is the primary. */
#ifndef ISSUING_PG_POOL_H
#define ISSUING_PG_POOL_H

#include <uv.h>

#include "common/lib/base/err.h"
#include "common/lib/pg/pg_hosts.h"
#include "common/lib/pg/pg_query.h"

struct pg_pool;

struct pg_pool_options {
    const char *conninfo; /* libpq conninfo or URL; NULL or "" = libpq's environment */
    const char *application_name;
    int connections;
    int pipeline;    /* queries in flight on one connection, >= 1 */
    int waiting_max; /* queries in the FIFO queue; one more is answered PG_NOT_SENT */
    /* The newest version of the schema must be one of these, and the server a primary that can be written; both are
     * checked on each new connection (sql_schema_version, and those of session.sql). 0 = nothing is checked. */
    int schema_least, schema_most;
    /* Which of how many places the database must be (pg_place.h), checked with the schema; places 0 = the only one. */
    int place, places;
    /* Both may be NULL; both are called from the loop, and may close the pool. on_state: the pool became ready or not
     * ready, or it is not ready for another reason than before (error_text, "" when ready). on_error: a query was
     * refused (for a metric). */
    void (*on_state)(void *context, bool ready, const char *error_text);
    void (*on_error)(void *context, const char sqlstate[6]);
    /* May be NULL. The server, or a pooler, ended a session in which nothing was in flight, and said why. It is
     * replaced; only if that fails, on_state is called. May not close the pool. */
    void (*on_ended)(void *context, const char *why);
    void *context;
    /* uv_getaddrinfo, or what a test has instead; NULL = the former. */
    int (*resolve)(uv_loop_t *loop, uv_getaddrinfo_t *request, uv_getaddrinfo_cb callback, const char *node,
                   const char *service, const struct addrinfo *hints);
};

/* Starts connecting; never waits. */
must_check bool pg_pool_open(uv_loop_t *loop, const struct pg_pool_options *options, struct pg_pool **ret_pool,
                             struct err *err);
void pg_pool_submit(struct pg_pool *pool, struct pg_query *query);
/* At least one connection is up and the schema fits, or one that the server ended while it was idle is being
 * replaced. */
bool pg_pool_ready(const struct pg_pool *pool);
/* The server's process of the newest checked session differs from the one that was named when the connection was made:
 * a pooler is in between. Only where the schema is checked. */
bool pg_pool_is_behind_pooler(const struct pg_pool *pool);
/* Why it is not ready; PG_CAUSE_COUNT = it is, or nothing was tried yet. */
enum pg_cause pg_pool_cause(const struct pg_pool *pool);
/* Queries without a result, those that wait included. */
int pg_pool_in_flight(const struct pg_pool *pool);
/* Those of them that wait for a connection. */
int pg_pool_waiting(const struct pg_pool *pool);
/* Every query gets its result (PG_NOT_SENT or PG_UNKNOWN), every handle is closed, then on_closed is called from the
 * loop; the pool is freed before it. */
void pg_pool_close(struct pg_pool *pool, void (*on_closed)(void *context), void *context);

#endif
