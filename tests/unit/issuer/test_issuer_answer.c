/* The story: a card is linked to a user by what an issuer's answer says. A number that is masked, a reference that is
 * another's, an id that no path can name, a state that nobody foresaw: each is read as the vendors write it, or
 * makes the answer unreadable. */
#include <stdlib.h>

#include "tests/support/suite.h"
#include "vendor_answers.h"

static struct http_call call;
static struct reading reading;

static void set_up(void)
{
    http_call_init(&call, 64 * 1024);
    memset(&reading, 0, sizeof(reading));
}

static void tear_down(void)
{
    issuer_lookup_forget(&reading.lookup);
    http_call_done(&call);
}

static const struct vendor *vendor_of(const struct issuer_profile *profile)
{
    const struct vendor *vendor = vendors;
    while (vendor->profile != profile)
        vendor++;
    return vendor;
}

/* `text` with the first `from` in it replaced. */
static void answer_with(int status, const char *text, const char *from, const char *to)
{
    char changed[2048];
    const char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "%s is not in %s", from, text);
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    set_answer(&call, status, changed);
}

/* ---- cards ---- */

TEST(each_vendors_card_is_read_whole)
{
    static const struct {
        const struct issuer_profile *profile;
        const char *id, *number;
        int month, year;
        enum issuer_card_state state;
    } cards[] = {
        {&issuer_generic, "ic_1", "4111111111111111", 3, 2031, ISSUER_CARD_ACTIVE},
        {&issuer_stripe, "ic_1", "", 8, 2031, ISSUER_CARD_ACTIVE},
        {&issuer_lithic, "7ef7d65c", "4111111111111111", 6, 2031, ISSUER_CARD_ACTIVE},
        {&issuer_marqeta, EVENT, "", 6, 2031, ISSUER_CARD_INACTIVE}, /* masked in a create, so not read */
        {&issuer_adyen, "PI1", "", 1, 2031, ISSUER_CARD_ACTIVE},
        {&issuer_increase, "card_oubs", "", 11, 2031, ISSUER_CARD_ACTIVE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cards); i++)
        for (int status = 200; status <= 201; status++) {
            set_answer(&call, status, vendor_of(cards[i].profile)->card);
            read_answer(cards[i].profile, ISSUER_CREATE, &call, &reading);
            ck_assert_msg(reading.outcome.kind == OUTCOME_EXECUTED, "%s", reading.outcome.detail);
            ck_assert_str_eq(reading.card.id, cards[i].id);
            ck_assert_str_eq(reading.card.number, cards[i].number);
            ck_assert_uint_eq(reading.card.number_length, strlen(cards[i].number));
            ck_assert_str_eq(reading.card.last4, "1111");
            ck_assert_int_eq(reading.card.exp_month, cards[i].month);
            ck_assert_int_eq(reading.card.exp_year, cards[i].year);
            ck_assert_int_eq(reading.card.state, cards[i].state);
        }
}

struct change {
    const struct issuer_profile *profile;
    const char *from, *to;
};

