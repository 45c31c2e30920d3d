/* See verdict.h. Each sentence has a story in tests/e2e/verdicts.py that stages its cause. */
#include "ctl/verdict.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ctl/print.h"

#define TARGETS_NAMED 3
#define KEY_LEFT_SHARE 4 /* a key is named when less than 1/KEY_LEFT_SHARE of its lifetime is left */
#define OLD_US (5 * 60 * (int64_t)1000000)
/* The same in the alert IssuingMostRejected. */
#define REJECTED_MIN 20
#define REJECTED_SHARE 2 /* 1/REJECTED_SHARE of all ends is too many */

enum pattern_column { BEGIN, USERS, OTHERS, OTHERS_TROUBLED, CAUSE, SINCE };
enum pace_column { TYPE, ENDED, MADE, PACE_SINCE, IS_CUT };

void verdict_facts_of(const struct config *config, int place, const struct pg_rows *open, const struct pg_rows *failed,
                      struct verdict_facts *ret_facts)
{
    int64_t first_sent_us = 0;
    struct backlog_type type;
    struct verdict_facts facts = {.now_us = backlog_now_us(open),
                                  .failed = backlog_failed(failed),
                                  .key_lifetime_ms = config->issuer.key_lifetime_ms,
                                  .unit = config->database.places > 1 ? place : 1,
                                  .open = open};
    if (facts.failed > 0) {
        facts.unknown = pg_int8(failed, 0, FAILED_UNKNOWN);
        first_sent_us = pg_time_us(failed, 0, FAILED_FIRST_SENT);
    }
    for (int row = 0; backlog_next(open, &row, &type);) {
        facts.pending += type.pending;
        facts.processing += type.processing;
        facts.overdue += type.overdue;
        facts.scheduled += type.scheduled;
        facts.unknown += type.unknown;
        backlog_take_earlier(&facts.overdue_us, type.overdue_us);
        backlog_take_earlier(&facts.oldest_us, type.oldest_us);
        backlog_take_earlier(&first_sent_us, type.first_sent_us);
    }
    facts.key_ends_us = first_sent_us != 0 ? first_sent_us + facts.key_lifetime_ms * 1000 : 0;
    *ret_facts = facts;
}

bool verdict_find_rejected(const struct pg_rows *rejected, char ret_text[VERDICT_SENTENCE_SIZE])
{
    char time[PRINT_TIME_SIZE];
    if (pg_rows_count(rejected) == 0)
        return false;
    int64_t count = pg_int8(rejected, 0, VERDICT_REJECTED), ended = pg_int8(rejected, 0, VERDICT_ENDED);
    snprintf(ret_text, VERDICT_SENTENCE_SIZE,
             "%" PRId64 " of %" PRId64 " events that ended since %s are REJECTED, most of them %.80s", count, ended,
             print_time(pg_time_us(rejected, 0, VERDICT_SINCE), time), pg_text(rejected, 0, VERDICT_CODE));
    return count > REJECTED_MIN && count * REJECTED_SHARE > ended;
}

/* A further sentence. What does not fit is left out: the pages below have it. */
static void __attribute__((format(printf, 2, 3))) say(struct verdict *verdict, const char *format, ...)
{
    char sentence[VERDICT_SENTENCE_SIZE];
    size_t length = strlen(verdict->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    if (length + strlen(sentence) + 3 < sizeof(verdict->text))
        snprintf(verdict->text + length, sizeof(verdict->text) - length, "%s%s.", length > 0 ? " " : "", sentence);
    if (length == 0)
        verdict->first = (int)strlen(verdict->text);
}

/* "1 event", "1,204 events", "at least 100,000 events". */
static const char *events(int64_t count, char ret_text[64])
{
    char number[PRINT_NUMBER_SIZE];
    snprintf(ret_text, 64, "%s%s event%s", count >= VERDICT_EVENTS_MAX ? "at least " : "",
             print_number(count > VERDICT_EVENTS_MAX ? VERDICT_EVENTS_MAX : count, number), count == 1 ? "" : "s");
    return ret_text;
}

/* The advice is about the first sentence. */
static void __attribute__((format(printf, 2, 3))) advise(struct verdict *verdict, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!verdict->todo[0])
        vsnprintf(verdict->todo, sizeof(verdict->todo), format, arguments);
    va_end(arguments);
}

