/* The dialect `increase`: cards by https://increase.com/documentation/api/cards. Pitfalls: the caller's key is a member
 * of the card and stays for ever, a list ends with `next_cursor`: null or a text of its own, and a card never shows its
 * number: GET /cards/{id}/details does, with the security code and a PIN beside it.
 *
 * A key makes one object. A repeat with the same bytes gets that card as it is now, marked `Idempotent-Replayed`; with
 * others it is 409 and names the card. Not known from the documents, and decided here: a failure is not kept under a
 * key; unknown members and filters are refused with 400, an unknown account with 404, each change of a canceled card
 * with 409. Left out: limits of cards, wallets, physical cards, webhooks. */
#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/slice.h"
#include "common/lib/http_server/http_path.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "sandbox/dialect_call.h"

#define TEXT_SIZE 201 /* of a key, of an id */
#define CURSOR_SIZE 16
#define LIMIT_MAX 100

#define INVALID "invalid_parameters_error"
#define NOT_FOUND "object_not_found_error"
#define WRONG_STATE "invalid_operation_error"
#define KEY_USED "idempotency_key_already_used_error"

/* ---- answers ---- */

static const struct {
    const char *word;
    enum ledger_card_status status;
} states[] = {
    {"active", LEDGER_ACTIVE},
    {"disabled", LEDGER_PAUSED},
    {"canceled", LEDGER_CANCELLED},
};

static const char *word_of(enum ledger_card_status status)
{
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        if (states[i].status == status)
            return states[i].word;
    }
    return "canceled";
}

static must_check bool read_state(const char *word, enum ledger_card_status *ret_status)
{
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        if (strcmp(states[i].word, word) == 0) {
            *ret_status = states[i].status;
            return true;
        }
    }
    return false;
}

static struct json_writer begin_error(struct json_writer writer, int status, const char *type, const char *detail)
{
    json_open_object(&writer, NULL);
    json_add_text(&writer, "type", type);
    json_add_integer(&writer, "status", status);
    json_add_text(&writer, "title", "The request was not executed.");
    json_add_text(&writer, "detail", detail);
    return writer;
}

static void put_error(struct json_writer *writer, int status, const char *code, const char *detail)
{
    *writer = begin_error(*writer, status, code, detail);
    if (strcmp(code, INVALID) == 0) {
        json_open_array(writer, "errors");
        json_close_array(writer);
    }
    json_close_object(writer);
}

/* Members of a create that are objects, and are answered as they were sent. */
static const char *const objects[] = {"authorization_controls", "billing_address", "digital_wallet"};

static bool is_object(const char *name)
{
    size_t at = 0;
    while (at < ARRAY_SIZE(objects) && strcmp(objects[at], name) != 0)
        at++;
    return at < ARRAY_SIZE(objects);
}

/* The member as the create had it; null if it had none. A billing address always has its members. */
static void add_said(struct json_writer *writer, struct json_value details, const char *name)
{
    static const char nothing[] = "{\"city\":null,\"line1\":null,\"line2\":null,\"postal_code\":null,\"state\":null}";
    struct json_value value = json_member(details, name);
    if (value.kind != JSON_MISSING)
        json_add_json(writer, name, value.raw);
    else if (strcmp(name, "billing_address") == 0)
        json_add_json(writer, name, slice_of(nothing));
    else
        json_add_null(writer, name);
}

