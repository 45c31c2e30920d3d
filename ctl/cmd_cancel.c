/* issuing-ctl cancel: PENDING -> REJECTED `cancelled`, while surely nothing was sent to the issuer.
 *
 * The statement decides; the look afterwards only finds words for a refusal, so it may see a newer state than the one
 * that refused. */
#include <stdio.h>
#include <string.h>

#include "common/outbox.h"
#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/options.h"
#include "statements.h"

static void why_refused(const struct event *event, char *ret_text, size_t size)
{
    char time[PRINT_TIME_SIZE];
    if (event->has_card)
        snprintf(ret_text, size, "its card exists already");
    else if (event->status == OUTBOX_PROCESSING)
        snprintf(ret_text, size, "a worker holds it; try again when it is PENDING");
    else if (event->status != OUTBOX_PENDING)
        snprintf(ret_text, size, "it is %s; only PENDING events can be cancelled", event->status_text);
    else if (event->first_sent_us != 0)
        snprintf(ret_text, size, "a request may have reached the issuer at %s, so a card may exist",
                 print_time(event->first_sent_us, time));
    else
        snprintf(ret_text, size, "it changed in the meantime; try again");
}

/* Changes it, or fills `why`. */
static bool cancel(struct ctl *ctl, const struct uuid *id, const struct action *action, bool *ret_done,
                   struct pg_rows **ret_rows, struct event *ret_event, struct err *err)
{
    const char *detail = outbox_reason_detail("cancelled");
    const struct pg_param params[] = {
        pg_param_uuid(id),
        pg_param_text(action->actor, strlen(action->actor)),
        pg_param_text(action->reason, strlen(action->reason)),
        pg_param_text(detail, strlen(detail)),
    };
    struct pg_rows *rows = NULL;
    if (!pg_sync_ask(ctl->db, &sql_operator_cancel, params, &rows, err))
        return false;
    *ret_done = pg_rows_count(rows) == 1;
    if (!*ret_done) {
        pg_rows_free(rows);
        return event_find(ctl->db, id, ret_rows, ret_event, err);
    }
    *ret_rows = rows;
    /* Clients that wait for it look sooner; losing the hint costs them nothing but time. */
    bool hinted = pg_sync_ask(ctl->db, &sql_notify_final, NULL, NULL, NULL);
    (void)hinted;
    return event_read(rows, 0, ret_event, err);
}

static int run_cancel(struct ctl *ctl, char **arguments, int count)
{
    const char *reason = NULL;
    const struct option_spec specs[] = {{.name = "reason", .text = &reason}, {.name = NULL}};
    pg_rows_scope struct pg_rows *rows = NULL;
    struct action action;
    struct event event;
    struct uuid id;
    struct err err;
    bool done = false;
    if (!options_read(specs, arguments, count, &count, &err))
        return ctl_fail(&err);
    if (count != 1) {
        err_set(&err, ERR_USAGE, "cancel takes one event id");
        return ctl_fail(&err);
    }
    if (!action_parse_id(arguments[0], &id, &err) || !action_init(&action, reason, &err) || !ctl_connect(ctl, &err))
        return ctl_fail(&err);
    if (!cancel(ctl, &id, &action, &done, &rows, &event, &err)) {
        if (err.kind != ERR_NOT_FOUND || !ctl->json)
            return ctl_fail(&err);
        return action_report(ctl, arguments[0], ACTION_REFUSED, NULL, err.message, &err) ? CTL_REFUSED : ctl_fail(&err);
    }
    char why[160] = "";
    if (!done)
        why_refused(&event, why, sizeof(why));
    if (!action_report(ctl, event.id_text, done ? ACTION_CANCELLED : ACTION_REFUSED, &event, done ? NULL : why, &err))
        return ctl_fail(&err);
    return done ? CTL_DONE : CTL_REFUSED;
}

const struct ctl_command ctl_cancel = {
    .word = "cancel",
    .usage = "ID --reason TEXT",
    .summary = "end a PENDING event that was never sent",
    .help = "Makes a PENDING event REJECTED with reason `cancelled`, if no request for it may have reached the\n"
            "issuer; refused otherwise (exit 1, nothing changed). Who, when and why is kept in operator_actions.\n\n"
            "  --reason TEXT  why; required\n",
    .run = run_cancel,
};
