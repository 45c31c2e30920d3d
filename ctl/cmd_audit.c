/* issuing-ctl audit: who did what, and why. Newest first, in pages of bounded size: users who look at their card numbers
 * leave many rows between those of operators. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/moment.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "ctl/stop.h"
#include "statements.h"

#define LOOK_MAX 10000
#define LIMIT_DEFAULT 100
#define LIMIT_MAX INT64_C(1000000000)
#define PARAMS 7

enum column { ID, AT, EVENT_ID, ACTOR, ACTION, REASON, BEFORE, AFTER, DB_ROLE, OS_USER, SUDO_USER, MATCHES, LOOKED };

struct audit {
    struct ctl *ctl;
    const char *since, *until, *actor, *event, *action;
    int64_t limit;
    struct moment from, to;
    struct uuid event_id;
    int64_t now_us;
    /* where the next page begins */
    bool has_cursor, is_over;
    int64_t cursor_us, cursor_id;
    int64_t shown;
    bool is_cut;    /* by the limit */
    bool is_capped; /* at LOOK_MAX actions on one event */
    struct table table;
};

static struct json *parsed(const struct pg_rows *rows, int row, enum column column)
{
    struct slice text = pg_bytes(rows, row, (int)column);
    struct json *json = NULL;
    return text.bytes && json_parse(text.bytes, text.length, &json, NULL) ? json : NULL;
}

static const char *text_at(const struct pg_rows *rows, int row, enum column column)
{
    return pg_bytes(rows, row, (int)column).bytes;
}

static bool print_as_json(const struct pg_rows *rows, int row)
{
    struct json *object = json_new_object();
    struct uuid event = pg_uuid(rows, row, EVENT_ID);
    char id_text[UUID_TEXT_SIZE];
    uuid_format(&event, id_text);
    if (object && json_set_integer(object, "id", pg_int8(rows, row, ID)) &&
        print_set_time(object, "at", pg_time_us(rows, row, AT)) &&
        json_set_text(object, "actor", text_at(rows, row, ACTOR)) &&
        json_set_text(object, "db_role", text_at(rows, row, DB_ROLE)) &&
        json_set_text(object, "os_user", text_at(rows, row, OS_USER)) &&
        json_set_text(object, "sudo_user", text_at(rows, row, SUDO_USER)) &&
        json_set_text(object, "action", text_at(rows, row, ACTION)) &&
        json_set_text(object, "event_id", pg_is_null(rows, row, EVENT_ID) ? NULL : id_text) &&
        json_set_text(object, "reason", text_at(rows, row, REASON)) &&
        json_set(object, "before", parsed(rows, row, BEFORE)) && json_set(object, "after", parsed(rows, row, AFTER)))
        return print_json(object, stdout);
    json_free(object);
    return false;
}

/* "PENDING -> REJECTED", or the target of an action on one. */
static void change_text(const struct pg_rows *rows, int row, char *ret_text, size_t size)
{
    json_scope struct json *before = parsed(rows, row, BEFORE);
    json_scope struct json *after = parsed(rows, row, AFTER);
    const char *from = before ? json_get_text(before, "status") : NULL;
    const char *to = after ? json_get_text(after, "status") : NULL;
    const char *target = after ? json_get_text(after, "target") : NULL;
    ret_text[0] = '\0';
    if (from && to)
        snprintf(ret_text, size, "%s -> %s", from, to);
    else if (target)
        snprintf(ret_text, size, "%s", target);
}

static void add_row(struct table *table, const struct pg_rows *rows, int row)
{
    char time[PRINT_TIME_SIZE], id_text[UUID_TEXT_SIZE], change[100];
    struct uuid event = pg_uuid(rows, row, EVENT_ID);
    uuid_format(&event, id_text);
    change_text(rows, row, change, sizeof(change));
    table_add(table, print_time(pg_time_us(rows, row, AT), time));
    table_add(table, text_at(rows, row, ACTOR));
    table_add(table, text_at(rows, row, DB_ROLE));
    table_add(table, text_at(rows, row, OS_USER));
    table_add(table, text_at(rows, row, SUDO_USER));
    table_add(table, text_at(rows, row, ACTION));
    table_add(table, pg_is_null(rows, row, EVENT_ID) ? NULL : id_text);
    table_add(table, change);
    table_add(table, text_at(rows, row, REASON));
}

static bool print_page(struct audit *audit, const struct pg_rows *rows, struct err *err)
{
    for (int row = 0; row < pg_rows_count(rows) && !audit->is_cut; row++) {
        if (!pg_bool(rows, row, MATCHES))
            continue;
        audit->is_cut = audit->shown == audit->limit;
        if (audit->is_cut)
            break;
        audit->shown++;
        if (!audit->ctl->json)
            add_row(&audit->table, rows, row);
        else if (!print_as_json(rows, row))
            return err_set(err, ERR_MEMORY, "out of memory");
    }
    return table_flush(&audit->table, stdout) || err_set(err, ERR_MEMORY, "out of memory");
}

