/* See bundle.h.
 *
 * Invariants: what names the user is null, so that the members are the same as without.
 * Left out: what operators did, since reasons may name anything. */
#include "ctl/bundle.h"

#include "ctl/print.h"
#include "statements.h"

#define ATTEMPTS_MAX 1000

static struct json *attempt_json(const struct pg_rows *rows, int row)
{
    enum { ATTEMPT, WORKER, STARTED_AT, ENDED_AT, STEP, OUTCOME, CODE, DETAIL, UNKNOWN };
    struct json *object = json_new_object();
    if (object && json_set_integer(object, "attempt", pg_int8(rows, row, ATTEMPT)) &&
        print_set_time(object, "started_at", pg_time_us(rows, row, STARTED_AT)) &&
        print_set_time(object, "ended_at", pg_time_us(rows, row, ENDED_AT)) &&
        json_set_text(object, "step", pg_bytes(rows, row, STEP).bytes) &&
        json_set_text(object, "outcome", pg_bytes(rows, row, OUTCOME).bytes) &&
        json_set_text(object, "code", pg_bytes(rows, row, CODE).bytes) &&
        json_set_text(object, "detail", pg_bytes(rows, row, DETAIL).bytes) &&
        json_set(object, "unknown", json_new_bool(pg_bool(rows, row, UNKNOWN))))
        return object;
    json_free(object);
    return NULL;
}

/* The rows are newest first. */
static struct json *attempts_json(const struct pg_rows *rows)
{
    struct json *array = json_new_array();
    bool whole = array != NULL;
    for (int row = pg_rows_count(rows) - 1; whole && row >= 0; row--) {
        struct json *attempt = attempt_json(rows, row);
        whole = attempt && json_append(array, attempt);
    }
    if (whole)
        return array;
    json_free(array);
    return NULL;
}

bool bundle_json(struct pg_sync *db, const struct event *event, struct json **ret_json, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_uuid(&event->id), pg_param_int8(ATTEMPTS_MAX)};
    struct event copy = *event;
    if (!pg_sync_query(db, &sql_operator_attempts, params, &rows, err))
        return false;
    copy.user_id = copy.client_key = copy.traceparent = copy.last4 = copy.replaced_last4 = NULL;
    copy.trace_id[0] = '\0';
    struct json *object = event_json(&copy), *attempts = attempts_json(rows);
    if (!object || !attempts) {
        json_free(object);
        json_free(attempts);
        return err_set(err, ERR_MEMORY, "out of memory");
    }
    if (!json_set(object, "attempts", attempts)) {
        json_free(object);
        return err_set(err, ERR_MEMORY, "out of memory");
    }
    *ret_json = object;
    return true;
}