static void add_card(struct json_writer *writer, const struct sandbox *sandbox, uint32_t card,
                     enum ledger_card_status status)
{
    const struct ledger_card *row = ledger_card(sandbox->ledger, card);
    struct json_value details = json_value_of(row->details, strlen(row->details));
    char id[LEDGER_CARD_ID_SIZE], number[LEDGER_NUMBER_SIZE], made[CLOCK_RFC3339_SIZE];
    ledger_card_id(sandbox->ledger, card, id);
    ledger_card_number(sandbox->ledger, card, number);
    clock_format(dialect_made_us(sandbox, row), made);
    struct dialect_expiry expiry = dialect_expiry(number);
    json_open_object(writer, NULL);
    json_add_text(writer, "id", id);
    json_add_text(writer, "account_id", row->holder);
    for (size_t i = 0; i < ARRAY_SIZE(objects); i++)
        add_said(writer, details, objects[i]);
    json_add_text(writer, "bin", "400000");
    json_add_text(writer, "created_at", made);
    add_said(writer, details, "description");
    add_said(writer, details, "entity_id");
    json_add_integer(writer, "expiration_month", expiry.month);
    json_add_integer(writer, "expiration_year", expiry.year);
    json_add_text(writer, "idempotency_key", *row->key ? row->key : NULL);
    json_add_text(writer, "last4", number + 12);
    json_add_text(writer, "status", word_of(status));
    json_add_text(writer, "type", "card");
    json_close_object(writer);
}

static void answer_card(struct sandbox *sandbox, struct sandbox_answer *answer, uint32_t card)
{
    struct json_writer writer = dialect_begin_answer(sandbox, answer, 200);
    answer->card = card;
    add_card(&writer, sandbox, card, (enum ledger_card_status)ledger_card(sandbox->ledger, card)->status);
}

static void answer_details(struct sandbox *sandbox, struct sandbox_answer *answer, uint32_t card)
{
    char id[LEDGER_CARD_ID_SIZE], number[LEDGER_NUMBER_SIZE], code[4];
    struct json_writer writer = dialect_begin_answer(sandbox, answer, 200);
    answer->card = card;
    ledger_card_id(sandbox->ledger, card, id);
    ledger_card_number(sandbox->ledger, card, number);
    dialect_cvc(number, code);
    struct dialect_expiry expiry = dialect_expiry(number);
    json_open_object(&writer, NULL);
    json_add_text(&writer, "card_id", id);
    json_add_integer(&writer, "expiration_month", expiry.month);
    json_add_integer(&writer, "expiration_year", expiry.year);
    json_add_text(&writer, "pin", "1234");
    json_add_text(&writer, "primary_account_number", number);
    json_add_text(&writer, "type", "card_details");
    json_add_text(&writer, "verification_code", code);
    json_close_object(&writer);
}

/* ---- POST /cards ---- */

/* A body's members. The texts are here because the slices of the order point to them. */
struct words {
    char account[HOLDER_SIZE], description[1024], entity[TEXT_SIZE], state[16];
    int status; /* of the refusal */
    const char *code;
    struct sandbox_order order;
};

/* NULL if each member is an object, or a text of `names`, else what is wrong. None of them must be there. */
static const char *read_texts(const struct http_request *request, const char *const *names, char *const *texts,
                              const size_t *sizes)
{
    if (!json_strict_check(request->body.bytes, request->body.length, NULL))
        return "the body is not JSON";
    struct json_value value, body = json_value_of(request->body.bytes, request->body.length);
    size_t cursor = 0;
    struct slice name;
    if (body.kind != JSON_OBJECT)
        return "the body is not an object";
    while (json_next_member(body, &cursor, &name, &value)) {
        char plain[32];
        size_t at = 0, length;
        snprintf(plain, sizeof(plain), "%.*s", (int)name.length - 2, name.bytes + 1);
        while (names[at] && strcmp(names[at], plain) != 0)
            at++;
        if (!names[at] && !is_object(plain))
            return "the body has a member that this call does not have";
        if (names[at] ? !json_string(value, texts[at], sizes[at], &length) || !length || strlen(texts[at]) != length
                      : value.kind != JSON_OBJECT)
            return "a member has another type, or is too long";
    }
    return NULL;
}

/* NULL if the call is good, else what is wrong. Fills in what it can, so that a fault for one user also fires on a bad
 * body. */
