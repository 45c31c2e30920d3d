/* See pg_sync.h.
 *
 * Invariants: a connection is never opened again; when it is lost, every later call returns ERR_AWAY. A connection that
 * is lost during a call leaves the outcome unknown; the caller knows whether that matters. Left out: timeouts of
 * statements, except pg_sync_limit(); the operator has Ctrl-C. */
#include "common/lib/pg/pg_sync.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/lib/base/clock.h"
#include "common/lib/pg/pg_conninfo.h"
#include "common/lib/pg/pg_dial.h"
#include "common/lib/pg/pg_libpq.h"
#include "common/lib/pg/pg_settings.h"
#include "statements.h"

struct pg_sync {
    PGconn *connection;
    int64_t answer_ms; /* the longest wait for an answer; 0 = for ever */
    bool is_pooled;
    bool is_late;              /* an answer did not come in time: the connection is no longer of use */
    struct pg_notices notices; /* its doubt is about the commit of the current call */
};

bool pg_sync_open_host(const char *conninfo, const char *application_name, int host, int *ret_hosts,
                       struct pg_sync **ret_db, struct err *err)
{
    if (!pg_conninfo_check(conninfo, err))
        return false;
    struct pg_sync *db = calloc(1, sizeof(*db));
    if (!db)
        return err_set(err, ERR_MEMORY, "out of memory");
    db->connection = pg_dial(conninfo, application_name, host, ret_hosts, err);
    if (!db->connection) {
        free(db);
        return false;
    }
    pg_watch_notices(db->connection, &db->notices);
    *ret_db = db;
    return true;
}

bool pg_sync_open(const char *conninfo, const char *application_name, struct pg_sync **ret_db, struct err *err)
{
    int hosts;
    return pg_sync_open_host(conninfo, application_name, -1, &hosts, ret_db, err);
}

void pg_sync_where(const struct pg_sync *db, char *ret_text, size_t size)
{
    snprintf(ret_text, size, "%s:%s", PQhost(db->connection), PQport(db->connection));
}

void pg_sync_close(struct pg_sync *db)
{
    if (!db)
        return;
    PQfinish(db->connection);
    free(db);
}

void pg_sync_closep(struct pg_sync **db)
{
    pg_sync_close(*db);
    *db = NULL;
}

/* Takes the result over when it is a success and wanted, else frees it. result NULL: the connection failed. */
static bool take_result(struct pg_sync *db, PGresult *result, const char *name, struct pg_rows **ret_rows,
                        struct err *err)
{
    ExecStatusType status = PQresultStatus(result); /* of NULL: PGRES_FATAL_ERROR */
    bool is_success = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY;
    if (is_success && db->notices.doubt.is_there) {
        PQclear(result);
        return err_set(err, ERR_AWAY, "%s%s%s; it is done here, and may be lost in a failover", name,
                       name[0] ? ": " : "", db->notices.doubt.why);
    }
    if (is_success) {
        if (ret_rows)
            *ret_rows = (struct pg_rows *)result;
        else
            PQclear(result);
        return true;
    }
    char message[280], sqlstate[6];
    if (status == PGRES_FATAL_ERROR && result)
        pg_result_message(result, name, message, sizeof(message));
    else
        pg_line(message, sizeof(message), result ? "COPY is not supported here" : PQerrorMessage(db->connection));
    pg_result_sqlstate(result, sqlstate);
    PQclear(result);
    if (PQstatus(db->connection) == CONNECTION_BAD)
        return err_set_sqlstate(err, ERR_AWAY, sqlstate, "%s", message);
    return err_set_sqlstate(err, ERR_DATABASE, sqlstate, "%s%s%s%s", message, sqlstate[0] ? " (SQLSTATE " : "",
                            sqlstate, sqlstate[0] ? ")" : "");
}

void pg_sync_limit(struct pg_sync *db, int64_t answer_ms)
{
    db->answer_ms = answer_ms;
}

/* Whether the answer to what was sent is there, within answer_ms. A lost connection is an answer too. */
static bool is_answered(struct pg_sync *db)
{
    int64_t until_ms = clock_mono_ms() + db->answer_ms;
    while (PQisBusy(db->connection)) {
        int64_t left_ms = until_ms - clock_mono_ms();
        struct pollfd socket = {.fd = PQsocket(db->connection), .events = POLLIN};
        if (left_ms <= 0)
            return false;
        if (poll(&socket, 1, (int)left_ms) < 0 && errno != EINTR)
            return false;
        if (socket.revents != 0 && !PQconsumeInput(db->connection))
            return true;
    }
    return true;
}

/* PQexecParams within answer_ms. NULL: it could not be sent, or no answer came (is_late). */
static PGresult *ask_in_time(struct pg_sync *db, const struct sql_statement *statement, const struct pg_values *values)
{
    PGresult *result, *more;
    if (!PQsendQueryParams(db->connection, statement->text, statement->parameters, NULL, values->values,
                           values->lengths, values->formats, 1))
        return NULL;
    db->is_late = !is_answered(db);
    if (db->is_late)
        return NULL;
    result = PQgetResult(db->connection);
    while (result && (more = PQgetResult(db->connection)))
        PQclear(more);
    return result;
}

bool pg_sync_query(struct pg_sync *db, const struct sql_statement *statement, const struct pg_param *params,
                   struct pg_rows **ret_rows, struct err *err)
{
    struct pg_values values;
    if (db->is_late)
        return err_set(err, ERR_AWAY, "the connection was given up");
    pg_values_fill(&values, params, statement->parameters);
    db->notices.doubt = (struct pg_doubt){.is_there = false};
    if (db->answer_ms > 0) {
        PGresult *answer = ask_in_time(db, statement, &values);
        return db->is_late ? err_set(err, ERR_AWAY, "%s: no answer within %lld s", statement->name,
                                     (long long)db->answer_ms / 1000)
                           : take_result(db, answer, statement->name, ret_rows, err);
    }
    PGresult *result = PQexecParams(db->connection, statement->text, statement->parameters, NULL, values.values,
                                    values.lengths, values.formats, 1);
    return take_result(db, result, statement->name, ret_rows, err);
}

bool pg_sync_exec(struct pg_sync *db, const char *text, struct err *err)
{
    db->notices.doubt = (struct pg_doubt){.is_there = false};
    return take_result(db, PQexec(db->connection, text), "", NULL, err);
}

bool pg_sync_set_up(struct pg_sync *db, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_int8(PQbackendPID(db->connection))};
    char fault[PG_FAULT_SIZE];
    if (!pg_sync_query(db, &sql_session_settings, params, &rows, err))
        return false;
    db->is_pooled = !pg_bool(rows, 0, 1);
    return !pg_settings_fault(rows, fault) || err_set(err, ERR_CONFIG, "%s", fault);
}

bool pg_sync_is_pooled(const struct pg_sync *db)
{
    return db->is_pooled;
}

void pg_rows_free(struct pg_rows *rows)
{
    PQclear((PGresult *)rows);
}

void pg_rows_freep(struct pg_rows **rows)
{
    pg_rows_free(*rows);
    *rows = NULL;
}
