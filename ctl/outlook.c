/* What will happen to an event next, when, and why.
 *
 * Invariants: the outlook follows from the row, the configuration, and what workers have told of themselves a few
 * seconds ago. The worker decides by the same columns and the same rules, so both agree as long as both read the same
 * configuration. Times are the database's. */
#include "ctl/outlook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/issuer_key.h"
#include "common/issuer_profiles.h"
#include "ctl/outlook_route.h"
#include "ctl/outlook_wait.h"

#define OVERDUE_US (INT64_C(60) * 1000 * 1000)
#define CLAUSE_SIZE OUTLOOK_CLAUSE_SIZE

const char *outlook_action_name(enum outlook_action action)
{
    switch (action) {
#define X(name, word, text) \
    case OUTLOOK_##name:    \
        return #word;
        OUTLOOK_ACTIONS(X)
#undef X
    }
    return "none";
}

const char *outlook_action_text(enum outlook_action action)
{
    switch (action) {
#define X(name, word, text) \
    case OUTLOOK_##name:    \
        return text;
        OUTLOOK_ACTIONS(X)
#undef X
    }
    return "Nothing";
}

const char *outlook_wait_name(enum outlook_wait wait)
{
    switch (wait) {
#define X(name, word)             \
    case OUTLOOK_WAIT_FOR_##name: \
        return #word;
        OUTLOOK_WAITS(X)
#undef X
    }
    return "nothing";
}

/* ---- the coming attempt ---- */

/* Until when an event that may have been sent may be sent again with the same issuer key; INT64_MAX = without limit. */
static int64_t sendable_until_us(const struct event *event, const struct config *config)
{
    int64_t sendable_ms = issuer_key_sendable_ms(config->issuer.key_lifetime_ms, config->issuer.timeout_ms,
                                                 config->issuer.settle_time_ms);
    return sendable_ms == INT64_MAX ? INT64_MAX : event->first_sent_us + 1000 * sendable_ms;
}

/* Bits of enum issuer_fact. Of a profile that is not known nothing is promised. */
static unsigned issuer_facts(const struct config *config)
{
    static const struct {
        const char *name;
        unsigned facts;
    } rows[] = {
#define X(name, timeout, lease, settle_time, key_lifetime, facts) {#name, facts},
        ISSUER_PROFILES(X)
#undef X
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strcmp(config->issuer.profile, rows[i].name) == 0)
            return rows[i].facts;
    return 0;
}

/* The card will be cancelled (worker/issue_card.c, "mark"): no answer of core-api changes that, nor does a replay. */
static enum outlook_action cancel_clause(const struct event *event, char ret_text[CLAUSE_SIZE])
{
    if (!event->has_card)
        snprintf(ret_text, CLAUSE_SIZE,
                 "the card that the issuer shows is looked up and cancelled there, and the event ends REJECTED %s; "
                 "nothing is sent",
                 event->cancel_code);
    else
        snprintf(ret_text, CLAUSE_SIZE,
                 "the card is cancelled at the issuer%s, core-api is notified that it is gone, and the event ends "
                 "REJECTED %s; nothing is sent",
                 strcmp(event->card_status, "cancelled") == 0 ? " (that is done; once more does no harm)" : "",
                 event->cancel_code);
    return OUTLOOK_CANCEL;
}

