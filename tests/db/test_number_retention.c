/* The story: the number of a card that was closed years ago is still there, and an assessor asks why. It is erased when
 * its retention is over, and no other: not that of a card in use, of a card that is being replaced or not settled, and
 * not because an attacked worker asks for it. */
#include "tests/db/housekeeping_calls.h"

#include "statements.h"
#include "tests/support/suite.h"

/* A card of the user, which has the event's id as its own, with a number. */
static struct uuid add_card(const char *user, const char *event_status, const char *columns, const char *values)
{
    struct uuid id = add_event(user, 0, event_status, "0 s");
    database_exec(owner,
                  "INSERT INTO cards (id, request_id, created_at, exp_month, exp_year, user_id, issuer_card_id, last4, "
                  "number_record, %s) VALUES ('%s', '%s', now() - interval '9 years', 1, 2099, '%s', 'i', '1111', "
                  "decode('0100000001' || repeat('ab', 40), 'hex'), %s)",
                  columns, text_of(&id), text_of(&id), user, values);
    return id;
}

static struct uuid add_closed(const char *user, const char *event_status)
{
    return add_card(user, event_status, "status, closed_at", "'cancelled', now() - interval '8 days'");
}

/* How many numbers the worker's call erases. */
static int64_t erase(struct pg_sync *db, int64_t retention_ms)
{
    const struct pg_param params[] = {pg_param_int8(retention_ms)};
    struct pg_rows *rows = database_query(db, &sql_erase_numbers, params);
    int64_t erased = pg_rows_count(rows) ? pg_int8(rows, 0, 2) : 0;
    pg_rows_free(rows);
    return erased;
}

static void expect_numbers(const char *wanted)
{
    expect_text("SELECT string_agg(user_id, ' ' ORDER BY user_id) FROM cards WHERE number_record IS NOT NULL", wanted);
    ck_assert_int_eq(
        database_int(owner,
                     "SELECT count(*) FROM cards WHERE (number_record IS NULL) <> (number_erased_at IS NOT NULL)"),
        0);
}

TEST(a_number_is_erased_when_its_retention_is_over)
{
    database_run(owner, "TRUNCATE operator_actions");
    (void)add_closed("closed", "COMPLETED");
    (void)add_card("expired", "COMPLETED", "status", "'active'");
    database_run(owner, "UPDATE cards SET (exp_month, exp_year) = (SELECT extract(month FROM d), extract(year FROM d) "
                        "FROM (SELECT now() - interval '3 months' AS d) v) WHERE user_id = 'expired'");
    (void)add_card("in-use", "COMPLETED", "status", "'active'");
    (void)add_card("frozen", "COMPLETED", "status", "'frozen'");
    (void)add_card("lately", "COMPLETED", "status, closed_at", "'replaced', now() - interval '6 days'");
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 2);
    expect_numbers("frozen in-use lately");
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 0);
    expect_text("SELECT string_agg(concat_ws(' ', action, after ->> 'numbers', after ->> 'kept'), ', ') FROM "
                "operator_actions",
                "numbers_erased 2 7 days");
}

/* An issuer that says nonsense of the expiry. */
TEST(the_number_of_a_new_card_is_kept_whatever_its_expiry)
{
    (void)add_card("new", "COMPLETED", "status", "'active'");
    database_run(owner, "UPDATE cards SET exp_year = 2000, created_at = now()");
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 0);
}

TEST(what_is_not_settled_or_is_being_replaced_keeps_its_number)
{
    (void)add_closed("failed", "FAILED");
    (void)add_closed("pending", "PENDING");
    (void)add_closed("processing", "PROCESSING");
    struct uuid old = add_closed("replaced", "COMPLETED"), reissue = add_event("replaced", 0, "FAILED", "0 s");
    database_exec(owner, "INSERT INTO card_reissues (event_id, user_id, card_id) VALUES ('%s', 'replaced', '%s')",
                  text_of(&reissue), text_of(&old));
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 0);
    database_run(owner, "UPDATE outbox_events SET status = 'COMPLETED', completed_at = now(), lease_token = NULL, "
                        "lease_until = NULL");
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 4);
}

