/* The story: the matrix of faults over every issuer asks the sandbox "does this key replay its 500", "how many live
 * cards has this event", "whose holder is this". A stand-in that forgets a stored answer, takes another reference's
 * card for a live one, or reads a form wrongly lets a worker pass that makes two cards at the real issuer. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/slice.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/json/json_strict.h"
#include "sandbox/dialect.h"
#include "sandbox/form.h"
#include "tests/support/suite.h"

#define LIFETIME_MS 1000

static struct ledger *ledger;

static void set_up(void)
{
    ledger = ledger_new(7, LIFETIME_MS);
    ck_assert_ptr_nonnull(ledger);
}

static void tear_down(void)
{
    ledger_free(ledger);
}

static uint32_t make(const char *reference, enum ledger_card_status status, int64_t now_ms)
{
    uint32_t card = UINT32_MAX;
    struct ledger_order order = {
        .reference = slice_of(reference), .user_id = SLICE("alice"), .holder = SLICE("h"), .status = status};
    ck_assert(ledger_make_card(ledger, &order, now_ms, &card));
    return card;
}

static void put(const char *key, uint64_t fingerprint, int status, const char *body, int64_t now_ms)
{
    struct ledger_answer answer = {
        .key = slice_of(key), .body = slice_of(body), .fingerprint = fingerprint, .status = status};
    ck_assert(ledger_key_put(ledger, &answer, now_ms));
}

TEST(a_stored_answer_lives_as_long_as_its_key_from_the_first_call_on)
{
    ck_assert_ptr_null(ledger_key_find(ledger, SLICE("k"), 0));
    put("k", 5, 0, "", 0); /* at work */
    put("k", 5, 500, "{\"error\":1}", 600);
    put("other", 6, 200, "{}", 600);
    const struct ledger_key *known = ledger_key_find(ledger, SLICE("k"), LIFETIME_MS - 1);
    ck_assert_ptr_nonnull(known);
    ck_assert_int_eq(known->status, 500);
    ck_assert_str_eq(known->body, "{\"error\":1}");
    ck_assert_uint_eq(known->fingerprint, 5);
    ck_assert_ptr_null(ledger_key_find(ledger, SLICE("k"), LIFETIME_MS));
    put("k", 9, 200, "{}", LIFETIME_MS);
    known = ledger_key_find(ledger, SLICE("k"), LIFETIME_MS + 1);
    ck_assert_ptr_nonnull(known);
    ck_assert_uint_eq(known->fingerprint, 9);
    ck_assert_ptr_nonnull(ledger_key_find(ledger, SLICE("other"), 600 + LIFETIME_MS - 1));
    ck_assert(ledger_reset(ledger));
    ck_assert_ptr_null(ledger_key_find(ledger, SLICE("k"), LIFETIME_MS + 1));
}

TEST(live_cards_are_counted_by_their_reference)
{
    uint32_t first = make("r", LEDGER_INACTIVE, 0), other = make("other", LEDGER_ACTIVE, 0);
    make("", LEDGER_ACTIVE, 0);
    make("", LEDGER_ACTIVE, 0);
    ck_assert_uint_eq(ledger_live_cards(ledger, SLICE("r")), 1);
    ck_assert_uint_eq(ledger_references_with_two_live_cards(ledger), 0);
    ck_assert_uint_eq(ledger_references_with_two_cards(ledger), 0);
    uint32_t second = make("r", LEDGER_ACTIVE, 1), third = make("r", LEDGER_ACTIVE, 1);
    ck_assert_uint_eq(ledger_live_cards(ledger, SLICE("r")), 3);
    ck_assert_uint_eq(ledger_references_with_two_live_cards(ledger), 1);
    ck_assert(ledger_set_status(ledger, first, LEDGER_ACTIVE, 2));
    ck_assert(ledger_set_status(ledger, first, LEDGER_PAUSED, 2));
    ck_assert(ledger_cancel(ledger, third, 2));
    ck_assert(ledger_cancel(ledger, other, 2));
    ck_assert_uint_eq(ledger_references_with_two_live_cards(ledger), 1);
    ck_assert(ledger_cancel(ledger, second, 3));
    ck_assert_uint_eq(ledger_references_with_two_live_cards(ledger), 0);
    ck_assert_uint_eq(ledger_references_with_two_cards(ledger), 1);
    ck_assert_uint_eq(ledger_live_cards(ledger, SLICE("r")), 1);
    make("r", LEDGER_INACTIVE, 4);
    ck_assert_uint_eq(ledger_references_with_two_live_cards(ledger), 1);
}

