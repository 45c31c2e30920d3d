/* The dialect `adyen`: payment instruments by Adyen's Configuration API v2 (docs.adyen.com, Balance Platform). Texts
 * are in dialect_adyen_words.c. Pitfalls: unknown members are refused, numbers are masked, a reference is not a key
 * (any number of instruments may have it), a look-up reads a balance account by offsets, newest first, and its rows
 * move while cards are made (the fault `skip_row` makes a walk miss one), and keys may be ignored (--ignore-keys):
 * Adyen documents keys in general and declares none for this API.
 *
 * Not known from the documents, and decided here: an unknown balance account or instrument is 422, as is every change
 * of a closed instrument; a key that was used with another body is 704, like a key that is in use; brandVariant has at
 * most 64 characters, a phone number 40. Left out: bank accounts, physical cards, changes of a card or of its balance
 * account, webhooks. */
#include <stdio.h>
#include <string.h>

#include "common/lib/base/slice.h"
#include "common/lib/http_server/http_path.h"
#include "common/lib/json/json_strict.h"
#include "sandbox/dialect_adyen_words.h"
#include "sandbox/dialect_call.h"

#define DETAILS_MAX ((size_t)256 * 1024)
#define KEY_MAX 64
#define LIST_DEFAULT 20
#define LIST_MAX 100

#define CODE_FIELDS "30_031"
#define CODE_KEY "704"

/* ---- answers ---- */

static void put_error(struct json_writer *writer, int status, const char *code, const char *detail)
{
    char own[16];
    /* A rule's code that Adyen does not have becomes the code of the status. */
    snprintf(own, sizeof(own), "00_%d", status);
    bool is_adyens = strspn(code, "0123456789_") == strlen(code);
    adyen_put_error(writer, &(struct adyen_error){.status = status, .code = is_adyens ? code : own, .detail = detail});
}

static void refuse_fields(struct sandbox_call *call, const struct json_shape_flaw *flaws, size_t count)
{
    dialect_refuse(call, 422, CODE_FIELDS, "");
    struct json_writer writer = dialect_begin_answer(call->sandbox, &call->answer, 422);
    adyen_put_error(&writer, &(struct adyen_error){.status = 422,
                                                   .code = CODE_FIELDS,
                                                   .detail = "The request has invalid fields.",
                                                   .flaws = flaws,
                                                   .flaw_count = count});
}

static const struct json_value none = {.kind = JSON_MISSING};

static void refuse_field(struct sandbox_call *call, const char *name, struct json_value value, const char *why)
{
    struct json_shape_flaw flaw = {.why = why, .value = value};
    snprintf(flaw.path, sizeof(flaw.path), "%s", name);
    refuse_fields(call, &flaw, 1);
}

enum shown { SHOWN_MASKED, SHOWN_WHOLE, SHOWN_REVEALED };

static void put_instrument(struct json_writer *writer, const struct sandbox *sandbox, uint32_t card,
                           enum ledger_card_status status, enum shown shown)
{
    const struct ledger_card *row = ledger_card(sandbox->ledger, card);
    char id[LEDGER_CARD_ID_SIZE], number[LEDGER_NUMBER_SIZE], cvc[4];
    ledger_card_id(sandbox->ledger, card, id);
    ledger_card_number(sandbox->ledger, card, number);
    dialect_cvc(number, cvc);
    struct dialect_expiry expiry = dialect_expiry(number);
    struct adyen_instrument instrument = {
        .request = json_value_of(row->details, strlen(row->details)),
        .id = id,
        .number = number,
        .cvc = cvc,
        .exp_month = expiry.month,
        .exp_year = expiry.year,
        .status = status,
    };
    instrument.shows_number = shown == SHOWN_WHOLE;
    if (shown == SHOWN_REVEALED)
        adyen_put_reveal(writer, &instrument);
    else
        adyen_put_instrument(writer, &instrument);
}

static void answer_instrument(struct sandbox *sandbox, struct sandbox_answer *answer, uint32_t card,
                              enum ledger_card_status status, enum shown shown)
{
    struct json_writer writer = dialect_begin_answer(sandbox, answer, 200);
    answer->card = card;
    put_instrument(&writer, sandbox, card, status, shown);
}

/* ---- POST /paymentInstruments ---- */

/* A body. The strings are here because the slices of the order point to them. */
struct words {
    char reference[ADYEN_REFERENCE_SIZE], account[HOLDER_SIZE];
    struct json_value body;
    struct json_shape_flaw flaws[ADYEN_FLAWS_MAX];
    size_t flaw_count;
    const char *user; /* of the balance account; NULL = there is no such account */
    struct sandbox_order order;
};

