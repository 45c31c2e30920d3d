/* The check that asks a worker to call the issuer or the receiver of a route (doctor.h). issuing-ctl itself calls
 * nobody: it leaves a question in issuing.issuer_checks, and prints what a worker has found with the worker's own
 * configuration. What comes back is text of a worker, which holds words of the issuer: it is printed as text of
 * others. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "ctl/action.h"
#include "ctl/doctor/doctor.h"
#include "ctl/marks.h"
#include "ctl/print.h"
#include "statements.h"

#define REASON "doctor --issuer"
#define ROUTE_REASON "route test"

/* Columns of operator_issuer_check. */
enum { COL_WORKER, COL_RESULT, COL_CHECK, COL_LEVEL, COL_FOUND, COL_FIX };

static bool is_issuer(const char *target)
{
    return strcmp(target, "issuer") == 0;
}

/* *ret_refused: "" = it was asked. */
static bool ask(struct doctor *doctor, const char *target, const char *user, bool creates, int64_t timeout_ms,
                struct uuid *ret_id, char ret_refused[32], struct err *err)
{
    struct action action;
    struct pg_param params[4 + ACTION_PARAMS] = {pg_param_string(target), pg_param_string(user), pg_param_bool(creates),
                                                 pg_param_int8(timeout_ms)};
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!action_init(&action, is_issuer(target) ? REASON : ROUTE_REASON, err))
        return false;
    action_params(&action, params + 4);
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_ask_issuer_check, params, &rows, err)) {
        if (!err_is_sqlstate(err, "42501"))
            return false;
        snprintf(ret_refused, 32, "role");
        return true;
    }
    bool was_asked = pg_is_null(rows, 0, 1);
    snprintf(ret_refused, 32, "%s", was_asked ? "" : doctor_text(rows, 0, 1));
    if (was_asked)
        *ret_id = pg_uuid(rows, 0, 0);
    return true;
}

/* The line that is about the target as a whole. */
static const char *line_of(const char *target)
{
    return is_issuer(target) ? "issuer" : "route";
}

static void report_refused(struct doctor *doctor, const char *target, const char *refused)
{
    static const struct {
        const char *word, *found, *fix;
    } refusals[] = {
        {"role", "this role may not ask workers for a check", "connect as issuing_operator"},
        {"paused", "it is paused, so it was not called", "issuing-ctl resume TARGET, then ask again"},
        {"not_found", "no such route is registered", "issuing-ctl route list"},
        {"busy", "20 checks wait for a worker already", "start issuing-worker, or wait until they are over"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
        if (strcmp(refusals[i].word, refused) == 0) {
            doctor_report(doctor, line_of(target), false, refusals[i].fix, "%s", refusals[i].found);
            return;
        }
    doctor_report(doctor, line_of(target), false, "use the issuing-ctl of this release", "the check was refused: %s",
                  refused);
}

static void report_finding(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    const char *check = doctor_text(rows, row, COL_CHECK), *level = doctor_text(rows, row, COL_LEVEL);
    const char *found = doctor_text(rows, row, COL_FOUND), *fix = doctor_text(rows, row, COL_FIX);
    if (strcmp(level, "warn") == 0)
        doctor_warn(doctor, check, fix, "%s", found);
    else if (strcmp(level, "note") == 0)
        doctor_note(doctor, check, "%s", found);
    else
        doctor_report(doctor, check, strcmp(level, "ok") == 0, fix, "%s", found);
}

static void report_unanswered(struct doctor *doctor, const char *target, int64_t timeout_ms)
{
    char span[PRINT_SPAN_SIZE];
    doctor_report(
        doctor, line_of(target), false,
        "look at the lines \"workers\" and \"targets\" of doctor, and into the log of issuing-worker; a check may "
        "take 20 s",
        "no worker answered within %s", print_span(timeout_ms * 1000, span));
}

bool doctor_check_target(struct doctor *doctor, const char *target, const char *user, bool creates, int64_t timeout_ms,
                         bool *ret_is_answered, struct err *err)
{
    struct uuid id;
    char refused[32];
    int64_t deadline_ms = clock_mono_ms() + timeout_ms, pause_ms = 0;
    *ret_is_answered = true;
    if (!ask(doctor, target, user, creates, timeout_ms, &id, refused, err))
        return false;
    if (refused[0]) {
        report_refused(doctor, target, refused);
        return true;
    }
    const struct pg_param params[] = {pg_param_uuid(&id)};
    for (bool is_last = false;; marks_pause(&pause_ms)) {
        pg_rows_scope struct pg_rows *rows = NULL;
        is_last = clock_mono_ms() >= deadline_ms;
        if (!pg_sync_query(doctor->ctl->db, &sql_operator_issuer_check, params, &rows, err))
            return false;
        bool is_over = pg_rows_count(rows) > 0;
        for (int row = 0; is_over && row < pg_rows_count(rows) && !pg_is_null(rows, row, COL_CHECK); row++)
            report_finding(doctor, rows, row);
        if (is_over && !pg_is_null(rows, 0, COL_CHECK))
            return true;
        if (is_over || is_last) {
            *ret_is_answered = false;
            report_unanswered(doctor, target, timeout_ms);
            return true;
        }
    }
}
