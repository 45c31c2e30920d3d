/* issuing-ctl audit: who did what, and why. Prints what each step of the walk (audit.h) has found at once, so that a
 * long list costs memory for one step only, and Ctrl-C ends it between two steps. */
#include <inttypes.h>
#include <stdio.h>

#include "ctl/action.h"
#include "ctl/audit/audit.h"
#include "ctl/audit/audit_export.h"
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
    struct audit_export export;
    bool is_export;
};

static struct json *row_json(const struct audit_row *row)
{
    return JSON_OBJECT(
        json_number("id", row->cursor.id), json_time("at", row->cursor.at_us), json_text("actor", row->actor),
        json_text("db_role", row->db_role), json_text("os_user", row->os_user), json_text("sudo_user", row->sudo_user),
        json_text("action", row->action), json_text("event_id", row->event_id[0] ? row->event_id : NULL),
        json_text("reason", row->reason), print_document("before", row->before), print_document("after", row->after),
        json_text("batch", row->batch[0] ? row->batch : NULL), json_text("batch_scope", row->scope));
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

/* batch: of a line that stands for a whole bulk action; else NULL. */
static void add_row(struct table *table, const struct audit_row *row, const struct audit_batch *batch)
{
    char time[PRINT_TIME_SIZE], change[AUDIT_BATCH_SIZE + 8], what[100], number[PRINT_NUMBER_SIZE];
    char reason[ACTION_REASON_SIZE + ACTION_SCOPE_SIZE + 8];
    snprintf(what, sizeof(what), "%s", row->event_id);
    change_text(row, change, sizeof(change));
    snprintf(reason, sizeof(reason), "%s", row->reason ? row->reason : "");
    if (batch) {
        snprintf(what, sizeof(what), "%s times: --batch %s", print_number(batch->count, number), row->batch);
        snprintf(change, sizeof(change), "now %s", batch->outcome);
        snprintf(reason, sizeof(reason), "%s (%s)", row->reason ? row->reason : "", row->scope);
    }
    table_add(table, print_time(row->cursor.at_us, time));
    table_add(table, row->actor);
    table_add(table, row->db_role);
    table_add(table, row->os_user);
    table_add(table, row->sudo_user);
    table_add(table, row->action);
    table_add(table, what);
    table_add(table, change);
    table_add(table, reason);
}

/* The summary that `--batch` prints above the actions. */
static bool print_batch(struct audit *audit, const struct audit_row *row, struct err *err)
{
    struct audit_batch batch;
    char first[PRINT_TIME_SIZE], last[PRINT_TIME_SIZE], number[PRINT_NUMBER_SIZE];
    if (!audit_read_batch(audit->ctl->db, row, &batch, err))
        return false;
    print_text(row->actor, stdout);
    printf(": %s, %s times from %s to %s, of ", row->action, print_number(batch.count, number),
           print_time(batch.first_us, first), print_time(batch.last_us, last));
    print_text(row->scope, stdout);
    fputs("\nreason: ", stdout);
    print_text(row->reason ? row->reason : "-", stdout);
    printf("\nevents now: %s\n\n", batch.outcome[0] ? batch.outcome : "none");
    return true;
}

static bool show(struct audit *audit, const struct audit_row *row, struct err *err)
{
    struct audit_batch batch;
    if (audit->ctl->json)
        return print_json(row_json(row), err);
    if (audit->filter.batch && audit->shown == 1 && !print_batch(audit, row, err))
        return false;
    bool is_whole = row->batch[0] && !audit->filter.batch && !audit->filter.event;
    if (is_whole && !audit_read_batch(audit->ctl->db, row, &batch, err))
        return false;
    add_row(&audit->table, row, is_whole ? &batch : NULL);
    return true;
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
        if (!show(audit, &found, err))
            return false;
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
    struct audit_export *export = &audit->export;
    const struct audit_filter *filter = &audit->filter;
    const struct option_spec specs[] = {
        {.name = "since", .text = &audit->filter.since},
        {.name = "until", .text = &audit->filter.until},
        {.name = "actor", .text = &audit->filter.actor},
        {.name = "event", .text = &audit->filter.event},
        {.name = "action", .text = &audit->filter.action},
        {.name = "batch", .text = &audit->filter.batch},
        {.name = "limit", .number = &audit->limit, .min = 1, .max = LIMIT_MAX},
        {.name = "export", .flag = &audit->is_export},
        {.name = "after", .text = &export->after},
        {.name = "append", .text = &export->append},
        {.name = "verify", .text = &export->verify},
        {.name = NULL},
    };
    if (!options_read(specs, arguments, count, &count, err))
        return false;
    if (count > 0)
        return err_set(err, ERR_USAGE, "audit takes options, not %.60s; --event ID shows one event", arguments[0]);
    audit->filter.in_full = audit->ctl->json;
    audit->is_export |= export->append || export->verify;
    if (audit->is_export
            ? audit->limit || filter->until || filter->actor || filter->event || filter->action || filter->batch ||
                  (export->verify && (export->append || export->after || filter->since)) ||
                  (export->after && filter->since)
            : export->after != NULL)
        return err_set(err, ERR_USAGE,
                       "--export and --append take --since or --after, --verify neither; they take no filter");
    if (audit->limit == 0)
        audit->limit = LIMIT_DEFAULT;
    return audit_check(&audit->filter, err);
}

static bool run_audit(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    static const char *const heads[] = {"AT",     "ACTOR", "DB ROLE", "OS USER", "SUDO USER",
                                        "ACTION", "EVENT", "CHANGE",  "REASON",  NULL};
    struct audit audit = {.ctl = ctl};
    if (!read_command(&audit, arguments, count, err))
        return false;
    if (audit.is_export && ctl->is_in_each)
        return err_set(err, ERR_USAGE, "each place has a chain of its own: --place N");
    if (audit.is_export) {
        audit.export.ctl = ctl;
        audit.export.filter = &audit.filter;
        return audit_export_run(&audit.export, err);
    }
    if (!ctl_connect(ctl, err))
        return false;
    stop_watch();
    table_init(&audit.table, heads);
    bool done = run(&audit, err);
    table_done(&audit.table);
    if (!done)
        return false;
    fflush(stdout);
    if (stop_is_requested())
        fputs("issuing-ctl: stopped; there may be more\n", stderr);
    else if (audit.is_cut)
        fprintf(stderr, "issuing-ctl: only the newest %" PRId64 " are shown; --limit N shows more\n", audit.shown);
    else if (audit.shown == 0 && !ctl->json)
        fputs("No action matches.\n", stderr);
    ctl->code = stop_is_requested() ? CTL_REFUSED : CTL_DONE;
    return true;
}

const struct ctl_command ctl_audit = {
    .word = "audit",
    .usage = "[--since D] [--until D] [--actor A] [--event ID | --batch ID] [--action A] [--limit N] "
             "| --export [--append FILE] [--after FILE] | --verify FILE",
    .summary = "who did what, when and why",
    .help =
        "Lists what operators did, newest first. Three names are stored with each action: the role of the database,\n"
        "which the database itself adds; the user of the operating system; and SUDO_USER, which the caller sets.\n"
        "ACTOR is SUDO_USER where it is set, else the user of the operating system.\n"
        "A bulk action is one line, with what it had selected and what its events are now; with --json each action\n"
        "is a line, and names its batch.\n\n"
        "  --since D      since D: a duration back from now (90s, 12h, 4w) or a time (2026-11-20, "
        "2026-11-20T10:39:57Z)\n"
        "  --until D      up to D\n"
        "  --actor A      one of the names is A\n"
        "  --event ID     actions on this event\n"
        "  --batch ID     the actions of one bulk action\n"
        "  --action A     replay, resend, cancel, resolve, reconcile, reissue, pause_target, resume_target,\n"
        "                 probe_target, add_sender, remove_sender, check_issuer, list_issuer, test_route, "
        "rebuild_statistics,\n"
        "                 number_rewrapped, numbers_erased, number_revealed, number_refused\n"
        "  --limit N      at most N, 100 by default\n\n"
        "The rows of card numbers shown to users (number_revealed, number_refused) are many: they are listed only\n"
        "with --action or --event.\n\n"
        "For a second system all actions are exported, in an order that never changes, each with the hash of the one\n"
        "before it (docs/security.md, Audit export). The export waits for actions that may still come between two\n"
        "others, and ends before them if they do not come (exit 75).\n\n"
        "  --export       prints the actions, one JSON object a line\n"
        "  --append FILE  continues FILE, and makes it if it is not there\n"
        "  --after FILE   continues after the last line of FILE; - is standard input\n"
        "  --verify FILE  checks the chain in FILE, and compares it with the database; exit 1 if they do not agree\n",
    .run = run_audit,
};
