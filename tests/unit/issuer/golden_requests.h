/* What each request of request_cases.c is, byte for byte. Written from the vendors' documents (docs/issuers/), and
 * compared with what their own clients send by tests/issuers/run.py. */
#ifndef ISSUING_GOLDEN_REQUESTS_H
#define ISSUING_GOLDEN_REQUESTS_H

#define EVENT "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5b"
#define KEY(suffix) "Idempotency-Key: " EVENT suffix "\n"
#define JSON "Content-Type: application/json\n"
#define FORM "Content-Type: application/x-www-form-urlencoded\n"
#define VERSION "Stripe-Version: 2026-10-28.endive\n"
#define ACCOUNT "Stripe-Account: acct_1Mzf0b\n"

static const struct golden {
    const char *profile, *call, *method;
    const char *path;    /* behind issuer.url */
    const char *headers; /* each with a line feed behind it */
    const char *body;
} golden[] = {
    /* ---- generic ---- */
    {"generic", "create_new", "POST", "/v1/cards", KEY("") JSON,
     "{\"reference\":\"" EVENT
     "\",\"user_id\":\"user-42\",\"kind\":\"new\",\"replaces\":null,\"program\":\"travel\",\"memo\":\"For the trip\"}"},
    {"generic", "create_reissue", "POST", "/v1/cards", KEY("") JSON,
     "{\"reference\":\"" EVENT "\",\"user_id\":\"user-42\",\"kind\":\"reissue\",\"replaces\":\"ic_1Mzf0d\",\"program\":"
     "\"travel\",\"memo\":\"For the trip\"}"},
    {"generic", "lookup", "GET", "/v1/cards?reference=" EVENT, "", ""},
    {"generic", "cancel", "POST", "/v1/cards/ic_1Mzf0c/cancel", KEY(":cancel"), ""},
    {"generic", "create_plain", "POST", "/v1/cards", KEY("") JSON,
     "{\"reference\":\"" EVENT
     "\",\"user_id\":\"user-42\",\"kind\":\"new\",\"replaces\":null,\"program\":null,\"memo\":null}"},
    {"generic", "create_empty_memo", "POST", "/v1/cards", KEY("") JSON,
     "{\"reference\":\"" EVENT
     "\",\"user_id\":\"user-42\",\"kind\":\"new\",\"replaces\":null,\"program\":\"travel\",\"memo\":\"\"}"},
    {"generic", "create_odd_memo", "POST", "/v1/cards", KEY("") JSON,
     "{\"reference\":\"" EVENT "\",\"user_id\":\"user-42\",\"kind\":\"new\",\"replaces\":null,\"program\":\"travel\","
     "\"memo\":\"\\\"a\\\"\\\\/ & b=c [d] %41+\xc3\xa9\xe2\x82\xac\xf0\x9f\x92\xb3"
     "\"}"},
    {"generic", "cancel_odd_card", "POST", "/v1/cards/a%2Fb%3Fc%23d%26e%20%252F%22%7Bcard%7D/cancel", KEY(":cancel"),
     ""},
    /* ---- stripe ---- */
    {"stripe", "create_new", "POST", "/v1/issuing/cards", KEY("") FORM VERSION ACCOUNT,
     "cardholder=ich_1Mzf0a&currency=eur&type=virtual&status=active&metadata[issuing_reference]=" EVENT
     "&metadata[memo]=For%20the%20trip&metadata[program]=travel"},
    {"stripe", "create_reissue", "POST", "/v1/issuing/cards", KEY("") FORM VERSION ACCOUNT,
     "cardholder=ich_1Mzf0a&currency=eur&type=virtual&status=active&metadata[issuing_reference]=" EVENT
     "&metadata[memo]=For%20the%20trip&metadata[program]=travel"},
    {"stripe", "lookup", "GET", "/v1/issuing/cards?cardholder=ich_1Mzf0a&type=virtual&created[gte]=1795168800&limit=10",
     VERSION ACCOUNT, ""},
    {"stripe", "lookup_next", "GET",
     "/v1/issuing/cards?cardholder=ich_1Mzf0a&type=virtual&created[gte]=1795168800&limit=10&starting_after=ic_1Mzf0e",
     VERSION ACCOUNT, ""},
    {"stripe", "activate", "POST", "/v1/issuing/cards/ic_1Mzf0c", KEY(":activate") FORM VERSION ACCOUNT,
     "status=active"},
    {"stripe", "reveal", "GET", "/v1/issuing/cards/ic_1Mzf0c?expand[0]=number", VERSION ACCOUNT, ""},
    {"stripe", "cancel", "POST", "/v1/issuing/cards/ic_1Mzf0c", KEY(":cancel") FORM VERSION ACCOUNT, "status=canceled"},
    {"stripe", "retire", "POST", "/v1/issuing/cards/ic_1Mzf0d", KEY(":retire") FORM VERSION ACCOUNT,
     "status=canceled&cancellation_reason=lost"},
    {"stripe", "retrieve", "GET", "/v1/issuing/cards/ic_1Mzf0c", VERSION ACCOUNT, ""},
    {"stripe", "freeze", "POST", "/v1/issuing/cards/ic_1Mzf0c", KEY(":freeze") FORM VERSION ACCOUNT, "status=inactive"},
    {"stripe", "create_plain", "POST", "/v1/issuing/cards", KEY("") FORM VERSION,
     "cardholder=ich_1Mzf0a&currency=eur&type=virtual&status=active&metadata[issuing_reference]=" EVENT},
    {"stripe", "create_empty_memo", "POST", "/v1/issuing/cards", KEY("") FORM VERSION ACCOUNT,
     "cardholder=ich_1Mzf0a&currency=eur&type=virtual&status=active&metadata[issuing_reference]=" EVENT
     "&metadata[program]=travel"},
    {"stripe", "create_odd_memo", "POST", "/v1/issuing/cards", KEY("") FORM VERSION ACCOUNT,
     "cardholder=ich_1Mzf0a&currency=eur&type=virtual&status=active&metadata[issuing_reference]=" EVENT
     "&metadata[memo]=%22a%22%5C%2F%20%26%20b%3Dc%20%5Bd%5D%20%2541%2B%C3%A9%E2%82%AC%F0%9F%92%B3&metadata[program]="
     "travel"},
    {"stripe", "cancel_odd_card", "POST", "/v1/issuing/cards/a%2Fb%3Fc%23d%26e%20%252F%22%7Bcard%7D",
     KEY(":cancel") FORM VERSION ACCOUNT, "status=canceled"},
    /* ---- lithic ---- */
    {"lithic", "create_new", "POST", "/v1/cards", KEY("") JSON,
     "{\"type\":\"VIRTUAL\",\"state\":\"OPEN\",\"account_token\":\"b68b7424-aa69-4cbc-a946-30d90181b621\",\"card_"
     "program_token\":\"5e9483eb-8103-4e16-9794-2106111b2eca\",\"memo\":\"" EVENT "\"}"},
    {"lithic", "create_reissue", "POST", "/v1/cards", KEY("") JSON,
     "{\"type\":\"VIRTUAL\",\"state\":\"OPEN\",\"account_token\":\"b68b7424-aa69-4cbc-a946-30d90181b621\",\"card_"
     "program_token\":\"5e9483eb-8103-4e16-9794-2106111b2eca\",\"memo\":\"" EVENT "\"}"},
    {"lithic", "lookup", "GET", "/v1/cards?memo=" EVENT "&begin=2026-11-20T10%3A00%3A00.000000Z&page_size=20", "", ""},
    {"lithic", "lookup_next", "GET",
     "/v1/cards?memo=" EVENT
     "&begin=2026-11-20T10%3A00%3A00.000000Z&page_size=20&starting_after=2a7f7e1b-2c6e-4b9b-8d1f-6a2b3c4d5e6f",
     "", ""},
    {"lithic", "reveal", "GET", "/v1/cards/7ef7d65c-9023-4da3-b113-3b8583fd7951", "", ""},
    {"lithic", "cancel", "PATCH", "/v1/cards/7ef7d65c-9023-4da3-b113-3b8583fd7951", JSON, "{\"state\":\"CLOSED\"}"},
    {"lithic", "retire", "PATCH", "/v1/cards/1f6e6d0a-1b5d-4a8a-9c0e-5f1a2b3c4d5e", JSON,
     "{\"state\":\"CLOSED\",\"substatus\":\"LOST\"}"},
    {"lithic", "retrieve", "GET", "/v1/cards/7ef7d65c-9023-4da3-b113-3b8583fd7951", "", ""},
    {"lithic", "freeze", "PATCH", "/v1/cards/7ef7d65c-9023-4da3-b113-3b8583fd7951", JSON, "{\"state\":\"PAUSED\"}"},
    {"lithic", "create_plain", "POST", "/v1/cards", KEY("") JSON,
     "{\"type\":\"VIRTUAL\",\"state\":\"OPEN\",\"account_token\":\"b68b7424-aa69-4cbc-a946-30d90181b621\",\"memo\":"
     "\"" EVENT "\"}"},
    {"lithic", "create_empty_memo", "POST", "/v1/cards", KEY("") JSON,
     "{\"type\":\"VIRTUAL\",\"state\":\"OPEN\",\"account_token\":\"b68b7424-aa69-4cbc-a946-30d90181b621\",\"card_"
     "program_token\":\"5e9483eb-8103-4e16-9794-2106111b2eca\",\"memo\":\"" EVENT "\"}"},
    {"lithic", "create_odd_memo", "POST", "/v1/cards", KEY("") JSON,
     "{\"type\":\"VIRTUAL\",\"state\":\"OPEN\",\"account_token\":\"b68b7424-aa69-4cbc-a946-30d90181b621\",\"card_"
     "program_token\":\"5e9483eb-8103-4e16-9794-2106111b2eca\",\"memo\":\"" EVENT "\"}"},
    {"lithic", "cancel_odd_card", "PATCH", "/v1/cards/a%2Fb%3Fc%23d%26e%20%252F%22%7Bcard%7D", JSON,
     "{\"state\":\"CLOSED\"}"},
    /* ---- marqeta ---- */
    {"marqeta", "create_new", "POST", "/cards", JSON,
     "{\"token\":\"" EVENT "\",\"user_token\":\"user-42\",\"card_product_token\":\"virtual-debit\",\"metadata\":{"
     "\"memo\":\"For the trip\"}}"},
    {"marqeta", "create_reissue", "POST", "/cards", JSON,
     "{\"token\":\"" EVENT "\",\"user_token\":\"user-42\",\"card_product_token\":\"virtual-debit\",\"metadata\":{"
     "\"memo\":\"For the trip\"}}"},
    {"marqeta", "lookup", "GET", "/cards/" EVENT, "", ""},
    {"marqeta", "activate", "POST", "/cardtransitions", JSON,
     "{\"token\":\"act-0199a4b10c3d7e5f8a9b0c1d2e3f4a5b\",\"card_token\":\"" EVENT
     "\",\"channel\":\"API\",\"state\":\"ACTIVE\",\"reason_code\":\"00\"}"},
    {"marqeta", "reveal", "GET", "/cards/" EVENT "/showpan", "", ""},
    {"marqeta", "cancel", "POST", "/cardtransitions", JSON,
     "{\"token\":\"end-0199a4b10c3d7e5f8a9b0c1d2e3f4a5b\",\"card_token\":\"" EVENT
     "\",\"channel\":\"API\",\"state\":\"TERMINATED\",\"reason_code\":\"01\"}"},
    {"marqeta", "retire", "POST", "/cardtransitions", JSON,
     "{\"token\":\"old-0199a4b10c3d7e5f8a9b0c1d2e3f4a5b\",\"card_token\":\"0198a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5a\","
     "\"channel\":\"API\",\"state\":\"TERMINATED\",\"reason_code\":\"01\"}"},
    {"marqeta", "retrieve", "GET", "/cards/" EVENT, "", ""},
    {"marqeta", "freeze", "POST", "/cardtransitions", JSON,
     "{\"token\":\"frz-0199a4b10c3d7e5f8a9b0c1d2e3f4a5b\",\"card_token\":\"" EVENT
     "\",\"channel\":\"API\",\"state\":\"SUSPENDED\",\"reason_code\":\"01\"}"},
    {"marqeta", "create_plain", "POST", "/cards", JSON,
     "{\"token\":\"" EVENT "\",\"user_token\":\"user-42\",\"card_product_token\":\"virtual-debit\"}"},
    {"marqeta", "create_empty_memo", "POST", "/cards", JSON,
     "{\"token\":\"" EVENT "\",\"user_token\":\"user-42\",\"card_product_token\":\"virtual-debit\"}"},
    {"marqeta", "create_odd_memo", "POST", "/cards", JSON,
     "{\"token\":\"" EVENT "\",\"user_token\":\"user-42\",\"card_product_token\":\"virtual-debit\",\"metadata\":{"
     "\"memo\":\"\\\"a\\\"\\\\/ & b=c [d] %41+\xc3\xa9\xe2\x82\xac\xf0\x9f\x92\xb3"
     "\"}}"},
    {"marqeta", "cancel_odd_card", "POST", "/cardtransitions", JSON,
     "{\"token\":\"end-0199a4b10c3d7e5f8a9b0c1d2e3f4a5b\",\"card_token\":\"a/b?c#d&e "
     "%2F\\\"{card}\",\"channel\":\"API\",\"state\":\"TERMINATED\",\"reason_code\":\"01\"}"},
    /* ---- adyen ---- */
    {"adyen", "create_new", "POST", "/paymentInstruments", KEY("") JSON,
     "{\"type\":\"card\",\"balanceAccountId\":\"BA3227C223222B5CTBLR8BWJB\",\"issuingCountryCode\":\"NL\","
     "\"reference\":\"" EVENT
     "\",\"description\":\"For the trip\",\"status\":\"active\",\"card\":{\"cardholderName\":\"Simon "
     "Hopper\",\"brand\":\"visa\",\"brandVariant\":\"visadebit\",\"formFactor\":\"virtual\",\"authentication\":{"
     "\"phone\":{\"number\":\"+31612345678\",\"type\":\"mobile\"}}}}"},
    {"adyen", "create_reissue", "POST", "/paymentInstruments", KEY("") JSON,
     "{\"type\":\"card\",\"balanceAccountId\":\"BA3227C223222B5CTBLR8BWJB\",\"issuingCountryCode\":\"NL\","
     "\"reference\":\"" EVENT
     "\",\"description\":\"For the trip\",\"status\":\"active\",\"card\":{\"cardholderName\":\"Simon "
     "Hopper\",\"brand\":\"visa\",\"brandVariant\":\"visadebit\",\"formFactor\":\"virtual\",\"authentication\":{"
     "\"phone\":{\"number\":\"+31612345678\",\"type\":\"mobile\"}}}}"},
    {"adyen", "lookup", "GET", "/balanceAccounts/BA3227C223222B5CTBLR8BWJB/paymentInstruments?limit=50", "", ""},
    {"adyen", "lookup_next", "GET", "/balanceAccounts/BA3227C223222B5CTBLR8BWJB/paymentInstruments?limit=50&offset=50",
     "", ""},
    {"adyen", "activate", "PATCH", "/paymentInstruments/PI3227C223222B5BPCMFXD2XG", JSON, "{\"status\":\"active\"}"},
    {"adyen", "reveal", "GET", "/paymentInstruments/PI3227C223222B5BPCMFXD2XG/reveal", "", ""},
    {"adyen", "cancel", "PATCH", "/paymentInstruments/PI3227C223222B5BPCMFXD2XG", JSON,
     "{\"status\":\"closed\",\"statusReason\":\"other\",\"statusComment\":\"closed by issuing\"}"},
    {"adyen", "retire", "PATCH", "/paymentInstruments/PI3227C223222B5BPCMFXD2XA", JSON,
     "{\"status\":\"closed\",\"statusReason\":\"lost\",\"statusComment\":\"closed by issuing\"}"},
    {"adyen", "retrieve", "GET", "/paymentInstruments/PI3227C223222B5BPCMFXD2XG", "", ""},
    {"adyen", "freeze", "PATCH", "/paymentInstruments/PI3227C223222B5BPCMFXD2XG", JSON, "{\"status\":\"suspended\"}"},
    {"adyen", "create_plain", "POST", "/paymentInstruments", KEY("") JSON,
     "{\"type\":\"card\",\"balanceAccountId\":\"BA3227C223222B5CTBLR8BWJB\",\"issuingCountryCode\":\"NL\","
     "\"reference\":\"" EVENT "\",\"status\":\"active\",\"card\":{\"cardholderName\":\"Simon "
     "Hopper\",\"brand\":\"visa\",\"brandVariant\":\"visadebit\",\"formFactor\":\"virtual\"}}"},
    {"adyen", "create_empty_memo", "POST", "/paymentInstruments", KEY("") JSON,
     "{\"type\":\"card\",\"balanceAccountId\":\"BA3227C223222B5CTBLR8BWJB\",\"issuingCountryCode\":\"NL\","
     "\"reference\":\"" EVENT "\",\"status\":\"active\",\"card\":{\"cardholderName\":\"Simon "
     "Hopper\",\"brand\":\"visa\",\"brandVariant\":\"visadebit\",\"formFactor\":\"virtual\","
     "\"authentication\":{\"phone\":{\"number\":\"+31612345678\",\"type\":\"mobile\"}}}}"},
    {"adyen", "create_odd_memo", "POST", "/paymentInstruments", KEY("") JSON,
     "{\"type\":\"card\",\"balanceAccountId\":\"BA3227C223222B5CTBLR8BWJB\",\"issuingCountryCode\":\"NL\","
     "\"reference\":\"" EVENT "\",\"description\":\"\\\"a\\\"\\\\/ & b=c [d] %41+\xc3\xa9\xe2\x82\xac\xf0\x9f\x92\xb3"
     "\",\"status\":\"active\",\"card\":{\"cardholderName\":\"Simon "
     "Hopper\",\"brand\":\"visa\",\"brandVariant\":\"visadebit\",\"formFactor\":\"virtual\",\"authentication\":{"
     "\"phone\":{\"number\":\"+31612345678\",\"type\":\"mobile\"}}}}"},
    {"adyen", "cancel_odd_card", "PATCH", "/paymentInstruments/a%2Fb%3Fc%23d%26e%20%252F%22%7Bcard%7D", JSON,
     "{\"status\":\"closed\",\"statusReason\":\"other\",\"statusComment\":\"closed by issuing\"}"},
    /* ---- increase ---- */
    {"increase", "create_new", "POST", "/cards", KEY("") JSON,
     "{\"account_id\":\"account_in71c4amph0vgo2qllky\",\"entity_id\":\"entity_n8y8tnk2p9339ti393yi\","
     "\"description\":\"For the trip\"}"},
    {"increase", "create_reissue", "POST", "/cards", KEY("") JSON,
     "{\"account_id\":\"account_in71c4amph0vgo2qllky\",\"entity_id\":\"entity_n8y8tnk2p9339ti393yi\","
     "\"description\":\"For the trip\"}"},
    {"increase", "lookup", "GET", "/cards?idempotency_key=" EVENT, "", ""},
    {"increase", "lookup_next", "GET", "/cards?idempotency_key=" EVENT "&cursor=v57w5d%2B%3D", "", ""},
    {"increase", "reveal", "GET", "/cards/card_oubs0hwk5rn6knuecxg2/details", "", ""},
    {"increase", "cancel", "PATCH", "/cards/card_oubs0hwk5rn6knuecxg2", JSON, "{\"status\":\"canceled\"}"},
    {"increase", "retire", "PATCH", "/cards/card_oubs0hwk5rn6knuecxg1", JSON, "{\"status\":\"canceled\"}"},
    {"increase", "retrieve", "GET", "/cards/card_oubs0hwk5rn6knuecxg2", "", ""},
    {"increase", "freeze", "PATCH", "/cards/card_oubs0hwk5rn6knuecxg2", JSON, "{\"status\":\"disabled\"}"},
    {"increase", "create_plain", "POST", "/cards", KEY("") JSON, "{\"account_id\":\"account_in71c4amph0vgo2qllky\"}"},
    {"increase", "create_empty_memo", "POST", "/cards", KEY("") JSON,
     "{\"account_id\":\"account_in71c4amph0vgo2qllky\",\"entity_id\":\"entity_n8y8tnk2p9339ti393yi\"}"},
    {"increase", "create_odd_memo", "POST", "/cards", KEY("") JSON,
     "{\"account_id\":\"account_in71c4amph0vgo2qllky\",\"entity_id\":\"entity_n8y8tnk2p9339ti393yi\","
     "\"description\":\"\\\"a\\\"\\\\/ & b=c [d] %41+\xc3\xa9\xe2\x82\xac\xf0\x9f\x92\xb3\"}"},
    {"increase", "cancel_odd_card", "PATCH", "/cards/a%2Fb%3Fc%23d%26e%20%252F%22%7Bcard%7D", JSON,
     "{\"status\":\"canceled\"}"},
};

#endif
