/* What the files of this folder share of libpq: how a connection is described, and how messages of the server are
 * quoted. Private to common/lib/pg.
 *
 * Beware: libpq has taken the tags `struct pg_conn` and `struct pg_result` for PGconn and PGresult. */
#ifndef ISSUING_PG_LIBPQ_H
#define ISSUING_PG_LIBPQ_H

#include <libpq-fe.h>

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/pg/pg_hosts.h"
#include "common/lib/pg/pg_param.h"
#include "common/lib/pg/pg_statement.h"

#define PG_OPTIONS_MAX 16
/* Arguments of PQconnectdbParams and PQconnectStartParams (expand_dbname = 1); borrowed from what they were made of. */
struct pg_options {
    const char *keywords[PG_OPTIONS_MAX];
    const char *values[PG_OPTIONS_MAX];
};

/* host, hostaddr, port and attributes (target_session_attrs): NULL = as in the conninfo. The conninfo overrides our
 * defaults (names, keepalives, connect_timeout); UTF-8 overrides all. */
struct pg_options pg_options_of(const char *conninfo, const char *application_name, const char *host,
                                const char *hostaddr, const char *port, const char *attributes);

/* The lists of hosts of a conninfo, as libpq has them after the service file and the environment; NULL = not given. */
struct pg_host_lists {
    char *host, *hostaddr, *port; /* owned */
    char *mode;                   /* sslmode; owned */
    bool is_whole;                /* libpq must walk the list itself: with prefer-standby it does so twice */
    int64_t timeout_ms;           /* connect_timeout, else our default */
    char fault[160];              /* why libpq refuses the options before it connects; "" = it does not */
};
/* Opens no connection and resolves no name. false: no memory. */
must_check bool pg_host_lists_read(const char *conninfo, struct pg_host_lists *ret_lists);
void pg_host_lists_done(struct pg_host_lists *lists);

/* Why libpq could not make this connection (NULL = no memory); `reason` is its text. */
enum pg_seen pg_seen_of(PGconn *connection, const char *reason);

/* Parameters in the form that libpq takes. */
struct pg_values {
    const char *values[PG_PARAMS_MAX];
    int lengths[PG_PARAMS_MAX];
    int formats[PG_PARAMS_MAX];
};
void pg_values_fill(struct pg_values *values, const struct pg_param *params, int count);

/* Copies the text as one line, cut to size; blanks and control characters in a row become one blank. */
void pg_line(char *ret_line, size_t size, const char *text);
/* "<statement>: <the server's primary message>". Never the DETAIL, and of class 22 only the words before the first
 * value, because these messages quote values. */
void pg_result_message(const PGresult *result, const char *statement_name, char *ret_message, size_t size);
void pg_result_sqlstate(const PGresult *result, char ret_sqlstate[6]);
/* libpq would print notices on standard error; the daemons have a log of their own. */
void pg_ignore_notices(PGconn *connection);

/* When a session is cancelled or terminated while it waits for a synchronous standby, PostgreSQL ends the wait: the
 * transaction is committed, the result is a success, and only a warning shows that a failover may lose it
 * (SyncRepWaitForLSN in syncrep.c: WARNING 01000 and 57P01). */
struct pg_doubt {
    bool is_there;
    char why[128];
};
struct pg_notices {
    struct pg_doubt doubt;
    char end[160]; /* the error with which the server ends a session in which nothing is in flight; "" = none */
};
/* As pg_ignore_notices(), but these are stored. `notices` must live as long as the connection. */
void pg_watch_notices(PGconn *connection, struct pg_notices *notices);

#endif
