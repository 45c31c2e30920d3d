/* The stories.
 *
 * * The clock of the database is set back while an attempt is under way. The age of its send becomes negative, "nothing
 * was sent" is read from that, and a refusal ends the event while the issuer has a card for it; or the clock was ahead,
 * and what it has written waits for hours.
 *
 * * A worker dies again and again. If each death counted as an attempt of all events in its hands, all would end FAILED
 * without one call; and if one of them is the cause, all others die with it each time. */
#include "tests/db/database.h"

#include "statements.h"
#include "tests/support/suite.h"

static struct pg_sync *owner, *worker;

static void set_up(void)
{
    owner = database_open(NULL);
    worker = database_open("issuing_worker");
    database_run(owner, "TRUNCATE outbox_events, outbox_attempts, cards, card_reissues, lost_events");
}

static void tear_down(void)
{
    pg_sync_closep(&worker);
    pg_sync_closep(&owner);
}

static void add(const char *user)
{
    database_exec(owner, "INSERT INTO outbox_events (user_id, payload) VALUES ('%s', '{\"kind\":\"new\"}')", user);
}

/* What a claim returns for the one event that it takes. */
static int64_t claimed(const char *expression)
{
    return database_int(worker,
                        "SELECT %s FROM issuing.claim(gen_random_uuid(), 10, 60000, 'w', NULL, 100, false, "
                        "'CARD_ISSUE', false), unnest(events)",
                        expression);
}

static int claim_number(bool alone)
{
    return (int)database_int(worker,
                             "SELECT cardinality(events) FROM issuing.claim(gen_random_uuid(), 10, 60000, 'w', NULL, "
                             "100, %s, 'CARD_ISSUE', false)",
                             alone ? "true" : "false");
}

/* Like the end of an attempt that is tried again at once; clear: nothing was sent in it. */
static void end_with(bool clear, bool may_arrive, const char *give_back)
{
    database_exec(
        worker,
        "SELECT issuing.end_attempts(array_agg(ROW(id, lease_token, 'PENDING', 0, %s, %s, false, NULL, NULL, 'e', "
        "'issue', 'retry', 'c', NULL, true, 1, NULL, NULL, %s, NULL, NULL, NULL, NULL)::issuing.attempt_end), 'w') "
        "FROM issuing.outbox_events WHERE status = 'PROCESSING'",
        give_back, clear ? "true" : "false", may_arrive ? "true" : "false");
}

/* The clock moves by this much, for the existing rows: their times move the other way. */
static void step_clock(const char *by)
{
    database_exec(
        owner,
        "UPDATE outbox_events SET created_at = created_at - i, updated_at = updated_at - i, next_attempt_at = "
        "next_attempt_at - i, lease_until = lease_until - i, first_sent_at = first_sent_at - i, "
        "last_sent_at = last_sent_at - i, deferred_since = deferred_since - i FROM (SELECT interval '%s' AS i) x",
        by);
}

static int64_t fact(const char *expression)
{
    return database_int(owner, "SELECT %s FROM outbox_events", expression);
}

#define NOWHERE INT64_MAX

/* One look of a rebase; *until_us, where it begins and where it ended; NOWHERE = everywhere. */
static int64_t rebase_a_piece(int64_t looks, int64_t *until_us, int64_t *ret_looked)
{
    const struct pg_param params[] = {pg_param_int8(100), pg_param_text("CARD_ISSUE", 10), pg_param_null(),
                                      *until_us != NOWHERE ? pg_param_int8(*until_us) : pg_param_null(),
                                      pg_param_int8(looks)};
    struct pg_rows *rows = database_query(worker, &sql_outbox_rebase, params);
    int64_t moved = pg_int8(rows, 0, 0);
    *until_us = pg_is_null(rows, 0, 1) ? NOWHERE : pg_int8(rows, 0, 1);
    *ret_looked = pg_int8(rows, 0, 2);
    pg_rows_free(rows);
    return moved;
}

static int64_t rebase(void)
{
    int64_t until_us = NOWHERE, looked;
    return rebase_a_piece(100, &until_us, &looked);
}

