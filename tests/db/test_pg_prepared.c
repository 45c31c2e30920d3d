/* The story: a statement is parsed and planned once in each session, under a name. Behind a transaction pooler the
 * session may belong to another client a moment later: names are gone, or mean something else. That must cost no
 * result, run nothing twice, and never run the statement of another program. */
#define APPLICATION "test_pg_prepared"
#include "pool.h"
#include "common/lib/pg/pg_names.h"
#include "tests/support/suite.h"

/* ---- prepared statements: parsed once, sent by text where names do not last (behind a transaction pooler) ---- */

/* How many statements this connection keeps under names that begin like $1; those that it was submitted for by SQL
 * aside. */
static const struct sql_statement prepared_count = {
    .name = "prepared_count",
    .text = "SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql AND "
            "name LIKE CASE $1::int8 WHEN 1 THEN 'twice%' WHEN 2 THEN 'quotient%' WHEN 3 THEN 'columns%' ELSE '%' END",
    .parameters = 1,
    .shape = SQL_ONE};
enum { PREPARED_TWICE = 1, PREPARED_QUOTIENT, PREPARED_COLUMNS };
static const struct sql_statement runs_of_twice = {
    .name = "runs",
    .text = "SELECT sum(generic_plans + custom_plans)::int8 FROM pg_prepared_statements WHERE name LIKE 'twice%'",
    .shape = SQL_ONE};

TEST(a_statement_is_parsed_once_on_each_connection)
{
    static const struct sql_statement by_text = {
        .name = "by_text", .text = "SELECT $1::int8 * 2", .parameters = 1, .shape = SQL_ONE};
    open_usual_pool(1, 10);
    for (int connection = 0; connection < 2; connection++) {
        (void)value_of(&twice, 1);
        expect_hundred_values(&twice, 2);
        ck_assert_int_eq(value_of(&prepared_count, PREPARED_TWICE), 1);
        ck_assert_int_eq(value_of(&runs_of_twice, 0), 101);
        expect_hundred_values(&by_text, 2); /* it did not say that it may be prepared_count */
        ck_assert_int_eq(value_of(&prepared_count, 0), 1);
        execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '" APPLICATION
                "'");
        run_until(ends == connection + 1);
    }
}

TEST(names_that_are_gone_cost_no_result)
{
    static const struct sql_statement forget = {.name = "forget", .text = "DEALLOCATE ALL", .shape = SQL_NONE};
    open_usual_pool(1, 10);
    expect_hundred_values(&twice, 2);
    (void)value_of(&forget, 0);
    expect_hundred_values(&twice, 2);
    ck_assert_int_eq(value_of(&quotient, 5), 20);
    ck_assert_int_eq(value_of(&prepared_count, 0), 0); /* from now on this connection sends texts */
    ck_assert_int_eq(errors, 0);
    ck_assert_int_eq(states, 1);
}

TEST(names_that_another_program_has_taken_cost_no_result)
{
    char text[200];
    static const struct sql_statement name_of_twice = {
        .name = "name_of_twice",
        .text = "SELECT ('x' || right(name, 16))::bit(64)::int8 FROM pg_prepared_statements WHERE name LIKE 'twice%'",
        .shape = SQL_ONE};
    open_usual_pool(1, 10);
    (void)value_of(&twice, 1);
    int64_t hash = value_of(&name_of_twice, 0);
    close_pool();
    closed = false;
    states = 0;
    snprintf(text, sizeof(text), "PREPARE twice_%016llx AS SELECT 4711::int8 + 0 * $1::int8", (unsigned long long)hash);
    struct sql_statement take = {.name = "take", .text = text, .shape = SQL_NONE};
    open_usual_pool(1, 10);
    (void)value_of(&take, 0);
    expect_hundred_values(&twice, 2);
    ck_assert_int_eq(value_of(&quotient, 5), 20);
    ck_assert_int_eq(value_of(&prepared_count, PREPARED_TWICE) + value_of(&prepared_count, PREPARED_QUOTIENT), 0);
    ck_assert_int_eq(errors, 0);
    ck_assert_int_eq(states, 1);
    close_pool(); /* before `take` goes */
}

