/* The story: at three in the morning an operator asks whether a replay can make a second card. What explain shows must
 * be what the worker will do: same key while the key lives, a look-up and nothing else after that, only the link once
 * the card is stored. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/issuer_key.h"
#include "ctl/explain/outlook.h"
#include "worker/flow/flow.h"
#include "tests/support/suite.h"

#define SECOND INT64_C(1000000)
#define HOUR (3600 * SECOND)
#define NOW (INT64_C(1700000000) * SECOND)

static struct config config;
static struct outlook outlook;
static struct cluster cluster; /* one worker, and targets that take calls, unless a test changes it */
static struct cluster_worker workers[2];
static const struct outlook_past nothing = {0};

static void set_up(void)
{
    config = (struct config){.issuer = {.profile = "generic", .timeout_ms = 3000, .key_lifetime_ms = 24 * 3600 * 1000},
                             .retry = {.max_attempts = 10}};
    workers[0] = (struct cluster_worker){
        .name = "host-a:17", .host = "host-a", .seen_us = NOW - 3 * SECOND, .is_alive = true, .slots = 128};
    workers[1] = (struct cluster_worker){.name = "host-b:18", .host = "host-b", .seen_us = NOW - 80 * SECOND};
    cluster = (struct cluster){
        .workers = workers,
        .worker_count = 2,
        .alive_count = 1,
        .slots = 128,
        .targets = {{.name = "issuer", .workers = 1}, {.name = "core", .workers = 1}},
        .target_count = 2,
        .now_us = NOW,
    };
}

static struct event event_of(enum outbox_status status)
{
    return (struct event){.status = status, .type = "CARD_ISSUE", .now_us = NOW, .next_attempt_us = NOW + 20 * SECOND};
}

static void look(const struct event *event, const struct outlook_past *past)
{
    outlook_of(event, past, &cluster, &config, &outlook);
}

#define expect_why(text) ck_assert_msg(strstr(outlook.why, text) != NULL, "\"%s\" is not in: %s", text, outlook.why)

TEST(the_key_may_be_used_until_its_lifetime_less_the_margin)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.first_sent_us = NOW;
    event.next_attempt_us = NOW + 54 * SECOND - 1; /* a lifetime of a minute, less its tenth */
    config.issuer.key_lifetime_ms = 60 * 1000;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_ATTEMPT);
    expect_why("that is safe until 2023-11-14T22:14:14Z");
    event.next_attempt_us++;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_LOOK_UP);
    config.issuer.settle_time_ms = 20 * 1000; /* what is delivered so late must still meet its key */
    event.next_attempt_us = NOW + 40 * SECOND;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_LOOK_UP);
}

/* Story: at an issuer that looks an event up before each repeat, explain announced a send; where no key makes a repeat
 * harmless, it said that the key gives the same card. */
TEST(what_the_profile_declares_decides_what_is_said_of_a_repeat)
{
    static const struct {
        const char *profile;
        bool looks, trusts;
    } rows[] = {{"generic", false, true},   {"stripe", false, true}, {"lithic", true, true},
                {"marqeta", false, true},   {"adyen", true, false},  {"increase", true, true},
                {"unheard of", true, false}};
    config.issuer.settle_time_ms = 90000;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct event event = event_of(OUTBOX_PENDING);
        config.issuer.profile = (char *)rows[i].profile;
        look(&event, &(struct outlook_past){.any = true});
        expect_why("the issuer is asked for the card; no earlier request"); /* no look-up where nothing is unknown */
        event.first_sent_us = NOW - HOUR;
        event.last_sent_us = NOW - 10 * SECOND;
        look(&event, &nothing);
        ck_assert_int_eq(outlook.action, OUTLOOK_ATTEMPT);
        expect_why("until 2023-11-15T21:08:20Z"); /* the key's day, less five minutes */
        ck_assert_int_eq(strstr(outlook.why, "asked whether there is a card, since an earlier send") != NULL,
                         rows[i].looks);
        ck_assert_int_eq(strstr(outlook.why, "which gives the same card") != NULL, rows[i].trusts);
        ck_assert_int_eq(strstr(outlook.why, "not before 2023-11-14T22:14:40Z, when the last send has settled") != NULL,
                         !rows[i].trusts);
        event.status = OUTBOX_FAILED; /* and of a replay */
        look(&event, &nothing);
        ck_assert_int_eq(strstr(outlook.why, "after a replay the issuer is asked whether") != NULL, rows[i].looks);
        config.issuer.key_lifetime_ms = ISSUER_KEY_FOREVER_MS;
        look(&event, &nothing);
        expect_why(rows[i].trusts ? "that is safe without a time limit" : "when the last send has settled");
        ck_assert_ptr_null(strstr(outlook.why, "until 20"));
        config.issuer.key_lifetime_ms = 24 * 3600 * 1000;
        event.first_sent_us = NOW - 25 * HOUR;
        look(&event, &nothing);
        expect_why("nothing is sent, since an earlier send may have arrived and the issuer key is past its lifetime");
    }
}

