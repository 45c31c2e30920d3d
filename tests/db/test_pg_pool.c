/* The story: a statement that was sent and not answered may have committed, and whoever takes it for "failed" makes a
 * second card. So each ask gets exactly one answer, and the right kind of it: through failures of neighbours, of
 * commits, of connections, through silence and through closing. Whoever wants the rows before the commit gets them
 * once, and is told afterwards what they were worth. And the loop is clean afterwards. Needs a database: its conninfo
 * (keyword=value) in ISSUING_TEST_DATABASE. */
#include <check.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/nudge.h"
#include "common/pg_listen.h"
#include "common/pg_pool.h"
#include "common/pg_sync.h"

#include "turning.h"

#define APPLICATION "test_pg_pool"
#define MANY 10000

struct probe {
    struct pg_ask ask; /* first: an ask is its probe */
    int answers;
    enum pg_kind kind;
    char sqlstate[6];
    char message[200];
    int64_t value; /* of column 0 */
    int place;     /* how many were answered before it */
    bool was_sent;
    int again; /* asks itself anew so often */
    int early; /* how often on_rows was called for the ask in flight */
    int64_t early_value;
};

static struct pg_pool *pool;
static struct pg_sync *db; /* beside the pool */
static struct err err;
static struct probe probes[MANY];
static int answered, errors, states, hints;
static bool inside_ask, ready, closed;
static char reason[256], last_error[6];

static const struct sql_statement twice = {
    .name = "twice", .by_name = true, .text = "SELECT $1::int8 * 2", .parameters = 1, .shape = SQL_ONE};
static const struct sql_statement quotient = {
    .name = "quotient", .by_name = true, .text = "SELECT 100 / $1::int8", .parameters = 1, .shape = SQL_ONE};
static const struct sql_statement doze = {
    .name = "doze", .text = "SELECT pg_sleep($1::int8 / 1000.0)::text", .parameters = 1, .shape = SQL_ONE};
static const struct sql_statement backend = {
    .name = "backend", .text = "SELECT pg_backend_pid()::int8", .shape = SQL_ONE};

static void on_state(void *context, bool is_ready, const char *error_text)
{
    ck_assert_ptr_eq(context, &loop);
    ck_assert(!inside_ask);
    states++;
    ready = is_ready;
    (void)snprintf(reason, sizeof(reason), "%s", error_text);
}

static void on_error(void *context, const char sqlstate[6])
{
    ck_assert_ptr_eq(context, &loop);
    errors++;
    memcpy(last_error, sqlstate, sizeof(last_error));
}

static void ask_probe(struct probe *probe)
{
    ck_assert(!inside_ask);
    inside_ask = true;
    pg_pool_ask(pool, &probe->ask);
    inside_ask = false;
}

static void on_answer(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct probe *probe = (struct probe *)ask;
    ck_assert(!inside_ask);
    probe->answers++;
    probe->kind = answer->kind;
    probe->was_sent = ask->sent;
    probe->place = answered++;
    memcpy(probe->sqlstate, answer->sqlstate, sizeof(probe->sqlstate));
    memcpy(probe->message, answer->message, sizeof(probe->message));
    ck_assert_int_eq(answer->kind == PG_DONE, answer->rows != NULL);
    ck_assert_int_eq(answer->kind == PG_REFUSED, answer->sqlstate[0] != '\0');
    ck_assert_int_eq(answer->kind == PG_DONE, answer->message[0] == '\0');
    if (answer->rows && pg_rows_count(answer->rows) > 0 && pg_bytes(answer->rows, 0, 0).length == 8)
        probe->value = pg_int8(answer->rows, 0, 0);
    if (ask->on_rows && answer->kind == PG_DONE) {
        ck_assert_int_eq(probe->early, 1);
        ck_assert_int_eq(probe->early_value, probe->value);
    }
    if (probe->again > 0) {
        probe->again--;
        probe->early = 0;
        ask_probe(probe);
    }
}

static struct probe *ask_number(int index, const struct sql_statement *statement, int64_t number, int64_t timeout_ms)
{
    struct probe *probe = &probes[index];
    *probe = (struct probe){.ask = {.statement = statement, .timeout_ms = timeout_ms, .on_answer = on_answer}};
    probe->ask.params[0] = pg_param_int8(number);
    ask_probe(probe);
    return probe;
}

static const char *conninfo(void)
{
    const char *text = getenv("ISSUING_TEST_DATABASE");
    ck_assert_msg(text != NULL, "ISSUING_TEST_DATABASE is not set");
    return text;
}

static void open_pool(const char *extra, struct pg_pool_options options)
{
    char text[1024];
    (void)snprintf(text, sizeof(text), "%s %s", conninfo(), extra);
    options.conninfo = text;
    options.application_name = APPLICATION;
    options.on_state = on_state;
    options.on_error = on_error;
    options.context = &loop;
    ck_assert_msg(pg_pool_open(&loop, &options, &pool, &err), "%s", err.message);
    ck_assert_int_eq(states, 0);
    ck_assert(!pg_pool_ready(pool));
}

static void open_usual_pool(int connections, int pipeline)
{
    open_pool("", (struct pg_pool_options){.connections = connections, .pipeline = pipeline, .waiting_max = MANY});
    run_until(pg_pool_ready(pool));
    ck_assert(ready);
}

static void on_closed(void *context)
{
    ck_assert_ptr_eq(context, &closed);
    closed = true;
    pool = NULL;
}

static void close_pool(void)
{
    pg_pool_close(pool, on_closed, &closed);
    ck_assert(!closed);
    run_until(closed);
}

static void set_up(void)
{
    err = (struct err){.kind = ERR_NONE};
    memset(probes, 0, sizeof(probes));
    answered = errors = states = hints = 0;
    inside_ask = ready = closed = false;
    turning_why = reason;
    reason[0] = last_error[0] = '\0';
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_msg(pg_sync_open(conninfo(), "test_pg_pool_beside", &db, &err), "%s", err.message);
    /* What a test before abandoned may still sleep on the server. */
    ck_assert(pg_sync_exec(
        db, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'",
        &err));
}

static void tear_down(void)
{
    if (pool)
        close_pool();
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    pg_sync_closep(&db);
}

static void execute(const char *text)
{
    ck_assert_msg(pg_sync_exec(db, text, &err), "%s", err.message);
}

static int64_t look_up(const char *text)
{
    struct sql_statement statement = {.name = "look_up", .text = text, .shape = SQL_ONE};
    pg_rows_scope struct pg_rows *rows = NULL;
    ck_assert_msg(pg_sync_ask(db, &statement, NULL, &rows, &err), "%s", err.message);
    return pg_int8(rows, 0, 0);
}