TEST(a_cancelled_card_changes_no_more)
{
    uint32_t card = make("r", LEDGER_INACTIVE, 10);
    ck_assert(!ledger_set_status(ledger, card, LEDGER_INACTIVE, 11));
    ck_assert(ledger_set_status(ledger, card, LEDGER_ACTIVE, 12));
    enum ledger_card_status status = LEDGER_REPLACED;
    ck_assert(ledger_status_at(ledger_card(ledger, card), 11, &status));
    ck_assert_int_eq(status, LEDGER_INACTIVE);
    ck_assert(ledger_cancel(ledger, card, 13));
    ck_assert(!ledger_set_status(ledger, card, LEDGER_ACTIVE, 14));
    ck_assert(!ledger_cancel(ledger, card, 14));
    ck_assert_int_eq(ledger_card(ledger, card)->status, LEDGER_CANCELLED);
    ck_assert_uint_eq(ledger_count(ledger, LEDGER_COUNT_ISSUER_ACTIVATED), 1);
    ck_assert_uint_eq(ledger_count(ledger, LEDGER_COUNT_ISSUER_CANCELLED), 1);
}

TEST(ids_of_every_form_lead_back_to_their_card)
{
    static const enum card_id_form forms[] = {CARD_ID_IC, CARD_ID_PI, CARD_ID_CARD, CARD_ID_UUID, CARD_ID_REFERENCE};
    uint32_t cards[3], found = 0;
    for (int i = 0; i < 3; i++) {
        char reference[8];
        snprintf(reference, sizeof(reference), "r%d", i);
        cards[i] = make(reference, LEDGER_ACTIVE, 0);
    }
    for (size_t form = 0; form < ARRAY_SIZE(forms); form++) {
        ledger_set_id_form(ledger, forms[form]);
        for (int i = 0; i < 3; i++) {
            char id[LEDGER_CARD_ID_SIZE];
            struct uuid uuid;
            ledger_card_id(ledger, cards[i], id);
            ck_assert(ledger_card_of_id(ledger, slice_of(id), &found));
            ck_assert_uint_eq(found, cards[i]);
            ck_assert(forms[form] != CARD_ID_UUID || uuid_parse(id, strlen(id), &uuid));
            id[strlen(id) - 1] = 'z';
            ck_assert(!ledger_card_of_id(ledger, slice_of(id), &found));
        }
        ck_assert(!ledger_card_of_id(ledger, SLICE(""), &found));
        ck_assert(!ledger_card_of_id(ledger, SLICE("ffffffff-ffff-4fff-afff-ffffffffffff"), &found));
        ck_assert(!ledger_card_of_id(ledger, SLICE("PIbbbbbbbbbbbbbbbbb"), &found));
    }
}

TEST(every_dialect_makes_up_the_same_holder_for_the_same_user_and_has_its_texts)
{
    static const char *const names[] = {"generic", "stripe", "lithic", "marqeta", "adyen", "increase"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const struct dialect *dialect = dialect_find(names[i]);
        ck_assert_msg(dialect != NULL, "%s", names[i]);
        ck_assert_str_eq(dialect->name, names[i]);
        ck_assert_int_eq(dialect->write_holder == NULL, i == 0);
        struct buf out;
        buf_init(&out, 1 << 16);
        struct json_writer writer = json_writer_of(&out);
        dialect->put_error(&writer, 500, "code", "a \"detail\"");
        ck_assert(json_strict_check(out.bytes, out.length, NULL));
        buf_reset(&out);
        buf_put_format(&out, "%s1234%s", dialect->last4_before, dialect->last4_after);
        ck_assert(json_strict_check(out.bytes, out.length, NULL));
        ck_assert(json_strict_check(dialect->other_reference, strlen(dialect->other_reference), NULL));
        buf_done(&out);
        if (!dialect->write_holder)
            continue;
        char holder[HOLDER_SIZE], again[HOLDER_SIZE], other[HOLDER_SIZE];
        dialect->write_holder("alice", holder);
        dialect->write_holder("alice", again);
        dialect->write_holder("bob", other);
        ck_assert_str_eq(holder, again);
        ck_assert_str_ne(holder, other);
    }
    ck_assert_ptr_null(dialect_find("Stripe"));
    ck_assert_ptr_null(dialect_find(""));
}

