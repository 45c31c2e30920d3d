/* What operators do, as migrations/schema/10_operators.sql has it. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

void sim_operator_reopen(struct sim_event *event, bool was_found)
{
    bool is_duplicate = strcmp(event->reason, "issuer_duplicate") == 0 || strcmp(event->held_end, "duplicate") == 0;
    event->status = OUTBOX_PENDING;
    event->retry_count = event->lost_count = event->deferral_count = 0;
    event->reason[0] = event->held_end_code[0] = '\0';
    snprintf(event->deferral_code, sizeof(event->deferral_code), "operator_%s", was_found ? "reconciled" : "replayed");
    event->deferred_us = event->completed_us = SIM_NEVER;
    snprintf(event->held_end, sizeof(event->held_end), "%s", is_duplicate ? "duplicate" : "");
    event->next_us = event->updated_us = sim_db_now_us();
    if ((is_duplicate || was_found) && event->first_sent_us == SIM_NEVER)
        event->first_sent_us = event->created_us;
    event->must_have_no_card = false;
}

static void replay(struct sim_event *event, int number)
{
    if (event->status != OUTBOX_FAILED)
        return;
    sim_tell("operator     replays event %d, FAILED %s", number, event->reason);
    sim_operator_reopen(event, false);
}

void sim_operator_reject(struct sim_event *event, const char *reason)
{
    event->status = OUTBOX_REJECTED;
    event->completed_us = event->updated_us = sim_db_now_us();
    snprintf(event->reason, sizeof(event->reason), "%s", reason);
    sim_check_end(event, "");
}

static void cancel(struct sim_event *event, int number)
{
    if (event->status != OUTBOX_PENDING || event->has_card || event->first_sent_us != SIM_NEVER)
        return;
    sim_tell("operator     cancels event %d", number);
    sim_operator_reject(event, "cancelled");
}

/* The operator has looked at the issuer, and has seen no card. */
static void resolve(struct sim_event *event, int number)
{
    bool has_card = event->has_card && strcmp(event->card_status, "cancelled") != 0;
    if (event->status != OUTBOX_FAILED || has_card || sim_live_cards(number) > 0)
        return;
    int64_t sent_us = event->last_sent_us != SIM_NEVER ? event->last_sent_us : event->first_sent_us;
    if (sent_us != SIM_NEVER && sim_db_now_us() - sent_us < sim.settle_us)
        return;
    sim_tell("operator     resolves event %d", number);
    sim_operator_reject(event, "resolved");
}

void sim_operator(enum sim_fault verb, int number)
{
    struct sim_event *event = &sim.events[number];
    if (event->visible_us == SIM_NEVER)
        return;
    if (verb == SIM_VERB_REPLAY)
        replay(event, number);
    else if (verb == SIM_VERB_CANCEL)
        cancel(event, number);
    else if (verb == SIM_VERB_RESOLVE)
        resolve(event, number);
    else
        sim_mark_ask(number, verb == SIM_VERB_REISSUE ? SIM_MARK_REISSUE : SIM_MARK_RECONCILE);
}
