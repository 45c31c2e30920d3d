/* issuing-ctl adopt: a PENDING event that belongs to another issuer is given to the present one. */
#include <stdio.h>
#include <string.h>

#include "ctl/bulk.h"
#include "statements.h"

static void more_params(const struct bulk *bulk, struct bulk_params *params)
{
    params->more[0] = pg_param_string(bulk->issuer);
    params->more[1] = pg_param_int8(bulk->ctl->config->issuer.settle_time_ms);
}

static bool preview(struct bulk *bulk, const struct event *event, const char **ret_code, char *ret_text, size_t size,
                    struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct event whole = *event;
    if (!event_read_prospect(bulk->ctl->db, &whole, &rows, err))
        return false;
    bool is_settled = whole.first_sent_us == 0 ||
                      whole.now_us - whole.last_sent_us >= bulk->ctl->config->issuer.settle_time_ms * 1000;
    *ret_code = !whole.belongs_to && !bulk->issuer ? "same_issuer" : !is_settled ? "settling" : NULL;
    if (!*ret_code)
        snprintf(ret_text, size, "it belongs to %.300s", whole.belongs_to ? whole.belongs_to : "the present issuer");
    return true;
}

static void why_refused(const struct event *event, const char *code, char *ret_text, size_t size)
{
    static const struct {
        const char *code, *why;
    } rows[] = {
        {"other_type", "only card requests belong to an issuer"},
        {"same_issuer", "it does not belong to another issuer"},
        {"which_issuer", "workers have claimed for two issuers in the last minutes: name one with --issuer ADDRESS"},
        {"no_issuer", "no worker has ever claimed for that issuer"},
        {"settling",
         "a create that was sent for it may still arrive at its issuer, and make a card there; try again when "
         "issuer.settle_time has passed since"},
    };
    if (event->status == OUTBOX_PROCESSING)
        snprintf(ret_text, size, "a worker holds it; try again when it is PENDING");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strcmp(rows[i].code, code) == 0)
            snprintf(ret_text, size, "%s", rows[i].why);
}

static const struct bulk_verb bulk_adopt = {
    .word = "adopt",
    .past = "adopted",
    .question = "Give to the present issuer",
    .status = "PENDING",
    .done = ACTION_ADOPTED,
    .would = ACTION_WOULD_ADOPT,
    .wakeup = &sql_notify_wake,
    .statement = &sql_operator_adopt,
    .more_params = more_params,
    .preview = preview,
    .why_refused = why_refused,
};

static bool run_adopt(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct bulk bulk = {.ctl = ctl, .verb = &bulk_adopt};
    const struct option_spec specs[] = {BULK_OPTIONS(&bulk), {.name = "issuer", .text = &bulk.issuer}, {.name = NULL}};
    return bulk_run(&bulk, specs, arguments, count, err);
}

const struct ctl_command ctl_adopt = {
    .word = "adopt",
    .usage = "ID... | FILTERS [--issuer ADDRESS] [--dry-run] [--rate N] [--limit N] --reason TEXT",
    .summary = "give PENDING events of another issuer to the present one",
    .help =
        "An event belongs to the issuer (issuer.profile, issuer.url and issuer.account) that it was first\n"
        "sent to, and a card to the one that made it. Workers that speak to another issuer do nothing for such an\n"
        "event: they defer it (other_issuer). This says that the event, and the card that it is to replace, belong to\n"
        "the present issuer after all, for example because its address has changed.\n"
        "What may have been sent stays unknown, and the present issuer is asked first. But if it is another company,\n"
        "it does not know of a card that the old one has made: then there will be two cards, and only you can close\n"
        "the first one. Look it up at the old issuer before: run a worker with the old configuration, or ask there.\n"
        "Refused until issuer.settle_time has passed since the last send: a create may still arrive at the old one.\n"
        "Given filters, at least one, the oldest event comes first, and events of the present issuer are passed "
        "over:\n\n"
        "  --issuer ADDRESS  the issuer, as explain names it, such as https://api.example/v1 or \"https://api.example\n"
        "                 account live\", where workers have spoken to two of them in the last minutes; by default "
        "the\n"
        "                 one that they speak to\n"
        "  --status S     PENDING, the only status that can be adopted\n" FILTER_HELP BULK_HELP BULK_NOTE,
    .run = run_adopt,
};
