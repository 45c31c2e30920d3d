/* issuing-ctl resolve: FAILED -> REJECTED `resolved`: an operator decides what no program may decide. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/bulk.h"
#include "ctl/explain/outlook_attempt.h"
#include "statements.h"

#define ROUTE_DETAIL "The request was ended without being executed."

static void more_params(const struct bulk *bulk, struct bulk_params *params)
{
    const char *detail = outbox_reason_detail("resolved");
    const struct config *config = bulk->ctl->config;
    struct pg_array types, settles; /* how long a delivery may still arrive, for each route of the configuration */
    pg_array_start(&types, &params->arrays[0], PG_TEXT);
    pg_array_start(&settles, &params->arrays[1], PG_INT8);
    for (int i = 0; i < config->route_count; i++) {
        pg_array_add_string(&types, config->routes[i].type);
        pg_array_add_int8(&settles, outlook_route_settle_ms(config, config->routes[i].type));
    }
    params->more[0] = pg_param_bool(bulk->confirms_no_card);
    params->more[1] = pg_param_int8(config->issuer.settle_time_ms);
    params->more[2] = pg_param_string(detail);
    params->more[3] = pg_param_bool(bulk->confirms_not_executed);
    params->more[4] = pg_array_param(&types);
    params->more[5] = pg_array_param(&settles);
    params->more[6] = pg_param_int8(OUTLOOK_ROUTE_SETTLE_MAX_MS);
    params->more[7] = pg_param_string(ROUTE_DETAIL);
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
    bool is_confirmed = event_is_card(event) ? bulk->confirms_no_card : bulk->confirms_not_executed;
    *ret_code = has_live_card(event) ? "card" : event->first_sent_us != 0 && !is_confirmed ? "unknown" : NULL;
    return true;
}

static void why_route_refused(const struct event *event, const char *code, char *ret_text, size_t size)
{
    char span[PRINT_SPAN_SIZE];
    if (strcmp(code, "unknown") == 0)
        snprintf(ret_text, size,
                 "the receiver may have executed it: `reconcile` asks the receiver, where the route has a look-up. If "
                 "it is certain that it was not executed, add --confirm-not-executed");
    else if (strcmp(code, "settling") == 0)
        snprintf(ret_text, size,
                 "a request that was sent for it may still arrive at the receiver (first sent %s ago): for 2 x the "
                 "route's timeout, 30s at the least; for 20m where the configuration of issuing-ctl does not have the "
                 "route; try again then",
                 print_span(event->now_us - event->first_sent_us, span));
}

static void why_refused(const struct event *event, const char *code, char *ret_text, size_t size)
{
    char span[PRINT_SPAN_SIZE];
    if (!event_is_card(event)) {
        why_route_refused(event, code, ret_text, size);
        return;
    }
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
    .statement = &sql_operator_resolve,
    .more_params = more_params,
    .preview = preview,
    .why_refused = why_refused,
};

static bool run_resolve(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct bulk bulk = {.ctl = ctl, .verb = &bulk_resolve};
    const struct option_spec specs[] = {BULK_OPTIONS(&bulk),
                                        {.name = "confirm-no-card", .flag = &bulk.confirms_no_card},
                                        {.name = "confirm-not-executed", .flag = &bulk.confirms_not_executed},
                                        {.name = NULL}};
    return bulk_run(&bulk, specs, arguments, count, err);
}

const struct ctl_command ctl_resolve = {
    .word = "resolve",
    .usage = "ID... | FILTERS [--confirm-no-card] [--confirm-not-executed] [--dry-run] [--rate N] [--limit N] "
             "--reason TEXT",
    .summary = "end FAILED events: there will be no card, nothing will be executed",
    .help =
        "Makes FAILED events REJECTED with reason `resolved`: the user gets no card for them and may request another\n"
        "one. The card that a reissue was to replace can be reissued again. Refused while a card is stored. If a\n"
        "request may have reached the issuer, --confirm-no-card is needed, and issuer.settle_time must have passed\n"
        "since the last one. If an event of a route may have reached its receiver, --confirm-not-executed is needed,\n"
        "and 2 x the route's timeout (at least 30s) must have passed. Later events of an ordered type that waited\n"
        "for the event are due then.\n"
        "Given filters, at least one, the oldest event comes first:\n\n"
        "  --status S     FAILED, the only status that can be resolved\n" FILTER_HELP BULK_HELP
        "  --confirm-no-card  it is certain that the issuer has no card for any of them\n"
        "  --confirm-not-executed  it is certain that the receiver has executed none of them\n" BULK_NOTE,
    .run = run_resolve,
};
