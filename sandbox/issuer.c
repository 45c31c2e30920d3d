/* The stand-in issuer: makes cards under idempotency keys, looks them up by reference, cancels them.
 *
 * It is as strict as an issuer may be: a body has exactly the members of the contract, "same body" means the same
 * bytes, and a key is forgotten when its lifetime is over, so that a program that sends again too late gets its second
 * card here and not at a real issuer. Every card answer carries a "cvc" that nobody may read. Leaves out: money,
 * limits, expiry, webhooks. */
#include "sandbox/issuer.h"

#include <string.h>

#include "common/json_strict.h"
#include "common/json_value.h"
#include "sandbox/exchange.h"
#include "sandbox/postponed.h"
#include "sandbox/uri.h"

#define USER_SIZE 129
#define EXPIRY_YEAR 2030 /* of the earliest card: fixed, so that a seed gives the same cards in every year */

static const char *const status_names[] = {
    [LEDGER_ACTIVE] = "active",
    [LEDGER_REPLACED] = "replaced",
    [LEDGER_CANCELLED] = "cancelled",
};

static bool is_shown(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] < 0x20 || text[i] > 0x7e)
            return false;
    }
    return length > 0;
}

/* A create call's body. The strings live here because the slices of ledger_order point into them. */
struct create_words {
    char reference[LEDGER_TEXT_MAX + 1], user_id[USER_SIZE], replaces[LEDGER_TEXT_MAX + 1];
    struct ledger_order order;
};

static must_check bool read_text(struct json_value object, const char *name, char *text, size_t size,
                                 struct slice *ret_slice)
{
    size_t length;
    if (!json_string(json_member(object, name), text, size, &length) || !is_shown(text, length))
        return false;
    *ret_slice = (struct slice){.bytes = text, .length = length};
    return true;
}

static bool is_text_or_null(struct json_value value)
{
    return value.kind == JSON_STRING || value.kind == JSON_NULL;
}

static int member_count(struct json_value object)
{
    int count = 0;
    size_t cursor = 0;
    struct slice name;
    struct json_value value;
    while (json_next_member(object, &cursor, &name, &value))
        count++;
    return count;
}

/* NULL if the body is good, else what is wrong. Fills in what it can, so that a fault for one user is found for a bad
 * body as well. */
static const char *read_create(const struct http_request *request, struct create_words *words)
{
    struct ledger_order *order = &words->order;
    *order = (struct ledger_order){.body = request->body};
    int keys;
    order->key = http_header(request, "Idempotency-Key", &keys);
    if (!json_strict_check(request->body.bytes, request->body.length, NULL))
        return "the body is no JSON";
    struct json_value body = json_value_of(request->body.bytes, request->body.length);
    if (!read_text(body, "user_id", words->user_id, sizeof(words->user_id), &order->user_id))
        return "user_id is missing or no text of 1 to 128 characters";
    if (!read_text(body, "reference", words->reference, sizeof(words->reference), &order->reference))
        return "reference is missing or no text of 1 to 255 characters";
    if (keys != 1 || order->key.length == 0 || order->key.length > LEDGER_TEXT_MAX)
        return "exactly one Idempotency-Key of 1 to 255 bytes is required";
    char kind[8];
    if (!json_string(json_member(body, "kind"), kind, sizeof(kind), NULL) ||
        (strcmp(kind, "new") != 0 && strcmp(kind, "reissue") != 0))
        return "kind is neither new nor reissue";
    order->is_reissue = strcmp(kind, "reissue") == 0;
    struct json_value replaces = json_member(body, "replaces");
    if (replaces.kind == JSON_STRING &&
        !read_text(body, "replaces", words->replaces, sizeof(words->replaces), &order->replaces))
        return "replaces is no card id";
    if (replaces.kind != (order->is_reissue ? JSON_STRING : JSON_NULL))
        return "replaces must be a card id for reissue, null for new";
    if (!is_text_or_null(json_member(body, "program")) || !is_text_or_null(json_member(body, "memo")))
        return "program and memo must be there, as text or null";
    if (member_count(body) != 6)
        return "the body has members that are not in the contract";
    return NULL;
}

