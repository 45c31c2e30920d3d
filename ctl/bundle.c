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
    return JSON_OBJECT(
        json_number("attempt", pg_int8(rows, row, ATTEMPT)), json_time("started_at", pg_time_us(rows, row, STARTED_AT)),
        json_time("ended_at", pg_time_us(rows, row, ENDED_AT)), json_text("step", pg_bytes(rows, row, STEP).bytes),
        json_text("outcome", pg_bytes(rows, row, OUTCOME).bytes), json_text("code", pg_bytes(rows, row, CODE).bytes),
        json_text("detail", pg_bytes(rows, row, DETAIL).bytes), json_flag("unknown", pg_bool(rows, row, UNKNOWN)));
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
    struct json *object = event_json(&copy), *attempts = json_new_array();
    for (int row = pg_rows_count(rows) - 1; row >= 0; row--) /* they are newest first */
        json_append(&attempts, attempt_json(rows, row));
    json_add(&object, json_tree("attempts", attempts));
    if (!object)
        return err_set(err, ERR_MEMORY, "out of memory");
    *ret_json = object;
    return true;
}