static struct pg_param text_or_null(const char *text)
{
    return pg_param_text(text, text ? strlen(text) : 0);
}

static void fill_params(const struct audit *audit, struct pg_param params[PARAMS])
{
    params[0] = audit->since ? pg_param_int8(moment_us(&audit->from, audit->now_us)) : pg_param_null();
    params[1] = audit->has_cursor ? pg_param_int8(audit->cursor_us)
                : audit->until    ? pg_param_int8(moment_us(&audit->to, audit->now_us))
                                  : pg_param_null();
    params[2] = audit->event        ? pg_param_uuid(&audit->event_id)
                : audit->has_cursor ? pg_param_int8(audit->cursor_id)
                                    : pg_param_null();
    params[3] = text_or_null(audit->actor);
    params[4] = text_or_null(audit->action);
    params[5] = pg_param_bool(audit->action != NULL);
    params[6] = pg_param_int8(audit->event && audit->limit < LOOK_MAX ? audit->limit + 1 : LOOK_MAX);
}

static bool read_page(struct audit *audit, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct pg_param params[PARAMS];
    const struct sql_statement *statement = audit->event ? &sql_operator_audit_event : &sql_operator_audit;
    fill_params(audit, params);
    if (!pg_sync_query(audit->ctl->db, statement, params, &rows, err) || !print_page(audit, rows, err))
        return false;
    int count = pg_rows_count(rows);
    audit->is_capped = audit->event && count == LOOK_MAX && !audit->is_cut;
    audit->is_over = audit->event || count == 0 || pg_int8(rows, count - 1, LOOKED) < LOOK_MAX;
    if (count > 0) {
        audit->has_cursor = true;
        audit->cursor_us = pg_time_us(rows, count - 1, AT);
        audit->cursor_id = pg_int8(rows, count - 1, ID);
    }
    fflush(stdout);
    return true;
}

static bool run(struct audit *audit, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(audit->ctl->db, &sql_operator_bounds, NULL, &rows, err))
        return false;
    audit->now_us = pg_time_us(rows, 0, 0);
    while (!audit->is_over && !audit->is_cut && !stop_is_requested())
        if (!read_page(audit, err))
            return false;
    return true;
}

static bool read_moment(const char *name, const char *text, struct moment *ret_moment, struct err *err)
{
    return !text || moment_parse(text, ret_moment) || err_set(err, ERR_USAGE, "--%s needs " MOMENT_FORMS, name);
}

static bool read_command(struct audit *audit, char **arguments, int count, struct err *err)
{
    const struct option_spec specs[] = {
        {.name = "since", .text = &audit->since},
        {.name = "until", .text = &audit->until},
        {.name = "actor", .text = &audit->actor},
        {.name = "event", .text = &audit->event},
        {.name = "action", .text = &audit->action},
        {.name = "limit", .number = &audit->limit, .min = 1, .max = LIMIT_MAX},
        {.name = NULL},
    };
    if (!options_read(specs, arguments, count, &count, err) || !read_moment("since", audit->since, &audit->from, err) ||
        !read_moment("until", audit->until, &audit->to, err))
        return false;
    if (count > 0)
        return err_set(err, ERR_USAGE, "audit takes options, not %.60s; --event ID shows one event", arguments[0]);
    if ((audit->actor && !audit->actor[0]) || (audit->action && !audit->action[0]))
        return err_set(err, ERR_USAGE, "--actor and --action need a value");
    return !audit->event || action_parse_id(audit->event, &audit->event_id, err);
}

static int run_audit(struct ctl *ctl, char **arguments, int count)
{
    static const char *const heads[] = {"AT",     "ACTOR", "DB ROLE", "OS USER", "SUDO USER",
                                        "ACTION", "EVENT", "CHANGE",  "REASON",  NULL};
    struct audit audit = {.ctl = ctl, .limit = LIMIT_DEFAULT};
    struct err err;
    if (!read_command(&audit, arguments, count, &err) || !ctl_connect(ctl, &err))
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
    else if (audit.is_capped)
        fprintf(stderr, "issuing-ctl: only the newest %d of this event are shown\n", LOOK_MAX);
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
        "                 number_rewrapped, number_revealed, number_refused\n"
        "  --limit N      at most N, 100 by default\n\n"
        "The rows of card numbers shown to users (number_revealed, number_refused) are many: they are listed only\n"
        "with --action or --event.\n",
    .run = run_audit,
};
