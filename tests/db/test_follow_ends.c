/* The story: what follows from the end of an event is written in the transaction that ends it. The event keeps the
 * answer of its peer; each end of a card request is put on the list of notifications, where that route is
 * registered; and the event that waits for the one that ended is due. No row, however odd, fails the ends of the
 * others. Operators and sweeps end events too. What the claim makes of the list is in test_end_notifications.c. */
#include "tests/db/outbox_calls.h"
#include "tests/support/suite.h"

static void open_ends(void)
{
    set_up();
    database_run(owner, "TRUNCATE statistics_changes, operator_actions, marks, lost_events, event_reissues, "
                        "end_notifications, routes, route_workers");
}

/* Workers deliver this type. */
static void route(const char *type, bool is_ordered)
{
    database_exec(owner,
                  "SELECT note_routes('worker-1', ARRAY['%s'], ARRAY[%s], ARRAY[false], ARRAY[1000::int8], "
                  "ARRAY[10::int8], ARRAY[false])",
                  type, is_ordered ? "true" : "false");
}

/* A claimed event of this type; the token. */
static struct uuid claimed(const char *type, const char *user, struct uuid *ret_token)
{
    struct uuid event = uuid7_make();
    *ret_token = uuid4_make();
    database_exec(owner, /* as our functions make them: one of the types is nobody else's */
                  "SET ROLE issuing_owner; INSERT INTO outbox_events (id, event_type, user_id, payload, status, "
                  "lease_token, lease_until, "
                  "retry_count, first_sent_at) VALUES ('%s', '%s', '%s', '{}', 'PROCESSING', '%s', now() + "
                  "interval '1 h', 1, now()); RESET ROLE",
                  text_of(&event), type, user, text_of(ret_token));
    return event;
}

static int64_t count(const char *condition)
{
    return database_int(owner, "SELECT count(*) FROM outbox_events e WHERE %s", condition);
}

/* The events that the claim makes of the ends of this request. */
static int64_t notified(const struct uuid *event, const char *condition)
{
    database_run(worker, "SELECT FROM issuing.claim(gen_random_uuid(), 100, 3600000, 'worker-1', NULL, 100, false, "
                         "'CARD_REQUEST_ENDED', false)");
    return database_int(owner,
                        "SELECT count(*) FROM outbox_events e WHERE e.event_type = 'CARD_REQUEST_ENDED' AND "
                        "e.payload #>> '{data,id}' = '%s' AND %s",
                        text_of(event), condition);
}

/* ---- kept answers ---- */

TEST(an_event_keeps_the_answer_and_one_that_cannot_be_kept_fails_nothing)
{
    static const struct {
        const char *answer;
        bool is_kept;
    } answers[] = {
        {"{\"charge\": 7}", true},
        {"[1, \"e500\", 1e99]", true},
        {"null", true},
        {"{\"a\":", false},
        {"", false},
        {"\"\\u0000\"", false},
        {"[1e131071]", false},
        {"[1E+01000]", false},
        {"{\"a\":1}{}", false},
        {"\"\\ud800\"", false},
        {"[1e-99999]", false},
    };
    struct end ends[ARRAY_SIZE(answers)];
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct uuid token, event = claimed("ORDER", "alice", &token);
        ck_assert_int_eq(deliver(&event, &token, answers[i].answer), 1);
        ck_assert_msg(fact(&event, "(e.result IS NOT NULL)") == answers[i].is_kept, "%s", answers[i].answer);
        ends[i] = (struct end){.status = "COMPLETED", .result = answers[i].answer};
        ends[i].event = claimed("ORDER", "alice", &ends[i].token);
    }
    ck_assert_int_eq(finish_many(ends, ARRAY_SIZE(ends)), ARRAY_SIZE(ends));
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++)
        ck_assert_msg(fact(&ends[i].event, "(e.result IS NOT NULL)") == answers[i].is_kept, "%s", answers[i].answer);
    ck_assert_int_eq(count("e.result ->> 'charge' = '7' AND e.status = 'COMPLETED'"), 2);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE step = 'deliver'"),
                     ARRAY_SIZE(answers));
}

TEST(an_answer_of_8_kib_is_kept_and_no_longer_one)
{
    static char most[8194], more[8195];
    snprintf(most, sizeof(most), "\"%8190s\"", "x");
    snprintf(more, sizeof(more), "\"%8191s\"", "x");
    struct uuid token, event = claimed("ORDER", "alice", &token);
    ck_assert_int_eq(deliver(&event, &token, most), 1);
    ck_assert_int_eq(fact(&event, "octet_length(e.result::text)"), 8192);
    event = claimed("ORDER", "alice", &token);
    ck_assert_int_eq(deliver(&event, &token, more), 1);
    ck_assert_int_eq(fact(&event, "(e.result IS NULL)"), 1);
}