TEST(a_changed_schema_costs_no_result)
{
    static const struct sql_statement columns = {.name = "columns",
                                                 .by_name = true,
                                                 .text = "SELECT * FROM test_pg_pool_columns WHERE i = $1::int8",
                                                 .parameters = 1};
    static const struct sql_statement call = {
        .name = "call", .by_name = true, .text = "SELECT test_pg_pool_function($1::int8)", .parameters = 1};
    execute("DROP TABLE IF EXISTS test_pg_pool_columns; CREATE TABLE test_pg_pool_columns (i int8);"
            "INSERT INTO test_pg_pool_columns SELECT generate_series(0, 99);"
            "CREATE OR REPLACE FUNCTION test_pg_pool_function(i int8) RETURNS int8 LANGUAGE sql AS 'SELECT 2 * i'");
    open_usual_pool(1, 10);
    expect_hundred_values(&columns, 1);
    expect_hundred_values(&call, 2);
    execute("ALTER TABLE test_pg_pool_columns ADD COLUMN j int8 DEFAULT 1;"
            "CREATE OR REPLACE FUNCTION test_pg_pool_function(i int8) RETURNS int8 LANGUAGE plpgsql "
            "AS 'BEGIN RETURN 3 * i; END'");
    expect_hundred_values(&columns, 1);
    expect_hundred_values(&call, 3);
    ck_assert_int_eq(value_of(&twice, 4), 8);
    ck_assert_int_eq(value_of(&prepared_count, PREPARED_TWICE), 1); /* the other names still hold */
    ck_assert_int_eq(errors, 0);
    ck_assert_int_eq(states, 1);
    execute("DROP TABLE test_pg_pool_columns; DROP FUNCTION test_pg_pool_function");
}

TEST(a_statement_that_cannot_be_parsed_is_refused_until_it_can)
{
    static const struct sql_statement columns = {.name = "columns",
                                                 .by_name = true,
                                                 .text = "SELECT i FROM test_pg_pool_later WHERE i = $1::int8",
                                                 .parameters = 1};
    execute("DROP TABLE IF EXISTS test_pg_pool_later");
    open_usual_pool(1, 100);
    for (int i = 0; i < 100; i++)
        (void)submit(i, i % 2 ? &twice : &columns, i, 60000);
    run_until(done_count == 100);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(probes[i].results, 1);
        ck_assert_int_eq(probes[i].kind, i % 2 ? PG_DONE : PG_REFUSED);
        ck_assert_str_eq(probes[i].sqlstate, i % 2 ? "" : "42P01");
    }
    ck_assert_int_eq(errors, 50);
    execute("CREATE TABLE test_pg_pool_later AS SELECT generate_series(0, 99)::int8 AS i");
    expect_hundred_values(&columns, 1);
    ck_assert_int_eq(value_of(&prepared_count, PREPARED_COLUMNS), 1);
    ck_assert_int_eq(value_of(&prepared_count, PREPARED_TWICE), 1);
    ck_assert_int_eq(states, 1);
    execute("DROP TABLE test_pg_pool_later");
}

TEST(more_statements_than_names_are_all_answered)
{
    enum { STATEMENTS = PG_NAMES_MAX + 30 };
    static char texts[STATEMENTS][64];
    static struct sql_statement statements[STATEMENTS];
    open_usual_pool(1, 10);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < STATEMENTS; i++) {
            snprintf(texts[i], sizeof(texts[i]), "SELECT $1::int8 + %d", i);
            statements[i] =
                (struct sql_statement){.name = "one_of_many", .by_name = true, .text = texts[i], .parameters = 1};
            ck_assert_int_eq(value_of(&statements[i], 1000), 1000 + i);
        }
    }
    ck_assert_int_lt(value_of(&prepared_count, 0), STATEMENTS);
    ck_assert_int_eq(errors, 0);
}

SUITE(pg_prepared)
{
    TCase *tcase = tcase_create("pg_prepared");
    ADD_TESTS(tcase);
    add_pool_tests(suite, tcase);
}