START_TEST(ten_thousand_asks_get_each_its_own_answer)
{
    open_usual_pool(3, 50);
    for (int i = 0; i < MANY; i++)
        (void)ask_number(i, &twice, i, 60000);
    ck_assert_int_eq(answered, 0);
    ck_assert_int_eq(pg_pool_in_flight(pool), MANY);
    run_until(answered == MANY);
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(probes[i].answers, 1);
        ck_assert_int_eq(probes[i].kind, PG_DONE);
        ck_assert_int_eq(probes[i].value, 2 * i);
    }
    ck_assert_int_eq(pg_pool_in_flight(pool), 0);
    ck_assert_int_eq(errors, 0);
}
END_TEST

START_TEST(one_connection_answers_in_order)
{
    open_usual_pool(1, 100);
    for (int i = 0; i < 1000; i++)
        (void)ask_number(i, &twice, i, 60000);
    run_until(answered == 1000);
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(probes[i].place, i);
}
END_TEST

START_TEST(an_ask_may_be_asked_again_from_its_own_answer)
{
    open_usual_pool(1, 4);
    struct probe *probe = &probes[0];
    *probe = (struct probe){.ask = {.statement = &twice, .timeout_ms = 60000, .on_answer = on_answer}, .again = 999};
    probe->ask.params[0] = pg_param_int8(21);
    ask_probe(probe);
    run_until(answered == 1000);
    ck_assert_int_eq(probe->answers, 1000);
    ck_assert_int_eq(probe->value, 42);
}
END_TEST

START_TEST(a_refused_ask_leaves_its_neighbours_unharmed)
{
    open_usual_pool(1, 100);
    for (int i = 0; i < 1000; i++)
        (void)ask_number(i, &quotient, i % 10, 60000);
    run_until(answered == 1000);
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(probes[i].answers, 1);
        ck_assert_int_eq(probes[i].kind, i % 10 ? PG_DONE : PG_REFUSED);
        ck_assert_str_eq(probes[i].sqlstate, i % 10 ? "" : "22012");
        if (i % 10)
            ck_assert_int_eq(probes[i].value, 100 / (i % 10));
    }
    ck_assert_str_eq(probes[0].message, "quotient: division by zero");
    ck_assert_int_eq(errors, 100);
    ck_assert_str_eq(last_error, "22012");
    ck_assert_int_eq(states, 1);
}
END_TEST

START_TEST(a_commit_that_fails_is_a_refusal_and_not_done)
{
    static const struct sql_statement insert = {.name = "insert",
                                                .text = "INSERT INTO test_pg_pool_deferred VALUES ($1::int8)",
                                                .parameters = 1,
                                                .shape = SQL_NONE};
    execute("DROP TABLE IF EXISTS test_pg_pool_deferred; CREATE TABLE test_pg_pool_deferred (i int8 UNIQUE DEFERRABLE "
            "INITIALLY DEFERRED)");
    open_usual_pool(1, 100);
    for (int i = 0; i < 100; i++)
        (void)ask_number(i, &insert, i / 2, 60000);
    run_until(answered == 100);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(probes[i].kind, i % 2 ? PG_REFUSED : PG_DONE);
        ck_assert_str_eq(probes[i].sqlstate, i % 2 ? "23505" : "");
    }
    ck_assert_int_eq(look_up("SELECT count(*) FROM test_pg_pool_deferred"), 50);
    ck_assert_int_eq(states, 1);
    execute("DROP TABLE test_pg_pool_deferred");
}
END_TEST

START_TEST(nulls_empties_and_large_values_pass_both_ways)
{
    static const struct sql_statement echo = {
        .name = "echo",
        .text = "SELECT $1::bytea, $2::uuid[] = ARRAY[$3::uuid, NULL], cardinality($4::text[]), $5::text IS NULL, "
                "$6::bytea = ''::bytea",
        .parameters = 6,
        .shape = SQL_ONE,
    };
    enum { LARGE = 3 << 20 };
    struct buf bufs[2];
    struct pg_array array;
    struct uuid uuid = uuid7_make();
    char *large = malloc(LARGE);
    ck_assert_ptr_nonnull(large);
    memset(large, 'x', LARGE);
    open_usual_pool(1, 8);
    buf_init(&bufs[0], 100);
    buf_init(&bufs[1], 100);
    for (int i = 0; i < 8; i++) { /* more than any socket buffer holds, both ways at once */
        probes[i] = (struct probe){.ask = {.statement = &echo, .timeout_ms = 60000, .on_answer = on_answer}};
        probes[i].ask.params[0] = pg_param_text(large, LARGE);
        pg_array_start(&array, &bufs[0], PG_UUID);
        pg_array_add_uuid(&array, &uuid);
        pg_array_add_uuid(&array, NULL);
        probes[i].ask.params[1] = pg_array_param(&array);
        probes[i].ask.params[2] = pg_param_uuid(&uuid);
        pg_array_start(&array, &bufs[1], PG_TEXT);
        probes[i].ask.params[3] = pg_array_param(&array);
        probes[i].ask.params[4] = pg_param_null();
        probes[i].ask.params[5] = pg_param_text("", 0);
        ask_probe(&probes[i]);
    }
    run_until(answered == 8);
    for (int i = 0; i < 8; i++)
        ck_assert_msg(probes[i].kind == PG_DONE, "%s", probes[i].message);
    free(large);
    buf_done(&bufs[0]);
    buf_done(&bufs[1]);
}
END_TEST

static void on_rows(struct pg_ask *ask, const struct pg_answer *answer)
{
    ck_assert_int_eq(answer->kind, PG_DONE);
    ck_assert_int_eq(pg_rows_count(answer->rows), 3);
    ck_assert_str_eq(pg_bytes(answer->rows, 0, 1).bytes, "a");
    ck_assert(pg_is_null(answer->rows, 1, 1));
    ck_assert_int_eq((int)pg_bytes(answer->rows, 2, 1).length, 0);
    ck_assert(pg_bool(answer->rows, 2, 2));
    on_answer(ask, answer);
}

START_TEST(rows_are_there_during_the_answer)
{
    static const struct sql_statement rows = {
        .name = "rows",
        .text = "SELECT i::int8, t, i = 3 FROM (VALUES (1, 'a'), (2, NULL), (3, '')) AS v (i, t)",
        .shape = SQL_MANY};
    open_usual_pool(1, 1);
    probes[0] = (struct probe){.ask = {.statement = &rows, .timeout_ms = 60000, .on_answer = on_rows}};
    ask_probe(&probes[0]);
    run_until(answered == 1);
    ck_assert_int_eq(probes[0].value, 1);
}
END_TEST