TEST(what_a_vendor_may_write_differently_is_read_all_the_same)
{
    static const struct change changes[] = {
        {&issuer_stripe, "\"exp_year\":2031", "\"exp_year\":\"2031\""},
        {&issuer_stripe, "\"exp_month\":8", "\"exp_month\":\"08\""},
        {&issuer_stripe, EVENT, "0199A4B1-0C3D-7E5F-8A9B-0C1D2E3F4A5B"},
        {&issuer_stripe, "\"status\":\"active\",\"type\"", "\"status\":\"inactive\",\"type\""},
        {&issuer_stripe, "\"status\":\"active\",\"type\"", "\"status\":\"canceled\",\"type\""},
        {&issuer_lithic, ",\"pan\":\"4111111111111111\"", ""}, /* not for everybody */
        {&issuer_lithic, "\"pan\":\"4111111111111111\"", "\"pan\":null"},
        {&issuer_lithic, "\"exp_month\":\"06\"", "\"exp_month\":6"},
        {&issuer_lithic, "\"exp_month\":\"06\"", "\"exp_month\":6.0"},
        {&issuer_stripe, "\"exp_year\":2031", "\"exp_year\":2.031e3"},
        {&issuer_lithic, "OPEN", "PAUSED"},
        {&issuer_lithic, "OPEN", "CLOSED"},
        {&issuer_marqeta, "\"pan\":\"411111______1111\"", "\"pan\":\"4111111111111111\""}, /* and not read */
        {&issuer_marqeta, "UNACTIVATED", "SUSPENDED"},
        {&issuer_adyen, "************1111", "4111111111111111"},
        {&issuer_adyen, "************1111", "411111******1111 (masked, and longer than any number)"},
        {&issuer_adyen, "\"number\":\"************1111\"", "\"number\":null"},
        {&issuer_adyen, "\"month\":\"01\"", "\"month\":1"},
        {&issuer_adyen, "\"month\":\"01\"", "\"month\":\"1\""},
        {&issuer_increase, "\"active\"", "\"disabled\""},
        {&issuer_increase, "\"active\"", "\"canceled\""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
        answer_with(201, vendor_of(changes[i].profile)->card, changes[i].from, changes[i].to);
        read_answer(changes[i].profile, ISSUER_CREATE, &call, &reading);
        ck_assert_msg(reading.outcome.kind == OUTCOME_EXECUTED, "%s: %s", changes[i].to, reading.outcome.detail);
        ck_assert_str_eq(reading.card.last4, "1111");
    }
}

/* Story: the issuer echoes a holder's name that some front end had cut in the middle of a character. */
TEST(what_nobody_reads_makes_no_vendors_answer_unreadable)
{
    static const char odd[] = "{\"holder_name\":\"Ana \\ud83d\",\"note\":\"a\\u0000b\",\"serial\":18446744073709551616,"
                              "\"balance\":1e400,\"tag\":1,\"tag\":[[[[[[[[[[[[[[[[[[[[{}]]]]]]]]]]]]]]]]]]]],";
    char list[4096];
    for (size_t v = 0; v < ARRAY_SIZE(vendors); v++) {
        answer_with(201, vendors[v].card, "{", odd);
        read_answer(vendors[v].profile, ISSUER_CREATE, &call, &reading);
        ck_assert_msg(reading.outcome.kind == OUTCOME_EXECUTED, "%s", reading.outcome.detail);
        ck_assert_str_eq(reading.card.last4, "1111");
        if (vendors[v].profile->list.paging == PAGING_ONE_CARD)
            continue;
        snprintf(list, sizeof(list), "%s%s%s", vendors[v].list_start, vendors[v].card, vendors[v].list_end);
        answer_with(200, list, "{", odd);
        memset(&reading.lookup, 0, sizeof(reading.lookup));
        read_answer(vendors[v].profile, ISSUER_LOOKUP, &call, &reading);
        ck_assert_msg(reading.outcome.kind == OUTCOME_EXECUTED, "%s", reading.outcome.detail);
        ck_assert_int_eq(reading.lookup.live, 1);
    }
}

TEST(a_card_that_cannot_be_believed_is_unknown_and_leaves_nothing_behind)
{
    static const struct change changes[] = {
        /* another's, or nobody's */
        {&issuer_stripe, EVENT, OTHER_EVENT},
        {&issuer_stripe, "\"issuing_reference\"", "\"reference\""},
        {&issuer_stripe, "\"metadata\":{\"issuing", "\"metadatum\":{\"issuing"},
        {&issuer_stripe, "\"metadata\":{\"issuing_reference\":\"" EVENT "\",\"memo\":\"m\"}", "\"metadata\":null"},
        {&issuer_stripe, "\"metadata\":{\"issuing_reference\":\"" EVENT "\",\"memo\":\"m\"}", "\"metadata\":\"x\""},
        {&issuer_lithic, EVENT, "x" EVENT}, /* the look-up by memo finds parts of texts */
        {&issuer_marqeta, EVENT, OTHER_EVENT},
        {&issuer_adyen, "\"" EVENT "\"", "7"},
        {&issuer_increase, EVENT, OTHER_EVENT},
        {&issuer_increase, "\"" EVENT "\"", "null"},
        /* id */
        {&issuer_stripe, "\"ic_1\"", "\"..\""},
        {&issuer_stripe, "\"ic_1\"", "\".\""},
        {&issuer_stripe, "\"ic_1\"", "\"\""},
        {&issuer_stripe, "\"ic_1\"", "1"},
        {&issuer_stripe, "\"ic_1\"", "null"},
        {&issuer_stripe, "\"ic_1\"", "\"a b\""},
        {&issuer_lithic, "7ef7d65c", "a-4111111111111111-b"}, /* holds the number */
        /* expiry */
        {&issuer_stripe, "\"exp_month\":8", "\"exp_month\":13"},
        {&issuer_stripe, "\"exp_month\":8", "\"exp_month\":\"8a\""},
        {&issuer_stripe, "\"exp_month\":8", "\"exp_month\":\"00008\""},
        {&issuer_stripe, "\"exp_month\":8", "\"exp_month\":\"\""},
        {&issuer_stripe, "\"exp_year\":2031", "\"exp_year\":31"},
        {&issuer_stripe, "\"exp_year\":2031", "\"exp_year\":\"31\""},
        {&issuer_stripe, "\"exp_year\":2031", "\"exp_year\":[2031]"},
        {&issuer_lithic, "\"exp_year\":\"2031\"", "\"exp_year\":\"2025\""},
        {&issuer_lithic, "\"exp_year\":\"2031\"", "\"exp_year\":\"+2031\""},
        {&issuer_marqeta, "0631", "1331"},
        {&issuer_marqeta, "0631", "0031"},
        {&issuer_marqeta, "0631", "0625"},
        {&issuer_marqeta, "0631", "631"},
        {&issuer_marqeta, "0631", "06/31"},
        {&issuer_marqeta, "\"0631\"", "631"},
        {&issuer_marqeta, "\"0631\"", "null"},
        {&issuer_adyen, "\"expiration\":{\"month\":\"01\",\"year\":\"2031\"}", "\"expiration\":\"01/31\""},
        /* state */
        {&issuer_stripe, "\"status\":\"active\",\"type\"", "\"status\":\"frozen\",\"type\""},
        {&issuer_stripe, "\"status\":\"active\",\"type\"", "\"status\":\"Active\",\"type\""},
        {&issuer_stripe, "\"status\":\"active\",\"type\"", "\"status\":true,\"type\""},
        {&issuer_stripe, "\"status\":\"active\",\"type\"", "\"type\""},
        {&issuer_marqeta, "UNACTIVATED", "UNSUPPORTED"},
        {&issuer_lithic, "\"OPEN\"", "\"\""},
        {&issuer_increase, "\"active\"", "\"expired\""},
        /* number and last digits */
        {&issuer_lithic, "\"last_four\":\"1111\"", "\"last_four\":\"1112\""},
        {&issuer_lithic, "\"4111111111111111\"", "\"411111******1111\""}, /* Lithic does not mask */
        {&issuer_lithic, "\"4111111111111111\"", "4111111111111111"},
        {&issuer_lithic, "\"4111111111111111\"", "\"41111\""},
        {&issuer_adyen, "\"************1111\"", "\"4111111111112222\""},
        {&issuer_adyen, "\"************1111\"", "{\"a\":1}"},
        {&issuer_adyen, "\"************1111\"", "\"11111111111111111111\""},
        {&issuer_stripe, "\"last4\":\"1111\"", "\"last4\":1111"},
        {&issuer_stripe, "\"last4\":\"1111\"", "\"last4\":\"111x\""},
        {&issuer_stripe, "\"last4\":\"1111\"", "\"last4\":null"},
        {&issuer_adyen, "\"card\":{", "\"cards\":{"},
        {&issuer_adyen, "\"PI1\"}", "\"PI1\"}}"},
        /* twice, or no text that can be meant */
        {&issuer_stripe, "\"last4\":\"1111\"", "\"last4\":\"1111\",\"last4\":\"1111\""},
        {&issuer_stripe, "\"exp_month\":8", "\"exp_month\":8,\"exp_\\u006donth\":9"},
        {&issuer_stripe, "\"metadata\":{\"issuing_reference\"", "\"metadata\":{},\"metadata\":{\"issuing_reference\""},
        {&issuer_lithic, "\"pan\":", "\"pan\":null,\"pan\":"},
        {&issuer_adyen, "\"card\":{", "\"card\":{},\"card\":{"},
        {&issuer_stripe, "\"ic_1\"", "\"ic_1\\ud83d\""},
        {&issuer_stripe, "\"ic_1\"", "\"ic_1\\u0000\""},
        {&issuer_stripe, "\"exp_month\":8", "\"exp_month\":8e400"},
    };
    static const struct issuer_card nothing;
    for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
        answer_with(200, vendor_of(changes[i].profile)->card, changes[i].from, changes[i].to);
        read_answer(changes[i].profile, ISSUER_CREATE, &call, &reading);
        ck_assert_msg(reading.outcome.kind == OUTCOME_UNKNOWN, "%s -> %s", changes[i].from, changes[i].to);
        ck_assert_int_eq(reading.outcome.advice, ADVICE_RETRY);
        ck_assert_str_eq(reading.outcome.code, "issuer_unreadable");
        ck_assert_mem_eq(&reading.card, &nothing, sizeof(nothing));
        ck_assert_ptr_null(strstr(reading.outcome.detail, "4111"));
    }
}