TEST(the_close_of_a_replaced_card_is_announced_where_the_profile_has_it)
{
    static const struct {
        const char *profile, *kind;
        bool closes;
    } rows[] = {{"generic", "reissue", false}, {"stripe", "reissue", true}, {"lithic", "reissue", true},
                {"marqeta", "reissue", true},  {"adyen", "reissue", true},  {"increase", "reissue", true},
                {"stripe", "new", false},      {"stripe", NULL, false}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct event event = event_of(OUTBOX_PENDING);
        config.issuer.profile = (char *)rows[i].profile;
        event.kind = rows[i].kind;
        event.first_sent_us = NOW - HOUR;
        event.has_card = true;
        event.card_status = "active";
        look(&event, &nothing);
        ck_assert_int_eq(outlook.action, OUTLOOK_LINK);
        expect_why(rows[i].closes ? "the card that it replaces is closed at the issuer; no card is asked for"
                                  : "only the link in core-api is left to make");
        ck_assert_int_eq(strstr(outlook.why, "the issuer is not asked again") == NULL, rows[i].closes);
    }
}

TEST(a_card_that_the_last_attempt_was_shown_is_told_of)
{
    struct event event = event_of(OUTBOX_PENDING);
    struct outlook_past past = {.any = true, .last = OUTBOX_ATTEMPT_RETRY, .last_code = "issuer_http_503"};
    event.first_sent_us = NOW - HOUR;
    past.last_step = flow_step_name(STEP_ACTIVATE);
    look(&event, &past);
    expect_why("; the last attempt was shown the card and could not activate it, which is tried again");
    past.last_step = flow_step_name(STEP_REVEAL);
    look(&event, &past);
    expect_why("; the last attempt was shown the card and could not read its number, which is tried again");
    for (int step = 0; step < STEP_COUNT; step++) {
        past.last_step = flow_step_name((enum flow_step)step);
        look(&event, &past);
        ck_assert_int_eq(strstr(outlook.why, "was shown") != NULL, step == STEP_ACTIVATE || step == STEP_REVEAL);
    }
    past.last_step = flow_step_name(STEP_REVEAL);
    event.has_card = true; /* stored meanwhile */
    event.card_status = "active";
    look(&event, &past);
    ck_assert_ptr_null(strstr(outlook.why, "was shown"));
}

TEST(a_number_that_is_refused_needs_a_right_before_a_replay_helps)
{
    struct event event = event_of(OUTBOX_FAILED);
    event.reason_code = "reveal_refused";
    event.first_sent_us = NOW - HOUR;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_OPERATOR);
    expect_why("the issuer has the card and refuses to show its number");
    expect_why("card.store = never must be set, or it fails again; after a replay it is sent again");
    event.reason_code = "attempts_exhausted";
    look(&event, &nothing);
    ck_assert_ptr_null(strstr(outlook.why, "number"));
}

