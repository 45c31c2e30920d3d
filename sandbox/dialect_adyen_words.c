/* See dialect_adyen_words.h. */
#include "sandbox/dialect_adyen_words.h"

#include <stdio.h>
#include <string.h>

#define BIN_LENGTH 6
#define NUMBER_LENGTH 16
#define FLAW_VALUE_SIZE 128

#define STATUSES "active|closed|inactive|suspended"
#define STATUS_REASONS "accountClosure|damaged|endOfLife|expired|lost|other|stolen|suspectedFraud|transactionRule"

static const struct json_shape phone_shape[] = {
    {"number", .kind = JSON_STRING, .is_required = true, .shortest = 1, .longest = 40},
    {"type", .kind = JSON_STRING, .is_required = true, .choices = "landline|mobile"},
    {0},
};

static const struct json_shape authentication_shape[] = {
    {"email", .kind = JSON_STRING},
    {"password", .kind = JSON_STRING, .shortest = 1, .longest = 30},
    {"phone", .kind = JSON_OBJECT, .members = phone_shape},
    {0},
};

static const struct json_shape configuration_shape[] = {
    {"activation", .kind = JSON_STRING},
    {"activationUrl", .kind = JSON_STRING},
    {"bulkAddress", .kind = JSON_OBJECT},
    {"cardImageId", .kind = JSON_STRING},
    {"carrier", .kind = JSON_STRING},
    {"carrierImageId", .kind = JSON_STRING},
    {"configurationProfileId", .kind = JSON_STRING, .is_required = true},
    {"currency", .kind = JSON_STRING},
    {"envelope", .kind = JSON_STRING},
    {"insert", .kind = JSON_STRING},
    {"language", .kind = JSON_STRING},
    {"logoImageId", .kind = JSON_STRING},
    {"pinMailer", .kind = JSON_STRING},
    {"printLine", .kind = JSON_STRING},
    {"shipmentMethod", .kind = JSON_STRING},
    {0},
};

static const struct json_shape card_shape[] = {
    {"authentication", .kind = JSON_OBJECT, .members = authentication_shape},
    {"brand", .kind = JSON_STRING, .is_required = true, .choices = "visa|mc"},
    {"brandVariant", .kind = JSON_STRING, .is_required = true, .shortest = 1, .longest = 64},
    {"cardholderName", .kind = JSON_STRING, .is_required = true, .shortest = 1, .longest = 26},
    {"configuration", .kind = JSON_OBJECT, .members = configuration_shape},
    {"deliveryContact", .kind = JSON_OBJECT},
    {"formFactor", .kind = JSON_STRING, .is_required = true, .choices = "physical|unknown|virtual"},
    {"threeDSecure", .kind = JSON_STRING},
    {"usage", .kind = JSON_STRING, .choices = "singleUse|multiUse"},
    {0},
};

static const struct json_shape create_shape[] = {
    {"balanceAccountId", .kind = JSON_STRING, .is_required = true, .shortest = 1},
    {"bankAccount", .kind = JSON_OBJECT},
    {"card", .kind = JSON_OBJECT, .members = card_shape},
    {"description", .kind = JSON_STRING, .longest = 300},
    {"issuingCountryCode", .kind = JSON_STRING, .is_required = true, .shortest = 2, .longest = 2},
    {"paymentInstrumentGroupId", .kind = JSON_STRING},
    {"reference", .kind = JSON_STRING, .longest = 150},
    {"status", .kind = JSON_STRING, .choices = STATUSES},
    {"statusComment", .kind = JSON_STRING},
    {"statusReason", .kind = JSON_STRING, .choices = STATUS_REASONS},
    {"type", .kind = JSON_STRING, .is_required = true, .choices = "bankAccount|card"},
    {0},
};

static const struct json_shape update_shape[] = {
    {"balanceAccountId", .kind = JSON_STRING, .shortest = 1},
    {"card", .kind = JSON_OBJECT, .members = card_shape},
    {"status", .kind = JSON_STRING, .choices = STATUSES},
    {"statusComment", .kind = JSON_STRING},
    {"statusReason", .kind = JSON_STRING, .choices = STATUS_REASONS},
    {0},
};

static must_check bool is_text(struct json_value value, const char *text)
{
    char read[32];
    return json_string(value, read, sizeof(read), NULL) && strcmp(read, text) == 0;
}

static size_t add_flaw(struct json_shape_flaw *flaws, size_t count, const char *path, const char *why,
                       struct json_value value)
{
    if (count == ADYEN_FLAWS_MAX)
        return count;
    snprintf(flaws[count].path, sizeof(flaws[count].path), "%s", path);
    flaws[count].why = why;
    flaws[count].value = value;
    return count + 1;
}

