/* issuing-ctl show: one event as it is. */
#include <stdio.h>

#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/options.h"

static bool run_show(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct event event;
    struct uuid id;
    if (!options_read(OPTIONS_NONE, arguments, count, &count, err))
        return false;
    if (count != 1)
        return err_set(err, ERR_USAGE, "show takes one event id");
    if (!action_parse_id(arguments[0], &id, err) || !ctl_connect(ctl, err) ||
        !event_find(ctl->db, &id, &rows, &event, err))
        return false;
    if (ctl->json)
        return print_json(event_json(&event), err);
    event_print(&event, stdout);
    return true;
}

const struct ctl_command ctl_show = {
    .word = "show",
    .usage = "ID",
    .summary = "the fields of one event",
    .help = "Shows one event: status, times, reason, lease, and its card without the number.\n"
            "`explain` adds what happened and what happens next.\n",
    .run = run_show,
};