/* ---- CARD_REQUEST_ENDED ---- */

TEST(each_end_of_a_card_request_has_its_notification_where_that_is_delivered)
{
    struct uuid token, event = claimed_event("alice", &token);
    ck_assert_int_eq(complete(&event, &token), 1);
    ck_assert_int_eq(count("e.event_type <> 'CARD_ISSUE'"), 0); /* nobody delivers it */
    route("CARD_REQUEST_ENDED", false);
    event = claimed_event("bob", &token);
    struct end again = {.event = event, .token = token, .status = "PENDING"};
    ck_assert_int_eq(finish(&again), 1);
    ck_assert_int_eq(count("e.event_type = 'CARD_REQUEST_ENDED'"), 0); /* no end */
    token = uuid4_make();
    ck_assert_int_eq(claim_all(&token), 1);
    ck_assert_int_eq(complete(&event, &token), 1);
    ck_assert_int_eq(complete(&event, &token), 0); /* the fence */
    ck_assert_int_eq(notified(&event, "e.user_id = 'bob' AND e.payload #>> '{data,status}' = 'COMPLETED' AND e.payload "
                                      "#> '{data,reason}' = 'null'"),
                     1);
    static const char *const statuses[] = {"COMPLETED", "REJECTED", "FAILED"};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        event = claimed_event("carol", &token);
        struct end end = {.event = event, .token = token, .status = statuses[i], .reason_code = i > 0 ? "why" : NULL};
        ck_assert_int_eq(finish(&end), 1);
        ck_assert_int_eq(notified(&event, i > 0 ? "e.payload #>> '{data,reason,code}' = 'why'" : "true"), 1);
    }
    ck_assert_int_eq(count("e.event_type = 'CARD_REQUEST_ENDED'"), 4);
    /* An event that tells is not a card request, and its end tells nothing. */
    struct uuid event_of_route = claimed("CARD_REQUEST_ENDED", "dave", &token);
    ck_assert_int_eq(deliver(&event_of_route, &token, NULL), 1);
    ck_assert_int_eq(count("e.event_type = 'CARD_REQUEST_ENDED'"), 5);
}

/* A client reads another reason from now on. */
TEST(a_new_reason_of_a_failed_event_has_its_notification)
{
    route("CARD_REQUEST_ENDED", false);
    struct uuid event = ended_event("alice", "FAILED", "attempts_exhausted");
    end_mark(&event, "reconcile", "duplicate");
    ck_assert_int_eq(notified(&event, "e.payload #>> '{data,reason,code}' = 'issuer_duplicate'"), 1);
    ck_assert_int_eq(notified(&event, "true"), 2);
}

TEST(ends_by_operators_marks_and_sweeps_have_theirs_too)
{
    route("CARD_REQUEST_ENDED", false);
    struct uuid token, event = add_event("alice", 1);
    act("cancel", &event, "'detail',");
    ck_assert_int_eq(notified(&event, "e.payload #>> '{data,reason,code}' = 'cancelled'"), 1);
    event = ended_event("bob", "FAILED", "attempts_exhausted");
    act("resolve", &event, "true, 0, 'detail',");
    ck_assert_int_eq(notified(&event, "true"), 2); /* FAILED, REJECTED */
    event = ended_event("carol", "FAILED", "attempts_exhausted");
    act("replay", &event, "");
    token = uuid4_make();
    ck_assert_int_eq(claim_all(&token), 1);
    ck_assert_int_eq(complete(&event, &token), 1);
    ck_assert_int_eq(notified(&event, "true"), 2);
    /* In the order in which it ended. */
    ck_assert_int_eq(
        database_int(owner,
                     "SELECT count(*) FROM (SELECT array_agg(payload #>> '{data,status}' ORDER BY id) AS s "
                     "FROM outbox_events WHERE payload #>> '{data,id}' = '%s') x WHERE s = "
                     "'{FAILED,COMPLETED}'",
                     text_of(&event)),
        1);
    event = ended_event("dave", "FAILED", "outcome_unknown");
    end_mark(&event, "reconcile", "cancelled_at_issuer");
    ck_assert_int_eq(notified(&event, "e.payload #>> '{data,reason,code}' = 'card_cancelled'"), 1);
    event = ended_event("erin", "FAILED", "issuer_key_expired");
    end_mark(&event, "reissue", "reissued");
    ck_assert_int_eq(notified(&event,
                              "e.payload #>> '{data,reason,code}' = 'reissued' AND EXISTS (SELECT FROM "
                              "event_reissues r WHERE e.payload #>> '{data,reason,replaced_by}' = r.new_id::text "
                              "AND e.payload #>> '{data,id}' = r.old_id::text)"),
                     1);
    token = uuid4_make();
    ck_assert_int_eq(claim_all(&token), 1); /* the new event */
    event = claimed_event("frank", &token);
    database_exec(owner,
                  "UPDATE outbox_events SET lost_count = 4, lease_until = now() - interval '1 s', next_attempt_at "
                  "= now() - interval '1 s' WHERE id = '%s'",
                  text_of(&event));
    ck_assert_int_eq(sweep(worker, 10), 1);
    ck_assert_int_eq(notified(&event, "e.payload #>> '{data,reason,code}' = 'worker_lost'"), 1);
    /* The housekeeping moves rows of attempts. */
    database_run(owner, "WITH moved AS (DELETE FROM outbox_attempts RETURNING *) INSERT INTO outbox_attempts SELECT * "
                        "FROM moved");
    ck_assert_int_eq(notified(&event, "true"), 1);
}

