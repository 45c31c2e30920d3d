/* The parameters of the dialect `stripe` (dialect_stripe.h): the form of a create or an update, and whether its
 * values are good. */
#include <stdio.h>
#include <string.h>

#include "common/lib/base/slice.h"
#include "common/lib/json/json_value.h"
#include "sandbox/dialect_stripe.h"

#define METADATA_MAX 50
#define METADATA_NAME_MAX 40
#define KEY_MAX 255
#define DETAILS_MAX (64 * 1024)
#define REFERENCE_NAME "issuing_reference" /* of our metadata: what the ledger and its reports call the reference */

static must_check bool is_form(const struct http_request *request)
{
    static const struct slice form = SLICE("application/x-www-form-urlencoded");
    struct slice type = http_header(request, "Content-Type", NULL);
    return type.length >= form.length && strncasecmp(type.bytes, form.bytes, form.length) == 0;
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

void stripe_words_init(struct stripe_words *words)
{
    *words = (struct stripe_words){.metadata_count = 0};
    buf_init(&words->metadata, DETAILS_MAX);
    buf_init(&words->details, 2 * DETAILS_MAX);
}

void stripe_words_done(struct stripe_words *words)
{
    buf_done(&words->metadata);
    buf_done(&words->details);
}

static must_check bool keep_metadata(struct stripe_words *words, struct slice name, const struct form_pair *pair,
                                     struct stripe_error *ret_error)
{
    size_t length = strlen(pair->value);
    if (!name.length || name.length > METADATA_NAME_MAX)
        return stripe_set_error(ret_error, "invalid_request_error", pair->name,
                                "a metadata key has 1 to 40 characters");
    if (length > STRIPE_VALUE_MAX)
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

static must_check bool read_pair(struct stripe_words *words, const struct form_pair *pair, bool is_create,
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

static must_check bool read_pairs(struct stripe_words *words, const struct http_request *request, bool is_create,
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

static must_check bool check_replacement(const struct sandbox *sandbox, struct stripe_words *words,
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

static must_check bool check_create(const struct sandbox *sandbox, struct stripe_words *words,
                                    struct stripe_error *ret_error)
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
static void keep_details(struct stripe_words *words)
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

void stripe_read_create(struct sandbox *sandbox, const struct http_request *request, struct stripe_words *words,
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

static must_check bool check_update(const struct stripe_words *words, struct stripe_error *ret_error)
{
    static const char *const statuses[] = {"active", "inactive", "canceled", NULL};
    return is_word(words->status, statuses) || stripe_set_error(ret_error, "invalid_request_error", "status",
                                                                "this sandbox updates the status, and only that");
}

void stripe_read_update(const struct http_request *request, struct stripe_words *words, struct stripe_error *ret_error)
{
    bool good = read_pairs(words, request, false, ret_error);
    words->order.card.status = strcmp(words->status, "canceled") == 0 ? LEDGER_CANCELLED
                               : strcmp(words->status, "active") == 0 ? LEDGER_ACTIVE
                                                                      : LEDGER_INACTIVE;
    if (read_key(request, &words->order.card, ret_error) && good)
        (void)!check_update(words, ret_error);
}
