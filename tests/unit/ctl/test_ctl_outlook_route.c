/* The story: at three in the morning an operator asks whether a replay charges a customer twice. What explain says of
 * an event that a route delivers must be what the worker will do, must name what the event waits for, and must never
 * speak of cards or claim more than is known. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/issuer_key.h"
#include "ctl/explain/outlook.h"
#include "tests/support/suite.h"

#define SECOND INT64_C(1000000)
#define HOUR (3600 * SECOND)
#define NOW (INT64_C(1700000000) * SECOND)
#define HOLDER "0190b5a8-7c1e-7cc3-98c4-dc0c0c07398f"
#define FIRST "0190b5a8-0000-7cc3-98c4-dc0c0c07398f"

static struct config config;
static struct outlook outlook;
static struct cluster cluster; /* one worker with one route, which takes calls, unless a test changes it */
static struct cluster_worker worker;
static const struct outlook_past nothing = {0};

static void set_up(void)
{
    config = (struct config){.issuer = {.profile = "generic", .timeout_ms = 3000, .key_lifetime_ms = 24 * 3600 * 1000},
                             .retry = {.max_attempts = 10}};
    worker = (struct cluster_worker){.name = "host-a:17", .host = "host-a", .is_alive = true, .slots = 128};
    cluster = (struct cluster){
        .workers = &worker,
        .worker_count = 1,
        .alive_count = 1,
        .slots = 128,
        .targets = {{.name = "issuer", .workers = 1}, {.name = "core", .workers = 1}, {.name = "CHARGE", .workers = 1}},
        .target_count = 3,
        .routes = {{.type = "CHARGE",
                    .key_lifetime_ms = 24 * 3600 * 1000,
                    .max_attempts = 4,
                    .worker = "host-a:17",
                    .seen_us = NOW - SECOND,
                    .is_live = true}},
        .route_count = 1,
        .now_us = NOW,
    };
}

static struct event event_of(enum outbox_status status)
{
    return (struct event){.status = status, .type = "CHARGE", .now_us = NOW, .next_attempt_us = NOW + 20 * SECOND};
}

static void look(const struct event *event, const struct outlook_past *past)
{
    outlook_of(event, past, &cluster, &config, &outlook);
    ck_assert_msg(!strstr(outlook.why, "card") && !strstr(outlook.why, "issuer"), "%s", outlook.why);
}

#define expect_why(text) ck_assert_msg(strstr(outlook.why, text) != NULL, "\"%s\" is not in: %s", text, outlook.why)

TEST(a_delivery_is_repeated_under_its_key_and_past_its_lifetime_never)
{
    struct event event = event_of(OUTBOX_PENDING);
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_DELIVER);
    expect_why("delivered for the first time");
    look(&event, &(struct outlook_past){.any = true});
    expect_why("no earlier request can have been executed");
    event.first_sent_us = event.last_sent_us = NOW - HOUR;
    look(&event, &(struct outlook_past){.any = true});
    ck_assert_int_eq(outlook.action, OUTLOOK_DELIVER);
    expect_why("sent again with the same key, since an earlier send may have been executed");
    expect_why("until 2023-11-15T21:08:20Z at the latest");
    event.first_sent_us = NOW - 25 * HOUR;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_END);
    expect_why("it ends FAILED route_key_expired and nothing is sent");
    cluster.routes[0].has_lookup = true;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_ASK);
    expect_why("the receiver is asked whether it was executed and nothing is sent");
    cluster.routes[0].key_lifetime_ms = ISSUER_KEY_FOREVER_MS;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_DELIVER);
    expect_why("without a time limit");
}

TEST(the_timeout_of_the_configuration_makes_the_margin_exact)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.first_sent_us = NOW;
    config.routes[0] = (struct config_route){.type = "CHARGE", .timeout_ms = 10000, .key_lifetime_ms = 60 * 1000};
    config.route_count = 1;
    cluster.routes[0].key_lifetime_ms = 60 * 1000;
    event.next_attempt_us = NOW + 40 * SECOND - 1; /* it settles in 20 s: 2 x the timeout */
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_DELIVER);
    event.next_attempt_us++;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_END);
}