/* ---- activate, cancel, retire ---- */

TEST(a_change_is_done_when_the_answer_says_so_and_not_when_it_says_something_else)
{
    static const enum issuer_call calls[3] = {ISSUER_ACTIVATE, ISSUER_CANCEL, ISSUER_RETIRE};
    static const char *const others[] = {"{}",
                                         "",
                                         "[]",
                                         "null",
                                         "{\"status\":\"paused\",\"state\":\"PAUSED\"}",
                                         "{\"status\":null,\"state\":1}",
                                         "{\"status\":\"inactive\",\"state\":\"UNACTIVATED\"}"};
    for (size_t v = 0; v < ARRAY_SIZE(vendors); v++)
        for (int c = 0; c < 3; c++) {
            const struct issuer_profile *profile = vendors[v].profile;
            if (!issuer_profile_has(profile, calls[c]))
                continue;
            set_answer(&call, profile == &issuer_marqeta ? 201 : 200, vendors[v].changed[c]);
            read_answer(profile, calls[c], &call, &reading);
            ck_assert_msg(reading.outcome.kind == OUTCOME_EXECUTED, "%s: %s", profile->name, reading.outcome.detail);
            if (!profile->calls[calls[c]].answered_state)
                continue; /* generic's, whose status says it */
            for (size_t o = 0; o < ARRAY_SIZE(others); o++) {
                set_answer(&call, 200, others[o]);
                read_answer(profile, calls[c], &call, &reading);
                ck_assert_msg(reading.outcome.kind == OUTCOME_UNKNOWN, "%s: %s", profile->name, others[o]);
            }
            if (!vendors[v].changed[c == 0])
                continue;
            set_answer(&call, 200, vendors[v].changed[c == 0]); /* closed instead of active, or the other way round */
            read_answer(profile, calls[c], &call, &reading);
            ck_assert_int_eq(reading.outcome.kind, OUTCOME_UNKNOWN);
        }
}

