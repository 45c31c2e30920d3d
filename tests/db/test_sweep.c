/* The story: claims read the index of due events from a bookmark on and never look back, and no index holds a column
 * that a claim writes; so a held snapshot or a late vacuum cannot slow them down. No event may be lost by that: every
 * claim's bookmark lies before all events that it left, and the sweep finds every event that appears behind a bookmark,
 * however old it is. Times are equal to the microsecond or far apart: a transaction stands still where a test needs it.
 * Every statement runs as issuing_worker. */
#include "tests/db/database.h"

#include "common/lib/base/uuid7.h"
#include "statements.h"
#include "tests/support/suite.h"

enum { LEASE_MS = 3600000, SLACK_MS = 700, FREED_MAX = 500, LOOKS = 1000, MANY = 4000 };

#define NOWHERE INT64_MIN /* no bookmark, nothing named */

static struct pg_sync *owner, *worker, *other, *late;

static void set_up(void)
{
    owner = database_open(NULL);
    late = database_open(NULL);
    worker = database_open("issuing_worker");
    other = database_open("issuing_worker");
    /* A wait that should not be ends as an error, not as a hung test. */
    database_run(worker, "SET lock_timeout = '20s'");
    database_run(other, "SET lock_timeout = '20s'");
    database_run(owner,
                 "TRUNCATE outbox_events, outbox_attempts, cards, card_reissues, idempotency_keys, rate_limit_log");
}

static void tear_down(void)
{
    pg_sync_closep(&other);
    pg_sync_closep(&worker);
    pg_sync_closep(&late);
    pg_sync_closep(&owner);
}

/* ---- events and times -------------------------------------------------------------------------------------------- */

static int64_t int8_of(struct pg_sync *db, const char *text)
{
    struct pg_rows *rows = database_rows(db, text);
    int64_t value = pg_int8(rows, 0, 0);
    pg_rows_free(rows);
    return value;
}

/* The start of the transaction, in microseconds since 1970: what now() is to every statement in it. */
static int64_t now_us(struct pg_sync *db)
{
    return int8_of(db, "SELECT (extract(epoch FROM now()) * 1000000)::int8");
}

static void add_due(const char *user, int64_t due_us, int count)
{
    database_exec(owner,
                  "INSERT INTO outbox_events (user_id, payload, next_attempt_at) SELECT '%s', '{\"kind\":\"new\"}', "
                  "timestamptz 'epoch' + %lld * interval '1 microsecond' FROM generate_series(1, %d)",
                  user, (long long)due_us, count);
}

/* Held by a worker whose lease ends `left_s` from now. */
static void add_held(const char *user, const char *due_at, int left_s)
{
    database_exec(owner,
                  "INSERT INTO outbox_events (user_id, payload, next_attempt_at, status, retry_count, lease_token, "
                  "lease_until, lease_owner) VALUES ('%s', '{\"kind\":\"new\"}', %s, 'PROCESSING', 1, "
                  "gen_random_uuid(), now() + %d * interval '1 s', 'worker-9')",
                  user, due_at, left_s);
}

static void add_held_us(const char *user, int64_t due_us)
{
    char due_at[80];
    snprintf(due_at, sizeof due_at, "timestamptz 'epoch' + %lld * interval '1 microsecond'", (long long)due_us);
    add_held(user, due_at, -1);
}

static int64_t in_status(const char *user, const char *status)
{
    return database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = '%s' AND status = '%s'", user,
                        status);
}

/* ---- saying the statements --------------------------------------------------------------------------------------- */

static struct pg_param bound(int64_t bookmark)
{
    return bookmark >= 0 ? pg_param_int8(bookmark)
                         : pg_param_null(); /* below 0 = from the beginning, as the worker has it */
}

/* Takes `limit` at most from the bookmark on and moves it; returns how many. */
static int claim(struct pg_sync *db, int64_t limit, int64_t *bookmark)
{
    struct uuid token = uuid4_make();
    struct pg_param params[] = {
        pg_param_uuid(&token), pg_param_int8(limit),    pg_param_int8(LEASE_MS), pg_param_text("worker-1", 8),
        bound(*bookmark),      pg_param_int8(SLACK_MS), pg_param_bool(false),    pg_param_text("CARD_ISSUE", 10),
        pg_param_bool(false),  pg_param_null(),         pg_param_null(),         pg_param_text("oldest", 6),
        pg_param_null(),       pg_param_null()};
    struct pg_rows *rows = database_query(db, &sql_outbox_claim, params);
    ck_assert_int_gt(pg_rows_count(rows), 0);
    *bookmark = pg_int8(rows, 0, 28); /* next_since_us */
    int count = pg_is_null(rows, 0, 0) ? 0 : pg_rows_count(rows);
    pg_rows_free(rows);
    return count;
}

