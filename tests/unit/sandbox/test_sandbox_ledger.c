/* The story: a test that checks "exactly one card was made" relies on the sandbox's ledger. If the ledger lost a card,
 * replayed one too many, or missed a number on its way to core-api, no test that reads it would prove anything. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/slice.h"
#include "common/lib/json/json_strict.h"
#include "sandbox/ledger.h"
#include "sandbox/ledger_report.h"
#include "sandbox/store.h"
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

static struct ledger_order order_of(const char *key, const char *body)
{
    return (struct ledger_order){
        .key = slice_of(key), .reference = slice_of(key), .user_id = SLICE("alice"), .body = slice_of(body)};
}

static enum ledger_result create(const char *key, const char *body, int64_t now_ms, uint32_t *ret_card)
{
    struct ledger_order order = order_of(key, body);
    return ledger_create(ledger, &order, now_ms, ret_card);
}

static enum ledger_result link_card(const char *request, const char *user, const char *card, const char *body)
{
    struct ledger_link_order order = {
        .request_id = slice_of(request), .user_id = slice_of(user), .card_id = slice_of(card), .body = slice_of(body)};
    return ledger_put_link(ledger, &order);
}

/* Straight from the definition: double every second digit from the right. */
static bool passes_luhn(const char *number)
{
    int sum = 0;
    size_t length = strlen(number);
    for (size_t i = 0; i < length; i++) {
        int digit = (number[length - 1 - i] - '0') * (i % 2 ? 2 : 1);
        sum += digit / 10 + digit % 10;
    }
    return sum % 10 == 0;
}

TEST(the_same_key_and_body_give_the_same_card)
{
    uint32_t first = 99, again = 98;
    ck_assert_int_eq(create("k", "body", 0, &first), LEDGER_MADE);
    ck_assert_int_eq(create("k", "body", LIFETIME_MS - 1, &again), LEDGER_SAME);
    ck_assert_uint_eq(first, again);
    ck_assert_uint_eq(ledger_cards(ledger), 1);
    ck_assert_uint_eq(ledger_card(ledger, first)->sends, 2);
    ck_assert_uint_eq(ledger_count(ledger, LEDGER_COUNT_ISSUER_EXECUTED), 1);
    ck_assert_uint_eq(ledger_count(ledger, LEDGER_COUNT_ISSUER_REPLAYED), 1);
}

TEST(the_same_key_with_another_body_makes_nothing)
{
    uint32_t card = 0, untouched = 77;
    ck_assert_int_eq(create("k", "body", 0, &card), LEDGER_MADE);
    ck_assert_int_eq(create("k", "bodY", 1, &untouched), LEDGER_MISMATCH);
    ck_assert_uint_eq(untouched, 77);
    ck_assert_uint_eq(ledger_cards(ledger), 1);
}

TEST(a_key_past_its_lifetime_makes_a_second_card_and_the_ledger_counts_it)
{
    uint32_t first = 0, second = 0, third = 0;
    ck_assert_int_eq(create("k", "body", 0, &first), LEDGER_MADE);
    ck_assert_uint_eq(ledger_references_with_two_cards(ledger), 0);
    ck_assert_int_eq(create("k", "body", LIFETIME_MS, &second), LEDGER_MADE);
    ck_assert_uint_ne(first, second);
    ck_assert_uint_eq(ledger_references_with_two_cards(ledger), 1);
    /* the key now stands for the second */
    ck_assert_int_eq(create("k", "body", LIFETIME_MS + 1, &third), LEDGER_SAME);
    ck_assert_uint_eq(third, second);
    /* a third card of the reference is still one reference */
    ck_assert_int_eq(create("k", "body", 2 * LIFETIME_MS, &third), LEDGER_MADE);
    ck_assert_uint_eq(ledger_references_with_two_cards(ledger), 1);
}

TEST(a_reference_finds_all_its_cards_whatever_their_keys)
{
    uint32_t card = 0;
    struct ledger_order order = order_of("k1", "body");
    order.reference = SLICE("r");
    ck_assert_int_eq(ledger_create(ledger, &order, 0, &card), LEDGER_MADE);
    order.key = SLICE("k2");
    ck_assert_int_eq(ledger_create(ledger, &order, 0, &card), LEDGER_MADE);
    ck_assert_int_eq(create("r2", "body", 0, &card), LEDGER_MADE);
    uint32_t at = UINT32_MAX, found = 0;
    while (ledger_next_of_reference(ledger, SLICE("r"), &at))
        found++;
    ck_assert_uint_eq(found, 2);
    at = UINT32_MAX;
    ck_assert(!ledger_next_of_reference(ledger, SLICE("k1"), &at));
}

