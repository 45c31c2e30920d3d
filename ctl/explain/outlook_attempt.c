/* See outlook_attempt.h.
 *
 * Invariants: nothing is said that the decision does not say. "No earlier request" is said only while no send is on
 * record that may have arrived. The time until which a key may be used is the latest possible one where the
 * configuration does not have the route. */
#include "ctl/explain/outlook_attempt.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/core/issuer_key.h"
#include "common/core/issuer/issuer.h"
#include "ctl/print.h"

/* ---- the row, as a worker would have it ---- */

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
    return route ? attempt_rules_of_route(config, route).settle_time_ms : OUTLOOK_ROUTE_SETTLE_MAX_MS;
}

static struct attempt_rules rules_of(const struct config *config, const struct cluster_route *route)
{
    if (!route)
        return issuer_attempt_rules(config, issuer_profile_of(config));
    static char some_url[] = "";
    const struct config_route *own = configured(config, route->type);
    const struct config_route registered = {
        .timeout_ms = own ? own->timeout_ms : 0,
        /* guard: explain announces no delivery past the lifetime of its key */
        .key_lifetime_ms = route->key_lifetime_ms,
        .max_attempts = route->max_attempts,
        .lookup_url = route->has_lookup ? some_url : NULL,
        .retry_base_ms = own ? own->retry_base_ms : config->retry.base_ms,
        .retry_cap_ms = own ? own->retry_cap_ms : config->retry.cap_ms,
        .retry_for_ms = own ? own->retry_for_ms : 0,
        .on_refused = own                ? own->on_refused
                      : route->is_signed ? ON_REFUSED_QUESTION
                                         : ON_REFUSED_REJECT,
    };
    return attempt_rules_of_route(config, &registered);
}

/* -1 = there is no such time. */
static int64_t age_ms(int64_t at_us, int64_t since_us)
{
    return since_us == 0 ? -1 : at_us > since_us ? (at_us - since_us) / 1000 : 0;
}

void outlook_attempt_fill(const struct event *event, const struct cluster_route *route, const struct config *config,
                          int64_t at_us, struct attempt *ret_attempt, struct view *ret_view)
{
    *ret_view = (struct view){
        .rules = rules_of(config, route),
        .wall_us = at_us,
        .steady_ms = INT64_MAX / 2, /* the worker's view of the database's clock is not known */
    };
    *ret_attempt = (struct attempt){
        .event_id = event->id,
        .number = (int)event->retry_count + 1,
        .sent_age_ms = age_ms(at_us, event->first_sent_us),
        .deferred_age_ms = age_ms(at_us, event->deferred_since_us),
        .settle_age_ms = age_ms(at_us, event->first_sent_us != 0 ? event->last_sent_us : 0),
        .changed_age_ms = age_ms(at_us, event->updated_us),
        .accepted_age_ms = age_ms(at_us, event->created_us),
        .lost_count = (int)event->lost_count,
        .deferral_count = (int)event->deferral_count,
        .is_readable = true, /* only the worker reads it */
        .is_saved = event->has_card,
        .is_reissue = event->kind && strcmp(event->kind, "reissue") == 0,
        .wall_offset_us = at_us,
    };
    snprintf(ret_attempt->deferral_code, sizeof(ret_attempt->deferral_code), "%s",
             event->deferral_code ? event->deferral_code : "");
    /* guard: explain says that nothing is sent while an end is held */
    /* guard: explain says that a card will be cancelled */
    attempt_set_end(ret_attempt, event->held_end, event->held_end_code, event->cancel_code);
}

/* ---- the decision in words ---- */

/* What a row of the table needs beside step and reason. */
enum {
    IS_HELD = 1,     /* the end is decided, and waits */
    IS_UNKNOWN = 2,  /* an earlier send may have arrived */
    IS_EXPIRED = 4,  /* and its key is past its lifetime */
    IS_REPEATED = 8, /* an attempt was made before, or may have been */
    IS_TRUSTED = 16, /* the key makes a repeat harmless */
    CLOSES_OLD = 32, /* a reissue, at an issuer where the worker closes the card that is replaced */
};