/* Once and from `bookmark` on, which stays where it is. */
static int claim_from(int64_t bookmark)
{
    return claim(worker, 1000, &bookmark);
}

struct found {
    int freed;
    int64_t late_us; /* NOWHERE = nothing */
    int64_t rest_us; /* where it ended; NOWHERE = it looked at everything */
};

/* from_ms -1 = from the beginning. */
static struct found look(struct pg_sync *db, int64_t from_ms, int64_t to_ms, struct pg_param until, int64_t limit,
                         int64_t looks)
{
    struct pg_param params[] = {from_ms >= 0 ? pg_param_int8(from_ms) : pg_param_null(),
                                pg_param_int8(to_ms),
                                until,
                                pg_param_int8(limit),
                                pg_param_int8(5),
                                pg_param_text("CARD_ISSUE", 10),
                                pg_param_null(),
                                pg_param_int8(looks)};
    struct pg_rows *rows = database_query(db, &sql_outbox_sweep, params);
    ck_assert_int_eq(pg_rows_count(rows), 1);
    struct found found = {.freed = (int)pg_int8(rows, 0, 0),
                          .late_us = pg_is_null(rows, 0, 1) ? NOWHERE : pg_int8(rows, 0, 1),
                          .rest_us = pg_is_null(rows, 0, 4) ? NOWHERE : pg_int8(rows, 0, 4)};
    pg_rows_free(rows);
    return found;
}

static struct found sweep(struct pg_sync *db, int64_t from_ms, int64_t to_ms, int64_t bookmark, int64_t limit)
{
    return look(db, from_ms, to_ms, bound(bookmark), limit, LOOKS);
}

static struct found sweep_all(int64_t bookmark)
{
    return sweep(worker, -1, 0, bookmark, FREED_MAX);
}

static void expect_found(struct found found, int freed, int64_t late_us)
{
    ck_assert_int_eq(found.freed, freed);
    ck_assert_int_eq(found.late_us, late_us);
}

/* ---- the bookmark ------------------------------------------------------------------------------------------------ */

TEST(the_bookmark_skips_none_of_what_is_due_at_the_same_time)
{
    int64_t at = now_us(owner) - 5000000, bookmark = NOWHERE;
    add_due("early", at - 1, 2);
    add_due("ties", at, 10);
    add_due("after", at + 1, 1);
    for (int i = 1; i <= 4; i++) {
        ck_assert_int_eq(claim(worker, 3, &bookmark), 3);
        ck_assert_int_eq(bookmark, at);
        ck_assert_int_eq(in_status("ties", "PROCESSING"), 3 * i - 2);
    }
    ck_assert_int_eq(claim(worker, 3, &bookmark), 1); /* the tenth of them went with the answer before */
    ck_assert_int_eq(in_status("after", "PROCESSING"), 1);
    expect_found(sweep_all(bookmark), 0, NOWHERE);
}

TEST(the_bookmark_of_a_full_answer_is_the_last_time_taken_and_of_any_other_the_slack_before_now)
{
    database_run(worker, "BEGIN");
    int64_t now = now_us(worker), bookmark = NOWHERE;
    for (int i = 1; i <= 5; i++)
        add_due("alice", now - i * INT64_C(1000000), 1);
    ck_assert_int_eq(claim(worker, 3, &bookmark), 3);
    ck_assert_int_eq(bookmark, now - 3000000);
    ck_assert_int_eq(claim(worker, 2, &bookmark), 2);
    ck_assert_int_eq(bookmark, now - 1000000); /* it was full, though nothing is left */
    ck_assert_int_eq(claim(worker, 3, &bookmark), 0);
    ck_assert_int_eq(bookmark, now - SLACK_MS * 1000);
    add_due("alice", now, 1);
    ck_assert_int_eq(claim(worker, 3, &bookmark), 1);
    ck_assert_int_eq(bookmark, now - SLACK_MS * 1000);
    database_run(worker, "COMMIT");
}

