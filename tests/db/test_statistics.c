/* The story: outbox_statistics says what has ended, without a count of all events. After each way to end an event, or
 * to take its end back, the statistics with the changes that wait are what the rows say, row by row. Folds move each
 * change once, whoever dies; a change that cannot be added stops no other; a rebuild repairs everything and may run
 * beside ends and folds. */
#include "tests/db/outbox_calls.h"
#include "tests/support/stuck.h"
#include "tests/support/suite.h"

static void open_statistics(void)
{
    set_up();
    database_run(owner, "TRUNCATE outbox_statistics, statistics_changes, operator_actions, marks, lost_events, "
                        "event_reissues");
}

/* ---- facts ---- */

#define COLUMNS "x.hour, x.event_type, x.status, x.reason_code, x.below_ms"
#define NEGATIVE COLUMNS ", -x.count, -x.sum_ms"

/* The number of groups in which the statistics, with the changes that wait, differ from the rows. */
static int64_t differences(void)
{
    return database_int(owner, "SELECT count(*) FROM (SELECT FROM ("
                               "SELECT * FROM count_events('-infinity') "
                               "UNION ALL SELECT " NEGATIVE " FROM outbox_statistics x "
                               "UNION ALL SELECT " NEGATIVE " FROM statistics_waiting x) d "
                               "GROUP BY hour, event_type, status, reason_code, below_ms "
                               "HAVING sum(count) <> 0 OR sum(sum_ms) <> 0) g");
}

static int64_t waiting(void)
{
    return database_int(owner, "SELECT count(*) FROM statistics_changes WHERE refused IS NULL");
}

/* What the statistics say of a status and reason, folded or not. */
static int64_t counted(const char *status, const char *reason)
{
    return database_int(owner,
                        "SELECT coalesce(sum(x.count), 0) FROM (SELECT status, reason_code, count "
                        "FROM outbox_statistics UNION ALL SELECT status, reason_code, count "
                        "FROM statistics_waiting) x WHERE x.status = '%s' AND x.reason_code = '%s'",
                        status, reason);
}

struct fold {
    int64_t folded, refused;
    bool has_more;
};

static struct fold fold_as(struct pg_sync *db, int64_t most)
{
    const struct pg_param params[] = {pg_param_int8(most)};
    struct pg_rows *rows = database_query(db, &sql_statistics_fold, params);
    struct fold fold = {pg_int8(rows, 0, 0), pg_int8(rows, 0, 1), pg_bool(rows, 0, 2)};
    pg_rows_free(rows);
    return fold;
}

/* All of them; and then the table alone is what the rows say. */
static void fold_all(void)
{
    while (fold_as(worker, 1000).has_more) {}
    ck_assert_int_eq(waiting(), 0);
    ck_assert_int_eq(differences(), 0);
}

/* ---- ends ---- */

TEST(each_way_to_end_an_event_is_counted)
{
    struct uuid token, event = claimed_event("alice", &token);
    ck_assert_int_eq(differences(), 0);
    ck_assert_int_eq(complete(&event, &token), 1);
    ck_assert_int_eq(complete(&event, &token), 0); /* the fence: it ended once */
    ck_assert_int_eq(counted("COMPLETED", ""), 1);
    ck_assert_int_eq(differences(), 0);
    ended_event("bob", "COMPLETED", NULL);
    ended_event("carol", "REJECTED", "issuer_refused");
    ended_event("dave", "FAILED", "attempts_exhausted");
    ck_assert_int_eq(differences(), 0);
    event = claimed_event("erin", &token);
    struct end again = {.event = event, .token = token, .status = "PENDING", .delay_ms = 3600000};
    ck_assert_int_eq(finish(&again), 1); /* no end */
    ck_assert_int_eq(counted("COMPLETED", ""), 2);
    ck_assert_int_eq(counted("REJECTED", "issuer_refused"), 1);
    ck_assert_int_eq(counted("FAILED", "attempts_exhausted"), 1);
    event = add_event("frank", 1);
    act("cancel", &event, "'detail',");
    ck_assert_int_eq(counted("REJECTED", "cancelled"), 1);
    ck_assert_int_eq(differences(), 0);
    fold_all();
}

