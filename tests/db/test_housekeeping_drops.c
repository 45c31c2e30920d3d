/* The story: expired rows leave by DROP of a partition, so every row that must stay has to be known before. An
 * unfinished request, an open question, its history and its key stay, whenever they end. Nothing is half done when
 * another session holds a lock, and what cannot be done does not stop the rest of the pass. */
#include "tests/db/housekeeping_calls.h"

#include "tests/support/suite.h"

TEST(an_event_without_a_key_or_of_another_time_does_not_keep_keys)
{
    add_partition("idempotency_keys", 9, 8);
    add_partition("idempotency_keys", 8, 7);
    /* An event of another service that is due in a hundred years, and an open one with a key, of the younger
     * partition's time. */
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, next_attempt_at, created_at) "
                        "VALUES ('service', '{}', now() + interval '100 years', date_trunc('day', now()) - interval '8 "
                        "days 12 hours')");
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, idempotency_key, created_at) "
                        "VALUES ('alice', '{}', 'k', date_trunc('day', now()) - interval '7 days 12 hours')");
    (void)passes(&usual);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions WHERE parent = 'idempotency_keys' "
                                         "AND settled_at IS NOT NULL AND to_at < now() - interval '7 days 12 hours'"),
                     1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions WHERE parent = 'idempotency_keys' "
                                         "AND settled_at IS NULL AND to_at < now()"),
                     1);
}

TEST(a_partition_is_dropped_when_it_is_settled_and_its_retention_is_over)
{
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("rate_limit_log", 9, 8);
    database_run(owner, "INSERT INTO rate_limit_log SELECT date_trunc('day', now()) - interval '8 days 1 h', "
                        "gen_random_uuid(), true, 'old' "
                        "FROM generate_series(1, 7)");
    expect_pass(""); /* settled from now on, however long ago its time was */
    ck_assert_int_eq(settled("rate_limit_log"), 1);
    settle("23 h 50 min");
    expect_pass("");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM rate_limit_log"), 7);
    settle("24 h 10 min");
    expect_pass("dropped rate_limit_log 0");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM rate_limit_log"), 0);
    ck_assert_int_eq(partition_count("rate_limit_log"), 1);
    expect_list_is_true();
}

TEST(nothing_is_settled_while_something_of_its_time_is_unfinished)
{
    static const char *const unfinished[] = {
        "status = 'PENDING', lease_token = NULL, lease_until = NULL, completed_at = NULL",
        "status = 'PROCESSING', lease_token = gen_random_uuid(), lease_until = now(), completed_at = NULL"};
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("outbox_events", 120, 110);
    add_partition("idempotency_keys", 120, 110);
    (void)add_event("u", 115, "PENDING", "115 days");
    for (size_t i = 0; i < ARRAY_SIZE(unfinished); i++) {
        database_exec(owner, "UPDATE outbox_events SET %s", unfinished[i]);
        expect_pass("");
        ck_assert_int_eq(settled("outbox_events") + settled("idempotency_keys"), 0);
    }
    database_run(owner, "UPDATE outbox_events SET status = 'REJECTED', lease_token = NULL, lease_until = NULL");
    expect_pass("");
    ck_assert_int_eq(settled("outbox_events") + settled("idempotency_keys"), 2);
}

TEST(an_open_event_of_a_type_that_is_delivered_keeps_its_partition_and_of_another_type_only_itself)
{
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("outbox_events", 120, 110);
    struct uuid id = add_event("alice", 115, "PENDING", "114 days");
    database_run(owner, "UPDATE outbox_events SET event_type = 'ORDER', idempotency_key = NULL");
    database_run(worker, "SELECT issuing.note_routes('w', '{ORDER}', '{f}', '{f}', '{1}', '{1}', '{f}')");
    expect_pass("");
    ck_assert_int_eq(settled("outbox_events"), 0);
    database_run(owner, "DELETE FROM routes"); /* nobody delivers it any more */
    expect_pass("");
    ck_assert_int_eq(settled("outbox_events"), 1);
    settle("91 days");
    expect_pass("dropped outbox_events 1");
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM outbox_events_default WHERE id = '%s' AND status = 'PENDING'",
                                  text_of(&id)),
                     1);
}