TEST(what_commits_within_the_slack_is_claimed_without_the_sweep)
{
    int64_t bookmark = NOWHERE;
    database_run(worker, "BEGIN");
    int64_t now = now_us(worker);
    ck_assert_int_eq(claim(worker, 10, &bookmark), 0);
    add_due("at_the_edge", now - SLACK_MS * 1000, 1);
    add_due("within", now - 1, 1);
    add_due("too_late", now - SLACK_MS * 1000 - 1, 1);
    ck_assert_int_eq(claim(worker, 10, &bookmark), 2);
    ck_assert_int_eq(in_status("too_late", "PENDING"), 1);
    database_run(worker, "COMMIT");
    expect_found(sweep_all(bookmark), 0, now - SLACK_MS * 1000 - 1);
}

TEST(a_bookmark_that_lies_in_the_future_heals_itself)
{
    int64_t bookmark = now_us(owner) + INT64_C(3600000000); /* the clock was an hour ahead when it was made */
    add_due("alice", now_us(owner), 1);
    ck_assert_int_eq(claim(worker, 10, &bookmark), 0);
    ck_assert_int_lt(bookmark, now_us(owner));
    expect_found(sweep_all(now_us(owner)), 0,
                 int8_of(owner, "SELECT (extract(epoch FROM due_at) * 1000000)::int8 FROM outbox_events"));
}

TEST(what_another_claim_gives_up_is_named_by_the_sweep)
{
    int64_t at = now_us(owner) - 5000000, theirs = NOWHERE, mine = NOWHERE;
    add_due("alice", at, 2);
    add_due("bob", at + 1, 1);
    database_run(other, "BEGIN");
    ck_assert_int_eq(claim(other, 2, &theirs), 2);
    ck_assert_int_eq(claim(worker, 1, &mine), 1);
    ck_assert_int_eq(mine, at + 1);
    database_run(other, "ROLLBACK");
    ck_assert_int_eq(claim(worker, 10, &mine), 0);
    expect_found(sweep_all(mine), 0, at);
    ck_assert_int_eq(claim_from(at), 2);
}

/* ---- events behind the bookmark ---------------------------------------------------------------------------------- */

TEST(what_becomes_visible_late_is_named_by_the_sweep_and_claimed_after_going_back)
{
    int64_t at = now_us(owner) - 5000000, bookmark = NOWHERE;
    add_due("passed", at + 1000000, 1);
    database_run(late, "BEGIN");
    database_exec(late,
                  "INSERT INTO outbox_events (user_id, payload, next_attempt_at) VALUES ('slow', '{\"kind\":\"new\"}', "
                  "timestamptz 'epoch' + %lld * interval '1 microsecond')",
                  (long long)at);
    ck_assert_int_eq(claim(worker, 10, &bookmark), 1);
    expect_found(sweep_all(bookmark), 0, NOWHERE);
    database_run(late, "COMMIT");
    ck_assert_int_eq(claim(worker, 10, &bookmark), 0);
    ck_assert_int_gt(bookmark, at);
    expect_found(sweep_all(bookmark), 0, at);
    expect_found(sweep_all(bookmark), 0, at); /* until a claim has taken it */
    ck_assert_int_eq(claim_from(at), 1);
    ck_assert_int_eq(in_status("slow", "PROCESSING"), 1);
    expect_found(sweep_all(bookmark), 0, NOWHERE);
}

TEST(what_is_inserted_with_an_old_time_is_named_by_the_sweep_the_oldest_first)
{
    int64_t now = now_us(owner), bookmark = NOWHERE;
    ck_assert_int_eq(claim(worker, 10, &bookmark), 0);
    add_due("day", now - INT64_C(86400000000), 1);
    add_due("year", now - 365 * INT64_C(86400000000), 1);
    add_due("hour", now - INT64_C(3600000000), 1);
    ck_assert_int_eq(claim(worker, 10, &bookmark), 0);
    expect_found(sweep_all(bookmark), 0, now - 365 * INT64_C(86400000000));
    ck_assert_int_eq(claim_from(now - 365 * INT64_C(86400000000)), 3);
}