/* ---- statements under names: parsed once, and given up where names do not hold, as behind a transaction pooler ---- */

/* How many statements this connection keeps under names that begin like $1; those that it was asked for by SQL aside. */
static const struct sql_statement kept = {
    .name = "kept",
    .text = "SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql AND "
            "name LIKE CASE $1::int8 WHEN 1 THEN 'twice%' WHEN 2 THEN 'quotient%' WHEN 3 THEN 'columns%' ELSE '%' END",
    .parameters = 1,
    .shape = SQL_ONE};
enum { KEPT_TWICE = 1, KEPT_QUOTIENT, KEPT_COLUMNS };
static const struct sql_statement runs_of_twice = {
    .name = "runs",
    .text = "SELECT sum(generic_plans + custom_plans)::int8 FROM pg_prepared_statements WHERE name LIKE 'twice%'",
    .shape = SQL_ONE};

/* One more ask, waited for. */
static int64_t answer_to(const struct sql_statement *statement, int64_t number)
{
    int before = answered;
    struct probe *probe = ask_number(MANY - 1, statement, number, 60000);
    run_until(answered == before + 1);
    ck_assert_msg(probe->kind == PG_DONE, "%s: %s", probe->sqlstate, probe->message);
    return probe->value;
}

static void expect_hundred_answers(const struct sql_statement *statement, int64_t factor)
{
    int before = answered;
    for (int i = 0; i < 100; i++)
        (void)ask_number(i, statement, i, 60000);
    run_until(answered == before + 100);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(probes[i].answers, 1);
        ck_assert_msg(probes[i].kind == PG_DONE, "%s: %s", probes[i].sqlstate, probes[i].message);
        ck_assert_int_eq(probes[i].value, factor * i);
    }
}

START_TEST(a_statement_is_parsed_once_on_each_connection)
{
    static const struct sql_statement by_text = {
        .name = "by_text", .text = "SELECT $1::int8 * 2", .parameters = 1, .shape = SQL_ONE};
    open_usual_pool(1, 10);
    for (int connection = 0; connection < 2; connection++) {
        (void)answer_to(&twice, 1);
        expect_hundred_answers(&twice, 2);
        ck_assert_int_eq(answer_to(&kept, KEPT_TWICE), 1);
        ck_assert_int_eq(answer_to(&runs_of_twice, 0), 101);
        expect_hundred_answers(&by_text, 2); /* it did not say that it may be kept */
        ck_assert_int_eq(answer_to(&kept, 0), 1);
        execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '" APPLICATION
                "'");
        run_until(!ready);
        run_until(ready);
    }
}
END_TEST

START_TEST(names_that_are_gone_cost_no_answer)
{
    static const struct sql_statement forget = {.name = "forget", .text = "DEALLOCATE ALL", .shape = SQL_NONE};
    open_usual_pool(1, 10);
    expect_hundred_answers(&twice, 2);
    (void)answer_to(&forget, 0);
    expect_hundred_answers(&twice, 2);
    ck_assert_int_eq(answer_to(&quotient, 5), 20);
    ck_assert_int_eq(answer_to(&kept, 0), 0); /* once bitten, this connection asks by text */
    ck_assert_int_eq(errors, 0);
    ck_assert_int_eq(states, 1);
}
END_TEST

START_TEST(names_that_somebody_has_taken_cost_no_answer)
{
    char text[200];
    static const struct sql_statement name_of_twice = {
        .name = "name_of_twice",
        .text = "SELECT ('x' || right(name, 16))::bit(64)::int8 FROM pg_prepared_statements WHERE name LIKE 'twice%'",
        .shape = SQL_ONE};
    open_usual_pool(1, 10);
    (void)answer_to(&twice, 1);
    int64_t hash = answer_to(&name_of_twice, 0);
    close_pool();
    closed = false;
    states = 0;
    (void)snprintf(text, sizeof(text), "PREPARE twice_%016llx AS SELECT 4711::int8 + 0 * $1::int8",
                   (unsigned long long)hash);
    struct sql_statement take = {.name = "take", .text = text, .shape = SQL_NONE};
    open_usual_pool(1, 10);
    (void)answer_to(&take, 0);
    expect_hundred_answers(&twice, 2);
    ck_assert_int_eq(answer_to(&quotient, 5), 20);
    ck_assert_int_eq(answer_to(&kept, KEPT_TWICE) + answer_to(&kept, KEPT_QUOTIENT), 0);
    ck_assert_int_eq(errors, 0);
    ck_assert_int_eq(states, 1);
    close_pool(); /* before `take` goes */
}
END_TEST

START_TEST(a_changed_schema_costs_no_answer)
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
    expect_hundred_answers(&columns, 1);
    expect_hundred_answers(&call, 2);
    execute("ALTER TABLE test_pg_pool_columns ADD COLUMN j int8 DEFAULT 1;"
            "CREATE OR REPLACE FUNCTION test_pg_pool_function(i int8) RETURNS int8 LANGUAGE plpgsql "
            "AS 'BEGIN RETURN 3 * i; END'");
    expect_hundred_answers(&columns, 1);
    expect_hundred_answers(&call, 3);
    ck_assert_int_eq(answer_to(&twice, 4), 8);
    ck_assert_int_eq(answer_to(&kept, KEPT_TWICE), 1); /* the other names still hold */
    ck_assert_int_eq(errors, 0);
    ck_assert_int_eq(states, 1);
    execute("DROP TABLE test_pg_pool_columns; DROP FUNCTION test_pg_pool_function");
}
END_TEST

START_TEST(a_statement_that_cannot_be_parsed_is_refused_until_it_can)
{
    static const struct sql_statement columns = {.name = "columns",
                                                 .by_name = true,
                                                 .text = "SELECT i FROM test_pg_pool_later WHERE i = $1::int8",
                                                 .parameters = 1};
    execute("DROP TABLE IF EXISTS test_pg_pool_later");
    open_usual_pool(1, 100);
    for (int i = 0; i < 100; i++)
        (void)ask_number(i, i % 2 ? &twice : &columns, i, 60000);
    run_until(answered == 100);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(probes[i].answers, 1);
        ck_assert_int_eq(probes[i].kind, i % 2 ? PG_DONE : PG_REFUSED);
        ck_assert_str_eq(probes[i].sqlstate, i % 2 ? "" : "42P01");
    }
    ck_assert_int_eq(errors, 50);
    execute("CREATE TABLE test_pg_pool_later AS SELECT generate_series(0, 99)::int8 AS i");
    expect_hundred_answers(&columns, 1);
    ck_assert_int_eq(answer_to(&kept, KEPT_COLUMNS), 1);
    ck_assert_int_eq(answer_to(&kept, KEPT_TWICE), 1);
    ck_assert_int_eq(states, 1);
    execute("DROP TABLE test_pg_pool_later");
}
END_TEST

