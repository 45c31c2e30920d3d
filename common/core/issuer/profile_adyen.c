/* Adyen Balance Platform, Configuration API 2. Pitfalls: the API's own document declares no key, so the promise rests
 * on the look-up alone; a page begins at a number of rows, so a walk can miss a card while others are made. */
#include "common/core/issuer/profile_rows.h"

static const struct issuer_field create_body[] = {
    TEXT("type", "card"),
    PARAMETER("balanceAccountId", "balanceAccountId"),
    PARAMETER("issuingCountryCode", "issuingCountryCode"),
    FIELD("reference", FROM_EVENT),
    FIELD("description", FROM_MEMO, .when = IF_GIVEN),
    TEXT("status", "active"),
    PARAMETER("card/cardholderName", "cardholderName"),
    PARAMETER("card/brand", "brand"),
    PARAMETER("card/brandVariant", "brandVariant"),
    TEXT("card/formFactor", "virtual"),
    PARAMETER("card/authentication/phone/number", "phone", .when = IF_GIVEN),
    TEXT("card/authentication/phone/type", "mobile", .when = WITH_LAST),
    {0},
};

/* Fifty cards with every documented member are below ISSUER_LOOKUP_ANSWER_MAX. */
static const struct issuer_field lookup_query[] = {
    TEXT("limit", "50"),
    FIELD("offset", FROM_CURSOR, .when = IF_GIVEN),
    {0},
};

static const struct issuer_field activate_body[] = {TEXT("status", "active"), {0}};
static const struct issuer_field freeze_body[] = {TEXT("status", "suspended"), {0}};
static const struct issuer_field close_body[] = {
    TEXT("status", "closed"),
    TEXT("statusReason", "other"),
    TEXT("statusComment", "closed by issuing"),
    {0},
};

static const struct issuer_field retire_body[] = {
    TEXT("status", "closed"),
    FIELD("statusReason", FROM_REASON),
    TEXT("statusComment", "closed by issuing"),
    {0},
};

#define CARD "/paymentInstruments/{card}"
#define CHANGE(fields) PATCH(CARD, fields, "/status")

static const struct issuer_rule rules[] = {
    RULE(ANY_CALL, 409, 409, MEANS_IN_PROGRESS, .code = "704"), /* processed already, or in progress */
    /* guard: Adyen's 704 is not a refusal */
    RULE(ANY_CALL, 422, 422, MEANS_IN_PROGRESS, .code = "704"),
    RULE(ANY_CALL, 409, 409, MEANS_IN_PROGRESS, .header = "transient-error: true"),
    RULE(ANY_CALL, 422, 422, MEANS_IN_PROGRESS, .header = "transient-error: true"),
    RULE(ANY_CALL, 503, 503, MEANS_UNKNOWN, .code = "703"), /* the store of the keys is unavailable */
    /* This card, not our settings. */
    RULE(CALLS_OF_A_CARD, 404, 404, MEANS_REFUSED),
    {0},
};

const struct issuer_profile issuer_adyen = {
    .name = "adyen",
    .documents = "Adyen Configuration API 2; Adyen/adyen-openapi aa014f0cbdb5",
    .url_end = "/bcl/v2",
    .credential = {.prefix = "X-API-Key: "},
    .test_host = "-test.adyen.com",
    .noted_headers = (const char *const[]){"transient-error", "idempotency-key", NULL},
    .honoured_header = "idempotency-key",
    .parameters = (const char *const[]){"balanceAccountId", "cardholderName", "issuingCountryCode", "brand",
                                        "brandVariant", "?phone", NULL},
    .calls =
        {
            [ISSUER_CREATE] = {.method = "POST",
                               .path = "/paymentInstruments",
                               .body = create_body,
                               .encoding = ENCODING_JSON,
                               .has_key = true},
            [ISSUER_LOOKUP] = {.method = "GET",
                               .path = "/balanceAccounts/{balanceAccountId}/paymentInstruments",
                               .query = lookup_query},
            [ISSUER_ACTIVATE] = CHANGE(activate_body),
            [ISSUER_REVEAL] = {.method = "GET", .path = CARD "/reveal"},
            [ISSUER_CANCEL] = CHANGE(close_body),
            [ISSUER_RETIRE] = CHANGE(retire_body),
            [ISSUER_FREEZE] = CHANGE(freeze_body),
            [ISSUER_RETRIEVE] = {.method = "GET", .path = CARD},
        },
    .card =
        {
            .id = "/id",
            .reference = "/reference",
            .last4 = "/card/lastFour",
            .number = "/card/number",
            .exp_month = "/card/expiration/month",
            .exp_year = "/card/expiration/year",
            .state = "/status",
            .states =
                (const struct issuer_state_word[]){
                    {"active", ISSUER_CARD_ACTIVE},
                    {"suspended", ISSUER_CARD_FROZEN},
                    {"inactive", ISSUER_CARD_INACTIVE},
                    {"closed", ISSUER_CARD_GONE},
                    {0},
                },
            .number_may_be_masked = true,
        },
    .revealed_number = "/pan",
    .reasons = {[OUTBOX_LOST] = "lost",
                [OUTBOX_STOLEN] = "stolen",
                [OUTBOX_DAMAGED] = "damaged",
                [OUTBOX_EXPIRED] = "expired"},
    .list = {.paging = PAGING_OFFSET,
             .cards = "/paymentInstruments",
             .more = "/hasNext",
             .has_foreign_rows = true,
             /* guard: where offsets shift, only a second walk may find nothing */
             .walks = 2},
    .events = {.signature = EVENTS_ADYEN,
               .type = "/type",
               .type_begins = "balancePlatform.paymentInstrument.",
               .reference = "/data/paymentInstrument/reference",
               .card = "/data/paymentInstrument/id"},
    .error_codes = (const char *const[]){"/errorCode", NULL},
    .error_detail = "/detail",
    .rules = rules,
    .questions =
        QUESTIONS({"whether the key is honoured", ASK_REPEAT}, {"how long a key is honoured", ASK_VENDOR},
                  {"what a 429 looks like", ASK_VENDOR}, {"the cards of an unknown balance account", ASK_LISTED},
                  {"a second close", ASK_CLOSE}, {"how soon a card shows in the list", ASK_SHOWN}),
    .looks_first = true,
};