/* A reminder of next year, of a type that is delivered. */
TEST(an_event_of_a_far_time_keeps_no_partition_and_is_not_lost)
{
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("outbox_events", 120, 110);
    (void)add_event("alice", 115, "PENDING", "114 days");
    database_run(owner, "UPDATE outbox_events SET event_type = 'ORDER', idempotency_key = NULL, "
                        "run_at = now() + interval '89 days', next_attempt_at = now() + interval '89 days'");
    database_run(worker, "SELECT issuing.note_routes('w', '{ORDER}', '{f}', '{f}', '{1}', '{1}', '{f}')");
    expect_pass("");
    ck_assert_int_eq(settled("outbox_events"), 0); /* it is executed before the retention is over */
    database_run(owner, "UPDATE outbox_events SET run_at = now() + interval '9 years', "
                        "next_attempt_at = now() + interval '9 years'");
    expect_pass("");
    ck_assert_int_eq(settled("outbox_events"), 1);
    settle("91 days");
    expect_pass("dropped outbox_events 1");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events_default WHERE status = 'PENDING' AND "
                                         "due_at = run_at AND run_at > now() + interval '8 years'"),
                     1);
    database_run(owner, "DELETE FROM routes");
}

TEST(nothing_is_settled_before_what_was_begun_in_its_time_can_have_committed)
{
    ck_assert_int_eq(passes(&usual), 4);
    database_run(owner,
                 "SELECT issuing.partition_add('rate_limit_log', now() - interval '1 day', now() - interval '20 s')");
    expect_pass("");
    ck_assert_int_eq(settled("rate_limit_log"), 0);
    database_run(owner, "UPDATE partitions SET to_at = now() - interval '61 s' WHERE to_at < now()");
    expect_pass("");
    ck_assert_int_eq(settled("rate_limit_log"), 1);
}

TEST(what_is_open_survives_the_drop_whole_with_its_history_and_its_key)
{
    static const char *const statuses[] = {"PENDING", "PROCESSING", "FAILED", "COMPLETED", "REJECTED"};
    static const char whole[] =
        "SELECT string_agg(to_jsonb(e)::text, ' ' ORDER BY id) FROM outbox_events e WHERE status IN "
        "('PENDING', 'PROCESSING', 'FAILED')";
    struct uuid ids[ARRAY_SIZE(statuses)];
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("outbox_events", 120, 110);
    add_partition("idempotency_keys", 120, 110);
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
        ids[i] = add_event(statuses[i], 115, statuses[i], "114 days");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events_default"), 0);
    char *before = database_text(owner, whole);
    settle("91 days");
    expect_pass("dropped outbox_events 3");
    expect_pass("dropped idempotency_keys 3");
    expect_pass("");
    expect_text(whole, before);
    free(before);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events"), 3);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events_default"), 3);
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE id = '%s'", text_of(&ids[i])),
                         i < 3);
        ck_assert_int_eq(
            database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE event_id = '%s'", text_of(&ids[i])), i < 3);
        expect_verdict(statuses[i], i < 3 ? "replayed" : "accepted");
    }
    expect_list_is_true();
}

/* An open question that is replayed after its partition was settled ends later than everything else in it. */
TEST(an_open_question_that_ended_lately_is_kept_for_the_retention_of_its_own_end)
{
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("outbox_events", 120, 110);
    add_partition("idempotency_keys", 120, 110);
    (void)add_event("ended-lately", 115, "FAILED", "114 days");
    (void)add_event("ended-long-ago", 115, "FAILED", "114 days");
    (void)add_event("completed", 115, "COMPLETED", "114 days");
    expect_pass(""); /* settled: a FAILED event is not open */
    ck_assert_int_eq(settled("outbox_events") + settled("idempotency_keys"), 2);
    settle("91 days");
    database_run(
        owner,
        "UPDATE outbox_events SET status = 'COMPLETED', updated_at = t, completed_at = t FROM (VALUES "
        "('ended-lately', now() - interval '23 h'), ('ended-long-ago', now() - interval '90 days 1 h')) v (u, t) "
        "WHERE user_id = u");
    expect_pass("dropped outbox_events 1");
    expect_pass("dropped idempotency_keys 1");
    expect_text("SELECT string_agg(user_id, ' ') FROM outbox_events", "ended-lately");
    expect_text("SELECT string_agg(user_id, ' ') FROM outbox_attempts", "ended-lately");
    expect_text("SELECT string_agg(user_id, ' ') FROM idempotency_keys", "ended-lately");
    expect_verdict("ended-lately", "replayed");
    /* From now on it is one of the rows that expire one by one. */
    expect_pass("");
    database_run(
        owner,
        "UPDATE outbox_events SET updated_at = t, completed_at = t FROM (SELECT now() - interval '25 h' AS t) v");
    expect_pass("expired idempotency_keys 1");
    expect_verdict("ended-lately", "accepted");
    database_run(owner, "UPDATE outbox_events SET updated_at = now() - interval '91 days' WHERE status = 'COMPLETED'");
    expect_pass("expired outbox_events 1");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_attempts"), 0);
}