/* ---- reveal ---- */

static void reveal(const struct issuer_profile *profile, const char *text)
{
    memset(&reading.card, 0, sizeof(reading.card));
    snprintf(reading.card.id, sizeof(reading.card.id), "ic_1");
    snprintf(reading.card.last4, sizeof(reading.card.last4), "1111");
    set_answer(&call, 200, text);
    read_answer(profile, ISSUER_REVEAL, &call, &reading);
}

TEST(a_revealed_number_is_taken_when_its_last_digits_are_those_of_the_card)
{
    static const char *const bad[] = {"",
                                      "{}",
                                      "[]",
                                      "{\"id\":\"ic_2\",\"token\":\"ic_2\"}",
                                      "{\"%s\":\"\"}",
                                      "{\"%s\":4111111111111111}",
                                      "{\"%s\":\"4111111111112222\"}",
                                      "{\"%s\":\"11111111111\"}",
                                      "{\"%s\":\"41111111111111111111\"}",
                                      "{\"%s\":\"4111111111111111\"",
                                      "{\"x\":\"4111111111111111\"}"};
    static const char *const hidden[] = {"{\"%s\":null}", "{\"%s\":\"411111______1111\"}"};
    for (size_t v = 0; v < ARRAY_SIZE(vendors); v++) {
        const struct issuer_profile *profile = vendors[v].profile;
        if (!issuer_profile_has(profile, ISSUER_REVEAL))
            continue;
        reveal(profile, vendors[v].revealed);
        ck_assert_int_eq(reading.outcome.kind, OUTCOME_EXECUTED);
        ck_assert_str_eq(reading.card.number, "4111111111111111");
        ck_assert_uint_eq(reading.card.number_length, 16);
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
            char text[256];
            const char *place = strstr(bad[i], "%s");
            snprintf(text, sizeof(text), "%.*s%s%s", place ? (int)(place - bad[i]) : 0, bad[i],
                     place ? profile->revealed_number + 1 : "", place ? place + 2 : bad[i]);
            reveal(profile, text);
            ck_assert_msg(reading.outcome.kind == OUTCOME_UNKNOWN, "%s: %s", profile->name, text);
            ck_assert_str_eq(reading.card.number, "");
            ck_assert_uint_eq(reading.card.number_length, 0);
            ck_assert_str_eq(reading.card.last4, "1111"); /* the card itself stays */
        }
        for (size_t i = 0; i < ARRAY_SIZE(hidden); i++) {
            char text[256];
            snprintf(text, sizeof(text), hidden[i], profile->revealed_number + 1);
            reveal(profile, text);
            ck_assert_msg(reading.outcome.kind == OUTCOME_EXECUTED, "%s: %s", profile->name, text);
            ck_assert_uint_eq(reading.card.number_length, 0);
        }
        reveal(profile, "{\"id\":\"ic_1\",\"token\":\"ic_1\"}"); /* our card, but Adyen's answer names none */
        ck_assert_int_eq(reading.outcome.kind, OUTCOME_EXECUTED);
    }
    reveal(&issuer_adyen, "{\"pan\":\"4111111111111111\"}");
    snprintf(reading.card.id, sizeof(reading.card.id), "x4111111111111111");
    read_answer(&issuer_adyen, ISSUER_REVEAL, &call, &reading);
    ck_assert_int_eq(reading.outcome.kind, OUTCOME_UNKNOWN); /* the id would carry the number everywhere */
}