/* The first row that fits. What stands in braces is filled in by say(). */
static const struct {
    enum flow_step step;       /* STEP_COUNT: the attempt ends at once */
    enum lookup_reason reason; /* LOOKUP_REASONS: any */
    unsigned needs;
    enum outlook_action action;
    const char *text;
} rows[] = {
    {STEP_LOOKUP, LOOKUP_DUPLICATE, 0, OUTLOOK_LOOK_UP,
     "the issuer is asked first which cards it has, since it has shown more than one, and nothing is sent, stored or "
     "linked before it shows exactly one{ours}, which is then {use}; several or none: it ends FAILED issuer_duplicate "
     "again"},
    {STEP_LOOKUP, LOOKUP_CARD_SEEN, 0, OUTLOOK_CANCEL,
     "the card that the issuer shows is looked up and cancelled there, and the event ends REJECTED {code}; nothing is "
     "sent"},
    {STEP_CANCEL, LOOKUP_REASONS, 0, OUTLOOK_CANCEL,
     "the card is cancelled at the issuer{done}, core-api is notified that it is gone, and the event ends REJECTED "
     "{code}; nothing is sent"},
    {STEP_LINK, LOOKUP_REASONS, CLOSES_OLD, OUTLOOK_LINK,
     "the link in core-api is made, since the card is stored, and the card that it replaces is closed at the issuer; "
     "no card is asked for"},
    {STEP_LINK, LOOKUP_REASONS, 0, OUTLOOK_LINK,
     "only the link in core-api is left to make, since the card is stored; the issuer is not asked again"},
    {STEP_LOOKUP, LOOKUP_BEFORE_SENDING, IS_HELD, OUTLOOK_LOOK_UP,
     "the issuer is asked whether there is a card before anything is sent, since an operator said that the event "
     "belongs to it (adopt): a card that is found is stored and linked; none found, it is sent"},
    {STEP_LOOKUP, LOOKUP_INELIGIBLE, IS_HELD, OUTLOOK_LOOK_UP,
     "the issuer is asked whether there is a card and nothing is sent, since its end is decided ({cause}) and an "
     "earlier send may still arrive until {settled}: a card that is found is cancelled; none found after that time, "
     "{end}"},
    {STEP_LOOKUP, LOOKUP_REASONS, IS_HELD, OUTLOOK_LOOK_UP,
     "the issuer is asked whether there is a card and nothing is sent, since its end is decided ({cause}) and an "
     "earlier send may still arrive until {settled}: a card that is found is stored and linked; none found after that "
     "time, {end}"},
    {STEP_LOOKUP, LOOKUP_WORKER_LOST, 0, OUTLOOK_LOOK_UP,
     "the issuer is asked whether there is a card and nothing is sent, since {lost} attempts in a row were lost with "
     "their worker; none found, {end}"},
    {STEP_LOOKUP, LOOKUP_BEFORE_SENDING, IS_TRUSTED, OUTLOOK_ATTEMPT,
     "the issuer is asked whether there is a card, since an earlier send may have arrived and the event is older than "
     "the issuer key lives: a card that is found is stored and linked; none found, it is sent again with the same "
     "issuer key, not before {settled}, when the last send has settled"},
    {STEP_LOOKUP, LOOKUP_BEFORE_SENDING, 0, OUTLOOK_ATTEMPT,
     "the issuer is asked whether there is a card, since an earlier send may have arrived and the issuer key does not "
     "make a repeat harmless there: a card that is found is stored and linked; none found, it is sent again, not "
     "before {settled}, when the last send has settled{only}"},
    {STEP_LOOKUP, LOOKUP_FIRST, IS_UNKNOWN, OUTLOOK_ATTEMPT,
     "the issuer is asked whether there is a card, since an earlier send may have arrived: a card that is found is "
     "stored and linked; none found, it is sent again with the same issuer key, which gives the same card; that is "
     "safe {limit}"},
    {STEP_LOOKUP, LOOKUP_FIRST, 0, OUTLOOK_ATTEMPT,
     "the issuer is asked whether there is a card, since the event is older than the issuer key lives, and a database "
     "that was restored may lack an earlier send: a card that is found is stored and linked; none found, it is sent"},
    {STEP_LOOKUP, LOOKUP_REASONS, IS_EXPIRED, OUTLOOK_LOOK_UP,
     "the issuer is asked whether there is a card and nothing is sent, since an earlier send may have arrived and the "
     "issuer key is past its lifetime since {until}"},
    {STEP_LOOKUP, LOOKUP_REASONS, 0, OUTLOOK_LOOK_UP,
     "the issuer is asked whether there is a card and nothing is sent, since an earlier send may have arrived and no "
     "attempt is left; none found, {end}"},
    {STEP_ISSUE, LOOKUP_REASONS, IS_UNKNOWN, OUTLOOK_ATTEMPT,
     "it is sent again with the same issuer key, which gives the same card, since an earlier send may have arrived; "
     "that is safe {limit}"},
    {STEP_ISSUE, LOOKUP_REASONS, IS_REPEATED, OUTLOOK_ATTEMPT,
     "the issuer is asked for the card; no earlier request can have made one: each, if there was any, was refused or "
     "did not reach the issuer"},
    {STEP_ISSUE, LOOKUP_REASONS, 0, OUTLOOK_ATTEMPT,
     "the issuer is asked for the card for the first time, since no attempt has been made so far"},

    {STEP_ASK, LOOKUP_REASONS, IS_HELD, OUTLOOK_ASK,
     "the receiver is asked whether it was executed and nothing is sent, since its end is decided ({cause}) and an "
     "earlier send may still arrive until {settled}: executed, it ends COMPLETED; not executed after that time, {end}"},
    {STEP_ASK, LOOKUP_WORKER_LOST, 0, OUTLOOK_ASK,
     "the receiver is asked whether it was executed and nothing is sent, since {lost} attempts in a row were lost with "
     "their worker"},
    {STEP_ASK, LOOKUP_BEFORE_SENDING, 0, OUTLOOK_ASK,
     "the receiver is asked whether it was executed, since an earlier send may have been executed and the event is "
     "older than the key lives: not executed, it is sent again with the same key, not before {settled}, when the last "
     "send has settled"},
    {STEP_ASK, LOOKUP_REASONS, IS_EXPIRED, OUTLOOK_ASK,
     "the receiver is asked whether it was executed and nothing is sent, since an earlier send may have been executed "
     "and the key is past its lifetime since {until}: executed, it ends COMPLETED; not executed, {end}"},
    {STEP_ASK, LOOKUP_REASONS, 0, OUTLOOK_ASK,
     "the receiver is asked whether it was executed and nothing is sent, since an earlier send may have been executed "
     "and no attempt is left: executed, it ends COMPLETED; not executed, {end}"},
    {STEP_DELIVER, LOOKUP_REASONS, IS_UNKNOWN, OUTLOOK_DELIVER,
     "it is sent again with the same key, since an earlier send may have been executed: a receiver that honours the "
     "key executes it once. It may be sent {latest}"},
    {STEP_DELIVER, LOOKUP_REASONS, IS_REPEATED, OUTLOOK_DELIVER,
     "it is delivered; no earlier request can have been executed: each, if there was any, was refused or did not reach "
     "the receiver"},
    {STEP_DELIVER, LOOKUP_REASONS, 0, OUTLOOK_DELIVER,
     "it is delivered for the first time, since no attempt has been made so far"},

    {STEP_COUNT, LOOKUP_REASONS, IS_EXPIRED, OUTLOOK_END,
     "{end} and nothing is sent, since an earlier send may have been executed, the key is past its lifetime "
     "since {until}, and the route has no lookup_url"},
    {STEP_COUNT, LOOKUP_REASONS, IS_UNKNOWN, OUTLOOK_END,
     "{end} and nothing is sent, since an earlier send may have been executed and the route has no lookup_url"},
    {STEP_COUNT, LOOKUP_REASONS, 0, OUTLOOK_END,
     "{end} and nothing is sent, since its last attempt was lost with its worker"},
};

