/* issuing-ctl sender: which roles of the database may send events of which type by issuing.enqueue. The function of the
 * database decides and writes the audit row. */
#include <stdio.h>
#include <string.h>

#include "common/lib/config/config_value.h"
#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "statements.h"

static bool nearest_role(struct ctl *ctl, const char *role, char ret_nearest[80], struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    size_t least = SIZE_MAX;
    if (!pg_sync_query(ctl->db, &sql_operator_role_names, NULL, &rows, err))
        return false;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        const char *name = pg_text(rows, row, 0);
        size_t distance = config_value_distance(name, role);
        if (distance < least) {
            least = distance;
            snprintf(ret_nearest, 80, "%s", name);
        }
    }
    return true;
}

static bool report(const struct ctl *ctl, const char *const words[2], const char *result, const char *why,
                   struct err *err)
{
    if (!ctl->json) {
        print_text(words[0], stdout);
        putchar(' ');
        print_result(words[1], result, why);
        return true;
    }
    return print_json(JSON_OBJECT(json_text("role", words[0]), json_text("type", words[1]), json_text("result", result),
                                  json_text("why", why)),
                      err);
}

enum { ROLE, TYPE, ADDED, IS_THERE, IS_SAME, MAY_CONNECT };

/* Why the sender of that row cannot send; NULL = it can. */
static const char *trouble_of(const struct pg_rows *rows, int row)
{
    return !pg_bool(rows, row, IS_THERE)  ? "there is no such role"
           : !pg_bool(rows, row, IS_SAME) ? "another role of this name was added, and this one may not send"
           : !pg_bool(rows, row, MAY_CONNECT)
               ? "it may not connect to this database, whose owner says: GRANT CONNECT ON DATABASE ... TO it"
               : NULL;
}

/* The role was added: what it lacks beside that right is not an operator's to give. */
static bool report_added(struct ctl *ctl, const char *const words[2], const char *result, const char *why,
                         struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(ctl->db, &sql_operator_senders, NULL, &rows, err))
        return false;
    for (int row = 0; row < pg_rows_count(rows); row++)
        if (strcmp(pg_text(rows, row, ROLE), words[0]) == 0 && strcmp(pg_text(rows, row, TYPE), words[1]) == 0 &&
            trouble_of(rows, row))
            return report(ctl, words, result, trouble_of(rows, row), err);
    return report(ctl, words, result, why, err);
}

/* words: role and type. */
static bool change(struct ctl *ctl, bool is_add, const char *const words[2], const struct action *action,
                   struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const char *verb = is_add ? "add_sender" : "remove_sender";
    char nearest[80] = "", why[200];
    struct pg_param params[3 + ACTION_PARAMS] = {pg_param_string(verb), pg_param_string(words[0]),
                                                 pg_param_string(words[1])};
    action_params(action, params + 3);
    if (!pg_sync_query(ctl->db, &sql_operator_sender, params, &rows, err))
        return false;
    const char *refused = pg_text(rows, 0, 0);
    if (!refused)
        return is_add ? report_added(ctl, words, "added", NULL, err) : report(ctl, words, "removed", NULL, err);
    if (strcmp(refused, "known") == 0)
        return report_added(ctl, words, "unchanged", "the role may send it already", err);
    ctl->code = CTL_REFUSED;
    if (strcmp(refused, "no_role") == 0 && !nearest_role(ctl, words[0], nearest, err))
        return false;
    if (strcmp(refused, "no_role") == 0)
        snprintf(why, sizeof(why), "there is no such role; the nearest is %s", nearest);
    else
        snprintf(why, sizeof(why), "%s",
                 strcmp(refused, "bad_type") == 0   ? "a type is [A-Z][A-Z0-9_]{0,63}"
                 : strcmp(refused, "own_type") == 0 ? "only the end of a card request makes such an event"
                 : strcmp(refused, "own_role") == 0 ? "it is a role of issuing itself"
                                                    : "the role was not added for this type");
    return report(ctl, words, "refused", why, err);
}

static void add_row(const struct ctl *ctl, const struct pg_rows *rows, int row, struct table *table)
{
    const char *role = pg_text(rows, row, ROLE), *type = pg_text(rows, row, TYPE);
    int64_t added_us = pg_time_us(rows, row, ADDED);
    char time[PRINT_TIME_SIZE];
    if (ctl->json) {
        table_add_json(table,
                       JSON_OBJECT(json_text("role", role), json_text("type", type), json_time("since", added_us),
                                   json_flag("role_exists", pg_bool(rows, row, IS_THERE)),
                                   json_flag("may_send", pg_bool(rows, row, IS_SAME)),
                                   json_flag("may_connect", pg_bool(rows, row, MAY_CONNECT))));
        return;
    }
    table_add(table, role);
    table_add(table, type);
    table_add(table, print_time(added_us, time));
    table_add(table, trouble_of(rows, row));
}

static bool list(struct ctl *ctl, struct err *err)
{
    static const char *const heads[] = {"ROLE", "TYPE", "SINCE", "NOTE", NULL};
    pg_rows_scope struct pg_rows *rows = NULL;
    struct table table;
    if (!pg_sync_query(ctl->db, &sql_operator_senders, NULL, &rows, err))
        return false;
    table_init(&table, heads);
    for (int row = 0; row < pg_rows_count(rows); row++)
        add_row(ctl, rows, row, &table);
    bool whole = table_end(&table, err);
    if (!ctl->json && pg_rows_count(rows) == 0)
        fputs("No other service may send events.\n", stderr);
    return whole;
}

static bool run_sender(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    const char *reason = NULL;
    const struct option_spec specs[] = {{.name = "reason", .text = &reason}, {.name = NULL}};
    struct action action;
    if (!options_read(specs, arguments, count, &count, err))
        return false;
    bool is_list = count == 1 && strcmp(arguments[0], "list") == 0;
    bool is_add = count == 3 && strcmp(arguments[0], "add") == 0;
    if (is_list ? reason != NULL : !is_add && !(count == 3 && strcmp(arguments[0], "remove") == 0))
        return err_set(err, ERR_USAGE,
                       "sender takes: list, or add ROLE TYPE --reason TEXT, or remove ROLE TYPE --reason TEXT");
    if ((!is_list && !action_init(&action, reason, err)) || !ctl_connect(ctl, err))
        return false;
    return is_list ? list(ctl, err) : change(ctl, is_add, (const char *const *)arguments + 1, &action, err);
}

const struct ctl_command ctl_sender = {
    .word = "sender",
    .usage = "list | add ROLE TYPE --reason TEXT | remove ROLE TYPE --reason TEXT",
    .summary = "which roles may send events of which type",
    .help =
        "Other services send events by the function issuing.enqueue of the database. It takes an event of a type from\n"
        "the roles that were added for it, and from members of these roles. CARD_ISSUE is a type, too.\n\n"
        "  add ROLE TYPE     the role may send events of this type; it is granted the functions that it calls. A role\n"
        "                    that was dropped and created again must be added again\n"
        "  remove ROLE TYPE  it may no longer; what it has sent is delivered\n"
        "  list              all of them\n"
        "  --reason TEXT     why; stored in operator_actions\n\n"
        "Refused: exit 1.\n",
    .run = run_sender,
};
