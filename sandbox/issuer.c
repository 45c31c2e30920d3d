/* The stand-in issuer: makes cards under idempotency keys, looks them up by reference, cancels them.
 *
 * This file is the HTTP surface, one dialect; what a call does is in the ledger. The dialect is as strict as an issuer
 * may be: a body has exactly the documented members, "same body" means the same bytes, and a key is forgotten when its
 * lifetime is over, so that a program that retries too late gets its second card here and not at a real issuer. Every
 * card answer carries a "cvc" that no program may store. Left out: money, limits, expiry, webhooks. */
#include "sandbox/issuer.h"

#include <stdio.h>
#include <string.h>

#include "common/http_server/http_path.h"
#include "common/json/json_strict.h"
#include "common/json/json_value.h"
#include "common/json/json_writer.h"
#include "sandbox/sandbox_call.h"
#include "sandbox/postponed.h"

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
        return "the body has unknown members";
    return NULL;
}

static void add_card(struct json_writer *writer, const struct sandbox *sandbox, uint32_t card, const char *status)
{
    const struct ledger_card *row = ledger_card(sandbox->ledger, card);
    char id[LEDGER_CARD_ID_SIZE], number[LEDGER_NUMBER_SIZE];
    ledger_card_id(sandbox->ledger, card, id);
    ledger_card_number(sandbox->ledger, card, number);
    unsigned luck =
        (unsigned)(number[12] - '0') * 100 + (unsigned)(number[13] - '0') * 10 + (unsigned)(number[14] - '0');
    char cvc[4];
    snprintf(cvc, sizeof(cvc), "%03u", (luck * 7 + 13) % 1000);
    json_open_object(writer, NULL);
    json_add_text(writer, "id", id);
    json_add_text(writer, "reference", row->reference);
    json_add_text(writer, "pan", number);
    json_add_integer(writer, "exp_month", luck % 12 + 1);
    json_add_integer(writer, "exp_year", EXPIRY_YEAR + luck % 3);
    json_add_text(writer, "cvc", cvc);
    json_add_text(writer, "status", status);
    json_close_object(writer);
}

static void answer_card(struct sandbox *sandbox, uint32_t card, const char *status)
{
    struct json_writer writer = json_writer_of(&sandbox->body);
    add_card(&writer, sandbox, card, status);
}

static void refuse(struct sandbox_call *call, int status, const char *code, const char *detail)
{
    ledger_add(call->sandbox->ledger, LEDGER_COUNT_ISSUER_REFUSED);
    sandbox_call_refuse(call, status, code, detail);
}

static must_check bool admit(struct sandbox_call *call)
{
    if (sandbox_call_is_authorized(call->request, &call->sandbox->issuer_credential))
        return true;
    refuse(call, 401, "unauthorized", "the credential is missing or wrong");
    return false;
}

static void execute_create(struct sandbox_call *call, const struct ledger_order *order)
{
    struct sandbox *sandbox = call->sandbox;
    uint32_t card = 0;
    int64_t now_ms = sandbox_now_ms(sandbox);
    switch (ledger_create(sandbox->ledger, order, now_ms, &card)) {
    case LEDGER_MADE:
        call->status = 201;
        answer_card(sandbox, card, "active");
        return;
    case LEDGER_SAME:
        /* The first answer, also when the card has been cancelled since. */
        call->status = 200;
        answer_card(sandbox, card, "active");
        return;
    case LEDGER_MISMATCH:
        sandbox_call_refuse(call, 422, "idempotency_mismatch", "this key was used with another body");
        return;
    case LEDGER_REFUSED:
        sandbox_call_refuse(call, 422, ledger_refusal(sandbox->ledger, order->key, now_ms),
                            "this key was refused before");
        return;
    case LEDGER_UNLINKED:
    case LEDGER_ABSENT:
    case LEDGER_FULL:
        sandbox_call_refuse(call, 500, "out_of_memory", "the sandbox has no memory for another card");
        return;
    }
}

static void take_create(struct sandbox_call *call, const struct ledger_order *order)
{
    if (sandbox_call_executes_now(call))
        execute_create(call, order);
    if (sandbox_call_executes_late(call))
        postponed_add(call, &(struct postponed_execution){.order = *order});
}

static void create(struct sandbox *sandbox, struct http_request *request)
{
    struct create_words words;
    const char *wrong = read_create(request, &words);
    const struct ledger_order *order = &words.order;
    struct sandbox_call call;
    ledger_add(sandbox->ledger, LEDGER_COUNT_ISSUER_CREATE);
    bool executes = sandbox_call_begin(
        &call, sandbox, request, CALL_CREATE,
        &(struct call_words){.user = order->user_id, .key = order->key, .reference = order->reference});
    if (!executes) {
        ledger_note_send(sandbox->ledger, order->key);
    } else if (admit(&call)) {
        if (!sandbox_call_is_json(request))
            refuse(&call, 415, "unsupported_media_type", "Content-Type must be application/json");
        else if (wrong)
            refuse(&call, 400, "bad_request", wrong);
        else
            take_create(&call, order);
    }
    sandbox_call_finish(&call);
}

