/* What must hold in every schedule, and what a failure tells. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "sim.h"
#include "worker/flow/flow.h"

void sim_tell(const char *format, ...)
{
    if (!sim.is_verbose)
        return;
    va_list arguments;
    printf("%10.3f s  ", (double)(sim.now_us - SIM_START_US) / 1e6);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

void sim_fail(const char *format, ...)
{
    if (sim.has_failed)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sim.failure, sizeof(sim.failure), format, arguments);
    va_end(arguments);
    sim.has_failed = true;
    sim_tell("BROKEN       %s", sim.failure);
}

/* The workers' own log is part of the story. */
void __wrap_log_write_list(enum log_level level, const char *message, const struct log_field *fields);
void __wrap_log_write_list(enum log_level level, const char *message, const struct log_field *fields)
{
    if (!sim.is_verbose || level == LOG_DEBUG)
        return;
    printf("%10.3f s  %-12s %s", (double)(sim.now_us - SIM_START_US) / 1e6, sim.current ? sim.current->name : "",
           message);
    for (; fields->name; fields++) {
        if (!fields->text)
            printf(" %s=%lld", fields->name, (long long)fields->number);
        else if (fields->text[0] && strcmp(fields->name, "event_id") != 0)
            printf(" %s=%s", fields->name, fields->text);
        else if (strcmp(fields->name, "event_id") == 0)
            for (int i = 0; i < sim.event_count; i++)
                if (strcmp(sim.events[i].text, fields->text) == 0)
                    printf(" event=%d", i);
    }
    putchar('\n');
}

int sim_live_cards(int event)
{
    int live = 0;
    for (int i = 0; i < sim.card_count; i++)
        live += sim.cards[i].event == event && sim.cards[i].is_live;
    return live;
}

bool sim_has_inactive_card(int event)
{
    for (int i = 0; i < sim.card_count; i++)
        if (sim.cards[i].event == event && sim.cards[i].is_live && sim.cards[i].is_inactive)
            return true;
    return false;
}

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(word, *words) == 0)
            return true;
    return false;
}

/* FAILED with one of these says nothing about the issuer's cards; every other one says that there is none. */
static const char *const open_questions[] = {"outcome_unknown", "issuer_duplicate", "cancel_failed", "reveal_refused",
                                             NULL};
/* The card was seen in these steps. */
static const char *const card_steps[] = {"activate", "reveal", "save",   "link",   "retire", "mark",
                                         "cancel",   "verify", "unlink", "review", "disown", NULL};

static void check_completed(const struct sim_event *event, int number)
{
    char card_id[UUID_TEXT_SIZE];
    uuid_format(&event->card_id, card_id);
    if (!event->has_card)
        sim_fail("event %d is COMPLETED without a card", number);
    else if (strcmp(sim.peers[number].linked, card_id) != 0 && strcmp(event->card_status, "active") == 0)
        sim_fail("event %d is COMPLETED without a link", number);
    else if (sim_live_cards(number) == 0 && !sim.peers[number].is_closed)
        sim_fail("event %d is COMPLETED without a live card", number);
}

static void check_rejected(const struct sim_event *event, int number)
{
    (void)event;
    if (sim_live_cards(number) > 0)
        sim_fail("event %d is REJECTED over a live card", number);
    else if (sim.peers[number].linked[0])
        sim_fail("event %d is REJECTED over a link", number);
}

/* Whatever ends an event as a question, it is not that its peer answers nobody. */
static void check_outage(const struct sim_event *event, const char *step)
{
    for (int i = 0; i < (int)STEP_COUNT; i++) {
        const struct sim_outage *away = strcmp(flow_step_name((enum flow_step)i), step) == 0 ? sim_outage_of(i) : NULL;
        if (away && away->since_us < event->claimed_us - SECOND && event->retry_count > 1 &&
            sim.peers[event - sim.events].called_us[i] >= event->claimed_us)
            sim_fail("event %d is FAILED %s at %s by an outage", (int)(event - sim.events), event->reason, step);
    }
}

/* It says that the issuer has no card of it. */
static bool is_without_card(const struct sim_event *event)
{
    return event->status == OUTBOX_FAILED && event->ended_at[0] && !event->has_card &&
           !is_one_of(event->reason, open_questions) && !is_one_of(event->ended_at, card_steps);
}

static void check_without_card(const struct sim_event *event, int number)
{
    if (is_without_card(event) && sim_live_cards(number) > 0)
        sim_fail("event %d is FAILED %s over a live card", number, event->reason);
}

void sim_check_end(struct sim_event *event, const char *step)
{
    int number = (int)(event - sim.events);
    snprintf(event->ended_at, sizeof(event->ended_at), "%s", step);
    if (event->status == OUTBOX_FAILED)
        check_outage(event, step);
    if (event->status == OUTBOX_COMPLETED)
        check_completed(event, number);
    event->must_have_no_card = event->status == OUTBOX_REJECTED || is_without_card(event);
    if (sim.has_stalled) /* a look comes, and repairs it */
        return;
    check_without_card(event, number);
    if (event->status == OUTBOX_REJECTED)
        check_rejected(event, number);
}

void sim_check_create(const struct sim_request *request, const struct flow *flow)
{
    int number = sim_request_event(request);
    const struct sim_event *event = &sim.events[number];
    int64_t began_ms = flow->attempt.claimed_ms + flow->attempt.claim_took_ms; /* the attempt's, which may be late */
    int64_t began_us = sim.now_us - (clock_mono_us() - began_ms * MS);
    if (sim.profile->calls[ISSUER_CREATE].has_key && strcmp(request->key, event->text) != 0)
        sim_fail("event %d is sent with the key %s", number, request->key);
    if (sim.peers[number].checked_us < began_us)
        sim_fail("a create of event %d leaves, and core-api was not asked", number);
    bool holds = event->has_token && uuid_equal(&event->token, &flow->token);
    if (!holds && sim.clocks_are_even)
        sim_fail("a create of event %d leaves without its lease", number);
    if (outbox_status_is_final(event->status) && sim.clocks_are_even)
        sim_fail("a create of event %d leaves after its end", number);
}

/* Faults are over, and nothing is under way. */
void sim_check_quiet(void)
{
    for (int i = 0; i < sim.event_count; i++) {
        const struct sim_event *event = &sim.events[i];
        if (!sim_marks_are_done())
            sim_fail("a mark does not end");
        if (!outbox_status_is_final(event->status))
            sim_fail("event %d does not end: %s, %s", i, outbox_status_name(event->status), event->deferral_code);
        else if (event->status == OUTBOX_COMPLETED)
            check_completed(event, i);
        else if (event->status == OUTBOX_REJECTED && !sim.has_lost_report)
            check_rejected(event, i);
        if (!sim.has_lost_report)
            check_without_card(event, i);
    }
}