TEST(what_was_due_before_all_time_is_neither_lost_nor_an_error)
{
    static const char *const times[] = {"-infinity", "4714-11-24 00:00:00+00 BC", "1969-12-31 23:59:59.999999+00"};
    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        int64_t bookmark = now_us(owner) - 1000000;
        char due_at[80];
        snprintf(due_at, sizeof due_at, "timestamptz '%s'", times[i]);
        database_exec(owner,
                      "INSERT INTO outbox_events (user_id, payload, next_attempt_at) SELECT 'old%zu', "
                      "'{\"kind\":\"new\"}', %s FROM generate_series(1, 2)",
                      i, due_at);
        add_held("held", due_at, -1);
        ck_assert_int_eq(claim(worker, 10, &bookmark), 0);
        expect_found(sweep_all(bookmark), 1, -1);
        bookmark = -1;
        ck_assert_int_eq(claim(worker, 1, &bookmark), 1); /* full: the bookmark is its time */
        ck_assert_int_eq(bookmark, -1);
        ck_assert_int_eq(claim(worker, 10, &bookmark), 2);
        ck_assert_int_gt(bookmark, 0);
        ck_assert_int_eq(
            database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = 'old%zu' AND status = 'PROCESSING'",
                         i),
            2);
        expect_found(sweep_all(NOWHERE), 0, NOWHERE);
    }
}

TEST(what_is_not_due_is_neither_taken_nor_named)
{
    int64_t bookmark = NOWHERE;
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, next_attempt_at) VALUES "
                        "('alice', '{\"kind\":\"new\"}', now() + interval '100 years'), ('bob', '{\"kind\":\"new\"}', "
                        "now() + interval '1 hour')");
    ck_assert_int_eq(claim(worker, 10, &bookmark), 0);
    expect_found(sweep_all(bookmark), 0, NOWHERE);
    expect_found(sweep_all(NOWHERE), 0, NOWHERE);
}

TEST(a_retry_is_found_when_its_time_has_come)
{
    int64_t bookmark = NOWHERE;
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, next_attempt_at) VALUES "
                        "('alice', '{\"kind\":\"new\"}', now() + interval '1 hour')");
    ck_assert_int_eq(claim(worker, 10, &bookmark), 0);
    database_run(owner, "UPDATE outbox_events SET next_attempt_at = now()"); /* an hour has passed */
    ck_assert_int_eq(claim(worker, 10, &bookmark), 1);

    /* And once more as the end of an attempt writes it. */
    database_run(owner, "UPDATE outbox_events SET status = 'PENDING', lease_token = NULL, lease_until = NULL, "
                        "next_attempt_at = now() + interval '1 hour'");
    ck_assert_int_eq(claim(worker, 10, &bookmark), 0);
    database_run(
        owner,
        "UPDATE outbox_events SET next_attempt_at = now() - interval '1 s'"); /* an operator's UPDATE that was slow */
    ck_assert_int_eq(claim(worker, 10, &bookmark), 0);
    struct found found = sweep_all(bookmark);
    ck_assert_int_lt(found.late_us, bookmark);
    ck_assert_int_eq(claim_from(found.late_us), 1);
}

/* ---- the stretches of the sweep ---------------------------------------------------------------------------------- */

/* As the worker has them (worker/flow/sweep.c): from one age to the next, the last one from the beginning of time. */
static const int64_t ages_ms[] = {0, 2000, 20000, 200000, 2000000};
#define STRETCHES ((int)ARRAY_SIZE(ages_ms))

static struct found sweep_stretch(int stretch, int64_t bookmark)
{
    return sweep(worker, stretch + 1 < STRETCHES ? ages_ms[stretch + 1] : -1, ages_ms[stretch], bookmark, FREED_MAX);
}

TEST(every_age_lies_in_a_stretch_and_only_an_edge_in_two)
{
    for (int edge = 0; edge < STRETCHES; edge++) {
        for (int64_t off = -1; off <= 1; off++) {
            database_run(owner, "TRUNCATE outbox_events, outbox_attempts");
            database_run(worker, "BEGIN");
            int64_t due_us = now_us(worker) - ages_ms[edge] * 1000 - off, older = 0, younger = 0;
            add_due("alice", due_us, 1);
            for (int stretch = 0; stretch < STRETCHES; stretch++) {
                struct found found = sweep_stretch(stretch, NOWHERE);
                ck_assert(found.late_us == NOWHERE || found.late_us == due_us);
                int64_t *side = stretch < edge ? &younger : &older;
                *side += found.late_us == due_us;
            }
            database_run(worker, "COMMIT");
            ck_assert_int_eq(older, off >= 0); /* in the stretch that begins there, the edge included */
            ck_assert_int_eq(younger,
                             off <= 0 && edge > 0); /* in the one that ends there; before the first is the future */
        }
    }
}

