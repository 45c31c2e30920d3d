/* issuing-ctl resend: a COMPLETED event of a route is delivered once more, by ids or by filter. */
#include <stdio.h>
#include <string.h>

#include "ctl/bulk.h"
#include "statements.h"

static bool preview(struct bulk *bulk, const struct event *event, const char **ret_code, char *ret_text, size_t size,
                    struct err *err)
{
    (void)bulk, (void)err;
    *ret_code = event_is_card(event) ? "other_type" : NULL;
    if (!*ret_code)
        snprintf(ret_text, size, "it is delivered once more, with the same key and webhook-resend: 1");
    return true;
}

static void why_refused(const struct event *event, const char *code, char *ret_text, size_t size)
{
    if (strcmp(code, "other_type") == 0)
        snprintf(ret_text, size, "it is a card request; only events of routes can be sent again");
    else if (strcmp(code, "out_of_range") == 0)
        snprintf(ret_text, size, "its payload is larger than 64 KiB or its user id longer than 128 bytes");
    else if (strcmp(event->status_text, "FAILED") == 0 || strcmp(event->status_text, "REJECTED") == 0)
        snprintf(ret_text, size, "it is %s: `replay` it", event->status_text);
}

static const struct bulk_verb bulk_resend = {
    .word = "resend",
    .past = "sent again",
    .question = "Send again",
    .status = "COMPLETED",
    .done = ACTION_RESENT,
    .would = ACTION_WOULD_RESEND,
    .wakeup = &sql_notify_wake,
    .statement = &sql_operator_resend,
    .preview = preview,
    .why_refused = why_refused,
};

static bool run_resend(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct bulk bulk = {.ctl = ctl, .verb = &bulk_resend};
    const struct option_spec specs[] = {BULK_OPTIONS(&bulk), {.name = NULL}};
    return bulk_run(&bulk, specs, arguments, count, err);
}

const struct ctl_command ctl_resend = {
    .word = "resend",
    .usage = "ID... | FILTERS [--dry-run] [--rate N] [--limit N] --reason TEXT",
    .summary = "deliver COMPLETED events of routes once more",
    .help = "Delivers COMPLETED events of routes once more: same Idempotency-Key, webhook-id and body, and the header\n"
            "webhook-resend: 1. A receiver that has forgotten the key executes the event again. Until the delivery\n"
            "has ended the event is PENDING; then it is COMPLETED again, also if the receiver refused it or it was\n"
            "cancelled. An event of an ordered type goes before later ones of its user. Given ids, each one is\n"
            "reported, and exit 1 means that some were refused.\n"
            "Given filters, at least one, the oldest event comes first:\n\n"
            "  --status S     COMPLETED, the only status that can be sent again\n" FILTER_HELP BULK_HELP BULK_NOTE,
    .run = run_resend,
};
