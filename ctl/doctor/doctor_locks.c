/* The checks of doctor that look at what others do to our sessions: settings of roles, what is logged of them, locks,
 * and whether the housekeeping passes (doctor.h). */
#include <inttypes.h>

#include "ctl/doctor/doctor.h"
#include "ctl/print.h"
#include "statements.h"

#define PASS_MAX_MS 300000

static void check_jit(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    const char *roles = pg_text(rows, row, 0);
    doctor_report(
        doctor, "jit", !roles,
        "run issuing-ctl migrate again, or ALTER ROLE ... [IN DATABASE ...] SET jit = off: it costs more than "
        "any statement of ours takes",
        "%s%s", roles ? "not off for " : "off for our roles", roles ? roles : "");
}

/* The server's log is kept where no retention of ours reaches. */
static void check_logged(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    enum { ROLE, WHY, FIX };
    doctor_warn(doctor, "server's log", pg_text(rows, row, FIX),
                "what statements of %s are given is logged, sealed card numbers too: %.200s", pg_text(rows, row, ROLE),
                pg_text(rows, row, WHY));
}

static void check_housekeeping(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    enum { AGE, HOLDER, PLANS };
    char span[PRINT_SPAN_SIZE];
    int64_t age_ms = pg_int8(rows, row, AGE);
    const char *holder = pg_text(rows, row, HOLDER), *plans = pg_text(rows, row, PLANS);
    const char *age = print_span((age_ms < 0 ? -age_ms : age_ms) * 1000, span);
    bool is_late = age_ms > PASS_MAX_MS || age_ms < -PASS_MAX_MS;
    if (plans)
        doctor_report(
            doctor, "housekeeping", false,
            "end the session that holds the table (SELECT pg_terminate_backend(PID)) before the range begins: "
            "rows of it are refused",
            "a plan is outstanding: %s", plans);
    if (is_late && holder)
        doctor_report(doctor, "housekeeping", false, "end that session: SELECT pg_terminate_backend(PID)",
                      "the last pass was %s ago, and its lock is held by %s", age, holder);
    else if (is_late)
        doctor_warn(doctor, "housekeeping", "start issuing-worker: one worker of the cluster does it",
                    "the last pass was %s %s", age, age_ms < 0 ? "in the future" : "ago");
    else if (!plans)
        doctor_report(doctor, "housekeeping", true, NULL, "the last pass was %s ago", age);
}

/* Sessions of other roles. Our locks have keys that only we can compute, and see where migrate could close pg_locks. */
static void check_other_locks(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    enum { PID, ROLE, SINCE, LOCKS, BLOCKS };
    char time[PRINT_TIME_SIZE];
    const char *role = pg_text(rows, row, ROLE);
    const char *since = pg_is_null(rows, row, SINCE) ? "?" : print_time(pg_time_us(rows, row, SINCE), time);
    bool blocks = pg_bool(rows, row, BLOCKS);
    if (blocks)
        doctor_report(doctor, "locks", false, "end that session: SELECT pg_terminate_backend(PID)",
                      "our sessions wait for process %" PRId64 " of role %s, since %s", pg_int8(rows, row, PID),
                      role ? role : "?", since);
    else
        doctor_note(doctor, "locks", "process %" PRId64 " of role %s holds %" PRId64 " advisory locks, since %s",
                    pg_int8(rows, row, PID), role ? role : "?", pg_int8(rows, row, LOCKS), since);
}

/* The checks that need pg_locks can be made, or not. */
static void check_lock_rights(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    enum { EVERYBODY, OURS, ELSEWHERE };
    doctor->sees_locks = pg_bool(rows, row, OURS);
    if (!doctor->sees_locks)
        doctor_report(
            doctor, "locks seen", false,
            "run issuing-ctl migrate as a superuser, or as one in this database: GRANT EXECUTE ON FUNCTION "
            "pg_lock_status() TO issuing_owner, issuing_operator, issuing_viewer; GRANT SELECT ON pg_locks TO "
            "the same",
            "this role or the owner of the tables may not read pg_locks");
    else if (pg_bool(rows, row, EVERYBODY))
        doctor_warn(doctor, "locks seen",
                    "run issuing-ctl migrate as a superuser, or as one in this database: REVOKE ALL ON FUNCTION "
                    "pg_lock_status() FROM PUBLIC, and GRANT EXECUTE on it to issuing_owner, issuing_operator, "
                    "issuing_viewer",
                    "every role that may connect reads the keys of users' locks in pg_locks, and can hold them");
    else if (!pg_is_null(rows, row, ELSEWHERE))
        doctor_note(doctor, "locks seen",
                    "in this database by our roles only; a role that may connect here sees keys of users' locks from "
                    "databases to which everybody may connect: %.200s",
                    pg_text(rows, row, ELSEWHERE));
    else
        doctor_report(doctor, "locks seen", true, NULL, "by our roles only");
}

bool doctor_check_locks(struct doctor *doctor, struct err *err)
{
    static const struct doctor_check checks[] = {
        {.statement = &sql_operator_doctor_jit, .say = check_jit},
        {&sql_operator_doctor_logged, check_logged, NULL, "server's log",
         "has nothing of what our statements are given"},
        {.statement = &sql_operator_doctor_locks_seen, .say = check_lock_rights},
    };
    static const struct doctor_check seen[] = {
        {.statement = &sql_operator_doctor_housekeeping, .say = check_housekeeping},
        {&sql_operator_doctor_other_locks, check_other_locks, NULL, "locks",
         "no session of ours waits for one of another role"},
    };
    return doctor_ask(doctor, checks, ARRAY_SIZE(checks), err) &&
           (!doctor->sees_locks || doctor_ask(doctor, seen, ARRAY_SIZE(seen), err));
}