static const char *read_create(const struct sandbox *sandbox, const struct http_request *request, struct words *words)
{
    static const char *const names[] = {"account_id", "description", "entity_id", NULL};
    char *const texts[] = {words->account, words->description, words->entity};
    static const size_t sizes[] = {sizeof(words->account), sizeof(words->description), sizeof(words->entity)};
    struct ledger_order *order = &words->order.card;
    int keys;
    words->status = 400;
    words->code = INVALID;
    order->body = request->body;
    order->key = order->reference = http_header(request, "Idempotency-Key", &keys);
    const char *wrong = read_texts(request, names, texts, sizes);
    order->holder = slice_of(words->account);
    const char *user = *words->account ? dialect_user_of(sandbox, order->holder) : NULL;
    order->user_id = slice_of(user ? user : "");
    if (wrong)
        return wrong;
    if (keys > 1 || order->key.length >= TEXT_SIZE)
        return "Idempotency-Key has at most 200 characters";
    if (!*words->account)
        return "account_id is required";
    order->details = request->body; /* what the answers repeat */
    if (user)
        return NULL;
    words->status = 404;
    words->code = NOT_FOUND;
    return "there is no such account";
}

/* The key has made another card, which the answer names. */
static void answer_key_used(struct sandbox *sandbox, struct slice key, struct sandbox_answer *answer)
{
    char id[LEDGER_CARD_ID_SIZE] = "";
    uint32_t card = UINT32_MAX;
    if (ledger_next_of_reference(sandbox->ledger, key, &card))
        ledger_card_id(sandbox->ledger, card, id);
    struct json_writer writer = begin_error(dialect_begin_answer(sandbox, answer, 409), 409, KEY_USED,
                                            "the key belongs to an object that was made with other parameters");
    json_add_text(&writer, "resource_id", id);
    json_close_object(&writer);
}

