/* The story: a statement that was sent and not answered may have committed, and a program that takes it for "failed"
 * makes a second card. So each query gets exactly one result, of the right kind: through failures of neighbours, of
 * commits and of connections, through a server that is away, read-only or has another schema, and through closing. And
 * the loop is clean afterwards. */
#include <libpq-fe.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define APPLICATION "test_pg_pool"
#include "pool.h"
#include "tests/support/suite.h"

TEST(ten_thousand_queries_get_each_its_own_result)
{
    open_usual_pool(3, 50);
    for (int i = 0; i < MANY; i++)
        (void)submit(i, &twice, i, 60000);
    ck_assert_int_eq(done_count, 0);
    ck_assert_int_eq(pg_pool_in_flight(pool), MANY);
    run_until(done_count == MANY);
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(probes[i].results, 1);
        ck_assert_int_eq(probes[i].kind, PG_DONE);
        ck_assert_int_eq(probes[i].value, 2 * i);
    }
    ck_assert_int_eq(pg_pool_in_flight(pool), 0);
    ck_assert_int_eq(errors, 0);
}

TEST(one_connection_answers_in_order)
{
    open_usual_pool(1, 100);
    for (int i = 0; i < 1000; i++)
        (void)submit(i, &twice, i, 60000);
    run_until(done_count == 1000);
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(probes[i].place, i);
}

TEST(a_query_may_be_submitted_again_from_its_own_result)
{
    open_usual_pool(1, 4);
    struct probe *probe = &probes[0];
    *probe =
        (struct probe){.query = {.statement = &twice, .timeout_ms = 60000, .on_result = on_result}, .repeats = 999};
    probe->query.params[0] = pg_param_int8(21);
    submit_probe(probe);
    run_until(done_count == 1000);
    ck_assert_int_eq(probe->results, 1000);
    ck_assert_int_eq(probe->value, 42);
}

TEST(a_refused_query_leaves_its_neighbours_unharmed)
{
    open_usual_pool(1, 100);
    for (int i = 0; i < 1000; i++)
        (void)submit(i, &quotient, i % 10, 60000);
    run_until(done_count == 1000);
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(probes[i].results, 1);
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

TEST(a_commit_that_fails_is_a_refusal_and_not_done)
{
    static const struct sql_statement insert = {.name = "insert",
                                                .text = "INSERT INTO test_pg_pool_deferred VALUES ($1::int8)",
                                                .parameters = 1,
                                                .shape = SQL_NONE};
    execute("DROP TABLE IF EXISTS test_pg_pool_deferred; CREATE TABLE test_pg_pool_deferred (i int8 UNIQUE DEFERRABLE "
            "INITIALLY DEFERRED)");
    open_usual_pool(1, 100);
    for (int i = 0; i < 100; i++)
        (void)submit(i, &insert, i / 2, 60000);
    run_until(done_count == 100);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(probes[i].kind, i % 2 ? PG_REFUSED : PG_DONE);
        ck_assert_str_eq(probes[i].sqlstate, i % 2 ? "23505" : "");
    }
    ck_assert_int_eq(look_up("SELECT count(*) FROM test_pg_pool_deferred"), 50);
    ck_assert_int_eq(states, 1);
    execute("DROP TABLE test_pg_pool_deferred");
}

TEST(nulls_empties_and_large_values_pass_both_ways)
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
        probes[i] = (struct probe){.query = {.statement = &echo, .timeout_ms = 60000, .on_result = on_result}};
        probes[i].query.params[0] = pg_param_text(large, LARGE);
        pg_array_start(&array, &bufs[0], PG_UUID);
        pg_array_add_uuid(&array, &uuid);
        pg_array_add_uuid(&array, NULL);
        probes[i].query.params[1] = pg_array_param(&array);
        probes[i].query.params[2] = pg_param_uuid(&uuid);
        pg_array_start(&array, &bufs[1], PG_TEXT);
        probes[i].query.params[3] = pg_array_param(&array);
        probes[i].query.params[4] = pg_param_null();
        probes[i].query.params[5] = pg_param_text("", 0);
        submit_probe(&probes[i]);
    }
    run_until(done_count == 8);
    for (int i = 0; i < 8; i++)
        ck_assert_msg(probes[i].kind == PG_DONE, "%s", probes[i].message);
    free(large);
    buf_done(&bufs[0]);
    buf_done(&bufs[1]);
}

static void on_rows(struct pg_query *query, const struct pg_query_result *result)
{
    ck_assert_int_eq(result->kind, PG_DONE);
    ck_assert_int_eq(pg_rows_count(result->rows), 3);
    ck_assert_str_eq(pg_bytes(result->rows, 0, 1).bytes, "a");
    ck_assert(pg_is_null(result->rows, 1, 1));
    ck_assert_int_eq((int)pg_bytes(result->rows, 2, 1).length, 0);
    ck_assert(pg_bool(result->rows, 2, 2));
    on_result(query, result);
}