TEST(how_long_a_delivery_may_still_arrive)
{
    ck_assert_int_eq(outlook_route_settle_ms(&config, "CHARGE"), 20 * 60 * 1000); /* not in this configuration */
    config.routes[0] = (struct config_route){.type = "CHARGE", .timeout_ms = 3000, .key_lifetime_ms = 24 * 3600 * 1000};
    config.route_count = 1;
    ck_assert_int_eq(outlook_route_settle_ms(&config, "CHARGE"), 30000);
    config.routes[0].timeout_ms = 20000;
    ck_assert_int_eq(outlook_route_settle_ms(&config, "CHARGE"), 40000);
    config.routes[0].timeout_ms = 3000;
    config.routes[0].key_lifetime_ms = 60000; /* a quarter of it */
    ck_assert_int_eq(outlook_route_settle_ms(&config, "CHARGE"), 15000);
}

TEST(a_type_that_nobody_delivers_waits_and_no_more_is_said)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.type = "UNHEARD_OF";
    event.next_attempt_us = NOW - HOUR;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_ROUTE);
    ck_assert_int_eq(outlook.action, OUTLOOK_NONE);
    ck_assert_int_eq(outlook.at_us, 0);
    expect_why("nobody delivers events of this type");
    event.status = OUTBOX_FAILED;
    look(&event, &nothing);
    expect_why("after a replay nobody delivers events of this type");
}

TEST(a_route_without_a_living_worker_waits_for_one)
{
    struct event event = event_of(OUTBOX_PENDING);
    cluster.routes[0].is_live = false;
    cluster.routes[0].seen_us = NOW - HOUR;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_WORKER);
    ck_assert_int_eq(outlook.at_us, 0);
    expect_why("no living worker has a route for this type: the last one that had it, host-a:17, was seen at "
               "2023-11-14T21:13:20Z");
}

TEST(an_event_that_is_held_back_names_the_one_that_must_end)
{
    struct event event = event_of(OUTBOX_PENDING);
    strcpy(event.held_behind_text, HOLDER);
    strcpy(event.first_text, HOLDER);
    event.holder_status = event.first_status = "FAILED";
    look(&event, &nothing);
    expect_why("held behind " HOLDER " while its type was ordered; it is not any more");
    cluster.routes[0].is_ordered = true;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_EVENT);
    ck_assert_int_eq(outlook.at_us, 0);
    expect_why("held behind " HOLDER ", which is FAILED: replay or resolve it; then it is delivered");
    event.holder_status = "PENDING"; /* which is held back itself */
    strcpy(event.first_text, FIRST);
    look(&event, &nothing);
    expect_why("held behind " HOLDER ", which is PENDING; the first one that must end is " FIRST
               ", which is FAILED: replay or resolve it");
    event.first_text[0] = '\0';
    event.first_status = NULL;
    event.holder_status = "COMPLETED";
    look(&event, &nothing);
    expect_why("which is COMPLETED by now; the next claim takes it");
    event.holder_status = NULL;
    look(&event, &nothing);
    expect_why("which is no longer there");
}

TEST(a_dead_route_keeps_no_card_and_a_dead_issuer_no_delivery)
{
    struct event event = event_of(OUTBOX_PENDING), request = event_of(OUTBOX_PENDING);
    request.type = "CARD_ISSUE";
    cluster.targets[2].blocked = cluster.targets[2].open = 1;
    cluster.targets[2].cause = "timeout";
    look(&event, &nothing);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_BREAKER);
    expect_why("it waits behind the open breaker of CHARGE");
    outlook_of(&request, &nothing, &cluster, &config, &outlook);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_NOTHING);
    cluster.targets[2].blocked = cluster.targets[2].open = 0;
    cluster.targets[0].blocked = cluster.targets[0].open = 1;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_NOTHING);
    outlook_of(&request, &nothing, &cluster, &config, &outlook);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_BREAKER);
}

