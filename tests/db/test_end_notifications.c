/* The story: an end of a card request is on the list of notifications as soon as it is committed, whether or not a
 * worker of the route runs. A claim makes one event of each end. Its payload is what was so at that end, and its id and
 * its number rise in the order of the ends, whatever the clock does. An end whose notification cannot be made stops no
 * other one, and no end leaves the list without an event or a note. */
#include "tests/db/outbox_calls.h"
#include "tests/support/suite.h"

static void open_end_notifications(void)
{
    set_up();
    database_run(owner, "TRUNCATE statistics_changes, operator_actions, lost_events, end_notifications, routes, "
                        "route_workers");
    database_run(worker, "SELECT issuing.note_routes('worker-1', '{CARD_REQUEST_ENDED}', '{f}', '{f}', '{1000}', "
                         "'{10}', '{f}')");
}

/* A claim of ends; the number of events that it hands out. */
static int tell(struct pg_sync *db, int most, bool is_ordered)
{
    return (int)database_int(
        db,
        "SELECT cardinality(events) FROM issuing.claim(gen_random_uuid(), %d, 3600000, 'worker-1', NULL, "
        "100, false, 'CARD_REQUEST_ENDED', %s)",
        most, is_ordered ? "true" : "false");
}

static int64_t listed(const char *condition)
{
    return database_int(owner, "SELECT coalesce(sum(cardinality(ids)), 0) FROM end_notifications WHERE %s", condition);
}

static int64_t notified(const char *condition)
{
    return database_int(owner, "SELECT count(*) FROM outbox_events e WHERE event_type = 'CARD_REQUEST_ENDED' AND %s",
                        condition);
}

static struct uuid ended(const char *user, const char *status)
{
    struct uuid token, event = claimed_event(user, &token);
    struct end end = {.event = event, .token = token, .status = status, .reason_code = "why"};
    ck_assert_int_eq(strcmp(status, "COMPLETED") == 0 ? complete(&event, &token) : finish(&end), 1);
    return event;
}

static void end_again(const struct uuid *event)
{
    struct uuid token = uuid4_make();
    database_exec(owner, "SELECT issuing.replay('%s', NULL, 'a', 'b', NULL, 'why')", text_of(event));
    ck_assert_int_eq(claim_all(&token), 1);
    ck_assert_int_eq(complete(event, &token), 1);
}

/* FAILED 1, then COMPLETED 2, with rising ids. */
static void expect_in_order(const struct uuid *event)
{
    ck_assert_int_eq(database_int(owner,
                                  "SELECT (string_agg(concat_ws(' ', payload #>> '{data,status}', "
                                  "payload #>> '{data,end}', payload #>> '{data,reason,code}'), ', ' ORDER BY id) = "
                                  "'FAILED 1 why, COMPLETED 2')::int FROM outbox_events WHERE payload #>> "
                                  "'{data,id}' = '%s'",
                                  text_of(event)),
                     1);
}

TEST(what_was_said_at_an_end_is_told_though_the_request_goes_on)
{
    struct uuid event = ended("alice", "FAILED");
    end_again(&event);
    ck_assert_int_eq(tell(worker, 100, false), 2);
    expect_in_order(&event);
    ck_assert_int_eq(
        notified("payload ->> 'type' = 'card_request.ended' AND payload #>> '{data,user_id}' = 'alice' AND "
                 "payload ->> 'timestamp' = payload #>> '{data,updated_at}' AND status = 'PROCESSING' AND "
                 "retry_count = 1 AND first_sent_at = updated_at AND next_attempt_at = lease_until"),
        2);
    ck_assert_int_eq(listed("true"), 0);
    ck_assert_int_eq(tell(worker, 100, false), 0);
}

