/* See dialect_marqeta_transitions.h. */
#include "sandbox/dialect_marqeta_transitions.h"

#include <stdio.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/slice.h"
#include "common/lib/http_server/http_path.h"
#include "common/lib/json/json_strict.h"
#include "sandbox/dialect_marqeta_words.h"
#include "sandbox/store.h"

#define KEY_SIZE (MARQETA_TOKEN_SIZE + 16)

/* A transition and a card may have the same token. */
static void write_transition_key(const char *token, char ret_key[KEY_SIZE])
{
    snprintf(ret_key, KEY_SIZE, "transition %s", token);
}

struct transition_words {
    char token[MARQETA_TOKEN_SIZE], card_token[MARQETA_TOKEN_SIZE], key[KEY_SIZE];
    char flaw[MARQETA_FLAW_SIZE];
    struct buf content;
    enum call_kind kind;
    struct sandbox_order order;
};

static const char *read_transition(const struct sandbox *sandbox, const struct http_request *request,
                                   struct transition_words *words)
{
    struct sandbox_order *order = &words->order;
    uint32_t card;
    words->kind = CALL_CANCEL;
    if (!json_strict_check(request->body.bytes, request->body.length, NULL))
        return "the body is not JSON";
    struct json_value body = json_value_of(request->body.bytes, request->body.length);
    if (marqeta_wanted_status(body) != LEDGER_CANCELLED)
        words->kind = CALL_ACTIVATE;
    if (marqeta_token(body, "card_token", words->card_token)) {
        order->card.reference = slice_of(words->card_token);
        (void)!dialect_find_card(sandbox, order->card.reference, order, &card); /* a missing one is refused later */
    }
    if (marqeta_token(body, "token", words->token)) {
        write_transition_key(words->token, words->key);
        order->card.key = slice_of(words->key);
    }
    const char *flaw = marqeta_transition_flaw(body, words->flaw);
    if (flaw)
        return flaw;
    marqeta_put_transition_content(body, &words->content);
    order->card.body = buf_slice(&words->content);
    return NULL;
}

/* The answer to a transition that was made is kept under its token; a refused one leaves the token free. */
static must_check bool keep_transition(struct sandbox *sandbox, const struct sandbox_order *order)
{
    struct ledger_answer answer = {
        .key = order->card.key, .body = buf_slice(&sandbox->body), .fingerprint = order->fingerprint, .status = 201};
    return !order->card.key.length ||
           (!sandbox->body.failed && ledger_key_put(sandbox->ledger, &answer, sandbox_now_ms(sandbox)));
}

static enum ledger_result refuse_transition(struct sandbox *sandbox, struct sandbox_answer *answer, bool is_gone)
{
    if (is_gone)
        dialect_answer_error(sandbox, answer, 409, "409", "the card is TERMINATED");
    else
        dialect_answer_error(sandbox, answer, 400, "400", "the card has this state already");
    return LEDGER_SAME;
}

enum ledger_result marqeta_execute_transition(struct sandbox *sandbox, const struct sandbox_order *order,
                                              struct sandbox_answer *answer)
{
    struct ledger *ledger = sandbox->ledger;
    uint32_t card;
    if (!ledger_card_of_id(ledger, order->card_id, &card)) {
        dialect_answer_error(sandbox, answer, 400, "400", "the card does not exist");
        return LEDGER_ABSENT;
    }
    struct json_value content = json_value_of(order->card.body.bytes, order->card.body.length);
    bool is_gone = ledger_card(ledger, card)->status == LEDGER_CANCELLED;
    if (!ledger_set_status(ledger, card, marqeta_wanted_status(content), sandbox_now_ms(sandbox)))
        return refuse_transition(sandbox, answer, is_gone);
    char token[MARQETA_TOKEN_SIZE];
    if (!marqeta_token(content, "token", token))
        marqeta_new_token(token);
    struct json_writer writer = dialect_begin_answer(sandbox, answer, 201);
    answer->card = card;
    marqeta_put_transition(&writer, &(struct marqeta_transition){.content = content,
                                                                 .token = token,
                                                                 .user_token = ledger_card(ledger, card)->holder,
                                                                 .created_us = clock_wall_us()});
    return keep_transition(sandbox, order) ? LEDGER_MADE : LEDGER_FULL;
}

void marqeta_make_transition(struct sandbox *sandbox, struct http_request *request)
{
    struct transition_words words = {0};
    struct sandbox_call call;
    buf_init(&words.content, MARQETA_CONTENT_MAX);
    const char *wrong = read_transition(sandbox, request, &words);
    if (dialect_begin(&call, sandbox, request, words.kind, &words.order)) {
        call.fingerprint = words.order.fingerprint = store_hash(0, words.order.card.body);
        if (!sandbox_call_is_json(request))
            dialect_refuse(&call, 415, "415", "Content-Type must be application/json");
        else if (words.content.failed)
            dialect_refuse(&call, 500, "500", "the sandbox has no memory for another transition");
        else if (wrong)
            dialect_refuse(&call, 400, "400", wrong);
        else
            dialect_take(&call, &words.order);
    }
    sandbox_call_finish(&call);
    buf_done(&words.content);
}

void marqeta_show_transition(struct sandbox *sandbox, struct http_request *request, struct slice segment)
{
    struct sandbox_order order = {0};
    struct sandbox_call call;
    char token[MARQETA_TOKEN_SIZE], key[KEY_SIZE] = "";
    if (http_percent_decode(segment, token, sizeof(token)))
        write_transition_key(token, key);
    if (dialect_begin(&call, sandbox, request, CALL_RETRIEVE, &order)) {
        const struct ledger_key *kept = ledger_key_find(sandbox->ledger, slice_of(key), sandbox_now_ms(sandbox));
        if (kept && kept->status) {
            struct json_writer writer = dialect_begin_answer(sandbox, &call.answer, 200);
            json_add_json(&writer, NULL, slice_of(kept->body));
        } else {
            dialect_answer_error(sandbox, &call.answer, 404, "404", "the transition does not exist");
        }
    }
    sandbox_call_finish(&call);
}
