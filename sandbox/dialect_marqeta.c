/* The dialect `marqeta`: cards by Marqeta's Core API (www.marqeta.com/docs/core-api). Transitions are in
 * dialect_marqeta_transitions.c, texts in dialect_marqeta_words.c. Pitfalls: the caller's token is the card's id and
 * its key for ever, so that other content under it is 409; a wrong path is 404 with a code, like a missing card;
 * numbers are masked; a card begins UNACTIVATED unless its card product activates it.
 *
 * The card products are `virtual` and, with activate_upon_issue, `virtual_activated`. GET /cards/{token} is a `lookup`
 * for rules of faults, also where the caller only reads a card that it knows. Not known from the documents, and decided
 * here: an unknown user or product is 400; a repeat shows the card as it is now; the card that new_pan_from_card_token
 * names stays as it is. Left out: users and products by call, controls, webhooks. */
#include <stdio.h>
#include <string.h>

#include "common/lib/base/slice.h"
#include "common/lib/http_server/http_path.h"
#include "common/lib/json/json_strict.h"
#include "sandbox/dialect_call.h"
#include "sandbox/dialect_marqeta_transitions.h"
#include "sandbox/dialect_marqeta_words.h"

#define LIST_DEFAULT 5
#define LIST_MAX 10
#define TOKEN_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

#define CODE_PRODUCT "400019"

/* ---- answers ---- */

static struct json_value json_of(const char *text)
{
    return json_value_of(text, strlen(text));
}

static void put_card(struct json_writer *writer, const struct sandbox *sandbox, uint32_t card,
                     enum ledger_card_status status, bool shows_number, bool shows_cvv)
{
    const struct ledger_card *row = ledger_card(sandbox->ledger, card);
    char number[LEDGER_NUMBER_SIZE], cvv[4];
    ledger_card_number(sandbox->ledger, card, number);
    dialect_cvc(number, cvv);
    struct dialect_expiry expiry = dialect_expiry(number);
    int64_t made_us = dialect_made_us(sandbox, row);
    marqeta_put_card(writer, &(struct marqeta_card){
                                 .content = json_of(row->details),
                                 .token = row->reference,
                                 .number = number,
                                 .cvv = shows_cvv ? cvv : NULL,
                                 .exp_month = expiry.month,
                                 .exp_year = expiry.year,
                                 .status = status,
                                 .shows_number = shows_number,
                                 .created_us = made_us,
                                 .modified_us = made_us + (row->changed_ms - row->made_ms) * 1000,
                             });
}

static void answer_card(struct sandbox *sandbox, struct sandbox_answer *answer, int http_status, uint32_t card,
                        enum ledger_card_status status, bool shows_number, bool shows_cvv)
{
    struct json_writer writer = dialect_begin_answer(sandbox, answer, http_status);
    answer->card = card;
    put_card(&writer, sandbox, card, status, shows_number, shows_cvv);
}

static bool query_is_true(const struct http_request *request, const char *name)
{
    char text[8];
    return http_query_text(request->query, name, text, sizeof(text)) && strcmp(text, "true") == 0;
}

/* ---- POST /cards ---- */

/* A create call's body. The strings are here because the slices of the order point to them. */
struct create_words {
    char token[MARQETA_TOKEN_SIZE], user_token[MARQETA_TOKEN_SIZE], replaces[MARQETA_TOKEN_SIZE];
    char flaw[MARQETA_FLAW_SIZE];
    struct buf content;
    const char *code; /* of the refusal */
    struct sandbox_order order;
};

static must_check bool read_product(struct json_value body, enum ledger_card_status *ret_status)
{
    char product[MARQETA_TOKEN_SIZE];
    if (!marqeta_token(body, "card_product_token", product))
        return false;
    *ret_status = strcmp(product, "virtual") == 0 ? LEDGER_INACTIVE : LEDGER_ACTIVE;
    return *ret_status == LEDGER_INACTIVE || strcmp(product, "virtual_activated") == 0;
}

/* The old card of a reissue, from the member that names it: with a new number it is terminated at once, with its own
 * number when the new card is activated. */
