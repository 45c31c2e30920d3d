/* The issuer of docs/peers.md: our own protocol, for an issuer that is built for it. */
#include "common/core/issuer/profile_rows.h"

const struct issuer_profile issuer_generic = {
    .name = "generic",
    .documents = "docs/peers.md",
    .credential = {.prefix = "Authorization: Bearer "},
    .sends_trace = true,
    .calls =
        {
            [ISSUER_CREATE] =
                {
                    .method = "POST",
                    .path = "/v1/cards",
                    .body =
                        (const struct issuer_field[]){
                            FIELD("reference", FROM_EVENT),
                            FIELD("user_id", FROM_USER),
                            FIELD("kind", FROM_KIND),
                            FIELD("replaces", FROM_REPLACES, .when = NULL_IF_NONE),
                            FIELD("program", FROM_PROGRAM, .when = NULL_IF_NONE),
                            FIELD("memo", FROM_MEMO, .when = NULL_IF_NONE),
                            {0},
                        },
                    .encoding = ENCODING_JSON,
                    .has_key = true,
                },
            [ISSUER_LOOKUP] =
                {
                    .method = "GET",
                    .path = "/v1/cards",
                    .query = (const struct issuer_field[]){FIELD("reference", FROM_EVENT), {0}},
                },
            [ISSUER_LIST] =
                {
                    .method = "GET",
                    .path = "/v1/cards",
                    .query =
                        (const struct issuer_field[]){
                            FIELD("created_from", FROM_SINCE_RFC3339),
                            TEXT("limit", "100"),
                            FIELD("after", FROM_CURSOR, .when = IF_GIVEN),
                            {0},
                        },
                },
            [ISSUER_CANCEL] =
                {
                    .method = "POST",
                    .path = "/v1/cards/{card}/cancel",
                    .has_key = true,
                    .key_suffix = ":cancel",
                },
        },
    .card =
        {
            .id = "/id",
            .reference = "/reference",
            .last4 = "/last4",
            .number = "/pan",
            .exp_month = "/exp_month",
            .exp_year = "/exp_year",
            .state = "/status",
            .states =
                (const struct issuer_state_word[]){
                    {"active", ISSUER_CARD_ACTIVE},
                    {"cancelled", ISSUER_CARD_GONE},
                    {0},
                },
        },
    .list = {.paging = PAGING_NONE, .cards = "/cards", .listed_more = "/has_more"},
    .events = {.signature = EVENTS_STANDARD,
               .type = "/type",
               .type_begins = "card.",
               .reference = "/data/reference",
               .card = "/data/id"},
    .error_codes = (const char *const[]){"/code", NULL},
    .error_detail = "/detail",
    .rules =
        (const struct issuer_rule[]){
            RULE(CALL(CANCEL), 409, 409, MEANS_EXECUTED), /* by an earlier call */
            RULE(CALL(CANCEL), 404, 404, MEANS_REFUSED),
            {0},
        },
    .is_exact = true,
    .key_is_trusted = true,
};