static void put_card(const struct sandbox *sandbox, uint32_t card, const char *status, struct buf *out)
{
    const struct ledger_card *row = ledger_card(sandbox->ledger, card);
    char id[LEDGER_CARD_ID_SIZE], number[LEDGER_NUMBER_SIZE];
    ledger_card_id(sandbox->ledger, card, id);
    ledger_card_number(sandbox->ledger, card, number);
    unsigned luck =
        (unsigned)(number[12] - '0') * 100 + (unsigned)(number[13] - '0') * 10 + (unsigned)(number[14] - '0');
    buf_put_text(out, "{\"id\":\"");
    buf_put_text(out, id);
    buf_put_text(out, "\",\"reference\":");
    json_put_string(out, row->reference, strlen(row->reference));
    buf_put_format(out, ",\"pan\":\"%s\",\"exp_month\":%u,\"exp_year\":%u,\"cvc\":\"%03u\",\"status\":\"%s\"}", number,
                   luck % 12 + 1, EXPIRY_YEAR + luck % 3, (luck * 7 + 13) % 1000, status);
}

static void refuse(struct exchange *exchange, int status, const char *code, const char *detail)
{
    ledger_add(exchange->sandbox->ledger, LEDGER_COUNT_ISSUER_REFUSED);
    exchange_refuse(exchange, status, code, detail);
}

static must_check bool admit(struct exchange *exchange)
{
    if (exchange_is_authorized(exchange->request, &exchange->sandbox->issuer_credential))
        return true;
    refuse(exchange, 401, "unauthorized", "the credential is missing or wrong");
    return false;
}

static void execute_create(struct exchange *exchange, const struct ledger_order *order)
{
    struct sandbox *sandbox = exchange->sandbox;
    uint32_t card = 0;
    int64_t now_ms = sandbox_now_ms(sandbox);
    switch (ledger_create(sandbox->ledger, order, now_ms, &card)) {
    case LEDGER_MADE:
        exchange->status = 201;
        put_card(sandbox, card, "active", &sandbox->body);
        return;
    case LEDGER_SAME:
        /* the answer of then, also when the card has been cancelled since */
        exchange->status = 200;
        put_card(sandbox, card, "active", &sandbox->body);
        return;
    case LEDGER_MISMATCH:
        exchange_refuse(exchange, 422, "idempotency_mismatch", "this key was used with another body");
        return;
    case LEDGER_REFUSED:
        exchange_refuse(exchange, 422, ledger_refusal(sandbox->ledger, order->key, now_ms),
                        "this key was refused before");
        return;
    case LEDGER_UNLINKED:
    case LEDGER_ABSENT:
    case LEDGER_FULL:
        exchange_refuse(exchange, 500, "out_of_memory", "the sandbox has no room for another card");
        return;
    }
}

static void take_create(struct exchange *exchange, const struct ledger_order *order)
{
    if (exchange_executes_now(exchange))
        execute_create(exchange, order);
    if (exchange_executes_late(exchange))
        postponed_add(exchange, &(struct postponed_call){.order = *order});
}

static void create(struct sandbox *sandbox, struct http_request *request)
{
    struct create_words words;
    const char *wrong = read_create(request, &words);
    const struct ledger_order *order = &words.order;
    struct exchange exchange;
    ledger_add(sandbox->ledger, LEDGER_COUNT_ISSUER_CREATE);
    bool executes =
        exchange_begin(&exchange, sandbox, request, CALL_CREATE,
                       &(struct call_words){.user = order->user_id, .key = order->key, .reference = order->reference});
    if (!executes) {
        ledger_note_send(sandbox->ledger, order->key);
    } else if (admit(&exchange)) {
        if (!exchange_is_json(request))
            refuse(&exchange, 415, "unsupported_media_type", "Content-Type must be application/json");
        else if (wrong)
            refuse(&exchange, 400, "bad_request", wrong);
        else
            take_create(&exchange, order);
    }
    exchange_finish(&exchange);
}

static struct slice slice_of(const char *text)
{
    return (struct slice){.bytes = text, .length = strlen(text)};
}

/* The cards of a reference as they were then. */
static void put_cards(struct sandbox *sandbox, struct slice reference, int64_t then_ms)
{
    const char *before = "{\"cards\":[";
    for (uint32_t at = UINT32_MAX; ledger_next_of_reference(sandbox->ledger, reference, &at);) {
        enum ledger_card_status status;
        if (!ledger_status_at(ledger_card(sandbox->ledger, at), then_ms, &status))
            continue;
        buf_put_text(&sandbox->body, before);
        put_card(sandbox, at, status_names[status], &sandbox->body);
        before = ",";
    }
    buf_put_text(&sandbox->body, *before == ',' ? "]}" : "{\"cards\":[]}");
}

