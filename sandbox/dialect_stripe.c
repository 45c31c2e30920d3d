/* The dialect `stripe`: cards by https://docs.stripe.com/api/issuing/cards. Pitfalls: forms instead of JSON,
 * cards that begin inactive, no look-up by a reference, answers that are stored under a key for a day (5xx as well), a
 * number that only a second call shows, and a cardholder's personal data in each answer.
 *
 * The answer is stored under the key once execution has begun, so a 401, a 429 and the refusal of a malformed call are
 * not. "The same
 * parameters" means the same path and the same bytes. Decided here, since the documents do not say it: an unknown
 * cardholder is 400 resource_missing, and a cancel of a cancelled card is 400. A replacement for `damaged` or `expired` keeps the
 * number, and cancels the old card once it is active; one for `lost` or `stolen` wants the old card cancelled before.
 * Left out: other API versions, Connect accounts, webhooks. */
#include <stdio.h>
#include <string.h>

#include "common/lib/base/slice.h"
#include "common/lib/http_server/http_path.h"
#include "common/lib/json/json_value.h"
#include "sandbox/dialect_stripe.h"

#define METADATA_MAX 50
#define METADATA_NAME_MAX 40
#define METADATA_VALUE_MAX 500
#define KEY_MAX 255
#define DETAILS_MAX (64 * 1024)
#define REFERENCE_NAME "issuing_reference" /* of our metadata: what the ledger and its reports call the reference */

/* ---- errors ---- */

bool stripe_set_error(struct stripe_error *ret_error, const char *code, const char *param, const char *message)
{
    ret_error->code = code;
    ret_error->message = message;
    snprintf(ret_error->param, sizeof(ret_error->param), "%s", param);
    return false;
}

static const char *type_of(int status, const char *code)
{
    static const char *const types[] = {"api_error", "card_error", "idempotency_error", "invalid_request_error"};
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (strcmp(types[i], code) == 0)
            return types[i];
    }
    if (status >= 500)
        return "api_error";
    return status == 402 ? "card_error" : "invalid_request_error";
}

static void put_error_of(struct json_writer *writer, int status, const char *code, const char *param,
                         const char *message)
{
    const char *type = type_of(status, code);
    json_open_object(writer, NULL);
    json_open_object(writer, "error");
    if (*code && strcmp(type, code) != 0)
        json_add_text(writer, "code", code);
    json_add_text(writer, "message", message);
    if (*param)
        json_add_text(writer, "param", param);
    json_add_text(writer, "type", type);
    json_close_object(writer);
    json_close_object(writer);
}

static void put_error(struct json_writer *writer, int status, const char *code, const char *detail)
{
    put_error_of(writer, status, code, "", detail);
}

void stripe_refuse(struct sandbox_call *call, int status, const struct stripe_error *error)
{
    dialect_refuse(call, status, error->code, error->message);
    struct json_writer writer = dialect_begin_answer(call->sandbox, &call->answer, status);
    put_error_of(&writer, status, error->code, error->param, error->message);
}

/* ---- what every call has ---- */

static must_check bool is_form(const struct http_request *request)
{
    static const struct slice form = SLICE("application/x-www-form-urlencoded");
    struct slice type = http_header(request, "Content-Type", NULL);
    return type.length >= form.length && strncasecmp(type.bytes, form.bytes, form.length) == 0;
}

/* The answer repeats the version. Without one, the account's own would decide the shape of the answers. */
bool stripe_begin(struct sandbox_call *call, struct sandbox *sandbox, struct http_request *request, enum call_kind kind,
                  struct sandbox_order *order)
{
    char version[40], id[40];
    struct slice header = http_header(request, "Stripe-Version", NULL);
    bool goes_on = dialect_begin(call, sandbox, request, kind, order);
    snprintf(version, sizeof(version), "%.*s", (int)(header.length < 39 ? header.length : 39),
             header.length ? header.bytes : "");
    snprintf(id, sizeof(id), "req_%llu", (unsigned long long)call->number);
    sandbox_answer_header(&call->answer, "Request-Id", id);
    if (header.length)
        sandbox_answer_header(&call->answer, "Stripe-Version", version);
    if (!goes_on || header.length)
        return goes_on;
    dialect_refuse(call, 400, "invalid_request_error", "this sandbox needs a Stripe-Version");
    return false;
}