static enum ledger_result execute_create(struct sandbox *sandbox, const struct ledger_order *order,
                                         struct sandbox_answer *answer)
{
    uint32_t card = 0;
    int64_t now_ms = sandbox_now_ms(sandbox);
    enum ledger_result result = order->key.length ? ledger_create(sandbox->ledger, order, now_ms, &card)
                                : ledger_make_card(sandbox->ledger, order, now_ms, &card) ? LEDGER_MADE
                                                                                          : LEDGER_FULL;
    switch (result) {
    case LEDGER_SAME:
        sandbox_answer_header(answer, "Idempotent-Replayed", "true");
        answer_card(sandbox, answer, card);
        break;
    case LEDGER_MADE:
        answer_card(sandbox, answer, card);
        break;
    case LEDGER_MISMATCH:
        answer_key_used(sandbox, order->key, answer);
        break;
    case LEDGER_REFUSED:
        dialect_answer_error(sandbox, answer, 409, ledger_refusal(sandbox->ledger, order->key, now_ms),
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
    if (!ledger_card_of_id(sandbox->ledger, order->card_id, &card))
        return LEDGER_ABSENT;
    if (ledger_card(sandbox->ledger, card)->status == LEDGER_CANCELLED) {
        dialect_answer_error(sandbox, answer, 409, WRONG_STATE, "the card is canceled, which is final");
        return LEDGER_SAME;
    }
    bool changed = ledger_set_status(sandbox->ledger, card, order->card.status, sandbox_now_ms(sandbox));
    answer_card(sandbox, answer, card);
    return changed ? LEDGER_MADE : LEDGER_SAME;
}

static void create(struct sandbox *sandbox, struct http_request *request)
{
    struct words words = {.status = 0};
    const char *wrong = read_create(sandbox, request, &words);
    struct sandbox_call call;
    if (dialect_begin(&call, sandbox, request, CALL_CREATE, &words.order)) {
        if (!sandbox_call_is_json(request))
            dialect_refuse(&call, 400, "malformed_request_error", "Content-Type must be application/json");
        else if (wrong)
            dialect_refuse(&call, words.status, words.code, wrong);
        else
            dialect_take(&call, &words.order);
    }
    sandbox_call_finish(&call);
}

/* ---- one card ---- */

static void show(struct sandbox *sandbox, struct http_request *request, enum call_kind kind, struct slice id)
{
    uint32_t card;
    struct sandbox_order order = {.card.is_late = false};
    bool known = dialect_find_card(sandbox, id, &order, &card);
    struct sandbox_call call;
    if (dialect_begin(&call, sandbox, request, kind, &order)) {
        if (!known)
            dialect_refuse(&call, 404, NOT_FOUND, "there is no such card");
        else if (kind == CALL_REVEAL)
            answer_details(sandbox, &call.answer, card);
        else
            answer_card(sandbox, &call.answer, card);
    }
    sandbox_call_finish(&call);
}

/* A PATCH has no key: a repeat changes nothing. */
static void update(struct sandbox *sandbox, struct http_request *request, struct slice id)
{
    static const char *const names[] = {"status", NULL};
    struct words words = {.order.card.body = request->body};
    char *const texts[] = {words.state};
    static const size_t sizes[] = {sizeof(words.state)};
    uint32_t card;
    bool known = dialect_find_card(sandbox, id, &words.order, &card);
    const char *wrong = read_texts(request, names, texts, sizes);
    if (!wrong && !read_state(words.state, &words.order.card.status))
        wrong = "status is none of active, disabled and canceled";
    struct sandbox_call call;
    if (dialect_begin(&call, sandbox, request,
                      words.order.card.status == LEDGER_CANCELLED ? CALL_CANCEL : CALL_ACTIVATE, &words.order)) {
        if (!sandbox_call_is_json(request))
            dialect_refuse(&call, 400, "malformed_request_error", "Content-Type must be application/json");
        else if (wrong)
            dialect_refuse(&call, 400, INVALID, wrong);
        else if (!known)
            dialect_refuse(&call, 404, NOT_FOUND, "there is no such card");
        else
            dialect_take(&call, &words.order);
    }
    sandbox_call_finish(&call);
}

/* ---- GET /cards ---- */

struct filter {
    char key[TEXT_SIZE], account[TEXT_SIZE], cursor[TEXT_SIZE]; /* "" = any; any; the first page */
    int64_t since_us;
    size_t limit;
    uint32_t from; /* rows below this one are candidates */
};

/* No id of a card, and of no use to anybody but this dialect. */
static void write_cursor(uint32_t row, char ret_cursor[CURSOR_SIZE])
{
    snprintf(ret_cursor, CURSOR_SIZE, "next+%08x", row ^ UINT32_C(0x5eed5eed));
}

static must_check bool read_cursor(const struct sandbox *sandbox, const char *cursor, uint32_t *ret_row)
{
    unsigned bits;
    if (strlen(cursor) != 13 || sscanf(cursor, "next+%8x", &bits) != 1)
        return false;
    *ret_row = bits ^ UINT32_C(0x5eed5eed);
    return *ret_row < ledger_cards(sandbox->ledger);
}

static const char *read_filter(const struct sandbox *sandbox, struct slice query, struct filter *ret_filter)
{
    struct slice rest = query;
    struct http_query_pair pair;
    *ret_filter = (struct filter){.limit = LIMIT_MAX, .from = ledger_cards(sandbox->ledger)};
    while (http_query_next(&rest, &pair)) {
        char *text = slice_is(pair.name, "idempotency_key") ? ret_filter->key
                     : slice_is(pair.name, "account_id")    ? ret_filter->account
                     : slice_is(pair.name, "cursor")        ? ret_filter->cursor
                                                            : NULL;
        bool is_read_below = slice_is(pair.name, "limit") || slice_is(pair.name, "created_at.on_or_after");
        if (text ? !http_percent_decode(pair.value, text, TEXT_SIZE) : !is_read_below)
            return "there is no such filter, or its value is of no use";
    }
    if (!dialect_query_number(query, "limit", 1, LIMIT_MAX, &ret_filter->limit))
        return "limit is not between 1 and 100";
    if (!dialect_query_time(query, "created_at.on_or_after", 0, &ret_filter->since_us))
        return "created_at.on_or_after is not a time of ISO 8601";
    if (*ret_filter->cursor && !read_cursor(sandbox, ret_filter->cursor, &ret_filter->from))
        return "the cursor is of no list";
    return NULL;
}

/* Newest first. */
static void answer_list(struct sandbox_call *call, const struct filter *filter)
{
    const struct sandbox *sandbox = call->sandbox;
    int64_t then_ms = sandbox_call_shown_ms(call);
    char cursor[CURSOR_SIZE] = "";
    size_t shown = 0;
    struct json_writer writer = dialect_begin_answer(call->sandbox, &call->answer, 200);
    json_open_object(&writer, NULL);
    json_open_array(&writer, "data");
    for (uint32_t at = filter->from; at-- > 0 && !*cursor;) {
        const struct ledger_card *card = ledger_card(sandbox->ledger, at);
        enum ledger_card_status status;
        if ((*filter->key && strcmp(filter->key, card->key) != 0) ||
            (*filter->account && strcmp(filter->account, card->holder) != 0) ||
            dialect_made_us(sandbox, card) < filter->since_us || !ledger_status_at(card, then_ms, &status))
            continue;
        if (shown == filter->limit) {
            write_cursor(at + 1, cursor);
            continue;
        }
        if (shown++ == 0)
            call->answer.card = at;
        add_card(&writer, sandbox, at, status);
    }
    json_close_array(&writer);
    json_add_text(&writer, "next_cursor", *cursor ? cursor : NULL);
    json_close_object(&writer);
}

static void look_up(struct sandbox *sandbox, struct http_request *request)
{
    struct filter filter;
    const char *wrong = read_filter(sandbox, request->query, &filter);
    struct sandbox_order order = {.card.reference = slice_of(filter.key)};
    uint32_t card = UINT32_MAX;
    if (*filter.key && ledger_next_of_reference(sandbox->ledger, order.card.reference, &card))
        order.card.user_id = slice_of(ledger_card(sandbox->ledger, card)->user_id);
    struct sandbox_call call;
    if (dialect_begin(&call, sandbox, request, *filter.key ? CALL_LOOKUP : CALL_LIST, &order)) {
        if (wrong)
            dialect_refuse(&call, 400, INVALID, wrong);
        else
            answer_list(&call, &filter);
    }
    sandbox_call_finish(&call);
}

static void on_request(void *context, struct http_request *request)
{
    struct sandbox *sandbox = context;
    struct slice id;
    bool reads = request->method == HTTP_GET || request->method == HTTP_HEAD;
    if (slice_is(request->path, "/cards") && request->method == HTTP_POST)
        create(sandbox, request);
    else if (slice_is(request->path, "/cards") && reads)
        look_up(sandbox, request);
    else if (http_path_matches(request->path, "/cards/{id}", &id) && reads)
        show(sandbox, request, CALL_RETRIEVE, id);
    else if (http_path_matches(request->path, "/cards/{id}/details", &id) && reads)
        show(sandbox, request, CALL_REVEAL, id);
    else if (http_path_matches(request->path, "/cards/{id}", &id) && request->method == HTTP_PATCH)
        update(sandbox, request, id);
    else
        dialect_stray(sandbox, request);
}

/* ---- holders: accounts ---- */

static void write_holder(const char *user_id, char ret_holder[HOLDER_SIZE])
{
    dialect_letters_of("sandbox_account_", user_id, ret_holder, HOLDER_SIZE);
}

static void put_parameters(struct json_writer *writer, const char *user_id, const char *holder)
{
    (void)user_id;
    json_add_text(writer, "account_id", holder);
}

const struct dialect dialect_increase = {
    .name = "increase",
    .key_lifetime = "3660d",
    .card_ids = CARD_ID_CARD,
    .credentials = CREDENTIAL_BEARER,
    .on_request = on_request,
    .write_holder = write_holder,
    .put_parameters = put_parameters,
    .replayed_header = "Idempotent-Replayed",
    .key_mismatch = {409, KEY_USED, "the key belongs to an object that was made with other parameters"},
    .key_at_work = {409, "conflict", "a request with this key is being executed"},
    .refused_status = 409,
    .unauthorized = {401, "invalid_api_key_error", "the API key is missing or wrong"},
    .not_found = {404, "api_method_not_found_error", "there is no such path or method"},
    .put_error = put_error,
    .execute = execute,
    .list = "data",
    .other_reference = "{\"idempotency_key\":\"00000000-0000-7000-8000-000000000000\"}",
    .last4_before = "{\"last4\":\"",
    .last4_after = "\"}",
};
