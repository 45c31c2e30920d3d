/* The story: at three in the morning an operator asks whether a replay can make a second card. What explain says must
 * be what the worker will do: same key while the key lives, a look-up and nothing else after that, only the link once
 * the card is stored. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/outlook.h"

#define SECOND INT64_C(1000000)
#define HOUR (3600 * SECOND)
#define NOW (INT64_C(1700000000) * SECOND)

static struct config config;
static struct outlook outlook;
static const struct outlook_past nothing = {0};

static void set_up(void)
{
    config = (struct config){.issuer = {.timeout_ms = 3000, .key_lifetime_ms = 24 * 3600 * 1000},
                             .retry = {.max_attempts = 10}};
}

static struct event event_of(enum outbox_status status)
{
    return (struct event){.status = status, .type = "CARD_ISSUE", .now_us = NOW, .next_attempt_us = NOW + 20 * SECOND};
}

static void look(const struct event *event, const struct outlook_past *past)
{
    outlook_of(event, past, &config, &outlook);
}

#define says(text) ck_assert_msg(strstr(outlook.why, text) != NULL, "\"%s\" is not in: %s", text, outlook.why)

START_TEST(the_key_may_be_used_until_its_lifetime_less_the_margin)
{
    static const struct {
        int64_t timeout_ms, lifetime_ms, usable_ms;
    } cases[] = {
        {3000, 24 * 3600 * 1000, 24 * 3600 * 1000 - 300 * 1000}, /* a tenth, at most 5 min */
        {3000, 60 * 1000, 54 * 1000},                            /* a tenth */
        {3000, 10 * 1000, 7 * 1000},                             /* the timeout is more than a tenth */
        {600 * 1000, 3600 * 1000, 3300 * 1000},                  /* the timeout is more than 5 min */
    };
    struct event event = {.first_sent_us = NOW};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        config.issuer.timeout_ms = cases[i].timeout_ms;
        config.issuer.key_lifetime_ms = cases[i].lifetime_ms;
        ck_assert_int_eq(outlook_sendable_until_us(&event, &config), NOW + cases[i].usable_ms * 1000);
    }
    event.first_sent_us = 0;
    ck_assert_int_eq(outlook_sendable_until_us(&event, &config), 0);
}
END_TEST

START_TEST(a_failed_event_within_the_lifetime_would_be_sent_with_the_same_key)
{
    struct event event = event_of(OUTBOX_FAILED);
    event.reason_code = "attempts_exhausted";
    event.first_sent_us = NOW - HOUR;
    look(&event, &nothing);
    ck_assert_str_eq(outlook.action, "operator");
    ck_assert_int_eq(outlook.at_us, 0);
    says("sent again with the same issuer key");
}
END_TEST

START_TEST(a_failed_event_past_the_lifetime_would_be_looked_up_and_never_sent)
{
    struct event event = event_of(OUTBOX_FAILED);
    event.first_sent_us = NOW - 24 * HOUR + 300 * SECOND; /* the very moment */
    look(&event, &nothing);
    says("the issuer is asked whether there is a card and nothing is sent");
    event.first_sent_us += 1;
    look(&event, &nothing);
    says("sent again with the same issuer key");
}
END_TEST

START_TEST(a_stored_card_is_only_linked_however_old_the_key_is)
{
    struct event event = event_of(OUTBOX_FAILED);
    event.first_sent_us = NOW - 1000 * HOUR;
    event.has_card = true;
    look(&event, &nothing);
    says("only the link in core-api");
    event = event_of(OUTBOX_PENDING);
    event.has_card = true;
    look(&event, &nothing);
    ck_assert_str_eq(outlook.action, "link");
}
END_TEST

START_TEST(what_was_never_sent_has_no_lifetime)
{
    struct event event = event_of(OUTBOX_FAILED);
    event.created_us = NOW - 1000 * HOUR;
    look(&event, &nothing);
    says("for the first time");
}
END_TEST

START_TEST(a_pending_event_says_when_and_why_it_waits)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.retry_count = 3;
    event.first_sent_us = NOW - HOUR;
    look(&event, &(struct outlook_past){.outcome = "retry", .code = "issuer_http_503"});
    ck_assert_str_eq(outlook.action, "attempt");
    ck_assert_int_eq(outlook.at_us, NOW + 20 * SECOND);
    says("after attempt 3 of 10 (issuer_http_503: the issuer answered 503");
    look(&event, &(struct outlook_past){.outcome = "deferred", .code = "breaker_open"});
    says("waits for a cause outside this event (breaker_open");
}
END_TEST