bool stripe_is_listed(const char *const *names, const char *name)
{
    struct slice element;
    for (; *names; names++) {
        if (strcmp(*names, name) == 0)
            return true;
        size_t length = strlen(*names);
        if ((*names)[length - 1] == '[' && strncmp(*names, name, length) == 0 && name[strlen(name) - 1] == ']')
            return true;
    }
    return form_is_element(name, "expand", &element);
}

/* ---- create ---- */

/* The texts of a create or an update; the order points to them. */
struct words {
    char holder[FORM_VALUE_SIZE], reference[METADATA_VALUE_MAX + 1], replaces[FORM_VALUE_SIZE];
    char currency[8], type[16], status[16], reason[16];
    struct buf metadata; /* the members of the object: "name":"value",.. */
    int metadata_count;
    struct buf details;
    struct sandbox_order order;
};

static void words_init(struct words *words)
{
    *words = (struct words){.metadata_count = 0};
    buf_init(&words->metadata, DETAILS_MAX);
    buf_init(&words->details, 2 * DETAILS_MAX);
}

static void words_done(struct words *words)
{
    buf_done(&words->metadata);
    buf_done(&words->details);
}

static must_check bool keep_metadata(struct words *words, struct slice name, const struct form_pair *pair,
                                     struct stripe_error *ret_error)
{
    size_t length = strlen(pair->value);
    if (!name.length || name.length > METADATA_NAME_MAX)
        return stripe_set_error(ret_error, "invalid_request_error", pair->name,
                                "a metadata key has 1 to 40 characters");
    if (length > METADATA_VALUE_MAX)
        return stripe_set_error(ret_error, "invalid_request_error", pair->name,
                                "a metadata value has at most 500 characters");
    if (words->metadata_count++ == METADATA_MAX)
        return stripe_set_error(ret_error, "invalid_request_error", "metadata",
                                "an object has at most 50 metadata keys");
    if (words->metadata.length)
        buf_put_byte(&words->metadata, ',');
    json_put_string(&words->metadata, name.bytes, name.length);
    buf_put_byte(&words->metadata, ':');
    json_put_string(&words->metadata, pair->value, length);
    if (slice_is(name, REFERENCE_NAME))
        memcpy(words->reference, pair->value, length + 1);
    return true;
}

/* Documented parameters that this dialect ignores. */
static const char *const unused_of_create[] = {"exp_month",
                                               "exp_year",
                                               "financial_account",
                                               "financial_account_v2",
                                               "lifecycle_controls[",
                                               "personalization_design",
                                               "pin[",
                                               "second_line",
                                               "shipping[",
                                               "spending_controls[",
                                               NULL};
static const char *const unused_of_update[] = {"cancellation_reason", "personalization_design", "pin[",
                                               "shipping[",           "spending_controls[",     NULL};