TEST(ids_follow_the_ends_though_the_clock_steps_back)
{
    for (int ordered = 0; ordered < 2; ordered++) {
        struct uuid event = ended(ordered ? "bob" : "alice", "FAILED");
        (void)tell(worker, 100, ordered);
        /* Its event was made an hour ahead of the clock. */
        database_exec(owner,
                      "UPDATE outbox_events SET id = overlay(uuid7()::text placing left(uuid7_least(now() + interval "
                      "'1 h')::text, 13) from 1 for 13)::uuid WHERE payload #>> '{data,id}' = '%s'",
                      text_of(&event));
        end_again(&event);
        (void)tell(worker, 100, ordered);
        expect_in_order(&event);
    }
    /* In order, another end of the user follows too; the first one is handed out, the others are held. */
    ended("bob", "COMPLETED");
    ck_assert_int_eq(tell(worker, 100, true), 0);
    ck_assert_int_eq(notified("user_id = 'bob' AND id > uuid7_least(now() + interval '59 min')"), 3);
    ck_assert_int_eq(notified("user_id = 'bob' AND held_behind IS NOT NULL"), 2);
}

TEST(an_end_waits_for_the_earlier_one_of_its_request_that_another_claim_has)
{
    struct uuid event = ended("alice", "FAILED");
    database_run(other, "BEGIN");
    ck_assert_int_eq(tell(other, 100, false), 1);
    end_again(&event);
    ended("bob", "COMPLETED");
    ck_assert_int_eq(tell(worker, 100, false), 0); /* not alice's, and what is behind it another time */
    database_run(other, "ROLLBACK");               /* as if that worker were killed */
    ck_assert_int_eq(tell(worker, 100, false), 3);
    expect_in_order(&event);
    /* A whole row belongs to one of two claims. */
    ended("carol", "COMPLETED");
    ended("dave", "COMPLETED");
    database_run(other, "BEGIN");
    ck_assert_int_eq(tell(other, 1, false), 1);
    database_run(other, "COMMIT");
    ck_assert_int_eq(tell(worker, 100, false), 1);
    ck_assert_int_eq(notified("true"), 5);
    /* In order, whoever has the first one takes all. */
    ended("erin", "COMPLETED");
    ended("frank", "COMPLETED");
    database_run(owner,
                 "BEGIN; SELECT FROM end_notifications WHERE n = (SELECT min(n) FROM end_notifications) FOR UPDATE");
    ck_assert_int_eq(tell(worker, 100, true), 0);
    database_run(owner, "ROLLBACK");
    ck_assert_int_eq(tell(worker, 100, true), 2);
}

TEST(a_claim_takes_what_it_has_room_for_and_retries_have_half)
{
    struct end ends[10];
    struct uuid token = uuid4_make();
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        ends[i] = (struct end){.event = add_event("alice", 1), .token = token, .status = "REJECTED"};
    ck_assert_int_eq(claim_all(&token), ARRAY_SIZE(ends));
    ck_assert_int_eq(finish_many(ends, ARRAY_SIZE(ends)), ARRAY_SIZE(ends));
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM end_notifications"), 1); /* one row a call */
    ck_assert_int_eq(tell(worker, 4, false), 4);
    ck_assert_int_eq(listed("true"), 6);
    database_run(owner, "UPDATE outbox_events SET status = 'PENDING', lease_token = NULL, lease_until = NULL, "
                        "next_attempt_at = now() WHERE status = 'PROCESSING'");
    ck_assert_int_eq(tell(worker, 4, false), 4);
    ck_assert_int_eq(listed("true"), 4);
    ck_assert_int_eq(tell(worker, 100, false), 6);
    ck_assert_int_eq(notified("status = 'PROCESSING'"), 10);
    ck_assert_int_eq(database_int(owner, "SELECT count(DISTINCT payload #>> '{data,id}') FROM outbox_events WHERE "
                                         "event_type = 'CARD_REQUEST_ENDED'"),
                     10);
}

TEST(an_end_that_cannot_be_told_stops_no_other_and_is_shown)
{
    struct uuid gone = ended("alice", "COMPLETED"), wide = ended("bob", "REJECTED"), odd = ended("carol", "COMPLETED");
    ended("dave", "COMPLETED");
    database_exec(owner, "DELETE FROM outbox_events WHERE id = '%s'", text_of(&gone));
    database_exec(owner, "UPDATE outbox_events SET user_id = repeat('u', 200) WHERE id = '%s'", text_of(&wide));
    database_run(owner, "ALTER TABLE outbox_events ADD CONSTRAINT poison CHECK (event_type = 'CARD_ISSUE' OR user_id "
                        "<> 'carol') NOT VALID");
    ck_assert_int_eq(tell(worker, 100, false), 1);
    database_run(owner, "ALTER TABLE outbox_events DROP CONSTRAINT poison");
    ck_assert_int_eq(notified("user_id = 'dave'"), 1);
    ck_assert_int_eq(listed("refused IS NOT NULL"), 3);
    ck_assert_int_eq(listed("refused LIKE '%%poison%%'"), 1);
    ck_assert_int_eq(tell(worker, 100, false), 0);
    database_exec(owner, "UPDATE end_notifications SET refused = NULL WHERE ids = '{%s}'", text_of(&odd));
    ck_assert_int_eq(tell(worker, 100, false), 1);
}

