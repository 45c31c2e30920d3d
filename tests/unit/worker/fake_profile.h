/* An issuer that no vendor is: it declares every call, and parameters of which one is required. What the tests of the
 * flow need of a profile and not of a vendor. */
#ifndef ISSUING_FAKE_PROFILE_H
#define ISSUING_FAKE_PROFILE_H

#include "common/core/issuer/profile_rows.h"

static const struct issuer_field fake_body[] = {PARAMETER("holder", "holder"), FIELD("ref", FROM_EVENT), {0}};
static const struct issuer_field fake_query[] = {
    PARAMETER("holder", "holder"), FIELD("after", FROM_CURSOR, .when = IF_GIVEN), {0}};
static const struct issuer_state_word fake_states[] = {
    {"live", ISSUER_CARD_ACTIVE}, {"new", ISSUER_CARD_INACTIVE}, {"gone", ISSUER_CARD_GONE}, {0}};
static const char *const fake_parameters[] = {"holder", "?account", NULL};
static const char *const fake_codes[] = {"/code", NULL};
static const struct issuer_rule fake_rules[] = {
    RULE(CALL(CREATE), 409, 409, MEANS_LOOK_UP),
    RULE(CALLS_OF_A_CARD, 404, 404, MEANS_REFUSED),
    {0},
};

/* A test copies it and changes what it declares. */
static const struct issuer_profile fake_profile = {
    .name = "fake",
    .parameters = fake_parameters,
    .calls =
        {
            [ISSUER_CREATE] =
                {.method = "POST", .path = "/cards", .body = fake_body, .encoding = ENCODING_JSON, .has_key = true},
            [ISSUER_LOOKUP] = {.method = "GET", .path = "/cards", .query = fake_query},
            [ISSUER_ACTIVATE] = {.method = "POST", .path = "/cards/{card}/activate"},
            [ISSUER_REVEAL] = {.method = "GET", .path = "/cards/{card}/number"},
            [ISSUER_CANCEL] = {.method = "POST", .path = "/cards/{card}/cancel"},
            [ISSUER_RETIRE] = {.method = "POST", .path = "/cards/{card}/retire"},
            [ISSUER_RETRIEVE] = {.method = "GET", .path = "/cards/{card}"},
        },
    .card =
        {
            .id = "/id",
            .reference = "/ref",
            .last4 = "/last4",
            .number = "/pan",
            .exp_month = "/month",
            .exp_year = "/year",
            .state = "/state",
            .states = fake_states,
        },
    .revealed_number = "/pan",
    .list = {.paging = PAGING_LAST_ID, .cards = "/data", .more = "/more", .has_foreign_rows = true},
    .error_codes = fake_codes,
    .rules = fake_rules,
    .key_is_trusted = true,
};

#endif