TEST(a_replaced_card_that_stays_open_is_told_of)
{
    struct event event = event_of(OUTBOX_COMPLETED);
    look(&event, &(struct outlook_past){.any = true});
    ck_assert_str_eq(outlook.why, "it is completed: the card is stored and linked");
    look(&event,
         &(struct outlook_past){
             .any = true, .last = OUTBOX_ATTEMPT_COMPLETED, .last_code = "retire_refused", .last_step = "verify"});
    ck_assert_int_eq(outlook.action, OUTLOOK_NONE);
    expect_why("linked; the card that was replaced could not be closed at the issuer: close it there");
}

TEST(a_key_without_a_lifetime_may_be_used_at_any_time)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.first_sent_us = NOW - 11 * 366 * 24 * HOUR;
    config.issuer.key_lifetime_ms = ISSUER_KEY_FOREVER_MS;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_ATTEMPT);
    expect_why("that is safe without a time limit");
    config.issuer.key_lifetime_ms--; /* ten years */
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_LOOK_UP);
}

/* Story: the issuer was away at night. explain told of an event that was due: "the next worker with a free slot takes
 * it", and nobody looked at the breaker. */
TEST(an_event_that_no_worker_can_take_is_explained_by_what_keeps_them)
{
    struct event event = event_of(OUTBOX_PENDING);
    struct cluster_target *issuer = &cluster.targets[0], *core = &cluster.targets[1];
    event.next_attempt_us = NOW - SECOND;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_NOTHING);
    expect_why("the next worker with a free slot takes it");
    issuer->blocked = issuer->resting = 1;
    issuer->next_us = NOW + 2 * SECOND;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_REST);
    expect_why("issuer gets too many requests, so it rests for another 2 s");
    core->blocked = core->open = 1;
    core->since_us = NOW - 60 * SECOND;
    core->cause = "core_http_503";
    core->next_us = NOW + 11 * SECOND;
    core->backlog = 1204;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_BREAKER);
    ck_assert_int_eq(outlook.at_us, NOW + 11 * SECOND);
    expect_why(
        "it waits behind the open breaker of core since 2023-11-14T22:12:20Z, cause core_http_503, next probe in "
        "11 s, 1204 events behind it; then the issuer is asked for the card for the first time");
    core->half_open = 1;
    core->backlog = 1;
    look(&event, &nothing);
    expect_why("a probe under way, 1 event behind it");
    issuer->paused_us = NOW - 3600 * SECOND;
    issuer->paused_by = "anna";
    issuer->paused_why = "they asked us to";
    look(&event, &nothing);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_PAUSE);
    ck_assert_ptr_eq(outlook.wait.target, issuer);
    ck_assert_int_eq(outlook.at_us, 0);
    expect_why("issuer is paused by anna since 2023-11-14T21:13:20Z because: they asked us to");
    cluster.alive_count = 0;
    cluster.last_us = NOW - 80 * SECOND;
    cluster.last_host = "host-b";
    look(&event, &nothing);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_WORKER);
    expect_why("no worker runs: the last one was seen at 2023-11-14T22:12:00Z on host host-b");
    cluster.last_us = 0;
    look(&event, &nothing);
    expect_why("no worker runs, and none was seen so far");
}

TEST(a_pause_of_what_no_worker_calls_holds_nothing_back)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.next_attempt_us = NOW - SECOND;
    cluster.alive_count = 1;
    cluster.targets[cluster.target_count++] = (struct cluster_target){
        .name = "unknown", .paused_us = NOW - SECOND, .paused_by = "anna", .paused_why = "a slip of the pen"};
    look(&event, &nothing);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_NOTHING);
}

/* One worker of two cannot reach the issuer: the other one takes the event. */
TEST(a_breaker_that_is_open_at_one_worker_only_holds_nothing_back)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.next_attempt_us = NOW - SECOND;
    cluster.alive_count = 2;
    cluster.targets[0].workers = 2;
    cluster.targets[0].blocked = cluster.targets[0].open = 1;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.wait.what, OUTLOOK_WAIT_FOR_NOTHING);
    ck_assert_int_eq(outlook.at_us, event.next_attempt_us);
}