static int64_t sweep(int64_t lost_max)
{
    const struct pg_param params[] = {pg_param_null(),    pg_param_int8(0),        pg_param_null(),
                                      pg_param_int8(100), pg_param_int8(lost_max), pg_param_text("CARD_ISSUE", 10),
                                      pg_param_null(),    pg_param_int8(100)};
    struct pg_rows *rows = database_query(worker, &sql_outbox_sweep, params);
    int64_t freed = pg_int8(rows, 0, 0);
    pg_rows_free(rows);
    return freed;
}

/* Whether a sweep sends the claims back to an event. */
static bool sweep_names_one(void)
{
    const struct pg_param params[] = {pg_param_null(),    pg_param_int8(0),  pg_param_null(),
                                      pg_param_int8(100), pg_param_int8(5),  pg_param_text("CARD_ISSUE", 10),
                                      pg_param_null(),    pg_param_int8(100)};
    struct pg_rows *rows = database_query(worker, &sql_outbox_sweep, params);
    bool is_named = !pg_is_null(rows, 0, 1);
    pg_rows_free(rows);
    return is_named;
}

static void lose(void)
{
    database_run(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 s' WHERE status = 'PROCESSING'");
    (void)sweep(5);
    database_run(owner, "UPDATE outbox_events SET next_attempt_at = now() WHERE status = 'PENDING'");
}

TEST(a_clock_set_back_between_attempts_leaves_the_send_known)
{
    add("alice");
    ck_assert_int_eq(claimed("(sent_age_ms IS NULL AND settle_age_ms IS NULL)::int"), 1);
    end_with(false, true, "false");
    database_run(owner, "UPDATE outbox_events SET first_sent_at = first_sent_at - interval '10 minutes'");
    step_clock("-1 hour");
    database_run(owner, "UPDATE outbox_events SET next_attempt_at = now()"); /* a replay, or a rebase */
    /* as old as it was; and the last send is another one */
    ck_assert_int_eq(claimed("(sent_age_ms BETWEEN 600000 AND 700000 AND settle_age_ms < 60000)::int"), 1);
    end_with(true, false, "false");
    ck_assert_int_eq(fact("(first_sent_at IS NOT NULL)::int"), 1); /* this attempt cannot forget another's send */
}

TEST(a_clock_set_back_during_an_attempt_leaves_the_send_known)
{
    add("alice");
    ck_assert_int_eq(claim_number(false), 1);
    step_clock("-10 seconds");
    end_with(false, true, "false");
    database_run(owner, "UPDATE outbox_events SET next_attempt_at = now()");
    ck_assert_int_eq(claimed("(sent_age_ms BETWEEN 0 AND 1000 AND settle_age_ms BETWEEN 0 AND 1000)::int"), 1);
}

TEST(no_age_is_negative_however_the_clock_was_set)
{
    static const char *const steps[] = {"-3 hours", "2 hours", "-1 second", "10 hours", "-100 days"};
    add("alice");
    ck_assert_int_eq(claim_number(false), 1);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        end_with(i % 2 == 0, i % 2 == 1, "true");
        step_clock(steps[i]);
        database_run(owner, "UPDATE outbox_events SET next_attempt_at = now() WHERE next_attempt_at > now()");
        ck_assert_int_eq(claimed("(coalesce(sent_age_ms, 0) >= 0 AND coalesce(settle_age_ms, 0) >= 0 AND "
                                 "coalesce(deferred_age_ms, 0) >= 0)::int"),
                         1);
    }
    ck_assert_int_eq(fact("(first_sent_at IS NOT NULL)::int"), 1);
}