TEST(rows_are_there_during_the_callback)
{
    static const struct sql_statement rows = {
        .name = "rows",
        .text = "SELECT i::int8, t, i = 3 FROM (VALUES (1, 'a'), (2, NULL), (3, '')) AS v (i, t)",
        .shape = SQL_MANY};
    open_usual_pool(1, 1);
    probes[0] = (struct probe){.query = {.statement = &rows, .timeout_ms = 60000, .on_result = on_rows}};
    submit_probe(&probes[0]);
    run_until(done_count == 1);
    ck_assert_int_eq(probes[0].value, 1);
}

TEST(waiting_past_the_deadline_is_not_sent)
{
    open_usual_pool(1, 1);
    struct probe *busy = submit(0, &doze, 600, 60000);
    struct probe *late = submit(1, &twice, 1, 100);
    struct probe *patient = submit(2, &twice, 2, 60000);
    run_until(done_count == 3);
    ck_assert_int_eq(busy->kind, PG_DONE);
    ck_assert_int_eq(late->kind, PG_NOT_SENT);
    ck_assert(!late->was_sent);
    ck_assert_int_eq(late->place, 0);
    ck_assert_int_eq(patient->kind, PG_DONE);
    ck_assert_int_eq(patient->value, 4);
}

TEST(one_query_too_many_is_not_sent)
{
    open_pool("", (struct pg_pool_options){.connections = 1, .pipeline = 2, .waiting_max = 3});
    run_until(pg_pool_ready(pool));
    for (int i = 0; i < 7; i++) /* two go, three wait */
        (void)submit(i, &doze, 1, 60000);
    run_until(done_count == 7);
    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(probes[i].kind, i < 5 ? PG_DONE : PG_NOT_SENT);
}

TEST(terminated_backends_make_unknown_and_the_pool_recovers)
{
    open_usual_pool(3, 2);
    for (int i = 0; i < 8; i++) /* six in flight, two wait */
        (void)submit(i, &doze, i < 6 ? 20000 : 1, 60000);
    run_until(look_up("SELECT count(*) FROM pg_stat_activity WHERE application_name = '" APPLICATION
                      "' AND wait_event = 'PgSleep'") == 3);
    execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'");
    run_until(done_count == 8);
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(probes[i].results, 1);
        ck_assert_int_eq(probes[i].kind, i < 6 ? PG_UNKNOWN : PG_DONE);
    }
    ck_assert_msg(probes[0].message[0] && !strchr(probes[0].message, '\n'), "%s", probes[0].message);
    ck_assert(pg_pool_ready(pool));
    ck_assert(ready);
}

TEST(idle_sessions_that_the_server_ends_are_replaced_and_the_database_stays_ready)
{
    open_usual_pool(2, 2);
    run_until(sessions_of_pool() == 2);
    execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'");
    run_until(ends == 2);
    ck_assert_str_eq(last_end, "terminating connection due to administrator command (SQLSTATE 57P01)");
    ck_assert(pg_pool_ready(pool));
    struct probe *probe = submit(0, &twice, 2, 60000);
    run_until(done_count == 1);
    ck_assert_int_eq(probe->kind, PG_DONE);
    run_until(sessions_of_pool() == 2);
    ck_assert_int_eq(states, 1); /* when it became ready at first */
}

TEST(no_limit_of_idle_sessions_applies_to_ours)
{
    static const struct sql_statement limit = {
        .name = "limit",
        .text = "SELECT extract(epoch FROM current_setting('idle_session_timeout')::interval)::int8",
        .shape = SQL_ONE};
    execute("ALTER ROLE CURRENT_USER SET idle_session_timeout = '10min'");
    open_pool("", (struct pg_pool_options){
                      .connections = 1, .pipeline = 1, .waiting_max = 1, .schema_least = 1, .schema_most = INT32_MAX});
    run_until(pg_pool_ready(pool));
    execute("ALTER ROLE CURRENT_USER RESET idle_session_timeout");
    ck_assert_int_eq(value_of(&limit, 0), 0);
}

TEST(without_a_server_a_query_waits_until_its_deadline_and_is_not_sent)
{
    open_pool("host=127.0.0.1 port=1", (struct pg_pool_options){.connections = 2, .pipeline = 2, .waiting_max = 10});
    struct probe *probe = submit(0, &twice, 1, 300);
    run_until(done_count == 1);
    ck_assert_int_eq(probe->kind, PG_NOT_SENT);
    ck_assert_int_eq(probe->place, 0);
    ck_assert(!ready && !pg_pool_ready(pool));
    ck_assert_int_ge(states, 1);
    ck_assert_msg(strstr(reason, "Connection refused") && !strchr(reason, '\n'), "%s", reason);
}

