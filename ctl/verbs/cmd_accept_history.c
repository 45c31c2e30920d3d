/* issuing-ctl accept-history: an operator says that commits which the database has lost are lost. The function of the
 * database decides and writes the audit row. */

#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "statements.h"

static bool report(const struct ctl *ctl, const char *lost, struct err *err)
{
    const char *result = lost ? "accepted" : "unchanged";
    const char *why = lost ? lost : "no program has refused this database";
    if (ctl->json)
        return print_json(JSON_OBJECT(json_text("result", result), json_text("why", why)), err);
    print_result("history", result, why);
    return true;
}

static bool run_accept_history(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    const char *reason = NULL;
    const struct option_spec specs[] = {{.name = "reason", .text = &reason}, {.name = NULL}};
    pg_rows_scope struct pg_rows *rows = NULL;
    struct pg_param params[ACTION_PARAMS];
    struct action action;
    if (!options_alone(specs, "accept-history", arguments, count, err) || !action_init(&action, reason, err) ||
        !ctl_connect(ctl, err))
        return false;
    action_params(&action, params);
    return pg_sync_query(ctl->db, &sql_operator_accept_history, params, &rows, err) &&
           report(ctl, pg_text(rows, 0, 0), err);
}

const struct ctl_command ctl_accept_history = {
    .word = "accept-history",
    .usage = "--reason TEXT",
    .summary = "use a database that has lost commits",
    .help =
        "Programs do not use a database that lacks commits which they saw acknowledged: one that was restored from a\n"
        "backup, or a standby that was behind when it was promoted. This says that these commits are lost; the\n"
        "programs then use the database within seconds. First follow docs/database.md, Backups and failover.\n\n"
        "  --reason TEXT  why; stored in operator_actions\n\n"
        "Where no program has refused the database, nothing is changed (exit 0).\n",
    .run = run_accept_history,
};
