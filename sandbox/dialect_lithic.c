/* The dialect `lithic`: cards by https://docs.lithic.com. Pitfalls: a `memo` filter that also finds cards whose memo
 * only contains the text, 5xx that are stored under a key while their repeats have no mark, months and years as texts,
 * errors without codes, and two writes a second (fault `limited` with "per_second":2,"retry_after":"1").
 *
 * Not known from the documents, and decided here: a closed card that is closed again is refused with 400, an unknown
 * account with 400; a create with `replacement_for` closes that card. Left out: limits of spending, webhooks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/slice.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/http_server/http_path.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "sandbox/dialect_lithic.h"

static must_check bool is_uuid(struct slice text)
{
    struct uuid uuid;
    return uuid_parse(text.bytes, text.length, &uuid);
}

/* ---- answers ---- */

/* Lithic has no codes. A rule's code is written before its text, so that a test sees what it scripted. */
static void put_error(struct json_writer *writer, int status, const char *code, const char *detail)
{
    char message[400], id[UUID_TEXT_SIZE];
    struct uuid uuid = uuid4_make();
    (void)status;
    uuid_format(&uuid, id);
    snprintf(message, sizeof(message), "%s: %s", code, detail);
    json_open_object(writer, NULL);
    json_add_text(writer, "debugging_request_id", id);
    json_add_text(writer, "message", message);
    json_close_object(writer);
}

static void answer_card(struct sandbox *sandbox, struct sandbox_answer *answer, uint32_t card)
{
    struct json_writer writer = dialect_begin_answer(sandbox, answer, 200);
    answer->card = card;
    lithic_card_add(&writer, sandbox, card, (enum ledger_card_status)ledger_card(sandbox->ledger, card)->status, true);
}

static enum ledger_result execute(struct sandbox *sandbox, enum call_kind kind, const struct sandbox_order *order,
                                  struct sandbox_answer *answer)
{
    uint32_t card = 0;
    int64_t now_ms = sandbox_now_ms(sandbox);
    if (kind == CALL_CREATE) {
        if (!ledger_make_card(sandbox->ledger, &order->card, now_ms, &card))
            return LEDGER_FULL;
        answer_card(sandbox, answer, card);
        return LEDGER_MADE;
    }
    if (!ledger_card_of_id(sandbox->ledger, order->card_id, &card))
        return LEDGER_ABSENT;
    bool is_closed = ledger_card(sandbox->ledger, card)->status == LEDGER_CANCELLED;
    if (is_closed) {
        dialect_answer_error(sandbox, answer, 400, "Bad Request", "the card is closed, which is final");
        return LEDGER_SAME;
    }
    bool changed = ledger_set_status(sandbox->ledger, card, order->card.status, now_ms);
    answer_card(sandbox, answer, card);
    return changed ? LEDGER_MADE : LEDGER_SAME;
}

/* Every answer of Lithic has it. */
bool lithic_begin(struct sandbox_call *call, struct sandbox *sandbox, struct http_request *request, enum call_kind kind,
                  struct sandbox_order *order)
{
    bool goes_on = dialect_begin(call, sandbox, request, kind, order);
    sandbox_answer_header(&call->answer, "x-requests-remaining", "14");
    return goes_on;
}

/* ---- create ---- */

/* The texts of a create; the order points to them. */
struct create_words {
    char memo[LITHIC_MEMO_SIZE], account[UUID_TEXT_SIZE], replaces[UUID_TEXT_SIZE];
    struct buf details;
    struct sandbox_order order;
};

static must_check bool is_one_of(struct json_value value, const char *const *words)
{
    char text[24];
    if (!json_string(value, text, sizeof(text), NULL))
        return false;
    while (*words && strcmp(*words, text) != 0)
        words++;
    return *words != NULL;
}

/* An optional member; "" if it is missing. False: it is there and invalid. */
static must_check bool read_optional(struct json_value value, char *text, size_t size, struct slice *ret_slice)
{
    size_t length = 0;
    text[0] = '\0';
    if (value.kind != JSON_MISSING && (!json_string(value, text, size, &length) || strlen(text) != length))
        return false;
    *ret_slice = (struct slice){.bytes = text, .length = length};
    return true;
}