TEST(the_worker_that_holds_an_event_is_shown_with_its_last_heartbeat)
{
    struct event event = event_of(OUTBOX_PROCESSING);
    event.lease_owner = "host-a:17";
    event.lease_until_us = NOW + SECOND;
    look(&event, &nothing);
    expect_why("worker host-a:17 (last seen 3 s ago) holds it");
    event.lease_owner = "host-b:18";
    look(&event, &nothing);
    expect_why("worker host-b:18 (which counts as dead, last seen 1 min 20 s ago) holds it");
    event.lease_owner = "host-c:19";
    look(&event, &nothing);
    expect_why("worker host-c:19 (which has no heartbeat any more: it has ended, or has just started) holds it");
}

/* Nothing is sent any more: an operator who reads "it is sent again" would wait for a card. */
TEST(an_end_that_is_held_is_explained_and_nothing_is_sent)
{
    static const struct {
        const char *held_end, *code, *why;
    } rows[] = {
        {"refused", "limit_reached",
         "is stored and linked; none found after that time, it ends REJECTED limit_reached"},
        {"ineligible", "blocked", "is cancelled; none found after that time, it ends REJECTED blocked"},
        {"exhausted", "", "it ends FAILED attempts_exhausted"},
        {"key_expired", "", "it ends FAILED issuer_key_expired"},
        {"key_spent", "", "it ends FAILED issuer_key_spent"},
        {"unforeseen", "issuer_http_418", "it ends FAILED issuer_http_418"},
        {"worker_lost", "", "it ends FAILED worker_lost"},
    };
    config.issuer.settle_time_ms = 30000;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct event event = event_of(OUTBOX_PENDING);
        event.first_sent_us = NOW - 60 * SECOND;
        event.last_sent_us = NOW - 10 * SECOND;
        event.held_end = rows[i].held_end;
        event.held_end_code = rows[i].code;
        look(&event, &(struct outlook_past){.any = true, .last = OUTBOX_ATTEMPT_DEFERRED, .last_code = "settling"});
        ck_assert_int_eq(outlook.action, OUTLOOK_LOOK_UP);
        ck_assert_int_eq(outlook.at_us, NOW + 20 * SECOND);
        expect_why("nothing is sent, since its end is decided");
        expect_why("2023-11-14T22:13:40"); /* 30 s after the last send */
        expect_why(rows[i].why);
        ck_assert_ptr_null(strstr(outlook.why, "sent again"));
    }
    struct event stored = event_of(OUTBOX_PENDING); /* a card was stored meanwhile */
    stored.first_sent_us = NOW - 60 * SECOND;
    stored.held_end = "refused";
    stored.has_card = true;
    stored.card_status = "active";
    look(&stored, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_LINK);
}

/* Before and after the replay, and whatever is stored. */
TEST(an_event_of_two_cards_is_looked_up_before_anything_else)
{
    for (int saved = 0; saved < 2; saved++)
        for (int failed = 0; failed < 3; failed++) {
            struct event event = event_of(failed ? OUTBOX_FAILED : OUTBOX_PENDING);
            event.first_sent_us = NOW - 60 * SECOND;
            event.has_card = saved;
            event.card_status = saved ? "active" : NULL;
            event.reason_code = failed == 1 ? "issuer_duplicate" : failed ? "core_http_418" : NULL;
            event.held_end = failed == 1 ? NULL : "duplicate";
            look(&event, &nothing);
            ck_assert_int_eq(outlook.action, failed ? OUTLOOK_OPERATOR : OUTLOOK_LOOK_UP);
            expect_why(failed ? "after a replay the issuer is asked first which cards it has"
                              : "the issuer is asked first which cards it has");
            expect_why(saved ? "exactly one, the stored one, which is then linked"
                             : "exactly one, which is then stored and linked");
            expect_why("several or none: it ends FAILED issuer_duplicate again");
            ck_assert_ptr_null(strstr(outlook.why, "sent again"));
        }
}

