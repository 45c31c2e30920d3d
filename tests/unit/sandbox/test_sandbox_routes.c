/* The story: orders are counted against charges, and webhooks against events. A payment stand-in that charges a repeat
 * again, or forgets a charge, makes a right worker look wrong; one that hides a second charge, or a receiver that loses
 * a delivery, makes a wrong worker look right. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/lib/base/slice.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "sandbox/charges.h"
#include "sandbox/charges_file.h"
#include "sandbox/hooks.h"
#include "tests/support/suite.h"

#define LIFETIME_MS 1000

static struct charges *charges;
static struct hooks *hooks;
static struct buf out;

static void set_up(void)
{
    charges = charges_new(LIFETIME_MS);
    hooks = hooks_new();
    ck_assert_ptr_nonnull(charges);
    ck_assert_ptr_nonnull(hooks);
    buf_init(&out, 16 << 20);
}

static void tear_down(void)
{
    charges_free(charges);
    hooks_free(hooks);
    buf_done(&out);
}

static struct charge *charge_of(const char *key)
{
    struct charge *charge = charges_of(charges, slice_of(key), SLICE("alice"));
    ck_assert_ptr_nonnull(charge);
    return charge;
}

/* As route.c does it: an executed call keeps its answer. */
static enum ledger_result call(const char *key, uint64_t fingerprint, bool holds_key, int64_t now_ms)
{
    struct charge *charge = charge_of(key);
    struct charge_order order = {.key = slice_of(key), .fingerprint = fingerprint};
    charges_note_call(charges, charge);
    enum ledger_result result = charges_execute(charges, charge, &order, holds_key, now_ms);
    if (result == LEDGER_MADE)
        ck_assert(charges_keep(charges, charge, fingerprint, 201, SLICE("{\"status\":\"succeeded\"}"), now_ms));
    return result;
}

static struct json_value charges_report(const struct charges_range *range)
{
    buf_reset(&out);
    ck_assert(charges_write(charges, range, &out));
    ck_assert(json_strict_check(out.bytes, out.length, NULL));
    return json_value_of(out.bytes, out.length);
}

static struct json_value hooks_report(const struct hooks_range *range)
{
    buf_reset(&out);
    ck_assert(hooks_write(hooks, range, &out));
    ck_assert(json_strict_check(out.bytes, out.length, NULL));
    return json_value_of(out.bytes, out.length);
}

static int64_t number(struct json_value object, const char *name)
{
    int64_t value = -1;
    ck_assert_msg(json_integer(json_member(object, name), 0, INT64_MAX, &value), "%s", name);
    return value;
}

/* The n-th element of the array of that name. */
static struct json_value row(struct json_value report, const char *name, size_t n)
{
    size_t cursor = 0;
    struct json_value element = {.kind = JSON_MISSING};
    for (size_t i = 0; i <= n; i++)
        ck_assert(json_next_element(json_member(report, name), &cursor, &element));
    return element;
}

static void assert_text(struct json_value object, const char *name, const char *want)
{
    char text[256];
    ck_assert(json_string(json_member(object, name), text, sizeof(text), NULL));
    ck_assert_str_eq(text, want);
}

TEST(a_key_is_charged_once_and_its_first_answer_is_kept)
{
    ck_assert_int_eq(call("k", 5, false, 10), LEDGER_MADE);
    ck_assert_int_eq(call("k", 5, false, 11), LEDGER_SAME);
    ck_assert_int_eq(call("k", 6, false, 12), LEDGER_MISMATCH);
    ck_assert_int_eq(call("other", 5, false, 13), LEDGER_MADE);
    struct json_value report = charges_report(&(struct charges_range){.limit = 10});
    ck_assert_int_eq(number(report, "keys"), 2);
    ck_assert_int_eq(number(report, "executions"), 2);
    ck_assert_int_eq(number(report, "executed_twice"), 0);
    ck_assert_int_eq(number(report, "calls"), 4);
    struct json_value first = row(report, "charges", 0);
    assert_text(first, "key", "k");
    assert_text(first, "user_id", "alice");
    assert_text(first, "answer", "{\"status\":\"succeeded\"}");
    ck_assert_int_eq(number(first, "calls"), 3);
    ck_assert_int_eq(number(first, "executions"), 1);
}

TEST(a_call_that_comes_after_the_lifetime_of_its_key_charges_a_second_time_and_is_counted)
{
    ck_assert_int_eq(call("k", 5, false, 0), LEDGER_MADE);
    ck_assert_int_eq(call("k", 5, false, LIFETIME_MS - 1), LEDGER_SAME);
    ck_assert_int_eq(call("k", 5, false, LIFETIME_MS), LEDGER_MADE);
    ck_assert_int_eq(call("k", 5, false, LIFETIME_MS + 1), LEDGER_SAME);
    ck_assert_int_eq(call("k", 5, false, 2 * LIFETIME_MS), LEDGER_MADE);
    struct json_value report = charges_report(&(struct charges_range){.limit = 10});
    ck_assert_int_eq(number(report, "keys"), 1);
    ck_assert_int_eq(number(report, "executions"), 3);
    ck_assert_int_eq(number(report, "executed_twice"), 1);
}

