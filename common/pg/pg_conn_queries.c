/* The queries of a connection: how they are sent, and how what comes back becomes their results. See pg_conn.h.
 *
 * Invariants:
 * - Each query is followed by its own Sync, so each is a transaction of its own and the failure of one does not abort
 *   its neighbour.
 * - A query is done only when the server has confirmed its Sync: the implicit transaction commits there, and a commit
 *   can still fail. A fatal error without the Sync is a lost connection, hence PG_UNKNOWN.
 * - A success does not count when the server warned that it did not wait for a synchronous standby (pg_doubt). Such a
 *   warning comes between the rows and the confirmation of the Sync, so it belongs to the first query in flight.
 * - Hooks may lose or close the connection, so the state is read again after each of them. */
#include <assert.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/pg/pg_conn.h"

/* name NULL: by its text. */
static bool send_statement(struct pg_connection *connection, struct pg_query *query, struct pg_name *name)
{
    const struct sql_statement *statement = query->statement;
    struct pg_values values;
    pg_values_fill(&values, query->params, statement->parameters);
    if (!name) {
        query->method = PG_BY_TEXT;
        return PQsendQueryParams(connection->libpq, statement->text, statement->parameters, NULL, values.values,
                                 values.lengths, values.formats, 1) == 1;
    }
    query->method = name->is_sent ? PG_BY_NAME : PG_PREPARING;
    if (!name->is_sent && !PQsendPrepare(connection->libpq, name->text, statement->text, statement->parameters, NULL))
        return false;
    name->is_sent = true;
    return PQsendQueryPrepared(connection->libpq, name->text, statement->parameters, values.values, values.lengths,
                               values.formats, 1) == 1;
}

/* libpq 15 writes to the socket with each Sync, so leaving out Syncs between queries would save no system call. */
static void put_in_flight(struct pg_connection *connection, struct pg_query *query)
{
    query->sent = true;
    query->is_given_up = false;
    if (!connection->in_flight.first)
        connection->turn_ms = clock_mono_ms();
    pg_queries_append(&connection->in_flight, query);
    if (!PQpipelineSync(connection->libpq))
        pg_connection_lose(connection, NULL);
}

bool pg_connection_send(struct pg_connection *connection, struct pg_query *query)
{
    assert(connection->state == PG_STATE_UP);
    if (!send_statement(connection, query, pg_names_find(&connection->names, query->statement)))
        return false;
    put_in_flight(connection, query);
    return true;
}

void pg_connection_replace(struct pg_connection *connection, struct pg_query *query, struct pg_query *replacement)
{
    void (*on_result)(struct pg_query * query, const struct pg_query_result *result) = replacement->on_result;
    *replacement = *query;
    replacement->on_result = on_result;
    replacement->is_given_up = true;
    struct pg_queries *queries = &connection->in_flight;
    struct pg_query **link = &queries->first;
    while (*link != query)
        link = &(*link)->next;
    *link = replacement;
    if (queries->last == query)
        queries->last = replacement;
}

bool pg_connection_has_error(const struct pg_connection *connection)
{
    return connection->result && PQresultStatus(connection->result) == PGRES_FATAL_ERROR;
}

/* The name was refused, not the statement: once more, by its text. */
static void send_by_text(struct pg_connection *connection, struct pg_query *query)
{
    bool is_sent = send_statement(connection, query, NULL);
    put_in_flight(connection, query);
    if (!is_sent && connection->state == PG_STATE_UP)
        pg_connection_lose(connection, NULL);
}

/* The server confirmed the Sync of the first in flight, so its result is final. */
static void report_first(struct pg_connection *connection)
{
    struct pg_query *query = pg_queries_take(&connection->in_flight);
    PGresult *libpq_result = connection->result;
    connection->result = NULL;
    connection->turn_ms = clock_mono_ms();
    struct pg_query_result result = {.kind = PG_DONE, .rows = (const struct pg_rows *)libpq_result};
    struct pg_doubt doubt = connection->doubt;
    connection->doubt = (struct pg_doubt){0};
    if (PQresultStatus(libpq_result) == PGRES_FATAL_ERROR) {
        result = (struct pg_query_result){.kind = PG_REFUSED};
        pg_result_sqlstate(libpq_result, result.sqlstate);
        pg_result_message(libpq_result, query->statement->name, result.message, sizeof(result.message));
        bool is_by_name = query->method != PG_BY_TEXT && !query->is_given_up;
        if (is_by_name && pg_names_refused(&connection->names, query->statement, result.sqlstate)) {
            PQclear(libpq_result);
            send_by_text(connection, query);
            return;
        }
    } else if (doubt.is_there) {
        result = (struct pg_query_result){.kind = PG_UNKNOWN};
        (void)snprintf(result.message, sizeof(result.message), "%s: %s", query->statement->name, doubt.why);
    }
    connection->hooks->on_result(connection, query, &result);
    PQclear(libpq_result);
}

/* Takes one result of libpq. false: the answers do not fit the queries, so the connection is not usable any more. */
static bool take_result(struct pg_connection *connection, PGresult *result)
{
    struct pg_query *query = connection->in_flight.first;
    switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
        if (connection->result)
            break;
        if (query->method == PG_PREPARING) { /* the result of the Parse; that of the query follows */
            query->method = PG_BY_NAME;
            pg_names_prepared(&connection->names, query->statement);
            PQclear(result);
            return true;
        }
        connection->result = result;
        return true;
    case PGRES_FATAL_ERROR:
        /* Also after a success: the commit failed. */
        PQclear(connection->result);
        connection->result = result;
        return PQstatus(connection->libpq) == CONNECTION_OK;
    case PGRES_PIPELINE_SYNC:
        PQclear(result);
        if (!connection->result)
            return false;
        report_first(connection);
        return true;
    case PGRES_PIPELINE_ABORTED: /* only behind a refused Parse: each query has its own Sync */
        if (query->method != PG_PREPARING || !pg_connection_has_error(connection))
            break;
        PQclear(result);
        return true;
    case PGRES_EMPTY_QUERY:
    case PGRES_COPY_OUT:
    case PGRES_COPY_IN:
    case PGRES_COPY_BOTH:
    case PGRES_BAD_RESPONSE:
    case PGRES_NONFATAL_ERROR:
    case PGRES_SINGLE_TUPLE:
        break;
    }
    PQclear(result);
    return false;
}

bool pg_connection_drain(struct pg_connection *connection)
{
    int nulls = 0; /* one ends the results of a statement, two in a row mean that there is nothing more */
    while (connection->state == PG_STATE_UP && connection->in_flight.first && nulls < 2 &&
           !PQisBusy(connection->libpq)) {
        PGresult *result = PQgetResult(connection->libpq);
        nulls = result ? 0 : nulls + 1;
        if (result && !take_result(connection, result))
            return false;
    }
    return true;
}