/* The end is decided, and an earlier send may still make a card behind it. */
static enum outlook_action held_clause(const struct event *event, const struct config *config,
                                       char ret_text[CLAUSE_SIZE])
{
    static const struct {
        const char *cause;
        enum outbox_status status;
        const char *code;  /* NULL = held_end_code */
        bool is_cancelled; /* a card that is found */
    } rows[] = {
        [OUTBOX_HELD_EXHAUSTED] = {"all attempts are used up", OUTBOX_FAILED, "attempts_exhausted", false},
        [OUTBOX_HELD_KEY_EXPIRED] = {"the issuer key is past its lifetime", OUTBOX_FAILED, "issuer_key_expired", false},
        [OUTBOX_HELD_INELIGIBLE] = {"core-api answered that the user may have no card", OUTBOX_REJECTED, NULL, true},
        [OUTBOX_HELD_REFUSED] = {"the issuer refused", OUTBOX_REJECTED, NULL, false},
        [OUTBOX_HELD_UNFORESEEN] = {"a peer gave an answer that was not foreseen", OUTBOX_FAILED, NULL, false},
        [OUTBOX_HELD_DUPLICATE] = {"the issuer has shown more than one card", OUTBOX_FAILED, "issuer_duplicate", false},
        [OUTBOX_HELD_WORKER_LOST] = {"attempts were lost with their worker", OUTBOX_FAILED, "worker_lost", false},
    };
    char settled[PRINT_TIME_SIZE];
    enum outbox_status status = OUTBOX_FAILED;
    const char *code = event->held_end_code, *cause = event->held_end;
    bool is_cancelled = false;
    enum outbox_held_end held_end;
    if (strcmp(event->held_end, "before_sending") == 0) {
        snprintf(ret_text, CLAUSE_SIZE,
                 "the issuer is asked whether there is a card before anything is sent, since an operator said that the "
                 "event belongs to it (adopt): a card that is found is stored and linked; none found, it is sent");
        return OUTLOOK_LOOK_UP;
    }
    if (outbox_held_end_parse(event->held_end, &held_end)) {
        status = rows[held_end].status;
        code = rows[held_end].code ? rows[held_end].code : code;
        cause = rows[held_end].cause;
        is_cancelled = rows[held_end].is_cancelled;
    }
    snprintf(
        ret_text, CLAUSE_SIZE,
        "the issuer is asked whether there is a card and nothing is sent, since its end is decided (%s) and an earlier "
        "send may still arrive until %s: a card that is found is %s; none found after that time, it ends %s %s",
        cause, print_time(event->last_sent_us + config->issuer.settle_time_ms * 1000, settled),
        is_cancelled ? "cancelled" : "stored and linked", outbox_status_name(status), code ? code : "");
    return OUTLOOK_LOOK_UP;
}

static bool has_duplicate(const struct event *event)
{
    enum outbox_held_end held_end;
    return event->held_end && outbox_held_end_parse(event->held_end, &held_end) && held_end == OUTBOX_HELD_DUPLICATE;
}

/* The issuer has shown more than one card (worker/issue_card.c, read_duplicate). */
static enum outlook_action duplicate_clause(const struct event *event, char ret_text[CLAUSE_SIZE])
{
    snprintf(ret_text, CLAUSE_SIZE,
             "the issuer is asked first which cards it has, since it has shown more than one, and nothing is sent, "
             "stored or linked before it shows exactly one%s, which is then %s; several or none: it ends FAILED "
             "issuer_duplicate again",
             event->has_card ? ", the stored one" : "",
             event->cancel_code ? "cancelled"
             : event->has_card  ? "linked"
                                : "stored and linked");
    return OUTLOOK_LOOK_UP;
}

/* The card is stored. */
static enum outlook_action link_clause(const struct event *event, const struct config *config,
                                       char ret_text[CLAUSE_SIZE])
{
    bool is_reissue = event->kind && strcmp(event->kind, "reissue") == 0;
    if (is_reissue && issuer_facts(config) & ISSUER_CLOSES_REPLACED)
        snprintf(ret_text, CLAUSE_SIZE,
                 "the link in core-api is made, since the card is stored, and the card that it replaces is closed at "
                 "the issuer; no card is asked for");
    else
        snprintf(ret_text, CLAUSE_SIZE,
                 "only the link in core-api is left to make, since the card is stored; the issuer is not asked again");
    return OUTLOOK_LINK;
}