/* The clock was set back by more than a day: the id of an end follows the newest one of its user, into the range of a
 * plan. The end is not given up for that: the next pass of housekeeping withdraws the plan. */
TEST(a_plan_of_housekeeping_keeps_an_end_on_the_list_and_is_withdrawn)
{
    static const char pass[] =
        "SELECT count(*) FROM issuing.run_housekeeping(interval '1 d', interval '1 d', interval '1 d', interval '1 h')";
    database_run(owner, "DO $$ DECLARE p text; BEGIN FOR p IN SELECT name FROM partitions LOOP "
                        "EXECUTE format('DROP TABLE %I', p); END LOOP; DELETE FROM partitions; END $$");
    for (int is_ordered = 0; is_ordered < 2; is_ordered++) {
        ended("alice", "COMPLETED");
        database_run(
            owner,
            "INSERT INTO partition_plans (parent, from_at, to_at, planned_at) VALUES ('outbox_events', now() + "
            "interval '1 d', now() + interval '9 d', now()); "
            "SELECT default_promise(parent || '_default', now() - interval '1 min', to_at) FROM partition_plans");
        ck_assert_int_eq(tell(worker, 100, is_ordered), 0);
        ck_assert_int_eq(listed("refused IS NULL"), 1);
        ck_assert_int_eq(listed("refused IS NOT NULL"), 0);
        (void)database_int(worker, pass);
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM pg_constraint WHERE conname = 'default_promise'"),
                         0);
        ck_assert_int_eq(tell(worker, 100, is_ordered), 1);
        ck_assert_int_eq(notified("true"), is_ordered + 1);
        database_run(owner, "UPDATE outbox_events SET status = 'COMPLETED', lease_token = NULL, lease_until = NULL, "
                            "completed_at = now() WHERE status = 'PROCESSING'");
    }
}

TEST(what_cannot_be_written_about_a_lost_event_undoes_no_sweep)
{
    struct uuid token, event = claimed_event("alice", &token);
    database_run(owner, "UPDATE outbox_events SET lost_count = 4, lease_until = now() - interval '1 s', "
                        "next_attempt_at = now() - interval '1 s'; "
                        "ALTER TABLE statistics_changes ADD CONSTRAINT poison CHECK (status <> 'FAILED') NOT VALID");
    ck_assert_int_eq(sweep(worker, 10), 1);
    database_run(owner, "ALTER TABLE statistics_changes DROP CONSTRAINT poison");
    ck_assert_int_eq(fact(&event, "(e.status = 'FAILED' AND e.reason_code = 'worker_lost')"), 1);
    ck_assert_int_eq(listed("refused LIKE '%%worker_lost%%poison%%'"), 1);
}

TEST(a_request_is_kept_while_its_end_waits_to_be_told)
{
    static const char kept[] = "SELECT (retention_at_least('events', '1 day') > interval '100 days')::int";
    ended("alice", "COMPLETED");
    ck_assert_int_eq(database_int(owner, kept), 0);
    database_run(owner, "UPDATE end_notifications SET ended_at = now() - interval '100 days'");
    ck_assert_int_eq(database_int(owner, kept), 1);
    ck_assert_int_eq(database_int(owner, "SELECT events FROM ends_waiting"), 1);
    ck_assert_int_eq(tell(worker, 100, false), 1);
    ck_assert_int_eq(database_int(owner, kept), 0);
    ck_assert_int_eq(notified("created_at < now() - interval '99 days'"), 1); /* it has waited since its end */
}

TESTS_BETWEEN(end_notifications, open_end_notifications, tear_down)
