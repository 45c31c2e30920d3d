/* See doctor.h. */
#include "ctl/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>

#include "ctl/print.h"

enum level { OK, NOTE, WARNING, FAIL };

/* One line. fix: shown with a warning or a failure. */
static void __attribute__((format(printf, 5, 0))) print_line(struct doctor *doctor, const char *check, enum level level,
                                                             const char *fix, const char *format, va_list arguments)
{
    static const char *const words[] = {[OK] = "ok", [NOTE] = "note", [WARNING] = "warn", [FAIL] = "FAIL"};
    bool has_fix = level == WARNING || level == FAIL;
    char found[600];
    vsnprintf(found, sizeof(found), format, arguments);
    doctor->failures += level == FAIL;
    if (doctor->ctl->json) {
        doctor->lost |= !print_json(JSON_OBJECT(json_text("check", check), json_flag("ok", level != FAIL),
                                                json_flag("warning", level == WARNING), json_text("found", found),
                                                json_text("fix", has_fix ? fix : NULL)),
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

void doctor_report(struct doctor *doctor, const char *check, bool ok, const char *fix, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line(doctor, check, ok ? OK : FAIL, fix, format, arguments);
    va_end(arguments);
}

void doctor_warn(struct doctor *doctor, const char *check, const char *fix, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line(doctor, check, WARNING, fix, format, arguments);
    va_end(arguments);
}

void doctor_note(struct doctor *doctor, const char *check, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line(doctor, check, NOTE, NULL, format, arguments);
    va_end(arguments);
}

int doctor_code(struct doctor *doctor)
{
    struct err err;
    if (doctor->lost) {
        err_set(&err, ERR_MEMORY, "out of memory");
        return ctl_fail(&err);
    }
    if (!doctor->ctl->json && doctor->failures > 0)
        printf("\n%d of these must be fixed.\n", doctor->failures);
    return doctor->failures > 0 ? CTL_REFUSED : CTL_DONE;
}
