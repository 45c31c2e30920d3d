/* The dialect `generic`: makes cards under idempotency keys, looks them up by reference, cancels them (docs/peers.md).
 *
 * The dialect is as strict as an issuer may be: a body has exactly the documented members, "same body" means the same
 * bytes, and a key is forgotten after its lifetime, so that a program that retries too late gets its second card here
 * and not at a real issuer. Every card answer has a "cvc" that no program may store. The ledger keeps the keys: no
 * answer is stored, and a repeat is answered with the key's card. Left out: money, limits, expiry, webhooks. */
#include <string.h>

#include "common/lib/base/slice.h"
#include "common/lib/http_server/http_path.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "common/lib/json/json_writer.h"
#include "sandbox/dialect_call.h"

#define USER_SIZE 129

static bool is_shown(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (text[i] < 0x20 || text[i] > 0x7e)
            return false;
    }
    return length > 0;
}

/* A create call's body. The strings are here because the slices of the order point to them. */
struct create_words {
    char reference[LEDGER_TEXT_MAX + 1], user_id[USER_SIZE], replaces[LEDGER_TEXT_MAX + 1];
    struct sandbox_order order;
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

/* NULL if the body is good, else what is wrong. Fills in what it can, so that a fault for one user also fires on a bad
 * body. */
static const char *read_create(const struct http_request *request, struct create_words *words)
{
    words->order = (struct sandbox_order){.card.body = request->body};
    struct ledger_order *order = &words->order.card;
    int keys;
    order->key = http_header(request, "Idempotency-Key", &keys);
    if (!json_strict_check(request->body.bytes, request->body.length, NULL))
        return "the body is not JSON";
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
        return "replaces is not a card id";
    if (replaces.kind != (order->is_reissue ? JSON_STRING : JSON_NULL))
        return "replaces must be a card id for reissue, null for new";
    if (!is_text_or_null(json_member(body, "program")) || !is_text_or_null(json_member(body, "memo")))
        return "program and memo must be there, as text or null";
    if (member_count(body) != 6)
        return "the body has unknown members";
    return NULL;
}

static void add_card(struct json_writer *writer, const struct sandbox *sandbox, uint32_t card, const char *status)
{
    const struct ledger_card *row = ledger_card(sandbox->ledger, card);
    char id[LEDGER_CARD_ID_SIZE], number[LEDGER_NUMBER_SIZE];
    ledger_card_id(sandbox->ledger, card, id);
    ledger_card_number(sandbox->ledger, card, number);
    struct dialect_expiry expiry = dialect_expiry(number);
    char cvc[4];
    dialect_cvc(number, cvc);
    json_open_object(writer, NULL);
    json_add_text(writer, "id", id);
    json_add_text(writer, "reference", row->reference);
    json_add_text(writer, "pan", number);
    json_add_integer(writer, "exp_month", expiry.month);
    json_add_integer(writer, "exp_year", expiry.year);
    json_add_text(writer, "cvc", cvc);
    json_add_text(writer, "status", status);
    json_close_object(writer);
}

static void answer_card(struct sandbox *sandbox, struct sandbox_answer *answer, int status, uint32_t card,
                        const char *card_status)
{
    struct json_writer writer = dialect_begin_answer(sandbox, answer, status);
    answer->card = card;
    add_card(&writer, sandbox, card, card_status);
}

static void put_error(struct json_writer *writer, int status, const char *code, const char *detail)
{
    (void)status;
    json_open_object(writer, NULL);
    json_add_text(writer, "code", code);
    json_add_text(writer, "detail", detail);
    json_close_object(writer);
}

static enum ledger_result execute_create(struct sandbox *sandbox, const struct ledger_order *order,
                                         struct sandbox_answer *answer)
{
    uint32_t card = 0;
    int64_t now_ms = sandbox_now_ms(sandbox);
    enum ledger_result result = ledger_create(sandbox->ledger, order, now_ms, &card);
    switch (result) {
    case LEDGER_MADE:
        answer_card(sandbox, answer, 201, card, "active");
        break;
    case LEDGER_SAME:
        /* The first answer, also if the card has been cancelled since. */
        answer_card(sandbox, answer, 200, card, "active");
        break;
    case LEDGER_MISMATCH:
        dialect_answer_error(sandbox, answer, 422, "idempotency_mismatch", "this key was used with another body");
        break;
    case LEDGER_REFUSED:
        dialect_answer_error(sandbox, answer, 422, ledger_refusal(sandbox->ledger, order->key, now_ms),
                             "this key was refused before");
        break;
    case LEDGER_UNLINKED:
    case LEDGER_ABSENT:
    case LEDGER_FULL:
        return LEDGER_FULL;
    }
    return result;
}

static enum ledger_result execute(struct sandbox *sandbox, enum call_kind kind, const struct sandbox_order *order,
                                  struct sandbox_answer *answer)
{
    uint32_t card = 0;
    if (kind == CALL_CREATE)
        return execute_create(sandbox, &order->card, answer);
    if (!ledger_card_of_id(sandbox->ledger, order->card_id, &card)) {
        dialect_answer_error(sandbox, answer, 404, "card_not_found", "there is no such card");
        return LEDGER_ABSENT;
    }
    if (!ledger_cancel(sandbox->ledger, card, sandbox_now_ms(sandbox))) {
        dialect_answer_error(sandbox, answer, 409, "already_cancelled", "the card is cancelled already");
        return LEDGER_SAME;
    }
    answer_card(sandbox, answer, 200, card, "cancelled");
    return LEDGER_MADE;
}

static void create(struct sandbox *sandbox, struct http_request *request)
{
    struct create_words words;
    const char *wrong = read_create(request, &words);
    struct sandbox_call call;
    if (dialect_begin(&call, sandbox, request, CALL_CREATE, &words.order)) {
        if (!sandbox_call_is_json(request))
            dialect_refuse(&call, 415, "unsupported_media_type", "Content-Type must be application/json");
        else if (wrong)
            dialect_refuse(&call, 400, "bad_request", wrong);
        else
            dialect_take(&call, &words.order);
    }
    sandbox_call_finish(&call);
}

/* The cards of a reference as they were at then_ms. */
static void answer_cards(struct sandbox_call *call, struct slice reference, int64_t then_ms)
{
    struct sandbox *sandbox = call->sandbox;
    struct json_writer writer = dialect_begin_answer(sandbox, &call->answer, 200);
    json_open_object(&writer, NULL);
    json_open_array(&writer, "cards");
    for (uint32_t at = UINT32_MAX; ledger_next_of_reference(sandbox->ledger, reference, &at);) {
        enum ledger_card_status status;
        if (!ledger_status_at(ledger_card(sandbox->ledger, at), then_ms, &status))
            continue;
        if (call->answer.card == SANDBOX_NO_CARD)
            call->answer.card = at;
        add_card(&writer, sandbox, at, ledger_status_name(status));
    }
    json_close_array(&writer);
    json_close_object(&writer);
}

static void look_up(struct sandbox *sandbox, struct http_request *request)
{
    char text[LEDGER_TEXT_MAX + 1] = "";
    bool readable = http_query_text(request->query, "reference", text, sizeof(text)) && *text;
    struct sandbox_order order = {.card.reference = slice_of(readable ? text : "")};
    uint32_t card = UINT32_MAX;
    if (ledger_next_of_reference(sandbox->ledger, order.card.reference, &card))
        order.card.user_id = slice_of(ledger_card(sandbox->ledger, card)->user_id);
    struct sandbox_call call;
    if (dialect_begin(&call, sandbox, request, CALL_LOOKUP, &order)) {
        if (readable)
            answer_cards(&call, order.card.reference, sandbox_call_shown_ms(&call));
        else
            dialect_refuse(&call, 400, "bad_request", "a reference is required");
    }
    sandbox_call_finish(&call);
}

/* All cards from a time on, oldest first, behind the card `after`. */
static void answer_list(struct sandbox_call *call, int64_t from_us, uint32_t at, size_t limit)
{
    struct sandbox *sandbox = call->sandbox;
    struct json_writer writer = dialect_begin_answer(sandbox, &call->answer, 200);
    size_t shown = 0;
    json_open_object(&writer, NULL);
    json_open_array(&writer, "cards");
    for (; at < ledger_cards(sandbox->ledger) && shown < limit; at++) {
        const struct ledger_card *card = ledger_card(sandbox->ledger, at);
        enum ledger_card_status status;
        if (dialect_made_us(sandbox, card) < from_us || !ledger_status_at(card, sandbox_call_shown_ms(call), &status))
            continue;
        shown++;
        add_card(&writer, sandbox, at, ledger_status_name(status));
    }
    json_close_array(&writer);
    json_add_bool(&writer, "has_more", at < ledger_cards(sandbox->ledger));
    json_close_object(&writer);
}

static void list(struct sandbox *sandbox, struct http_request *request)
{
    char after[LEDGER_CARD_ID_SIZE];
    int64_t from_us = 0;
    uint32_t card;
    size_t limit = http_query_number(request->query, "limit", 100);
    struct sandbox_order order = {.card.reference = slice_of("")};
    struct sandbox_call call;
    if (dialect_begin(&call, sandbox, request, CALL_LIST, &order)) {
        bool has_after = http_query_text(request->query, "after", after, sizeof(after));
        if (!dialect_query_time(request->query, "created_from", 0, &from_us) || limit < 1 || limit > 100)
            dialect_refuse(&call, 400, "bad_request", "created_from is a time of RFC 3339, limit from 1 to 100");
        else if (has_after && !ledger_card_of_id(sandbox->ledger, slice_of(after), &card))
            dialect_refuse(&call, 400, "bad_request", "after names no card");
        else
            answer_list(&call, from_us, has_after ? card + 1 : 0, limit);
    }
    sandbox_call_finish(&call);
}

static void cancel(struct sandbox *sandbox, struct http_request *request, struct slice id)
{
    uint32_t card;
    struct sandbox_order order = {.card.key = http_header(request, "Idempotency-Key", NULL)};
    bool known = dialect_find_card(sandbox, id, &order, &card);
    struct sandbox_call call;
    if (dialect_begin(&call, sandbox, request, CALL_CANCEL, &order)) {
        if (order.card.key.length == 0)
            dialect_refuse(&call, 400, "bad_request", "an Idempotency-Key is required");
        else if (!known)
            dialect_refuse(&call, 404, "card_not_found", "there is no such card");
        else
            dialect_take(&call, &order);
    }
    sandbox_call_finish(&call);
}

static void on_request(void *context, struct http_request *request)
{
    struct sandbox *sandbox = context;
    struct slice id;
    char text[LEDGER_TEXT_MAX + 1];
    bool reads = request->method == HTTP_GET || request->method == HTTP_HEAD;
    if (slice_is(request->path, "/v1/cards") && request->method == HTTP_POST)
        create(sandbox, request);
    else if (slice_is(request->path, "/v1/cards") && reads &&
             http_query_text(request->query, "created_from", text, sizeof(text)))
        list(sandbox, request);
    else if (slice_is(request->path, "/v1/cards") && reads)
        look_up(sandbox, request);
    else if (http_path_matches(request->path, "/v1/cards/{id}/cancel", &id) && request->method == HTTP_POST)
        cancel(sandbox, request, id);
    else
        dialect_stray(sandbox, request);
}

const struct dialect dialect_generic = {
    .name = "generic",
    .key_lifetime = "24h",
    .card_ids = CARD_ID_IC,
    .credentials = CREDENTIAL_BEARER,
    .may_ignore_keys = true,
    .on_request = on_request,
    .key_mismatch = {422, "idempotency_mismatch", "this key was used with another body"},
    .key_at_work = {409, "in_progress", "a call with this key is being executed"},
    .refused_status = 422,
    .unauthorized = {401, "unauthorized", "the credential is missing or wrong"},
    .not_found = {404, "not_found", "there is no such path or method"},
    .put_error = put_error,
    .execute = execute,
    .list = "cards",
    .other_reference = "{\"reference\":\"00000000-0000-7000-8000-000000000000\"}",
    .last4_before = "{\"last4\":\"",
    .last4_after = "\"}",
};