static const char *read_members(struct sandbox *sandbox, struct json_value body, struct create_words *words)
{
    static const char *const types[] = {"VIRTUAL",  "PHYSICAL",       "SINGLE_USE", "MERCHANT_LOCKED",
                                        "UNLOCKED", "DIGITAL_WALLET", NULL};
    struct ledger_order *order = &words->order.card;
    struct json_value state = json_member(body, "state"), program = json_member(body, "card_program_token");
    if (!read_optional(json_member(body, "memo"), words->memo, sizeof(words->memo), &order->reference))
        return "memo is not a text of at most 255 bytes";
    if (!read_optional(json_member(body, "account_token"), words->account, sizeof(words->account), &order->holder))
        return "account_token is not a UUID";
    const char *user = dialect_user_of(sandbox, order->holder);
    order->user_id = slice_of(user ? user : "");
    if (!is_one_of(json_member(body, "type"), types))
        return "type is missing or no type of card";
    if (!order->holder.length)
        return "account_token is required in this program";
    if (!user)
        return "account_token names no account of this program";
    if (state.kind != JSON_MISSING && (!lithic_state_read(state, &order->status) || order->status == LEDGER_CANCELLED))
        return "state is neither OPEN nor PAUSED";
    char token[UUID_TEXT_SIZE];
    if (program.kind != JSON_MISSING &&
        (!json_string(program, token, sizeof(token), NULL) || !is_uuid(slice_of(token))))
        return "card_program_token is not a UUID";
    uint32_t replaced;
    if (!read_optional(json_member(body, "replacement_for"), words->replaces, sizeof(words->replaces),
                       &order->replaces) ||
        (order->replaces.length && !ledger_card_of_id(sandbox->ledger, order->replaces, &replaced)))
        return "replacement_for names no card";
    order->is_reissue = order->replaces.length > 0;
    order->replacing = LEDGER_CLOSES_AT_CREATE;
    return NULL;
}

/* Keeps what the answers repeat. */
static void keep_details(struct json_value body, struct buf *details)
{
    static const char *const names[] = {"memo", "type", "card_program_token", "replacement_for"};
    struct json_writer writer = json_writer_of(details);
    json_open_object(&writer, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct json_value value = json_member(body, names[i]);
        if (value.kind != JSON_MISSING)
            json_add_json(&writer, names[i], value.raw);
    }
    json_close_object(&writer);
}

/* NULL if the call is good, else what is wrong. Fills in what it can, so that a fault for one user also fires on a bad
 * body. Members that are not read are not refused: Lithic's document does not forbid them. */
static const char *read_create(struct sandbox *sandbox, const struct http_request *request, struct create_words *words)
{
    int keys;
    struct ledger_order *order = &words->order.card;
    order->body = request->body;
    order->key = http_header(request, "Idempotency-Key", &keys);
    if (!json_strict_check(request->body.bytes, request->body.length, NULL))
        return "the body is not JSON";
    struct json_value body = json_value_of(request->body.bytes, request->body.length);
    const char *wrong = body.kind == JSON_OBJECT ? read_members(sandbox, body, words) : "the body is not an object";
    if (wrong)
        return wrong;
    if (keys > 1 || (keys == 1 && !is_uuid(order->key)))
        return "Idempotency-Key is not a UUID";
    keep_details(body, &words->details);
    order->details = buf_slice(&words->details);
    return NULL;
}

static void create(struct sandbox *sandbox, struct http_request *request)
{
    struct create_words words = {.order = {.card.is_late = false}};
    buf_init(&words.details, 64 * 1024);
    const char *wrong = read_create(sandbox, request, &words);
    struct sandbox_call call;
    if (lithic_begin(&call, sandbox, request, CALL_CREATE, &words.order)) {
        if (!sandbox_call_is_json(request))
            dialect_refuse(&call, 415, "Unsupported Media Type", "Content-Type must be application/json");
        else if (wrong)
            dialect_refuse(&call, 400, "Bad Request", wrong);
        else if (words.details.failed)
            dialect_refuse(&call, 500, "Internal Server Error", "the sandbox has no memory left");
        else
            dialect_take(&call, &words.order);
    }
    sandbox_call_finish(&call);
    buf_done(&words.details);
}

