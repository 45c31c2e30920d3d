/* Increase, increase.com/documentation/api/cards. Pitfalls: the reference is the key itself, which a card shows; a
 * look-up by it ends with a cursor that is a text or null. Nothing says whether a failure is kept under the key, so the
 * card is looked up before each repeat. */
#include "common/core/issuer/profile_rows.h"

static const struct issuer_field create_body[] = {
    PARAMETER("account_id", "account_id"),
    PARAMETER("entity_id", "entity_id", .when = IF_GIVEN),
    FIELD("description", FROM_MEMO, .when = IF_GIVEN),
    {0},
};

static const struct issuer_field lookup_query[] = {
    FIELD("idempotency_key", FROM_EVENT),
    FIELD("cursor", FROM_CURSOR, .when = IF_GIVEN),
    {0},
};

static const struct issuer_field list_query[] = {
    FIELD("created_at.on_or_after", FROM_SINCE_RFC3339),
    TEXT("limit", "100"),
    FIELD("cursor", FROM_CURSOR, .when = IF_GIVEN),
    {0},
};

static const struct issuer_field freeze_body[] = {TEXT("status", "disabled"), {0}};
static const struct issuer_field cancel_body[] = {TEXT("status", "canceled"), {0}};

#define CARD "/cards/{card}"
#define CHANGE(fields) PATCH(CARD, fields, "/status")

const struct issuer_profile issuer_increase = {
    .name = "increase",
    .documents = "increase.com/documentation; Increase/increase-typescript b29ade7b",
    .credential = {.prefix = "Authorization: Bearer "},
    .test_host = "://sandbox.increase.com",
    .parameters = (const char *const[]){"account_id", "?entity_id", NULL},
    .calls =
        {
            [ISSUER_CREATE] =
                {.method = "POST", .path = "/cards", .body = create_body, .encoding = ENCODING_JSON, .has_key = true},
            [ISSUER_LOOKUP] = {.method = "GET", .path = "/cards", .query = lookup_query},
            [ISSUER_LIST] = {.method = "GET", .path = "/cards", .query = list_query},
            [ISSUER_REVEAL] = {.method = "GET", .path = CARD "/details"},
            [ISSUER_CANCEL] = CHANGE(cancel_body),
            [ISSUER_RETIRE] = CHANGE(cancel_body),
            [ISSUER_FREEZE] = CHANGE(freeze_body),
            [ISSUER_RETRIEVE] = {.method = "GET", .path = CARD},
        },
    .card =
        {
            .id = "/id",
            .reference = "/idempotency_key",
            .last4 = "/last4",
            .exp_month = "/expiration_month",
            .exp_year = "/expiration_year",
            .state = "/status",
            .states =
                (const struct issuer_state_word[]){
                    {"active", ISSUER_CARD_ACTIVE},
                    {"disabled", ISSUER_CARD_FROZEN},
                    {"canceled", ISSUER_CARD_GONE},
                    {0},
                },
        },
    .revealed_number = "/primary_account_number",
    .list = {.paging = PAGING_CURSOR, .cards = "/data", .more = "/next_cursor", .listed_more = "/next_cursor"},
    .events = {.signature = EVENTS_STANDARD,
               .type = "/category",
               .type_begins = "card.",
               .card = "/associated_object_id"},
    .error_codes = (const char *const[]){"/type", NULL},
    .error_detail = "/detail",
    .rules =
        (const struct issuer_rule[]){
            /* guard: a card that Increase's key has made before is looked up */
            RULE(CALL(CREATE), 409, 409, MEANS_LOOK_UP, .code = "idempotency_key_already_used_error"),
            /* The account or the card is in no state for this. */
            RULE(CALL(CREATE) | CALL(CANCEL) | CALL(RETIRE), 409, 409, MEANS_REFUSED,
                 .code = "invalid_operation_error"),
            /* This user's account, or this card, not our settings. */
            RULE(CALL(CREATE) | CALLS_OF_A_CARD, 404, 404, MEANS_REFUSED, .code = "object_not_found_error"),
            {0},
        },
    .questions = QUESTIONS({"the key while its first call runs", ASK_BUSY}, {"the key after a refusal", ASK_FAILED},
                           {"an unknown account", ASK_HOLDER}, {"a second close", ASK_CLOSE},
                           {"how soon a card shows by key", ASK_SHOWN}),
    .looks_first = true,
    .key_is_trusted = true,
};
