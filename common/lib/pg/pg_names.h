/* The names of prepared statements in one session of the server: a statement under a name is parsed and planned only
 * once. Pure: no libpq. Private to common/lib/pg.
 *
 * Behind a connection pooler a session may belong to another client a moment later: a name can be gone (26000), or
 * taken by another program (42P05). Then names are switched off for this connection, and every statement is sent by its
 * text. A name contains a hash of its statement's text, so a name that exists always means the same statement. */
#ifndef ISSUING_PG_NAMES_H
#define ISSUING_PG_NAMES_H

#include "common/lib/base/base.h"
#include "common/lib/pg/pg_statement.h"

#define PG_NAMES_MAX 64
#define PG_NAME_SIZE 40

struct pg_name {
    const struct sql_statement *statement;
    char text[PG_NAME_SIZE];
    bool is_sent;     /* a Parse was sent, and was not refused */
    bool is_prepared; /* the server confirmed the Parse; before that, other queries are sent by text */
    bool is_off;      /* not used any more: a table that it was planned for has changed */
};

/* Starts as all zeros, with each new session. */
struct pg_names {
    struct pg_name names[PG_NAMES_MAX];
    int count;
    bool is_off; /* no name is used on this connection any more */
};

/* The name to send this statement by: prepare it first unless it is_sent. NULL: send the text. The statement must live
 * as long as the names. */
struct pg_name *pg_names_find(struct pg_names *names, const struct sql_statement *statement);
/* The server confirmed the Parse. */
void pg_names_prepared(struct pg_names *names, const struct sql_statement *statement);
/* A query that was sent by a name was refused. true: because of the name, so the same query by its text has the result
 * that matters. (It was refused as a whole, so sending it again repeats nothing.) */
bool pg_names_refused(struct pg_names *names, const struct sql_statement *statement, const char sqlstate[6]);

#endif