/* The living ones come first. */
static int64_t silent_since_us(const struct cluster *cluster)
{
    int64_t since_us = cluster->now_us;
    for (int i = 0; i < cluster->alive_count && i < cluster->worker_count; i++)
        if (cluster->workers[i].is_silent && cluster->workers[i].seen_us < since_us)
            since_us = cluster->workers[i].seen_us;
    return since_us;
}

static void say_workers(struct verdict *verdict, const struct cluster *cluster, const struct verdict_facts *facts)
{
    char span[PRINT_SPAN_SIZE], time[PRINT_TIME_SIZE], count[64];
    verdict->is_grave = cluster->silent_count == cluster->alive_count;
    if (cluster->alive_count == 0)
        advise(verdict, "systemctl start issuing-worker@%d; its log says why it ended", facts->unit);
    else if (cluster->silent_count > 0)
        advise(verdict, "issuing-ctl workers, and the logs of the silent ones; a restart is safe");
    if (cluster->alive_count == 0)
        say(verdict, "No worker is alive%s%s: %s %s open and not processed", cluster->last_us != 0 ? " since " : "",
            cluster->last_us != 0 ? print_time(cluster->last_us, time) : "",
            events(facts->pending + facts->processing, count), facts->pending + facts->processing == 1 ? "is" : "are");
    else if (cluster->silent_count > 0)
        say(verdict, "%d of %d workers %s silent, for %s", cluster->silent_count, cluster->alive_count,
            cluster->silent_count == 1 ? "is" : "are", print_span(cluster->now_us - silent_since_us(cluster), span));
}

/* ": 12 events wait", or "". */
static void write_behind(const struct cluster_target *target, char *ret_text, size_t size)
{
    char count[64];
    ret_text[0] = '\0';
    if (target->backlog > 0)
        snprintf(ret_text, size, ": %s%s wait%s",
                 target->is_least && target->backlog < VERDICT_EVENTS_MAX ? "at least " : "",
                 events(target->backlog, count), target->backlog == 1 ? "s" : "");
}

/* The peer refuses every call: credentials, address, certificate. */
static bool is_refusal(const char *cause)
{
    return cause && (strstr(cause, "_http_401") || strstr(cause, "_http_403") || strstr(cause, "_http_404") ||
                     strstr(cause, "_http_405") || strstr(cause, "_http_3") || strstr(cause, "route_refuses"));
}

static void advise_target(struct verdict *verdict, const struct cluster_target *target)
{
    if (target->paused_us != 0)
        advise(verdict, "issuing-ctl resume %.64s --reason TEXT, once it may be called", target->name);
    else if (target->open + target->half_open == 0)
        advise(verdict, "nothing, unless more and more wait: then agree on a higher limit with its team");
    else if (is_refusal(target->cause) && strcmp(target->name, "issuer") == 0)
        advise(verdict, "issuing-ctl doctor --issuer says what to correct");
    else if (is_refusal(target->cause))
        advise(verdict, "correct the credential, secret or url of %.64s; then issuing-ctl probe %.64s --reason TEXT",
               target->name, target->name);
    else
        advise(verdict, "tell the team of %.64s; once it is back, issuing-ctl probe %.64s --reason TEXT", target->name,
               target->name);
}

static void say_target(struct verdict *verdict, const struct cluster_target *target, int64_t now_us)
{
    char span[PRINT_SPAN_SIZE], behind[96], until[PRINT_TIME_SIZE];
    write_behind(target, behind, sizeof(behind));
    advise_target(verdict, target);
    verdict->is_grave |= target->paused_us == 0 && target->open + target->half_open > 0;
    if (target->paused_us != 0)
        say(verdict, "%.64s has been paused by %.64s for %s%s%s%s", target->name, target->paused_by,
            print_span(now_us - target->paused_us, span), target->paused_until_us != 0 ? ", until " : "",
            target->paused_until_us != 0 ? print_time(target->paused_until_us, until) : "", behind);
    else if (target->open + target->half_open > 0)
        say(verdict, "The breaker of %.64s has been open at %" PRId64 " of %" PRId64 " workers for %s (%.80s)%s",
            target->name, target->open + target->half_open, target->workers,
            print_span(now_us - target->since_us, span), target->cause ? target->cause : "?", behind);
    else if (target->resting > 0)
        say(verdict, "%.64s asked %" PRId64 " of %" PRId64 " workers to wait (429), until %s%s", target->name,
            target->resting, target->workers, print_time(target->next_us, until), behind);
}