TEST(a_lease_that_ran_out_is_taken_back_once_whatever_the_age_of_its_event)
{
    database_run(worker, "BEGIN");
    int64_t now = now_us(worker);
    int freed = 0, events = 0;
    for (int edge = 0; edge < STRETCHES; edge++)
        for (int64_t off = edge > 0 ? -1 : 0; off <= 1; off++, events++)
            add_held_us("uma", now - ages_ms[edge] * 1000 - off);
    add_held("uma", "'-infinity'", -1);
    events++;
    for (int stretch = 0; stretch < STRETCHES; stretch++)
        freed += sweep_stretch(stretch, NOWHERE).freed;
    database_run(worker, "COMMIT");
    ck_assert_int_eq(freed, events);
    ck_assert_int_eq(in_status("uma", "PENDING"), events);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE user_id = 'uma' AND outcome = 'lost'"), events);
    ck_assert_int_eq(claim_from(now), events); /* due from the moment they were taken back */
}

TEST(a_sweep_leaves_alone_what_lies_after_the_bookmark)
{
    int64_t bookmark = now_us(owner) - 5000000;
    add_due("after", bookmark + 1, 1);
    add_held_us("after", bookmark + 1);
    expect_found(sweep_all(bookmark), 0, NOWHERE);
    add_held_us("at", bookmark);
    add_due("at", bookmark, 1);
    expect_found(sweep_all(bookmark), 1, bookmark);
    ck_assert_int_eq(in_status("after", "PROCESSING"), 1);
    expect_found(sweep_all(NOWHERE), 1, bookmark); /* no bookmark, no bound */
}

TEST(a_sweep_leaves_alone_what_is_held_what_has_ended_and_what_is_not_ours)
{
    add_held("held", "now() - interval '1 hour'", 60);
    database_run(owner,
                 "INSERT INTO outbox_events (user_id, payload, status, next_attempt_at) SELECT 'ended', '{}', s, "
                 "now() - interval '1 hour' FROM unnest(ARRAY['COMPLETED', 'REJECTED', 'FAILED']) s");
    add_held("strange", "now() - interval '1 hour'", -60);
    database_run(owner, "UPDATE outbox_events SET event_type = 'CARD_CLOSE' WHERE user_id = 'strange'");
    database_run(owner, "INSERT INTO outbox_events (event_type, user_id, payload, next_attempt_at) VALUES "
                        "('CARD_CLOSE', 'strange', '{}', now() - interval '1 hour')");
    char *before = database_text(owner, "SELECT string_agg(e::text, ';' ORDER BY e.id) FROM outbox_events e");
    expect_found(sweep_all(NOWHERE), 0, NOWHERE);
    ck_assert_int_eq(claim_from(NOWHERE), 0);
    char *after = database_text(owner, "SELECT string_agg(e::text, ';' ORDER BY e.id) FROM outbox_events e");
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
}

TEST(a_sweep_takes_back_no_more_than_its_limit_and_the_rest_the_next_time)
{
    for (int i = 0; i < 5; i++)
        add_held("vic", "now() - interval '1 hour'", -1);
    ck_assert_int_eq(sweep(worker, -1, 0, NOWHERE, 3).freed, 3);
    ck_assert_int_eq(in_status("vic", "PROCESSING"), 2);
    ck_assert_int_eq(sweep(worker, -1, 0, NOWHERE, 3).freed, 2);
}

TEST(two_sweeps_at_once_share_the_leases_and_one_names_what_is_late)
{
    int64_t at = now_us(owner) - 5000000, bookmarks[2] = {at, at};
    for (int i = 0; i < 6; i++)
        add_held_us("wendy", at + 1 + i);
    add_due("late", at, 1);
    database_run(worker, "BEGIN");
    expect_found(sweep(worker, -1, 0, at + 100, 2), 2, at);
    expect_found(sweep(other, -1, 0, at + 100, 100), 4, NOWHERE); /* while the first has not committed */
    database_run(worker, "COMMIT");
    expect_found(sweep(other, -1, 0, at + 100, 100), 0, at); /* the next look of the other */
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE user_id = 'wendy' AND outcome = 'lost'"), 6);
    /* Two workers go back for it, and one has it. */
    database_run(worker, "BEGIN");
    int mine = claim(worker, 4, &bookmarks[0]), theirs = claim(other, 100, &bookmarks[1]);
    database_run(worker, "COMMIT");
    ck_assert_int_eq(mine, 4);
    ck_assert_int_eq(theirs, 3);
    ck_assert_int_eq(in_status("late", "PROCESSING"), 1);
}

