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
static void check_collation(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    enum { RECORDED, PRESENT };
    const char *recorded = pg_text(rows, row, RECORDED), *present = pg_text(rows, row, PRESENT);
    bool fits = !recorded || (present && strcmp(recorded, present) == 0);
    if (!fits)
        doctor_warn(doctor, "collation",
                    "REINDEX what others have in this database, then ALTER DATABASE ... REFRESH COLLATION VERSION",
                    "the database was made with version %.60s of its collation, and the host has %.60s: indexes of "
                    "others over text may miss rows; ours are sorted by bytes",
                    recorded, present ? present : "none");
    else
        doctor_report(doctor, "collation", true, NULL, "the host sorts as it did when the database was made");
}

/* PostgreSQL refuses each UPDATE and DELETE of a table that is published without an identity. */
static void check_publications(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    enum { TABLES, PUBLICATION };
    if (pg_is_null(rows, row, TABLES))
        doctor_report(doctor, "publications", true, NULL, "none stops a change of our tables");
    else
        doctor_report(doctor, "publications", false, "ALTER TABLE ... REPLICA IDENTITY FULL, or take it out of there",
                      "the publication %.60s has tables whose rows cannot be changed, and work on them waits: %.300s",
                      pg_text(rows, row, PUBLICATION), pg_text(rows, row, TABLES));
}

/* What keeps vacuum from removing old rows, or PostgreSQL from removing WAL. */
static void check_holders(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    enum { KIND, WHO, AGE_MS, TRANSACTIONS, WAL, FIX };
    char span[PRINT_SPAN_SIZE], wal[60] = "";
    if (!pg_is_null(rows, row, WAL))
        snprintf(wal, sizeof(wal), ", keeps %" PRId64 " MB of WAL", pg_int8(rows, row, WAL) / 1000000);
    doctor_warn(doctor, "vacuum", pg_text(rows, row, FIX), "%s %.200s: for %s, %" PRId64 " transactions%s",
                pg_text(rows, row, KIND), pg_text(rows, row, WHO),
                pg_is_null(rows, row, AGE_MS) ? "a time that is not shown"
                                              : print_span(pg_int8(rows, row, AGE_MS) * 1000, span),
                pg_int8(rows, row, TRANSACTIONS), wal);
}

/* At 10 wake-ups end (issuing.wake_for), at 1000 every transaction of anybody that notifies fails. */
static void check_notifications(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    int64_t thousandths = pg_int8(rows, row, 0);
    if (thousandths >= NOTIFICATIONS_MAX)
        doctor_warn(doctor, "wake-ups",
                    "end the session that used LISTEN and is idle in transaction (pg_stat_activity; PostgreSQL's log "
                    "names it when half is full)",
                    "%" PRId64 ".%" PRId64 " %% of their queue are full, so work is found by polling: a session that "
                    "listens does not read",
                    thousandths / 10, thousandths % 10);
    else
        doctor_report(doctor, "wake-ups", true, NULL, "they are read");
}

bool doctor_check_server(struct doctor *doctor, struct err *err)
{
    const struct pg_param most[] = {pg_param_int8(HELD_MS_MAX), pg_param_int8(HELD_TRANSACTIONS_MAX),
                                    pg_param_int8(OLDEST_ROW_MAX), pg_param_int8(SLOT_WAL_MAX)};
    const struct doctor_check checks[] = {
        {.statement = &sql_operator_doctor_collation, .say = check_collation},
        {.statement = &sql_operator_doctor_publications, .say = check_publications},
        {&sql_operator_doctor_holders, check_holders, most, "vacuum",
         "no old snapshot, prepared transaction or slot holds it back"},
        {.statement = &sql_operator_doctor_notifications, .say = check_notifications},
    };
    return doctor_ask(doctor, checks, ARRAY_SIZE(checks), err);
}
