/* One libpq connection on the loop: connects, pipelines, loses, reconnects. Used through pg_pool.h and pg_listen.h.
 *
 * Rules kept here (libpq manual, chapters "Asynchronous Command Processing" and "Pipeline Mode"): PQsocket is read
 * again after
 * every PQconnectPoll; flush until 0 while also consuming input; results are drained to NULL; the poll handle is closed
 * before
 * PQfinish; each ask is followed by its own Sync, so each is a transaction of its own and one failure does not abort
 * its neighbour. */
#ifndef ISSUING_PG_CONN_H
#define ISSUING_PG_CONN_H

#include <uv.h>

#include "common/base.h"
#include "common/pg_param.h"
#include "common/pg_result.h"
#include "common/pg_statement.h"

enum pg_kind {
    PG_DONE,     /* the server executed and committed it; rows are there */
    PG_REFUSED,  /* the server said no (sqlstate); the transaction is rolled back */
    PG_NOT_SENT, /* no byte of it went out (no connection before the deadline, closing); surely nothing happened */
    PG_UNKNOWN, /* sent, then the connection was lost or the deadline passed: it may have committed. Or it did commit, and
                    the server warned that it gave up waiting for a synchronous standby: a failover may undo it */
};

struct pg_answer {
    enum pg_kind kind;
    const struct pg_rows *rows; /* PG_DONE: valid during the callback only */
    char sqlstate[6];           /* PG_REFUSED; else "" */
    char message[200];          /* for the log; never holds parameter values */
};

/* One question. Embedded in whatever asks; the memory of it and of its params must live until on_answer. on_answer is
 * called exactly once, from the loop, never inside the call that asked; the ask may be reused from inside it.
 *
 * Whoever wants the rows before they are committed sets on_rows. It is called from the loop at most once, and before
 * on_answer: always where that one says PG_DONE, with the same rows then; where it says anything else, what was begun
 * on the rows must be forgotten (after PG_UNKNOWN they may be committed all the same). It may do whatever on_answer
 * may, but the ask is still on its way. */
struct pg_ask {
    const struct sql_statement *statement; /* lives as long as the pool */
    struct pg_param params[PG_PARAMS_MAX]; /* statement->parameters of them */
    int64_t timeout_ms;                    /* from asking to answer, waiting included; > 0 */
    void (*on_answer)(struct pg_ask *ask, const struct pg_answer *answer);
    void (*on_rows)(struct pg_ask *ask, const struct pg_rows *rows); /* or NULL; the rows are valid during it only */
    bool is_slow; /* may take long: nothing is put behind it on its connection */
    /* private */
    struct pg_ask *next;
    struct pg_ask *behind; /* pg_pool_ask_pair() */
    int64_t deadline_ms;
    bool sent;
    bool rows_told;                                        /* on_rows was called */
    enum pg_way { PG_BY_TEXT, PG_BY_NAME, PG_NAMING } way; /* NAMING: parsed under a name, then asked by it */
};

/* The SQLSTATE classes after which running the same transaction again makes sense: 40001, 40P01, 25006, 53xxx, 57P0x,
 * 08xxx. */
bool pg_sqlstate_is_transient(const char sqlstate[6]);

#endif