TEST(a_sweep_does_not_wait_for_a_claim_nor_a_claim_for_a_sweep)
{
    int64_t at = now_us(owner) - 5000000, bookmark = NOWHERE;
    add_due("bob", at, 1);
    add_held_us("uma", at);
    database_run(worker, "BEGIN");
    ck_assert_int_eq(claim(worker, 10, &bookmark), 1);
    /* A claim that has not committed may yet be given up: then the next look names it. */
    expect_found(sweep(other, -1, 0, NOWHERE, FREED_MAX), 1, NOWHERE);
    database_run(worker, "COMMIT");
    database_run(worker, "BEGIN");
    add_held_us("uma", at);
    expect_found(sweep(worker, -1, 0, at, FREED_MAX), 1, NOWHERE);
    bookmark = NOWHERE;
    ck_assert_int_eq(claim(other, 10, &bookmark), 1); /* the one that was taken back first */
    database_run(worker, "COMMIT");
    expect_found(sweep(other, -1, 0, at, FREED_MAX), 0, NOWHERE);
}

/* ---- what a claim costs ------------------------------------------------------------------------------------------ */

/* A counter of the transaction that runs, over all partitions of the events. */
static int64_t in_transaction(const char *counter)
{
    return database_int(worker,
                        "SELECT sum(s.%s) FROM pg_stat_xact_user_tables s "
                        "JOIN pg_partition_tree('outbox_events') t ON t.relid = s.relid",
                        counter);
}

/* Accepted through the API, as short as they come, in partitions of nobody else's rows; `id` is an expression over
 * i. */
static void add_accepted(const char *id, int count)
{
    database_exec(
        owner,
        "INSERT INTO outbox_events (id, user_id, idempotency_key, payload, traceparent) SELECT %s, "
        "'user-' || i, gen_random_uuid(), '{\"kind\":\"new\"}', repeat('t', 55) FROM generate_series(1, %d) i",
        id, count);
}

TEST(what_a_claim_writes_is_in_no_index)
{
    enum {
        EVENTS = 10
    }; /* half of them in the partition of now, half in the one for other kinds of id; room for all */
    add_accepted("CASE WHEN i % 2 = 0 THEN issuing.uuid7() ELSE gen_random_uuid() END", EVENTS);
    ck_assert_int_eq(database_int(owner, "SELECT count(DISTINCT tableoid) FROM outbox_events"), 2);
    database_run(worker, "BEGIN");
    ck_assert_int_eq(claim_from(NOWHERE), EVENTS);
    ck_assert_int_eq(in_transaction("n_tup_upd"), EVENTS);
    ck_assert_int_eq(in_transaction("n_tup_hot_upd"), EVENTS);
    database_run(worker, "COMMIT");
}

TEST(a_page_keeps_free_space_for_what_a_claim_writes)
{
    enum { EVENTS = 500 };
    static const char *const ids[] = {"issuing.uuid7()", "gen_random_uuid()"};
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        add_accepted(ids[i], EVENTS);
        database_run(worker, "BEGIN");
        ck_assert_int_eq(claim_from(NOWHERE), EVENTS);
        ck_assert_int_ge(in_transaction("n_tup_hot_upd") * 4, EVENTS * 3);
        database_run(worker, "COMMIT");
    }
    /* The partition of now may be of an earlier definition. */
    database_run(owner, "BEGIN; SELECT issuing.partition_add('outbox_events', '2001-01-01', '2001-01-02')");
    ck_assert_int_eq(database_int(owner, "SELECT count(DISTINCT c.reloptions) FROM pg_inherits i JOIN pg_class c ON "
                                         "c.oid = i.inhrelid WHERE i.inhparent = 'outbox_events'::regclass"),
                     1);
    database_run(owner, "ROLLBACK");
}

