/* COPY from one database into another: pg_sync_copy().
 *
 * Invariants: what was read is written before more is read, so the memory is that of one row and libpq's buffers; every
 * wait is limited by the caller's time and by the connection's longest answer; a failure ends both COPYs, the
 * destination's by CopyFail, the source's by a cancel and the rest of its rows, or by giving the connection up.
 * No row is looked at, and none gets into a message.
 * Left out: transactions, which are the caller's. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/pg/pg_sync_internal.h"

#define CLEAN_UP_MS 2000
#define SOURCE "the source"
#define DESTINATION "the destination"

struct pump {
    struct pg_sync *from, *into;
    int64_t until_ms; /* 0 = none */
    struct pg_copied copied;
};

bool pg_sync_is_lost(const struct pg_sync *db)
{
    return db->is_late || PQstatus(db->connection) == CONNECTION_BAD;
}

/* Waits for the socket. until_ms 0: as long as the connection's answers may take. */
static bool await(struct pg_sync *db, short events, int64_t until_ms, const char *side, struct err *err)
{
    int64_t silent_ms = db->answer_ms > 0 ? clock_mono_ms() + db->answer_ms : INT64_MAX;
    int64_t first_ms = until_ms > 0 && until_ms < silent_ms ? until_ms : silent_ms;
    for (;;) {
        int64_t left_ms = first_ms - clock_mono_ms();
        struct pollfd socket = {.fd = PQsocket(db->connection), .events = events};
        if (left_ms <= 0 && first_ms == silent_ms) {
            db->is_late = true;
            return err_set(err, ERR_AWAY, "%s: no answer within %lld s", side, (long long)db->answer_ms / 1000);
        }
        if (left_ms <= 0)
            return err_set(err, ERR_REFUSED, "%s: the rows were not copied in time", side);
        int ready = poll(&socket, 1, left_ms < 60000 ? (int)left_ms : 60000);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return err_set(err, ERR_SYSTEM, "poll: %s", strerror(errno));
    }
}

static bool fail_lost(struct pg_sync *db, const char *side, struct err *err)
{
    char line[200];
    pg_line(line, sizeof(line), PQerrorMessage(db->connection));
    db->is_late = true;
    return err_set(err, ERR_AWAY, "%s: %s", side, line);
}

/* Sends what libpq still holds. */
static bool flush(struct pg_sync *db, int64_t until_ms, const char *side, struct err *err)
{
    for (;;) {
        int left = PQflush(db->connection);
        if (left == 0)
            return true;
        if (left < 0)
            return fail_lost(db, side, err);
        if (!await(db, POLLIN | POLLOUT, until_ms, side, err))
            return false;
        if (!PQconsumeInput(db->connection)) /* a server that sends while we do must be read, or both wait */
            return fail_lost(db, side, err);
    }
}

/* The next result, which may be NULL as from PQgetResult(). */
static bool next_result(struct pg_sync *db, int64_t until_ms, const char *side, PGresult **ret_result, struct err *err)
{
    while (PQisBusy(db->connection)) {
        if (!await(db, POLLIN, until_ms, side, err))
            return false;
        if (!PQconsumeInput(db->connection))
            return fail_lost(db, side, err);
    }
    *ret_result = PQgetResult(db->connection);
    return true;
}

static void skip_results(struct pg_sync *db, int64_t until_ms)
{
    struct err ignored;
    PGresult *result;
    while (next_result(db, until_ms, "", &result, &ignored)) {
        if (!result)
            return;
        bool is_copy = PQresultStatus(result) == PGRES_COPY_IN || PQresultStatus(result) == PGRES_COPY_OUT;
        PQclear(result);
        if (is_copy) /* libpq would return it for ever */
            break;
    }
    db->is_late = true;
}

static bool begin(struct pg_sync *db, const char *text, ExecStatusType wanted, int64_t until_ms, const char *side,
                  struct err *err)
{
    PGresult *result;
    db->doubt = (struct pg_doubt){.is_there = false};
    if (db->is_late)
        return err_set(err, ERR_AWAY, "%s: the connection was given up", side);
    if (!PQsendQuery(db->connection, text))
        return fail_lost(db, side, err);
    if (!next_result(db, until_ms, side, &result, err)) {
        db->is_late = true;
        return false;
    }
    if (PQresultStatus(result) == wanted) {
        PQclear(result);
        return true;
    }
    if (pg_sync_take(db, result, "", NULL, err))
        err_set(err, ERR_DATABASE, "a statement that should be a COPY is none");
    skip_results(db, clock_mono_ms() + CLEAN_UP_MS);
    return err_prefix(err, "%s", side);
}

