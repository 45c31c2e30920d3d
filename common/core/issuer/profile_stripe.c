/* Stripe Issuing, docs.stripe.com/api/issuing/cards. Pitfalls: there is no look-up by our reference, so the worker
 * lists the holder's cards and compares; a 5xx is stored under the key, and every repeat gets it. */
#include "common/core/issuer/profile_rows.h"

#define REFERENCE "metadata/issuing_reference"

/* No `replacement_for`: with `damaged` and `expired` the new card has the old one's number, and its activation cancels
 * the old card, before core-api has the new one; `lost` and `stolen` want the old card cancelled beforehand. */
static const struct issuer_field create_body[] = {
    PARAMETER("cardholder", "cardholder"),
    PARAMETER("currency", "currency"),
    TEXT("type", "virtual"),
    TEXT("status", "active"), /* without it the card is inactive */
    FIELD(REFERENCE, FROM_EVENT),
    FIELD("metadata/memo", FROM_MEMO, .when = IF_GIVEN),
    FIELD("metadata/program", FROM_PROGRAM, .when = IF_GIVEN),
    {0},
};

/* Ten cards, each with its cardholder and all the metadata that both may have, are below ISSUER_LOOKUP_ANSWER_MAX. */
static const struct issuer_field lookup_query[] = {
    PARAMETER("cardholder", "cardholder"),
    TEXT("type", "virtual"),
    FIELD("created/gte", FROM_SINCE_UNIX),
    TEXT("limit", "10"),
    FIELD("starting_after", FROM_CURSOR, .when = IF_GIVEN),
    {0},
};

static const struct issuer_field list_query[] = {
    TEXT("type", "virtual"),
    FIELD("created/gte", FROM_SINCE_UNIX),
    TEXT("limit", "10"),
    FIELD("starting_after", FROM_CURSOR, .when = IF_GIVEN),
    {0},
};

static const struct issuer_field reveal_query[] = {TEXT("expand/0", "number"), {0}};
static const struct issuer_field activate_body[] = {TEXT("status", "active"), {0}};
static const struct issuer_field freeze_body[] = {TEXT("status", "inactive"), {0}};
static const struct issuer_field cancel_body[] = {TEXT("status", "canceled"), {0}};
static const struct issuer_field retire_body[] = {
    TEXT("status", "canceled"),
    FIELD("cancellation_reason", FROM_REASON, .when = IF_GIVEN),
    {0},
};

#define CARD "/v1/issuing/cards/{card}"
/* A status may be set twice, so each attempt has a key of its own: a failure that is stored under one key would be the
 * answer to every repeat for a day. */
/* guard: a failure that Stripe keeps under the key of a change is not an answer to the next attempt */
#define CHANGE(fields, suffix)                                                                      \
    {                                                                                               \
        .method = "POST", .path = CARD, .body = fields, .encoding = ENCODING_FORM, .has_key = true, \
        .key_suffix = suffix, .has_key_of_attempt = true, .answered_state = "/status"               \
    }

static const struct issuer_rule rules[] = {
    /* The key is bound to another request: something was sent under it. */
    RULE(CALL(CREATE), 400, 409, MEANS_LOOK_UP, .code = "idempotency_error"),
    RULE(ANY_CALL, 400, 400, MEANS_WAIT, .code = "rate_limit"),              /* the old form of 429 */
    RULE(CALL(CREATE), 429, 429, MEANS_IN_PROGRESS, .code = "lock_timeout"), /* it had begun */
    RULE(ANY_CALL, 402, 402, MEANS_REFUSED),
    /* This user's holder, or this card, not our settings. */
    RULE(CALL(CREATE) | CALLS_OF_A_CARD, 404, 404, MEANS_REFUSED, .code = "resource_missing"),
    RULE(ANY_CALL, 424, 424, MEANS_UNKNOWN), /* something that Stripe depends on failed */
    /* Stored under the key: every repeat gets this answer. */
    /* guard: a failure that Stripe's key keeps is looked up */
    RULE(CALL(CREATE), 500, 599, MEANS_KEY_SPENT, .header = "idempotent-replayed: true"),
    RULE(CALL(CREATE), 500, 599, MEANS_LOOK_UP, .header = "stripe-should-retry: false"),
    {0},
};

const struct issuer_profile issuer_stripe = {
    .name = "stripe",
    .documents = "docs.stripe.com/api/issuing/cards, version 2026-10-28.endive; stripe/openapi e0123a38",
    .credential = {.prefix = "Authorization: Bearer "},
    .test_credential = "k_test_", /* sk_test_, rk_test_ */
    .headers =
        (const struct issuer_field[]){
            TEXT("Stripe-Version", "2026-10-28.endive"), /* fixes the shape of the answers */
            PARAMETER("Stripe-Account", "stripe_account", .when = IF_GIVEN),
            {0},
        },
    .noted_headers = (const char *const[]){"idempotent-replayed", "stripe-should-retry", NULL},
    .parameters = (const char *const[]){"cardholder", "currency", "?stripe_account", NULL},
    .refused_members = (const char *const[]){"replacement_for", "replacement_reason", "expand", NULL},
    .calls =
        {
            [ISSUER_CREATE] = {.method = "POST",
                               .path = "/v1/issuing/cards",
                               .body = create_body,
                               .encoding = ENCODING_FORM,
                               .has_key = true},
            [ISSUER_LOOKUP] = {.method = "GET", .path = "/v1/issuing/cards", .query = lookup_query},
            [ISSUER_LIST] = {.method = "GET", .path = "/v1/issuing/cards", .query = list_query},
            [ISSUER_ACTIVATE] = CHANGE(activate_body, ":activate"),
            [ISSUER_REVEAL] = {.method = "GET", .path = CARD, .query = reveal_query},
            [ISSUER_CANCEL] = CHANGE(cancel_body, ":cancel"),
            [ISSUER_RETIRE] = CHANGE(retire_body, ":retire"),
            [ISSUER_FREEZE] = CHANGE(freeze_body, ":freeze"),
            [ISSUER_RETRIEVE] = {.method = "GET", .path = CARD},
        },
    .account = {.path = "/v1/account", .id = "/id"},
    .card =
        {
            .id = "/id",
            .reference = "/" REFERENCE,
            .last4 = "/last4",
            .exp_month = "/exp_month",
            .exp_year = "/exp_year",
            .state = "/status",
            .states =
                (const struct issuer_state_word[]){
                    {"active", ISSUER_CARD_ACTIVE},
                    {"inactive", ISSUER_CARD_INACTIVE},
                    {"canceled", ISSUER_CARD_GONE},
                    {0},
                },
        },
    .revealed_number = "/number",
    .reasons = {[OUTBOX_LOST] = "lost", [OUTBOX_STOLEN] = "stolen"},
    .list = {.paging = PAGING_LAST_ID,
             .cards = "/data",
             .more = "/has_more",
             .listed_more = "/has_more",
             .has_foreign_rows = true},
    .events = {.signature = EVENTS_STRIPE,
               .type = "/type",
               .type_begins = "issuing_card.",
               .reference = "/data/object/" REFERENCE,
               .card = "/data/object/id"},
    .error_codes = (const char *const[]){"/error/code", "/error/type", NULL},
    .error_detail = "/error/message",
    .rules = rules,
    .questions =
        QUESTIONS({"a second close, under another key", ASK_CLOSE}, {"how soon a card shows in the list", ASK_SHOWN}),
    .key_is_trusted = true,
};