TEST(nonsense_for_an_address_is_reported_at_once)
{
    struct pg_pool_options options = {.conninfo = "host='", .connections = 1, .pipeline = 1};
    ck_assert(!pg_pool_open(&loop, &options, &pool, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_ptr_null(pool);
}

TEST(closing_gives_each_query_one_result)
{
    open_usual_pool(2, 3);
    for (int i = 0; i < 100; i++)
        (void)submit(i, &doze, 20000, 60000);
    run_until(look_up("SELECT count(*) FROM pg_stat_activity WHERE application_name = '" APPLICATION
                      "' AND wait_event = 'PgSleep'") == 2);
    ck_assert_int_eq(done_count, 0);
    probes[0].repeats = 1; /* submitted again while closing */
    pg_pool_close(pool, on_closed, &closed);
    (void)submit(100, &twice, 1, 60000);
    ck_assert_int_eq(done_count, 0);
    run_until(closed);
    ck_assert_int_eq(done_count, 102);
    ck_assert_int_eq(probes[0].results, 2);
    ck_assert_int_eq(probes[0].kind, PG_NOT_SENT);
    for (int i = 1; i <= 100; i++) {
        ck_assert_int_eq(probes[i].results, 1);
        ck_assert_int_eq(probes[i].kind, i < 6 ? PG_UNKNOWN : PG_NOT_SENT);
    }
    ck_assert_int_eq(states, 1);
}

static void on_result_close(struct pg_query *query, const struct pg_query_result *result)
{
    on_result(query, result);
    if (!closed && done_count == 1)
        pg_pool_close(pool, on_closed, &closed);
}

TEST(closing_from_a_result_is_allowed)
{
    open_usual_pool(1, 10);
    for (int i = 0; i < 20; i++) {
        probes[i] = (struct probe){.query = {.statement = &twice, .timeout_ms = 60000, .on_result = on_result_close}};
        submit_probe(&probes[i]);
    }
    run_until(closed);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(probes[i].results, 1);
    ck_assert_int_eq(probes[0].kind, PG_DONE);
    ck_assert_int_eq(probes[19].kind, PG_NOT_SENT);
}

TEST(closing_before_the_first_turn_is_clean)
{
    open_pool("", (struct pg_pool_options){.connections = 4, .pipeline = 2, .waiting_max = 10});
    (void)submit(0, &twice, 1, 60000);
    close_pool();
    ck_assert_int_eq(probes[0].kind, PG_NOT_SENT);
    ck_assert_int_eq(states, 0);
}

TEST(a_schema_that_does_not_fit_keeps_the_pool_down_until_it_does)
{
    execute("ALTER TABLE issuing.schema_migration RENAME TO schema_migration_kept");
    open_pool("", (struct pg_pool_options){
                      .connections = 2, .pipeline = 2, .waiting_max = 10, .schema_least = 2, .schema_most = 3});
    struct probe *probe = submit(0, &twice, 1, 60000);
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
    ck_assert_int_eq(done_count, 0);
    execute("UPDATE issuing.schema_migration SET version = 3");
    run_until(done_count == 1);
    ck_assert_int_eq(probe->kind, PG_DONE);
    ck_assert(ready);
    close_pool();
    execute(
        "DROP TABLE issuing.schema_migration; ALTER TABLE issuing.schema_migration_kept RENAME TO schema_migration");
}

TEST(a_server_gone_read_only_is_left_for_a_new_connection)
{
    static const struct sql_statement write = {
        .name = "write", .text = "CREATE TABLE test_pg_pool_never (i int)", .shape = SQL_NONE};
    open_pool("options=-cdefault_transaction_read_only=on",
              (struct pg_pool_options){.connections = 1, .pipeline = 10, .waiting_max = 10});
    struct probe *before = submit(0, &backend, 0, 60000);
    struct probe *refused = submit(1, &write, 0, 60000);
    struct probe *beside = submit(2, &backend, 0, 60000);
    run_until(done_count == 3);
    struct probe *after = submit(3, &backend, 0, 60000);
    run_until(done_count == 4);
    ck_assert_int_eq(refused->kind, PG_REFUSED);
    ck_assert_str_eq(refused->sqlstate, "25006");
    ck_assert_int_eq(beside->kind, PG_DONE);
    ck_assert_int_eq(beside->value, before->value);
    ck_assert_int_eq(after->kind, PG_DONE);
    ck_assert_int_ne(after->value, before->value);
}

/* The value of one option of the test's own conninfo. */
static void option_of(const char *keyword, char *ret_value, size_t size)
{
    PQconninfoOption *options = PQconninfoParse(conninfo(), NULL);
    ck_assert_ptr_nonnull(options);
    ret_value[0] = '\0';
    for (PQconninfoOption *option = options; option->keyword; option++)
        if (strcmp(option->keyword, keyword) == 0 && option->val)
            snprintf(ret_value, size, "%s", option->val);
    PQconninfoFree(options);
}

TEST(a_silent_first_host_does_not_hide_the_second)
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
    snprintf(extra, sizeof(extra), "host='127.0.0.1,%s' port=%d,%s", host, ntohs(address.sin_port),
             port[0] ? port : "5432");
    open_pool(extra, (struct pg_pool_options){.connections = 1, .pipeline = 1, .waiting_max = 10});
    struct probe *probe = submit(0, &twice, 3, 60000);
    run_until(done_count == 1);
    ck_assert_int_eq(probe->kind, PG_DONE);
    ck_assert_int_eq(probe->value, 6);
    (void)close(silent);
}

SUITE(pg_pool)
{
    TCase *tcase = tcase_create("pg_pool");
    ADD_TESTS(tcase);
    add_pool_tests(suite, tcase);
}
