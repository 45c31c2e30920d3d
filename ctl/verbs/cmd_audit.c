/* issuing-ctl audit: who did what, and why. Prints what each step of the walk (audit.h) has found at once, so that a long
 * list costs memory for one step only, and Ctrl-C ends it between two steps. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/audit.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "ctl/stop.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX INT64_C(1000000000)

struct audit {
    struct ctl *ctl;
    struct audit_filter filter;
    struct audit_walk walk;
    int64_t limit, shown;
    bool is_cut; /* by the limit */
    struct table table;
};

static struct json *parsed(const char *text)
{
    struct json *json = NULL;
    return text && json_parse(text, strlen(text), &json, NULL) ? json : NULL;
}

static bool print_as_json(const struct audit_row *row)
{
    struct json *object = json_new_object();
    char id_text[UUID_TEXT_SIZE];
    uuid_format(&row->event_id, id_text);
    if (object && json_set_integer(object, "id", row->cursor.id) && print_set_time(object, "at", row->cursor.at_us) &&
        json_set_text(object, "actor", row->actor) && json_set_text(object, "db_role", row->db_role) &&
        json_set_text(object, "os_user", row->os_user) && json_set_text(object, "sudo_user", row->sudo_user) &&
        json_set_text(object, "action", row->action) &&
        json_set_text(object, "event_id", row->has_event ? id_text : NULL) &&
        json_set_text(object, "reason", row->reason) && json_set(object, "before", parsed(row->before)) &&
        json_set(object, "after", parsed(row->after)))
        return print_json(object, stdout);
    json_free(object);
    return false;
}

/* "PENDING -> REJECTED", or the target of an action on one. */
static void change_text(const struct audit_row *row, char *ret_text, size_t size)
{
    ret_text[0] = '\0';
    if (row->from_status && row->to_status)
        snprintf(ret_text, size, "%s -> %s", row->from_status, row->to_status);
    else if (row->target)
        snprintf(ret_text, size, "%s", row->target);
}

static void add_row(struct table *table, const struct audit_row *row)
{
    char time[PRINT_TIME_SIZE], id_text[UUID_TEXT_SIZE], change[100];
    uuid_format(&row->event_id, id_text);
    change_text(row, change, sizeof(change));
    table_add(table, print_time(row->cursor.at_us, time));
    table_add(table, row->actor);
    table_add(table, row->db_role);
    table_add(table, row->os_user);
    table_add(table, row->sudo_user);
    table_add(table, row->action);
    table_add(table, row->has_event ? id_text : NULL);
    table_add(table, change);
    table_add(table, row->reason);
}

static bool print_rows(struct audit *audit, const struct pg_rows *rows, struct err *err)
{
    struct audit_row found;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        if (!audit_row(rows, row, &found))
            continue;
        audit->is_cut = audit->shown == audit->limit;
        if (audit->is_cut)
            break;
        audit->shown++;
        if (!audit->ctl->json)
            add_row(&audit->table, &found);
        else if (!print_as_json(&found))
            return err_set(err, ERR_MEMORY, "out of memory");
    }
    return table_flush(&audit->table, stdout) || err_set(err, ERR_MEMORY, "out of memory");
}

/* One more than is shown: it tells whether the limit left something out. */
static int64_t rows_wanted(const struct audit *audit)
{
    int64_t left = audit->limit - audit->shown + 1;
    return left < AUDIT_LOOK_MAX ? left : AUDIT_LOOK_MAX;
}

static bool run(struct audit *audit, struct err *err)
{
    struct pg_sync *db = audit->ctl->db;
    if (!audit_open(&audit->walk, db, &audit->filter, err))
        return false;
    while (!audit->walk.is_over && !audit->is_cut && !stop_is_requested()) {
        pg_rows_scope struct pg_rows *rows = NULL;
        if (!audit_step(&audit->walk, db, rows_wanted(audit), &rows, err) || !print_rows(audit, rows, err))
            return false;
        fflush(stdout);
    }
    return true;
}

static bool read_command(struct audit *audit, char **arguments, int count, struct err *err)
{
    const struct option_spec specs[] = {
        {.name = "since", .text = &audit->filter.since},
        {.name = "until", .text = &audit->filter.until},
        {.name = "actor", .text = &audit->filter.actor},
        {.name = "event", .text = &audit->filter.event},
        {.name = "action", .text = &audit->filter.action},
        {.name = "limit", .number = &audit->limit, .min = 1, .max = LIMIT_MAX},
        {.name = NULL},
    };
    if (!options_read(specs, arguments, count, &count, err))
        return false;
    if (count > 0)
        return err_set(err, ERR_USAGE, "audit takes options, not %.60s; --event ID shows one event", arguments[0]);
    return audit_check(&audit->filter, err);
}

static int run_audit(struct ctl *ctl, char **arguments, int count)
{
    static const char *const heads[] = {"AT",     "ACTOR", "DB ROLE", "OS USER", "SUDO USER",
                                        "ACTION", "EVENT", "CHANGE",  "REASON",  NULL};
    struct audit audit = {.ctl = ctl, .limit = LIMIT_DEFAULT};
    struct err err;
    if (!read_command(&audit, arguments, count, &err))
        return ctl_fail(&err);
    if (!ctl_connect(ctl, &err))
        return ctl_fail(&err);
    stop_watch();
    table_init(&audit.table, heads);
    bool done = run(&audit, &err);
    table_done(&audit.table);
    if (!done)
        return ctl_fail(&err);
    fflush(stdout);
    if (stop_is_requested())
        fputs("issuing-ctl: stopped; there may be more\n", stderr);
    else if (audit.is_cut)
        fprintf(stderr, "issuing-ctl: only the newest %" PRId64 " are shown; --limit N shows more\n", audit.shown);
    else if (audit.shown == 0 && !ctl->json)
        fputs("No action matches.\n", stderr);
    return stop_is_requested() ? CTL_REFUSED : CTL_DONE;
}

const struct ctl_command ctl_audit = {
    .word = "audit",
    .usage = "[--since D] [--until D] [--actor A] [--event ID] [--action A] [--limit N]",
    .summary = "who did what, when and why",
    .help =
        "Lists what operators did, newest first. Three names are stored with each action: the role of the database,\n"
        "which the database itself adds; the user of the operating system; and SUDO_USER, which the caller sets.\n"
        "ACTOR is SUDO_USER where it is set, else the user of the operating system.\n\n"
        "  --since D      since D: a duration back from now (90s, 12h, 4w) or a time (2026-11-20, "
        "2026-11-20T10:39:57Z)\n"
        "  --until D      up to D\n"
        "  --actor A      one of the names is A\n"
        "  --event ID     actions on this event\n"
        "  --action A     replay, cancel, resolve, reconcile, reissue, pause_target, resume_target, probe_target,\n"
        "                 add_sender, remove_sender, check_issuer, rebuild_statistics, number_rewrapped,\n"
        "                 number_revealed, number_refused\n"
        "  --limit N      at most N, 100 by default\n\n"
        "The rows of card numbers shown to users (number_revealed, number_refused) are many: they are listed only\n"
        "with --action or --event.\n",
    .run = run_audit,
};