static size_t comment_flaws(struct json_value body, struct json_shape_flaw *flaws, size_t count)
{
    struct json_value comment = json_member(body, "statusComment");
    if (!is_text(json_member(body, "statusReason"), "other") || comment.kind != JSON_MISSING)
        return count;
    return add_flaw(flaws, count, "statusComment", "is required when statusReason is other", comment);
}

size_t adyen_create_flaws(struct json_value body, struct json_shape_flaw ret_flaws[ADYEN_FLAWS_MAX])
{
    size_t count = json_shape_check(body, create_shape, ret_flaws, ADYEN_FLAWS_MAX);
    if (count > 0)
        return count;
    struct json_value card = json_member(body, "card"), type = json_member(body, "type");
    struct json_value form = json_member(card, "formFactor");
    if (!is_text(type, "card"))
        count = add_flaw(ret_flaws, count, "type", "is not enabled: this stand-in issues cards only", type);
    else if (card.kind == JSON_MISSING)
        count = add_flaw(ret_flaws, count, "card", "is required when type is card", card);
    else if (!is_text(form, "virtual"))
        count = add_flaw(ret_flaws, count, "card.formFactor", "is not enabled: this stand-in issues virtual cards only",
                         form);
    struct json_value status = json_member(body, "status");
    if (is_text(status, "closed"))
        count = add_flaw(ret_flaws, count, "status", "cannot be closed at creation", status);
    return comment_flaws(body, ret_flaws, count);
}

size_t adyen_update_flaws(struct json_value body, struct json_shape_flaw ret_flaws[ADYEN_FLAWS_MAX])
{
    size_t count = json_shape_check(body, update_shape, ret_flaws, ADYEN_FLAWS_MAX);
    if (count > 0)
        return count;
    struct json_value card = json_member(body, "card");
    if (card.kind != JSON_MISSING)
        count = add_flaw(ret_flaws, count, "card", "is not changed by this stand-in", card);
    return comment_flaws(body, ret_flaws, count);
}

/* ---- statuses ---- */

static const char *const status_names[] = {
    [LEDGER_ACTIVE] = "active",     [LEDGER_REPLACED] = "closed",  [LEDGER_CANCELLED] = "closed",
    [LEDGER_INACTIVE] = "inactive", [LEDGER_PAUSED] = "suspended",
};

bool adyen_status_of(const char *name, enum ledger_card_status *ret_status)
{
    static const enum ledger_card_status statuses[] = {LEDGER_ACTIVE, LEDGER_CANCELLED, LEDGER_INACTIVE, LEDGER_PAUSED};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        if (strcmp(status_names[statuses[i]], name) == 0) {
            *ret_status = statuses[i];
            return true;
        }
    }
    return false;
}

enum ledger_card_status adyen_wanted_status(struct json_value body, enum ledger_card_status otherwise)
{
    char name[16];
    enum ledger_card_status status;
    bool is_given =
        json_string(json_member(body, "status"), name, sizeof(name), NULL) && adyen_status_of(name, &status);
    return is_given ? status : otherwise;
}

bool adyen_is_single_use(struct json_value request)
{
    return is_text(json_member(json_member(request, "card"), "usage"), "singleUse");
}

/* ---- answers ---- */

static void copy(struct json_writer *writer, struct json_value object, const char *name)
{
    struct json_value value = json_member(object, name);
    if (value.kind != JSON_MISSING)
        json_add_json(writer, name, value.raw);
}

