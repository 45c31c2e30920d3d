/* One blocking connection, for issuing-ctl, migrations and tests. */
#ifndef ISSUING_PG_SYNC_H
#define ISSUING_PG_SYNC_H

#include "common/lib/base/err.h"
#include "common/lib/pg/pg_param.h"
#include "common/lib/pg/pg_result.h"
#include "common/lib/pg/pg_statement.h"

struct pg_sync;

/* ERR_AWAY when no connection can be made (connect_timeout is 5 s unless the conninfo sets it); ERR_CONFIG when
 * that lasts until somebody repairs it, with a SQLSTATE where the server refuses the role, its password, the database's
 * name or a setting. */
must_check bool pg_sync_open(const char *conninfo, const char *application_name, struct pg_sync **ret_db,
                             struct err *err);
/* The same at this host of the conninfo's list only, which may be a standby; -1 = any. *ret_hosts: how many there
 * are. */
must_check bool pg_sync_open_host(const char *conninfo, const char *application_name, int host, int *ret_hosts,
                                  struct pg_sync **ret_db, struct err *err);
/* "host:port", for people. */
void pg_sync_where(const struct pg_sync *db, char *ret_text, size_t size);
void pg_sync_close(struct pg_sync *db); /* accepts NULL */
#define pg_sync_scope on_scope_end(pg_sync_closep)
void pg_sync_closep(struct pg_sync **db);
/* Sets the longest wait for an answer: a call that exceeds it ends with ERR_AWAY, and the connection cannot be used any
 * more. The server may go on with the statement: its statement_timeout is to be shorter. 0 = waits for ever, as at
 * first. */
void pg_sync_limit(struct pg_sync *db, int64_t answer_ms);
/* rows stay valid until pg_rows_free. ret_rows may be NULL. ERR_DATABASE with the server's SQLSTATE and message,
 * ERR_AWAY when the connection is lost. */
must_check bool pg_sync_query(struct pg_sync *db, const struct sql_statement *statement, const struct pg_param *params,
                              struct pg_rows **ret_rows, struct err *err);
/* Any text, several statements allowed, no parameters: migrations, BEGIN, COMMIT. One simple query is one transaction
 * unless the text begins or ends transactions itself. */
must_check bool pg_sync_exec(struct pg_sync *db, const char *text, struct err *err);
/* Sets what the outcome of statements rests on (sql_session_settings). ERR_CONFIG: a pooler's sessions have something
 * else. */
must_check bool pg_sync_set_up(struct pg_sync *db, struct err *err);
/* After set-up: a pooler is in between, since the server's process differs from the one that was named when the
 * connection was made. A pooler that passes the true process on is not noticed. */
bool pg_sync_is_pooled(const struct pg_sync *db);
void pg_rows_free(struct pg_rows *rows);
#define pg_rows_scope on_scope_end(pg_rows_freep)
void pg_rows_freep(struct pg_rows **rows);

#endif