TEST(a_partition_with_too_much_that_must_stay_is_left_alone)
{
    bool has_more;
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("outbox_events", 120, 110);
    database_run(
        owner,
        "INSERT INTO outbox_events (id, user_id, payload, status) SELECT (left(issuing.uuid7_least(now() - "
        "interval '115 days')::text, 14) || '7' || substr(gen_random_uuid()::text, 16))::uuid, 'many', '{}', 'FAILED' "
        "FROM generate_series(1, 10001)");
    ck_assert_str_eq(pass_of(worker, &usual, &has_more), "postponed outbox_events 0");
    ck_assert(!has_more);
    ck_assert_int_eq(settled("outbox_events"), 0);
    settle("91 days");
    ck_assert_str_eq(pass_of(worker, &usual, &has_more), "postponed outbox_events 0");
    ck_assert(!has_more);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events"), 10001);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events_default"), 0);
    expect_list_is_true();
    database_run(owner, "DELETE FROM outbox_events WHERE id = (SELECT min(id::text)::uuid FROM outbox_events)");
    expect_pass("dropped outbox_events 10000");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events_default"), 10000);
}

TEST(a_drop_that_would_have_to_wait_is_given_up_whole)
{
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("outbox_events", 120, 110);
    add_partition("idempotency_keys", 120, 110);
    (void)add_event("failed", 115, "FAILED", "114 days");
    (void)add_event("completed", 115, "COMPLETED", "114 days");
    settle("91 days");
    static const char *const in_the_way[] = {
        "BEGIN; SELECT count(*) FROM outbox_events",
        "BEGIN; UPDATE outbox_events SET last_error = 'somebody works' WHERE user_id = 'failed'",
        "BEGIN; SELECT count(*) FROM outbox_attempts", /* only the second of the two tables is held */
    };
    for (size_t i = 0; i < ARRAY_SIZE(in_the_way); i++) {
        database_run(other, in_the_way[i]);
        expect_pass(i ? "postponed outbox_events 0" : "postponed outbox_events 0; dropped idempotency_keys 1");
        database_run(other, "ROLLBACK");
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events"), 2);
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_attempts"), 2);
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events_default"), 0);
        ck_assert_int_eq(partition_count("outbox_events") + partition_count("outbox_attempts"), 4);
        expect_list_is_true();
    }
    expect_pass("dropped outbox_events 1");
    expect_list_is_true();
    expect_verdict("failed", "replayed");
}