START_TEST(a_pending_event_is_judged_by_the_time_of_its_next_attempt)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.first_sent_us = NOW - 24 * HOUR + 300 * SECOND + 10 * SECOND; /* usable now, not in 20 s */
    look(&event, &nothing);
    ck_assert_str_eq(outlook.action, "look_up");
    event.next_attempt_us = NOW + 5 * SECOND;
    look(&event, &nothing);
    ck_assert_str_eq(outlook.action, "attempt");
}
END_TEST

START_TEST(an_overdue_event_asks_for_the_worker)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.next_attempt_us = NOW - SECOND;
    look(&event, &nothing);
    says("it is due: the next worker");
    event.next_attempt_us = NOW - HOUR;
    look(&event, &nothing);
    says("is a worker running");
}
END_TEST

START_TEST(an_event_of_another_type_waits_for_nobody)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.type = "SOMETHING";
    look(&event, &nothing);
    ck_assert_str_eq(outlook.action, "none");
    says("CARD_ISSUE");
}
END_TEST

START_TEST(a_held_event_is_waited_for_until_its_lease_ends)
{
    struct event event = event_of(OUTBOX_PROCESSING);
    event.lease_owner = "host/1";
    event.lease_until_us = NOW + 1;
    look(&event, &nothing);
    ck_assert_str_eq(outlook.action, "wait");
    ck_assert_int_eq(outlook.at_us, NOW + 1);
    says("host/1");
    event.lease_until_us = NOW;
    look(&event, &nothing);
    ck_assert_str_eq(outlook.action, "take_over");
}
END_TEST

START_TEST(a_final_event_has_no_future)
{
    static const enum outbox_status final[] = {OUTBOX_COMPLETED, OUTBOX_REJECTED};
    for (size_t i = 0; i < ARRAY_SIZE(final); i++) {
        struct event event = event_of(final[i]);
        look(&event, &nothing);
        ck_assert_str_eq(outlook.action, "none");
        ck_assert_int_eq(outlook.at_us, 0);
        ck_assert_str_ne(outlook.why, "");
    }
}
END_TEST

START_TEST(every_reason_of_ours_has_words)
{
    char text[160];
#define X(code, detail)                      \
    outlook_code(#code, text, sizeof(text)); \
    ck_assert_msg(strcmp(text, "the code is the issuer's or core-api's own") != 0, "%s has none", #code);
    OUTBOX_REASONS(X)
#undef X
    outlook_code("issuer_http_429", text, sizeof(text));
    ck_assert_str_eq(text, "the issuer answered 429: it asks us to slow down");
    outlook_code("core_http_401", text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "core-api answered 401: it does not accept our credentials"));
    outlook_code("issuer_http_x", text, sizeof(text));
    ck_assert_str_eq(text, "the code is the issuer's or core-api's own");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ctl_outlook");
    TCase *cases = tcase_create("outlook");
    tcase_add_checked_fixture(cases, set_up, NULL);
    tcase_add_test(cases, the_key_may_be_used_until_its_lifetime_less_the_margin);
    tcase_add_test(cases, a_failed_event_within_the_lifetime_would_be_sent_with_the_same_key);
    tcase_add_test(cases, a_failed_event_past_the_lifetime_would_be_looked_up_and_never_sent);
    tcase_add_test(cases, a_stored_card_is_only_linked_however_old_the_key_is);
    tcase_add_test(cases, what_was_never_sent_has_no_lifetime);
    tcase_add_test(cases, a_pending_event_says_when_and_why_it_waits);
    tcase_add_test(cases, a_pending_event_is_judged_by_the_time_of_its_next_attempt);
    tcase_add_test(cases, an_overdue_event_asks_for_the_worker);
    tcase_add_test(cases, an_event_of_another_type_waits_for_nobody);
    tcase_add_test(cases, a_held_event_is_waited_for_until_its_lease_ends);
    tcase_add_test(cases, a_final_event_has_no_future);
    tcase_add_test(cases, every_reason_of_ours_has_words);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