/* Why an end is held: of a card request, of a delivery. */
static const struct {
    const char *card, *delivery;
} causes[LOOKUP_REASONS] = {
    [LOOKUP_BEFORE_SENDING] = {NULL, "it is looked up first"},
    [LOOKUP_EXHAUSTED] = {"all attempts are used up", "all attempts are used up"},
    [LOOKUP_KEY_EXPIRED] = {"the issuer key is past its lifetime", "the key is past its lifetime"},
    [LOOKUP_KEY_SPENT] = {"the issuer repeats a failure that it keeps under the key", "it was refused"},
    [LOOKUP_INELIGIBLE] = {"core-api answered that the user may have no card", "it was refused"},
    [LOOKUP_REFUSED] = {"the issuer refused", "the receiver refused"},
    [LOOKUP_UNFORESEEN] = {"a peer gave an answer that was not foreseen",
                           "the receiver gave an answer that was not foreseen"},
    [LOOKUP_WORKER_LOST] = {"attempts were lost with their worker", "attempts were lost with their worker"},
    [LOOKUP_DUPLICATE] = {NULL, "it is looked up first"},
};

/* The words for what stands in braces. */
enum word { CAUSE, CODE, END, LOST, SETTLED, UNTIL, LIMIT, LATEST, ONLY, OURS, DONE, USE, WORDS };
static const char *const names[WORDS] = {"{cause}", "{code}",   "{end}",  "{lost}", "{settled}", "{until}",
                                         "{limit}", "{latest}", "{only}", "{ours}", "{done}",    "{use}"};
#define WORD_SIZE 96

/* What happens now if the attempt ends at once, or after a look-up that finds nothing. */
static void put_end(const struct attempt *attempt, const struct view *view, struct flow_verdict verdict,
                    char ret_text[WORD_SIZE])
{
    struct attempt then = *attempt;
    if (verdict.kind == FLOW_GO) {
        then.settle_age_ms = -1;
        verdict = decide_not_found(&then, view);
    }
    if (verdict.kind == FLOW_FAIL || verdict.kind == FLOW_REJECT)
        snprintf(ret_text, WORD_SIZE, "it ends %s %s",
                 outbox_status_name(verdict.kind == FLOW_FAIL ? OUTBOX_FAILED : OUTBOX_REJECTED), verdict.code);
    else
        snprintf(ret_text, WORD_SIZE, "%s", verdict.kind == FLOW_GO ? "it is sent" : "it is asked again");
}

