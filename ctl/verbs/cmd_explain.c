/* issuing-ctl explain: what happened to one event, what will happen next and when, and why.
 *
 * For people: attempts and operators' actions in the order of time; of attempts in a row that ended in the same way
 * only the first is shown, with their number. For programs: the event with all attempts, all actions, and what is
 * next. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/explain/story.h"
#include "ctl/explain/story_json.h"
#include "ctl/explain/what_if.h"
#include "ctl/options.h"
#include "ctl/print.h"

/* ---- for programs ---- */

static struct json *case_json(const struct what_if_case *one, int case_count)
{
    bool waits = one->kind == FLOW_RETRY || one->kind == FLOW_DEFER;
    return JSON_OBJECT(
        case_count == 1 ? json_null("others_answered") : json_flag("others_answered", one->others_are_answered),
        json_text("then", what_if_kind_name(one->kind)),
        json_text("step", one->kind == FLOW_GO ? flow_step_name(one->step) : NULL),
        json_text("code", one->code[0] ? one->code : NULL),
        waits ? json_number("least_ms", one->least_ms) : json_null("least_ms"),
        waits ? json_number("most_ms", one->most_ms) : json_null("most_ms"), json_text("text", one->text));
}

static struct json *what_if_json(const struct what_if *what_if)
{
    struct json *cases = json_new_array();
    for (int i = 0; i < what_if->case_count; i++)
        json_append(&cases, case_json(&what_if->cases[i], what_if->case_count));
    return JSON_OBJECT(json_tree("cases", cases), json_text("call", flow_step_name(what_if->step)),
                       json_text("outcome", outcome_kind_name(what_if->outcome.kind)));
}

/* what_if NULL: it was not asked for. */
static bool print_as_json(const struct story *story, const struct what_if *what_if, struct err *err)
{
    struct json *object = event_json(&story->event);
    if (what_if)
        json_add(&object, json_tree("what_if", what_if_json(what_if)));
    story_json(&object, story);
    return print_json(object, err);
}

/* ---- for people ---- */

#define INDENT "\n                          "

static void print_attempt(const struct event *event, const struct pg_rows *rows, int row)
{
    char time[PRINT_TIME_SIZE], code_text[OUTLOOK_CODE_SIZE], ended[STORY_WORDS_SIZE];
    const char *code = pg_text(rows, row, CODE), *detail = pg_text(rows, row, DETAIL),
               *worker = pg_text(rows, row, WORKER);
    printf("  %s  attempt %" PRId64 " by ", print_time(pg_time_us(rows, row, ENDED_AT), time),
           pg_int8(rows, row, ATTEMPT));
    print_text(worker ? worker : "?", stdout);
    story_outcome(rows, row, ended);
    printf(" %s", ended);
    if (code) {
        outlook_code(event, code, code_text);
        fputs(INDENT, stdout);
        print_text(code, stdout);
        printf(": %s", code_text);
    }
    if (detail && detail[0]) {
        fputs(INDENT "detail: ", stdout);
        print_text(detail, stdout);
    }
    if (story_becomes_unknown(rows, row))
        printf(INDENT "from here on %s", story_unknown_words(event));
    putchar('\n');
}

static void print_action(const struct pg_rows *rows, int row)
{
    char time[PRINT_TIME_SIZE];
    const char *action = pg_text(rows, row, ACTION), *words = story_action_words(action),
               *reason = pg_text(rows, row, REASON);
    printf("  %s  ", print_time(pg_time_us(rows, row, AT), time));
    print_text(words ? words : action, stdout);
    fputs(words ? " " : " by ", stdout);
    print_text(pg_text(rows, row, ACTOR), stdout);
    if (pg_text(rows, row, DB_ROLE)) {
        fputs(" (database role ", stdout);
        print_text(pg_text(rows, row, DB_ROLE), stdout);
        putchar(')');
    }
    if (reason) {
        fputs(": ", stdout);
        print_text(reason, stdout);
    }
    putchar('\n');
}

static void print_history(const struct story *story)
{
    const struct pg_rows *attempts = story->attempts, *actions = story->actions;
    int attempt = pg_rows_count(attempts) - 1, action = 0;
    char time[PRINT_TIME_SIZE];
    if (attempt + 1 == STORY_ATTEMPTS_MAX)
        puts("  (older attempts are not shown)");
    while (attempt >= 0 || action < pg_rows_count(actions)) {
        int64_t action_us = action < pg_rows_count(actions) ? pg_time_us(actions, action, AT) : INT64_MAX;
        if (attempt < 0 || action_us < pg_time_us(attempts, attempt, ENDED_AT)) {
            print_action(actions, action++);
            continue;
        }
        print_attempt(&story->event, attempts, attempt);
        int more = story_like_this(attempts, attempt, action_us);
        if (more > 1) {
            attempt -= more;
            printf("  %-20s  and %d more that ended like this, the last at %s\n", "...", more,
                   print_time(pg_time_us(attempts, attempt, ENDED_AT), time));
        }
        attempt--;
    }
}