static struct slice slice_of(const char *text)
{
    return (struct slice){.bytes = text, .length = strlen(text)};
}

/* The cards of a reference as they were then. */
static void answer_cards(struct sandbox *sandbox, struct slice reference, int64_t then_ms)
{
    struct json_writer writer = json_writer_of(&sandbox->body);
    json_open_object(&writer, NULL);
    json_open_array(&writer, "cards");
    for (uint32_t at = UINT32_MAX; ledger_next_of_reference(sandbox->ledger, reference, &at);) {
        enum ledger_card_status status;
        if (ledger_status_at(ledger_card(sandbox->ledger, at), then_ms, &status))
            add_card(&writer, sandbox, at, status_names[status]);
    }
    json_close_array(&writer);
    json_close_object(&writer);
}

static void look_up(struct sandbox *sandbox, struct http_request *request)
{
    char text[LEDGER_TEXT_MAX + 1] = "";
    bool readable = http_query_text(request->query, "reference", text, sizeof(text)) && *text;
    struct slice reference = slice_of(readable ? text : "");
    struct call_words words = {.reference = reference};
    uint32_t card = UINT32_MAX;
    if (ledger_next_of_reference(sandbox->ledger, reference, &card))
        words.user = slice_of(ledger_card(sandbox->ledger, card)->user_id);
    struct sandbox_call call;
    ledger_add(sandbox->ledger, LEDGER_COUNT_ISSUER_LOOKUP);
    if (sandbox_call_begin(&call, sandbox, request, CALL_LOOKUP, &words) && admit(&call)) {
        if (!readable) {
            refuse(&call, 400, "bad_request", "a reference is required");
        } else {
            bool is_stale = call.fault && call.fault->kind == FAULT_stale;
            call.status = 200;
            answer_cards(sandbox, reference, sandbox_now_ms(sandbox) - (is_stale ? call.fault->stale_ms : 0));
        }
    }
    sandbox_call_finish(&call);
}

static void take_cancel(struct sandbox_call *call, uint32_t card, struct slice id)
{
    struct sandbox *sandbox = call->sandbox;
    if (sandbox_call_executes_late(call)) {
        const struct ledger_card *row = ledger_card(sandbox->ledger, card);
        postponed_add(call, &(struct postponed_execution){
                                .card_id = id,
                                .link = {.request_id = slice_of(row->reference), .user_id = slice_of(row->user_id)}});
    }
    if (!sandbox_call_executes_now(call))
        return;
    if (!ledger_cancel(sandbox->ledger, card, sandbox_now_ms(sandbox))) {
        sandbox_call_refuse(call, 409, "already_cancelled", "the card is cancelled already");
        return;
    }
    call->status = 200;
    answer_card(sandbox, card, "cancelled");
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
    struct sandbox_call call;
    ledger_add(sandbox->ledger, LEDGER_COUNT_ISSUER_CANCEL);
    if (sandbox_call_begin(&call, sandbox, request, CALL_CANCEL, &words) && admit(&call)) {
        if (words.key.length == 0) {
            refuse(&call, 400, "bad_request", "an Idempotency-Key is required");
        } else if (!known) {
            refuse(&call, 404, "card_not_found", "there is no such card");
        } else {
            take_cancel(&call, card, id);
        }
    }
    sandbox_call_finish(&call);
}

static void stray(struct sandbox *sandbox, struct http_request *request)
{
    struct sandbox_call call;
    ledger_add(sandbox->ledger, LEDGER_COUNT_STRAY);
    if (sandbox_call_begin(&call, sandbox, request, CALL_STRAY_ISSUER,
                           &(struct call_words){.reference = request->path}))
        sandbox_call_refuse(&call, 404, "not_found", "there is no such path or method");
    sandbox_call_finish(&call);
}

void issuer_on_request(void *context, struct http_request *request)
{
    struct sandbox *sandbox = context;
    struct slice id;
    bool reads = request->method == HTTP_GET || request->method == HTTP_HEAD;
    if (slice_is(request->path, "/v1/cards") && request->method == HTTP_POST)
        create(sandbox, request);
    else if (slice_is(request->path, "/v1/cards") && reads)
        look_up(sandbox, request);
    else if (http_path_matches(request->path, "/v1/cards/{id}/cancel", &id) && request->method == HTTP_POST)
        cancel(sandbox, request, id);
    else
        stray(sandbox, request);
}
