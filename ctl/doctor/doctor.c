/* See doctor.h. */
#include "ctl/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>

#include "ctl/print.h"

void doctor_say(struct doctor *doctor, enum doctor_level level, const char *check, const char *fix, const char *format,
                ...)
{
    static const char *const words[] = {
        [DOCTOR_OK] = "ok", [DOCTOR_NOTE] = "note", [DOCTOR_WARNING] = "warn", [DOCTOR_FAIL] = "FAIL"};
    bool has_fix = level == DOCTOR_WARNING || level == DOCTOR_FAIL;
    char found[600];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(found, sizeof(found), format, arguments);
    va_end(arguments);
    doctor->failures += level == DOCTOR_FAIL;
    doctor->troubles += has_fix;
    if (doctor->ctl->json) {
        doctor->lost |= !print_json(JSON_OBJECT(json_text("check", check), json_flag("ok", level != DOCTOR_FAIL),
                                                json_flag("warning", level == DOCTOR_WARNING),
                                                json_text("found", found), json_text("fix", has_fix ? fix : NULL)),
                                    NULL);
        return;
    }
    printf("%-5s %-12s ", words[level], check);
    print_text(found, stdout);
    putchar('\n');
    if (has_fix) {
        printf("      %-12s fix: ", "");
        print_text(fix, stdout);
        putchar('\n');
    }
}

const char *doctor_text(const struct pg_rows *rows, int row, int column)
{
    const char *text = pg_text(rows, row, column);
    return text ? text : "?";
}

bool doctor_ask(struct doctor *doctor, const struct doctor_check *checks, size_t count, struct err *err)
{
    for (const struct doctor_check *check = checks; check < checks + count; check++) {
        pg_rows_scope struct pg_rows *rows = NULL;
        int before = doctor->troubles;
        if (!pg_sync_query(doctor->ctl->db, check->statement, check->params, &rows, err))
            return false;
        for (int row = 0; row < pg_rows_count(rows); row++)
            check->say(doctor, rows, row);
        if (doctor->troubles == before && check->none)
            doctor_report(doctor, check->check, true, NULL, "%s", check->none);
    }
    return true;
}

bool doctor_end(struct doctor *doctor, struct err *err)
{
    if (doctor->lost)
        return err_set(err, ERR_MEMORY, "out of memory");
    if (!doctor->ctl->json && doctor->failures > 0)
        printf("\n%d of these must be fixed.\n", doctor->failures);
    if (doctor->ctl->code == CTL_DONE && doctor->failures > 0)
        doctor->ctl->code = CTL_REFUSED;
    return true;
}
