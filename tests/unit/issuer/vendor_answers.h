/* Answers as the vendors document them, with a card of ours, and the readers behind one function. */
#ifndef ISSUING_VENDOR_ANSWERS_H
#define ISSUING_VENDOR_ANSWERS_H

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/core/issuer/issuer.h"

#define EVENT "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5b"
#define OTHER_EVENT "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5c"

#define GENERIC_CARD                                                                             \
    "{\"id\":\"ic_1\",\"reference\":\"" EVENT "\",\"pan\":\"4111111111111111\",\"exp_month\":3," \
    "\"exp_year\":2031,\"status\":\"active\"}"
#define STRIPE_CARD                                                                                              \
    "{\"id\":\"ic_1\",\"object\":\"issuing.card\",\"brand\":\"Visa\",\"cancellation_reason\":null,"              \
    "\"cardholder\":{\"id\":\"ich_1\",\"name\":\"Jenny Rosen\",\"status\":\"active\",\"metadata\":{}},"          \
    "\"created\":1795168800,\"currency\":\"eur\",\"exp_month\":8,\"exp_year\":2031,\"last4\":\"1111\","          \
    "\"livemode\":false,\"metadata\":{\"issuing_reference\":\"" EVENT "\",\"memo\":\"m\"},\"replaced_by\":null," \
    "\"status\":\"active\",\"type\":\"virtual\"}"
#define LITHIC_CARD                                                                                    \
    "{\"token\":\"7ef7d65c\",\"account_token\":\"b68b7424\",\"created\":\"2026-11-20T10:00:00Z\","     \
    "\"cvv\":\"776\",\"exp_month\":\"06\",\"exp_year\":\"2031\",\"funding\":{\"token\":\"ecbd1d58\"}," \
    "\"last_four\":\"1111\",\"memo\":\"" EVENT "\",\"pan\":\"4111111111111111\",\"spend_limit\":0,"    \
    "\"state\":\"OPEN\",\"type\":\"VIRTUAL\"}"
#define MARQETA_CARD                                                                               \
    "{\"token\":\"" EVENT "\",\"user_token\":\"user-42\",\"card_product_token\":\"virtual\","      \
    "\"last_four\":\"1111\",\"pan\":\"411111______1111\",\"expiration\":\"0631\","                 \
    "\"expiration_time\":\"2031-06-30T23:59:59Z\",\"pin_is_set\":false,\"state\":\"UNACTIVATED\"," \
    "\"fulfillment_status\":\"ISSUED\",\"instrument_type\":\"VIRTUAL_PAN\",\"metadata\":{\"memo\":\"m\"}}"
#define ADYEN_CARD                                                                                         \
    "{\"balanceAccountId\":\"BA1\",\"issuingCountryCode\":\"NL\",\"status\":\"active\",\"type\":\"card\"," \
    "\"card\":{\"brand\":\"visa\",\"cardholderName\":\"Simon Hopper\",\"expiration\":{\"month\":\"01\","   \
    "\"year\":\"2031\"},\"formFactor\":\"virtual\",\"bin\":\"411111\",\"lastFour\":\"1111\","              \
    "\"number\":\"************1111\"},\"reference\":\"" EVENT "\",\"description\":\"m\",\"id\":\"PI1\"}"

#define INCREASE_CARD                                                                                     \
    "{\"account_id\":\"account_in71\",\"billing_address\":{\"city\":null,\"line1\":null,\"line2\":null,"  \
    "\"postal_code\":null,\"state\":null},\"bin\":\"411111\",\"created_at\":\"2026-11-20T10:00:00Z\","    \
    "\"description\":\"m\",\"digital_wallet\":null,\"entity_id\":null,\"expiration_month\":11,"           \
    "\"expiration_year\":2031,\"id\":\"card_oubs\",\"idempotency_key\":\"" EVENT "\",\"last4\":\"1111\"," \
    "\"status\":\"active\",\"type\":\"card\"}"