static void read_create(const struct sandbox *sandbox, const struct http_request *request, struct words *words)
{
    struct ledger_order *card = &words->order.card;
    size_t length;
    *card = (struct ledger_order){.body = request->body, .details = request->body};
    card->key = http_header(request, "Idempotency-Key", NULL);
    words->body = (struct json_value){.kind = JSON_MISSING};
    if (!json_strict_check(request->body.bytes, request->body.length, NULL))
        return;
    words->body = json_value_of(request->body.bytes, request->body.length);
    card->status = adyen_wanted_status(words->body, LEDGER_ACTIVE);
    if (json_string(json_member(words->body, "reference"), words->reference, sizeof(words->reference), &length))
        card->reference = (struct slice){.bytes = words->reference, .length = length};
    if (json_string(json_member(words->body, "balanceAccountId"), words->account, sizeof(words->account), &length)) {
        card->holder = (struct slice){.bytes = words->account, .length = length};
        words->user = dialect_user_of(sandbox, card->holder);
        card->user_id = words->user ? slice_of(words->user) : card->holder;
    }
    words->flaw_count = adyen_create_flaws(words->body, words->flaws);
}

static enum ledger_result execute_create(struct sandbox *sandbox, const struct sandbox_order *order,
                                         struct sandbox_answer *answer)
{
    uint32_t card;
    struct json_value request = json_value_of(order->card.body.bytes, order->card.body.length);
    if (!ledger_make_card(sandbox->ledger, &order->card, sandbox_now_ms(sandbox), &card))
        return LEDGER_FULL;
    answer_instrument(sandbox, answer, card, order->card.status,
                      adyen_is_single_use(request) ? SHOWN_WHOLE : SHOWN_MASKED);
    return LEDGER_MADE;
}

/* Checks what every call with a body must have. */
static must_check bool has_json(struct sandbox_call *call, const struct words *words)
{
    if (!sandbox_call_is_json(call->request))
        dialect_refuse(call, 415, "00_415", "Content-Type must be application/json.");
    else if (words->body.kind != JSON_OBJECT)
        dialect_refuse(call, 400, "00_400", "The body is not a JSON object.");
    else
        return true;
    return false;
}

static void create(struct sandbox *sandbox, struct http_request *request)
{
    struct words words = {0};
    struct sandbox_call call;
    read_create(sandbox, request, &words);
    if (dialect_begin(&call, sandbox, request, CALL_CREATE, &words.order) && has_json(&call, &words)) {
        if (words.flaw_count > 0)
            refuse_fields(&call, words.flaws, words.flaw_count);
        else if (words.order.card.key.length > KEY_MAX)
            refuse_field(&call, "Idempotency-Key", none, "is longer than 64 characters");
        else if (!words.user)
            refuse_field(&call, "balanceAccountId", json_member(words.body, "balanceAccountId"),
                         "is not a balance account of this platform");
        else
            dialect_take(&call, &words.order);
    }
    sandbox_call_finish(&call);
}

/* ---- PATCH /paymentInstruments/{id} ---- */

static enum ledger_result execute_update(struct sandbox *sandbox, const struct sandbox_order *order,
                                         struct sandbox_answer *answer)
{
    struct ledger *ledger = sandbox->ledger;
    uint32_t card;
    if (!ledger_card_of_id(ledger, order->card_id, &card)) {
        dialect_answer_error(sandbox, answer, 422, CODE_FIELDS, "There is no such payment instrument.");
        return LEDGER_ABSENT;
    }
    const struct ledger_card *row = ledger_card(ledger, card);
    if (row->status == LEDGER_CANCELLED) {
        dialect_answer_error(sandbox, answer, 422, CODE_FIELDS, "The payment instrument is closed for ever.");
        return LEDGER_SAME;
    }
    struct json_value update = json_value_of(order->card.body.bytes, order->card.body.length);
    struct buf details;
    buf_init(&details, DETAILS_MAX);
    struct json_writer writer = json_writer_of(&details);
    adyen_put_updated(&writer, json_value_of(row->details, strlen(row->details)), update);
    bool is_kept = !details.failed && ledger_set_details(ledger, card, buf_slice(&details));
    buf_done(&details);
    if (!is_kept)
        return LEDGER_FULL;
    enum ledger_card_status wanted = adyen_wanted_status(update, (enum ledger_card_status)row->status);
    bool is_new = ledger_set_status(ledger, card, wanted, sandbox_now_ms(sandbox));
    answer_instrument(sandbox, answer, card, wanted, SHOWN_MASKED);
    return is_new ? LEDGER_MADE : LEDGER_SAME;
}