TEST(a_row_beyond_all_measure_fails_no_end_of_its_batch)
{
    /* Rows that were there before the bounds of the table, or that somebody has changed by hand. */
    static const char *const odd[] = {
        "user_id = repeat('u', 200)",
        "created_at = 'infinity'",
        "created_at = '-infinity'",
        "created_at = '290000-01-01'",
        "payload = jsonb_build_object('kind', repeat(chr(7), 60000))",
        "payload = jsonb_build_object('kind', jsonb_build_array(repeat('x', 60000)))",
        "payload = '[]'",
        "payload = '7'",
        "traceparent = repeat('t', 3000)",
    };
    route("CARD_REQUEST_ENDED", false);
    struct end ends[2 * ARRAY_SIZE(odd)];
    struct uuid token = uuid4_make();
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        ends[i] = (struct end){
            .event = add_event("alice", 1), .token = token, .status = "FAILED", .reason_code = "payload_invalid"};
    ck_assert_int_eq(claim_all(&token), ARRAY_SIZE(ends));
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
        database_exec(owner, "UPDATE outbox_events SET %s WHERE id = '%s'", odd[i], text_of(&ends[2 * i].event));
    ck_assert_int_eq(finish_many(ends, ARRAY_SIZE(ends)), ARRAY_SIZE(ends));
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        ck_assert_int_eq(notified(&ends[i].event, "true"), i > 0); /* the first has a user id that no event may have */
}

TEST(ids_of_one_transaction_are_in_order)
{
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM (SELECT id < lag(id) OVER (ORDER BY n) AS is_less FROM "
                                         "(SELECT g AS n, uuid7() AS id FROM generate_series(1, 20000) g) u) x WHERE "
                                         "is_less"),
                     0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM (SELECT uuid7() AS id) u WHERE abs(extract(epoch FROM "
                                         "clock_timestamp() - uuid7_time(id))) < 60 AND id::text ~ "
                                         "'^.{14}7.{4}[89ab]'"),
                     1);
}

/* ---- order ---- */

/* Waits for `behind`. */
static struct uuid held_event(const char *user, const struct uuid *behind)
{
    struct uuid event = uuid7_make();
    database_exec(owner,
                  "INSERT INTO outbox_events (id, event_type, user_id, payload, next_attempt_at, held_behind) "
                  "VALUES ('%s', 'ORDER', '%s', '{}', now() + interval '1 h', '%s')",
                  text_of(&event), user, text_of(behind));
    return event;
}

static bool is_woken(const struct uuid *event)
{
    return fact(event, "(e.held_behind IS NULL AND e.next_attempt_at <= now())") == 1;
}

TEST(what_waits_for_an_event_is_due_when_that_one_is_completed_or_rejected)
{
    route("ORDER", true);
    struct uuid token, first = claimed("ORDER", "alice", &token), second = held_event("alice", &first);
    ck_assert_int_eq(deliver(&first, &token, NULL), 1);
    ck_assert(is_woken(&second));
    static const struct {
        const char *status;
        bool wakes;
    } statuses[] = {{"COMPLETED", true}, {"REJECTED", true}, {"FAILED", false}, {"PENDING", false}};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        first = claimed("ORDER", "bob", &token);
        second = held_event("bob", &first);
        struct end end = {.event = first, .token = token, .status = statuses[i].status};
        ck_assert_int_eq(finish(&end), 1);
        ck_assert_msg(is_woken(&second) == statuses[i].wakes, "%s", statuses[i].status);
    }
    first = claimed("ORDER", "carol", &token);
    second = held_event("carol", &first);
    struct uuid third = held_event("carol", &second);
    struct end failed = {.event = first, .token = token, .status = "FAILED"};
    ck_assert_int_eq(finish(&failed), 1);
    act("resolve", &first, "true, 0, 'detail',");
    ck_assert(is_woken(&second) && !is_woken(&third));
    act("cancel", &second, "'detail',");
    ck_assert(is_woken(&third));
    first = add_event("dave", 1);
    database_exec(owner, "UPDATE outbox_events SET event_type = 'ORDER', held_behind = '%s' WHERE id = '%s'",
                  text_of(&third), text_of(&first));
    act("cancel", &first, "'detail',");
    ck_assert_int_eq(fact(&first, "(e.held_behind IS NULL)"), 1); /* it waits for nothing any more */
}

