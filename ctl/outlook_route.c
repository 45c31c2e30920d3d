/* See outlook_route.h.
 *
 * Invariants: nothing is said of the receiver that is not known. "No earlier request can have been executed" is said
 * only while no send is on record that may have arrived. The time until which a key may be used is the latest possible
 * one where the configuration does not have the route. */
#include "ctl/outlook_route.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/issuer_key.h"
#include "ctl/print.h"

static const struct config_route *configured(const struct config *config, const char *type)
{
    for (int i = 0; i < config->route_count; i++)
        if (strcmp(config->routes[i].type, type) == 0)
            return &config->routes[i];
    return NULL;
}

int64_t outlook_route_settle_ms(const struct config *config, const char *type)
{
    const struct config_route *route = configured(config, type);
    return route ? issuer_key_route_settle_ms(route->key_lifetime_ms, route->timeout_ms) : OUTLOOK_ROUTE_SETTLE_MAX_MS;
}

/* Until when it may be sent again with the same key; INT64_MAX = without limit. */
static int64_t sendable_until_us(const struct event *event, const struct cluster_route *route,
                                 const struct config *config)
{
    const struct config_route *own = configured(config, route->type);
    int64_t timeout_ms = own ? own->timeout_ms : 0;
    int64_t settle_ms = issuer_key_route_settle_ms(route->key_lifetime_ms, timeout_ms);
    int64_t sendable_ms = issuer_key_sendable_ms(route->key_lifetime_ms, timeout_ms, settle_ms);
    return sendable_ms == INT64_MAX ? INT64_MAX : event->first_sent_us + 1000 * sendable_ms;
}

/* The end is decided, and an earlier send may still be executed behind it. */
static enum outlook_action held_clause(const struct event *event, const struct config *config, char *ret_text,
                                       size_t size)
{
    static const struct {
        const char *cause, *end; /* end NULL = FAILED held_end_code */
    } rows[] = {
        [OUTBOX_HELD_BEFORE_SENDING] = {"it is looked up first", NULL},
        [OUTBOX_HELD_EXHAUSTED] = {"all attempts are used up", "FAILED attempts_exhausted"},
        [OUTBOX_HELD_KEY_EXPIRED] = {"the key is past its lifetime", "FAILED route_key_expired"},
        [OUTBOX_HELD_INELIGIBLE] = {"it was refused", NULL},
        [OUTBOX_HELD_REFUSED] = {"the receiver refused", NULL},
        [OUTBOX_HELD_UNFORESEEN] = {"the receiver gave an answer that was not foreseen", NULL},
        [OUTBOX_HELD_WORKER_LOST] = {"attempts were lost with their worker", "FAILED worker_lost"},
        [OUTBOX_HELD_DUPLICATE] = {"it is looked up first", NULL},
    };
    static_assert(sizeof(rows) / sizeof(rows[0]) == OUTBOX_HELD_ENDS_COUNT, "each held end has its row");
    char settled[PRINT_TIME_SIZE], end[80];
    const char *cause = event->held_end;
    enum outbox_held_end held_end;
    bool is_known = outbox_held_end_parse(event->held_end, &held_end);
    if (is_known)
        cause = rows[held_end].cause;
    snprintf(end, sizeof(end), "%s%s",
             is_known && rows[held_end].end                   ? rows[held_end].end
             : is_known && held_end == OUTBOX_HELD_UNFORESEEN ? "FAILED "
                                                              : "with ",
             is_known && rows[held_end].end ? ""
             : event->held_end_code         ? event->held_end_code
                                            : "its code");
    snprintf(ret_text, size,
             "the receiver is asked whether it was executed and nothing is sent, since its end is decided (%s) and an "
             "earlier send may still arrive until %s: executed, it ends COMPLETED; not executed after that time, it "
             "ends %s",
             cause, print_time(event->last_sent_us + 1000 * outlook_route_settle_ms(config, event->type), settled),
             end);
    return OUTLOOK_ASK;
}