TEST(a_card_that_will_be_cancelled_is_announced_also_for_a_replay)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.first_sent_us = NOW - 60 * SECOND;
    event.cancel_code = "card_limit_reached";
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_CANCEL);
    expect_why("the card that the issuer shows is looked up and cancelled there, and the event ends REJECTED "
               "card_limit_reached");
    event.has_card = true;
    event.card_status = "active";
    event.held_end = "ineligible"; /* the mark comes first */
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_CANCEL);
    expect_why("the card is cancelled at the issuer, core-api is notified that it is gone");
    event.card_status = "cancelled";
    look(&event, &nothing);
    expect_why("that is done");
    event.status = OUTBOX_FAILED;
    event.reason_code = "attempts_exhausted";
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_OPERATOR);
    expect_why("after a replay the card is cancelled at the issuer");
}

TEST(an_event_that_loses_its_workers_is_tried_alone_and_then_looked_up)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.first_sent_us = NOW - 60 * SECOND;
    event.lost_count = 1;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_ATTEMPT);
    ck_assert_ptr_null(strstr(outlook.why, "alone"));
    for (event.lost_count = 2; event.lost_count < 4; event.lost_count++) {
        look(&event, &nothing);
        ck_assert_int_eq(outlook.action, OUTLOOK_ATTEMPT);
        expect_why("it is tried alone");
        expect_why("sent again with the same issuer key");
    }
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_LOOK_UP);
    expect_why("nothing is sent, since 4 attempts in a row were lost with their worker; none found, it ends FAILED "
               "worker_lost");
    event.status = OUTBOX_PROCESSING;
    event.lease_until_us = NOW - SECOND;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_TAKE_OVER);
    expect_why("ends it FAILED worker_lost");
    event.lost_count = 1;
    look(&event, &nothing);
    expect_why("to be tried alone");
    event = event_of(OUTBOX_FAILED); /* a replay begins to count anew */
    event.first_sent_us = NOW - 60 * SECOND;
    event.reason_code = "worker_lost";
    event.lost_count = 5;
    event.held_end = "worker_lost";
    look(&event, &nothing);
    expect_why("after a replay it is sent again with the same issuer key");
}

TEST(a_failed_event_within_the_lifetime_would_be_sent_with_the_same_key)
{
    struct event event = event_of(OUTBOX_FAILED);
    event.reason_code = "attempts_exhausted";
    event.first_sent_us = NOW - HOUR;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_OPERATOR);
    ck_assert_int_eq(outlook.at_us, 0);
    expect_why("sent again with the same issuer key");
}

TEST(a_failed_event_past_the_lifetime_would_be_looked_up_and_never_sent)
{
    struct event event = event_of(OUTBOX_FAILED);
    event.first_sent_us = NOW - 24 * HOUR + 300 * SECOND; /* the very moment */
    look(&event, &nothing);
    expect_why("the issuer is asked whether there is a card and nothing is sent");
    event.first_sent_us += 1;
    look(&event, &nothing);
    expect_why("sent again with the same issuer key");
}

TEST(a_stored_card_is_only_linked_however_old_the_key_is)
{
    struct event event = event_of(OUTBOX_FAILED);
    event.first_sent_us = NOW - 1000 * HOUR;
    event.has_card = true;
    look(&event, &nothing);
    expect_why("only the link in core-api");
    event = event_of(OUTBOX_PENDING);
    event.has_card = true;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_LINK);
}

/* No create that may have made a card: that is all that first_sent_at = NULL means. Calls may have been made. */
TEST(only_an_event_without_an_attempt_is_sent_for_the_first_time)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.created_us = NOW - HOUR;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_ATTEMPT);
    expect_why("for the first time");
    look(&event, &(struct outlook_past){.any = true});
    expect_why("no earlier request can have made one");
    event.retry_count = 1;
    look(&event, &nothing);
    expect_why("no earlier request can have made one");
    event.status = OUTBOX_FAILED;
    event.retry_count = 0;
    look(&event, &nothing);
    expect_why("after a replay the issuer is asked for the card; no earlier request can have made one");
    event.created_us = NOW - 1000 * HOUR;
    look(&event, &nothing);
    expect_why("after a replay the issuer is asked whether there is a card, since the event is older");
}