static void refuse_move(struct sandbox_call *call, uint32_t card)
{
    if (ledger_card(call->sandbox->ledger, card)->status != LEDGER_INACTIVE)
        dialect_refuse(call, 422, CODE_FIELDS,
                       "The balanceAccountId can only be changed when the status is Inactive or Requested");
    else
        refuse_field(call, "balanceAccountId", none, "is not changed by this stand-in");
}

static void update(struct sandbox *sandbox, struct http_request *request, struct slice id)
{
    struct words words = {0};
    struct sandbox_call call;
    uint32_t card = SANDBOX_NO_CARD;
    bool known = dialect_find_card(sandbox, id, &words.order, &card);
    enum call_kind kind = CALL_ACTIVATE;
    words.order.card.body = request->body;
    if (json_strict_check(request->body.bytes, request->body.length, NULL)) {
        words.body = json_value_of(request->body.bytes, request->body.length);
        words.flaw_count = adyen_update_flaws(words.body, words.flaws);
        if (adyen_wanted_status(words.body, LEDGER_ACTIVE) == LEDGER_CANCELLED)
            kind = CALL_CANCEL;
    }
    if (dialect_begin(&call, sandbox, request, kind, &words.order) && has_json(&call, &words)) {
        if (words.flaw_count > 0)
            refuse_fields(&call, words.flaws, words.flaw_count);
        else if (known && json_member(words.body, "balanceAccountId").kind != JSON_MISSING)
            refuse_move(&call, card);
        else
            dialect_take(&call, &words.order);
    }
    sandbox_call_finish(&call);
}

/* ---- GET /paymentInstruments/{id}, GET /paymentInstruments/{id}/reveal ---- */

static void show(struct sandbox *sandbox, struct http_request *request, enum call_kind kind, struct slice id)
{
    struct sandbox_order order = {0};
    struct sandbox_call call;
    uint32_t card = SANDBOX_NO_CARD;
    bool known = dialect_find_card(sandbox, id, &order, &card);
    if (dialect_begin(&call, sandbox, request, kind, &order)) {
        enum ledger_card_status status;
        if (!known || !ledger_status_at(ledger_card(sandbox->ledger, card), sandbox_call_shown_ms(&call), &status))
            dialect_answer_error(sandbox, &call.answer, 422, CODE_FIELDS, "There is no such payment instrument.");
        else if (kind == CALL_REVEAL && status == LEDGER_CANCELLED)
            dialect_answer_error(sandbox, &call.answer, 422, CODE_FIELDS, "The payment instrument is closed for ever.");
        else
            answer_instrument(sandbox, &call.answer, card, status, kind == CALL_REVEAL ? SHOWN_REVEALED : SHOWN_MASKED);
    }
    sandbox_call_finish(&call);
}

/* ---- GET /balanceAccounts/{id}/paymentInstruments ---- */

/* The query of a list. */
struct range {
    const char *account;
    int64_t then_ms;
    size_t offset, limit;
    bool of_one_status;
    enum ledger_card_status status;
};

/* Writes the members of a page, with the cards from the newest to the oldest. */
static void put_page(struct json_writer *writer, const struct sandbox *sandbox, const struct range *range)
{
    size_t found = 0, end = range->offset + range->limit;
    json_open_array(writer, "paymentInstruments");
    for (uint32_t card = ledger_cards(sandbox->ledger); card-- > 0 && found <= end;) {
        const struct ledger_card *row = ledger_card(sandbox->ledger, card);
        enum ledger_card_status status;
        if (!row->holder || strcmp(row->holder, range->account) != 0 ||
            !ledger_status_at(row, range->then_ms, &status) || (range->of_one_status && status != range->status))
            continue;
        if (found >= range->offset && found < end)
            put_instrument(writer, sandbox, card, status, SHOWN_MASKED);
        found++;
    }
    json_close_array(writer);
    json_add_bool(writer, "hasNext", found > end);
    json_add_bool(writer, "hasPrevious", range->offset > 0);
}

/* NULL, or the name of the parameter that is unusable. */
static const char *read_range(const struct http_request *request, struct range *range)
{
    char status[16];
    range->limit = LIST_DEFAULT;
    range->of_one_status = http_query_text(request->query, "status", status, sizeof(status));
    if (!dialect_query_number(request->query, "limit", 1, LIST_MAX, &range->limit))
        return "limit";
    if (!dialect_query_number(request->query, "offset", 0, INT32_MAX, &range->offset))
        return "offset";
    return !range->of_one_status || adyen_status_of(status, &range->status) ? NULL : "status";
}

