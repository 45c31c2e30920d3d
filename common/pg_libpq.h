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
#include "common/pg_statement.h"

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

/* Names under which one session of the server keeps statements, so that it parses and plans each only once.
 *
 * The name tells the text (a hash of it is in there): where a pooler lends us a session that another program has used,
 * what is found under a name is always what was meant. */
#define PG_NAMES_MAX 64
#define PG_NAME_SIZE 40
struct pg_name {
    const struct sql_statement *statement;
    char text[PG_NAME_SIZE];
    bool is_sent; /* parsing under it was asked for, and not refused */
    bool is_kept; /* the server said that it did; until then the others ask by text */
    bool is_off;  /* no more: what it was parsed for has changed since */
};
struct pg_names {
    struct pg_name names[PG_NAMES_MAX];
    int count;
    bool is_off; /* no name holds on this connection */
};
/* NULL: the statement has to be asked by its text. It must live as long as the names. */
struct pg_name *pg_name_to_ask_by(struct pg_names *names, const struct sql_statement *statement);
/* Parsing under it succeeded. */
void pg_name_kept(struct pg_names *names, const struct sql_statement *statement);
/* An ask by a name was refused. true: for the sake of the name, so the same ask by its text will tell what there is to
 * tell. (It was refused as a whole, so asking again repeats nothing.) */
bool pg_name_refused(struct pg_names *names, const struct sql_statement *statement, const char sqlstate[6]);

/* Copies as one line, blanks and control characters as one blank, cut to size. */
void pg_line(char *ret_line, size_t size, const char *text);
/* "<statement>: <the server's primary message>". Never the DETAIL, and of class 22 only the words before the first
 * value: those quote values. */
void pg_result_message(const PGresult *result, const char *statement_name, char *ret_message, size_t size);
void pg_result_sqlstate(const PGresult *result, char ret_sqlstate[6]);
/* Notices would go to standard error; the daemons log for themselves. */
void pg_ignore_notices(PGconn *connection);

/* PostgreSQL ends a wait for a synchronous standby early when the session is cancelled or terminated: the transaction is
 * committed, the answer is a success, and only a warning says that a failover may lose it (SyncRepWaitForLSN in
 * syncrep.c: WARNING 01000 and 57P01). */
struct pg_doubt {
    bool is_there;
    char why[128];
};
/* As pg_ignore_notices(), and such a warning is noted. The doubt must live as long as the connection. */
void pg_watch_notices(PGconn *connection, struct pg_doubt *doubt);

#endif
