/* The dialect `stripe`: cards by https://docs.stripe.com/api/issuing/cards. Pitfalls: forms instead of JSON, cards
 * that begin inactive, no look-up by a reference, answers that are stored under a key for a day (5xx as well), a
 * number that only a second call shows, and a cardholder's personal data in each answer.
 *
 * The answer is stored under the key once execution has begun, so a 401, a 429 and the refusal of a malformed call
 * are not. "The same parameters" means the same path and the same bytes. Decided here, since the documents do not say
 * it: an unknown cardholder is 400 resource_missing, and a cancel of a cancelled card is 400. A replacement for
 * `damaged` or `expired` keeps the number, and cancels the old card once it is active; one for `lost` or `stolen`
 * wants the old card cancelled before.
 * Left out: other API versions, Connect accounts, webhooks. */
#include <stdio.h>
#include <string.h>

#include "common/lib/base/slice.h"
#include "common/lib/http_server/http_path.h"
#include "common/lib/json/json_value.h"
#include "sandbox/dialect_stripe.h"

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

/* ---- create ---- */

static void finish(struct sandbox_call *call, struct stripe_words *words, const struct stripe_error *error)
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
    struct stripe_words words;
    struct stripe_error error = {.code = NULL};
    struct sandbox_call call;
    stripe_words_init(&words);
    stripe_read_create(sandbox, request, &words, &error);
    if (stripe_begin(&call, sandbox, request, CALL_CREATE, &words.order))
        finish(&call, &words, &error);
    sandbox_call_finish(&call);
    stripe_words_done(&words);
}

/* ---- update: activate, deactivate, cancel ---- */

static void update(struct sandbox *sandbox, struct http_request *request, struct slice id)
{
    uint32_t card;
    struct stripe_words words;
    struct stripe_error error = {.code = NULL};
    struct sandbox_call call;
    stripe_words_init(&words);
    bool known = dialect_find_card(sandbox, id, &words.order, &card);
    stripe_read_update(request, &words, &error);
    known |= error.code != NULL; /* the error comes first */
    bool cancels = words.order.card.status == LEDGER_CANCELLED;
    if (stripe_begin(&call, sandbox, request, cancels ? CALL_CANCEL : CALL_ACTIVATE, &words.order)) {
        if (known)
            finish(&call, &words, &error);
        else
            dialect_refuse(&call, 404, "resource_missing", "no such issuing card");
    }
    sandbox_call_finish(&call);
    stripe_words_done(&words);
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
