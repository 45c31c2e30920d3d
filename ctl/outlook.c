/* What will happen to an event next, when, and why.
 *
 * Invariants: the outlook follows from the row and the configuration only. The worker decides by the same columns and
 * the same rules, so both agree as long as both read the same configuration. Times are the database's.
 * Left out: the breakers, which live in the workers' memory. */
#include "ctl/outlook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/issuer_key.h"

#define OVERDUE_US (INT64_C(60) * 1000 * 1000)
#define CLAUSE_SIZE 440

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

/* ---- what a code means ---- */

/* Of "issuer_http_503": the peer in words and 503; 0 if it is no such code. */
static int http_status(const char *code, const char **ret_peer)
{
    static const struct {
        const char *prefix, *peer;
    } peers[] = {{"issuer_http_", "the issuer"}, {"core_http_", "core-api"}};
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
        return "gave up waiting for our request";
    if (status == 409 || status == 425)
        return "is still busy with an earlier call for this event";
    if (status == 401 || status == 403)
        return "does not accept our credentials: check the credential file";
    if (status == 404 || status == 405 || (status >= 300 && status < 400))
        return "is not what we expect at that address: check the url";
    if (status >= 500)
        return "failed, and may have acted before it did";
    return "gave an answer that was not foreseen";
}

void outlook_code(const char *code, char ret_text[OUTLOOK_CODE_SIZE])
{
    const char *peer, *text = outbox_code_text(code);
    int status = http_status(code, &peer);
    if (status != 0)
        snprintf(ret_text, OUTLOOK_CODE_SIZE, "%s answered %d: it %s", peer, status, status_text(status));
    else
        snprintf(ret_text, OUTLOOK_CODE_SIZE, "%s", text ? text : "the code is the issuer's or core-api's own");
}

/* ---- the coming attempt ---- */

/* Until when an event that may have been sent may be sent again with the same issuer key. */
static int64_t sendable_until_us(const struct event *event, const struct config *config)
{
    return event->first_sent_us + 1000 * issuer_key_sendable_ms(config->issuer.key_lifetime_ms,
                                                                config->issuer.timeout_ms,
                                                                config->issuer.settle_time_ms);
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
        [OUTBOX_HELD_WORKER_LOST] = {"attempts were lost with their worker", OUTBOX_FAILED, "worker_lost", false},
    };
    char settled[PRINT_TIME_SIZE];
    enum outbox_status status = OUTBOX_FAILED;
    const char *code = event->held_end_code, *cause = event->held_end;
    bool is_cancelled = false;
    enum outbox_held_end held_end;
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

/* What the coming attempt does, as a clause. any_attempt: one was made before, or may have been; at_us: when the coming
 * one would be made. */
static enum outlook_action attempt_clause(const struct event *event, bool any_attempt, const struct config *config,
                                          int64_t at_us, char ret_text[CLAUSE_SIZE])
{
    char until[PRINT_TIME_SIZE];
    bool is_unknown = event->first_sent_us != 0 && !event->has_card;
    if (event->cancel_code)
        return cancel_clause(event, ret_text);
    if (event->has_card) {
        snprintf(ret_text, CLAUSE_SIZE,
                 "only the link in core-api is left to make, since the card is stored; the issuer is not asked again");
        return OUTLOOK_LINK;
    }
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
    if (at_us < until_us) {
        snprintf(ret_text, CLAUSE_SIZE,
                 "it is sent again with the same issuer key, which gives the same card, since an earlier send may have "
                 "arrived; that is safe until %s",
                 print_time(until_us, until));
        return OUTLOOK_ATTEMPT;
    }
    snprintf(
        ret_text, CLAUSE_SIZE,
        "the issuer is asked whether there is a card and nothing is sent, since an earlier send may have arrived and "
        "the issuer key is past its lifetime since %s",
        print_time(until_us, until));
    return OUTLOOK_LOOK_UP;
}

void outlook_replay(const struct event *event, const struct config *config, char *ret_text, size_t size)
{
    char clause[CLAUSE_SIZE];
    struct event reopened = *event; /* what a replay resets; that the card will be cancelled stays */
    reopened.held_end = reopened.held_end_code = NULL;
    reopened.lost_count = 0;
    (void)attempt_clause(&reopened, true, config, event->now_us, clause);
    snprintf(ret_text, size, "%s", clause);
}

/* ---- each status ---- */

