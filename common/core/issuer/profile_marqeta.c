/* Marqeta Core API 3. The event's id is the card's token there, so a repeat never makes a second card, for ever, and
 * the look-up is exact. Pitfalls: a card must be activated, its number is read by a call of its own, and a wrong path
 * also answers 404, with a code of its own. */
#include "common/core/issuer/profile_rows.h"

/* No `new_pan_from_card_token`: Marqeta terminates the old number with that create. */
static const struct issuer_field create_body[] = {
    FIELD("token", FROM_EVENT),
    PARAMETER("user_token", "user_token"),
    PARAMETER("card_product_token", "card_product_token"),
    FIELD("metadata/memo", FROM_MEMO, .when = IF_GIVEN),
    {0},
};

/* A transition's token is its key, of at most 36 characters: one for each change that an event may need. */
#define TRANSITION(prefix, state, reason)                                                                   \
    FIELD("token", FROM_EVENT_HEX, .text = prefix), FIELD("card_token", FROM_CARD), TEXT("channel", "API"), \
        TEXT("state", state), TEXT("reason_code", reason)

static const struct issuer_field activate_body[] = {TRANSITION("act-", "ACTIVE", "00"), {0}};
static const struct issuer_field freeze_body[] = {TRANSITION("frz-", "SUSPENDED", "01"), {0}};
static const struct issuer_field cancel_body[] = {TRANSITION("end-", "TERMINATED", "01"), {0}};
static const struct issuer_field retire_body[] = {TRANSITION("old-", "TERMINATED", "01"), {0}};

#define CHANGE(fields)                                                                           \
    {                                                                                            \
        .method = "POST", .path = "/cardtransitions", .body = fields, .encoding = ENCODING_JSON, \
        .answered_state = "/state"                                                               \
    }

static const struct issuer_rule rules[] = {
    /* The token was used before, with other content: a card or a transition of ours exists. */
    /* guard: at Marqeta a conflict is looked up */
    RULE(CALL(CREATE) | CALL(ACTIVATE), 409, 409, MEANS_LOOK_UP),
    RULE(CALL(CANCEL) | CALL(RETIRE), 409, 409, MEANS_UNFORESEEN),
    RULE(ANY_CALL, 412, 412, MEANS_REFUSED),
    RULE(CALL(ACTIVATE) | CALL(FREEZE) | CALL(CANCEL) | CALL(RETIRE), 201, 201, MEANS_EXECUTED),
    /* This card, not our settings. */
    RULE(CALLS_OF_A_CARD, 404, 404, MEANS_REFUSED),
    {0},
};

const struct issuer_profile issuer_marqeta = {
    .name = "marqeta",
    .documents = "Marqeta Core API 3.0.39; marqeta/marqeta-openapi 8f386fcff46f",
    .url_end = "/v3",
    .credential = {.prefix = "Authorization: Basic ", .is_base64 = true},
    .test_host = "://sandbox-api.marqeta.com",
    .parameters = (const char *const[]){"user_token", "card_product_token", NULL},
    .parameter_from_user = "user_token",
    .refused_members =
        (const char *const[]){"new_pan_from_card_token", "bulk_issuance_token", "expiration_offset", NULL},
    .calls =
        {
            [ISSUER_CREATE] = {.method = "POST", .path = "/cards", .body = create_body, .encoding = ENCODING_JSON},
            [ISSUER_LOOKUP] = {.method = "GET", .path = "/cards/{event}"},
            [ISSUER_ACTIVATE] = CHANGE(activate_body),
            [ISSUER_REVEAL] = {.method = "GET", .path = "/cards/{card}/showpan"},
            [ISSUER_CANCEL] = CHANGE(cancel_body),
            [ISSUER_RETIRE] = CHANGE(retire_body),
            [ISSUER_FREEZE] = CHANGE(freeze_body),
            [ISSUER_RETRIEVE] = {.method = "GET", .path = "/cards/{card}"},
        },
    .card =
        {
            .id = "/token",
            .reference = "/token",
            .last4 = "/last_four",
            .exp_mmyy = "/expiration",
            .state = "/state",
            .states =
                (const struct issuer_state_word[]){
                    {"ACTIVE", ISSUER_CARD_ACTIVE},
                    {"LIMITED", ISSUER_CARD_ACTIVE},
                    {"SUSPENDED", ISSUER_CARD_FROZEN},
                    {"UNACTIVATED", ISSUER_CARD_INACTIVE},
                    {"TERMINATED", ISSUER_CARD_GONE},
                    {0},
                },
        },
    .revealed_number = "/pan",
    .list = {.paging = PAGING_ONE_CARD, .wrong_path = "/no-such-path/{event}"},
    .events = {.signature = EVENTS_BASIC,
               .list = "/cardtransitions",
               .reference = "/card_token",
               .card = "/card_token"},
    .error_codes = (const char *const[]){"/error_code", NULL},
    .error_detail = "/error_message",
    .rules = rules,
    .questions = QUESTIONS({"the codes of a card and of a path that do not exist", ASK_PATHS},
                           {"a second close, by another transition", ASK_CLOSE}, {"an unknown user", ASK_HOLDER},
                           {"how soon a card shows by its token", ASK_SHOWN}),
    .makes_inactive = true, /* SUSPENDED is another state */
    .key_is_trusted = true,
};