TEST(saving_makes_no_new_version_of_the_event)
{
    struct uuid card = uuid7_make();
    char card_text[UUID_TEXT_SIZE];
    uuid_format(&card, card_text);
    add_due("alice", now_us(owner), 1);
    ck_assert_int_eq(claim_from(NOWHERE), 1);
    char *before = database_text(owner, "SELECT ctid::text || xmin::text FROM outbox_events");
    database_run(worker, "BEGIN");
    int64_t updated = in_transaction("n_tup_upd");
    ck_assert_int_eq(
        database_int(worker,
                     "SELECT count(*) FROM outbox_events e, LATERAL issuing.save(ARRAY[e.id], "
                     "ARRAY[e.lease_token], ARRAY['%s'::uuid], ARRAY['ic'], ARRAY['1111'], ARRAY[3::int8], "
                     "ARRAY[2031::int8], ARRAY[NULL::bytea], ARRAY[NULL::uuid])",
                     card_text),
        1);
    ck_assert_int_eq(in_transaction("n_tup_upd"), updated);
    database_run(worker, "COMMIT");
    char *after = database_text(owner, "SELECT ctid::text || xmin::text FROM outbox_events");
    ck_assert_str_eq(before, after);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards"), 1);
    free(before);
    free(after);
}

/* Events that were accepted, claimed and completed about `ago`, while `late` holds a snapshot: no vacuum may remove
 * their entries, and no walk may mark them dead. Ends with the bookmark of the last claim. */
static int64_t finish_many(const char *ago)
{
    int64_t bookmark = NOWHERE;
    database_run(late, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox_events");
    database_exec(owner,
                  "INSERT INTO outbox_events (user_id, payload, next_attempt_at) SELECT 'user-' || i, "
                  "'{\"kind\":\"new\"}', now() - "
                  "interval '%s' + i * interval '1 microsecond' FROM generate_series(1, %d) i",
                  ago, MANY);
    ck_assert_int_eq(claim(worker, MANY, &bookmark), MANY);
    ck_assert_int_eq(claim(worker, MANY, &bookmark), 0);
    ck_assert_int_eq(
        database_int(worker, "SELECT count(*) FROM (SELECT array_agg(e.id) AS ids, array_agg(e.lease_token) AS tokens, "
                             "array_agg(250::int8) AS tooks FROM outbox_events e) a, LATERAL issuing.complete(a.ids, "
                             "a.tokens, 'worker-1', a.tooks, 'link', NULL)"),
        MANY);
    return bookmark;
}

static int64_t number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    ck_assert_msg(at != NULL, "no %s in %s", name, text);
    return strtoll(at + strlen(name), NULL, 10);
}

/* Buffers that a query visits, the least of three runs: the first makes its plan. The first node of the plan counts
 * all below it. */
