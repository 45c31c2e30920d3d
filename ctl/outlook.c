/* What will happen to an event next, when, and why.
 *
 * Invariants: says only what the row and the configuration show; the worker decides by the same columns, so both agree
 * as long as both read the same configuration. Times are the database's.
 * Left out: the breakers, which live in the workers' memory. */
#include "ctl/outlook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN_MAX_MS (5 * 60 * 1000)
#define LATE_US (INT64_C(60) * 1000 * 1000)

int64_t outlook_sendable_until_us(const struct event *event, const struct config *config)
{
    if (event->first_sent_us == 0)
        return 0;
    int64_t lifetime_ms = config->issuer.key_lifetime_ms;
    int64_t margin_ms = lifetime_ms / 10 > config->issuer.timeout_ms ? lifetime_ms / 10 : config->issuer.timeout_ms;
    if (margin_ms > MARGIN_MAX_MS)
        margin_ms = MARGIN_MAX_MS;
    return event->first_sent_us + (lifetime_ms - margin_ms) * 1000;
}

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

static const char *status_reading(int status)
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

void outlook_code(const char *code, char *ret_text, size_t size)
{
    static const struct {
        const char *code, *text;
    } readings[] = {
        {"issuer_unreachable", "the issuer could not be reached; nothing was sent"},
        {"issuer_no_answer", "the issuer did not answer in time; it may have made the card"},
        {"issuer_unreadable", "the issuer's answer could not be understood; it may have made the card"},
        {"core_unreachable", "core-api could not be reached"},
        {"core_no_answer", "core-api did not answer in time"},
        {"core_unreadable", "core-api's answer could not be understood"},
        {"breaker_open", "calls are paused after failures in a row, of any event"},
        {"write_failed", "our database did not take the write in time; if it was a card, the issuer has it"},
        {"settling",
         "a request that was sent may still arrive at the issuer; what is not found there now decides nothing"},
        {"target_resting",
         "the issuer or core-api answered that it gets too many requests, and nothing is sent for a while"},
        {"seal_failed", "the card number could not be encrypted: check card.keys_file; the issuer has the card"},
        {"out_of_memory", "the worker ran out of memory"},
        {"drain", "the worker was shutting down"},
        {"lease_expired", "the worker died, hung or was cut off; another one took over"},
        {"user_not_found", "core-api does not know the user"},
        {"issuer_refused", "the issuer refused, without a code of its own"},
        {"core_refused", "core-api refused, without a code of its own"},
        {"issuer_key_expired",
         "whether the card was made could not be established within the lifetime of the issuer key"},
        {"issuer_duplicate", "the issuer shows more than one active card for this event"},
        {"attempts_exhausted", "all attempts were used up"},
        {"link_refused", "core-api refused to link the card"},
        {"card_cancelled", "the issuer has only a cancelled card for this event"},
        {"cancel_failed", "the issuer did not let us cancel the card"},
        {"payload_invalid", "the payload is no valid request body"},
        {"cancelled", "an operator cancelled it"},
        {"reissued", "an operator replaced it by a new event"},
        {"resolved", "an operator ended it: no card"},
        {"outcome_unknown",
         "whether the card was made could not be established: look-ups stayed unreadable or were refused"},
        {"worker_lost", "attempts over it were lost with their worker again and again: the event may be what kills it"},
    };
    const char *peer;
    int status = http_status(code, &peer);
    if (status != 0) {
        snprintf(ret_text, size, "%s answered %d: it %s", peer, status, status_reading(status));
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(readings); i++) {
        if (strcmp(readings[i].code, code) == 0) {
            snprintf(ret_text, size, "%s", readings[i].text);
            return;
        }
    }
    snprintf(ret_text, size, "the code is the issuer's or core-api's own");
}