TEST(an_event_that_a_sweep_gives_up_is_counted_once)
{
    struct uuid token, event = claimed_event("alice", &token);
    database_exec(owner,
                  "UPDATE outbox_events SET lost_count = 3, lease_until = now() - interval '1 s', next_attempt_at "
                  "= now() - interval '1 s' WHERE id = '%s'",
                  text_of(&event));
    ck_assert_int_eq(sweep(worker, 10), 1);
    ck_assert_int_eq(fact(&event, "(e.status = 'PENDING')"), 1);
    ck_assert_int_eq(waiting(), 0); /* lost, but not ended */
    token = uuid4_make();
    database_exec(owner,
                  "UPDATE outbox_events SET status = 'PROCESSING', lease_token = '%s', lease_until = now() - "
                  "interval '1 s', next_attempt_at = now() - interval '1 s' WHERE id = '%s'",
                  text_of(&token), text_of(&event));
    ck_assert_int_eq(sweep(worker, 10), 1);
    ck_assert_int_eq(fact(&event, "(e.status = 'FAILED')"), 1);
    ck_assert_int_eq(counted("FAILED", "worker_lost"), 1);
    ck_assert_int_eq(differences(), 0);
    /* The housekeeping moves rows of attempts: an insert that ends nothing. */
    database_run(owner, "WITH moved AS (DELETE FROM outbox_attempts RETURNING *) INSERT INTO outbox_attempts SELECT * "
                        "FROM moved");
    ck_assert_int_eq(counted("FAILED", "worker_lost"), 1);
    fold_all();
}

TEST(each_way_to_take_an_end_back_is_counted)
{
    struct uuid event = ended_event("alice", "FAILED", "attempts_exhausted");
    fold_all();
    act("replay", &event, "");
    ck_assert_int_eq(counted("FAILED", "attempts_exhausted"), 0);
    ck_assert_int_eq(differences(), 0);
    struct uuid token = uuid4_make();
    ck_assert_int_eq(claim_all(&token), 1);
    ck_assert_int_eq(complete(&event, &token), 1);
    ck_assert_int_eq(counted("COMPLETED", ""), 1);
    event = ended_event("bob", "FAILED", "attempts_exhausted");
    act("resolve", &event, "true, 0, 'detail',");
    ck_assert_int_eq(counted("FAILED", "attempts_exhausted"), 0);
    ck_assert_int_eq(counted("REJECTED", "resolved"), 1);
    ck_assert_int_eq(differences(), 0);
    event = ended_event("carol", "FAILED", "outcome_unknown");
    end_mark(&event, "reconcile", "found");
    ck_assert_int_eq(fact(&event, "(e.status = 'PENDING')"), 1);
    ck_assert_int_eq(differences(), 0);
    ck_assert_int_eq(claim_all(&token), 1);
    struct end failed = {.event = event, .token = token, .status = "FAILED", .reason_code = "outcome_unknown"};
    ck_assert_int_eq(finish(&failed), 1);
    end_mark(&event, "reconcile", "duplicate");
    ck_assert_int_eq(counted("FAILED", "outcome_unknown"), 0);
    ck_assert_int_eq(counted("FAILED", "issuer_duplicate"), 1);
    ck_assert_int_eq(differences(), 0);
    end_mark(&event, "reconcile", "cancelled_at_issuer");
    ck_assert_int_eq(counted("REJECTED", "card_cancelled"), 1);
    event = ended_event("dave", "FAILED", "issuer_key_expired");
    end_mark(&event, "reissue", "reissued");
    ck_assert_int_eq(counted("REJECTED", "reissued"), 1);
    ck_assert_int_eq(differences(), 0);
    fold_all();
}

TEST(the_ends_of_one_call_are_one_row_for_each_group)
{
    struct end ends[4];
    struct uuid token = uuid4_make();
    for (int i = 0; i < 4; i++)
        ends[i] = (struct end){.event = add_event("alice", 1),
                               .token = token,
                               .status = "REJECTED",
                               .reason_code = i < 3 ? "issuer_refused" : "not_eligible"};
    ck_assert_int_eq(claim_all(&token), 4);
    ck_assert_int_eq(finish_many(ends, 4), 4);
    ck_assert_int_eq(waiting(), 2);
    ck_assert_int_eq(differences(), 0);
}

TEST(an_event_with_times_and_texts_beyond_all_measure_is_counted_and_stops_nothing)
{
    static const char *const created[] = {"now() + interval '2 days'", "'1000-01-01'", "'-infinity'", "'infinity'"};
    for (size_t i = 0; i < ARRAY_SIZE(created); i++) {
        struct uuid token, event = claimed_event("alice", &token);
        database_exec(owner, "UPDATE outbox_events SET created_at = %s WHERE id = '%s'", created[i], text_of(&event));
        ck_assert_int_eq(complete(&event, &token), 1);
        ck_assert_int_eq(differences(), 0);
    }
    struct uuid event = ended_event("bob", "FAILED", "attempts_exhausted");
    database_exec(owner,
                  "TRUNCATE statistics_changes; UPDATE outbox_events SET created_at = '-infinity', event_type = "
                  "repeat('x', 9000), completed_at = 'infinity' WHERE id = '%s'; SELECT count_end(e, 1) FROM "
                  "outbox_events e WHERE e.due_at IS NULL",
                  text_of(&event));
    ck_assert_int_eq(differences(), 0);
    fold_all();
}

