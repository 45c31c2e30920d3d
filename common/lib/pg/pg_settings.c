/* See pg_settings.h. */
#include "common/lib/pg/pg_settings.h"

#include <stdio.h>

bool pg_settings_fault(const struct pg_rows *rows, char ret_text[PG_FAULT_SIZE])
{
    /* guard: a session with a setting that changes what a commit means is not used */
    if (pg_is_null(rows, 0, 0))
        return false;
    snprintf(
        ret_text, PG_FAULT_SIZE,
        "a pooler is in between, and its sessions have %.60s: give it the connect_query of examples/pgbouncer.ini, or "
        "reset that setting of role, database and server",
        pg_text(rows, 0, 0));
    return true;
}