START_TEST(more_statements_than_names_are_all_answered)
{
    enum { STATEMENTS = 100 };
    static char texts[STATEMENTS][64];
    static struct sql_statement statements[STATEMENTS];
    open_usual_pool(1, 10);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < STATEMENTS; i++) {
            (void)snprintf(texts[i], sizeof(texts[i]), "SELECT $1::int8 + %d", i);
            statements[i] =
                (struct sql_statement){.name = "one_of_many", .by_name = true, .text = texts[i], .parameters = 1};
            ck_assert_int_eq(answer_to(&statements[i], 1000), 1000 + i);
        }
    }
    ck_assert_int_lt(answer_to(&kept, 0), STATEMENTS);
    ck_assert_int_eq(errors, 0);
}
END_TEST

/* ---- rows before they are committed ---- */

/* What a commit does is in the hands of a deferred trigger: it fails for numbers below 0, and waits for a lock for
 * those above 999. */
#define COMMIT_LOCK "4712"

static const struct sql_statement put = {.name = "put",
                                         .by_name = true,
                                         .text = "INSERT INTO test_pg_pool_early VALUES ($1::int8) RETURNING i",
                                         .parameters = 1};
static const struct sql_statement put_by_text = {
    .name = "put_by_text", .text = "INSERT INTO test_pg_pool_early VALUES ($1::int8) RETURNING i", .parameters = 1};

static void on_early(struct pg_ask *ask, const struct pg_rows *rows)
{
    struct probe *probe = (struct probe *)ask;
    ck_assert(!inside_ask);
    probe->early++;
    ck_assert_int_eq(probe->early, 1);
    if (pg_rows_count(rows) > 0)
        probe->early_value = pg_int8(rows, 0, 0);
}

static struct probe *ask_early(int index, const struct sql_statement *statement, int64_t number, int64_t timeout_ms)
{
    struct probe *probe = &probes[index];
    *probe = (struct probe){
        .ask = {.statement = statement, .timeout_ms = timeout_ms, .on_answer = on_answer, .on_rows = on_early}};
    probe->ask.params[0] = pg_param_int8(number);
    ask_probe(probe);
    return probe;
}

static void make_early_table(void)
{
    execute("DROP TABLE IF EXISTS test_pg_pool_early; CREATE TABLE test_pg_pool_early (i int8);"
            "CREATE OR REPLACE FUNCTION test_pg_pool_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF NEW.i < 0 THEN RAISE EXCEPTION 'not so' USING ERRCODE = "
            "CASE NEW.i WHEN -1 THEN '26000' WHEN -2 THEN '0A000' ELSE '23505' END; END IF;"
            "IF NEW.i > 999 THEN PERFORM pg_advisory_xact_lock(" COMMIT_LOCK "); END IF; RETURN NULL; END $$;"
            "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON test_pg_pool_early DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION test_pg_pool_commit()");
}

static void drop_early_table(void)
{
    execute("DROP TABLE test_pg_pool_early; DROP FUNCTION test_pg_pool_commit");
}

static void hold_commits(void)
{
    execute("SELECT pg_advisory_lock(" COMMIT_LOCK ")");
}

static void let_commits_go(void)
{
    execute("SELECT pg_advisory_unlock(" COMMIT_LOCK ")");
}

START_TEST(rows_are_there_before_they_are_committed)
{
    make_early_table();
    open_usual_pool(1, 10);
    for (int round = 0; round < 4; round++) { /* by its text, parsed under a name, by its name */
        hold_commits();
        struct probe *probe = ask_early(round, round ? &put : &put_by_text, 1000 + round, 60000);
        struct probe *behind = ask_number(10 + round, &twice, 4, 60000);
        run_until(probe->early == 1);
        ck_assert_int_eq(probe->early_value, 1000 + round);
        ck_assert_int_eq(look_up("SELECT count(*) FROM test_pg_pool_early"), round);
        ck_assert_int_eq(probe->answers + behind->answers, 0);
        let_commits_go();
        run_until(probe->answers == 1 && behind->answers == 1);
        ck_assert_int_eq(probe->kind, PG_DONE);
        ck_assert_int_eq(behind->value, 8);
        ck_assert_int_eq(look_up("SELECT count(*) FROM test_pg_pool_early"), round + 1);
    }
    ck_assert_int_eq(states, 1);
    drop_early_table();
}
END_TEST

START_TEST(a_commit_that_fails_after_the_rows_is_a_refusal)
{
    static const char *const sqlstates[] = {"26000", "0A000", "23505"};
    make_early_table();
    open_usual_pool(1, 100);
    (void)answer_to(&put, 1); /* from here on it has a name */
    for (int i = 0; i < 100; i++)
        (void)ask_early(i, i < 50 ? &put_by_text : &put, i % 2 ? -1 - i % 3 : i, 60000);
    run_until(answered == 101);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(probes[i].early, 1);
        ck_assert_int_eq(probes[i].early_value, i % 2 ? -1 - i % 3 : i);
        ck_assert_int_eq(probes[i].answers, 1);
        ck_assert_int_eq(probes[i].kind, i % 2 ? PG_REFUSED : PG_DONE);
        ck_assert_str_eq(probes[i].sqlstate, i % 2 ? sqlstates[i % 3] : "");
    }
    ck_assert_int_eq(look_up("SELECT count(*) FROM test_pg_pool_early"), 51);
    ck_assert_int_eq(errors, 50);
    ck_assert_int_eq(answer_to(&twice, 4), 8);
    ck_assert_int_eq(answer_to(&kept, KEPT_TWICE), 1); /* names hold here: the commit was refused, not they */
    ck_assert_int_eq(states, 1);
    drop_early_table();
}
END_TEST

