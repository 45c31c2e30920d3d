/* A fixed number of connections and the asks waiting for them.
 *
 * An ask goes at once to the connected connection with the fewest in flight (at most `pipeline` on one); otherwise it
 * waits in a FIFO,
 * up to its deadline. Connections reconnect for ever with full-jitter backoff (100 ms .. 5 s). A connection whose ask
 * passed its deadline is given up and opened anew (the server may be a black hole). The given-up session is watched until
 * the server is done with it, and counts: there are never more than 2 sessions beyond `connections`. When all of them
 * hang, asks are answered PG_NOT_SENT at once, and on_state tells the cause, until one of them ends. */
#ifndef ISSUING_PG_POOL_H
#define ISSUING_PG_POOL_H

#include "common/err.h"
#include "common/pg_conn.h"

struct pg_pool;

struct pg_pool_options {
    const char *conninfo; /* libpq conninfo or URL; NULL or "" = libpq's environment */
    const char *application_name;
    int connections;
    int pipeline;    /* asks in flight on one connection, >= 1 */
    int waiting_max; /* asks in the FIFO; one more is answered PG_NOT_SENT */
    /* The schema must have exactly these versions applied at the top: checked on each new connection
     * (sql_schema_version). 0 = unchecked. */
    int schema_least, schema_most;
    /* Both may be NULL. on_state: ready went up or down, or it is down for another reason than told before; error_text
     * says why it is
     * down ("" when ready). on_error: an ask was refused (for a metric). Both from the loop; both may close the pool.
     * */
    void (*on_state)(void *context, bool ready, const char *error_text);
    void (*on_error)(void *context, const char sqlstate[6]);
    void *context;
};

/* Starts connecting; never waits. */
must_check bool pg_pool_open(uv_loop_t *loop, const struct pg_pool_options *options, struct pg_pool **ret_pool,
                             struct err *err);
void pg_pool_ask(struct pg_pool *pool, struct pg_ask *ask);
/* Asks both, each with its own answer. `behind` leaves right behind `ask`, on the same connection and in a transaction of
 * its own: the server runs it as soon as it is done with `ask`, whatever that came to, and nobody waits for the way to
 * here and back. It may be one more than `pipeline`. Where `ask` is not sent, neither is `behind`. Its time counts from
 * the deadline of `ask`. Where a name was lost (pg_conn.h), `ask` may run again after it. `ask` may not be slow. */
void pg_pool_ask_pair(struct pg_pool *pool, struct pg_ask *ask, struct pg_ask *behind);
/* At least one connection is up and the schema fits. */
bool pg_pool_ready(const struct pg_pool *pool);
/* Asks not answered yet, waiting ones included. */
int pg_pool_in_flight(const struct pg_pool *pool);
/* Every ask is answered (PG_NOT_SENT or PG_UNKNOWN), every handle closed, then on_closed from the loop; the pool is
 * freed after it. */
void pg_pool_close(struct pg_pool *pool, void (*on_closed)(void *context), void *context);

#endif