TEST(a_reissue_marks_the_card_it_replaces_and_no_other)
{
    uint32_t old = 0, other = 0, fresh = 0;
    char id[LEDGER_CARD_ID_SIZE];
    ck_assert_int_eq(create("a", "body", 0, &old), LEDGER_MADE);
    ck_assert_int_eq(create("b", "body", 0, &other), LEDGER_MADE);
    ledger_card_id(ledger, old, id);
    struct ledger_order order = order_of("c", "body");
    order.is_reissue = true;
    order.replaces = slice_of(id);
    ck_assert_int_eq(ledger_create(ledger, &order, 0, &fresh), LEDGER_MADE);
    ck_assert_int_eq(ledger_card(ledger, old)->status, LEDGER_REPLACED);
    ck_assert_int_eq(ledger_card(ledger, other)->status, LEDGER_ACTIVE);
    ck_assert_int_eq(ledger_card(ledger, fresh)->status, LEDGER_ACTIVE);
}

TEST(a_card_is_cancelled_once)
{
    uint32_t card = 0;
    ck_assert_int_eq(create("k", "body", 0, &card), LEDGER_MADE);
    ck_assert(ledger_cancel(ledger, card, 500));
    ck_assert(!ledger_cancel(ledger, card, 600));
    enum ledger_card_status status = LEDGER_REPLACED;
    ck_assert(!ledger_status_at(ledger_card(ledger, card), -1, &status));
    ck_assert(ledger_status_at(ledger_card(ledger, card), 499, &status));
    ck_assert_int_eq(status, LEDGER_ACTIVE);
    ck_assert(ledger_status_at(ledger_card(ledger, card), 500, &status));
    ck_assert_int_eq(status, LEDGER_CANCELLED);
    ck_assert_uint_eq(ledger_count(ledger, LEDGER_COUNT_ISSUER_CANCELLED), 1);
}

TEST(card_ids_lead_back_to_their_card_and_strange_ones_to_none)
{
    uint32_t card = 0, found = 0;
    char id[LEDGER_CARD_ID_SIZE];
    for (int i = 0; i < 50; i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%d", i);
        ck_assert_int_eq(create(key, "body", 0, &card), LEDGER_MADE);
        ledger_card_id(ledger, card, id);
        ck_assert(ledger_card_of_id(ledger, slice_of(id), &found));
        ck_assert_uint_eq(found, card);
        ck_assert_uint_eq(strcspn(id, "0123456789"), strlen(id));
    }
    id[strlen(id) - 1] = 't';
    ck_assert(!ledger_card_of_id(ledger, slice_of(id), &found)); /* number 63 was never made */
    ck_assert(!ledger_card_of_id(ledger, SLICE("ic_0000000000000000"), &found));
    ck_assert(!ledger_card_of_id(ledger, SLICE("ic_"), &found));
    ck_assert(!ledger_card_of_id(ledger, SLICE(""), &found));
    ck_assert_uint_eq(found, 49);
}

TEST(numbers_pass_luhn_differ_and_come_back_with_the_same_seed)
{
    struct ledger *twin = ledger_new(7, LIFETIME_MS), *stranger = ledger_new(8, LIFETIME_MS);
    char seen[500][LEDGER_NUMBER_SIZE], number[LEDGER_NUMBER_SIZE];
    ck_assert(twin && stranger);
    for (uint32_t i = 0; i < 500; i++) {
        ledger_card_number(ledger, i, seen[i]);
        ck_assert(passes_luhn(seen[i]));
        ck_assert_uint_eq(strlen(seen[i]), 16);
        ck_assert_int_eq(strncmp(seen[i], "400000", 6), 0);
        for (uint32_t earlier = 0; earlier < i; earlier++)
            ck_assert_str_ne(seen[earlier], seen[i]);
        ledger_card_number(twin, i, number);
        ck_assert_str_eq(number, seen[i]);
        ledger_card_number(stranger, i, number);
        ck_assert_str_ne(number, seen[i]);
    }
    ledger_free(twin);
    ledger_free(stranger);
}

