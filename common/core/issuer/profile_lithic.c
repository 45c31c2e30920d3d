/* Lithic, docs.lithic.com. Pitfalls: an error may be stored under the key, and no answer says whether it is a stored
 * one, so the card is looked up before each repeat; the filter `memo` also finds longer texts that contain it. */
#include "common/core/issuer/profile_rows.h"

/* No `replacement_for`: Lithic closes the original card with that create. */
static const struct issuer_field create_body[] = {
    TEXT("type", "VIRTUAL"),
    TEXT("state", "OPEN"),
    PARAMETER("account_token", "account_token"),
    PARAMETER("card_program_token", "card_program_token", .when = IF_GIVEN),
    FIELD("memo", FROM_EVENT),
    {0},
};

static const struct issuer_field lookup_query[] = {
    FIELD("memo", FROM_EVENT),
    FIELD("begin", FROM_SINCE_RFC3339),
    TEXT("page_size", "20"),
    FIELD("starting_after", FROM_CURSOR, .when = IF_GIVEN),
    {0},
};

static const struct issuer_field list_query[] = {
    FIELD("begin", FROM_SINCE_RFC3339),
    TEXT("page_size", "100"),
    FIELD("starting_after", FROM_CURSOR, .when = IF_GIVEN),
    {0},
};

static const struct issuer_field freeze_body[] = {TEXT("state", "PAUSED"), {0}};
static const struct issuer_field cancel_body[] = {TEXT("state", "CLOSED"), {0}};
static const struct issuer_field retire_body[] = {
    TEXT("state", "CLOSED"),
    FIELD("substatus", FROM_REASON, .when = IF_GIVEN),
    {0},
};

#define CARD "/v1/cards/{card}"
#define CHANGE(fields) PATCH(CARD, fields, "/state")

const struct issuer_profile issuer_lithic = {
    .name = "lithic",
    .documents = "docs.lithic.com; lithic-com/lithic-openapi 225e0708c924",
    .credential = {.prefix = "Authorization: "},
    .test_host = "://sandbox.lithic.com",
    .parameters = (const char *const[]){"account_token", "?card_program_token", NULL},
    .refused_members = (const char *const[]){"replacement_for", "Idempotency-Key", NULL},
    .calls =
        {
            [ISSUER_CREATE] = {.method = "POST",
                               .path = "/v1/cards",
                               .body = create_body,
                               .encoding = ENCODING_JSON,
                               .has_key = true},
            [ISSUER_LOOKUP] = {.method = "GET", .path = "/v1/cards", .query = lookup_query},
            [ISSUER_LIST] = {.method = "GET", .path = "/v1/cards", .query = list_query},
            [ISSUER_REVEAL] = {.method = "GET", .path = CARD},
            [ISSUER_CANCEL] = CHANGE(cancel_body),
            [ISSUER_RETIRE] = CHANGE(retire_body),
            [ISSUER_FREEZE] = CHANGE(freeze_body),
            [ISSUER_RETRIEVE] = {.method = "GET", .path = CARD},
        },
    .card =
        {
            .id = "/token",
            .reference = "/memo",
            .last4 = "/last_four",
            .number = "/pan",
            .exp_month = "/exp_month",
            .exp_year = "/exp_year",
            .state = "/state",
            .states =
                (const struct issuer_state_word[]){
                    {"OPEN", ISSUER_CARD_ACTIVE},
                    {"PAUSED", ISSUER_CARD_FROZEN},
                    {"PENDING_FULFILLMENT", ISSUER_CARD_ACTIVE},
                    {"PENDING_ACTIVATION", ISSUER_CARD_ACTIVE},
                    {"CLOSED", ISSUER_CARD_GONE},
                    {0},
                },
        },
    .revealed_number = "/pan",
    .reasons = {[OUTBOX_LOST] = "LOST",
                [OUTBOX_STOLEN] = "COMPROMISED", /* as by theft */
                [OUTBOX_DAMAGED] = "DAMAGED",
                [OUTBOX_EXPIRED] = "EXPIRED"},
    .list = {.paging = PAGING_LAST_ID,
             .cards = "/data",
             .more = "/has_more",
             .listed_more = "/has_more",
             .has_foreign_rows = true},
    .events = {.signature = EVENTS_STANDARD, .type = "/event_type", .type_begins = "card.", .card = "/card_token"},
    .error_detail = "/message",
    .rules =
        (const struct issuer_rule[]){
            /* This card, not our settings. */
            RULE(CALLS_OF_A_CARD, 404, 404, MEANS_REFUSED),
            {0},
        },
    .questions = QUESTIONS({"how long keys are kept", ASK_VENDOR}, {"whether a 5xx is kept under the key", ASK_VENDOR},
                           {"the key after a refusal", ASK_FAILED}, {"an unknown account", ASK_HOLDER},
                           {"a second close", ASK_CLOSE}, {"how soon a card shows by memo", ASK_SHOWN}),
    /* guard: an unknown outcome is looked up before the create is repeated */
    .looks_first = true,
    .key_is_trusted = true,
};