/* Why the event is not worked on now. */
static void schedule_clause(const struct event *event, const struct outlook_past *past, const struct config *config,
                            char *ret_text, size_t size)
{
    char code_text[OUTLOOK_CODE_SIZE], span[PRINT_SPAN_SIZE];
    int64_t late_us = event->now_us - event->next_attempt_us;
    bool is_alone = event->lost_count >= OUTBOX_LOST_ALONE;
    if (past->last_code)
        outlook_code(past->last_code, code_text);
    if (late_us > OVERDUE_US)
        snprintf(ret_text, size, "it has been due for %s: is a worker running, and is its breaker closed?%s",
                 print_span(late_us, span), is_alone ? " It is tried alone, when a worker holds no other event" : "");
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
                 (long long)config->retry.max_attempts, past->last_code, code_text);
}

static void pending(const struct event *event, const struct outlook_past *past, const struct config *config,
                    struct outlook *out)
{
    char clause[CLAUSE_SIZE], schedule[420];
    if (event->type && strcmp(event->type, OUTBOX_EVENT_TYPE) != 0) {
        snprintf(out->why, sizeof(out->why), "no worker takes events of this type, only " OUTBOX_EVENT_TYPE);
        return;
    }
    bool is_late = event->now_us > event->next_attempt_us;
    out->at_us = event->next_attempt_us;
    out->action = attempt_clause(event, past->any || event->retry_count > 0 || event->lost_count > 0, config,
                                 is_late ? event->now_us : event->next_attempt_us, clause);
    schedule_clause(event, past, config, schedule, sizeof(schedule));
    snprintf(out->why, sizeof(out->why), "%s; then %s", schedule, clause);
}

static void processing(const struct event *event, struct outlook *out)
{
    const char *worker = event->lease_owner ? event->lease_owner : "?";
    char time[PRINT_TIME_SIZE];
    int64_t lost_count = event->lost_count + 1; /* once its lease has run out */
    out->at_us = event->lease_until_us;
    print_time(event->lease_until_us, time);
    if (event->lease_until_us > event->now_us) {
        out->action = OUTLOOK_WAIT;
        snprintf(out->why, sizeof(out->why),
                 "worker %.100s holds it and works on it; should it die, others may take over after %s", worker, time);
        return;
    }
    out->action = OUTLOOK_TAKE_OVER;
    snprintf(out->why, sizeof(out->why), "the lease of worker %.100s ran out at %s: the next worker that looks %s",
             worker, time,
             lost_count >= OUTBOX_LOST_MAX
                 ? "ends it FAILED worker_lost, since that is the fifth attempt in a row that was lost"
             : lost_count >= OUTBOX_LOST_ALONE ? "gives it back, to be tried alone"
                                               : "takes it over");
}

static void failed(const struct event *event, const struct config *config, struct outlook *out)
{
    char clause[CLAUSE_SIZE];
    const char *code = event->reason_code ? event->reason_code : "", *first = "";
    outlook_replay(event, config, clause, sizeof(clause));
    if (strcmp(code, "payload_invalid") == 0)
        first = "its payload must be corrected first, or it fails again; ";
    else if (strcmp(code, "issuer_duplicate") == 0)
        first = "all but one of the cards must be cancelled at the issuer first, or it fails again; ";
    out->action = OUTLOOK_OPERATOR;
    snprintf(out->why, sizeof(out->why),
             "no worker touches it until an operator replays, reconciles, reissues or resolves it; %safter a replay %s",
             first, clause);
}

void outlook_of(const struct event *event, const struct outlook_past *past, const struct config *config,
                struct outlook *ret_outlook)
{
    *ret_outlook = (struct outlook){.action = OUTLOOK_NONE};
    switch (event->status) {
    case OUTBOX_PENDING:
        pending(event, past, config, ret_outlook);
        return;
    case OUTBOX_PROCESSING:
        processing(event, ret_outlook);
        return;
    case OUTBOX_COMPLETED:
        snprintf(ret_outlook->why, sizeof(ret_outlook->why), "it is completed: the card is stored and linked");
        return;
    case OUTBOX_REJECTED:
        snprintf(ret_outlook->why, sizeof(ret_outlook->why), "%s",
                 event->reason_code && strcmp(event->reason_code, "reissued") == 0
                     ? "it was replaced by a new event, which its reason names"
                     : "it was definitely refused, and no usable card exists");
        return;
    case OUTBOX_FAILED:
        failed(event, config, ret_outlook);
        return;
    }
}
