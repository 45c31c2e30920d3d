/* What will happen to an event next, when, and why.
 *
 * Invariants: the outlook follows from the row, the configuration, and the heartbeats of workers, which are a few
 * seconds old. The worker decides by the same columns and the same functions (common/core/decide/), so both agree as
 * long as both read the same configuration. Times are the database's. */
#include "ctl/explain/outlook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OVERDUE_US (INT64_C(60) * 1000 * 1000)

static const struct {
    const char *word, *text;
} actions[] = {
#define X(name, word_, text_) {.word = #word_, .text = (text_)},
    OUTLOOK_ACTIONS(X)
#undef X
};

const char *outlook_action_name(enum outlook_action action)
{
    return actions[action].word;
}

const char *outlook_action_text(enum outlook_action action)
{
    return actions[action].text;
}

/* ---- codes ---- */

/* Of "issuer_http_503": the peer in words and 503; 0 if it is not such a code. */
static int http_status(const char *code, const char **ret_peer)
{
    static const struct {
        const char *prefix, *peer;
    } peers[] = {{"issuer_http_", "the issuer"}, {"core_http_", "core-api"}, {"route_http_", "the receiver"}};
    for (size_t i = 0; i < ARRAY_SIZE(peers); i++) {
        size_t length = strlen(peers[i].prefix);
        if (strncmp(code, peers[i].prefix, length) == 0 && code[length] >= '1' && code[length] <= '9' &&
            strlen(code + length) == 3) {
            *ret_peer = peers[i].peer;
            return atoi(code + length);
        }
    }
    return 0;
}

static const char *status_text(int status)
{
    if (status == 429)
        return "asks us to slow down";
    if (status == 408)
        return "gave up waiting, and may have acted all the same";
    if (status == 409 || status == 425)
        return "is still busy with an earlier call for this event";
    if (status == 401 || status == 403)
        return "does not accept our credentials: check the credential file";
    if (status == 404 || status == 405 || (status >= 300 && status < 400))
        return "is not what we expect at that address: check the url";
    if (status >= 500)
        return "failed; a call that acts may have acted before it did";
    return "gave an answer that was not foreseen";
}

