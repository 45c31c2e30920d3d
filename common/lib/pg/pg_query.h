/* A query: one statement with its parameters, on its way to the database and back. Queries are sent by pg_pool.h; each
 * is a transaction of its own. */
#ifndef ISSUING_PG_QUERY_H
#define ISSUING_PG_QUERY_H

#include "common/lib/base/base.h"
#include "common/lib/pg/pg_param.h"
#include "common/lib/pg/pg_result.h"
#include "common/lib/pg/pg_statement.h"

enum pg_kind {
    PG_DONE,     /* executed and committed; the rows are there */
    PG_REFUSED,  /* the server refused it (sqlstate); the transaction is rolled back */
    PG_NOT_SENT, /* no byte of it was sent (no connection before the deadline, or closing): nothing happened */
    PG_UNKNOWN,  /* it was sent, then the connection was lost or the deadline passed: it may have committed. Or it did
                    commit, and the server warned that it stopped waiting for a synchronous standby: a failover may undo
                    it */
};

struct pg_query_result {
    enum pg_kind kind;
    const struct pg_rows *rows; /* PG_DONE: valid during the callback only */
    char sqlstate[6];           /* PG_REFUSED; else "" */
    char message[200];          /* for the log; never holds parameter values */
};

/* Embedded in the module that needs the result. Its memory and that of its parameters must live until on_result.
 * on_result is called exactly once, from the loop, never inside the call that submitted the query; the query may be
 * submitted again from inside it. */
struct pg_query {
    const struct sql_statement *statement; /* lives as long as the pool */
    struct pg_param params[PG_PARAMS_MAX]; /* statement->parameters of them */
    int64_t timeout_ms;                    /* from submitting to the result, waiting included; > 0 */
    void (*on_result)(struct pg_query *query, const struct pg_query_result *result);
    bool is_slow; /* may take long: no other query is sent behind it on its connection */
    bool yields;  /* leaves a connection to those that do not (pg_pool.h) */
    /* private */
    struct pg_query *next;
    int64_t deadline_ms;
    bool sent;
    bool is_given_up; /* its owner already has PG_UNKNOWN: it is never sent again by its text */
    /* How it was sent (pg_names.h). PREPARING: the server parses it under a name first, then executes that name. */
    enum pg_send_method { PG_BY_TEXT, PG_BY_NAME, PG_PREPARING } method;
};

/* A queue of queries, linked by their `next`. Starts as all zeros. */
struct pg_queries {
    struct pg_query *first, *last;
    int count;
};
void pg_queries_append(struct pg_queries *queries, struct pg_query *query);
void pg_queries_prepend(struct pg_queries *queries, struct pg_query *query);
struct pg_query *pg_queries_take(struct pg_queries *queries); /* the first; NULL when empty */

/* Running the same transaction again may succeed: 40001, 40P01, 25006, 53xxx, 57P0x, 08xxx. */
bool pg_sqlstate_is_transient(const char sqlstate[6]);
/* The database does not serve this user (ISPLC): another one does, or will soon. */
bool pg_sqlstate_is_moved(const char sqlstate[6]);

#endif
