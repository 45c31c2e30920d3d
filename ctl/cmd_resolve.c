/* issuing-ctl resolve: FAILED -> REJECTED `resolved`: an operator decides what no program may decide. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/bulk.h"
#include "statements.h"

static bool act(struct bulk *bulk, const struct uuid *id, int64_t seen_us, struct pg_rows **ret_rows, struct err *err)
{
    const char *detail = outbox_reason_detail("resolved");
    struct pg_param params[5 + ACTION_PARAMS] = {
        pg_param_uuid(id), seen_us != 0 ? pg_param_int8(seen_us) : pg_param_null(),
        pg_param_bool(bulk->confirms_no_card), pg_param_int8(bulk->ctl->config->issuer.settle_time_ms),
        pg_param_text(detail, strlen(detail))};
    action_params(&bulk->action, params + 5);
    return pg_sync_query(bulk->ctl->db, &sql_operator_resolve, params, ret_rows, err);
}

static bool has_live_card(const struct event *event)
{
    return event->has_card && strcmp(event->card_status, "cancelled") != 0;
}

static bool preview(struct bulk *bulk, const struct event *event, const char **ret_code, char *ret_text, size_t size,
                    struct err *err)
{
    (void)ret_text;
    (void)size;
    (void)err;
    *ret_code = has_live_card(event) ? "card" : event->first_sent_us != 0 && !bulk->confirms_no_card ? "unknown" : NULL;
    return true;
}

static void why_refused(const struct event *event, const char *code, char *ret_text, size_t size)
{
    char span[PRINT_SPAN_SIZE];
    if (strcmp(code, "card") == 0)
        snprintf(ret_text, size,
                 "its card ending in %s is stored and may be in use: `replay` links it; or have it cancelled at the "
                 "issuer, then `reconcile` ends this event",
                 event->last4 ? event->last4 : "?");
    else if (strcmp(code, "unknown") == 0)
        snprintf(ret_text, size,
                 "the issuer may have made a card for it: `reconcile` asks the issuer. If it is certain that there is "
                 "none, add --confirm-no-card");
    else if (strcmp(code, "settling") == 0)
        snprintf(ret_text, size,
                 "a request that was sent for it may still arrive at the issuer, for up to issuer.settle_time (first "
                 "sent %s ago); try again then",
                 print_span(event->now_us - event->first_sent_us, span));
}

const struct bulk_verb bulk_resolve = {
    .word = "resolve",
    .past = "resolved",
    .question = "Resolve",
    .status = "FAILED",
    .done = ACTION_RESOLVED,
    .would = ACTION_WOULD_RESOLVE,
    .wakeup = &sql_notify_final,
    .act = act,
    .preview = preview,
    .why_refused = why_refused,
};

static int run_resolve(struct ctl *ctl, char **arguments, int count)
{
    struct bulk bulk = {.ctl = ctl, .verb = &bulk_resolve};
    const struct option_spec specs[] = {
        BULK_OPTIONS(&bulk), {.name = "confirm-no-card", .flag = &bulk.confirms_no_card}, {.name = NULL}};
    return bulk_run(&bulk, specs, arguments, count);
}

const struct ctl_command ctl_resolve = {
    .word = "resolve",
    .usage = "ID... | FILTERS [--confirm-no-card] [--dry-run] [--rate N] [--limit N] --reason TEXT",
    .summary = "end FAILED events: there will be no card",
    .help =
        "Makes FAILED events REJECTED with reason `resolved`: the user gets no card for them and may request another\n"
        "one. The card that a reissue was to replace can be reissued again. Refused while a card is stored. If a\n"
        "request may have reached the issuer: only with --confirm-no-card, and not before issuer.settle_time has\n"
        "passed since the last one.\n"
        "Given filters, at least one, the oldest event comes first:\n\n"
        "  --status S     FAILED, the only status that can be resolved\n" FILTER_HELP BULK_HELP
        "  --confirm-no-card  it is certain that the issuer has no card for any of them\n" BULK_NOTE,
    .run = run_resolve,
};
