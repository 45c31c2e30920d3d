/* See held.h. */
#include "ctl/held.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/lib/base/clock.h"
#include "ctl/print.h"
#include "ctl/stop.h"
#include "statements.h"

enum { PID, ROLE, SINCE, TABLES };

static bool look(struct pg_sync *db, struct pg_rows **ret_rows, struct err *err)
{
    return pg_sync_query(db, &sql_operator_held, NULL, ret_rows, err) || err_is_sqlstate(err, "42501");
}

static bool has(const struct pg_rows *rows, int64_t pid)
{
    for (int row = 0; row < pg_rows_count(rows); row++)
        if (pg_int8(rows, row, PID) == pid)
            return true;
    return false;
}

static void describe(const struct pg_rows *rows, int row, char text[HELD_TEXT_SIZE])
{
    char who[120], time[PRINT_TIME_SIZE];
    int64_t pid = pg_int8(rows, row, PID);
    const char *role = pg_text(rows, row, ROLE);
    snprintf(who, sizeof(who), "process %" PRId64 " of role %s", pid, role ? role : "?");
    snprintf(text, HELD_TEXT_SIZE, "%s has locked %.80s, since %s", pid == 0 ? "a prepared transaction" : who,
             pg_text(rows, row, TABLES),
             pg_is_null(rows, row, SINCE) ? "?" : print_time(pg_time_us(rows, row, SINCE), time));
}

bool held_look(struct pg_sync *db, struct held *ret_held, struct err *err)
{
    pg_rows_scope struct pg_rows *first = NULL, *second = NULL;
    *ret_held = (struct held){0};
    if (!look(db, &first, err))
        return false;
    if (!first || pg_rows_count(first) == 0)
        return true;
    (void)stop_sleep_until(clock_mono_us() + 1000000);
    if (!look(db, &second, err))
        return false;
    for (int row = 0; second && row < pg_rows_count(second) && ret_held->count < HELD_MAX; row++)
        if (has(first, pg_int8(second, row, PID)))
            describe(second, row, ret_held->texts[ret_held->count++]);
    return true;
}