/* The outcome is unknown, and the key is past its lifetime. */
static enum outlook_action expired_clause(const struct cluster_route *route, int64_t until_us, char *ret_text,
                                          size_t size)
{
    char until[PRINT_TIME_SIZE];
    print_time(until_us, until);
    if (route->has_lookup) {
        snprintf(ret_text, size,
                 "the receiver is asked whether it was executed and nothing is sent, since an earlier send may have "
                 "been executed and the key is past its lifetime since %s: executed, it ends COMPLETED; not executed, "
                 "it ends FAILED route_key_expired",
                 until);
        return OUTLOOK_ASK;
    }
    snprintf(ret_text, size,
             "it ends FAILED route_key_expired and nothing is sent, since an earlier send may have been executed, the "
             "key is past its lifetime since %s, and the route has no lookup_url",
             until);
    return OUTLOOK_END;
}

enum outlook_action outlook_route_attempt(const struct event *event, const struct cluster_route *route,
                                          bool any_attempt, const struct config *config, int64_t at_us, char *ret_text,
                                          size_t size)
{
    char limit[PRINT_TIME_SIZE + 32] = "without a time limit", time[PRINT_TIME_SIZE];
    bool is_unknown = event->first_sent_us != 0;
    if (!is_unknown) { /* calls may have been made and answered all the same */
        snprintf(ret_text, size, "%s",
                 any_attempt ? "it is delivered; no earlier request can have been executed: each, if there was any, "
                               "was refused or did not reach the receiver"
                             : "it is delivered for the first time, since no attempt has been made so far");
        return OUTLOOK_DELIVER;
    }
    if (event->held_end)
        return held_clause(event, config, ret_text, size);
    if (event->lost_count >= OUTBOX_LOST_LOOKUP && route->has_lookup) {
        snprintf(ret_text, size,
                 "the receiver is asked whether it was executed and nothing is sent, since %lld attempts in a row were "
                 "lost with their worker",
                 (long long)event->lost_count);
        return OUTLOOK_ASK;
    }
    int64_t until_us = sendable_until_us(event, route, config);
    if (at_us >= until_us)
        return expired_clause(route, until_us, ret_text, size);
    if (until_us != INT64_MAX)
        snprintf(limit, sizeof(limit), "until %s at the latest", print_time(until_us, time));
    snprintf(
        ret_text, size,
        "it is sent again with the same key, since an earlier send may have been executed: a receiver that honours "
        "the key executes it once. It may be sent %s",
        limit);
    return OUTLOOK_DELIVER;
}

void outlook_route_held(const struct event *event, char *ret_text, size_t size)
{
    enum outbox_status status;
    char first[120] = "";
    const char *word = event->holder_status;
    if (!word || !outbox_status_parse(word, strlen(word), &status)) {
        snprintf(ret_text, size, "it was held behind %s, which is no longer there; it is looked at again at %s",
                 event->held_behind_text, print_time(event->next_attempt_us, first));
        return;
    }
    if (event->first_text[0] && strcmp(event->first_text, event->held_behind_text) != 0)
        snprintf(first, sizeof(first), "; the first one that must end is %s, which is %s", event->first_text,
                 event->first_status);
    switch (status) {
    case OUTBOX_FAILED:
        snprintf(ret_text, size, "held behind %s, which is FAILED: replay or resolve it%s", event->held_behind_text,
                 first);
        return;
    case OUTBOX_PENDING:
    case OUTBOX_PROCESSING:
        snprintf(ret_text, size, "held behind %s, which is %s%s%s", event->held_behind_text, word, first,
                 event->first_status && strcmp(event->first_status, "FAILED") == 0 ? ": replay or resolve it" : "");
        return;
    case OUTBOX_COMPLETED:
    case OUTBOX_REJECTED:
        snprintf(ret_text, size, "it was held behind %s, which is %s by now; the next claim takes it",
                 event->held_behind_text, word);
        return;
    }
}