static const struct vendor {
    const struct issuer_profile *profile;
    const char *card;
    const char *list_start, *list_more, *list_end; /* around rows: there are more, there are not */
    const char *refusal;                           /* an error with a code, where the vendor has codes */
    const char *revealed;                          /* the answer to reveal */
    const char *changed[3];                        /* active, gone, gone; the answers to activate, cancel, retire */
} vendors[] = {
    {&issuer_generic,
     GENERIC_CARD,
     "{\"cards\":[",
     "]}",
     "]}",
     "{\"code\":\"program_closed\",\"detail\":\"no\"}",
     NULL,
     {NULL, "{}", NULL}},
    {&issuer_stripe,
     STRIPE_CARD,
     "{\"object\":\"list\",\"data\":[",
     "],\"has_more\":true}",
     "],\"has_more\":false}",
     "{\"error\":{\"type\":\"invalid_request_error\",\"code\":\"program_closed\",\"message\":\"no\"}}",
     "{\"id\":\"ic_1\",\"last4\":\"1111\",\"number\":\"4111111111111111\",\"cvc\":\"123\"}",
     {"{\"status\":\"active\"}", "{\"status\":\"canceled\"}", "{\"status\":\"canceled\"}"}},
    {&issuer_lithic,
     LITHIC_CARD,
     "{\"data\":[",
     "],\"has_more\":true}",
     "],\"has_more\":false}",
     "{\"debugging_request_id\":\"94d5e915\",\"message\":\"no\"}",
     "{\"token\":\"7ef7d65c\",\"pan\":\"4111111111111111\"}",
     {NULL, "{\"state\":\"CLOSED\"}", "{\"state\":\"CLOSED\"}"}},
    {&issuer_marqeta,
     MARQETA_CARD,
     "",
     "",
     "",
     "{\"error_code\":\"400019\",\"error_message\":\"no\"}",
     "{\"token\":\"" EVENT "\",\"pan\":\"4111111111111111\",\"cvv_number\":\"123\"}",
     {"{\"state\":\"ACTIVE\"}", "{\"state\":\"TERMINATED\"}", "{\"state\":\"TERMINATED\"}"}},
    {&issuer_adyen,
     ADYEN_CARD,
     "{\"hasPrevious\":false,\"paymentInstruments\":[",
     "],\"hasNext\":true}",
     "],\"hasNext\":false}",
     "{\"title\":\"t\",\"status\":422,\"detail\":\"no\",\"errorCode\":\"30_031\"}",
     "{\"pan\":\"4111111111111111\",\"cvc\":\"123\",\"expiration\":{\"month\":\"01\",\"year\":\"2031\"}}",
     {"{\"status\":\"active\"}", "{\"status\":\"closed\"}", "{\"status\":\"closed\"}"}},
    {&issuer_increase,
     INCREASE_CARD,
     "{\"data\":[",
     "],\"next_cursor\":\"v57w5d\"}",
     "],\"next_cursor\":null}",
     "{\"type\":\"invalid_parameters_error\",\"status\":400,\"title\":\"t\",\"detail\":\"no\",\"errors\":[]}",
     "{\"card_id\":\"card_oubs\",\"expiration_month\":11,\"expiration_year\":2031,\"pin\":\"1234\","
     "\"primary_account_number\":\"4111111111111111\",\"type\":\"card_details\",\"verification_code\":\"123\"}",
     {NULL, "{\"status\":\"canceled\"}", "{\"status\":\"canceled\"}"}},
};

/* What the readers fill. */
struct reading {
    struct outcome outcome;
    struct issuer_card card;
    struct issuer_lookup lookup;
    enum issuer_card_state state;
};

/* The card that is asked about by reveal and retrieve. */
static inline const char *card_id_of(const struct issuer_profile *profile)
{
    return profile == &issuer_marqeta    ? EVENT
           : profile == &issuer_adyen    ? "PI1"
           : profile == &issuer_increase ? "card_oubs"
           : profile == &issuer_lithic   ? "7ef7d65c"
                                         : "ic_1";
}

static inline void ignore_listed(void *context, const struct issuer_listed *card)
{
    (void)context, (void)card;
}

static inline void read_answer(const struct issuer_profile *profile, enum issuer_call which, struct http_call *call,
                               struct reading *reading)
{
    struct uuid event_id;
    if (!uuid_parse(EVENT, strlen(EVENT),
                    &event_id)) /* no ck_assert: each writes to a pipe, and this is called often */
        ck_abort_msg("EVENT is not an id");
    call->noted_headers = profile->noted_headers;
    memset(&reading->outcome, 0x55, sizeof(reading->outcome));
    switch (which) {
    case ISSUER_CREATE:
        memset(&reading->card, 0, sizeof(reading->card));
        issuer_read_create(profile, call, &event_id, &reading->card, &reading->outcome);
        return;
    case ISSUER_LOOKUP:
        issuer_read_lookup(profile, call, &event_id, &reading->lookup, &reading->outcome);
        return;
    case ISSUER_ACTIVATE:
        issuer_read_activate(profile, call, &reading->outcome);
        return;
    case ISSUER_REVEAL:
        issuer_read_reveal(profile, call, &reading->card, &reading->outcome);
        return;
    case ISSUER_CANCEL:
    case ISSUER_RETIRE:
        issuer_read_cancel(profile, which, call, &reading->outcome);
        return;
    case ISSUER_RETRIEVE:
        issuer_read_retrieve(profile, call, card_id_of(profile), &reading->state, &reading->outcome);
        return;
    case ISSUER_LIST: {
        char next[CARD_ISSUER_ID_MAX + 1];
        issuer_read_list(profile, call, "", ignore_listed, NULL, next, &reading->outcome);
        return;
    }
    case ISSUER_FREEZE:
        issuer_read_freeze(profile, call, &reading->outcome);
        return;
    case ISSUER_CALLS:
        break;
    }
    ck_abort_msg("no such call");
}

/* The answer that means success; the caller has the memory of a look-up's list. */
static inline const char *good_answer(const struct vendor *vendor, enum issuer_call which, char *text, size_t size)
{
    switch (which) {
    case ISSUER_LOOKUP:
    case ISSUER_LIST:
        snprintf(text, size, "%s%s%s", vendor->list_start, vendor->card, vendor->list_end);
        return text;
    case ISSUER_ACTIVATE:
        return vendor->changed[0];
    case ISSUER_REVEAL:
        return vendor->revealed;
    case ISSUER_CANCEL:
        return vendor->changed[1];
    case ISSUER_RETIRE:
        return vendor->changed[2];
    case ISSUER_CREATE:
    case ISSUER_RETRIEVE:
    case ISSUER_FREEZE:
    case ISSUER_CALLS:
        break;
    }
    return vendor->card;
}

static inline void set_answer(struct http_call *call, int status, const char *text)
{
    call->result = HTTP_ANSWERED;
    call->status = status;
    call->retry_after_ms = -1;
    memset(call->noted, 0, sizeof(call->noted));
    buf_reset(&call->answer);
    if (!buf_put_text(&call->answer, text))
        ck_abort_msg("the answer does not fit");
}

#endif