static const char *read_replaced(const struct sandbox *sandbox, struct json_value body, struct create_words *words)
{
    uint32_t replaced;
    bool has_new_number = marqeta_token(body, "new_pan_from_card_token", words->replaces);
    if (!has_new_number && !marqeta_token(body, "reissue_pan_from_card_token", words->replaces))
        return NULL;
    words->order.card.keeps_number = !has_new_number;
    words->order.card.replacing = has_new_number ? LEDGER_CLOSES_AT_CREATE : LEDGER_CLOSES_WHEN_ACTIVE;
    words->order.card.replaces = slice_of(words->replaces);
    words->order.card.is_reissue = true;
    return ledger_card_of_id(sandbox->ledger, words->order.card.replaces, &replaced)
               ? NULL
               : "the card that is to be replaced does not exist";
}

/* A create without a token gets one. */
static void read_token(struct json_value body, struct create_words *words)
{
    if (!marqeta_token(body, "token", words->token))
        marqeta_new_token(words->token);
    words->order.card.key = words->order.card.reference = slice_of(words->token);
}

/* NULL if the body is good, else what is wrong. Fills in what it can, so that a fault for one user also fires on a bad
 * body. */
static const char *read_create(const struct sandbox *sandbox, const struct http_request *request,
                               struct create_words *words)
{
    struct ledger_order *card = &words->order.card;
    words->code = "400";
    if (!json_strict_check(request->body.bytes, request->body.length, NULL))
        return "the body is not JSON";
    struct json_value body = json_value_of(request->body.bytes, request->body.length);
    read_token(body, words);
    const char *user = NULL;
    if (marqeta_token(body, "user_token", words->user_token)) {
        card->holder = slice_of(words->user_token);
        user = dialect_user_of(sandbox, card->holder);
        card->user_id = user ? slice_of(user) : card->holder;
    }
    const char *flaw = marqeta_create_flaw(body, words->flaw);
    if (flaw)
        return flaw;
    if (!user)
        return "the user does not exist";
    if (!read_product(body, &card->status)) {
        words->code = CODE_PRODUCT;
        return "the card product does not exist";
    }
    marqeta_put_create_content(body, &words->content);
    card->body = card->details = buf_slice(&words->content);
    return read_replaced(sandbox, body, words);
}

static enum ledger_result execute_create(struct sandbox *sandbox, const struct sandbox_order *order,
                                         struct sandbox_answer *answer)
{
    struct ledger *ledger = sandbox->ledger;
    uint32_t card = UINT32_MAX;
    enum ledger_result result = LEDGER_MADE;
    int64_t now_ms = sandbox_now_ms(sandbox);
    const char *refusal = ledger_refusal(ledger, order->card.key, now_ms);
    if (ledger_next_of_reference(ledger, order->card.reference, &card)) {
        ledger_note_send(ledger, order->card.key);
        bool is_same = slice_is(order->card.details, ledger_card(ledger, card)->details);
        ledger_add(ledger, is_same ? LEDGER_COUNT_ISSUER_REPLAYED : LEDGER_COUNT_ISSUER_MISMATCH);
        if (!is_same) {
            dialect_answer_error(sandbox, answer, 409, MARQETA_OTHER_CONTENT_CODE, MARQETA_OTHER_CONTENT);
            return LEDGER_MISMATCH;
        }
        result = LEDGER_SAME;
    } else if (refusal) {
        dialect_answer_error(sandbox, answer, 400, refusal, "this token was refused before");
        return LEDGER_REFUSED;
    } else if (!ledger_make_card(ledger, &order->card, now_ms, &card)) {
        dialect_answer_error(sandbox, answer, 500, "500", "the sandbox has no memory for another card");
        return LEDGER_FULL;
    }
    answer_card(sandbox, answer, 201, card, (enum ledger_card_status)ledger_card(ledger, card)->status, false, false);
    return result;
}

