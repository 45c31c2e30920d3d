/* The checks of doctor that look at what who runs PostgreSQL has changed or left behind (doctor.h). */
#include <inttypes.h>
#include <string.h>

#include "ctl/doctor/doctor.h"
#include "ctl/print.h"
#include "statements.h"

#define HELD_MS_MAX (INT64_C(15) * 60 * 1000)
#define HELD_TRANSACTIONS_MAX 1000000     /* of a session whose age in time we may not see */
#define OLDEST_ROW_MAX (INT64_C(1) << 30) /* PostgreSQL refuses to write at 2^31 */
#define SLOT_WAL_MAX INT64_C(16000000000)
#define NOTIFICATIONS_MAX 10 /* thousandths of the queue */

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

/* What keeps vacuum from removing old rows, or PostgreSQL from removing WAL. */
static bool check_holders(struct doctor *doctor, struct err *err)
{
    enum { KIND, WHO, AGE_MS, TRANSACTIONS, WAL, FIX };
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_int8(HELD_MS_MAX), pg_param_int8(HELD_TRANSACTIONS_MAX),
                                      pg_param_int8(OLDEST_ROW_MAX), pg_param_int8(SLOT_WAL_MAX)};
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_doctor_holders, params, &rows, err))
        return false;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        char span[PRINT_SPAN_SIZE], wal[60] = "";
        if (!pg_is_null(rows, row, WAL))
            snprintf(wal, sizeof(wal), ", keeps %" PRId64 " MB of WAL", pg_int8(rows, row, WAL) / 1000000);
        doctor_warn(doctor, "vacuum", pg_bytes(rows, row, FIX).bytes, "%s %.200s: for %s, %" PRId64 " transactions%s",
                    pg_bytes(rows, row, KIND).bytes, pg_bytes(rows, row, WHO).bytes,
                    pg_is_null(rows, row, AGE_MS) ? "a time that is not shown"
                                                  : print_span(pg_int8(rows, row, AGE_MS) * 1000, span),
                    pg_int8(rows, row, TRANSACTIONS), wal);
    }
    if (pg_rows_count(rows) == 0)
        doctor_report(doctor, "vacuum", true, NULL, "no old snapshot, prepared transaction or slot holds it back");
    return true;
}

/* At 10 wake-ups end (issuing.wake_for), at 1000 every transaction of anybody that notifies fails. */
static bool check_notifications(struct doctor *doctor, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_doctor_notifications, NULL, &rows, err))
        return false;
    int64_t thousandths = pg_int8(rows, 0, 0);
    if (thousandths >= NOTIFICATIONS_MAX)
        doctor_warn(doctor, "wake-ups",
                    "end the session that used LISTEN and is idle in transaction (pg_stat_activity; PostgreSQL's log "
                    "names it when half is full)",
                    "%" PRId64 ".%" PRId64 " %% of their queue are full, so work is found by polling: a session that "
                    "listens does not read",
                    thousandths / 10, thousandths % 10);
    else
        doctor_report(doctor, "wake-ups", true, NULL, "they are read");
    return true;
}

bool doctor_check_server(struct doctor *doctor, struct err *err)
{
    return check_collation(doctor, err) && check_publications(doctor, err) && check_holders(doctor, err) &&
           check_notifications(doctor, err);
}
