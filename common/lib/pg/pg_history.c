/* See pg_history.h. */
#include "common/lib/pg/pg_history.h"

#include <stdio.h>
#include <string.h>

#include "common/lib/pg/pg_libpq.h"

void pg_history_params(const struct pg_history *known, struct pg_param params[PG_HISTORY_PARAMS])
{
    for (int i = 0; i < PG_HISTORY_PARAMS; i++)
        params[i] = pg_param_null();
    if (known->position == 0)
        return;
    params[0] = pg_param_uuid(&known->id);
    params[1] = pg_param_string(known->system);
    params[2] = pg_param_int8(known->timeline);
    params[3] = pg_param_int8(known->position);
}

const char *pg_history_read(const struct pg_rows *rows, int64_t timeline, struct pg_history *ret_session)
{
    *ret_session = (struct pg_history){.id = pg_uuid(rows, 0, 0), .timeline = timeline};
    snprintf(ret_session->system, sizeof(ret_session->system), "%s", pg_text(rows, 0, 1));
    return pg_text(rows, 0, 2);
}

static bool is_same(const struct pg_history *a, const struct pg_history *b)
{
    return uuid_equal(&a->id, &b->id) && strcmp(a->system, b->system) == 0;
}

void pg_history_follow(struct pg_history *known, const struct pg_history *session)
{
    if (!is_same(known, session))
        *known = *session;
    else if (known->timeline < session->timeline)
        known->timeline = session->timeline;
}

void pg_history_note(struct pg_history *known, const struct pg_history *session, const struct pg_rows *rows)
{
    int last = pg_rows_count(rows) - 1;
    int column = last < 0 ? -1 : PQfnumber((const PGresult *)rows, "acknowledged");
    if (column < 0 || session->timeline != known->timeline || !is_same(known, session))
        return;
    int64_t position = pg_int8(rows, last, column);
    if (position > known->position)
        known->position = position;
}
