/* See audit.h.
 *
 * Invariants: the order is that of (at, id), and a step starts behind the last row of the one before, so no action is
 * returned twice and none that was there all the time is left out; also where many have one time. A value that reaches
 * the database is one that it can compute with. */
#include "ctl/audit/audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/action.h"
#include "ctl/row.h"
#include "statements.h"

#define TIME_MAX_US INT64_C(253402300799999999) /* 9999-12-31, the last that moment_parse() reads */

#define FIELD(member) ROW_FIELD(struct audit_row, member)

static const struct row_field columns[] = {
    FIELD(cursor.id), ROW_TIME(struct audit_row, cursor.at_us),
    FIELD(event_id),  FIELD(actor),
    FIELD(action),    FIELD(reason),
    FIELD(db_role),   FIELD(os_user),
    FIELD(sudo_user), FIELD(before),
    FIELD(after),     FIELD(from_status),
    FIELD(to_status), FIELD(target),
    FIELD(batch),     FIELD(scope),
};
enum { MATCHES = ARRAY_SIZE(columns), IS_END };

static bool check_moment(const char *name, const char *text, struct moment *ret_moment, struct err *err)
{
    return !text || moment_parse(text, ret_moment) || err_set(err, ERR_USAGE, "--%s needs " MOMENT_FORMS, name);
}

bool audit_check(struct audit_filter *filter, struct err *err)
{
    if (!check_moment("since", filter->since, &filter->from, err) ||
        !check_moment("until", filter->until, &filter->to, err))
        return false;
    if ((filter->actor && !filter->actor[0]) || (filter->action && !filter->action[0]))
        return err_set(err, ERR_USAGE, "--actor and --action need a value");
    if (filter->event && filter->batch)
        return err_set(err, ERR_USAGE, "--event and --batch do not go together");
    if (filter->batch && !uuid_parse(filter->batch, strlen(filter->batch), &filter->batch_id))
        return err_set(err, ERR_USAGE, "%.60s is not the id of a bulk action, which `audit` shows", filter->batch);
    return !filter->event || action_parse_id(filter->event, &filter->event_id, err);
}

/* A decimal number without sign or blanks, from 1 to max, that ends at `end`. */
static bool read_number(const char **at, char end, int64_t max, int64_t *ret_number)
{
    int64_t number = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        int digit = **at - '0';
        if (number > (max - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    if (number == 0 || **at != end)
        return false;
    *ret_number = number;
    return true;
}

bool audit_cursor_parse(const char *text, struct audit_cursor *ret_cursor)
{
    struct audit_cursor cursor;
    if (!read_number(&text, '.', TIME_MAX_US, &cursor.at_us))
        return false;
    text++;
    if (!read_number(&text, '\0', INT64_MAX, &cursor.id))
        return false;
    *ret_cursor = cursor;
    return true;
}

void audit_cursor_format(const struct audit_cursor *cursor, char ret_text[AUDIT_CURSOR_SIZE])
{
    snprintf(ret_text, AUDIT_CURSOR_SIZE, "%" PRId64 ".%" PRId64, cursor->at_us, cursor->id);
}

bool audit_open(struct audit_walk *walk, struct pg_sync *db, const struct audit_filter *filter, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(db, &sql_operator_bounds, NULL, &rows, err))
        return false;
    *walk = (struct audit_walk){.filter = filter, .now_us = pg_time_us(rows, 0, 0)};
    return true;
}

void audit_go_on_behind(struct audit_walk *walk, const struct audit_cursor *cursor)
{
    walk->has_cursor = true;
    walk->is_over = false;
    walk->cursor = *cursor;
}

const struct sql_statement *audit_statement(const struct audit_filter *filter)
{
    return filter->event ? &sql_operator_audit_event : filter->batch ? &sql_operator_audit_batch : &sql_operator_audit;
}

void audit_params(const struct audit_walk *walk, int64_t wanted, struct pg_param params[AUDIT_PARAMS])
{
    const struct audit_filter *filter = walk->filter;
    params[0] = filter->since ? pg_param_int8(moment_us(&filter->from, walk->now_us)) : pg_param_null();
    params[1] = walk->has_cursor ? pg_param_int8(walk->cursor.at_us)
                : filter->until  ? pg_param_int8(moment_us(&filter->to, walk->now_us))
                                 : pg_param_null();
    params[2] = walk->has_cursor ? pg_param_int8(walk->cursor.id) : pg_param_null();
    params[3] = pg_param_string(filter->actor);
    params[4] = pg_param_string(filter->action);
    params[5] = pg_param_int8(wanted);
    /* guard: the audit lists card numbers that users were shown only where they are asked for */
    params[6] = filter->event   ? pg_param_uuid(&filter->event_id)
                : filter->batch ? pg_param_uuid(&filter->batch_id)
                                : pg_param_bool(filter->action != NULL);
    params[7] = pg_param_int8(AUDIT_LOOK_MAX);
    params[8] = pg_param_bool(!filter->in_full);
    params[9] = filter->until ? pg_param_int8(moment_us(&filter->to, walk->now_us)) : pg_param_null();
}

bool audit_step(struct audit_walk *walk, struct pg_sync *db, int64_t wanted, struct pg_rows **ret_rows, struct err *err)
{
    struct pg_rows *rows = NULL;
    struct pg_param params[AUDIT_PARAMS];
    audit_params(walk, wanted, params);
    if (!pg_sync_query(db, audit_statement(walk->filter), params, &rows, err))
        return false;
    int last = pg_rows_count(rows) - 1;
    if (last >= 0) {
        struct audit_row row;
        row_read(rows, last, columns, ARRAY_SIZE(columns), &row);
        audit_go_on_behind(walk, &row.cursor);
    }
    walk->is_over = last < 0 || pg_bool(rows, last, IS_END);
    *ret_rows = rows;
    return true;
}

bool audit_row(const struct pg_rows *rows, int row, struct audit_row *ret_row)
{
    if (!pg_bool(rows, row, MATCHES))
        return false;
    row_read(rows, row, columns, ARRAY_SIZE(columns), ret_row);
    return true;
}

bool audit_read_batch(struct pg_sync *db, const struct audit_row *row, struct audit_batch *ret_batch, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct uuid batch = {{0}};
    (void)!uuid_parse(row->batch, strlen(row->batch), &batch);
    const struct pg_param params[] = {pg_param_uuid(&batch), pg_param_string(row->db_role), pg_param_string(row->actor),
                                      pg_param_string(row->action), pg_param_int8(AUDIT_LOOK_MAX)};
    if (!pg_sync_query(db, &sql_operator_batch, params, &rows, err))
        return false;
    const char *outcome = pg_text(rows, 0, 3);
    *ret_batch = (struct audit_batch){pg_int8(rows, 0, 0), pg_time_us(rows, 0, 1), pg_time_us(rows, 0, 2), ""};
    snprintf(ret_batch->outcome, sizeof(ret_batch->outcome), "%s%s", outcome ? outcome : "",
             ret_batch->count > AUDIT_LOOK_MAX ? ", of the newest 10,000" : "");
    return true;
}