static int64_t buffers_of(const char *query)
{
    int64_t least = INT64_MAX;
    char *explain = NULL;
    ck_assert_int_ge(asprintf(&explain, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) %s", query), 0);
    for (int i = 0; i < 3; i++) {
        char *plan = database_text(worker, explain);
        int64_t count = number_after(plan, "\"Shared Hit Blocks\":") + number_after(plan, "\"Shared Read Blocks\":");
        least = count < least ? count : least;
        free(plan);
    }
    free(explain);
    return least;
}

TEST(a_claim_from_its_bookmark_visits_nothing_of_what_was_finished_before)
{
    char query[200];
    int64_t bookmark = finish_many("1 minute");
    snprintf(
        query, sizeof query,
        "SELECT * FROM issuing.claim(gen_random_uuid(), 100, 1000, 'worker-1', %lld, 100, false, 'CARD_ISSUE', false)",
        (long long)bookmark);
    int64_t with = buffers_of(query);
    int64_t without = buffers_of(
        "SELECT * FROM issuing.claim(gen_random_uuid(), 100, 1000, 'worker-1', NULL, 100, false, 'CARD_ISSUE', false)");
    ck_assert_int_lt(with, 40);
    ck_assert_int_gt(without, 10 * with); /* or nothing was there to be passed by */
    ck_assert_int_gt(without, MANY / 40);
    database_run(late, "COMMIT");
}

/* On a table that was never analysed and on one that was. */
TEST(a_sweep_of_one_stretch_visits_nothing_of_an_older_one)
{
    int64_t bookmark = finish_many("1 hour");
    char query[100];
    database_exec(worker, "PREPARE looked AS %s", sql_outbox_sweep.text);
    for (int i = 0; i < 2; i++) {
        snprintf(query, sizeof query, "EXECUTE looked(2000, 0, %lld, 500, 5, 'CARD_ISSUE', NULL, 1000)",
                 (long long)bookmark);
        int64_t young = buffers_of(query);
        snprintf(query, sizeof query, "EXECUTE looked(NULL, 2000000, %lld, 500, 5, 'CARD_ISSUE', NULL, 1000)",
                 (long long)bookmark);
        int64_t old = buffers_of(query);
        ck_assert_int_lt(young, 40);
        ck_assert_int_gt(old, 10 * young);
        database_run(owner, "ANALYZE outbox_events");
    }
    database_run(late, "COMMIT");
}

/* ---- a backlog that nobody claims -------------------------------------------------------------------------------- */

/* Rows of events that the worker's session reads in a transaction. */
static int64_t rows_read(void)
{
    return int8_of(worker, "SELECT sum(pg_stat_get_xact_tuples_returned(i.relid)"
                           "           + pg_stat_get_xact_tuples_fetched(i.relid))::int8"
                           " FROM pg_partition_tree('outbox_events') i WHERE i.isleaf");
}

/* As the worker's passes go: each look begins where the last one ended. */
static int pass(int64_t looks, int *ret_freed, int64_t *ret_most_rows)
{
    int64_t until_us = NOWHERE;
    int count = 0;
    *ret_freed = 0;
    *ret_most_rows = 0;
    do {
        database_run(worker, "BEGIN");
        int64_t before = rows_read();
        struct pg_param until = until_us != NOWHERE ? pg_param_int8(until_us) : pg_param_null();
        struct found found = look(worker, -1, 0, until, FREED_MAX, looks);
        int64_t rows = rows_read() - before;
        database_run(worker, "COMMIT");
        *ret_most_rows = rows > *ret_most_rows ? rows : *ret_most_rows;
        *ret_freed += found.freed;
        ck_assert(found.rest_us == NOWHERE || until_us == NOWHERE || found.rest_us < until_us);
        until_us = found.rest_us;
        count++;
    } while (until_us != NOWHERE);
    return count;
}

TEST(a_look_reads_no_more_of_a_backlog_than_it_is_told_and_a_pass_sees_all)
{
    int64_t now = now_us(owner), most_rows;
    int freed;
    database_exec(owner,
                  "INSERT INTO outbox_events (user_id, payload, next_attempt_at) SELECT 'user-' || i, "
                  "'{\"kind\":\"new\"}', now() - i * interval '1 ms' FROM generate_series(1, %d) i",
                  MANY);
    for (int i = 0; i < 5; i++)
        add_held_us("uma", now - i * INT64_C(1000000));
    for (int i = 0; i < 2; i++) {
        ck_assert_int_ge(pass(100, &freed, &most_rows), MANY / 101);
        ck_assert_int_eq(freed, i == 0 ? 5 : 0);
        ck_assert_int_le(most_rows, i == 0 ? 300 : 110);
        database_run(owner, "ANALYZE outbox_events");
    }
}

/* An hour's events were put off to the same moment. */
TEST(events_that_are_due_at_the_same_time_are_looked_at_together)
{
    int64_t now = now_us(owner), most_rows;
    int freed;
    add_due("first", now - 3000000, 3);
    for (int i = 0; i < 3; i++)
        add_held_us("uma", now - 2000000);
    add_due("together", now - 2000000, 50);
    add_due("last", now - 1000000, 3);
    ck_assert_int_eq(look(worker, -1, 0, pg_param_null(), FREED_MAX, 5).rest_us, now - 2000001);
    database_run(owner, "UPDATE outbox_events SET status = 'PROCESSING', lease_token = gen_random_uuid(), "
                        "lease_until = now() - interval '1 s' WHERE user_id = 'first'");
    ck_assert_int_eq(look(worker, -1, 0, pg_param_int8(now - 2000001), FREED_MAX, 5).freed, 3);
    ck_assert_int_eq(in_status("uma", "PENDING"), 3);
    (void)pass(5, &freed, &most_rows);
    ck_assert_int_eq(freed, 0);
}

TEST(what_was_due_before_all_time_ends_a_pass)
{
    int64_t most_rows;
    int freed;
    database_run(owner,
                 "INSERT INTO outbox_events (user_id, payload, next_attempt_at) SELECT 'old', '{\"kind\":\"new\"}', "
                 "t FROM unnest(ARRAY['-infinity', '-infinity', '1901-01-01', '1969-12-31 23:59:59.999999+00', "
                 "'1970-01-01 00:00:00+00']::timestamptz[]) t");
    ck_assert_int_eq(pass(1, &freed, &most_rows), 4);
}

TESTS_BETWEEN(sweep, set_up, tear_down)