/* A worker that was started with another configuration, or that an attacker controls. */
TEST(a_worker_lengthens_the_retention_and_shortens_it_never)
{
    struct err err = {.kind = ERR_NONE};
    (void)add_card("alice", "COMPLETED", "status, closed_at", "'cancelled', now() - interval '50 days'");
    database_run(owner, "SELECT issuing.set_retention('numbers', '60 d')");
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(erase(worker, i ? -DAY_MS : 0), 0);
        database_run(worker, "SELECT issuing.erase_numbers(NULL)");
    }
    ck_assert_int_eq(erase(worker, INT64_C(40000) * DAY_MS), 0);
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 0);
    expect_text("SELECT kept::text FROM retentions WHERE name = 'numbers'", "36600 days");
    ck_assert(!pg_sync_exec(owner, "SELECT issuing.set_retention('numbers', '6 d')", &err));
    ck_assert_str_eq(err.sqlstate, "23514");
    database_run(owner, "SELECT issuing.set_retention('numbers', '7 d')");
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 1);
}

/* The worker that does not get the lock has the longer retention. */
TEST(of_two_workers_one_erases_and_the_longer_retention_counts)
{
    (void)add_closed("alice", "COMPLETED");
    database_run(owner, "BEGIN; SELECT issuing.take_job_lock('numbers')");
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 0);
    ck_assert_int_eq(erase(other, 30 * DAY_MS), 0);
    database_run(owner, "COMMIT");
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 0);
    expect_numbers("alice");
}

TEST(no_worker_makes_a_card_closed_long_ago)
{
    (void)add_card("alice", "COMPLETED", "status", "'active'");
    database_run(worker, "UPDATE cards SET status = 'cancelled', updated_at = '2000-01-01'");
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 0);
    static const char *const forbidden[] = {"UPDATE cards SET closed_at = '2000-01-01'",
                                            "UPDATE cards SET exp_year = 2000", "UPDATE cards SET number_record = NULL",
                                            "UPDATE cards SET number_erased_at = NULL"};
    for (size_t i = 0; i < ARRAY_SIZE(forbidden); i++) {
        struct err err = {.kind = ERR_NONE};
        ck_assert_msg(!pg_sync_exec(worker, forbidden[i], &err), "%s", forbidden[i]);
        ck_assert_str_eq(err.sqlstate, "42501");
    }
    /* It was a mistake: the card is in use again, and closed later. */
    database_run(owner, "UPDATE cards SET closed_at = closed_at - interval '1 year'");
    database_run(worker, "UPDATE cards SET status = 'active'");
    database_run(worker, "UPDATE cards SET status = 'replaced'");
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 0);
    database_run(owner, "UPDATE cards SET closed_at = closed_at - interval '1 year'");
    database_run(worker, "UPDATE cards SET status = 'cancelled'"); /* it was closed already */
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 1);
}

TEST(a_clock_that_steps_erases_no_number)
{
    (void)add_closed("ahead", "COMPLETED");
    set_clock("30 days", "31 days", "30 days"); /* the database's is 30 days ahead since the last pass */
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 0);
    /* The database's was 30 days behind while the card was closed. */
    (void)add_card("behind", "COMPLETED", "status", "'active'");
    set_clock("-30 days", "-29 days", "-30 days");
    database_run(worker, "UPDATE cards SET status = 'cancelled' WHERE user_id = 'behind'");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE user_id = 'behind' AND closed_at > now() + "
                                         "interval '29 days'"),
                     1);
}

TEST(a_card_that_somebody_works_on_is_waited_for_by_nobody)
{
    struct uuid held = add_closed("held", "COMPLETED");
    (void)add_closed("free", "COMPLETED");
    database_exec(owner, "BEGIN; SELECT FROM cards WHERE id = '%s' FOR UPDATE", text_of(&held));
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 1);
    database_run(owner, "COMMIT");
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 1);
}

/* Erased between the two halves of a step of `keys rewrap`, which holds the row otherwise. */
TEST(sealing_again_brings_no_number_back)
{
    (void)add_closed("alice", "COMPLETED");
    ck_assert_int_eq(database_int(owner, "SELECT count(id) FROM issuing.rewrap_take(NULL, NULL, 9, 10)"), 1);
    ck_assert_int_eq(erase(worker, 7 * DAY_MS), 1);
    ck_assert_int_eq(database_int(owner, "SELECT issuing.rewrap_put(ARRAY[c.id], ARRAY['alice'], ARRAY[decode("
                                         "'0100000001' || repeat('ab', 40), 'hex')], ARRAY['\\x02'::bytea], 'x') FROM "
                                         "cards c"),
                     0);
    ck_assert_int_eq(database_int(owner, "SELECT count(id) FROM issuing.rewrap_take(NULL, NULL, 9, 10)"), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM issuing.number_keys()"), 0);
    expect_numbers("");
}

TESTS_BETWEEN(number_retention, set_up, tear_down)