TEST(a_pass_in_an_old_snapshot_is_refused)
{
    struct err err = {.kind = ERR_NONE};
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("outbox_events", 120, 110);
    settle("91 days");
    database_run(worker, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    (void)add_event("late", 115, "PENDING", "0 s"); /* that snapshot does not see it, and the drop would not check */
    ck_assert(!pg_sync_exec(worker, "SELECT issuing.run_housekeeping('1 day', '1 day', '90 days', '1 h')", &err));
    ck_assert_str_eq(err.sqlstate, "25001");
    database_run(worker, "ROLLBACK");
    expect_pass("dropped outbox_events 1");
    expect_verdict("late", "replayed");
}

/* A reissue of that user's card in a partition of the past, and its row in card_reissues. */
static struct uuid add_reissue(const char *user, const char *status)
{
    struct uuid id = add_event(user, 115, "FAILED", "114 days");
    database_exec(owner,
                  "UPDATE outbox_events SET payload = '{\"kind\":\"reissue\",\"replaces\":\"c-%s\"}', status = '%s' "
                  "WHERE id = '%s'",
                  user, status, text_of(&id));
    database_exec(owner,
                  "INSERT INTO card_reissues (event_id, user_id, card_id) VALUES ('%s', '%s', 'c-%s') ON CONFLICT "
                  "(user_id, card_id) DO UPDATE SET event_id = excluded.event_id",
                  text_of(&id), user, user);
    return id;
}

/* A reissue was FAILED when its partition was settled. It was replayed later and REJECTED, or its payload cannot be
 * used; the user repeated the request with success, so the row of the card is the next one's. Others are COMPLETED and
 * FAILED, with rows of their own. When the partition is dropped, all move, no row changes its event, and the tables
 * that come after are not held up. */
TEST(a_reissue_that_moves_needs_no_row_and_takes_none)
{
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("outbox_events", 120, 110);
    add_partition("idempotency_keys", 120, 110);
    (void)add_reissue("rejected", "FAILED");
    (void)add_reissue("unusable", "FAILED");
    (void)add_reissue("completed", "FAILED");
    (void)add_reissue("failed", "FAILED");
    expect_pass("");
    ck_assert_int_eq(settled("outbox_events"), 1);
    settle("91 days");
    database_run(
        owner, "UPDATE outbox_events SET status = 'REJECTED', updated_at = now(), completed_at = now() WHERE user_id "
               "= 'rejected'; "
               "UPDATE outbox_events SET status = 'COMPLETED', updated_at = now(), completed_at = now() WHERE user_id "
               "= 'completed'; "
               "UPDATE outbox_events SET reason_code = 'payload_invalid' WHERE user_id = 'unusable'; "
               "INSERT INTO outbox_events (user_id, payload) SELECT u, ('{\"kind\":\"reissue\",\"replaces\":\"c-' || u "
               "|| '\"}')::jsonb FROM unnest(ARRAY['rejected', 'unusable']) AS u");
    char *before =
        database_text(owner, "SELECT string_agg(user_id || event_id, ' ' ORDER BY user_id) FROM card_reissues");
    expect_pass("dropped outbox_events 4");
    expect_pass("dropped idempotency_keys 4");
    expect_pass("");
    char *after =
        database_text(owner, "SELECT string_agg(user_id || event_id, ' ' ORDER BY user_id) FROM card_reissues");
    ck_assert_str_eq(after, before);
    free(before);
    free(after);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = 'rejected'"), 2);
    struct err err = {.kind = ERR_NONE}; /* and later inserts are checked again */
    ck_assert(!pg_sync_exec(owner,
                            "INSERT INTO outbox_events (user_id, payload) VALUES ('failed', "
                            "'{\"kind\":\"reissue\",\"replaces\":\"c-failed\"}')",
                            &err));
    ck_assert_str_eq(err.sqlstate, "23505");
}

TEST(what_cannot_be_done_is_reported_and_everything_else_is_done)
{
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("outbox_events", 120, 110);
    add_partition("outbox_events", 110, 100);
    add_partition("rate_limit_log", 9, 8);
    /* The oldest partition is in the list and cannot be read or dropped; rows of one `_default` cannot be deleted. */
    database_run(owner,
                 "UPDATE partitions SET name = 'gone_' || name WHERE parent = 'outbox_events' AND from_at < now() - "
                 "interval '115 days'");
    database_run(owner, "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$; "
                        "CREATE TRIGGER broken BEFORE DELETE ON idempotency_keys_default FOR EACH ROW EXECUTE FUNCTION "
                        "broken()");
    database_run(owner, "INSERT INTO idempotency_keys SELECT gen_random_uuid(), now() - interval '25 h', 'u', 'k', ''");
    database_run(owner, "INSERT INTO rate_limit_log SELECT now() - interval '25 h', gen_random_uuid(), true, 'u'");
    expect_pass("failed idempotency_keys 0; expired rate_limit_log 1; failed outbox_events 0");
    ck_assert_int_eq(settled("outbox_events"), 1);
    ck_assert_int_eq(settled("rate_limit_log"), 1);
    settle("91 days");
    expect_pass("failed idempotency_keys 0; failed outbox_events 0; dropped outbox_events 0");
    expect_pass("failed idempotency_keys 0; failed outbox_events 0; dropped rate_limit_log 0");
    database_run(owner, "DROP TRIGGER broken ON idempotency_keys_default; DROP FUNCTION broken(); "
                        "UPDATE partitions SET name = substr(name, 6) WHERE name LIKE 'gone%'");
}

TESTS_BETWEEN(housekeeping_drops, set_up, tear_down)