/* ---- folds ---- */

TEST(a_fold_that_is_not_committed_changes_nothing_and_holds_nobody_up)
{
    struct uuid token, event = claimed_event("alice", &token);
    ck_assert_int_eq(complete(&event, &token), 1);
    database_run(other, "BEGIN");
    ck_assert_int_eq(fold_as(other, 1000).folded, 1);
    ck_assert_int_eq(fold_as(worker, 1000).folded, 0); /* it does not wait either */
    event = claimed_event("bob", &token);
    ck_assert_int_eq(complete(&event, &token), 1); /* nor do ends */
    /* The worker is killed. */
    pg_sync_closep(&other);
    for (int i = 0; i < stuck_after_ms() / 50 && waiting() > 0; i++) {
        (void)fold_as(worker, 1000);
        database_run(owner, "SELECT pg_sleep(0.05)"); /* until the server has noticed it */
    }
    fold_all();
    ck_assert_int_eq(counted("COMPLETED", ""), 2);
    other = database_open("issuing_worker");
}

TEST(an_end_that_commits_beside_a_fold_is_not_lost)
{
    struct uuid token, event = claimed_event("alice", &token);
    database_run(worker, "BEGIN");
    ck_assert_int_eq(complete(&event, &token), 1);
    ck_assert_int_eq(fold_as(other, 1000).folded, 0);
    database_run(worker, "COMMIT");
    ck_assert_int_eq(differences(), 0);
    fold_all();
}

TEST(a_fold_is_bounded_and_says_whether_there_is_more)
{
    database_run(owner,
                 "INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, below_ms, count, sum_ms) "
                 "SELECT 'epoch', 'T', 'COMPLETED', '', 10, 1, 5 FROM generate_series(1, 25)");
    struct fold first = fold_as(worker, 10), second = fold_as(worker, 10), third = fold_as(worker, 10);
    ck_assert(first.folded == 10 && first.has_more && second.folded == 10 && second.has_more);
    ck_assert(third.folded == 5 && !third.has_more);
    ck_assert_int_eq(database_int(owner, "SELECT count * 1000 + sum_ms FROM outbox_statistics"), 25125);
}

TEST(a_change_that_cannot_be_added_stops_no_other_and_a_rebuild_forgets_it)
{
    for (int i = 0; i < 3; i++)
        ended_event("alice", "REJECTED", "issuer_refused");
    fold_all();
    database_run(owner,
                 "INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, below_ms, count, sum_ms) "
                 "SELECT hour, event_type, status, reason_code, below_ms, 9223372036854775807, 1 "
                 "FROM outbox_statistics LIMIT 1");
    ended_event("bob", "REJECTED", "not_eligible");
    struct fold fold = fold_as(worker, 1000);
    ck_assert(fold.folded == 1 && fold.refused == 1);
    ck_assert_int_eq(differences(), 0);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM statistics_changes WHERE refused LIKE '%%out of range%%'"), 1);
    fold = fold_as(worker, 1000);
    ck_assert(fold.folded == 0 && fold.refused == 0);
    database_run(owner, "SELECT issuing.rebuild_statistics(NULL, 'a', NULL, NULL, 'why')");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM statistics_changes"), 0);
    ck_assert_int_eq(differences(), 0);
}

/* ---- rebuild ---- */

/* By an operator; returns how many rows were wrong. -1: refused. */
static int64_t rebuild(void)
{
    struct pg_sync *operating = database_open("issuing_operator");
    const struct pg_param params[] = {pg_param_null(), pg_param_text("olga", 4), pg_param_null(), pg_param_null(),
                                      pg_param_text("why", 3)};
    struct pg_rows *rows = database_query(operating, &sql_operator_stats_rebuild, params);
    int64_t corrected = pg_is_null(rows, 0, 0) ? pg_int8(rows, 0, 1) : -1;
    pg_rows_free(rows);
    pg_sync_closep(&operating);
    return corrected;
}

TEST(a_rebuild_repairs_everything_and_is_on_record)
{
    for (int i = 0; i < 3; i++)
        ended_event("alice", "REJECTED", "issuer_refused");
    fold_all();
    ck_assert_int_eq(rebuild(), 0);
    database_run(owner, "UPDATE outbox_statistics SET count = count + 7, sum_ms = -3; INSERT INTO outbox_statistics "
                        "VALUES ('2020-01-01', 'T', 'COMPLETED', '', 10, 5, 5)");
    ck_assert_int_gt(differences(), 0);
    ck_assert_int_ge(rebuild(), 2);
    ck_assert_int_eq(differences(), 0);
    ck_assert_int_eq(waiting(), 0); /* it has folded */
    database_run(owner, "TRUNCATE outbox_statistics");
    ck_assert_int_ge(rebuild(), 1);
    ck_assert_int_eq(differences(), 0);
    ck_assert_int_eq(rebuild(), 0);
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM operator_actions WHERE action = 'rebuild_statistics' AND "
                                  "actor = 'olga' AND reason = 'why'"),
                     4);
}