static void create(struct sandbox *sandbox, struct http_request *request)
{
    struct create_words words = {0};
    struct sandbox_call call;
    buf_init(&words.content, MARQETA_CONTENT_MAX);
    const char *wrong = read_create(sandbox, request, &words);
    if (dialect_begin(&call, sandbox, request, CALL_CREATE, &words.order)) {
        if (!sandbox_call_is_json(request))
            dialect_refuse(&call, 415, "415", "Content-Type must be application/json");
        else if (words.content.failed)
            dialect_refuse(&call, 500, "500", "the sandbox has no memory for another card");
        else if (wrong)
            dialect_refuse(&call, 400, words.code, wrong);
        else
            dialect_take(&call, &words.order);
    }
    bool shows_number = query_is_true(request, "show_pan"), shows_cvv = query_is_true(request, "show_cvv_number");
    if (call.answer.status == 201 && call.answer.card != SANDBOX_NO_CARD && (shows_number || shows_cvv)) {
        uint32_t card = call.answer.card;
        answer_card(sandbox, &call.answer, 201, card,
                    (enum ledger_card_status)ledger_card(sandbox->ledger, card)->status, shows_number, shows_cvv);
    }
    sandbox_call_finish(&call);
    buf_done(&words.content);
}

/* ---- GET /cards/{token}, GET /cards/{token}/showpan, GET /cards/user/{token} ---- */

static void show_card(struct sandbox *sandbox, struct http_request *request, enum call_kind kind, struct slice segment)
{
    struct sandbox_order order = {0};
    struct sandbox_call call;
    char token[LEDGER_TEXT_MAX + 1];
    uint32_t card = SANDBOX_NO_CARD;
    order.card.reference = http_percent_decode(segment, token, sizeof(token)) ? slice_of(token) : segment;
    bool known = dialect_find_card(sandbox, order.card.reference, &order, &card);
    if (dialect_begin(&call, sandbox, request, kind, &order)) {
        enum ledger_card_status status;
        if (known && ledger_status_at(ledger_card(sandbox->ledger, card), sandbox_call_shown_ms(&call), &status))
            answer_card(sandbox, &call.answer, 200, card, status, kind == CALL_REVEAL,
                        query_is_true(request, "show_cvv_number"));
        else
            dialect_answer_error(sandbox, &call.answer, 404, "404057", "the card does not exist");
    }
    sandbox_call_finish(&call);
}

/* Newest first. */
static void put_cards_of(struct json_writer *writer, const struct sandbox *sandbox, const char *user_token,
                         int64_t then_ms, size_t start, size_t count)
{
    size_t found = 0;
    json_open_array(writer, "data");
    for (uint32_t card = ledger_cards(sandbox->ledger); card-- > 0 && found <= start + count;) {
        const struct ledger_card *row = ledger_card(sandbox->ledger, card);
        enum ledger_card_status status;
        if (!row->holder || strcmp(row->holder, user_token) != 0 || !ledger_status_at(row, then_ms, &status))
            continue;
        if (found >= start && found < start + count)
            put_card(writer, sandbox, card, status, false, false);
        found++;
    }
    json_close_array(writer);
    size_t shown = found > start + count ? count : found > start ? found - start : 0;
    json_add_integer(writer, "count", (int64_t)shown);
    json_add_integer(writer, "start_index", (int64_t)start);
    json_add_integer(writer, "end_index", (int64_t)(start + shown) - (shown > 0));
    json_add_bool(writer, "is_more", found > start + count);
}

static void list_of_user(struct sandbox *sandbox, struct http_request *request, struct slice segment)
{
    struct sandbox_order order = {0};
    struct sandbox_call call;
    char token[HOLDER_SIZE];
    const char *user = NULL;
    if (http_percent_decode(segment, token, sizeof(token)))
        user = dialect_user_of(sandbox, slice_of(token));
    if (user)
        order.card.user_id = slice_of(user);
    size_t count = LIST_DEFAULT, start = 0;
    bool is_range = dialect_query_number(request->query, "count", 1, LIST_MAX, &count) &&
                    dialect_query_number(request->query, "start_index", 0, INT32_MAX, &start);
    if (dialect_begin(&call, sandbox, request, CALL_LOOKUP, &order)) {
        if (!user) {
            dialect_refuse(&call, 400, "400", "the user does not exist");
        } else if (!is_range) {
            dialect_refuse(&call, 400, "400", "count is 1 to 10, start_index a number");
        } else {
            struct json_writer writer = dialect_begin_answer(sandbox, &call.answer, 200);
            json_open_object(&writer, NULL);
            put_cards_of(&writer, sandbox, token, sandbox_call_shown_ms(&call), start, count);
            json_close_object(&writer);
        }
    }
    sandbox_call_finish(&call);
}