/* Whether this, by the worker, needs the lock of alice's orders, which another session has. */
static bool needs_order(const char *text)
{
    struct err err = {.kind = ERR_NONE};
    database_run(other, "BEGIN; SELECT issuing.lock_orders('{ORDER}', '{alice}', true)");
    bool is_done = pg_sync_exec(worker, text, &err);
    database_run(other, "ROLLBACK");
    ck_assert_msg(is_done || strcmp(err.sqlstate, "ISBSY") == 0, "%s", err.message);
    return !is_done;
}

TEST(an_end_of_an_ordered_type_gives_way_to_a_claim_that_holds_an_event_back_and_no_other_end_does)
{
    char text[1024];
    struct uuid token, event = claimed("ORDER", "alice", &token);
    for (int is_ordered = 0; is_ordered < 2; is_ordered++) {
        route("ORDER", is_ordered);
        snprintf(text, sizeof(text),
                 "BEGIN; SELECT issuing.complete('{%s}', '{%s}', 'w', '{5}', 'deliver', NULL); ROLLBACK",
                 text_of(&event), text_of(&token));
        ck_assert_int_eq(needs_order(text), is_ordered);
        database_run(worker, "ROLLBACK");
        snprintf(text, sizeof(text),
                 "BEGIN; SELECT issuing.end_attempts(ARRAY[ROW('%s', '%s', 'REJECTED', 0, false, false, false, 'why', "
                 "'why', 'why', "
                 "'deliver', 'refused', 'why', 'why', false, 5, NULL, NULL, false, NULL, NULL, NULL, "
                 "NULL)::issuing.attempt_end], "
                 "'w'); ROLLBACK",
                 text_of(&event), text_of(&token));
        ck_assert_int_eq(needs_order(text), is_ordered);
        database_run(worker, "ROLLBACK");
    }
    /* A card request of the same user is in no order. */
    event = claimed_event("alice", &token);
    snprintf(text, sizeof(text), "SELECT issuing.complete('{%s}', '{%s}', 'w', '{5}', 'link', NULL)", text_of(&event),
             text_of(&token));
    ck_assert(!needs_order(text));
    /* Operators end events of an order under the same lock. */
    pg_sync_closep(&worker);
    worker = database_open(NULL);
    event = add_event("alice", 1);
    database_exec(owner, "UPDATE outbox_events SET event_type = 'ORDER' WHERE id = '%s'", text_of(&event));
    snprintf(text, sizeof(text), "SELECT issuing.cancel('%s', NULL, 'detail', 'actor', NULL, NULL, 'why')",
             text_of(&event));
    ck_assert(needs_order(text));
    event = claimed("ORDER", "alice", &token);
    database_exec(owner,
                  "UPDATE outbox_events SET status = 'FAILED', lease_token = NULL, lease_until = NULL WHERE id = '%s'",
                  text_of(&event));
    snprintf(text, sizeof(text), "SELECT issuing.resolve('%s', NULL, true, 0, 'detail', 'actor', NULL, NULL, 'why')",
             text_of(&event));
    ck_assert(needs_order(text));
}

TEST(deferrals_by_a_route_are_the_peers_and_not_ours)
{
    struct uuid token, event = claimed("ORDER", "alice", &token);
    struct end end = {
        .event = event, .token = token, .status = "PENDING", .give_back = true, .cause = "route_unreachable"};
    ck_assert_int_eq(finish(&end), 1);
    for (int i = 0; i < 2; i++) {
        database_exec(owner,
                      "UPDATE outbox_events SET status = 'PROCESSING', lease_token = '%s', lease_until = now() + "
                      "interval '1 h', retry_count = 1 WHERE id = '%s'",
                      text_of(&token), text_of(&event));
        end.cause = i == 0 ? "database_unreachable" : "route_unreachable";
        ck_assert_int_eq(finish(&end), 1);
        ck_assert_int_eq(fact(&event, "(e.deferral_code = 'route_unreachable')"), 1);
    }
    ck_assert_int_eq(fact(&event, "e.deferral_count"), 2); /* the row of deferrals goes on */
}

TESTS_BETWEEN(follow_ends, open_ends, tear_down)