static void find_words(const struct event *event, const struct attempt *attempt, const struct view *view,
                       struct flow_verdict verdict, char words[WORDS][WORD_SIZE])
{
    const struct attempt_rules *rules = &view->rules;
    int64_t sendable_ms = issuer_key_sendable_ms(rules->key_lifetime_ms, rules->timeout_ms, rules->settle_time_ms);
    bool is_bounded = sendable_ms != INT64_MAX;
    bool is_cancelled = event->card_status && strcmp(event->card_status, "cancelled") == 0;
    char until[PRINT_TIME_SIZE] = "";
    const char *cause =
        rules->send == STEP_ISSUE ? causes[attempt->lookup_reason].card : causes[attempt->lookup_reason].delivery;
    if (is_bounded)
        print_time(event->first_sent_us + 1000 * sendable_ms, until);
    print_time(event->last_sent_us + 1000 * rules->settle_time_ms, words[SETTLED]);
    put_end(attempt, view, verdict, words[END]);
    snprintf(words[CAUSE], WORD_SIZE, "%s", cause ? cause : attempt->held_end);
    snprintf(words[CODE], WORD_SIZE, "%s", attempt->pending_code);
    snprintf(words[LOST], WORD_SIZE, "%d", attempt->lost_count);
    snprintf(words[UNTIL], WORD_SIZE, "%s", until);
    snprintf(words[LIMIT], WORD_SIZE, "%s%s", is_bounded ? "until " : "without a time limit", until);
    snprintf(words[LATEST], WORD_SIZE, "%s%s", words[LIMIT], is_bounded ? " at the latest" : "");
    snprintf(words[ONLY], WORD_SIZE, "%s%s", is_bounded ? ", and only until " : "", until);
    snprintf(words[OURS], WORD_SIZE, "%s", event->has_card ? ", the stored one" : "");
    snprintf(words[DONE], WORD_SIZE, "%s", is_cancelled ? " (that is done; once more does no harm)" : "");
    snprintf(words[USE], WORD_SIZE, "%s",
             event->cancel_code ? "cancelled"
             : event->has_card  ? "linked"
                                : "stored and linked");
}

static void say(const char *text, char words[WORDS][WORD_SIZE], char ret_text[OUTLOOK_CLAUSE_SIZE])
{
    size_t length = 0;
    while (*text && length + 1 < OUTLOOK_CLAUSE_SIZE) {
        size_t plain = strcspn(text, "{"), named = text[plain] ? strcspn(text + plain, "}") + 1 : 0;
        int i = 0;
        while (i < WORDS && !slice_is((struct slice){text + plain, named}, names[i]))
            i++;
        snprintf(ret_text + length, OUTLOOK_CLAUSE_SIZE - length, "%.*s%.*s", (int)plain, text, WORD_SIZE - 1,
                 i < WORDS ? words[i] : "");
        length += strlen(ret_text + length);
        text += plain + named;
    }
}

enum outlook_action outlook_attempt(const struct event *event, const struct cluster_route *route, bool any_attempt,
                                    const struct config *config, int64_t at_us, char ret_text[OUTLOOK_CLAUSE_SIZE])
{
    struct attempt attempt;
    struct view view;
    char words[WORDS][WORD_SIZE];
    outlook_attempt_fill(event, route, config, at_us, &attempt, &view);
    struct flow_verdict verdict = decide_plan(&attempt, &view);
    enum flow_step step = verdict.kind == FLOW_GO ? verdict.step : STEP_COUNT;
    unsigned is = (attempt.end_is_held ? IS_HELD : 0) | (attempt.unknown ? IS_UNKNOWN : 0) |
                  (attempt.unknown && attempt_is_expired(&attempt, &view) ? IS_EXPIRED : 0) |
                  (any_attempt ? IS_REPEATED : 0) | (view.rules.key_is_trusted ? IS_TRUSTED : 0) |
                  (attempt.is_reissue && view.rules.retires ? CLOSES_OLD : 0);
    size_t i = 0;
    while (rows[i].step != step || (rows[i].reason != LOOKUP_REASONS && rows[i].reason != attempt.lookup_reason) ||
           (rows[i].needs & is) != rows[i].needs)
        if (++i == ARRAY_SIZE(rows)) {
            assert(!"each first step has a row");
            return OUTLOOK_NONE;
        }
    find_words(event, &attempt, &view, verdict, words);
    say(rows[i].text, words, ret_text);
    return rows[i].action;
}