TEST(a_number_made_is_found_in_any_text_and_nothing_else_is)
{
    uint32_t card = 0;
    char number[LEDGER_NUMBER_SIZE], next[LEDGER_NUMBER_SIZE], text[200];
    ck_assert_int_eq(create("k", "body", 0, &card), LEDGER_MADE);
    ledger_card_number(ledger, card, number);
    ledger_card_number(ledger, card + 1, next);
    snprintf(text, sizeof(text), "{\"x\":\"%s\"}", number);
    ck_assert_uint_eq(ledger_find_leaks(ledger, slice_of(text)), 1);
    snprintf(text, sizeof(text), "%.4s %.4s-%.4s %.4s", number, number + 4, number + 8, number + 12);
    ck_assert_uint_eq(ledger_find_leaks(ledger, slice_of(text)), 1);
    snprintf(text, sizeof(text), "99%s17%s", number, number); /* inside longer runs of digits */
    ck_assert_uint_eq(ledger_find_leaks(ledger, slice_of(text)), 2);
    ck_assert_uint_eq(ledger_leaks(ledger), 4);
    ck_assert_uint_eq(ledger_find_leaks(ledger, slice_of(next)), 0); /* not made yet */
    ck_assert_uint_eq(
        ledger_find_leaks(ledger, SLICE("4000001234567899 4111111111111111 40000000-0000-7000-8000-000000000000")), 0);
    snprintf(text, sizeof(text), "%.15s", number);
    ck_assert_uint_eq(ledger_find_leaks(ledger, slice_of(text)), 0);
    snprintf(text, sizeof(text), "%.8s,%.8s", number, number + 8);
    ck_assert_uint_eq(ledger_find_leaks(ledger, slice_of(text)), 0);
    ck_assert_uint_eq(ledger_leaks(ledger), 4);
}

TEST(a_link_is_stored_once_however_often_it_is_sent)
{
    ck_assert_int_eq(link_card("r1", "alice", "c1", "body"), LEDGER_MADE);
    ck_assert_int_eq(link_card("r1", "alice", "c1", "body"), LEDGER_SAME);
    ck_assert_int_eq(link_card("r1", "alice", "c1", "other"), LEDGER_MISMATCH);
    ck_assert_int_eq(link_card("r1", "bob", "c1", "body"), LEDGER_MISMATCH);
    ck_assert_uint_eq(ledger_links(ledger), 1);
    ck_assert_uint_eq(ledger_link(ledger, 0)->count, 2);
    ck_assert_str_eq(ledger_link(ledger, 0)->user_id, "alice");
}

static enum ledger_result unlink_card(const char *request, const char *user, const char *card)
{
    struct ledger_link_order order = {
        .request_id = slice_of(request), .user_id = slice_of(user), .card_id = slice_of(card)};
    return ledger_put_unlink(ledger, &order);
}

TEST(a_link_that_was_taken_back_never_comes_again)
{
    ck_assert_int_eq(link_card("r1", "alice", "c1", "body"), LEDGER_MADE);
    ck_assert_int_eq(unlink_card("r1", "bob", "c1"), LEDGER_MISMATCH);
    ck_assert_uint_eq(ledger_live_links(ledger), 1);
    ck_assert_int_eq(unlink_card("r1", "alice", "c1"), LEDGER_MADE);
    ck_assert_int_eq(unlink_card("r1", "alice", "c1"), LEDGER_SAME);
    ck_assert_uint_eq(ledger_live_links(ledger), 0);
    ck_assert_uint_eq(ledger_unlinks(ledger), 1);
    ck_assert_uint_eq(ledger_unlink(ledger, 0)->count, 2);
    ck_assert_int_eq(link_card("r1", "alice", "c1", "body"), LEDGER_UNLINKED);
    ck_assert_int_eq(link_card("r1", "alice", "c2", "body"), LEDGER_UNLINKED);
    ck_assert_int_eq(link_card("r2", "alice", "c1", "body"), LEDGER_UNLINKED);
    ck_assert_int_eq(link_card("r2", "alice", "c2", "body"), LEDGER_MADE);
    ck_assert_uint_eq(ledger_live_links(ledger), 1);
    ck_assert_uint_eq(ledger_count(ledger, LEDGER_COUNT_CORE_LINK_AFTER_UNLINK), 3);
}