TEST(a_rebuild_beside_ends_folds_and_another_rebuild_counts_each_end_once)
{
    struct uuid token, event = claimed_event("alice", &token);
    ended_event("bob", "FAILED", "attempts_exhausted");
    database_run(owner, "UPDATE outbox_statistics SET count = count + 7");
    database_run(worker, "BEGIN");
    ck_assert_int_eq(complete(&event, &token), 1); /* not yet committed */
    database_run(other, "BEGIN");
    ck_assert_int_eq(fold_as(other, 1000).folded, 1); /* nor this fold */
    ck_assert_int_eq(rebuild(), 0);
    database_run(owner, "BEGIN");
    ck_assert_int_eq(database_int(owner, "SELECT issuing.take_job_lock('rebuild')"), 1);
    ck_assert_int_eq(rebuild(), -1); /* another one is at work */
    database_run(owner, "ROLLBACK");
    database_run(other, "COMMIT");
    database_run(worker, "COMMIT");
    ck_assert_int_eq(differences(), 0);
    fold_all();
    ck_assert_int_eq(rebuild(), 0);
}

#define REASONS_OF_ITS_OWN                                                                                             \
    "SELECT count(DISTINCT reason_code) FROM outbox_statistics WHERE event_type = 'HOOK' AND reason_code NOT IN ('', " \
    "'other')"

/* A receiver that answers with a code of its own for each event. */
TEST(of_a_type_and_hour_fifty_reasons_are_counted_by_name_and_the_rest_together)
{
    for (int turn = 0; turn < 3; turn++) {
        database_exec(owner,
                      "INSERT INTO outbox_events (event_type, user_id, payload, status, reason_code, completed_at) "
                      "SELECT 'HOOK', 'u', '{}', (ARRAY['FAILED', 'REJECTED'])[1 + n %% 2], 'code_' || n, now() "
                      "FROM generate_series(%d, %d) n",
                      turn * 30, turn * 30 + 40);
        database_exec(owner, "SELECT count_end(e, 1) FROM outbox_events e WHERE event_type = 'HOOK' AND NOT EXISTS "
                             "(SELECT FROM operator_actions a WHERE a.event_id = e.id)");
        database_run(owner, "INSERT INTO operator_actions (event_id, actor, action) "
                            "SELECT id, 'the test', 'counted' FROM outbox_events WHERE event_type = 'HOOK'");
        fold_all();
    }
    ck_assert_int_eq(database_int(owner, REASONS_OF_ITS_OWN), 50);
    ck_assert_int_eq(counted("FAILED", "other") + counted("REJECTED", "other"),
                     database_int(owner, "SELECT count(*) FROM outbox_events WHERE event_type = 'HOOK' AND reason_code "
                                         "NOT IN (SELECT reason_code FROM outbox_statistics)"));
    ck_assert_int_eq(counted("FAILED", "code_0"), 1);
    /* What is taken back leaves the row that it is in. */
    database_run(owner, "SELECT count_end(e, -1) FROM outbox_events e WHERE event_type = 'HOOK' AND reason_code IN "
                        "('code_0', 'code_100')");
    database_run(owner, "UPDATE outbox_events SET status = 'PENDING', reason_code = NULL, completed_at = NULL "
                        "WHERE event_type = 'HOOK' AND reason_code IN ('code_0', 'code_100')");
    fold_all();
    database_run(owner, "UPDATE outbox_statistics SET count = count + 7 WHERE reason_code = 'other'");
    ck_assert_int_gt(rebuild(), 0);
    fold_all();
    ck_assert_int_eq(database_int(owner, REASONS_OF_ITS_OWN), 50);
}

TEST(what_was_deleted_stays_counted_until_a_rebuild)
{
    struct uuid event = ended_event("alice", "REJECTED", "issuer_refused");
    fold_all();
    database_exec(owner, "DELETE FROM outbox_events WHERE id = '%s'", text_of(&event));
    ck_assert_int_eq(counted("REJECTED", "issuer_refused"), 1);
    ck_assert_int_eq(rebuild(), 1);
    ck_assert_int_eq(counted("REJECTED", "issuer_refused"), 0);
}

TESTS_BETWEEN(statistics, open_statistics, tear_down)
