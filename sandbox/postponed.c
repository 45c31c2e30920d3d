/* See postponed.h.
 *
 * Invariants: each late execution counts as outstanding in the ledger from postponed_add() until it was executed or
 * dropped; it needs nothing of the request or of the connection. It is executed also while its target's listener is
 * down: a received call stays received. Left out: answers (delivery.c). */
#include "sandbox/postponed.h"

#include <stdlib.h>
#include <string.h>

#define LATE_DEFAULT_MS 1000

#define TEXTS 8 /* of an order */

struct postponed {
    struct postponed *previous, *next;
    struct sandbox *sandbox;
    uv_timer_t timer;
    struct postponed_call call;
    int64_t late_ms;
    bool waits_for_caller; /* the time runs from when the caller has left */
    char code[65];         /* not empty: the execution is a refusal */
    struct sandbox_order order;
    char text[]; /* of the order */
};

static void on_closed(uv_handle_t *handle)
{
    free(container_of((uv_timer_t *)handle, struct postponed, timer));
}

static void take_out(struct postponed *postponed)
{
    if (postponed->next)
        postponed->next->previous = postponed->previous;
    if (postponed->previous)
        postponed->previous->next = postponed->next;
    else
        postponed->sandbox->postponed = postponed->next;
    uv_close((uv_handle_t *)&postponed->timer, on_closed);
}

static enum ledger_result execute(const struct postponed *postponed)
{
    static const enum ledger_count counts[] = {[TARGET_ISSUER] = LEDGER_COUNT_ISSUER_LATE,
                                               [TARGET_CORE] = LEDGER_COUNT_CORE_LATE,
                                               [TARGET_ROUTE] = LEDGER_COUNT_ROUTE_LATE};
    const struct postponed_call *call = &postponed->call;
    ledger_add(postponed->sandbox->ledger, counts[call_kind_target(call->kind)]);
    return call->execute(postponed->sandbox, call->kind, &postponed->order, postponed->code);
}

static void run(struct postponed *postponed)
{
    enum ledger_result result = execute(postponed);
    ledger_late_ended(postponed->sandbox->ledger, call_kind_name(postponed->call.kind), postponed->order.card.reference,
                      postponed->order.card.user_id, result);
    take_out(postponed);
}

static void on_due(uv_timer_t *timer)
{
    run(container_of(timer, struct postponed, timer));
}

static void start(struct postponed *postponed)
{
    postponed->waits_for_caller = false;
    (void)uv_timer_start(&postponed->timer, on_due, (uint64_t)postponed->late_ms,
                         0); /* fails only without a callback */
}

static void list_texts(struct sandbox_order *order, struct slice *ret_texts[TEXTS])
{
    struct ledger_order *card = &order->card;
    struct slice *const texts[TEXTS] = {&card->key,  &card->reference, &card->user_id, &card->replaces,
                                        &card->body, &card->holder,    &card->details, &order->card_id};
    memcpy(ret_texts, texts, sizeof(texts));
}

/* Copies the texts of its order to its own memory. */
static void copy_texts(struct postponed *postponed)
{
    struct slice *texts[TEXTS];
    char *at = postponed->text;
    list_texts(&postponed->order, texts);
    for (size_t i = 0; i < TEXTS; i++) {
        if (texts[i]->length)
            memcpy(at, texts[i]->bytes, texts[i]->length);
        texts[i]->bytes = at;
        at += texts[i]->length;
    }
}

bool postponed_add(struct sandbox *sandbox, const struct postponed_call *call, const struct sandbox_order *order)
{
    const struct fault *fault = call->fault;
    struct sandbox_order copied = *order;
    struct slice *texts[TEXTS];
    size_t length = 0;
    list_texts(&copied, texts);
    for (size_t i = 0; i < TEXTS; i++)
        length += texts[i]->length;
    struct postponed *postponed = calloc(1, sizeof(*postponed) + length);
    if (!postponed)
        return false;
    *postponed = (struct postponed){
        .next = sandbox->postponed,
        .sandbox = sandbox,
        .call = *call,
        .late_ms = fault->late_ms >= 0 ? fault->late_ms : LATE_DEFAULT_MS,
        .waits_for_caller = fault->late_from_gone,
        .order = copied,
    };
    postponed->call.fault = NULL;
    postponed->order.card.is_late = true;
    memcpy(postponed->code, fault->late_code, sizeof(postponed->code));
    copy_texts(postponed);
    if (postponed->next)
        postponed->next->previous = postponed;
    sandbox->postponed = postponed;
    ledger_late_begun(sandbox->ledger);
    (void)uv_timer_init(sandbox->loop, &postponed->timer); /* never fails */
    if (!postponed->waits_for_caller)
        start(postponed);
    return true;
}

void postponed_caller_gone(struct sandbox *sandbox, uint64_t call_number)
{
    for (struct postponed *postponed = sandbox->postponed; postponed; postponed = postponed->next) {
        if (postponed->call.number == call_number && postponed->waits_for_caller)
            start(postponed);
    }
}

unsigned postponed_run(struct sandbox *sandbox)
{
    unsigned count = 0;
    for (; sandbox->postponed; count++)
        run(sandbox->postponed);
    return count;
}

void postponed_drop(struct sandbox *sandbox)
{
    while (sandbox->postponed) {
        ledger_late_ended(sandbox->ledger, NULL, (struct slice){0}, (struct slice){0}, LEDGER_ABSENT);
        take_out(sandbox->postponed);
    }
}