START_TEST(a_statement_that_fails_has_no_rows)
{
    static const struct sql_statement nothing = {
        .name = "nothing", .text = "DELETE FROM test_pg_pool_early WHERE i = $1::int8", .parameters = 1};
    make_early_table();
    open_usual_pool(1, 100);
    for (int i = 0; i < 100; i++)
        (void)ask_early(i, &quotient, i % 10, 60000);
    struct probe *none = ask_early(100, &nothing, 1, 60000);
    run_until(answered == 101);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(probes[i].kind, i % 10 ? PG_DONE : PG_REFUSED);
        ck_assert_int_eq(probes[i].early, i % 10 ? 1 : 0);
    }
    ck_assert_int_eq(none->kind, PG_DONE);
    ck_assert_int_eq(none->early, 1);
    drop_early_table();
}
END_TEST

START_TEST(rows_come_once_when_a_name_is_refused)
{
    static const struct sql_statement forget = {.name = "forget", .text = "DEALLOCATE ALL", .shape = SQL_NONE};
    open_usual_pool(1, 10);
    (void)answer_to(&twice, 1);
    (void)answer_to(&forget, 0);
    for (int i = 0; i < 100; i++)
        (void)ask_early(i, &twice, i, 60000);
    run_until(answered == 102);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(probes[i].early, 1);
        ck_assert_int_eq(probes[i].value, 2 * i);
    }
    ck_assert_int_eq(errors, 0);
}
END_TEST

START_TEST(a_connection_that_dies_between_the_rows_and_the_commit_is_unknown)
{
    make_early_table();
    open_usual_pool(1, 10);
    for (int by_deadline = 0; by_deadline < 2; by_deadline++) {
        hold_commits();
        struct probe *probe = ask_early(by_deadline, &put, 1000, by_deadline ? 300 : 60000);
        run_until(probe->early == 1);
        ck_assert_int_eq(probe->answers, 0);
        if (!by_deadline)
            execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '" APPLICATION
                "'");
        run_until(probe->answers == 1);
        ck_assert_int_eq(probe->kind, PG_UNKNOWN);
        ck_assert_int_eq(probe->early, 1);
        let_commits_go();
        struct probe *after = ask_early(2, &put, 1000, 60000);
        run_until(after->answers == 1);
        ck_assert_int_eq(after->kind, PG_DONE);
    }
    drop_early_table();
}
END_TEST

static void on_early_close(struct pg_ask *ask, const struct pg_rows *rows)
{
    pg_pool_close(pool, on_closed, &closed);
    on_early(ask, rows);
}

static void on_early_ask(struct pg_ask *ask, const struct pg_rows *rows)
{
    (void)ask_number(1, &twice, 21, 60000);
    on_early(ask, rows);
}

START_TEST(from_early_rows_one_may_ask_and_close)
{
    make_early_table();
    open_usual_pool(1, 10);
    probes[0] = (struct probe){
        .ask = {.statement = &put, .timeout_ms = 60000, .on_answer = on_answer, .on_rows = on_early_ask}, .again = 99};
    probes[0].ask.params[0] = pg_param_int8(1);
    ask_probe(&probes[0]);
    run_until(answered == 200);
    ck_assert_int_eq(probes[1].value, 42);
    hold_commits();
    probes[0].ask.on_rows = on_early_close;
    probes[0].ask.params[0] = pg_param_int8(1000);
    probes[0].early = 0;
    ask_probe(&probes[0]);
    run_until(closed);
    ck_assert_int_eq(probes[0].early, 1);
    ck_assert_int_eq(probes[0].kind, PG_UNKNOWN);
    let_commits_go();
    drop_early_table();
}
END_TEST

START_TEST(silence_past_the_deadline_is_unknown_and_the_pool_recovers)
{
    open_usual_pool(1, 10);
    struct probe *silent = ask_number(0, &doze, 20000, 200);
    struct probe *behind = ask_number(1, &twice, 1, 60000);
    run_until(answered == 2);
    ck_assert_int_eq(silent->kind, PG_UNKNOWN);
    ck_assert_str_eq(silent->message, "no answer to doze within 200 ms");
    ck_assert(silent->was_sent);
    ck_assert_int_eq(behind->kind, PG_UNKNOWN);
    struct probe *after = ask_number(2, &twice, 4, 60000);
    run_until(answered == 3);
    ck_assert_int_eq(after->kind, PG_DONE);
    ck_assert_int_eq(after->value, 8);
    ck_assert_int_eq(silent->answers, 1);
}
END_TEST

/* ---- statements that hang ---- */

#define HUNG "statements hang: no session answers"

static int64_t sessions_of_pool(void)
{
    return look_up("SELECT count(*) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'");
}

START_TEST(statements_that_hang_do_not_fill_the_server_with_sessions)
{
    static const struct sql_statement hang = {
        .name = "hang", .text = "SELECT pg_advisory_xact_lock($1::int8)::text", .parameters = 1, .shape = SQL_ONE};
    enum { CONNECTIONS = 2, SPARE = 2, ASKS = 12 };
    execute("SELECT pg_advisory_lock(4711)");
    open_usual_pool(CONNECTIONS, 1);
    int asked = 0;
    while (asked < ASKS) {
        (void)ask_number(asked++, &hang, 4711, 300);
        run_until(answered == asked || beats_passed(10));
        ck_assert_int_le(sessions_of_pool(), CONNECTIONS + SPARE);
    }
    run_until(answered == asked && !ready && strcmp(reason, HUNG) == 0);
    ck_assert_int_eq(sessions_of_pool(), CONNECTIONS + SPARE);
    int unknown = 0;
    for (int i = 0; i < asked; i++)
        unknown += probes[i].kind == PG_UNKNOWN;
    ck_assert_int_eq(unknown, CONNECTIONS + SPARE);
    struct probe *refused = ask_number(asked++, &twice, 1, 600000); /* nobody waits for what cannot come */
    run_until(answered == asked);
    ck_assert_int_eq(refused->kind, PG_NOT_SENT);
    ck_assert_str_eq(refused->message, "twice: " HUNG);
    int told = states;
    run_until(beats_passed(30)); /* it does not change its mind meanwhile */
    ck_assert_int_eq(states, told);
    ck_assert_int_eq(sessions_of_pool(), CONNECTIONS + SPARE);
    execute("SELECT pg_advisory_unlock(4711)");
    run_until(ready);
    struct probe *after = ask_number(asked++, &twice, 4, 60000);
    run_until(answered == asked && sessions_of_pool() == CONNECTIONS);
    ck_assert_int_eq(after->kind, PG_DONE);
    for (int i = 0; i < asked; i++)
        ck_assert_int_eq(probes[i].answers, 1);
}
END_TEST

START_TEST(closing_leaves_nothing_of_sessions_that_hang)
{
    open_usual_pool(1, 4);
    for (int i = 0; i < 8; i++)
        (void)ask_number(i, &doze, 20000, 100);
    run_until(answered == 8);
    close_pool();
}
END_TEST