/* By what other names the issuer, the client and other services know it. */
static void print_names(const struct event *event)
{
    if (event->replaces) {
        fputs("It replaces the card ", stdout);
        print_text(event->replaces, stdout);
        if (event->replaced_last4)
            printf(", ending in %s, %s", event->replaced_last4, event->replaced_status);
        if (event->because)
            fputs(", because that one is ", stdout), print_text(event->because, stdout);
        fputs(".\n", stdout);
    }
    if (event->issuer_card_id) {
        fputs("The issuer calls its card ", stdout);
        print_text(event->issuer_card_id, stdout);
        fputs(".\n", stdout);
    }
    if (event->traceparent) {
        char trace_url[EVENT_TRACE_URL_SIZE];
        event_trace_url(event, trace_url);
        fputs("The traceparent is ", stdout);
        print_text(event->traceparent, stdout);
        printf(".%s%s\n", trace_url[0] ? " Its trace: " : "", trace_url);
    }
}

/* We hold no card, and the issuer has one: its number was refused. */
static bool is_card_known(const struct event *event)
{
    return event->outcome_unknown && event->reason_code && strcmp(event->reason_code, "reveal_refused") == 0;
}

static void print_head(const struct event *event)
{
    char time[PRINT_TIME_SIZE], page[EVENT_PAGE_SIZE];
    printf("Event %s: ", event->id_text);
    if (!event_is_card(event))
        print_text(event->type, stdout);
    else if (event->kind)
        print_text(strcmp(event->kind, "reissue") == 0 ? "a replacement card"
                   : strcmp(event->kind, "new") == 0   ? "a new card"
                                                       : event->kind,
                   stdout);
    else
        fputs("of no readable kind", stdout);
    fputs(" for user ", stdout);
    print_text(event->user_id, stdout);
    printf("\nIt is %s", event->status_text);
    if (event->completed_us != 0)
        printf(" since %s", print_time(event->completed_us, time));
    if (event->reason_code) {
        fputs(", because of ", stdout);
        print_text(event->reason_code, stdout);
    }
    fputs(".\n", stdout);
    if (event->has_card)
        printf("Its card is %s, ending in %s, %s%s%s.\n", event->card_id_text, event->last4, event->card_status,
               event->number_erased_us ? "; its number was erased at " : "",
               event->number_erased_us ? print_time(event->number_erased_us, time) : "");
    else if (is_card_known(event))
        puts("The issuer has made a card for it, which is not stored here.");
    else if (event->outcome_unknown)
        puts(event_is_card(event) ? "Whether the issuer made a card for it is unknown."
                                  : "Whether the receiver has executed it is unknown.");
    print_names(event);
    event_page(event, page);
    printf("Its page of the console is %s.\n", page);
}

/* What an operator can do with a FAILED one. */
static void print_verbs(const struct event *event, const struct cluster_route *route)
{
    bool is_card = event_is_card(event);
    printf("  To replay it: issuing-ctl replay %s --reason TEXT\n", event->id_text);
    if (event->outcome_unknown && (is_card || (route && route->has_lookup)))
        printf("  To ask the %s: issuing-ctl reconcile %s\n", is_card ? "issuer" : "receiver", event->id_text);
    if (!is_card)
        printf("  If it was not executed: issuing-ctl resolve %s%s --reason TEXT\n", event->id_text,
               event->outcome_unknown ? " --confirm-not-executed" : "");
    else if (!event->has_card)
        printf("  If there is no card: issuing-ctl reissue or resolve %s --reason TEXT\n", event->id_text);
}

/* What is known of its route. */
static void print_route(const struct event *event, const struct cluster_route *route)
{
    char time[PRINT_TIME_SIZE], span[PRINT_SPAN_SIZE];
    if (event_is_card(event))
        return;
    if (!route) {
        puts("Nobody delivers events of this type; it waits.");
        return;
    }
    printf("Its route: the key lives %s, at most %" PRId64 " attempts, %s%s%s.\n",
           print_span(route->key_lifetime_ms * 1000, span), route->max_attempts,
           route->has_lookup ? "the receiver can be asked (lookup_url)" : "no lookup_url",
           route->is_ordered ? ", ordered by user" : "", route->is_signed ? ", signed" : "");
    if (!route->is_live)
        printf("No living worker has this route; it was last named at %s.\n", print_time(route->seen_us, time));
}