TEST(an_unlink_that_comes_before_its_link_is_remembered)
{
    ck_assert_int_eq(unlink_card("r1", "alice", "c1"), LEDGER_ABSENT);
    ck_assert_int_eq(unlink_card("r1", "alice", "c1"), LEDGER_ABSENT);
    ck_assert(!ledger_unlink(ledger, 0)->took_link);
    ck_assert_int_eq(link_card("r1", "alice", "c1", "body"), LEDGER_UNLINKED);
    ck_assert_uint_eq(ledger_links(ledger), 0);
}

TEST(a_stored_refusal_answers_its_key_until_the_key_is_forgotten)
{
    uint32_t card = 0;
    ck_assert_int_eq(ledger_refuse(ledger, SLICE("k"), SLICE("no_more"), 0), LEDGER_REFUSED);
    ck_assert_int_eq(create("k", "body", LIFETIME_MS - 1, &card), LEDGER_REFUSED);
    ck_assert_str_eq(ledger_refusal(ledger, SLICE("k"), LIFETIME_MS - 1), "no_more");
    ck_assert_ptr_null(ledger_refusal(ledger, SLICE("l"), 0));
    ck_assert_int_eq(create("k", "body", LIFETIME_MS, &card), LEDGER_MADE);
    ck_assert_int_eq(ledger_refuse(ledger, SLICE("k"), SLICE("no_more"), LIFETIME_MS + 1), LEDGER_SAME);
    ck_assert_int_eq(create("k", "body", LIFETIME_MS + 2, &card), LEDGER_SAME);
}

TEST(late_executions_are_outstanding_until_they_are_done_and_the_report_shows_them)
{
    struct buf out;
    buf_init(&out, 1 << 20);
    ledger_late_begun(ledger);
    ledger_late_begun(ledger);
    ledger_late_begun(ledger);
    ledger_late_ended(ledger, "create", SLICE("r\"1"), SLICE("alice"), LEDGER_SAME);
    ledger_late_ended(ledger, NULL, SLICE(""), SLICE(""), LEDGER_ABSENT);
    ck_assert_uint_eq(ledger_late_outstanding(ledger), 1);
    ck_assert_uint_eq(ledger_lates(ledger), 1);
    ck_assert(ledger_report(ledger, &(struct ledger_range){.limit = 100}, &out));
    ck_assert(json_strict_check(out.bytes, out.length, NULL));
    ck_assert_ptr_nonnull(
        strstr(out.bytes,
               "\"late\":[{\"call\":\"create\",\"reference\":\"r\\\"1\",\"user_id\":\"alice\",\"result\":\"same\"}]"));
    ck_assert_ptr_nonnull(strstr(out.bytes, "\"late_outstanding\":1"));
    buf_done(&out);
}

TEST(a_card_linked_by_two_requests_is_counted)
{
    ck_assert_int_eq(link_card("r1", "alice", "c1", "body"), LEDGER_MADE);
    ck_assert_int_eq(link_card("r2", "alice", "c2", "body"), LEDGER_MADE);
    ck_assert_uint_eq(ledger_cards_linked_twice(ledger), 0);
    ck_assert_int_eq(link_card("r3", "alice", "c1", "body"), LEDGER_MADE);
    ck_assert_int_eq(link_card("r4", "alice", "c1", "body"), LEDGER_MADE);
    ck_assert_uint_eq(ledger_cards_linked_twice(ledger), 1);
}

TEST(a_reset_forgets_everything_but_never_gives_a_number_twice)
{
    uint32_t card = 0;
    char before[LEDGER_NUMBER_SIZE], after[LEDGER_NUMBER_SIZE], id[LEDGER_CARD_ID_SIZE];
    ck_assert_int_eq(create("k", "body", 0, &card), LEDGER_MADE);
    ck_assert_int_eq(link_card("k", "alice", "c", "body"), LEDGER_MADE);
    ledger_card_number(ledger, card, before);
    ledger_card_id(ledger, card, id);
    ck_assert(ledger_reset(ledger));
    ck_assert_uint_eq(ledger_cards(ledger), 0);
    ck_assert_uint_eq(ledger_links(ledger), 0);
    ck_assert_uint_eq(ledger_count(ledger, LEDGER_COUNT_ISSUER_EXECUTED), 0);
    ck_assert(!ledger_card_of_id(ledger, slice_of(id), &card));
    ck_assert_int_eq(create("k", "other body", 1, &card), LEDGER_MADE);
    ledger_card_number(ledger, card, after);
    ck_assert_str_ne(before, after);
    ck_assert_uint_eq(ledger_find_leaks(ledger, slice_of(before)), 1);
}

