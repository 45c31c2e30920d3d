/* See request_cases.h. */
#include "request_cases.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/json/json_strict.h"

#define ODD_MEMO "\"a\"\\/ & b=c [d] %41+\xc3\xa9\xe2\x82\xac\xf0\x9f\x92\xb3"
#define ODD_CARD "a/b?c#d&e %2F\"{card}"
#define X10(text) text text text text text text text text text text
/* 255 bytes: 127 of two bytes, and one. */
#define LONG_MEMO \
    X10(X10("\xc3\xa9")) X10("\xc3\xa9") X10("\xc3\xa9") "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9."

const struct golden_values golden_values[] = {
    {
        .profile = &issuer_generic,
        .base = "https://issuer.example",
        .parameters = "{}",
        .required = "{}",
        .card = "ic_1Mzf0c",
        .replaces = "ic_1Mzf0d",
    },
    {
        .profile = &issuer_stripe,
        .base = "https://api.stripe.com",
        .parameters = "{\"cardholder\":\"ich_1Mzf0a\",\"currency\":\"eur\",\"stripe_account\":\"acct_1Mzf0b\"}",
        .required = "{\"cardholder\":\"ich_1Mzf0a\",\"currency\":\"eur\"}",
        .card = "ic_1Mzf0c",
        .replaces = "ic_1Mzf0d",
        .cursor = "ic_1Mzf0e",
    },
    {
        .profile = &issuer_lithic,
        .base = "https://api.lithic.com",
        .parameters = "{\"account_token\":\"b68b7424-aa69-4cbc-a946-30d90181b621\","
                      "\"card_program_token\":\"5e9483eb-8103-4e16-9794-2106111b2eca\"}",
        .required = "{\"account_token\":\"b68b7424-aa69-4cbc-a946-30d90181b621\"}",
        .card = "7ef7d65c-9023-4da3-b113-3b8583fd7951",
        .replaces = "1f6e6d0a-1b5d-4a8a-9c0e-5f1a2b3c4d5e",
        .cursor = "2a7f7e1b-2c6e-4b9b-8d1f-6a2b3c4d5e6f",
    },
    {
        .profile = &issuer_marqeta,
        .base = "https://sandbox-api.marqeta.com/v3",
        .parameters = "{\"user_token\":\"user-42\",\"card_product_token\":\"virtual-debit\"}",
        .required = "{\"user_token\":\"user-42\",\"card_product_token\":\"virtual-debit\"}",
        .card = GOLDEN_EVENT,
        .replaces = "0198a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5a",
    },
    {
        .profile = &issuer_adyen,
        .base = "https://balanceplatform-api-test.adyen.com/bcl/v2",
        .parameters = "{\"balanceAccountId\":\"BA3227C223222B5CTBLR8BWJB\",\"cardholderName\":\"Simon Hopper\","
                      "\"issuingCountryCode\":\"NL\",\"brand\":\"visa\",\"brandVariant\":\"visadebit\","
                      "\"phone\":\"+31612345678\"}",
        .required = "{\"balanceAccountId\":\"BA3227C223222B5CTBLR8BWJB\",\"cardholderName\":\"Simon Hopper\","
                    "\"issuingCountryCode\":\"NL\",\"brand\":\"visa\",\"brandVariant\":\"visadebit\"}",
        .card = "PI3227C223222B5BPCMFXD2XG",
        .replaces = "PI3227C223222B5BPCMFXD2XA",
    },
    {
        .profile = &issuer_increase,
        .base = "https://sandbox.increase.com",
        .parameters = "{\"account_id\":\"account_in71c4amph0vgo2qllky\",\"entity_id\":\"entity_n8y8tnk2p9339ti393yi\"}",
        .required = "{\"account_id\":\"account_in71c4amph0vgo2qllky\"}",
        .card = "card_oubs0hwk5rn6knuecxg2",
        .replaces = "card_oubs0hwk5rn6knuecxg1",
        .cursor = "v57w5d+=",
    },
    {0},
};

const struct request_case request_cases[] = {
    {.call = ISSUER_CREATE, .name = "create_new"},
    {.call = ISSUER_CREATE, .name = "create_reissue", .is_reissue = true},
    {.call = ISSUER_LOOKUP, .name = "lookup"},
    {.call = ISSUER_LOOKUP, .name = "lookup_next", .is_next_page = true},
    {.call = ISSUER_ACTIVATE, .name = "activate"},
    {.call = ISSUER_REVEAL, .name = "reveal"},
    {.call = ISSUER_CANCEL, .name = "cancel"},
    {.call = ISSUER_RETIRE, .name = "retire", .is_reissue = true},
    {.call = ISSUER_RETRIEVE, .name = "retrieve"},
    {.call = ISSUER_FREEZE, .name = "freeze"},
    {.call = ISSUER_CREATE, .name = "create_plain", .is_plain = true},
    {.call = ISSUER_CREATE, .name = "create_empty_memo", .is_odd = true, .memo = ""},
    {.call = ISSUER_CREATE, .name = "create_odd_memo", .is_odd = true, .memo = ODD_MEMO},
    {.call = ISSUER_CREATE, .name = "create_long_memo", .is_odd = true, .memo = LONG_MEMO},
    {.call = ISSUER_CANCEL, .name = "cancel_odd_card", .is_odd = true},
    {0},
};

bool request_case_applies(const struct golden_values *values, const struct request_case *request)
{
    return issuer_profile_has(values->profile, request->call) && (!request->is_next_page || values->profile->list.more);
}

bool request_case_make(const struct golden_values *values, const struct request_case *request, struct http_call *call)
{
    const char *given = request->is_plain ? values->required : values->parameters;
    struct issuer_parameters parameters = {0};
    bool is_json = json_strict_check(given, strlen(given), NULL);
    assert(is_json);
    const char *wrong = issuer_parameters_read(values->profile, json_value_of(given, strlen(given)), &parameters);
    assert(!wrong);
    struct outbox_payload payload = {
        .is_reissue = request->is_reissue, .has_memo = !request->is_plain, .has_program = !request->is_plain};
    snprintf(payload.memo, sizeof(payload.memo), "%s", request->memo ? request->memo : GOLDEN_MEMO);
    snprintf(payload.program, sizeof(payload.program), "%s", GOLDEN_PROGRAM);
    struct issuer_lookup lookup = {.rows = request->is_next_page ? 50 : 0};
    if (request->is_next_page && values->cursor)
        snprintf(lookup.cursor, sizeof(lookup.cursor), "%s", values->cursor);
    bool is_of_old = request->call == ISSUER_RETIRE;
    struct issuer_subject subject = {
        .base = values->base,
        .user_id = GOLDEN_USER,
        .payload = &payload,
        .replaces = values->replaces,
        .card_id = is_of_old         ? values->replaces
                   : request->is_odd ? ODD_CARD
                                     : values->card,
        .since_ms = GOLDEN_SINCE_UNIX * 1000LL,
        .parameters = &parameters,
        .lookup = &lookup,
    };
    bool is_id = uuid_parse(GOLDEN_EVENT, strlen(GOLDEN_EVENT), &subject.event_id);
    assert(is_id);
    (void)(is_json && !wrong && is_id); /* without assertions */
    return issuer_build(values->profile, request->call, &subject, call);
}