/* ---- warnings at the commit ---- */

START_TEST(a_commit_that_gave_up_waiting_for_the_standby_is_unknown)
{
    /* What the server says when such a wait is ended (syncrep.c), said by a trigger at the commit. */
    static const struct sql_statement insert = {.name = "insert",
                                                .text = "INSERT INTO test_pg_pool_warned VALUES ($1::int8) RETURNING i",
                                                .parameters = 1,
                                                .shape = SQL_ONE};
    execute("DROP TABLE IF EXISTS test_pg_pool_warned; CREATE TABLE test_pg_pool_warned (i int8);"
            "CREATE OR REPLACE FUNCTION test_pg_pool_warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF NEW.i = 1 THEN RAISE WARNING 'terminating' USING ERRCODE = '57P01'; "
            "ELSIF NEW.i = 2 THEN RAISE WARNING 'something else'; "
            "ELSIF NEW.i = 3 THEN RAISE NOTICE 'no warning' USING ERRCODE = '57P01'; "
            "ELSIF NEW.i = 4 THEN RAISE WARNING 'terminating' USING ERRCODE = '57P01'; "
            "RAISE EXCEPTION 'refused'; END IF; RETURN NULL; END $$;"
            "CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON test_pg_pool_warned DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION test_pg_pool_warn()");
    open_usual_pool(1, 100);
    for (int i = 0; i < 100; i++)
        (void)ask_number(i, &insert, i % 5, 60000);
    run_until(answered == 100);
    for (int i = 0; i < 100; i++) {
        enum pg_kind wanted = i % 5 == 1 ? PG_UNKNOWN : i % 5 == 4 ? PG_REFUSED : PG_DONE;
        ck_assert_msg(probes[i].kind == wanted, "%d: kind %d", i, (int)probes[i].kind);
        ck_assert_int_eq(probes[i].answers, 1);
    }
    ck_assert_str_eq(probes[1].message, "insert: terminating");
    ck_assert_int_eq(look_up("SELECT count(*) FROM test_pg_pool_warned"), 80);
    ck_assert_int_eq(states, 1); /* the connection is as good as before */
    execute("DROP TABLE test_pg_pool_warned; DROP FUNCTION test_pg_pool_warn()");
}
END_TEST

START_TEST(waiting_past_the_deadline_is_not_sent)
{
    open_usual_pool(1, 1);
    struct probe *busy = ask_number(0, &doze, 600, 60000);
    struct probe *late = ask_number(1, &twice, 1, 100);
    struct probe *patient = ask_number(2, &twice, 2, 60000);
    run_until(answered == 3);
    ck_assert_int_eq(busy->kind, PG_DONE);
    ck_assert_int_eq(late->kind, PG_NOT_SENT);
    ck_assert(!late->was_sent);
    ck_assert_int_eq(late->place, 0);
    ck_assert_int_eq(patient->kind, PG_DONE);
    ck_assert_int_eq(patient->value, 4);
}
END_TEST

START_TEST(one_ask_too_many_is_not_sent)
{
    open_pool("", (struct pg_pool_options){.connections = 1, .pipeline = 2, .waiting_max = 3});
    run_until(pg_pool_ready(pool));
    for (int i = 0; i < 7; i++) /* two go, three wait */
        (void)ask_number(i, &doze, 1, 60000);
    run_until(answered == 7);
    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(probes[i].kind, i < 5 ? PG_DONE : PG_NOT_SENT);
}
END_TEST

START_TEST(terminated_backends_make_unknown_and_the_pool_recovers)
{
    open_usual_pool(3, 2);
    for (int i = 0; i < 8; i++) /* six in flight, two wait */
        (void)ask_number(i, &doze, i < 6 ? 20000 : 1, 60000);
    run_until(look_up("SELECT count(*) FROM pg_stat_activity WHERE application_name = '" APPLICATION
                      "' AND wait_event = 'PgSleep'") == 3);
    execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'");
    run_until(answered == 8);
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(probes[i].answers, 1);
        ck_assert_int_eq(probes[i].kind, i < 6 ? PG_UNKNOWN : PG_DONE);
    }
    ck_assert_msg(probes[0].message[0] && !strchr(probes[0].message, '\n'), "%s", probes[0].message);
    ck_assert(pg_pool_ready(pool));
    ck_assert(ready);
}
END_TEST

START_TEST(idle_connections_that_are_cut_come_back)
{
    open_usual_pool(1, 2);
    execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'");
    run_until(!pg_pool_ready(pool));
    ck_assert(!ready);
    ck_assert_msg(reason[0] != '\0' && !strchr(reason, '\n'), "%s", reason);
    run_until(pg_pool_ready(pool));
    ck_assert(ready);
}
END_TEST

START_TEST(without_a_server_an_ask_waits_until_its_deadline_and_is_not_sent)
{
    open_pool("host=127.0.0.1 port=1", (struct pg_pool_options){.connections = 2, .pipeline = 2, .waiting_max = 10});
    struct probe *probe = ask_number(0, &twice, 1, 300);
    run_until(answered == 1);
    ck_assert_int_eq(probe->kind, PG_NOT_SENT);
    ck_assert_int_eq(probe->place, 0);
    ck_assert(!ready && !pg_pool_ready(pool));
    ck_assert_int_ge(states, 1);
    ck_assert_msg(strstr(reason, "Connection refused") && !strchr(reason, '\n'), "%s", reason);
}
END_TEST

