/* Story: an operator on a bad night asks what the issuer's next answer would do: would a 404 end the event, would
 * "nothing found" make a second card? What --what-if says is what the worker's own decision does with that answer. */
#include <check.h>
#include <string.h>

#include "ctl/explain/what_if.h"
#include "tests/support/suite.h"

#define SECOND INT64_C(1000000)
#define NOW (INT64_C(1700000000) * SECOND)

static struct config config;
static struct event event;
static struct what_if found;
static struct err err;
static const struct cluster_route route = {
    .type = "CHARGE", .key_lifetime_ms = 24 * 3600 * 1000, .max_attempts = 4, .has_lookup = true};

static void set_up(void)
{
    config = (struct config){.issuer = {.profile = "generic",
                                        .timeout_ms = 3000,
                                        .key_lifetime_ms = 24 * 3600 * 1000,
                                        .settle_time_ms = 30000},
                             .retry = {.max_attempts = 10, .base_ms = 1000, .cap_ms = 300000}};
    event =
        (struct event){.type = OUTBOX_EVENT_TYPE, .status = OUTBOX_PENDING, .status_text = "PENDING", .now_us = NOW};
}

static void ask(const char *answer)
{
    ck_assert_msg(what_if_find(&event, event_is_card(&event) ? NULL : &route, &config, answer, &found, &err), "%s: %s",
                  answer, err.message);
}

static void expect_refused(const char *answer, enum err_kind kind, const char *words)
{
    ck_assert(!what_if_find(&event, event_is_card(&event) ? NULL : &route, &config, answer, &found, &err));
    ck_assert_int_eq(err.kind, kind);
    ck_assert_msg(strstr(err.message, words) != NULL, "\"%s\" is not in: %s", words, err.message);
}

static void expect_case(int which, enum flow_verdict_kind kind, const char *words)
{
    ck_assert_int_lt(which, found.case_count);
    ck_assert_msg(found.cases[which].kind == kind && strstr(found.cases[which].text, words), "\"%s\" is not in: %s",
                  words, found.cases[which].text);
}

static void make_unknown(int64_t seconds_ago)
{
    event.first_sent_us = event.last_sent_us = NOW - seconds_ago * SECOND;
    event.outcome_unknown = true;
    event.retry_count = 1;
}

TEST(a_refusal_ends_a_first_create_and_is_looked_up_behind_an_unknown_one)
{
    ask("422:card_limit");
    ck_assert_int_eq(found.step, STEP_ISSUE);
    ck_assert_int_eq(found.outcome.kind, OUTCOME_REFUSED);
    ck_assert_int_eq(found.case_count, 1);
    expect_case(0, FLOW_REJECT, "it ends REJECTED card_limit");
    make_unknown(60);
    ask("422:card_limit");
    expect_case(0, FLOW_GO, "next comes lookup");
    expect_case(0, FLOW_GO, "it ends REJECTED card_limit");
}

TEST(a_third_404_ends_the_event_only_while_others_are_answered_well)
{
    ask("404");
    ck_assert_int_eq(found.case_count, 1);
    expect_case(0, FLOW_DEFER, "no attempt is used up");
    ck_assert_int_lt(found.cases[0].least_ms, found.cases[0].most_ms);
    event.deferral_code = "issuer_http_404";
    event.deferral_count = 2;
    ask("404");
    ck_assert_int_eq(found.case_count, 2);
    expect_case(0, FLOW_FAIL, "it ends FAILED issuer_http_404");
    expect_case(1, FLOW_DEFER, "no attempt is used up");
}

TEST(no_answer_is_unknown_and_never_failed)
{
    ask("timeout");
    ck_assert_int_eq(found.outcome.kind, OUTCOME_UNKNOWN);
    expect_case(0, FLOW_RETRY, "attempt 1 of 10 is used up");
    event.retry_count = 9;
    ask("503");
    ck_assert_int_eq(found.case_count, 2);
    expect_case(0, FLOW_GO, "next comes lookup");
    expect_case(0, FLOW_GO, "it ends FAILED attempts_exhausted");
    ck_assert(found.cases[0].others_are_answered && !found.cases[1].others_are_answered);
    ask("unreachable");
    ck_assert_int_eq(found.outcome.kind, OUTCOME_NOT_EXECUTED);
}

TEST(nothing_found_ends_only_what_has_settled)
{
    make_unknown(100000); /* past the key's lifetime: it is looked up */
    ask("none");
    ck_assert_int_eq(found.step, STEP_LOOKUP);
    expect_case(0, FLOW_FAIL, "it ends FAILED issuer_key_expired");
    event.last_sent_us = NOW - SECOND;
    ask("none");
    expect_case(0, FLOW_DEFER, "settling");
    ask("found");
    expect_case(0, FLOW_GO, "next comes save");
    ask("several");
    expect_case(0, FLOW_FAIL, "it ends FAILED issuer_duplicate");
    ask("cancelled");
    expect_case(0, FLOW_REJECT, "it ends REJECTED card_cancelled");
    expect_refused("executed", ERR_USAGE, "the next call is lookup");
    expect_refused("200", ERR_USAGE, "found, none, several or cancelled");
}

TEST(a_link_that_is_refused_marks_the_card)
{
    event.has_card = true;
    ask("409");
    ck_assert_int_eq(found.step, STEP_LINK);
    expect_case(0, FLOW_GO, "next comes mark");
    ask("409:in_progress");
    expect_case(0, FLOW_DEFER, "no attempt is used up");
    ask("200");
    expect_case(0, FLOW_COMPLETE, "it ends COMPLETED");
}

TEST(a_delivery_and_its_look_up)
{
    event.type = "CHARGE";
    ask("204");
    ck_assert_int_eq(found.step, STEP_DELIVER);
    expect_case(0, FLOW_COMPLETE, "it ends COMPLETED");
    ask("400:no_such_order");
    expect_case(0, FLOW_REJECT, "it ends REJECTED no_such_order");
    make_unknown(100000);
    ask("executed");
    ck_assert_int_eq(found.step, STEP_ASK);
    expect_case(0, FLOW_COMPLETE, "it ends COMPLETED");
    ask("404");
    expect_case(0, FLOW_FAIL, "it ends FAILED route_key_expired");
    ask("none");
    expect_case(0, FLOW_FAIL, "it ends FAILED route_key_expired");
}

TEST(the_code_stands_where_the_profile_reads_it)
{
    config.issuer.profile = "stripe";
    ask("400:card_declined");
    expect_case(0, FLOW_REJECT, "it ends REJECTED card_declined");
    config.issuer.profile = "adyen";
    ask("422:30_011");
    expect_case(0, FLOW_REJECT, "30_011");
}

TEST(what_is_no_answer_is_refused)
{
    static const char *const wrong[] = {"", "99", "100", "600", "2000", "404:", "404:With Blank", "404:a\"b", "maybe"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        expect_refused(wrong[i], ERR_USAGE, "--what-if");
    expect_refused("200", ERR_USAGE, "executed");
    expect_refused("found", ERR_USAGE, "the next call is issue");
    event.status = OUTBOX_COMPLETED;
    event.status_text = "COMPLETED";
    expect_refused("404", ERR_REFUSED, "it is COMPLETED");
}

TESTS_BETWEEN(ctl_what_if, set_up, NULL)