static must_check bool read_pair(struct words *words, const struct form_pair *pair, bool is_create,
                                 struct stripe_error *ret_error)
{
    const struct {
        const char *name;
        char *text;
        size_t size;
        bool of_update;
    } texts[] = {
        {"cardholder", words->holder, sizeof(words->holder), false},
        {"currency", words->currency, sizeof(words->currency), false},
        {"type", words->type, sizeof(words->type), false},
        {"status", words->status, sizeof(words->status), true},
        {"replacement_for", words->replaces, sizeof(words->replaces), false},
        {"replacement_reason", words->reason, sizeof(words->reason), false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        if ((!is_create && !texts[i].of_update) || strcmp(texts[i].name, pair->name) != 0)
            continue;
        if (strlen(pair->value) >= texts[i].size)
            return stripe_set_error(ret_error, "invalid_request_error", pair->name, "the value is too long");
        memcpy(texts[i].text, pair->value, strlen(pair->value) + 1);
        return true;
    }
    struct slice name;
    if (form_is_element(pair->name, "metadata", &name))
        return keep_metadata(words, name, pair, ret_error);
    if (stripe_is_listed(is_create ? unused_of_create : unused_of_update, pair->name))
        return true;
    return stripe_set_error(ret_error, "parameter_unknown", pair->name, "received an unknown parameter");
}

static must_check bool read_pairs(struct words *words, const struct http_request *request, bool is_create,
                                  struct stripe_error *ret_error)
{
    struct slice rest = request->body;
    struct form_pair pair;
    bool wrong;
    if (request->body.length && !is_form(request))
        return stripe_set_error(ret_error, "invalid_request_error", "", "the body must be a form");
    while (form_next(&rest, &pair, &wrong)) {
        if (!read_pair(words, &pair, is_create, ret_error))
            return false;
    }
    return !wrong || stripe_set_error(ret_error, "invalid_request_error", "", "the form cannot be decoded");
}

static must_check bool is_word(const char *text, const char *const *words)
{
    while (*words && strcmp(*words, text) != 0)
        words++;
    return *words != NULL;
}

static must_check bool check_replacement(const struct sandbox *sandbox, struct words *words,
                                         struct stripe_error *ret_error)
{
    static const char *const reasons[] = {"damaged", "expired", "lost", "stolen", NULL};
    static const char *const keep_number[] = {"damaged", "expired", NULL};
    struct ledger_order *order = &words->order.card;
    uint32_t card;
    order->replaces = slice_of(words->replaces);
    order->is_reissue = order->replaces.length > 0;
    if (order->is_reissue && !ledger_card_of_id(sandbox->ledger, order->replaces, &card))
        return stripe_set_error(ret_error, "resource_missing", "replacement_for", "no such issuing card");
    if (order->is_reissue != (*words->reason != '\0'))
        return stripe_set_error(ret_error, "parameter_missing", "replacement_reason",
                                "replacement_for and replacement_reason belong together");
    if (order->is_reissue && !is_word(words->reason, reasons))
        return stripe_set_error(ret_error, "invalid_request_error", "replacement_reason", "no such reason");
    order->keeps_number = is_word(words->reason, keep_number);
    order->replacing = LEDGER_CLOSES_WHEN_ACTIVE;
    return !order->is_reissue || order->keeps_number ||
           ledger_card(sandbox->ledger, card)->status == LEDGER_CANCELLED ||
           stripe_set_error(ret_error, "invalid_request_error", "replacement_for",
                            "a card that is lost or stolen must be canceled before it is replaced");
}

static must_check bool check_create(const struct sandbox *sandbox, struct words *words, struct stripe_error *ret_error)
{
    static const char *const types[] = {"virtual", "physical", NULL};
    static const char *const currencies[] = {"eur", "usd", "gbp", NULL};
    static const char *const statuses[] = {"active", "inactive", "", NULL};
    if (!*words->currency)
        return stripe_set_error(ret_error, "parameter_missing", "currency", "missing required param: currency");
    if (!*words->type)
        return stripe_set_error(ret_error, "parameter_missing", "type", "missing required param: type");
    if (!*words->holder)
        return stripe_set_error(ret_error, "parameter_missing", "cardholder", "missing required param: cardholder");
    if (!is_word(words->currency, currencies))
        return stripe_set_error(ret_error, "invalid_request_error", "currency", "no currency of Issuing");
    if (!is_word(words->type, types))
        return stripe_set_error(ret_error, "invalid_request_error", "type", "must be virtual or physical");
    if (!is_word(words->status, statuses))
        return stripe_set_error(ret_error, "invalid_request_error", "status", "must be active or inactive");
    if (!words->order.card.user_id.length)
        return stripe_set_error(ret_error, "resource_missing", "cardholder", "no such issuing cardholder");
    return check_replacement(sandbox, words, ret_error);
}

/* Keeps what the answers repeat. */
static void keep_details(struct words *words)
{
    struct json_writer writer = json_writer_of(&words->details);
    json_open_object(&writer, NULL);
    json_add_text(&writer, "currency", words->currency);
    json_open_object(&writer, "metadata");
    if (words->metadata.length)
        buf_put(&words->details, words->metadata.bytes, words->metadata.length);
    json_close_object(&writer);
    json_add_text(&writer, "replacement_for", *words->replaces ? words->replaces : NULL);
    json_add_text(&writer, "replacement_reason", *words->reason ? words->reason : NULL);
    json_add_text(&writer, "type", words->type);
    json_close_object(&writer);
    words->details.failed |= words->metadata.failed;
    words->order.card.details = buf_slice(&words->details);
}

static must_check bool read_key(const struct http_request *request, struct ledger_order *order,
                                struct stripe_error *ret_error)
{
    int keys;
    order->body = request->body;
    order->key = http_header(request, "Idempotency-Key", &keys);
    return (keys <= 1 && order->key.length <= KEY_MAX) ||
           stripe_set_error(ret_error, "invalid_request_error", "",
                            "a call has at most one Idempotency-Key of 255 characters");
}

static void read_create(struct sandbox *sandbox, const struct http_request *request, struct words *words,
                        struct stripe_error *ret_error)
{
    struct ledger_order *order = &words->order.card;
    bool good = read_pairs(words, request, true, ret_error);
    order->holder = slice_of(words->holder);
    order->reference = slice_of(words->reference);
    const char *user = dialect_user_of(sandbox, order->holder);
    order->user_id = slice_of(user ? user : "");
    order->status = strcmp(words->status, "active") == 0 ? LEDGER_ACTIVE : LEDGER_INACTIVE;
    if (read_key(request, order, ret_error) && good && check_create(sandbox, words, ret_error))
        keep_details(words);
}

static void finish(struct sandbox_call *call, struct words *words, const struct stripe_error *error)
{
    if (error->code)
        stripe_refuse(call, 400, error);
    else if (words->details.failed)
        dialect_refuse(call, 500, "api_error", "the sandbox has no memory left");
    else
        dialect_take(call, &words->order);
}

static void create(struct sandbox *sandbox, struct http_request *request)
{
    struct words words;
    struct stripe_error error = {.code = NULL};
    struct sandbox_call call;
    words_init(&words);
    read_create(sandbox, request, &words, &error);
    if (stripe_begin(&call, sandbox, request, CALL_CREATE, &words.order))
        finish(&call, &words, &error);
    sandbox_call_finish(&call);
    words_done(&words);
}

/* ---- update: activate, deactivate, cancel ---- */

static must_check bool check_update(const struct words *words, struct stripe_error *ret_error)
{
    static const char *const statuses[] = {"active", "inactive", "canceled", NULL};
    return is_word(words->status, statuses) || stripe_set_error(ret_error, "invalid_request_error", "status",
                                                                "this sandbox updates the status, and only that");
}

static void update(struct sandbox *sandbox, struct http_request *request, struct slice id)
{
    uint32_t card;
    struct words words;
    struct stripe_error error = {.code = NULL};
    struct sandbox_call call;
    words_init(&words);
    bool known = dialect_find_card(sandbox, id, &words.order, &card);
    bool good = read_pairs(&words, request, false, &error);
    bool cancels = strcmp(words.status, "canceled") == 0;
    words.order.card.status = cancels                               ? LEDGER_CANCELLED
                              : strcmp(words.status, "active") == 0 ? LEDGER_ACTIVE
                                                                    : LEDGER_INACTIVE;
    if (!read_key(request, &words.order.card, &error) || !good || !check_update(&words, &error))
        known = true; /* the error comes first */
    if (stripe_begin(&call, sandbox, request, cancels ? CALL_CANCEL : CALL_ACTIVATE, &words.order)) {
        if (known)
            finish(&call, &words, &error);
        else
            dialect_refuse(&call, 404, "resource_missing", "no such issuing card");
    }
    sandbox_call_finish(&call);
    words_done(&words);
}

/* ---- execution ---- */

static void answer_card(struct sandbox *sandbox, struct sandbox_answer *answer, uint32_t card,
                        const struct stripe_expansion *expansion)
{
    struct json_writer writer = dialect_begin_answer(sandbox, answer, 200);
    answer->card = card;
    stripe_card_add(&writer, sandbox, card, (enum ledger_card_status)ledger_card(sandbox->ledger, card)->status,
                    expansion);
}

static enum ledger_result execute(struct sandbox *sandbox, enum call_kind kind, const struct sandbox_order *order,
                                  struct sandbox_answer *answer)
{
    static const struct stripe_expansion nothing = {.number = false};
    uint32_t card = 0;
    int64_t now_ms = sandbox_now_ms(sandbox);
    if (kind == CALL_CREATE) {
        if (!ledger_make_card(sandbox->ledger, &order->card, now_ms, &card))
            return LEDGER_FULL;
        answer_card(sandbox, answer, card, &nothing);
        return LEDGER_MADE;
    }
    if (!ledger_card_of_id(sandbox->ledger, order->card_id, &card))
        return LEDGER_ABSENT;
    if (ledger_card(sandbox->ledger, card)->status == LEDGER_CANCELLED) {
        dialect_answer_error(sandbox, answer, 400, "invalid_request_error", "the card is canceled, which is final");
        return LEDGER_SAME;
    }
    bool changed = ledger_set_status(sandbox->ledger, card, order->card.status, now_ms);
    answer_card(sandbox, answer, card, &nothing);
    return changed ? LEDGER_MADE : LEDGER_SAME;
}

/* ---- retrieve, reveal ---- */

static void retrieve(struct sandbox *sandbox, struct http_request *request, struct slice id)
{
    uint32_t card;
    bool wrong;
    struct sandbox_order order = {.card.is_late = false};
    struct stripe_expansion expansion = {.number = false};
    struct stripe_error error = {.code = NULL};
    struct slice rest = request->query, element;
    struct form_pair pair;
    while (form_next(&rest, &pair, &wrong)) {
        bool is_expand = form_is_element(pair.name, "expand", &element);
        expansion.number |= is_expand && strcmp(pair.value, "number") == 0;
        expansion.cvc |= is_expand && strcmp(pair.value, "cvc") == 0;
        if (!is_expand)
            (void)!stripe_set_error(&error, "parameter_unknown", pair.name, "received an unknown parameter");
    }
    bool known = dialect_find_card(sandbox, id, &order, &card);
    struct sandbox_call call;
    if (stripe_begin(&call, sandbox, request, expansion.number || expansion.cvc ? CALL_REVEAL : CALL_RETRIEVE,
                     &order)) {
        if (error.code)
            stripe_refuse(&call, 400, &error);
        else if (known)
            answer_card(sandbox, &call.answer, card, &expansion);
        else
            dialect_refuse(&call, 404, "resource_missing", "no such issuing card");
    }
    sandbox_call_finish(&call);
}

static void account(struct sandbox *sandbox, struct http_request *request)
{
    struct sandbox_order order = {.card.reference = slice_of("")};
    struct sandbox_call call;
    if (stripe_begin(&call, sandbox, request, CALL_ACCOUNT, &order)) {
        struct json_writer writer = dialect_begin_answer(sandbox, &call.answer, 200);
        json_open_object(&writer, NULL);
        json_add_text(&writer, "id", "acct_1SandboxOfIssuing");
        json_add_text(&writer, "object", "account");
        json_close_object(&writer);
    }
    sandbox_call_finish(&call);
}

static void on_request(void *context, struct http_request *request)
{
    struct sandbox *sandbox = context;
    struct slice id;
    bool reads = request->method == HTTP_GET || request->method == HTTP_HEAD;
    if (slice_is(request->path, "/v1/issuing/cards") && request->method == HTTP_POST)
        create(sandbox, request);
    else if (slice_is(request->path, "/v1/issuing/cards") && reads)
        stripe_look_up(sandbox, request);
    else if (http_path_matches(request->path, "/v1/issuing/cards/{card}", &id) && reads)
        retrieve(sandbox, request, id);
    else if (http_path_matches(request->path, "/v1/issuing/cards/{card}", &id) && request->method == HTTP_POST)
        update(sandbox, request, id);
    else if (slice_is(request->path, "/v1/account") && reads)
        account(sandbox, request);
    else
        dialect_stray(sandbox, request);
}

/* ---- holders: cardholders ---- */

static void write_holder(const char *user_id, char ret_holder[HOLDER_SIZE])
{
    dialect_letters_of("ich_", user_id, ret_holder, HOLDER_SIZE);
}

static void put_parameters(struct json_writer *writer, const char *user_id, const char *holder)
{
    (void)user_id;
    json_add_text(writer, "cardholder", holder);
}

const struct dialect dialect_stripe = {
    .name = "stripe",
    .key_lifetime = "24h",
    .card_ids = CARD_ID_IC,
    .credentials = CREDENTIAL_BEARER | CREDENTIAL_BASIC_AS_NAME,
    .on_request = on_request,
    .write_holder = write_holder,
    .put_parameters = put_parameters,
    .stores_answers = true,
    .replayed_header = "Idempotent-Replayed",
    .key_mismatch = {400, "idempotency_error", "this Idempotency-Key was used with other parameters"},
    .key_at_work = {409, "idempotency_key_in_use", "a request with this Idempotency-Key is being executed"},
    .refused_status = 400,
    .unauthorized = {401, "invalid_request_error", "the API key is missing or wrong"},
    .not_found = {404, "invalid_request_error", "unrecognized request URL"},
    .put_error = put_error,
    .execute = execute,
    .list = "data",
    .other_reference = "{\"metadata\":{\"issuing_reference\":\"00000000-0000-7000-8000-000000000000\"}}",
    .last4_before = "{\"last4\":\"",
    .last4_after = "\"}",
};