START_TEST(nonsense_for_an_address_is_told_at_once)
{
    struct pg_pool_options options = {.conninfo = "host='", .connections = 1, .pipeline = 1};
    ck_assert(!pg_pool_open(&loop, &options, &pool, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_ptr_null(pool);
}
END_TEST

START_TEST(closing_answers_each_ask_once)
{
    open_usual_pool(2, 3);
    for (int i = 0; i < 100; i++)
        (void)ask_number(i, &doze, 20000, 60000);
    run_until(beats_passed(5));
    ck_assert_int_eq(answered, 0);
    probes[0].again = 1; /* asks anew while closing */
    pg_pool_close(pool, on_closed, &closed);
    (void)ask_number(100, &twice, 1, 60000);
    ck_assert_int_eq(answered, 0);
    run_until(closed);
    ck_assert_int_eq(answered, 102);
    ck_assert_int_eq(probes[0].answers, 2);
    ck_assert_int_eq(probes[0].kind, PG_NOT_SENT);
    for (int i = 1; i <= 100; i++) {
        ck_assert_int_eq(probes[i].answers, 1);
        ck_assert_int_eq(probes[i].kind, i < 6 ? PG_UNKNOWN : PG_NOT_SENT);
    }
    ck_assert_int_eq(states, 1);
}
END_TEST

static void on_answer_close(struct pg_ask *ask, const struct pg_answer *answer)
{
    on_answer(ask, answer);
    if (!closed && answered == 1)
        pg_pool_close(pool, on_closed, &closed);
}

START_TEST(closing_from_an_answer_is_allowed)
{
    open_usual_pool(1, 10);
    for (int i = 0; i < 20; i++) {
        probes[i] = (struct probe){.ask = {.statement = &twice, .timeout_ms = 60000, .on_answer = on_answer_close}};
        ask_probe(&probes[i]);
    }
    run_until(closed);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(probes[i].answers, 1);
    ck_assert_int_eq(probes[0].kind, PG_DONE);
    ck_assert_int_eq(probes[19].kind, PG_NOT_SENT);
}
END_TEST

START_TEST(closing_before_the_first_turn_is_clean)
{
    open_pool("", (struct pg_pool_options){.connections = 4, .pipeline = 2, .waiting_max = 10});
    (void)ask_number(0, &twice, 1, 60000);
    close_pool();
    ck_assert_int_eq(probes[0].kind, PG_NOT_SENT);
    ck_assert_int_eq(states, 0);
}
END_TEST

START_TEST(a_schema_that_does_not_fit_keeps_the_pool_down_until_it_does)
{
    execute("ALTER TABLE issuing.schema_migration RENAME TO schema_migration_kept");
    open_pool("", (struct pg_pool_options){
                      .connections = 2, .pipeline = 2, .waiting_max = 10, .schema_least = 2, .schema_most = 3});
    struct probe *probe = ask_number(0, &twice, 1, 60000);
    run_until(states == 1);
    ck_assert(!ready);
    ck_assert_str_eq(reason, "the schema is at version 0, this program needs 2 to 3: run issuing-ctl migrate");
    execute("CREATE TABLE issuing.schema_migration (version int8); INSERT INTO issuing.schema_migration "
            "VALUES (4)");
    run_until(strstr(reason, "version 4"));
    ck_assert_str_eq(
        reason,
        "the schema is at version 4, this program needs 2 to 3: install the program that belongs to the schema");
    ck_assert(!pg_pool_ready(pool));
    ck_assert_int_eq(answered, 0);
    execute("UPDATE issuing.schema_migration SET version = 3");
    run_until(answered == 1);
    ck_assert_int_eq(probe->kind, PG_DONE);
    ck_assert(ready);
    close_pool();
    execute(
        "DROP TABLE issuing.schema_migration; ALTER TABLE issuing.schema_migration_kept RENAME TO schema_migration");
}
END_TEST

START_TEST(a_server_gone_read_only_is_left_for_a_new_connection)
{
    static const struct sql_statement write = {
        .name = "write", .text = "CREATE TABLE test_pg_pool_never (i int)", .shape = SQL_NONE};
    open_pool("options=-cdefault_transaction_read_only=on",
              (struct pg_pool_options){.connections = 1, .pipeline = 10, .waiting_max = 10});
    struct probe *before = ask_number(0, &backend, 0, 60000);
    struct probe *refused = ask_number(1, &write, 0, 60000);
    struct probe *beside = ask_number(2, &backend, 0, 60000);
    run_until(answered == 3);
    struct probe *after = ask_number(3, &backend, 0, 60000);
    run_until(answered == 4);
    ck_assert_int_eq(refused->kind, PG_REFUSED);
    ck_assert_str_eq(refused->sqlstate, "25006");
    ck_assert_int_eq(beside->kind, PG_DONE);
    ck_assert_int_eq(beside->value, before->value);
    ck_assert_int_eq(after->kind, PG_DONE);
    ck_assert_int_ne(after->value, before->value);
}
END_TEST

/* The value of one option of the test's own conninfo. */
static void option_of(const char *keyword, char *ret_value, size_t size)
{
    PQconninfoOption *options = PQconninfoParse(conninfo(), NULL);
    ck_assert_ptr_nonnull(options);
    ret_value[0] = '\0';
    for (PQconninfoOption *option = options; option->keyword; option++)
        if (strcmp(option->keyword, keyword) == 0 && option->val)
            (void)snprintf(ret_value, size, "%s", option->val);
    PQconninfoFree(options);
}

START_TEST(a_silent_first_host_does_not_hide_the_second)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(silent, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(silent, 8), 0); /* takes connections and says nothing */
    ck_assert_int_eq(getsockname(silent, (struct sockaddr *)&address, &length), 0);
    char host[256], port[32], extra[400];
    option_of("host", host, sizeof(host));
    option_of("port", port, sizeof(port));
    (void)snprintf(extra, sizeof(extra), "host='127.0.0.1,%s' port=%d,%s", host, ntohs(address.sin_port),
                   port[0] ? port : "5432");
    open_pool(extra, (struct pg_pool_options){.connections = 1, .pipeline = 1, .waiting_max = 10});
    struct probe *probe = ask_number(0, &twice, 3, 60000);
    run_until(answered == 1);
    ck_assert_int_eq(probe->kind, PG_DONE);
    ck_assert_int_eq(probe->value, 6);
    (void)close(silent);
}
END_TEST

static void on_hint(void *context)
{
    ck_assert_ptr_eq(context, &hints);
    hints++;
}

START_TEST(a_listener_hints_after_each_connect_and_each_notification)
{
    struct pg_listen *listen = NULL;
    ck_assert(pg_listen_open(&loop, conninfo(), "test_pg_pool_wake", on_hint, &hints, &listen, &err));
    ck_assert_int_eq(hints, 0);
    run_until(hints == 1);
    execute("NOTIFY test_pg_pool_wake");
    run_until(hints == 2);
    execute("NOTIFY test_pg_pool_other");
    execute("NOTIFY test_pg_pool_wake, 'a'; NOTIFY test_pg_pool_wake, 'b'");
    run_until(hints == 4);
    execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'issuing-listen' AND "
            "datname = current_database()");
    run_until(hints == 5);
    execute("NOTIFY test_pg_pool_wake");
    run_until(hints == 6);
    pg_listen_close(listen, on_closed, &closed);
    ck_assert(!closed);
    run_until(closed);
    ck_assert_int_eq(hints, 6);
}
END_TEST

static struct pg_listen *closing_listen;

static void on_hint_close(void *context)
{
    on_hint(context);
    pg_listen_close(closing_listen, on_closed, &closed);
}