/* ---- one card ---- */

static void retrieve(struct sandbox *sandbox, struct http_request *request, struct slice id)
{
    uint32_t card;
    struct sandbox_order order = {.card.is_late = false};
    bool known = dialect_find_card(sandbox, id, &order, &card);
    struct sandbox_call call;
    if (lithic_begin(&call, sandbox, request, CALL_RETRIEVE, &order)) {
        if (known)
            answer_card(sandbox, &call.answer, card);
        else
            dialect_refuse(&call, 404, "Not Found", "there is no such card");
    }
    sandbox_call_finish(&call);
}

static const char *read_update(const struct http_request *request, struct ledger_order *order)
{
    order->body = request->body;
    if (!json_strict_check(request->body.bytes, request->body.length, NULL))
        return "the body is not JSON";
    struct json_value body = json_value_of(request->body.bytes, request->body.length);
    return lithic_state_read(json_member(body, "state"), &order->status) ? NULL
                                                                         : "state is neither OPEN, PAUSED nor CLOSED";
}

/* PATCH has no key: a repeat changes nothing. */
static void update(struct sandbox *sandbox, struct http_request *request, struct slice id)
{
    uint32_t card;
    struct sandbox_order order = {.card.status = LEDGER_ACTIVE};
    bool known = dialect_find_card(sandbox, id, &order, &card);
    const char *wrong = read_update(request, &order.card);
    struct sandbox_call call;
    if (lithic_begin(&call, sandbox, request, order.card.status == LEDGER_CANCELLED ? CALL_CANCEL : CALL_ACTIVATE,
                     &order)) {
        if (!sandbox_call_is_json(request))
            dialect_refuse(&call, 415, "Unsupported Media Type", "Content-Type must be application/json");
        else if (wrong)
            dialect_refuse(&call, 400, "Bad Request", wrong);
        else if (!known)
            dialect_refuse(&call, 404, "Not Found", "there is no such card");
        else
            dialect_take(&call, &order);
    }
    sandbox_call_finish(&call);
}

static void on_request(void *context, struct http_request *request)
{
    struct sandbox *sandbox = context;
    struct slice id;
    bool reads = request->method == HTTP_GET || request->method == HTTP_HEAD;
    if (slice_is(request->path, "/v1/cards") && request->method == HTTP_POST)
        create(sandbox, request);
    else if (slice_is(request->path, "/v1/cards") && reads)
        lithic_look_up(sandbox, request);
    else if (http_path_matches(request->path, "/v1/cards/{token}", &id) && reads)
        retrieve(sandbox, request, id);
    else if (http_path_matches(request->path, "/v1/cards/{token}", &id) && request->method == HTTP_PATCH)
        update(sandbox, request, id);
    else
        dialect_stray(sandbox, request);
}

/* ---- holders: accounts ---- */

static void write_holder(const char *user_id, char ret_holder[HOLDER_SIZE])
{
    dialect_uuid_of(user_id, ret_holder, HOLDER_SIZE);
}

static void put_parameters(struct json_writer *writer, const char *user_id, const char *holder)
{
    (void)user_id;
    json_add_text(writer, "account_token", holder);
}

const struct dialect dialect_lithic = {
    .name = "lithic",
    .key_lifetime = "24h",
    .card_ids = CARD_ID_UUID,
    .credentials = CREDENTIAL_BARE,
    .may_ignore_keys = true,
    .may_hide_numbers = true,
    .on_request = on_request,
    .write_holder = write_holder,
    .put_parameters = put_parameters,
    .stores_answers = true,
    .key_mismatch = {400, "Bad Request", "this Idempotency-Key was used with other parameters"},
    .key_at_work = {409, "Conflict", "a request with this Idempotency-Key is being executed"},
    .refused_status = 400,
    .unauthorized = {401, "Unauthorized", "please provide a valid API key in the Authorization header"},
    .not_found = {404, "Not Found", "there is no such path or method"},
    .put_error = put_error,
    .execute = execute,
    .list = "data",
    .other_reference = "{\"memo\":\"00000000-0000-7000-8000-000000000000\"}",
    .last4_before = "{\"last_four\":\"",
    .last4_after = "\"}",
};