TEST(a_hundred_thousand_keys_are_all_found_again_while_the_index_grows)
{
    uint32_t card = 0;
    char key[40];
    for (uint32_t i = 0; i < 100000; i++) {
        snprintf(key, sizeof(key), "019a0000-0000-7000-8000-%012u", i);
        ck_assert_int_eq(create(key, "body", 0, &card), LEDGER_MADE);
        ck_assert_uint_eq(card, i);
    }
    for (uint32_t i = 0; i < 100000; i++) {
        snprintf(key, sizeof(key), "019a0000-0000-7000-8000-%012u", i);
        ck_assert_int_eq(create(key, "body", 0, &card), LEDGER_SAME);
        ck_assert_uint_eq(card, i);
    }
    ck_assert_uint_eq(ledger_references_with_two_cards(ledger), 0);
}

TEST(the_last_index_entry_can_be_taken_back)
{
    struct store_index index;
    ck_assert(store_index_init(&index));
    for (uint32_t i = 0; i < 20000; i++)
        ck_assert(store_index_add(&index, i * 2654435761u));
    store_index_drop_last(&index);
    ck_assert_uint_eq(store_index_first(&index, 19999u * 2654435761u), STORE_NONE);
    ck_assert_uint_eq(store_index_first(&index, 19998u * 2654435761u), 19998);
    ck_assert(store_index_add(&index, 5u * 2654435761u));
    uint32_t first = store_index_first(&index, 5u * 2654435761u), second = store_index_next(&index, first);
    ck_assert_uint_eq(first + second, 5 + 19999);
    ck_assert_uint_eq(store_index_next(&index, second), STORE_NONE);
    store_index_done(&index);
}

TEST(the_report_is_json_filters_and_has_no_numbers)
{
    uint32_t card = 0;
    char number[LEDGER_NUMBER_SIZE];
    struct buf out;
    ck_assert_int_eq(create("k\"1", "body", 0, &card), LEDGER_MADE);
    ck_assert_int_eq(create("k2", "body", 0, &card), LEDGER_MADE);
    ck_assert_int_eq(link_card("k2", "alice", "c", "body"), LEDGER_MADE);
    ledger_card_number(ledger, card, number);
    buf_init(&out, 1 << 20);
    ck_assert(ledger_report(ledger, &(struct ledger_range){.limit = 100}, &out));
    ck_assert(json_strict_check(out.bytes, out.length, NULL));
    ck_assert_ptr_nonnull(strstr(out.bytes, "\"k\\\"1\""));
    ck_assert_ptr_null(strstr(out.bytes, number));
    ck_assert_ptr_nonnull(strstr(out.bytes, "\"truncated\":false"));
    buf_reset(&out);
    ck_assert(ledger_report(ledger, &(struct ledger_range){.limit = 100, .reference = "k2"}, &out));
    ck_assert_ptr_null(strstr(out.bytes, "k\\\"1"));
    ck_assert_ptr_nonnull(strstr(out.bytes, "\"key\":\"k2\""));
    ck_assert_ptr_nonnull(strstr(out.bytes, "\"request_id\":\"k2\""));
    buf_reset(&out);
    ck_assert(ledger_report(ledger, &(struct ledger_range){.limit = 1}, &out));
    ck_assert_ptr_nonnull(strstr(out.bytes, "\"truncated\":true"));
    buf_reset(&out);
    ck_assert(ledger_report_summary(ledger, &out));
    ck_assert(json_strict_check(out.bytes, out.length, NULL));
    ck_assert_ptr_nonnull(
        strstr(out.bytes, "\"cards\":2,\"references_with_two_cards\":0,\"links\":1,\"cards_linked_twice\":0"));
    buf_reset(&out);
    ck_assert(ledger_report_numbers(ledger, &(struct ledger_range){.limit = 100}, &out));
    ck_assert_ptr_nonnull(strstr(out.bytes, number));
    buf_done(&out);
}

TESTS_BETWEEN(sandbox_ledger, set_up, tear_down)