static void list(struct sandbox *sandbox, struct http_request *request, struct slice segment)
{
    struct sandbox_order order = {0};
    struct sandbox_call call;
    char account[HOLDER_SIZE];
    struct range range = {.account = account};
    const char *user = NULL, *wrong = read_range(request, &range);
    if (http_percent_decode(segment, account, sizeof(account)))
        user = dialect_user_of(sandbox, slice_of(account));
    if (user)
        order.card.user_id = slice_of(user);
    if (dialect_begin(&call, sandbox, request, CALL_LOOKUP, &order)) {
        if (!user) {
            refuse_field(&call, "id", none, "is not a balance account of this platform");
        } else if (wrong) {
            refuse_field(&call, wrong, none, "is not usable");
        } else {
            range.then_ms = sandbox_call_shown_ms(&call);
            if (call.fault && call.fault->kind == FAULT_skip_row)
                range.offset++;
            struct json_writer writer = dialect_begin_answer(sandbox, &call.answer, 200);
            json_open_object(&writer, NULL);
            put_page(&writer, sandbox, &range);
            json_close_object(&writer);
        }
    }
    sandbox_call_finish(&call);
}

/* ---- the dialect ---- */

static void write_holder(const char *user_id, char ret_holder[HOLDER_SIZE])
{
    dialect_letters_of("BA", user_id, ret_holder, HOLDER_SIZE);
}

static void put_parameters(struct json_writer *writer, const char *user_id, const char *holder)
{
    (void)user_id;
    json_add_text(writer, "balanceAccountId", holder);
    json_add_text(writer, "cardholderName", "Sam Sandbox");
}

static enum ledger_result execute(struct sandbox *sandbox, enum call_kind kind, const struct sandbox_order *order,
                                  struct sandbox_answer *answer)
{
    return kind == CALL_CREATE ? execute_create(sandbox, order, answer) : execute_update(sandbox, order, answer);
}

/* The base path of Adyen's URLs ends with /bcl/v2, which the caller may leave out. */
static struct slice path_of(const struct http_request *request)
{
    static const struct slice base = SLICE("/bcl/v2");
    struct slice path = request->path;
    if (path.length > base.length && memcmp(path.bytes, base.bytes, base.length) == 0 && path.bytes[base.length] == '/')
        path = (struct slice){.bytes = path.bytes + base.length, .length = path.length - base.length};
    return path;
}

static void on_request(void *context, struct http_request *request)
{
    struct sandbox *sandbox = context;
    struct slice path = path_of(request), segment;
    bool reads = request->method == HTTP_GET || request->method == HTTP_HEAD;
    if (request->method == HTTP_POST && slice_is(path, "/paymentInstruments"))
        create(sandbox, request);
    else if (request->method == HTTP_PATCH && http_path_matches(path, "/paymentInstruments/{id}", &segment))
        update(sandbox, request, segment);
    else if (reads && http_path_matches(path, "/paymentInstruments/{id}", &segment))
        show(sandbox, request, CALL_RETRIEVE, segment);
    else if (reads && http_path_matches(path, "/paymentInstruments/{id}/reveal", &segment))
        show(sandbox, request, CALL_REVEAL, segment);
    else if (reads && http_path_matches(path, "/balanceAccounts/{id}/paymentInstruments", &segment))
        list(sandbox, request, segment);
    else
        dialect_stray(sandbox, request);
}

const struct dialect dialect_adyen = {
    .name = "adyen",
    .key_lifetime = "168h",
    .card_ids = CARD_ID_PI,
    .credentials = CREDENTIAL_X_API_KEY | CREDENTIAL_BASIC,
    .may_ignore_keys = true,
    .on_request = on_request,
    .write_holder = write_holder,
    .put_parameters = put_parameters,
    .stores_answers = true,
    .honoured_header = "idempotency-key",
    .key_mismatch = {422, CODE_KEY, "request already processed or in progress"},
    .key_at_work = {422, CODE_KEY, "request already processed or in progress"},
    .refused_status = 422,
    .unauthorized = {401, "00_401", "Not authorized to access this service."},
    .not_found = {404, "00_404", "There is no such path or method."},
    .put_error = put_error,
    .execute = execute,
    .list = "paymentInstruments",
    .other_reference = "{\"reference\":\"00000000-0000-7000-8000-000000000000\"}",
    .last4_before = "{\"card\":{\"lastFour\":\"",
    .last4_after = "\"}}",
};
