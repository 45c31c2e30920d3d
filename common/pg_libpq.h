/* What the pg_* rooms share of libpq: how a connection is described and how the server's words are quoted. Private to
 * pg_*.c.
 *
 * Beware: libpq has taken the tags `struct pg_conn` and `struct pg_result` for PGconn and PGresult. */
#ifndef ISSUING_PG_LIBPQ_H
#define ISSUING_PG_LIBPQ_H

#include <libpq-fe.h>

#include "common/base.h"
#include "common/err.h"
#include "common/pg_param.h"

/* The three options of libpq that may be lists of hosts; NULL = as the conninfo says. */
struct pg_hosts {
    char *host, *hostaddr, *port; /* owned */
};

#define PG_WORDS_MAX 16
/* Arguments of PQconnectdbParams and PQconnectStartParams (expand_dbname = 1); borrowed from what they were made of. */
struct pg_words {
    const char *keywords[PG_WORDS_MAX];
    const char *values[PG_WORDS_MAX];
};

/* ERR_CONFIG when it is malformed. The message never quotes it: it may hold a password. NULL and "" are fine. */
must_check bool pg_conninfo_check(const char *conninfo, struct err *err);
/* hosts may be NULL. What the conninfo says goes over our defaults (names, keepalives, connect_timeout); UTF-8 goes
 * over all. */
struct pg_words pg_words_of(const char *conninfo, const char *application_name, const struct pg_hosts *hosts);
/* Moves the first host of a list to its end, as found on this connection. Without a list, or without memory, nothing
 * changes. */
void pg_hosts_rotate(struct pg_hosts *hosts, PGconn *connection);
void pg_hosts_done(struct pg_hosts *hosts);

/* Parameters as libpq takes them. */
struct pg_values {
    const char *values[PG_PARAMS_MAX];
    int lengths[PG_PARAMS_MAX];
    int formats[PG_PARAMS_MAX];
};
void pg_values_fill(struct pg_values *values, const struct pg_param *params, int count);

/* Copies as one line, blanks and control characters as one blank, cut to size. */
void pg_line(char *ret_line, size_t size, const char *text);
/* "<statement>: <the server's primary message>". Never the DETAIL, and of class 22 only the words before the first
 * value: those quote values. */
void pg_result_message(const PGresult *result, const char *statement_name, char *ret_message, size_t size);
void pg_result_sqlstate(const PGresult *result, char ret_sqlstate[6]);
/* Notices would go to standard error; the daemons log for themselves. */
void pg_ignore_notices(PGconn *connection);

#endif