TEST(while_a_call_is_at_work_only_that_call_may_charge)
{
    struct charge *charge = charge_of("k");
    charges_begin_work(charges, charge, 5, 0);
    ck_assert(charges_is_known(charges, charge, 1));
    ck_assert_int_eq(call("k", 5, false, 1), LEDGER_REFUSED);
    ck_assert_int_eq(call("k", 6, false, 2), LEDGER_MISMATCH);
    ck_assert_int_eq(charge->executions, 0);
    ck_assert_int_eq(call("k", 5, true, 3), LEDGER_MADE);
    ck_assert_int_eq(call("k", 5, false, 4), LEDGER_SAME);
    charges_begin_work(charges, charge, 5, 5); /* a known key keeps its answer */
    ck_assert_int_eq(call("k", 5, false, 6), LEDGER_SAME);
    ck_assert_int_eq(charge->executions, 1);
}

TEST(a_kept_refusal_is_no_execution)
{
    struct charge *charge = charge_of("k");
    ck_assert(charges_keep(charges, charge, 5, 422, SLICE("{\"code\":\"declined\"}"), 0));
    ck_assert_int_eq(call("k", 5, false, 1), LEDGER_SAME);
    ck_assert_int_eq(charge->status, 422);
    ck_assert_int_eq(charge->executions, 0);
    ck_assert_ptr_eq(charges_find(charges, SLICE("k")), charge);
    ck_assert_ptr_null(charges_find(charges, SLICE("kk")));
}

static void open_file(const char *path, struct charges_file **ret_file)
{
    struct err err = {0};
    ck_assert_msg(charges_file_open(path, charges, 0, ret_file, &err), "%s", err.message);
}

TEST(charges_are_known_after_a_crash_in_the_middle_of_a_line)
{
    char path[] = "/tmp/charges-XXXXXX";
    int descriptor = mkstemp(path);
    ck_assert_int_ge(descriptor, 0);
    struct charges_file *file;
    open_file(path, &file);
    ck_assert_int_eq(call("k", UINT64_MAX, false, 0), LEDGER_MADE);
    ck_assert(charges_file_add(file, charge_of("k")));
    ck_assert_int_eq(call("\"other\n", 5, false, 0), LEDGER_MADE);
    ck_assert(charges_file_add(file, charge_of("\"other\n")));
    ck_assert_int_eq(call("k", UINT64_MAX, false, LIFETIME_MS), LEDGER_MADE);
    ck_assert(charges_file_add(file, charge_of("k")));
    charges_file_close(file);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(lseek(descriptor, 0, SEEK_END) > 0, 1);
        ck_assert_int_eq(write(descriptor, "{\"key\":\"k", 9), 9); /* never answered */
        ck_assert(charges_reset(charges));
        open_file(path, &file);
        charges_file_close(file);
        struct json_value report = charges_report(&(struct charges_range){.limit = 10});
        ck_assert_int_eq(number(report, "keys"), 2);
        ck_assert_int_eq(number(report, "executions"), 3);
        ck_assert_int_eq(number(report, "executed_twice"), 1);
    }
    ck_assert_int_eq(call("k", UINT64_MAX, false, 1), LEDGER_SAME);
    ck_assert_int_eq(call("k", 5, false, 1), LEDGER_MISMATCH);
    open_file(path, &file);
    ck_assert(charges_file_reset(file));
    charges_file_close(file);
    ck_assert_int_eq(lseek(descriptor, 0, SEEK_END), 0);
    close(descriptor);
    unlink(path);
}

TEST(a_file_that_is_no_list_of_charges_is_refused)
{
    char path[] = "/tmp/charges-XXXXXX";
    int descriptor = mkstemp(path);
    struct charges_file *file;
    struct err err = {0};
    ck_assert_int_eq(write(descriptor, "{}\n", 3), 3);
    ck_assert(!charges_file_open(path, charges, 0, &file, &err));
    ck_assert_ptr_nonnull(strstr(err.message, "line 1"));
    close(descriptor);
    unlink(path);
    ck_assert(!charges_file_open("/nonexistent/charges", charges, 0, &file, &err));
}

