/* issuing-ctl show: one event as it is. */
#include <stdio.h>

#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/options.h"

static int run_show(struct ctl *ctl, char **arguments, int count)
{
    const struct option_spec none[] = {{.name = NULL}};
    pg_rows_scope struct pg_rows *rows = NULL;
    struct event event;
    struct uuid id;
    struct err err;
    if (!options_read(none, arguments, count, &count, &err))
        return ctl_fail(&err);
    if (count != 1) {
        err_set(&err, ERR_USAGE, "show takes one event id");
        return ctl_fail(&err);
    }
    if (!action_parse_id(arguments[0], &id, &err))
        return ctl_fail(&err);
    if (!ctl_connect(ctl, &err) || !event_find(ctl->db, &id, &rows, &event, &err))
        return ctl_fail(&err);
    if (ctl->json)
        return print_json(event_json(&event), &err) ? CTL_DONE : ctl_fail(&err);
    event_print(&event, stdout);
    return CTL_DONE;
}

const struct ctl_command ctl_show = {
    .word = "show",
    .usage = "ID",
    .summary = "the fields of one event",
    .help = "Shows one event: status, times, reason, lease, and its card without the number.\n"
            "`explain` adds what happened and what happens next.\n",
    .run = run_show,
};