/* An earlier send may have arrived, and the create may be repeated until until_us. */
static enum outlook_action repeat_clause(const struct event *event, const struct config *config, int64_t until_us,
                                         char ret_text[CLAUSE_SIZE])
{
    char until[PRINT_TIME_SIZE + 8] = "", settled[PRINT_TIME_SIZE], time[PRINT_TIME_SIZE];
    unsigned facts = issuer_facts(config);
    if (until_us != INT64_MAX)
        snprintf(until, sizeof(until), "until %s", print_time(until_us, time));
    const char *limit = until[0] ? until : "without a time limit";
    if (!(facts & ISSUER_TRUSTS_KEY))
        snprintf(ret_text, CLAUSE_SIZE,
                 "the issuer is asked whether there is a card, since an earlier send may have arrived and the issuer "
                 "key does not make a repeat harmless there: a card that is found is stored and linked; none found, it "
                 "is sent again, not before %s, when the last send has settled%s%s",
                 print_time(event->last_sent_us + config->issuer.settle_time_ms * 1000, settled),
                 until[0] ? ", and only " : "", until);
    else if (facts & ISSUER_LOOKS_FIRST)
        snprintf(ret_text, CLAUSE_SIZE,
                 "the issuer is asked whether there is a card, since an earlier send may have arrived: a card that is "
                 "found is stored and linked; none found, it is sent again with the same issuer key, which gives the "
                 "same card; that is safe %s",
                 limit);
    else
        snprintf(ret_text, CLAUSE_SIZE,
                 "it is sent again with the same issuer key, which gives the same card, since an earlier send may have "
                 "arrived; that is safe %s",
                 limit);
    return OUTLOOK_ATTEMPT;
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

/* What the coming attempt does, as a clause. any_attempt: one was made before, or may have been; at_us: when the coming
 * one would be made. */
static enum outlook_action attempt_clause(const struct event *event, bool any_attempt, const struct config *config,
                                          int64_t at_us, char ret_text[CLAUSE_SIZE])
{
    char until[PRINT_TIME_SIZE];
    bool is_unknown = event->first_sent_us != 0 && !event->has_card;
    if (has_duplicate(event))
        return duplicate_clause(event, ret_text);
    if (event->cancel_code)
        return cancel_clause(event, ret_text);
    if (event->has_card)
        return link_clause(event, config, ret_text);
    if (event->held_end && is_unknown)
        return held_clause(event, config, ret_text);
    if (is_unknown && event->lost_count >= OUTBOX_LOST_LOOKUP) {
        snprintf(
            ret_text, CLAUSE_SIZE,
            "the issuer is asked whether there is a card and nothing is sent, since %lld attempts in a row were lost "
            "with their worker; none found, it ends FAILED worker_lost",
            (long long)event->lost_count);
        return OUTLOOK_LOOK_UP;
    }
    if (!is_unknown) { /* first_sent_at is NULL: calls may have been made and answered all the same */
        snprintf(ret_text, CLAUSE_SIZE, "%s",
                 any_attempt ? "the issuer is asked for the card; no earlier request can have made one: each, if there "
                               "was any, was refused or did not reach the issuer"
                             : "the issuer is asked for the card for the first time, since no attempt has been made so "
                               "far");
        return OUTLOOK_ATTEMPT;
    }
    int64_t until_us = sendable_until_us(event, config);
    if (at_us < until_us)
        return repeat_clause(event, config, until_us, ret_text);
    snprintf(
        ret_text, CLAUSE_SIZE,
        "the issuer is asked whether there is a card and nothing is sent, since an earlier send may have arrived and "
        "the issuer key is past its lifetime since %s",
        print_time(until_us, until));
    return OUTLOOK_LOOK_UP;
}

#define NO_ROUTE "nobody delivers events of this type, so it waits until a worker has a route for it"

void outlook_replay(const struct event *event, const struct cluster *cluster, const struct config *config,
                    char *ret_text, size_t size)
{
    char clause[CLAUSE_SIZE] = NO_ROUTE;
    struct event reopened = *event; /* what a replay resets; that the card will be cancelled stays */
    const struct cluster_route *route = event_is_card(event) ? NULL : cluster_find_route(cluster, event->type);
    bool is_duplicate = event->reason_code && strcmp(event->reason_code, "issuer_duplicate") == 0;
    reopened.held_end = is_duplicate || has_duplicate(event) ? "duplicate" : NULL;
    reopened.held_end_code = NULL;
    reopened.lost_count = 0;
    if (event_is_card(event))
        (void)attempt_clause(&reopened, true, config, event->now_us, clause);
    else if (route)
        (void)outlook_route_attempt(&reopened, route, true, config, event->now_us, clause, sizeof(clause));
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
        snprintf(ret_text, size, "it waits after attempt %lld of %lld (%s: %s)", (long long)event->retry_count,
                 (long long)max_attempts, past->last_code, code_text);
}

/* The earliest time of the coming attempt; 0 = nobody knows. */
static int64_t earliest_us(const struct event *event, const struct outlook *out)
{
    if (out->wait == OUTLOOK_WAIT_FOR_WORKER || out->wait == OUTLOOK_WAIT_FOR_PAUSE ||
        out->wait == OUTLOOK_WAIT_FOR_EVENT)
        return 0;
    return out->target && out->target->next_us > event->next_attempt_us ? out->target->next_us : event->next_attempt_us;
}

static void elsewhere(const struct event *event, struct outlook *out)
{
    out->action = OUTLOOK_OPERATOR;
    snprintf(out->why, sizeof(out->why),
             "it, or the card that it is to replace, belongs to %.300s, and workers spoke to %.300s last: these do "
             "nothing for it. It waits for a worker of its own issuer, or for `adopt`, which gives it to the other one",
             event->belongs_to, event->present_issuer);
}

static void pending(const struct event *event, const struct outlook_past *past, const struct cluster *cluster,
                    const struct config *config, struct outlook *out)
{
    char clause[CLAUSE_SIZE], schedule[560];
    const struct cluster_route *route = event_is_card(event) ? NULL : cluster_find_route(cluster, event->type);
    int64_t at_us = event->now_us > event->next_attempt_us ? event->now_us : event->next_attempt_us;
    bool any_attempt = past->any || event->retry_count > 0 || event->lost_count > 0;
    outlook_wait_find(event, cluster, out);
    if (out->wait == OUTLOOK_WAIT_FOR_ROUTE) {
        outlook_wait_clause(event, out, cluster, out->why, sizeof(out->why));
        return;
    }
    out->at_us = earliest_us(event, out);
    if (event->belongs_to) {
        elsewhere(event, out);
        return;
    }
    out->action = route ? outlook_route_attempt(event, route, any_attempt, config, at_us, clause, sizeof(clause))
                        : attempt_clause(event, any_attempt, config, at_us, clause);
    if (out->wait != OUTLOOK_WAIT_FOR_NOTHING)
        outlook_wait_clause(event, out, cluster, schedule, sizeof(schedule));
    else
        schedule_clause(event, past, cluster, route ? route->max_attempts : config->retry.max_attempts, schedule,
                        sizeof(schedule));
    snprintf(out->why, sizeof(out->why), "%s; then %s%s", schedule, clause, shown_clause(event, past));
}

/* What is known of the worker that holds the event, as a clause that follows its name. */
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
    char clause[CLAUSE_SIZE], behind[120] = "";
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

static const char *rejected_route(const struct event *event)
{
    if (event->reason_code && strcmp(event->reason_code, "cancelled") == 0)
        return "an operator cancelled it before it was sent";
    if (event->reason_code && strcmp(event->reason_code, "resolved") == 0)
        return "an operator ended it: it counts as not executed";
    return "the receiver refused it, and has not executed it";
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
        snprintf(ret_outlook->why, sizeof(ret_outlook->why), "it is completed: the %s%s",
                 event_is_card(event) ? "card is stored and linked" : "receiver has executed it",
                 past->last_code && strcmp(past->last_code, outbox_cause_name(OUTBOX_CAUSE_RETIRE_REFUSED)) == 0
                     ? "; the card that it replaces could not be closed at the issuer: close it there"
                     : "");
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
