/* The story: the database was replaced by its backup while programs ran. They went on as if nothing had happened, and
 * a request whose acceptance was lost was made a second time. */
#define APPLICATION "test_histories"
#include "pool.h"
#include "tests/support/suite.h"

static void begin(void)
{
    set_up();
    execute("DELETE FROM issuing.histories WHERE NOT is_current");
    execute("UPDATE issuing.histories SET lost = NULL, lost_at = NULL, accepted_at = NULL");
}

/* Whether a program that knows this history finds that it is lost. */
static bool is_lost(const char *known)
{
    char text[900];
    snprintf(text, sizeof(text),
             "SELECT (c.lost IS NOT NULL)::int::int8 FROM issuing.histories h, LATERAL (SELECT %s) k (a, b, c, d), "
             "LATERAL issuing.check_history(k.a, k.b, k.c, k.d::int8) c WHERE h.is_current",
             known);
    return look_up(text) == 1;
}

static void accept_history(void)
{
    execute("SELECT issuing.accept_history('olga', 'olga', NULL, 'it was restored')");
}

#define SYSTEM "(SELECT system FROM issuing.check_history(NULL, NULL, NULL, NULL))"
#define TIMELINE "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int8"
#define POSITION "(pg_current_wal_insert_lsn() - '0/0')"
#define NOBODY "NULL::uuid, NULL::text, NULL::int8, NULL::int8"

TEST(a_server_that_has_all_commits_is_used)
{
    ck_assert(!is_lost(NOBODY));
    ck_assert(!is_lost("h.id, " SYSTEM ", " TIMELINE ", " POSITION));
    ck_assert(!is_lost("h.id, " SYSTEM ", 0::int8, " POSITION)); /* a standby was promoted since */
}

TEST(a_lower_position_or_timeline_and_another_database_are_lost_commits)
{
    static const char *const known[] = {
        "h.id, " SYSTEM ", " TIMELINE ", " POSITION " + 1e6",
        "h.id, " SYSTEM ", 0::int8, " POSITION " + 1e6",
        "h.id, " SYSTEM ", " TIMELINE " + 1, 1",
        "h.id, '1/2/3', " TIMELINE ", 1",
        "gen_random_uuid(), " SYSTEM ", " TIMELINE ", 1",
    };
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        ck_assert_msg(is_lost(known[i]), "%s", known[i]);
        ck_assert(is_lost(NOBODY)); /* nor does any other program use it */
        accept_history();
        ck_assert(!is_lost(NOBODY));
        ck_assert_int_eq(look_up("SELECT count(*) FROM issuing.histories WHERE is_current"), 1);
    }
}

#define ACTIONS "SELECT count(*) FROM issuing.operator_actions WHERE action = 'accept_history'"

TEST(what_was_accepted_is_not_found_again_and_the_next_loss_is)
{
    int64_t before = look_up(ACTIONS);
    execute("CREATE TEMP TABLE was AS SELECT id FROM issuing.histories WHERE is_current");
    ck_assert(is_lost("h.id, " SYSTEM ", " TIMELINE ", " POSITION " + 1e9"));
    accept_history();
    ck_assert(!is_lost("(SELECT w.id FROM was w), " SYSTEM ", " TIMELINE ", " POSITION " + 1e9"));
    ck_assert(is_lost("h.id, " SYSTEM ", " TIMELINE ", " POSITION " + 1e9"));
    accept_history();
    ck_assert_int_eq(look_up(ACTIONS), before + 2);
    accept_history(); /* nothing is lost: nothing is done */
    ck_assert_int_eq(look_up(ACTIONS), before + 2);
    execute("DROP TABLE was");
}

TEST(only_what_a_commit_makes_durable_is_acknowledged)
{
    ck_assert_int_eq(look_up("SELECT coalesce(issuing.acknowledged(), -1)"), -1);
    execute("CREATE TABLE written (a int)");
    ck_assert_int_eq(look_up("WITH w AS (INSERT INTO written VALUES (1) RETURNING 1) SELECT "
                             "(issuing.acknowledged() BETWEEN 1 AND " POSITION ")::int::int8 FROM w"),
                     1);
    execute("SET synchronous_commit = off");
    ck_assert_int_eq(look_up("WITH w AS (INSERT INTO written VALUES (1) RETURNING 1) SELECT "
                             "coalesce(issuing.acknowledged(), -1) FROM w"),
                     -1);
    execute("SET synchronous_commit = on");
    execute("DROP TABLE written");
}

TEST(a_pool_refuses_a_server_that_lacks_what_it_saw_acknowledged)
{
    static const struct sql_statement ahead = {
        .name = "ahead", .text = "SELECT $1::int8, $1::int8 AS acknowledged", .parameters = 1, .shape = SQL_ONE};
    open_pool("", (struct pg_pool_options){
                      .connections = 2, .pipeline = 1, .waiting_max = 10, .schema_least = 1, .schema_most = INT32_MAX});
    run_until(ready);
    ck_assert_int_eq(value_of(&ahead, INT64_C(1) << 50), INT64_C(1) << 50);
    ck_assert_int_eq(value_of(&ahead, 1), 1); /* which was sent before */
    execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'");
    run_until(!ready && pg_pool_cause(pool) == PG_CAUSE_LOST);
    ck_assert_msg(strstr(reason, "the database lacks acknowledged commits: it was at 0/"), "%s", reason);
    accept_history();
    run_until(ready);
    ck_assert_int_eq(value_of(&ahead, 1), 1);
    execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'");
    run_until(look_up("SELECT count(*) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'") == 2);
    ck_assert_int_eq(value_of(&ahead, 1), 1);
    ck_assert(ready);
}

TESTS_BETWEEN(histories, begin, tear_down)