static bool is_well(const struct cluster_target *target)
{
    return target->paused_us == 0 && target->open + target->half_open + target->resting == 0;
}

static void say_targets(struct verdict *verdict, const struct cluster *cluster)
{
    int named = 0, more = 0;
    for (int pass = 0; pass < 2; pass++) /* those that get no call at all come first */
        for (int i = 0; i < cluster->target_count; i++) {
            const struct cluster_target *target = &cluster->targets[i];
            if (is_well(target) || cluster_is_blocked(target) != (pass == 0))
                continue;
            if (named < TARGETS_NAMED)
                say_target(verdict, target, cluster->now_us);
            else
                more++;
            named++;
        }
    if (more > 0)
        say(verdict, "%d more target%s not called", more, more == 1 ? " is" : "s are");
}

/* "All 15 users b4* ...". */
static void say_pattern(struct verdict *verdict, const struct pg_rows *pattern)
{
    char users[PRINT_NUMBER_SIZE], others[PRINT_NUMBER_SIZE], troubled[PRINT_NUMBER_SIZE], since[PRINT_TIME_SIZE];
    if (pg_rows_count(pattern) == 0)
        return;
    advise(verdict, "tell the team of the peer which users; issuing-ctl explain one of them");
    say(verdict, "All %s users %.80s* that were tried lately have trouble since %s (%.80s); of %s others %s",
        print_number(pg_int8(pattern, 0, USERS), users), pg_text(pattern, 0, BEGIN),
        print_time(pg_time_us(pattern, 0, SINCE), since), pg_text(pattern, 0, CAUSE),
        print_number(pg_int8(pattern, 0, OTHERS), others),
        pg_int8(pattern, 0, OTHERS_TROUBLED) > 0 ? print_number(pg_int8(pattern, 0, OTHERS_TROUBLED), troubled)
                                                 : "none");
}

/* Until then the same key is sent again, or an operator replays; afterwards only a look-up tells. */
static void say_key(struct verdict *verdict, const struct verdict_facts *facts)
{
    char time[PRINT_TIME_SIZE], span[PRINT_SPAN_SIZE];
    int64_t left_us = facts->key_ends_us - facts->now_us;
    if (facts->key_ends_us == 0 || left_us >= facts->key_lifetime_ms * 1000 / KEY_LEFT_SHARE)
        return;
    advise(verdict, "issuing-ctl explain the first of issuing-ctl list --unknown --oldest-first");
    say(verdict, "The first key of an unknown outcome ends at %s, in %s (list --unknown --oldest-first)",
        print_time(facts->key_ends_us, time), print_span(left_us, span));
}

/* Whether some worker may call the target of this type of event. */
static bool is_served(const struct cluster *cluster, const char *type)
{
    for (int i = 0; i < cluster->target_count; i++) {
        const struct cluster_target *target = &cluster->targets[i];
        if (strcmp(backlog_type_of(target->name), type) == 0 && cluster_is_blocked(target))
            return false;
    }
    return cluster->silent_count < cluster->alive_count;
}

/* The type that is called and of which most may be tried now or after a retry. */
static int64_t find_waiting(const struct cluster *cluster, const struct pg_rows *open, const char **ret_type)
{
    struct backlog_type type;
    int64_t most = 0;
    for (int row = 0; backlog_next(open, &row, &type);) {
        int64_t waiting = type.pending + type.processing - type.scheduled;
        if (type.is_delivered && waiting > most && is_served(cluster, type.name))
            most = waiting, *ret_type = type.name;
    }
    return most;
}

