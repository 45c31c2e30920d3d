/* See outlook_wait.h. */
#include "ctl/explain/outlook_wait.h"

#include <stdio.h>
#include <string.h>

#include "ctl/backlog.h"
#include "ctl/print.h"

const char *outlook_wait_name(enum outlook_wait_for what)
{
    static const char *const words[] = {
#define X(name, word) #word,
        OUTLOOK_WAITS(X)
#undef X
    };
    return words[what];
}

static bool needs(const struct event *event, const struct cluster_target *target)
{
    return strcmp(backlog_type_of(target->name), event_is_card(event) ? OUTBOX_EVENT_TYPE : event->type) == 0;
}

/* The one that ends last. A pause has no end time: an operator ends it. */
static const struct cluster_target *shut_target(const struct event *event, const struct cluster *cluster)
{
    const struct cluster_target *found = NULL;
    for (int i = 0; i < cluster->target_count; i++) {
        const struct cluster_target *target = &cluster->targets[i];
        /* A target that no living worker calls keeps no worker from an event. */
        if (!needs(event, target) || target->workers == 0 || !cluster_is_blocked(target))
            continue;
        if (target->paused_us != 0)
            return target;
        if (!found || (found->open + found->half_open == 0 && target->open + target->half_open > 0))
            found = target;
    }
    return found;
}

void outlook_wait_find(const struct event *event, const struct cluster *cluster, struct outlook_wait *ret_wait)
{
    const struct cluster_route *route = event_is_card(event) ? NULL : cluster_find_route(cluster, event->type);
    if (!event_is_card(event) && !route) {
        ret_wait->what = OUTLOOK_WAIT_FOR_ROUTE;
        return;
    }
    if (event->held_behind_text[0]) {
        ret_wait->what = OUTLOOK_WAIT_FOR_EVENT;
        return;
    }
    if (cluster->alive_count == 0 || (route && !route->is_live)) {
        ret_wait->what = OUTLOOK_WAIT_FOR_WORKER;
        return;
    }
    ret_wait->target = shut_target(event, cluster);
    if (ret_wait->target)
        ret_wait->what = ret_wait->target->paused_us != 0                           ? OUTLOOK_WAIT_FOR_PAUSE
                         : ret_wait->target->open + ret_wait->target->half_open > 0 ? OUTLOOK_WAIT_FOR_BREAKER
                                                                                    : OUTLOOK_WAIT_FOR_REST;
}

static void breaker_clause(const struct cluster_target *target, int64_t now_us, char *ret_text, size_t size)
{
    char since[PRINT_TIME_SIZE], span[PRINT_SPAN_SIZE], probe[64];
    if (target->half_open > 0)
        snprintf(probe, sizeof(probe), "a probe under way");
    else if (target->next_us > now_us)
        snprintf(probe, sizeof(probe), "next probe in %s", print_span(target->next_us - now_us, span));
    else
        snprintf(probe, sizeof(probe), "next probe with the next event that is due");
    snprintf(ret_text, size,
             "it waits behind the open breaker of %.64s since %s, cause %.64s, %s, %lld event%s behind it",
             target->name, print_time(target->since_us, since), target->cause ? target->cause : "unknown", probe,
             (long long)target->backlog, target->backlog == 1 ? "" : "s");
}

static void no_worker_clause(const struct event *event, const struct cluster *cluster, char *ret_text, size_t size)
{
    char time[PRINT_TIME_SIZE];
    const struct cluster_route *route = event_is_card(event) ? NULL : cluster_find_route(cluster, event->type);
    if (route && cluster->alive_count > 0)
        snprintf(ret_text, size,
                 "no living worker has a route for this type: the last one that had it, %.100s, was seen at %s",
                 route->worker ? route->worker : "?", print_time(route->seen_us, time));
    else if (cluster->last_us == 0)
        snprintf(ret_text, size, "no worker runs, and none was seen so far");
    else
        snprintf(ret_text, size, "no worker runs: the last one was seen at %s on host %.64s",
                 print_time(cluster->last_us, time), cluster->last_host);
}

/* Why an event waits that is held behind another one of its user and type. */
static void behind_clause(const struct event *event, char *ret_text, size_t size)
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

static void held_clause(const struct event *event, const struct cluster *cluster, char *ret_text, size_t size)
{
    const struct cluster_route *route = cluster_find_route(cluster, event->type);
    if (!route || route->is_ordered)
        behind_clause(event, ret_text, size);
    else
        snprintf(ret_text, size,
                 "it was held behind %s while its type was ordered; it is not any more, and a worker frees what was "
                 "held within seconds",
                 event->held_behind_text);
}

void outlook_wait_clause(const struct event *event, const struct outlook_wait *wait, const struct cluster *cluster,
                         char *ret_text, size_t size)
{
    const struct cluster_target *target = wait->target;
    char time[PRINT_TIME_SIZE], span[PRINT_SPAN_SIZE];
    switch (wait->what) {
    case OUTLOOK_WAIT_FOR_NOTHING:
        ret_text[0] = '\0';
        return;
    case OUTLOOK_WAIT_FOR_WORKER:
        no_worker_clause(event, cluster, ret_text, size);
        return;
    case OUTLOOK_WAIT_FOR_ROUTE:
        snprintf(ret_text, size,
                 "nobody delivers events of this type: no worker has a section [route.%.64s]. It waits until one has",
                 event->type);
        return;
    case OUTLOOK_WAIT_FOR_EVENT:
        held_clause(event, cluster, ret_text, size);
        return;
    case OUTLOOK_WAIT_FOR_PAUSE:
        snprintf(ret_text, size, "%.64s is paused by %.100s since %s because: %.200s", target->name, target->paused_by,
                 print_time(target->paused_us, time), target->paused_why);
        return;
    case OUTLOOK_WAIT_FOR_BREAKER:
        breaker_clause(target, cluster->now_us, ret_text, size);
        return;
    case OUTLOOK_WAIT_FOR_REST:
        snprintf(ret_text, size, "%.64s gets too many requests, so it rests for another %s", target->name,
                 print_span(target->next_us > cluster->now_us ? target->next_us - cluster->now_us : 0, span));
        return;
    }
}