/* ---- the dialect ---- */

/* A user's token is the user id, as a company may choose it; a user id that is too long has another token. */
static void write_holder(const char *user_id, char ret_holder[HOLDER_SIZE])
{
    if (strlen(user_id) < MARQETA_TOKEN_SIZE && strspn(user_id, TOKEN_CHARACTERS) == strlen(user_id))
        snprintf(ret_holder, HOLDER_SIZE, "%s", user_id);
    else
        dialect_letters_of("user_", user_id, ret_holder, HOLDER_SIZE);
}

static void put_parameters(struct json_writer *writer, const char *user_id, const char *holder)
{
    if (strcmp(user_id, holder) != 0)
        json_add_text(writer, "user_token", holder);
}

/* A code that is not a number, such as a rule's, becomes the status. */
static void put_error(struct json_writer *writer, int status, const char *code, const char *detail)
{
    char number[12];
    snprintf(number, sizeof(number), "%d", status);
    marqeta_put_error(writer, strspn(code, "0123456789") == strlen(code) ? code : number, detail);
}

static enum ledger_result execute(struct sandbox *sandbox, enum call_kind kind, const struct sandbox_order *order,
                                  struct sandbox_answer *answer)
{
    return kind == CALL_CREATE ? execute_create(sandbox, order, answer)
                               : marqeta_execute_transition(sandbox, order, answer);
}

/* The base path of Marqeta's URLs ends with /v3, which the caller may leave out. */
static struct slice path_of(const struct http_request *request)
{
    static const struct slice base = SLICE("/v3");
    struct slice path = request->path;
    if (path.length > base.length && memcmp(path.bytes, base.bytes, base.length) == 0 && path.bytes[base.length] == '/')
        path = (struct slice){.bytes = path.bytes + base.length, .length = path.length - base.length};
    return path;
}

static void on_request(void *context, struct http_request *request)
{
    struct sandbox *sandbox = context;
    struct slice path = path_of(request), segment;
    bool reads = request->method == HTTP_GET || request->method == HTTP_HEAD, posts = request->method == HTTP_POST;
    if (posts && slice_is(path, "/cards"))
        create(sandbox, request);
    else if (posts && slice_is(path, "/cardtransitions"))
        marqeta_make_transition(sandbox, request);
    else if (reads && http_path_matches(path, "/cards/{token}", &segment))
        show_card(sandbox, request, CALL_LOOKUP, segment);
    else if (reads && http_path_matches(path, "/cards/{token}/showpan", &segment))
        show_card(sandbox, request, CALL_REVEAL, segment);
    else if (reads && http_path_matches(path, "/cards/user/{token}", &segment))
        list_of_user(sandbox, request, segment);
    else if (reads && http_path_matches(path, "/cardtransitions/{token}", &segment))
        marqeta_show_transition(sandbox, request, segment);
    else
        dialect_stray(sandbox, request);
}

const struct dialect dialect_marqeta = {
    .name = "marqeta",
    .key_lifetime = "3660d",
    .card_ids = CARD_ID_REFERENCE,
    .credentials = CREDENTIAL_BASIC,
    .on_request = on_request,
    .write_holder = write_holder,
    .put_parameters = put_parameters,
    .key_mismatch = {409, MARQETA_OTHER_CONTENT_CODE, MARQETA_OTHER_CONTENT},
    .key_at_work = {409, MARQETA_OTHER_CONTENT_CODE, MARQETA_OTHER_CONTENT},
    .refused_status = 400,
    .unauthorized = {401, "401", "Enter valid credentials"},
    .not_found = {404, "404000", "there is no such path or method"},
    .put_error = put_error,
    .execute = execute,
    .list = "data",
    .other_reference = "{\"token\":\"00000000-0000-7000-8000-000000000000\"}",
    .last4_before = "{\"last_four\":\"",
    .last4_after = "\"}",
};
