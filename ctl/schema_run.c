/* See schema_run.h. */
#include "ctl/schema_run.h"

#include <stdlib.h>

#include "common/lib/pg/pg_place.h"
#include "migrations.h"
#include "statements.h"

bool schema_read_places(struct ctl *ctl, struct schema_places *ret_places, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(ctl->db, &sql_operator_migrate_places, NULL, &rows, err))
        return false;
    *ret_places = (struct schema_places){.count = (int)pg_int8(rows, 0, 0), .gone = (uint64_t)pg_int8(rows, 0, 1)};
    return true;
}

bool schema_run_text(struct ctl *ctl, const char *file, const char *text, struct err *err)
{
    return pg_sync_exec(ctl->db, text, err) || err_prefix(err, "%s", file);
}

bool schema_run_in_place(struct ctl *ctl, const char *file, const char *marked, int place, int places, struct err *err)
{
    char *text = pg_place_text(marked, place, places);
    bool is_done = text ? schema_run_text(ctl, file, text, err) : err_set(err, ERR_MEMORY, "out of memory");
    free(text);
    return is_done;
}

bool schema_run_in_places(struct ctl *ctl, const char *file, const char *marked, const struct schema_places *places,
                          struct err *err)
{
    for (int place = 0; place < places->count; place++)
        if (!(places->gone >> place & 1) && !schema_run_in_place(ctl, file, marked, place, places->count, err))
            return false;
    return true;
}

bool schema_join_places(struct ctl *ctl, const struct schema_places *places, struct err *err)
{
    for (int i = 0; i < schema_files_count && places->count > 1; i++)
        if (schema_files[i].is_over_places && !schema_run_text(ctl, schema_files[i].file, schema_files[i].text, err))
            return false;
    return schema_run_in_places(ctl, "grants.sql", schema_grants, places, err);
}

bool schema_run_citus(struct ctl *ctl, const struct schema_places *places, struct err *err)
{
    return schema_run_text(ctl, "citus_shared.sql", schema_citus_shared, err) &&
           schema_run_in_places(ctl, "citus.sql", schema_citus, places, err);
}