TEST(a_pending_event_is_explained_with_when_and_why_it_waits)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.retry_count = 3;
    event.first_sent_us = NOW - HOUR;
    look(&event, &(struct outlook_past){.any = true, .last = OUTBOX_ATTEMPT_RETRY, .last_code = "issuer_http_503"});
    ck_assert_int_eq(outlook.action, OUTLOOK_ATTEMPT);
    ck_assert_int_eq(outlook.at_us, NOW + 20 * SECOND);
    expect_why("after attempt 3 of 10 (issuer_http_503: the issuer answered 503");
    look(&event, &(struct outlook_past){.any = true, .last = OUTBOX_ATTEMPT_DEFERRED, .last_code = "breaker_open"});
    expect_why("waits for a cause outside this event (breaker_open");
}

TEST(a_pending_event_is_judged_by_the_time_of_its_next_attempt)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.first_sent_us = NOW - 24 * HOUR + 300 * SECOND + 10 * SECOND; /* usable now, not in 20 s */
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_LOOK_UP);
    event.next_attempt_us = NOW + 5 * SECOND;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_ATTEMPT);
}

TEST(an_event_that_is_overdue_beside_a_worker_is_a_riddle)
{
    struct event event = event_of(OUTBOX_PENDING);
    event.next_attempt_us = NOW - SECOND;
    look(&event, &nothing);
    expect_why("it is due: the next worker");
    event.next_attempt_us = NOW - HOUR;
    look(&event, &nothing);
    expect_why("although 1 worker runs and holds 0 events in 128 slots");
}

TEST(a_held_event_is_waited_for_until_its_lease_ends)
{
    struct event event = event_of(OUTBOX_PROCESSING);
    event.lease_owner = "host/1";
    event.lease_until_us = NOW + 1;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_WAIT);
    ck_assert_int_eq(outlook.at_us, NOW + 1);
    expect_why("host/1");
    event.lease_until_us = NOW;
    look(&event, &nothing);
    ck_assert_int_eq(outlook.action, OUTLOOK_TAKE_OVER);
}

TEST(a_final_event_has_no_future)
{
    static const enum outbox_status final[] = {OUTBOX_COMPLETED, OUTBOX_REJECTED};
    for (size_t i = 0; i < ARRAY_SIZE(final); i++) {
        struct event event = event_of(final[i]);
        look(&event, &nothing);
        ck_assert_int_eq(outlook.action, OUTLOOK_NONE);
        ck_assert_int_eq(outlook.at_us, 0);
        ck_assert_str_ne(outlook.why, "");
    }
}

/* Story: an attempt was put off because the database was slow (lease_too_short), and explain showed the operator that
 * the code came from the issuer. */
TEST(no_code_that_the_worker_writes_is_taken_for_a_peers_own)
{
    struct event event = event_of(OUTBOX_FAILED);
    char text[OUTLOOK_CODE_SIZE];
#define X(name, code, meaning)         \
    outlook_code(&event, #code, text); \
    ck_assert_str_eq(text, meaning);
    OUTBOX_CAUSES(X)
#undef X
    outlook_code(&event, "lease_too_short", text);
    ck_assert_ptr_null(strstr(text, "own"));
}

TEST(every_reason_of_ours_has_words)
{
    struct event event = event_of(OUTBOX_FAILED);
    char text[OUTLOOK_CODE_SIZE];
#define X(code, detail, meaning)       \
    outlook_code(&event, #code, text); \
    ck_assert_str_eq(text, meaning);
    OUTBOX_REASONS(X)
#undef X
    outlook_code(&event, "issuer_http_429", text);
    ck_assert_str_eq(text, "the issuer answered 429: it asks us to slow down");
    outlook_code(&event, "core_http_401", text);
    ck_assert_ptr_nonnull(strstr(text, "core-api answered 401: it does not accept our credentials"));
    outlook_code(&event, "issuer_http_x", text);
    ck_assert_str_eq(text, "the code is the issuer's or core-api's own");
}

TESTS_BETWEEN(ctl_outlook, set_up, NULL)