START_TEST(any_number_of_nudges_become_few_and_the_last_is_not_lost)
{
    static const struct sql_statement notify = {
        .name = "notify", .by_name = true, .text = "SELECT pg_notify('test_pg_pool_nudge', '')::text"};
    struct pg_listen *listen = NULL;
    struct nudge nudge;
    open_usual_pool(2, 4);
    ck_assert(pg_listen_open(&loop, conninfo(), "test_pg_pool_nudge", on_hint, &hints, &listen, &err));
    run_until(hints == 1); /* of the connect */
    ck_assert(nudge_open(&nudge, &loop, pool, &notify, &err));
    nudge_send(&nudge);
    ck_assert_int_eq(pg_pool_in_flight(pool), 1); /* nothing was sent before: at once */
    run_until(!nudge.is_busy && hints == 2);      /* the hint may overtake the answer */
    for (int round = 0; round < 20; round++) {
        nudge_send(&nudge);
        /* Either the first has left, and one more is for what came after it; or all wait together for the gap's end. */
        int expected = hints + 1 + pg_pool_in_flight(pool);
        for (int i = 0; i < 1000; i++)
            nudge_send(&nudge);
        ck_assert_int_le(pg_pool_in_flight(pool), 1);
        run_until(!nudge.is_busy && hints >= expected);
        if (round % 2 == 0)
            run_until(beats_passed(2));
        ck_assert_int_eq(hints, expected);
    }
    close_pool();
    closed = false;
    nudge_close(&nudge);
    pg_listen_close(listen, on_closed, &closed);
    run_until(closed);
    closed = false;
}
END_TEST

START_TEST(a_listener_may_be_closed_from_a_hint)
{
    ck_assert(pg_listen_open(&loop, conninfo(), "test_pg_pool_wake", on_hint_close, &hints, &closing_listen, &err));
    run_until(closed);
    ck_assert_int_eq(hints, 1);
}
END_TEST

START_TEST(a_listener_takes_only_a_plain_name)
{
    static const char *const names[] = {
        "", "1a", "a b", "a;DROP", "A", "\"a\"", "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffff1234"};
    struct pg_listen *listen = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        ck_assert(!pg_listen_open(&loop, conninfo(), names[i], on_hint, &hints, &listen, &err));
        ck_assert_int_eq(err.kind, ERR_CONFIG);
    }
    ck_assert_ptr_null(listen);
}
END_TEST

START_TEST(only_what_may_pass_is_transient)
{
    static const char *const transient[] = {"40001", "40P01", "25006", "53300", "57P01", "57P03", "08006"};
    static const char *const lasting[] = {"", "23505", "22012", "42P01", "57014", "40002", "P0001"};
    for (size_t i = 0; i < ARRAY_SIZE(transient); i++)
        ck_assert_msg(pg_sqlstate_is_transient(transient[i]), "%s", transient[i]);
    for (size_t i = 0; i < ARRAY_SIZE(lasting); i++)
        ck_assert_msg(!pg_sqlstate_is_transient(lasting[i]), "%s", lasting[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pg_pool");
    TCase *tcase = tcase_create("pg_pool");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, ten_thousand_asks_get_each_its_own_answer);
    tcase_add_test(tcase, one_connection_answers_in_order);
    tcase_add_test(tcase, an_ask_may_be_asked_again_from_its_own_answer);
    tcase_add_test(tcase, a_refused_ask_leaves_its_neighbours_unharmed);
    tcase_add_test(tcase, a_commit_that_fails_is_a_refusal_and_not_done);
    tcase_add_test(tcase, nulls_empties_and_large_values_pass_both_ways);
    tcase_add_test(tcase, rows_are_there_during_the_answer);
    tcase_add_test(tcase, a_statement_is_parsed_once_on_each_connection);
    tcase_add_test(tcase, names_that_are_gone_cost_no_answer);
    tcase_add_test(tcase, names_that_somebody_has_taken_cost_no_answer);
    tcase_add_test(tcase, a_changed_schema_costs_no_answer);
    tcase_add_test(tcase, a_statement_that_cannot_be_parsed_is_refused_until_it_can);
    tcase_add_test(tcase, more_statements_than_names_are_all_answered);
    tcase_add_test(tcase, rows_are_there_before_they_are_committed);
    tcase_add_test(tcase, a_commit_that_fails_after_the_rows_is_a_refusal);
    tcase_add_test(tcase, a_statement_that_fails_has_no_rows);
    tcase_add_test(tcase, rows_come_once_when_a_name_is_refused);
    tcase_add_test(tcase, a_connection_that_dies_between_the_rows_and_the_commit_is_unknown);
    tcase_add_test(tcase, from_early_rows_one_may_ask_and_close);
    tcase_add_test(tcase, silence_past_the_deadline_is_unknown_and_the_pool_recovers);
    tcase_add_test(tcase, statements_that_hang_do_not_fill_the_server_with_sessions);
    tcase_add_test(tcase, closing_leaves_nothing_of_sessions_that_hang);
    tcase_add_test(tcase, a_commit_that_gave_up_waiting_for_the_standby_is_unknown);
    tcase_add_test(tcase, waiting_past_the_deadline_is_not_sent);
    tcase_add_test(tcase, one_ask_too_many_is_not_sent);
    tcase_add_test(tcase, terminated_backends_make_unknown_and_the_pool_recovers);
    tcase_add_test(tcase, idle_connections_that_are_cut_come_back);
    tcase_add_test(tcase, without_a_server_an_ask_waits_until_its_deadline_and_is_not_sent);
    tcase_add_test(tcase, nonsense_for_an_address_is_told_at_once);
    tcase_add_test(tcase, closing_answers_each_ask_once);
    tcase_add_test(tcase, closing_from_an_answer_is_allowed);
    tcase_add_test(tcase, closing_before_the_first_turn_is_clean);
    tcase_add_test(tcase, a_schema_that_does_not_fit_keeps_the_pool_down_until_it_does);
    tcase_add_test(tcase, a_server_gone_read_only_is_left_for_a_new_connection);
    tcase_add_test(tcase, a_silent_first_host_does_not_hide_the_second);
    tcase_add_test(tcase, a_listener_hints_after_each_connect_and_each_notification);
    tcase_add_test(tcase, any_number_of_nudges_become_few_and_the_last_is_not_lost);
    tcase_add_test(tcase, a_listener_may_be_closed_from_a_hint);
    tcase_add_test(tcase, a_listener_takes_only_a_plain_name);
    tcase_add_test(tcase, only_what_may_pass_is_transient);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