void adyen_put_updated(struct json_writer *writer, struct json_value request, struct json_value update)
{
    static const char *const kept[] = {"balanceAccountId",         "card",      "description", "issuingCountryCode",
                                       "paymentInstrumentGroupId", "reference", "type"};
    static const char *const of_status[] = {"status", "statusComment", "statusReason"};
    struct json_value source = request;
    json_open_object(writer, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        copy(writer, request, kept[i]);
    for (size_t i = 0; i < ARRAY_SIZE(of_status); i++) {
        if (json_member(update, of_status[i]).kind != JSON_MISSING)
            source = update;
    }
    copy(writer, source, "statusComment");
    copy(writer, source, "statusReason");
    json_close_object(writer);
}

static void put_authentication(struct json_writer *writer, struct json_value authentication)
{
    if (authentication.kind == JSON_MISSING)
        return;
    json_open_object(writer, "authentication");
    copy(writer, authentication, "email");
    if (json_member(authentication, "password").kind != JSON_MISSING)
        json_add_text(writer, "password", "******");
    copy(writer, authentication, "phone");
    json_close_object(writer);
}

static void put_expiration(struct json_writer *writer, const struct adyen_instrument *instrument)
{
    char month[3], year[5];
    snprintf(month, sizeof(month), "%02u", instrument->exp_month % 100);
    snprintf(year, sizeof(year), "%04u", instrument->exp_year % 10000);
    json_open_object(writer, "expiration");
    json_add_text(writer, "month", month);
    json_add_text(writer, "year", year);
    json_close_object(writer);
}

static void put_card(struct json_writer *writer, const struct adyen_instrument *instrument)
{
    static const char *const copied[] = {"brand",           "brandVariant", "cardholderName", "configuration",
                                         "deliveryContact", "formFactor",   "threeDSecure",   "usage"};
    struct json_value card = json_member(instrument->request, "card");
    const char *last_four = instrument->number + NUMBER_LENGTH - 4;
    char masked[NUMBER_LENGTH + 1];
    snprintf(masked, sizeof(masked), "************%s", last_four);
    json_open_object(writer, "card");
    put_authentication(writer, json_member(card, "authentication"));
    json_add_slice(writer, "bin", (struct slice){.bytes = instrument->number, .length = BIN_LENGTH});
    for (size_t i = 0; i < ARRAY_SIZE(copied); i++)
        copy(writer, card, copied[i]);
    if (instrument->shows_number)
        json_add_text(writer, "cvc", instrument->cvc);
    put_expiration(writer, instrument);
    json_add_text(writer, "lastFour", last_four);
    json_add_text(writer, "number", instrument->shows_number ? instrument->number : masked);
    json_close_object(writer);
}

void adyen_put_instrument(struct json_writer *writer, const struct adyen_instrument *instrument)
{
    static const char *const copied[] = {
        "balanceAccountId", "description",   "issuingCountryCode", "paymentInstrumentGroupId",
        "reference",        "statusComment", "statusReason",       "type"};
    json_open_object(writer, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(copied); i++)
        copy(writer, instrument->request, copied[i]);
    json_add_text(writer, "status", status_names[instrument->status]);
    put_card(writer, instrument);
    json_add_text(writer, "id", instrument->id);
    json_close_object(writer);
}

void adyen_put_reveal(struct json_writer *writer, const struct adyen_instrument *instrument)
{
    json_open_object(writer, NULL);
    json_add_text(writer, "cvc", instrument->cvc);
    put_expiration(writer, instrument);
    json_add_text(writer, "pan", instrument->number);
    json_close_object(writer);
}

/* ---- errors ---- */

/* The first row that fits is the error's; code NULL = any code of that status. */
static const struct {
    int status;
    const char *code, *type, *title;
} problems[] = {
    {409, "704", "general/idempotency", "Request already processed or in progress"},
    {422, "704", "general/idempotency", "Request already processed or in progress"},
    {400, NULL, "general/bad-request", "Bad request"},
    {401, NULL, "security/unauthorized", "Unauthorized"},
    {403, NULL, "security/unauthorized", "Forbidden"},
    {404, NULL, "general/not-found", "Not found"},
    {409, NULL, "general/conflict", "Conflict"},
    {415, NULL, "general/unsupported-media-type", "Unsupported media type"},
    {422, NULL, "general/invalid-field-value", "Invalid Payment Instrument information provided"},
    {429, NULL, "general/too-many-requests", "Too many requests"},
    {503, NULL, "general/service-unavailable", "Service unavailable"},
    {500, NULL, "general/internal", "An internal error happened"}, /* and every other status */
};

static void put_flaw(struct json_writer *writer, const struct json_shape_flaw *flaw)
{
    char value[FLAW_VALUE_SIZE];
    json_open_object(writer, NULL);
    json_add_text(writer, "name", flaw->path);
    /* Shows a short text; other values have the wrong type. */
    json_add_text(writer, "value", json_string(flaw->value, value, sizeof(value), NULL) ? value : "");
    json_add_text(writer, "message", flaw->why);
    json_close_object(writer);
}

void adyen_put_error(struct json_writer *writer, const struct adyen_error *error)
{
    char text[FLAW_VALUE_SIZE];
    size_t row = 0;
    while (row < ARRAY_SIZE(problems) - 1 && (problems[row].status != error->status ||
                                              (problems[row].code && strcmp(problems[row].code, error->code) != 0)))
        row++;
    json_open_object(writer, NULL);
    snprintf(text, sizeof(text), "https://docs.adyen.com/errors/%s", problems[row].type);
    json_add_text(writer, "type", text);
    json_add_text(writer, "title", problems[row].title);
    json_add_integer(writer, "status", error->status);
    json_add_text(writer, "detail", error->detail);
    if (error->flaw_count > 0) {
        json_open_array(writer, "invalidFields");
        for (size_t i = 0; i < error->flaw_count; i++)
            put_flaw(writer, &error->flaws[i]);
        json_close_array(writer);
    }
    json_add_text(writer, "errorCode", error->code);
    json_close_object(writer);
}
