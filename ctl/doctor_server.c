/* The checks of doctor that look at what who runs PostgreSQL has changed or left behind (doctor.h). */
#include <string.h>

#include "ctl/doctor.h"
#include "statements.h"

/* Our own texts are sorted by their bytes; those of others in this database may not be. */
static bool check_collation(struct doctor *doctor, struct err *err)
{
    enum { RECORDED, PRESENT };
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_doctor_collation, NULL, &rows, err))
        return false;
    const char *recorded = pg_bytes(rows, 0, RECORDED).bytes, *present = pg_bytes(rows, 0, PRESENT).bytes;
    bool fits = !recorded || (present && strcmp(recorded, present) == 0);
    if (!fits)
        doctor_warn(doctor, "collation",
                    "REINDEX what others have in this database, then ALTER DATABASE ... REFRESH COLLATION VERSION",
                    "the database was made with version %.60s of its collation, and the host has %.60s: indexes of "
                    "others over text may miss rows; ours are sorted by bytes",
                    recorded, present ? present : "none");
    else
        doctor_report(doctor, "collation", true, NULL, "the host sorts as it did when the database was made");
    return true;
}

/* PostgreSQL refuses each UPDATE and DELETE of a table that is published without an identity. */
static bool check_publications(struct doctor *doctor, struct err *err)
{
    enum { TABLES, PUBLICATION };
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_doctor_publications, NULL, &rows, err))
        return false;
    if (pg_is_null(rows, 0, TABLES))
        doctor_report(doctor, "publications", true, NULL, "none stops a change of our tables");
    else
        doctor_report(doctor, "publications", false, "ALTER TABLE ... REPLICA IDENTITY FULL, or take it out of there",
                      "the publication %.60s has tables whose rows cannot be changed, and work on them waits: %.300s",
                      pg_bytes(rows, 0, PUBLICATION).bytes, pg_bytes(rows, 0, TABLES).bytes);
    return true;
}

bool doctor_check_server(struct doctor *doctor, struct err *err)
{
    return check_collation(doctor, err) && check_publications(doctor, err);
}