/* Codes that card requests have too, in the words of an event that a route delivers. */
static const char *route_text(const char *code)
{
    static const struct {
        const char *code, *text;
    } rows[] = {
        {"payload_invalid", "the payload is larger than 64 KiB, or cannot be read"},
        {"cancelled", "an operator cancelled it before it was sent"},
        {"resolved", "an operator ended it: it counts as not executed"},
        {"outcome_unknown", "whether it was executed could not be established: look-ups stayed unreadable or were "
                            "refused"},
        {"target_resting",
         "the receiver answered that it gets too many requests, so nothing is sent there for a while"},
        {"target_paused", "this route is paused, so nothing is sent there until an operator resumes it"},
        {"settling", "a request that was sent may still arrive at the receiver, so the answer that it was not executed "
                     "decides nothing yet"},
        {"clock_stepped", "a clock of the worker's machine was set, or the machine was suspended, so it was not sent"},
        {"write_failed", "our database did not take the write in time; the receiver may have executed the event"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strcmp(rows[i].code, code) == 0)
            return rows[i].text;
    return NULL;
}

void outlook_code(const struct event *event, const char *code, char ret_text[OUTLOOK_CODE_SIZE])
{
    const char *peer, *text = event_is_card(event) ? NULL : route_text(code);
    const char *unknown =
        event_is_card(event) ? "the code is the issuer's or core-api's own" : "the code is the receiver's own";
    int status = http_status(code, &peer);
    if (!text)
        text = outbox_code_text(code);
    if (status != 0)
        snprintf(ret_text, OUTLOOK_CODE_SIZE, "%s answered %d: it %s", peer, status, status_text(status));
    else
        snprintf(ret_text, OUTLOOK_CODE_SIZE, "%s", text ? text : unknown);
}

/* ---- a replay ---- */

#define NO_ROUTE "nobody delivers events of this type, so it waits until a worker has a route for it"

struct event outlook_reopened(const struct event *event)
{
    struct event reopened = *event; /* that the card will be cancelled stays */
    bool is_duplicate = event->reason_code && strcmp(event->reason_code, "issuer_duplicate") == 0;
    bool was_duplicate = event->held_end && lookup_reason_parse(event->held_end) == LOOKUP_DUPLICATE;
    reopened.held_end = is_duplicate || was_duplicate ? "duplicate" : NULL;
    reopened.held_end_code = NULL;
    reopened.lost_count = reopened.retry_count = reopened.deferred_since_us = 0;
    return reopened;
}

void outlook_replay(const struct event *event, const struct cluster *cluster, const struct config *config,
                    char *ret_text, size_t size)
{
    char clause[OUTLOOK_CLAUSE_SIZE] = NO_ROUTE;
    struct event reopened = outlook_reopened(event);
    const struct cluster_route *route = event_is_card(event) ? NULL : cluster_find_route(cluster, event->type);
    if (event_is_card(event) || route)
        (void)outlook_attempt(&reopened, route, true, config, event->now_us, clause);
    snprintf(ret_text, size, "%s", clause);
}

/* ---- each status ---- */

/* Why the event is not worked on now, where nothing keeps the workers from it. */
static void schedule_clause(const struct event *event, const struct outlook_past *past, const struct cluster *cluster,
                            int64_t max_attempts, char *ret_text, size_t size)
{
    char code_text[OUTLOOK_CODE_SIZE], span[PRINT_SPAN_SIZE];
    int64_t late_us = event->now_us - event->next_attempt_us;
    bool is_alone = event->lost_count >= OUTBOX_LOST_ALONE;
    if (past->last_code)
        outlook_code(event, past->last_code, code_text);
    if (late_us > OVERDUE_US)
        snprintf(
            ret_text, size,
            "it has been due for %s, although %d worker%s run%s and hold%s %lld events in %lld slots: the log of a "
            "worker may say why%s",
            print_span(late_us, span), cluster->alive_count, cluster->alive_count == 1 ? "" : "s",
            cluster->alive_count == 1 ? "s" : "", cluster->alive_count == 1 ? "s" : "", (long long)cluster->in_flight,
            (long long)cluster->slots, is_alone ? ". It is tried alone, when a worker holds no other event" : "");
    else if (is_alone)
        snprintf(ret_text, size,
                 "its last %lld attempts were lost with their worker, so it is tried alone, when a worker holds no "
                 "other event",
                 (long long)event->lost_count);
    else if (late_us > 0)
        snprintf(ret_text, size, "it is due: the next worker with a free slot takes it");
    else if (!past->last_code)
        snprintf(ret_text, size, "its time has not come");
    else if (past->last == OUTBOX_ATTEMPT_DEFERRED)
        snprintf(ret_text, size, "it waits for a cause outside this event (%s: %s)", past->last_code, code_text);
    else
        snprintf(ret_text, size, "it waits after attempt %lld of %lld%s (%s: %s)", (long long)event->retry_count,
                 (long long)max_attempts, event->retry_count > max_attempts ? ", within retry_for" : "",
                 past->last_code, code_text);
}

/* The earliest time of the coming attempt; 0 = nobody knows. */
static int64_t earliest_us(const struct event *event, const struct outlook *out)
{
    if (out->wait.what == OUTLOOK_WAIT_FOR_WORKER || out->wait.what == OUTLOOK_WAIT_FOR_PAUSE ||
        out->wait.what == OUTLOOK_WAIT_FOR_EVENT)
        return 0;
    return out->wait.target && out->wait.target->next_us > event->next_attempt_us ? out->wait.target->next_us
                                                                                  : event->next_attempt_us;
}

static void elsewhere(const struct event *event, struct outlook *out)
{
    out->action = OUTLOOK_OPERATOR;
    snprintf(out->why, sizeof(out->why),
             "it, or the card that it is to replace, belongs to %.300s, and workers spoke to %.300s last: these do "
             "nothing for it. It waits for a worker of its own issuer, or for `adopt`, which gives it to the other one",
             event->belongs_to, event->present_issuer);
}

/* How far the last attempt came with a card that the issuer has made and that is not stored yet; "" = it saw none. */
static const char *shown_clause(const struct event *event, const struct outlook_past *past)
{
    if (!past->last_step || event->first_sent_us == 0 || event->has_card)
        return "";
    if (strcmp(past->last_step, "activate") == 0)
        return "; the last attempt was shown the card and could not activate it, which is tried again";
    if (strcmp(past->last_step, "reveal") == 0)
        return "; the last attempt was shown the card and could not read its number, which is tried again";
    return "";
}

static void pending(const struct event *event, const struct outlook_past *past, const struct cluster *cluster,
                    const struct config *config, struct outlook *out)
{
    char clause[OUTLOOK_CLAUSE_SIZE], schedule[560];
    const struct cluster_route *route = event_is_card(event) ? NULL : cluster_find_route(cluster, event->type);
    int64_t at_us = event->now_us > event->next_attempt_us ? event->now_us : event->next_attempt_us;
    /* guard: explain does not deny calls that were made */
    bool any_attempt = past->any || event->retry_count > 0 || event->lost_count > 0;
    outlook_wait_find(event, cluster, &out->wait);
    if (out->wait.what == OUTLOOK_WAIT_FOR_ROUTE) {
        outlook_wait_clause(event, &out->wait, cluster, out->why, sizeof(out->why));
        return;
    }
    out->at_us = earliest_us(event, out);
    if (event->belongs_to) {
        elsewhere(event, out);
        return;
    }
    out->action = outlook_attempt(event, route, any_attempt, config, at_us, clause);
    if (out->wait.what != OUTLOOK_WAIT_FOR_NOTHING)
        outlook_wait_clause(event, &out->wait, cluster, schedule, sizeof(schedule));
    else
        schedule_clause(event, past, cluster, route ? route->max_attempts : config->retry.max_attempts, schedule,
                        sizeof(schedule));
    snprintf(out->why, sizeof(out->why), "%s; then %s%s", schedule, clause, shown_clause(event, past));
}

/* The state of the worker that holds the event, as a clause that follows its name. */
static void holder_clause(const struct event *event, const struct cluster *cluster, char *ret_text, size_t size)
{
    char span[PRINT_SPAN_SIZE];
    const struct cluster_worker *holder = event->lease_owner ? cluster_find_worker(cluster, event->lease_owner) : NULL;
    if (!holder)
        snprintf(ret_text, size, "which has no heartbeat any more: it has ended, or has just started");
    else
        snprintf(ret_text, size, "%s %s ago%s", holder->is_alive ? "last seen" : "which counts as dead, last seen",
                 print_span(event->now_us - holder->seen_us, span), holder->is_draining ? " while draining" : "");
}

static void processing(const struct event *event, const struct cluster *cluster, struct outlook *out)
{
    const char *worker = event->lease_owner ? event->lease_owner : "?";
    char holder[120];
    char time[PRINT_TIME_SIZE];
    int64_t lost_count = event->lost_count + 1; /* once its lease has run out */
    out->at_us = event->lease_until_us;
    print_time(event->lease_until_us, time);
    holder_clause(event, cluster, holder, sizeof(holder));
    if (event->lease_until_us > event->now_us) {
        out->action = OUTLOOK_WAIT;
        snprintf(out->why, sizeof(out->why),
                 "worker %.100s (%s) holds it and works on it; should it die, others may take over after %s", worker,
                 holder, time);
        return;
    }
    out->action = OUTLOOK_TAKE_OVER;
    snprintf(out->why, sizeof(out->why), "the lease of worker %.100s (%s) ran out at %s: the next worker that looks %s",
             worker, holder, time,
             lost_count >= OUTBOX_LOST_MAX
                 ? "ends it FAILED worker_lost, since that is the fifth attempt in a row that was lost"
             : lost_count >= OUTBOX_LOST_ALONE ? "gives it back, to be tried alone"
                                               : "takes it over");
}

/* What an operator can do with it. */
static const char *verbs_of(const struct event *event, const struct cluster *cluster)
{
    if (event_is_card(event))
        return "replays, reconciles, reissues or resolves";
    const struct cluster_route *route = cluster_find_route(cluster, event->type);
    return route && route->has_lookup ? "replays, reconciles or resolves" : "replays or resolves";
}

static void failed(const struct event *event, const struct cluster *cluster, const struct config *config,
                   struct outlook *out)
{
    char clause[OUTLOOK_CLAUSE_SIZE], behind[120] = "";
    const char *code = event->reason_code ? event->reason_code : "", *first = "";
    outlook_replay(event, cluster, config, clause, sizeof(clause));
    if (event->waiting_count > 0)
        snprintf(behind, sizeof(behind), "%s%lld later event%s of this user wait%s for that; ",
                 event->waiting_count >= 1000 ? "at least " : "", (long long)event->waiting_count,
                 event->waiting_count == 1 ? "" : "s", event->waiting_count == 1 ? "s" : "");
    if (strcmp(code, "payload_invalid") == 0)
        first = "its payload must be corrected first, or it fails again; ";
    else if (strcmp(code, "issuer_duplicate") == 0)
        first = "all but one of the cards must be cancelled at the issuer first, or it fails again; ";
    else if (strcmp(code, "issuer_key_spent") == 0)
        first = "the issuer answers each repeat under its key with a failure that it keeps: `reissue` gives it a new "
                "key; ";
    else if (strcmp(code, "reveal_refused") == 0)
        first = "the issuer has the card and refuses to show its number: our credential must get that right there "
                "first, or card.store = never must be set, or it fails again; ";
    out->action = OUTLOOK_OPERATOR;
    if (event->belongs_to)
        snprintf(clause, sizeof(clause), "it waits for a worker of its issuer, %.300s, or for `adopt`",
                 event->belongs_to);
    snprintf(out->why, sizeof(out->why), "no worker touches it until an operator %s it; %s%safter a replay %s",
             verbs_of(event, cluster), behind, first, clause);
}

/* A note about a COMPLETED event; NULL = none. */
static const char *note_of(const struct outlook_past *past)
{
    static const enum outbox_cause notes[] = {OUTBOX_CAUSE_RETIRE_REFUSED, OUTBOX_CAUSE_CARD_INACTIVE,
                                              OUTBOX_CAUSE_NUMBER_HIDDEN};
    for (size_t i = 0; past->last_code && i < ARRAY_SIZE(notes); i++)
        if (strcmp(past->last_code, outbox_cause_name(notes[i])) == 0)
            return outbox_code_text(past->last_code);
    return NULL;
}

static const char *rejected_route(const struct event *event)
{
    if (event->reason_code && strcmp(event->reason_code, "cancelled") == 0)
        return "an operator cancelled it before it was sent";
    if (event->reason_code && strcmp(event->reason_code, "resolved") == 0)
        return "an operator ended it: it counts as not executed";
    return "the receiver refused it, and has not executed it; an operator may replay it";
}

void outlook_of(const struct event *event, const struct outlook_past *past, const struct cluster *cluster,
                const struct config *config, struct outlook *ret_outlook)
{
    *ret_outlook = (struct outlook){.action = OUTLOOK_NONE};
    switch (event->status) {
    case OUTBOX_PENDING:
        pending(event, past, cluster, config, ret_outlook);
        return;
    case OUTBOX_PROCESSING:
        processing(event, cluster, ret_outlook);
        return;
    case OUTBOX_COMPLETED:
        snprintf(ret_outlook->why, sizeof(ret_outlook->why), "it is completed: the %s%s%s",
                 event_is_card(event) ? "card is stored and linked" : "receiver has executed it",
                 note_of(past) ? "; " : "", note_of(past) ? note_of(past) : "");
        return;
    case OUTBOX_REJECTED:
        snprintf(ret_outlook->why, sizeof(ret_outlook->why), "%s",
                 !event_is_card(event) ? rejected_route(event)
                 : event->reason_code && strcmp(event->reason_code, "reissued") == 0
                     ? "it was replaced by a new event, which its reason names"
                     : "it was definitely refused, and no usable card exists");
        return;
    case OUTBOX_FAILED:
        failed(event, cluster, config, ret_outlook);
        return;
    }
}