TEST(each_held_end_of_a_delivery_is_told)
{
    static const char *const words[] = {
#define X(name, word) #word,
        OUTBOX_HELD_ENDS(X)
#undef X
    };
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        struct event event = event_of(OUTBOX_PENDING);
        char cause[40];
        event.first_sent_us = event.last_sent_us = NOW - SECOND;
        event.held_end = words[i];
        event.held_end_code = "some_code";
        cluster.routes[0].has_lookup = true;
        look(&event, &nothing);
        ck_assert_int_eq(outlook.action, OUTLOOK_ASK);
        expect_why("since its end is decided");
        (void)snprintf(cause, sizeof(cause), "(%s)", words[i]);
        ck_assert_ptr_null(strstr(outlook.why, cause));
        cluster.routes[0].has_lookup = false; /* any more: nobody can be asked */
        look(&event, &nothing);
        ck_assert_int_eq(outlook.action, OUTLOOK_END);
        expect_why("and nothing is sent, since an earlier send may have been executed and the route has no lookup_url");
    }
}

TEST(what_a_lost_worker_may_have_done_is_never_done_again)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.first_sent_us = event.last_sent_us = NOW - SECOND;
    event.lost_count = OUTBOX_LOST_LOOKUP;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_END);
    expect_why("it ends FAILED worker_lost and nothing is sent");
    cluster.routes[0].has_lookup = true;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_ASK);
    event.lost_count = 0;
    event.retry_count = 4; /* the last attempt was lost */
    look(&event, &nothing);
    expect_why("no attempt is left: executed, it ends COMPLETED; not executed, it ends FAILED attempts_exhausted");
    event.first_sent_us = 0;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_END);
    expect_why("it ends FAILED attempts_exhausted and nothing is sent, since its last attempt was lost");
}

TEST(a_failed_one_offers_what_its_route_can_do_and_tells_who_waits)
{
    struct event event = event_of(OUTBOX_FAILED);
    event.reason_code = "route_key_expired";
    event.waiting_count = 3;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_OPERATOR);
    expect_why("until an operator replays or resolves it; 3 later events of this user wait for that; after a replay "
               "it is delivered");
    cluster.routes[0].has_lookup = true;
    event.waiting_count = 0;
    look(&event, &nothing);
    expect_why("until an operator replays, reconciles or resolves it; after a replay");
}

TEST(a_final_one_says_what_became_of_it)
{
    struct event event = event_of(OUTBOX_COMPLETED);
    look(&event, &nothing);
    expect_why("the receiver has executed it");
    event.status = OUTBOX_REJECTED;
    event.reason_code = "route_refused";
    look(&event, &nothing);
    expect_why("the receiver refused it");
    event.reason_code = "resolved";
    look(&event, &nothing);
    expect_why("an operator ended it");
    event.reason_code = "cancelled";
    look(&event, &nothing);
    expect_why("cancelled it before it was sent");
}

TEST(no_code_of_a_delivery_speaks_of_cards)
{
    struct event event = event_of(OUTBOX_FAILED);
    char text[OUTLOOK_CODE_SIZE];
    static const char *const codes[] = {"payload_invalid", "cancelled",         "resolved",        "outcome_unknown",
                                        "worker_lost",     "target_resting",    "target_paused",   "settling",
                                        "clock_stepped",   "write_failed",      "drain",           "breaker_open",
                                        "lease_expired",   "out_of_memory",     "lease_too_short", "attempts_exhausted",
                                        "route_http_503",  "insufficient_funds"};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        outlook_code(&event, codes[i], text);
        ck_assert_msg(!strstr(text, "card") && !strstr(text, "issuer") && !strstr(text, "core-api"), "%s: %s", codes[i],
                      text);
    }
    outlook_code(&event, "route_http_503", text);
    ck_assert_str_eq(text, "the receiver answered 503: it failed; a call that acts may have acted before it did");
    outlook_code(&event, "insufficient_funds", text);
    ck_assert_str_eq(text, "the code is the receiver's own");
}

TESTS_BETWEEN(ctl_outlook_route, set_up, NULL)