static void print_next(const struct event *event, const struct outlook *outlook, const struct cluster_route *route)
{
    char time[PRINT_TIME_SIZE], span[PRINT_SPAN_SIZE];
    printf("\nWhat happens next\n  %s", outlook_action_text(outlook->action));
    if (outlook->at_us > event->now_us && outlook->action != OUTLOOK_WAIT)
        printf(", at %s (in %s)", print_time(outlook->at_us, time), print_span(outlook->at_us - event->now_us, span));
    fputs(".\n  Why: ", stdout);
    print_text(outlook->why, stdout);
    puts(".");
    if (event->status != OUTBOX_FAILED)
        return;
    print_verbs(event, route);
}

static void print_story(const struct story *story)
{
    const struct event *event = &story->event;
    const struct cluster_route *route = event->type ? cluster_find_route(&story->cluster, event->type) : NULL;
    char time[PRINT_TIME_SIZE];
    print_head(event);
    print_route(event, route);
    printf("\nWhat happened\n  %s  recorded", print_time(event->created_us, time));
    if (event->client_key) {
        fputs(" under the client's key ", stdout);
        print_text(event->client_key, stdout);
    }
    putchar('\n');
    print_history(story);
    if (event->status == OUTBOX_PROCESSING) {
        printf("  %s  taken by ", print_time(event->updated_us, time));
        print_text(event->lease_owner ? event->lease_owner : "?", stdout);
        printf(" for attempt %" PRId64 "\n", event->retry_count);
    }
    print_next(event, &story->outlook, route);
}

static void print_what_if(const struct what_if *what_if, const char *answer)
{
    printf("\nIf the answer to the next call (%s) is %s\n  The outcome is %s.\n", flow_step_name(what_if->step), answer,
           outcome_kind_name(what_if->outcome.kind));
    for (int i = 0; i < what_if->case_count; i++)
        printf("  %s%s.\n",
               what_if->case_count == 1                ? "Then "
               : what_if->cases[i].others_are_answered ? "While other events are answered well, "
                                                       : "While no other event is answered well, ",
               what_if->cases[i].text);
}

/* answer: NULL = none was given. */
static bool print_explained(struct ctl *ctl, const struct story *story, const char *answer, struct err *err)
{
    struct what_if what_if;
    const struct event *event = &story->event;
    const struct cluster_route *route = event_is_card(event) ? NULL : cluster_find_route(&story->cluster, event->type);
    if (answer && !what_if_find(event, route, ctl->config, answer, &what_if, err))
        return false;
    if (ctl->json)
        return print_as_json(story, answer ? &what_if : NULL, err);
    print_story(story);
    if (answer)
        print_what_if(&what_if, answer);
    return true;
}

static bool run_explain(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    const char *answer = NULL;
    const struct option_spec specs[] = {{.name = "what-if", .text = &answer}, {.name = NULL}};
    struct story story = {0};
    struct uuid id;
    if (!options_read(specs, arguments, count, &count, err))
        return false;
    if (count != 1)
        return err_set(err, ERR_USAGE, "explain takes one event id");
    if (!action_parse_id(arguments[0], &id, err) || !ctl_connect(ctl, err))
        return false;
    bool done = story_read(ctl, &id, &story, err) && print_explained(ctl, &story, answer, err);
    story_done(&story);
    return done;
}

#define ACTION_HELP(name, word, text) "  " #word ": " text "\n"

const struct ctl_command ctl_explain = {
    .word = "explain",
    .usage = "ID [--what-if ANSWER]",
    .summary = "what happened to an event, what happens next, and why",
    .help =
        "Shows every attempt for one event and every operator's action in order, then what happens next, when,\n"
        "and why. Whether an event may be sent again depends on issuer.profile, issuer.key_lifetime,\n"
        "issuer.timeout and issuer.settle_time, and on the timeout of a route: give issuing-ctl the worker's\n"
        "configuration. Everything else about a route is in the database: workers have written it there.\n\n"
        "--what-if ANSWER also says what follows if ANSWER is the answer to the next call to the issuer, the receiver\n"
        "or, for a link, core-api:\n" WHAT_IF_ANSWERS "\n"
        "--json adds to the event: \"attempts\": [...], \"actions\": [...], \"next\": {\"action\", \"at\", \"why\"},\n"
        "\"waits_for\" (null, or what keeps every worker from it: \"what\" is worker, route (nobody delivers the\n"
        "type), event (an earlier one of its user), pause, breaker or rest, with the state of the target),\n"
        "\"held_by\" (null, or the worker: \"name\", \"seen_at\", \"alive\") and \"route\" (null, or what it is); "
        "with\n"
        "--what-if \"what_if\": {\"call\", \"outcome\", \"cases\": [{\"others_answered\", \"then\", \"step\", "
        "\"code\",\n"
        "\"least_ms\", \"most_ms\", \"text\"}]}, two cases where it depends on how other events are answered.\n"
        "action is one of\n" OUTLOOK_ACTIONS(ACTION_HELP),
    .run = run_explain,
};