/* When the backlog will be done. Its facts are up to 70 minutes old, so the sentence contains them. */
static void say_pace(struct verdict *verdict, const struct cluster *cluster, const struct verdict_facts *facts)
{
    const struct pg_rows *pace = facts->pace;
    const char *type = NULL;
    int64_t left = find_waiting(cluster, facts->open, &type);
    char waiting[64], ended[PRINT_NUMBER_SIZE], made[PRINT_NUMBER_SIZE], since[PRINT_TIME_SIZE], span[PRINT_SPAN_SIZE];
    int row = 0;
    while (type && row < pg_rows_count(pace) && strcmp(type, pg_text(pace, row, TYPE)) != 0)
        row++;
    if (!type || row == pg_rows_count(pace))
        return;
    int64_t less = pg_int8(pace, row, ENDED) - pg_int8(pace, row, MADE);
    int64_t since_us = pg_time_us(pace, row, PACE_SINCE);
    say(verdict, "Since %s %s%s %.64s events came and %s ended: %s %s%s", print_time(since_us, since),
        pg_bool(pace, row, IS_CUT) ? "about " : "", print_number(pg_int8(pace, row, MADE), made), type,
        print_number(pg_int8(pace, row, ENDED), ended), events(left, waiting),
        less > 0 ? "would be done, at that rate, in " : "wait, and more will",
        less > 0 ? print_span((int64_t)((double)(cluster->now_us - since_us) * (double)left / (double)less), span)
                 : "");
}

static void say_events(struct verdict *verdict, const struct cluster *cluster, const struct verdict_facts *facts)
{
    char count[64], span[PRINT_SPAN_SIZE], rejected[VERDICT_SENTENCE_SIZE];
    bool is_old = facts->pending > 0 && facts->oldest_us != 0 && facts->now_us - facts->oldest_us > OLD_US;
    bool are_rejected = verdict_find_rejected(facts->rejected, rejected);
    verdict->is_grave |= are_rejected || facts->overdue > 0 || is_old;
    if (are_rejected) {
        advise(verdict, "ask the team of the peer; if it is wrong, issuing-ctl pause its target --reason TEXT");
        say(verdict, "%s", rejected);
    }
    if (facts->overdue > 0 || is_old)
        advise(verdict, "issuing-ctl explain the first of issuing-ctl list %s --oldest-first",
               facts->overdue > 0 ? "--overdue" : "--status PENDING");
    if (facts->overdue > 0)
        say(verdict, "%s %s due for more than a minute, the first for %s", events(facts->overdue, count),
            facts->overdue == 1 ? "has been" : "have been", print_span(facts->now_us - facts->overdue_us, span));
    if (is_old)
        say(verdict, "%s %s PENDING, the oldest is %s old", events(facts->pending, count),
            facts->pending == 1 ? "is" : "are", print_span(facts->now_us - facts->oldest_us, span));
    if (facts->overdue > 0 || is_old)
        say_pace(verdict, cluster, facts);
    say_pattern(verdict, facts->pattern);
    if (facts->failed > 0)
        advise(verdict, "issuing-ctl explain one of issuing-ctl list --status FAILED");
    if (facts->failed > 0)
        say(verdict, "%s wait%s for an operator", events(facts->failed, count), facts->failed == 1 ? "s" : "");
    say_key(verdict, facts);
}

void verdict_of(const struct cluster *cluster, const struct verdict_facts *facts, struct verdict *ret_verdict)
{
    char count[64];
    *ret_verdict = (struct verdict){.is_bad = true};
    say_workers(ret_verdict, cluster, facts);
    say_targets(ret_verdict, cluster);
    say_events(ret_verdict, cluster, facts);
    if (ret_verdict->text[0])
        return;
    ret_verdict->is_bad = false;
    if (facts->processing > 0)
        say(ret_verdict, "All is well; %s %s being processed", events(facts->processing, count),
            facts->processing == 1 ? "is" : "are");
    else if (facts->pending > 0)
        say(ret_verdict, "All is well; %s %s PENDING", events(facts->pending, count),
            facts->pending == 1 ? "is" : "are");
    else
        say(ret_verdict, "All is well; no event is open");
}