/* ---- retrieve ---- */

TEST(the_state_that_is_retrieved_is_that_of_the_card_that_was_asked_about)
{
    for (size_t v = 0; v < ARRAY_SIZE(vendors); v++) {
        const struct issuer_profile *profile = vendors[v].profile;
        if (!issuer_profile_has(profile, ISSUER_RETRIEVE))
            continue;
        set_answer(&call, 200, vendors[v].card);
        read_answer(profile, ISSUER_RETRIEVE, &call, &reading);
        ck_assert_msg(reading.outcome.kind == OUTCOME_EXECUTED, "%s: %s", profile->name, reading.outcome.detail);
        ck_assert_int_eq(reading.state, profile == &issuer_marqeta ? ISSUER_CARD_INACTIVE : ISSUER_CARD_ACTIVE);
        answer_with(200, vendors[v].card, card_id_of(profile), "another");
        read_answer(profile, ISSUER_RETRIEVE, &call, &reading);
        ck_assert_int_eq(reading.outcome.kind, OUTCOME_UNKNOWN);
        static const char *const bad[] = {"", "{}", "[]", "{\"id\":\"ic_1\",\"status\":\"lost\"}"};
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
            set_answer(&call, 200, bad[i]);
            read_answer(profile, ISSUER_RETRIEVE, &call, &reading);
            ck_assert_int_eq(reading.outcome.kind, OUTCOME_UNKNOWN);
        }
    }
    answer_with(200, STRIPE_CARD, "\"status\":\"active\",\"type\"", "\"status\":\"canceled\",\"type\"");
    read_answer(&issuer_stripe, ISSUER_RETRIEVE, &call, &reading);
    ck_assert_int_eq(reading.state, ISSUER_CARD_GONE);
}

TESTS_BETWEEN(issuer_answer, set_up, tear_down)