TEST(a_report_of_charges_is_chosen_by_key_user_and_range)
{
    char key[24];
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof(key), "key-%d", i);
        ck_assert_int_eq(call(key, 1, false, i), LEDGER_MADE);
    }
    struct json_value report = charges_report(&(struct charges_range){.key = "key-17000", .limit = 10});
    assert_text(row(report, "charges", 0), "key", "key-17000");
    ck_assert(json_is_false(json_member(report, "truncated")));
    report = charges_report(&(struct charges_range){.from = 19990, .limit = 9});
    assert_text(row(report, "charges", 8), "key", "key-19998");
    ck_assert(json_is_true(json_member(report, "truncated")));
    report = charges_report(&(struct charges_range){.user_id = "bob", .limit = 9});
    ck_assert_int_eq(number(report, "keys"), 20000);
    size_t cursor = 0;
    struct json_value none;
    ck_assert(!json_next_element(json_member(report, "charges"), &cursor, &none));
}

TEST(a_reset_forgets_charges_and_deliveries)
{
    ck_assert_int_eq(call("k", 5, false, 0), LEDGER_MADE);
    struct hook_delivery delivery = {.name = SLICE("a"), .id = SLICE("1"), .headers = SLICE("{}")};
    ck_assert(hooks_put(hooks, &delivery));
    ck_assert(charges_reset(charges));
    ck_assert(hooks_reset(hooks));
    ck_assert_ptr_null(charges_find(charges, SLICE("k")));
    ck_assert_int_eq(number(charges_report(&(struct charges_range){.limit = 1}), "executions"), 0);
    ck_assert_int_eq(number(hooks_report(&(struct hooks_range){.limit = 1}), "deliveries"), 0);
    ck_assert_int_eq(call("k", 5, false, 0), LEDGER_MADE);
}

TEST(deliveries_are_counted_by_hook_and_id_in_the_order_of_first_arrivals)
{
    static const char *const arrivals[][2] = {{"a", "2"}, {"a", "1"}, {"b", "2"}, {"a", "2"}, {"a", "3"}};
    for (size_t i = 0; i < ARRAY_SIZE(arrivals); i++) {
        struct hook_delivery delivery = {
            .name = slice_of(arrivals[i][0]),
            .id = slice_of(arrivals[i][1]),
            .user_id = SLICE("alice"),
            .type = SLICE("T"),
            .headers = i == 3 ? SLICE("{\"webhook-timestamp\":\"2\"}") : SLICE("{\"webhook-timestamp\":\"1\"}"),
            .body = SLICE("{\"a\": 1}"),
            .wall_us = (int64_t)i,
        };
        ck_assert(hooks_put(hooks, &delivery));
    }
    struct json_value report = hooks_report(&(struct hooks_range){.name = "a", .limit = 10}), first;
    ck_assert_int_eq(number(report, "ids"), 4);
    ck_assert_int_eq(number(report, "deliveries"), 5);
    first = row(report, "hooks", 0);
    assert_text(first, "id", "2");
    assert_text(first, "body", "{\"a\": 1}");
    assert_text(json_member(first, "headers"), "webhook-timestamp", "2");
    ck_assert_int_eq(number(first, "deliveries"), 2);
    ck_assert(json_is_false(json_member(first, "body_changed")));
    assert_text(row(report, "hooks", 1), "id", "1");
    ck_assert_int_eq(number(row(report, "hooks", 2), "order"), 3);
    report = hooks_report(&(struct hooks_range){.name = "b", .id = "2", .user_id = "alice", .limit = 10});
    ck_assert_int_eq(number(row(report, "hooks", 0), "order"), 2);
}

TEST(a_body_that_changes_between_deliveries_is_seen)
{
    struct hook_delivery delivery = {
        .name = SLICE("a"), .id = SLICE("1"), .headers = SLICE("{}"), .body = SLICE("{\"a\":1}")};
    ck_assert(hooks_put(hooks, &delivery));
    delivery.body = SLICE("{\"a\":2}");
    ck_assert(hooks_put(hooks, &delivery));
    struct json_value first = row(hooks_report(&(struct hooks_range){.limit = 10}), "hooks", 0);
    ck_assert(json_is_true(json_member(first, "body_changed")));
    assert_text(first, "body", "{\"a\":2}");
}

TEST(any_bytes_of_a_body_give_a_report_that_is_json)
{
    static const char bytes[] = "\xff\x01\"\n{";
    struct hook_delivery delivery = {.name = SLICE("a"),
                                     .id = SLICE("\"\\"),
                                     .headers = SLICE("{}"),
                                     .body = {.bytes = bytes, .length = sizeof(bytes) - 1}};
    ck_assert(hooks_put(hooks, &delivery));
    delivery.id = SLICE("empty");
    delivery.body = (struct slice){0};
    ck_assert(hooks_put(hooks, &delivery));
    struct json_value report = hooks_report(&(struct hooks_range){.limit = 10});
    assert_text(row(report, "hooks", 0), "id", "\"\\");
    assert_text(row(report, "hooks", 1), "body", "");
}

TESTS_BETWEEN(sandbox_routes, set_up, tear_down)