TEST(only_what_an_attempt_has_set_itself_is_cleared_by_it)
{
    add("alice");
    ck_assert_int_eq(claim_number(false), 1);
    end_with(true, false, "false");
    ck_assert_int_eq(fact("(first_sent_at IS NULL AND last_sent_at IS NULL)::int"), 1);
    ck_assert_int_eq(claim_number(false), 1);
    end_with(false, false, "false");
    ck_assert_int_eq(claim_number(false), 1);
    end_with(true, false, "false");
    ck_assert_int_eq(fact("(first_sent_at IS NOT NULL)::int"), 1);
    /* A send that another worker has reported meanwhile is not this attempt's to forget either. */
    database_run(owner, "TRUNCATE outbox_events");
    add("alice");
    ck_assert_int_eq(claim_number(false), 1);
    database_run(worker, "SELECT issuing.add_mark(id, 'late') FROM issuing.outbox_events");
    end_with(true, false, "false");
    ck_assert_int_eq(fact("(first_sent_at IS NOT NULL)::int"), 1);
}

TEST(what_a_clock_that_was_ahead_has_written_waits_as_long_as_it_was_meant_to)
{
    add("alice");
    database_run(owner,
                 "UPDATE outbox_events SET created_at = now() + interval '2 hours', updated_at = now() + interval "
                 "'2 hours', next_attempt_at = now() + interval '2 hours 5 seconds'");
    add("bob"); /* a wait of its own, written by a clock that was right */
    database_run(owner, "UPDATE outbox_events SET next_attempt_at = now() + interval '1 hour' WHERE user_id = 'bob'");
    ck_assert_int_eq(rebase(), 1);
    ck_assert_int_eq(rebase(), 0);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = 'alice' AND "
                            "next_attempt_at BETWEEN now() AND now() + interval '5 seconds' AND updated_at <= now()"),
        1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = 'bob' AND "
                                         "next_attempt_at > now() + interval '59 minutes'"),
                     1);
}

/* However many events wait, a look at them is short; and the looks reach all. */
TEST(a_rebase_goes_over_a_backlog_in_pieces)
{
    int64_t until_us = NOWHERE, looked, moved = 0, pieces = 0;
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, next_attempt_at, updated_at) SELECT 'u-' || i,"
                        " '{\"kind\":\"new\"}', t, t FROM generate_series(1, 100) i, LATERAL (SELECT now() + i *"
                        " interval '1 minute' AS t) x");
    database_run(owner, "UPDATE outbox_events SET updated_at = now() WHERE right(user_id, 1) <> '7'");
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, next_attempt_at) VALUES"
                        " ('far', '{\"kind\":\"new\"}', '200000-01-01'), ('old', '{\"kind\":\"new\"}', '-infinity')");
    do {
        moved += rebase_a_piece(2, &until_us, &looked);
        ck_assert_int_le(looked, 2);
        pieces++;
    } while (until_us != NOWHERE && pieces < 100);
    ck_assert_int_eq(moved, 10);
    ck_assert_int_lt(pieces, 60); /* those that were moved are met again */
}

TEST(a_lease_that_a_clock_ahead_has_written_ends_after_its_length)
{
    add("alice");
    ck_assert_int_eq(claim_number(false), 1);
    step_clock("-2 hours");
    database_run(owner, "UPDATE outbox_events SET next_attempt_at = now() - interval '1 minute'"); /* due long ago */
    ck_assert_int_eq(sweep(5), 0);
    ck_assert_int_eq(rebase(), 1);
    ck_assert_int_eq(fact("(lease_until BETWEEN now() + interval '50 seconds' AND now() + interval '61 seconds')::int"),
                     1);
}

TEST(attempts_that_are_lost_with_their_worker_do_not_count_as_the_events)
{
    add("alice");
    ck_assert_int_eq(claim_number(false), 1);
    lose();
    ck_assert_int_eq(fact("(status = 'PENDING' AND retry_count = 0 AND lost_count = 1)::int"), 1);
    ck_assert_int_eq(claim_number(false), 1); /* one loss does not make it suspected */
    end_with(false, false, "false");
    ck_assert_int_eq(fact("(retry_count = 1 AND lost_count = 0)::int"), 1);
}