TEST(a_holder_keeps_its_user)
{
    struct holders *holders = holders_new();
    ck_assert_ptr_nonnull(holders);
    ck_assert_ptr_null(holders_user(holders, SLICE("h")));
    char text[32];
    for (int i = 0; i < 2000; i++) {
        snprintf(text, sizeof(text), "h%d", i);
        ck_assert(holders_put(holders, slice_of(text), slice_of(text + 1)));
    }
    ck_assert(holders_put(holders, SLICE("h7"), SLICE("somebody else")));
    for (int i = 0; i < 2000; i++) {
        snprintf(text, sizeof(text), "h%d", i);
        ck_assert_str_eq(holders_user(holders, slice_of(text)), text + 1);
    }
    ck_assert_ptr_null(holders_user(holders, SLICE("")));
    holders_free(holders);
    holders_free(NULL);
}

TEST(a_form_is_decoded_pair_by_pair)
{
    struct slice rest = SLICE("a=1+2&metadata%5Bx%20y%5D=%2B%26=&&b&c=%C3%A9"), element;
    struct form_pair pair;
    bool wrong;
    ck_assert(form_next(&rest, &pair, &wrong));
    ck_assert_str_eq(pair.name, "a");
    ck_assert_str_eq(pair.value, "1 2");
    ck_assert(form_next(&rest, &pair, &wrong));
    ck_assert_str_eq(pair.value, "+&=");
    ck_assert(form_is_element(pair.name, "metadata", &element));
    ck_assert(slice_is(element, "x y"));
    ck_assert(!form_is_element(pair.name, "meta", &element));
    ck_assert(form_next(&rest, &pair, &wrong));
    ck_assert_str_eq(pair.name, "b");
    ck_assert_str_eq(pair.value, "");
    ck_assert(form_next(&rest, &pair, &wrong));
    ck_assert_str_eq(pair.value, "\xc3\xa9");
    ck_assert(!form_next(&rest, &pair, &wrong));
    ck_assert(!wrong);
    static const char *const no_elements[] = {"metadata", "metadata[", "metadata]", "metadata[x", "x[metadata]"};
    for (size_t i = 0; i < ARRAY_SIZE(no_elements); i++)
        ck_assert(!form_is_element(no_elements[i], "metadata", &element));
    ck_assert(form_is_element("metadata[]", "metadata", &element));
    ck_assert_uint_eq(element.length, 0);
}

TEST(a_form_that_cannot_be_decoded_or_is_too_long_is_wrong)
{
    static const char *const bad[] = {"%", "a=%", "a=%4", "%zz=1", "a=%00", "a%00b=1"};
    struct form_pair pair;
    bool wrong = false;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct slice rest = slice_of(bad[i]);
        ck_assert_msg(!form_next(&rest, &pair, &wrong) && wrong, "%s", bad[i]);
    }
    char longest[4 * FORM_VALUE_SIZE];
    for (size_t length = FORM_NAME_SIZE - 2; length < sizeof(longest); length++) {
        memset(longest, 'n', length);
        struct slice rest = {.bytes = longest, .length = length};
        ck_assert_int_eq(form_next(&rest, &pair, &wrong), length < FORM_NAME_SIZE);
        longest[1] = '=';
        rest = (struct slice){.bytes = longest, .length = length};
        ck_assert_int_eq(form_next(&rest, &pair, &wrong), length - 2 < FORM_VALUE_SIZE);
    }
}

TESTS_BETWEEN(sandbox_dialects, set_up, tear_down)
