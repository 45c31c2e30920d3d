/* See postponed.h.
 *
 * Invariants: each late execution counts as outstanding in the ledger from postponed_add() until it was executed or
 * dropped; it needs nothing of the request or of the connection. It is executed also while its target's listener is
 * down: a received call stays received. Left out: answers (delivery.c). */
#include "sandbox/postponed.h"

#include <stdlib.h>
#include <string.h>

#include "sandbox/route.h"

#define LATE_DEFAULT_MS 1000

enum word {
    WORD_KEY,
    WORD_REFERENCE,
    WORD_USER,
    WORD_CARD,
    WORD_REPLACES,
    WORD_BODY,
    WORD_HOLDER,
    WORD_DETAILS,
    WORDS
};

struct postponed {
    struct postponed *previous, *next;
    struct sandbox *sandbox;
    uv_timer_t timer;
    enum call_kind kind;
    uint64_t call_number;
    int64_t late_ms;
    bool waits_for_caller; /* the time runs from when the caller has left */
    bool is_reissue;
    enum ledger_card_status status; /* that a card begins with */
    uint64_t fingerprint;
    char code[65]; /* not empty: the execution is a refusal */
    struct slice words[WORDS];
    char text[]; /* of the words */
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

static enum ledger_result execute_order(const struct postponed *postponed)
{
    const struct slice *words = postponed->words;
    struct dialect_order order = {
        .card = {.key = words[WORD_KEY],
                 .reference = words[WORD_REFERENCE],
                 .user_id = words[WORD_USER],
                 .replaces = words[WORD_REPLACES],
                 .body = words[WORD_BODY],
                 .holder = words[WORD_HOLDER],
                 .details = words[WORD_DETAILS],
                 .status = postponed->status,
                 .is_reissue = postponed->is_reissue,
                 .is_late = true},
        .card_id = words[WORD_CARD],
        .fingerprint = postponed->fingerprint,
    };
    return dialect_execute_late(postponed->sandbox, postponed->kind, &order, postponed->code);
}

static enum ledger_result execute_charge(const struct postponed *postponed)
{
    struct charge_order order = {
        .key = postponed->words[WORD_KEY],
        .user_id = postponed->words[WORD_USER],
        .body = postponed->words[WORD_BODY],
        .fingerprint = postponed->fingerprint,
        .is_late = true,
    };
    return route_charge_late(postponed->sandbox, &order, postponed->code);
}

static enum ledger_result execute(const struct postponed *postponed)
{
    struct ledger *ledger = postponed->sandbox->ledger;
    static const enum ledger_count counts[] = {[TARGET_ISSUER] = LEDGER_COUNT_ISSUER_LATE,
                                               [TARGET_CORE] = LEDGER_COUNT_CORE_LATE,
                                               [TARGET_ROUTE] = LEDGER_COUNT_ROUTE_LATE};
    enum call_target target = call_kind_target(postponed->kind);
    ledger_add(ledger, counts[target]);
    if (target == TARGET_ISSUER)
        return execute_order(postponed);
    if (target == TARGET_ROUTE)
        return execute_charge(postponed);
    struct ledger_link_order link = {
        .request_id = postponed->words[WORD_REFERENCE],
        .user_id = postponed->words[WORD_USER],
        .card_id = postponed->words[WORD_CARD],
        .body = postponed->words[WORD_BODY],
        .is_late = true,
    };
    return postponed->kind == CALL_LINK ? ledger_put_link(ledger, &link) : ledger_put_unlink(ledger, &link);
}

static void run(struct postponed *postponed)
{
    enum ledger_result result = execute(postponed);
    ledger_late_ended(postponed->sandbox->ledger, call_kind_name(postponed->kind), postponed->words[WORD_REFERENCE],
                      postponed->words[WORD_USER], result);
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

static void name_words(const struct postponed_execution *execution, enum call_target target, struct slice words[WORDS])
{
    const struct ledger_order *order = &execution->order.card;
    const struct ledger_link_order *link = &execution->link;
    const struct charge_order *charge = &execution->charge;
    memset(words, 0, WORDS * sizeof(*words));
    switch (target) {
    case TARGET_ISSUER:
        words[WORD_KEY] = order->key;
        words[WORD_REFERENCE] = order->reference;
        words[WORD_USER] = order->user_id;
        words[WORD_CARD] = execution->order.card_id;
        words[WORD_REPLACES] = order->replaces;
        words[WORD_BODY] = order->body;
        words[WORD_HOLDER] = order->holder;
        words[WORD_DETAILS] = order->details;
        return;
    case TARGET_CORE:
        words[WORD_REFERENCE] = link->request_id;
        words[WORD_USER] = link->user_id;
        words[WORD_CARD] = link->card_id;
        words[WORD_BODY] = link->body;
        return;
    case TARGET_ROUTE:
        words[WORD_KEY] = words[WORD_REFERENCE] = charge->key;
        words[WORD_USER] = charge->user_id;
        words[WORD_BODY] = charge->body;
        return;
    }
}

void postponed_add(struct sandbox_call *call, const struct postponed_execution *execution)
{
    struct sandbox *sandbox = call->sandbox;
    const struct fault *fault = call->fault;
    const struct ledger_order *order = &execution->order.card;
    struct slice words[WORDS];
    name_words(execution, call_kind_target(call->kind), words);
    size_t length = 0;
    for (size_t i = 0; i < WORDS; i++)
        length += words[i].length;
    struct postponed *postponed = calloc(1, sizeof(*postponed) + length);
    if (!postponed) {
        sandbox_call_refuse(call, 500, "out_of_memory", "the sandbox has no memory left");
        return;
    }
    *postponed = (struct postponed){
        .next = sandbox->postponed,
        .sandbox = sandbox,
        .kind = call->kind,
        .call_number = call->number,
        .late_ms = fault->late_ms >= 0 ? fault->late_ms : LATE_DEFAULT_MS,
        .waits_for_caller = fault->late_from_gone,
        .is_reissue = order->is_reissue,
        .status = order->status,
        .fingerprint = call->fingerprint,
    };
    memcpy(postponed->code, fault->late_code, sizeof(postponed->code));
    char *at = postponed->text;
    for (size_t i = 0; i < WORDS; i++) {
        postponed->words[i] = (struct slice){.bytes = at, .length = words[i].length};
        if (words[i].length)
            memcpy(at, words[i].bytes, words[i].length);
        at += words[i].length;
    }
    if (postponed->next)
        postponed->next->previous = postponed;
    sandbox->postponed = postponed;
    ledger_late_begun(sandbox->ledger);
    (void)uv_timer_init(sandbox->loop, &postponed->timer); /* never fails */
    if (!postponed->waits_for_caller)
        start(postponed);
}

void postponed_caller_gone(struct sandbox *sandbox, uint64_t call_number)
{
    for (struct postponed *postponed = sandbox->postponed; postponed; postponed = postponed->next) {
        if (postponed->call_number == call_number && postponed->waits_for_caller)
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