TEST(an_event_that_lost_two_attempts_is_claimed_alone)
{
    add("alice");
    add("bob");
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(claim_number(false), 2);
        lose();
    }
    ck_assert(!sweep_names_one()); /* the claims would skip them every time */
    add("carol");
    ck_assert(sweep_names_one());
    ck_assert_int_eq(claim_number(false), 1); /* carol; the others are not passed by silently: */
    ck_assert_int_eq(database_int(worker,
                                  "SELECT has_lost::int FROM issuing.claim(gen_random_uuid(), 10, 60000, 'w', NULL, "
                                  "100, false, 'CARD_ISSUE', false)"),
                     1);
    ck_assert_int_eq(claim_number(true), 1);
    ck_assert_int_eq(claim_number(true), 1);
    ck_assert_int_eq(claim_number(true), 0);
    /* While none of them is due, no claim is held back for them. */
    ck_assert_int_eq(database_int(worker,
                                  "SELECT has_lost::int FROM issuing.claim(gen_random_uuid(), 10, 60000, 'w', NULL, "
                                  "100, false, 'CARD_ISSUE', false)"),
                     0);
    database_run(owner, "UPDATE outbox_events SET status = 'FAILED', lease_token = NULL, lease_until = NULL");
    ck_assert_int_eq(claim_number(true), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM lost_events"), 2); /* a sweep may be at work */
    database_run(owner, "UPDATE lost_events SET since = since - interval '2 minutes'");
    ck_assert_int_eq(claim_number(true), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM lost_events"), 0);
}

/* A row of an earlier loss still exists when the event loses its worker twice again. A claim that began before the
 * sweep's commit must not remove it. */
TEST(an_event_that_is_lost_again_is_not_forgotten)
{
    add("alice");
    database_run(owner, "INSERT INTO lost_events SELECT id, now() - interval '1 hour' FROM outbox_events");
    ck_assert_int_eq(claim_number(false), 1);
    lose();
    ck_assert_int_eq(claim_number(false), 1);
    lose();
    ck_assert_int_eq(database_int(owner, "SELECT (since > now() - interval '1 minute')::int FROM lost_events"), 1);
    ck_assert_int_eq(claim_number(true), 1);
}

TEST(an_event_that_keeps_losing_its_worker_ends_as_a_question)
{
    add("alice");
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(fact("(status = 'PENDING')::int"), 1);
        ck_assert_int_eq(claim_number(i >= 2), 1);
        lose();
    }
    ck_assert_int_eq(fact("(status = 'FAILED' AND reason_code = 'worker_lost' AND completed_at IS NOT NULL AND "
                          "first_sent_at IS NOT NULL AND retry_count = 0)::int"),
                     1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE outcome = 'lost'"), 5);
}

TEST(a_payload_that_is_far_too_large_is_not_handed_out)
{
    database_run(
        owner, "ALTER TABLE outbox_events DISABLE TRIGGER outbox_events_range; "
               "INSERT INTO outbox_events (user_id, payload) SELECT 'alice', jsonb_build_object('kind', 'new', 'memo', "
               "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 40000) i))");
    ck_assert_int_eq(claimed("(payload IS NULL)::int"), 1);
    database_run(owner, "ALTER TABLE outbox_events ENABLE TRIGGER outbox_events_range");
}

/* Rows from before the bounds of the schema, or of a superuser. */
TEST(a_row_beyond_every_range_stops_no_other)
{
    static const char *const rows[] = {
        "retry_count = 1000001",
        "updated_at = 'infinity'",
        "updated_at = '-infinity'",
        "updated_at = '290000-01-01', first_sent_at = now()",
        "first_sent_at = '-infinity'",
        "first_sent_at = 'infinity'",
        "first_sent_at = now(), last_sent_at = '-infinity'",
        "deferred_since = '-infinity'",
        "deferred_since = 'infinity', next_attempt_at = '-infinity'",
        "payload = jsonb_build_object('memo', repeat('x', 70000))",
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        database_run(owner, "TRUNCATE outbox_events, outbox_attempts, lost_events");
        add("alice");
        add("bob");
        database_exec(owner, "UPDATE outbox_events SET %s WHERE user_id = 'alice'", rows[i]);
        ck_assert_int_ge(rebase(), 0);
        database_run(owner, "UPDATE outbox_events SET next_attempt_at = now() WHERE next_attempt_at > now()");
        ck_assert_int_eq(claimed("(count(*) = 2 AND coalesce(min(least(sent_age_ms, settle_age_ms, deferred_age_ms, "
                                 "changed_age_ms)), 0) >= 0)::int"),
                         1);
        lose();
        ck_assert_int_eq(claim_number(false), 2);
        database_run(owner, "DELETE FROM outbox_events WHERE user_id = 'bob'");
        end_with(false, false, "true");
        ck_assert_int_eq(fact("(status = 'PENDING')::int"), 1);
    }
}

TEST(a_row_beyond_the_range_of_a_column_is_refused)
{
    static const char *const rows[] = {
        "('alice', jsonb_build_object('memo', repeat('x', 70000)), 0, now(), now(), NULL, NULL)",
        "('alice', '[1e131071]', 0, now(), now(), NULL, NULL)",
        "(repeat('u', 129), '{}', 0, now(), now(), NULL, NULL)",
        "('', '{}', 0, now(), now(), NULL, NULL)",
        "('alice', '{}', 2147483647, now(), now(), NULL, NULL)",
        "('alice', '{}', 0, 'infinity', now(), NULL, NULL)",
        "('alice', '{}', 0, now(), 'infinity', NULL, NULL)",
        "('alice', '{}', 0, now(), '-infinity', NULL, NULL)",
        "('alice', '{}', 0, now(), '290000-01-01', NULL, NULL)",
        "('alice', '{}', 0, now(), now(), '-infinity', NULL)",
        "('alice', '{}', 0, now(), now(), NULL, '-infinity')",
    };
    /* The second type is the one that the database inserts itself, in a shorter way. */
    static const char *const types[] = {"CARD_ISSUE", "CARD_REQUEST_ENDED"};
    for (size_t i = 0; i < ARRAY_SIZE(types) * ARRAY_SIZE(rows); i++) {
        char text[400];
        struct err err;
        snprintf(text, sizeof text,
                 "INSERT INTO outbox_events (event_type, user_id, payload, retry_count, next_attempt_at, updated_at, "
                 "first_sent_at, deferred_since) VALUES ('%s', %s",
                 types[i % ARRAY_SIZE(types)], rows[i / ARRAY_SIZE(types)] + 1);
        ck_assert_msg(!pg_sync_exec(owner, text, &err), "%s was taken", text);
        ck_assert_str_eq(err.sqlstate, "23514");
    }
}

TEST(only_a_card_reissue_takes_the_place_of_its_card)
{
    static const char card[] = "0197a000-0000-7000-8000-000000000001";
    database_exec(owner,
                  "INSERT INTO outbox_events (event_type, user_id, payload) VALUES ('SOMETHING_ELSE', 'alice', "
                  "'{\"kind\":\"reissue\",\"replaces\":\"%s\"}'), ('CARD_ISSUE', 'alice', "
                  "'{\"kind\":\"new\",\"replaces\":\"%s\"}')",
                  card, card);
    database_exec(owner,
                  "INSERT INTO outbox_events (user_id, payload, status) VALUES ('alice', "
                  "'{\"kind\":\"reissue\",\"replaces\":\"%s\"}', 'REJECTED')",
                  card);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM card_reissues"), 0);
    database_run(owner, "DELETE FROM outbox_events WHERE status = 'REJECTED'");
    database_exec(owner,
                  "INSERT INTO outbox_events (user_id, payload) VALUES ('alice', "
                  "'{\"kind\":\"reissue\",\"replaces\":\"%s\"}')",
                  card);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM card_reissues"), 1);
    /* One whose payload cannot be used leaves the card to another, as a REJECTED one does. */
    database_run(owner,
                 "UPDATE outbox_events SET status = 'FAILED', reason_code = 'payload_invalid' WHERE event_type = "
                 "'CARD_ISSUE' AND payload ->> 'kind' = 'reissue'");
    database_exec(owner,
                  "INSERT INTO outbox_events (user_id, payload) VALUES ('alice', "
                  "'{\"kind\":\"reissue\",\"replaces\":\"%s\"}')",
                  card);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM card_reissues"), 1);
}

TESTS_BETWEEN(clocks, set_up, tear_down)
