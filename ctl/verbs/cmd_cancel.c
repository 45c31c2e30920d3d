/* issuing-ctl cancel: PENDING -> REJECTED `cancelled`, while it is certain that no request can have made a card. */
#include <stdio.h>
#include <string.h>

#include "ctl/bulk.h"
#include "statements.h"

static void more_params(const struct bulk *bulk, struct bulk_params *params)
{
    (void)bulk;
    const char *detail = outbox_reason_detail("cancelled");
    params->more[0] = pg_param_string(detail);
}

static bool preview(struct bulk *bulk, const struct event *event, const char **ret_code, char *ret_text, size_t size,
                    struct err *err)
{
    (void)bulk;
    (void)ret_text;
    (void)size;
    (void)err;
    *ret_code = event->has_card ? "card" : event->first_sent_us != 0 ? "sent" : NULL;
    return true;
}

static void why_refused(const struct event *event, const char *code, char *ret_text, size_t size)
{
    char time[PRINT_TIME_SIZE];
    if (event->has_card)
        snprintf(ret_text, size, "its card exists already");
    else if (event->status == OUTBOX_PROCESSING)
        snprintf(ret_text, size, "a worker holds it; try again when it is PENDING");
    else if (strcmp(code, "sent") == 0)
        snprintf(ret_text, size,
                 event_is_card(event) ? "a request may have reached the issuer at %s, so a card may exist"
                                      : "a request may have reached the receiver at %s, so it may have been executed",
                 print_time(event->first_sent_us, time));
}

const struct bulk_verb bulk_cancel = {
    .word = "cancel",
    .past = "cancelled",
    .question = "Cancel",
    .status = "PENDING",
    .done = ACTION_CANCELLED,
    .would = ACTION_WOULD_CANCEL,
    .wakeup = &sql_notify_final,
    .statement = &sql_operator_cancel,
    .more_params = more_params,
    .preview = preview,
    .why_refused = why_refused,
};

static bool run_cancel(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct bulk bulk = {.ctl = ctl, .verb = &bulk_cancel};
    const struct option_spec specs[] = {BULK_OPTIONS(&bulk), {.name = NULL}};
    return bulk_run(&bulk, specs, arguments, count, err);
}

const struct ctl_command ctl_cancel = {
    .word = "cancel",
    .usage = "ID... | FILTERS [--dry-run] [--rate N] [--limit N] --reason TEXT",
    .summary = "end PENDING events that were not sent",
    .help = "Makes PENDING events REJECTED with reason `cancelled`, where no request can have made a card or have\n"
            "been executed; refused otherwise (exit 1, nothing changed). Events of a type that nobody delivers can be\n"
            "cancelled too. Given filters, at least one, the oldest event comes first:\n\n"
            "  --status S     PENDING, the only status that can be cancelled\n" FILTER_HELP BULK_HELP BULK_NOTE,
    .run = run_cancel,
};