/* What the coming attempt does, as a clause, and the word for it. at_us: when it would be made. */
static const char *attempt_clause(const struct event *event, const struct config *config, int64_t at_us, char *ret_text,
                                  size_t size)
{
    char until[PRINT_TIME_SIZE];
    int64_t until_us = outlook_sendable_until_us(event, config);
    if (event->has_card) {
        snprintf(ret_text, size,
                 "only the link in core-api is left to make, since the card is stored; the issuer is not asked again");
        return "link";
    }
    if (until_us == 0) {
        snprintf(ret_text, size, "it is sent to the issuer for the first time, since nothing was sent so far");
        return "attempt";
    }
    if (at_us < until_us) {
        snprintf(ret_text, size,
                 "it is sent again with the same issuer key, which gives the same card, since an earlier send may have "
                 "arrived; that is safe "
                 "until %s",
                 print_time(until_us, until));
        return "attempt";
    }
    snprintf(ret_text, size,
             "the issuer is asked whether there is a card and nothing is sent, since an earlier send may have arrived "
             "and the issuer key is past "
             "its lifetime since %s",
             print_time(until_us, until));
    return "look_up";
}

void outlook_replay(const struct event *event, const struct config *config, char *ret_text, size_t size)
{
    (void)attempt_clause(event, config, event->now_us, ret_text, size);
}

static void pending(const struct event *event, const struct outlook_past *past, const struct config *config,
                    struct outlook *out)
{
    char clause[320], reading[160], schedule[256] = "", span[PRINT_SPAN_SIZE];
    if (event->type && strcmp(event->type, OUTBOX_EVENT_TYPE) != 0) {
        *out = (struct outlook){.action = "none"};
        snprintf(out->why, sizeof(out->why), "no worker takes events of this type, only " OUTBOX_EVENT_TYPE);
        return;
    }
    int64_t late_us = event->now_us - event->next_attempt_us;
    out->at_us = event->next_attempt_us;
    out->action = attempt_clause(event, config, late_us > 0 ? event->now_us : out->at_us, clause, sizeof(clause));
    if (late_us > LATE_US)
        snprintf(schedule, sizeof(schedule), "it is due since %s: is a worker running, and is its breaker closed?",
                 print_span(late_us, span));
    else if (late_us > 0)
        snprintf(schedule, sizeof(schedule), "it is due: the next worker with room takes it");
    else if (past->outcome && strcmp(past->outcome, "deferred") == 0 && past->code) {
        outlook_code(past->code, reading, sizeof(reading));
        snprintf(schedule, sizeof(schedule), "it waits for a cause outside this event (%s: %s)", past->code, reading);
    } else if (past->outcome && past->code) {
        outlook_code(past->code, reading, sizeof(reading));
        snprintf(schedule, sizeof(schedule), "it waits after attempt %lld of %lld (%s: %s)",
                 (long long)event->retry_count, (long long)config->retry.max_attempts, past->code, reading);
    } else {
        snprintf(schedule, sizeof(schedule), "its time has not come");
    }
    snprintf(out->why, sizeof(out->why), "%s; then %s", schedule, clause);
}

static void processing(const struct event *event, struct outlook *out)
{
    const char *worker = event->lease_owner ? event->lease_owner : "?";
    char time[PRINT_TIME_SIZE];
    out->at_us = event->lease_until_us;
    print_time(event->lease_until_us, time);
    if (event->lease_until_us > event->now_us) {
        out->action = "wait";
        snprintf(out->why, sizeof(out->why),
                 "worker %.100s holds it and works on it; should it die, others may take over after %s", worker, time);
    } else {
        out->action = "take_over";
        snprintf(out->why, sizeof(out->why),
                 "the lease of worker %.100s ran out at %s: the next worker that looks takes it over", worker, time);
    }
}

static void failed(const struct event *event, const struct config *config, struct outlook *out)
{
    char clause[320];
    const char *code = event->reason_code ? event->reason_code : "", *first = "";
    outlook_replay(event, config, clause, sizeof(clause));
    if (strcmp(code, "payload_invalid") == 0)
        first = "its payload must be corrected first, or it fails again; ";
    else if (strcmp(code, "issuer_duplicate") == 0)
        first = "all but one of the cards must be cancelled at the issuer first, or it fails again; ";
    out->action = "operator";
    snprintf(out->why, sizeof(out->why),
             "no worker touches it until an operator replays, reconciles, reissues or resolves it; %safter a replay %s",
             first, clause);
}

void outlook_of(const struct event *event, const struct outlook_past *past, const struct config *config,
                struct outlook *ret_outlook)
{
    *ret_outlook = (struct outlook){.action = "none"};
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