static void look_up(struct sandbox *sandbox, struct http_request *request)
{
    char text[LEDGER_TEXT_MAX + 1] = "";
    bool readable = uri_query(request->query, "reference", text, sizeof(text)) && *text;
    struct slice reference = slice_of(readable ? text : "");
    struct call_words words = {.reference = reference};
    uint32_t card = UINT32_MAX;
    if (ledger_next_of_reference(sandbox->ledger, reference, &card))
        words.user = slice_of(ledger_card(sandbox->ledger, card)->user_id);
    struct exchange exchange;
    ledger_add(sandbox->ledger, LEDGER_COUNT_ISSUER_LOOKUP);
    if (exchange_begin(&exchange, sandbox, request, CALL_LOOKUP, &words) && admit(&exchange)) {
        if (!readable) {
            refuse(&exchange, 400, "bad_request", "a reference is required");
        } else {
            bool is_stale = exchange.fault && exchange.fault->kind == FAULT_stale;
            exchange.status = 200;
            put_cards(sandbox, reference, sandbox_now_ms(sandbox) - (is_stale ? exchange.fault->stale_ms : 0));
        }
    }
    exchange_finish(&exchange);
}

static void take_cancel(struct exchange *exchange, uint32_t card, struct slice id)
{
    struct sandbox *sandbox = exchange->sandbox;
    if (exchange_executes_late(exchange)) {
        const struct ledger_card *row = ledger_card(sandbox->ledger, card);
        postponed_add(exchange, &(struct postponed_call){.card_id = id,
                                                         .link = {.request_id = slice_of(row->reference),
                                                                  .user_id = slice_of(row->user_id)}});
    }
    if (!exchange_executes_now(exchange))
        return;
    if (!ledger_cancel(sandbox->ledger, card, sandbox_now_ms(sandbox))) {
        exchange_refuse(exchange, 409, "already_cancelled", "the card is cancelled already");
        return;
    }
    exchange->status = 200;
    put_card(sandbox, card, "cancelled", &sandbox->body);
}

static void cancel(struct sandbox *sandbox, struct http_request *request, struct slice id)
{
    uint32_t card = 0;
    bool known = ledger_card_of_id(sandbox->ledger, id, &card);
    struct call_words words = {.key = http_header(request, "Idempotency-Key", NULL)};
    if (known) {
        words.user = slice_of(ledger_card(sandbox->ledger, card)->user_id);
        words.reference = slice_of(ledger_card(sandbox->ledger, card)->reference);
    }
    struct exchange exchange;
    ledger_add(sandbox->ledger, LEDGER_COUNT_ISSUER_CANCEL);
    if (exchange_begin(&exchange, sandbox, request, CALL_CANCEL, &words) && admit(&exchange)) {
        if (words.key.length == 0) {
            refuse(&exchange, 400, "bad_request", "an Idempotency-Key is required");
        } else if (!known) {
            refuse(&exchange, 404, "card_not_found", "there is no such card");
        } else {
            take_cancel(&exchange, card, id);
        }
    }
    exchange_finish(&exchange);
}

static void stray(struct sandbox *sandbox, struct http_request *request)
{
    struct exchange exchange;
    ledger_add(sandbox->ledger, LEDGER_COUNT_STRAY);
    if (exchange_begin(&exchange, sandbox, request, CALL_STRAY_ISSUER,
                       &(struct call_words){.reference = request->path}))
        exchange_refuse(&exchange, 404, "not_found", "there is no such path or method");
    exchange_finish(&exchange);
}

void issuer_on_request(void *context, struct http_request *request)
{
    struct sandbox *sandbox = context;
    struct slice id;
    bool reads = request->method == HTTP_GET || request->method == HTTP_HEAD;
    if (uri_is(request->path, "/v1/cards") && request->method == HTTP_POST)
        create(sandbox, request);
    else if (uri_is(request->path, "/v1/cards") && reads)
        look_up(sandbox, request);
    else if (uri_segment(request->path, "/v1/cards/", "/cancel", &id) && request->method == HTTP_POST)
        cancel(sandbox, request, id);
    else
        stray(sandbox, request);
}