/* One row from the source into the destination. *ret_at_end: there was none. */
static bool pump_row(struct pump *pump, bool *ret_at_end, struct err *err)
{
    char *row = NULL;
    int length;
    while ((length = PQgetCopyData(pump->from->connection, &row, 1)) == 0) {
        if (!await(pump->from, POLLIN, pump->until_ms, SOURCE, err))
            return false;
        if (!PQconsumeInput(pump->from->connection))
            return fail_lost(pump->from, SOURCE, err);
    }
    *ret_at_end = length < 0;
    if (length < 0)
        return true;
    bool is_put = flush(pump->into, pump->until_ms, DESTINATION, err) &&
                  (PQputCopyData(pump->into->connection, row, length) > 0 || fail_lost(pump->into, DESTINATION, err));
    PQfreemem(row);
    pump->copied.bytes += length;
    return is_put;
}

static bool pump_rows(struct pump *pump, struct err *err)
{
    bool at_end = false;
    while (!at_end) {
        if (pump->until_ms > 0 && clock_mono_ms() > pump->until_ms)
            return err_set(err, ERR_REFUSED, "the rows were not copied in time");
        if (!pump_row(pump, &at_end, err))
            return false;
    }
    return true;
}

/* The result of a COPY, and the end of its results. */
static bool finish(struct pg_sync *db, int64_t until_ms, const char *side, int64_t *ret_rows, struct err *err)
{
    PGresult *result;
    if (!next_result(db, until_ms, side, &result, err)) {
        db->is_late = true;
        return false;
    }
    *ret_rows = strtoll(PQcmdTuples(result), NULL, 10);
    bool is_done = pg_sync_take(db, result, "", NULL, err) || err_prefix(err, "%s", side);
    skip_results(db, clock_mono_ms() + CLEAN_UP_MS);
    return is_done;
}

/* ---- after a failure ---- */

/* The rest of the rows, which are those that were on their way when the server took notice. */
static void end_source(struct pg_sync *from)
{
    int64_t until_ms = clock_mono_ms() + CLEAN_UP_MS;
    struct err ignored;
    char why[256], *row = NULL;
    int length;
    if (pg_sync_is_lost(from))
        return;
    PGcancel *cancel = PQgetCancel(from->connection);
    bool is_told = cancel && PQcancel(cancel, why, sizeof(why));
    PQfreeCancel(cancel);
    while (is_told && (length = PQgetCopyData(from->connection, &row, 1)) >= 0) {
        PQfreemem(row);
        row = NULL;
        if (length == 0 && (!await(from, POLLIN, until_ms, "", &ignored) || !PQconsumeInput(from->connection)))
            is_told = false;
    }
    if (is_told)
        skip_results(from, until_ms);
    else
        from->is_late = true;
}

static void end_destination(struct pg_sync *into)
{
    int64_t until_ms = clock_mono_ms() + CLEAN_UP_MS;
    struct err ignored;
    if (pg_sync_is_lost(into))
        return;
    if (!flush(into, until_ms, "", &ignored) || PQputCopyEnd(into->connection, "the source's rows ended early") <= 0 ||
        !flush(into, until_ms, "", &ignored))
        into->is_late = true;
    else
        skip_results(into, until_ms);
}

/* Both COPYs are under way. */
static bool pump_all(struct pump *pump, struct err *err)
{
    int64_t source_rows;
    if (!pump_rows(pump, err)) {
        end_source(pump->from);
        end_destination(pump->into);
        return false;
    }
    if (!finish(pump->from, pump->until_ms, SOURCE, &source_rows, err)) {
        end_destination(pump->into);
        return false;
    }
    if (!flush(pump->into, pump->until_ms, DESTINATION, err)) {
        end_destination(pump->into);
        return false;
    }
    if (PQputCopyEnd(pump->into->connection, NULL) <= 0)
        return fail_lost(pump->into, DESTINATION, err);
    return flush(pump->into, pump->until_ms, DESTINATION, err) &&
           finish(pump->into, pump->until_ms, DESTINATION, &pump->copied.rows, err);
}

bool pg_sync_copy(struct pg_sync *from, const char *out, struct pg_sync *into, const char *in, int64_t until_ms,
                  struct pg_copied *ret_copied, struct err *err)
{
    struct pump pump = {.from = from, .into = into, .until_ms = until_ms};
    if (!begin(into, in, PGRES_COPY_IN, until_ms, DESTINATION, err))
        return false;
    if (PQsetnonblocking(into->connection, 1) != 0)
        return fail_lost(into, DESTINATION, err);
    bool is_done = begin(from, out, PGRES_COPY_OUT, until_ms, SOURCE, err);
    if (!is_done)
        end_destination(into);
    else
        is_done = pump_all(&pump, err);
    if (!is_done && !pg_sync_is_lost(into) && PQflush(into->connection) != 0)
        into->is_late = true;
    if (!pg_sync_is_lost(into) && PQsetnonblocking(into->connection, 0) != 0)
        into->is_late = true;
    if (is_done)
        *ret_copied = pump.copied;
    return is_done;
}
