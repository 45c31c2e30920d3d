/* The story: a commit that waits for a standby or a lock may hang for hours. Its query must end, its session must not
 * be closed and replaced until the server is full of them, and the queries behind it that are merely late must not cost
 * a connection. */
#include <unistd.h>

#define APPLICATION "test_pg_late"
#include "common/lib/base/clock.h"
#include "pool.h"
#include "tests/support/suite.h"

TEST(silence_past_the_deadline_is_unknown_and_the_pool_recovers)
{
    open_usual_pool(1, 10);
    struct probe *silent = submit(0, &doze, 20000, 200);
    struct probe *behind = submit(1, &twice, 1, 60000);
    run_until(done_count == 2);
    ck_assert_int_eq(silent->kind, PG_UNKNOWN);
    ck_assert_str_eq(silent->message, "no answer to doze within 200 ms");
    ck_assert(silent->was_sent);
    ck_assert_int_eq(behind->kind, PG_UNKNOWN);
    struct probe *after = submit(2, &twice, 4, 60000);
    run_until(done_count == 3);
    ck_assert_int_eq(after->kind, PG_DONE);
    ck_assert_int_eq(after->value, 8);
    ck_assert_int_eq(silent->results, 1);
}

/* ---- statements that hang ---- */

#define HUNG "statements hang: no session answers"

TEST(statements_that_hang_do_not_fill_the_server_with_sessions)
{
    static const struct sql_statement hang = {
        .name = "hang", .text = "SELECT pg_advisory_xact_lock($1::int8)::text", .parameters = 1, .shape = SQL_ONE};
    enum { CONNECTIONS = 2, SPARE = 2, QUERIES = 12 };
    execute("SELECT pg_advisory_lock(4711)");
    open_usual_pool(CONNECTIONS, 1);
    int submitted = 0;
    while (submitted < QUERIES) {
        (void)submit(submitted++, &hang, 4711, 300);
        run_until(done_count == submitted || beats_passed(10));
        ck_assert_int_le(sessions_of_pool(), CONNECTIONS + SPARE);
    }
    run_until(done_count == submitted && !ready && strcmp(reason, HUNG) == 0);
    ck_assert_int_eq(sessions_of_pool(), CONNECTIONS + SPARE);
    int unknown = 0;
    for (int i = 0; i < submitted; i++)
        unknown += probes[i].kind == PG_UNKNOWN;
    ck_assert_int_eq(unknown, CONNECTIONS + SPARE);
    struct probe *refused = submit(submitted++, &twice, 1, 600000); /* no query waits for a session that cannot come */
    run_until(done_count == submitted);
    ck_assert_int_eq(refused->kind, PG_NOT_SENT);
    ck_assert_str_eq(refused->message, "twice: " HUNG);
    int reported = states;
    run_until(beats_passed(30)); /* it does not change its mind meanwhile */
    ck_assert_int_eq(states, reported);
    ck_assert_int_eq(sessions_of_pool(), CONNECTIONS + SPARE);
    execute("SELECT pg_advisory_unlock(4711)");
    run_until(ready);
    struct probe *after = submit(submitted++, &twice, 4, 60000);
    run_until(done_count == submitted && sessions_of_pool() == CONNECTIONS);
    ck_assert_int_eq(after->kind, PG_DONE);
    for (int i = 0; i < submitted; i++)
        ck_assert_int_eq(probes[i].results, 1);
}

TEST(closing_leaves_nothing_of_sessions_that_hang)
{
    open_usual_pool(1, 4);
    for (int i = 0; i < 8; i++)
        (void)submit(i, &doze, 20000, 100);
    run_until(done_count == 8);
    close_pool();
}

/* ---- warnings at the commit ---- */

TEST(a_commit_that_gave_up_waiting_for_the_standby_is_unknown)
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
        (void)submit(i, &insert, i % 5, 60000);
    run_until(done_count == 100);
    for (int i = 0; i < 100; i++) {
        enum pg_kind wanted = i % 5 == 1 ? PG_UNKNOWN : i % 5 == 4 ? PG_REFUSED : PG_DONE;
        ck_assert_msg(probes[i].kind == wanted, "%d: kind %d", i, (int)probes[i].kind);
        ck_assert_int_eq(probes[i].results, 1);
    }
    ck_assert_str_eq(probes[1].message, "insert: terminating");
    ck_assert_int_eq(look_up("SELECT count(*) FROM test_pg_pool_warned"), 80);
    ck_assert_int_eq(states, 1); /* the connection is as good as before */
    execute("DROP TABLE test_pg_pool_warned; DROP FUNCTION test_pg_pool_warn()");
}

/* ---- late is not silent ---- */

TEST(a_query_that_is_late_behind_others_costs_no_connection)
{
    LOCK(4713);
    open_usual_pool(1, 10);
    int64_t pid = value_of(&backend, 0);
    struct probe *first = submit(0, &wait_for_lock, 4713, 60000);
    struct probe *late = submit(1, &twice, 1, 200);
    struct probe *early = submit(2, &twice, 2, 200);
    struct probe *behind = submit(3, &backend, 0, 60000);
    run_until(late->results == 1 && early->results == 1);
    ck_assert_int_eq(late->kind, PG_UNKNOWN);
    ck_assert_str_eq(late->message, "no answer to twice within 200 ms");
    ck_assert_int_eq(early->kind, PG_UNKNOWN);
    memset(late, 0, sizeof(*late)); /* its owner may forget it */
    memset(early, 0, sizeof(*early));
    run_until(beats_passed(10));
    ck_assert_int_eq(first->results + behind->results, 0);
    UNLOCK(4713);
    run_until(first->results == 1 && behind->results == 1);
    ck_assert_int_eq(first->kind, PG_DONE);
    ck_assert_int_eq(behind->kind, PG_DONE);
    ck_assert_int_eq(behind->value, pid);
    ck_assert_int_eq(late->results + early->results, 0);
    ck_assert_int_eq(states, 1);
    ck_assert_int_eq(pg_pool_in_flight(pool), 0);
}

TEST(a_statement_that_was_late_and_hangs_when_it_is_the_first_is_silence)
{
    LOCK(4713);
    LOCK(4714);
    open_usual_pool(1, 10);
    struct probe *first = submit(0, &wait_for_lock, 4713, 600000);
    struct probe *late = submit(1, &wait_for_lock, 4714, 200);
    struct probe *behind = submit(2, &twice, 2, 600000);
    run_until(late->results == 1);
    UNLOCK(4713);
    run_until(first->results == 1);
    ck_assert_int_eq(first->kind, PG_DONE);
    run_until(behind->results == 1);
    ck_assert_int_eq(behind->kind, PG_UNKNOWN);
    ck_assert_str_eq(behind->message, "no answer to wait_for_lock within 200 ms");
    struct probe *after = submit(3, &twice, 4, 60000);
    run_until(after->results == 1);
    ck_assert_int_eq(after->kind, PG_DONE);
    UNLOCK(4714);
}

TEST(what_was_late_is_not_sent_again_when_its_name_is_refused)
{
    static const struct sql_statement forget = {.name = "forget", .text = "DEALLOCATE ALL", .shape = SQL_NONE};
    static const struct sql_statement put = {.name = "put",
                                             .by_name = true,
                                             .text = "INSERT INTO test_pg_pool_put VALUES ($1::int8) RETURNING i",
                                             .parameters = 1};
    execute("DROP TABLE IF EXISTS test_pg_pool_put; CREATE TABLE test_pg_pool_put (i int8)");
    open_usual_pool(1, 10);
    (void)value_of(&put, 1);
    LOCK(4713);
    struct probe *first = submit(0, &wait_for_lock, 4713, 600000);
    (void)submit(1, &forget, 0, 600000);
    (void)submit(2, &put, 2, 200);      /* its name will be gone, and its values are not ours any more */
    (void)submit(3, &quotient, 1, 200); /* its name is new */
    run_until(done_count == 3);
    UNLOCK(4713);
    run_until(done_count == 5);
    ck_assert_int_eq(first->kind, PG_DONE);
    expect_hundred_values(&twice, 2);
    ck_assert_int_eq(value_of(&quotient, 5), 20);
    ck_assert_int_eq(value_of(&put, 3), 3);
    ck_assert_int_eq(look_up("SELECT count(*) FROM test_pg_pool_put"), 2);
    ck_assert_int_eq(states, 1);
    execute("DROP TABLE test_pg_pool_put");
}

TEST(closing_frees_the_places_of_those_that_were_late)
{
    LOCK(4713);
    open_usual_pool(1, 10);
    struct probe *first = submit(0, &wait_for_lock, 4713, 60000);
    struct probe *late = submit(1, &twice, 1, 200);
    run_until(late->results == 1);
    close_pool();
    ck_assert_int_eq(first->kind, PG_UNKNOWN);
    ck_assert_int_eq(late->results, 1);
    UNLOCK(4713);
}

TEST(what_has_too_little_time_left_is_not_sent)
{
    open_usual_pool(1, 10);
    int64_t pid = value_of(&backend, 0);
    struct probe *late = submit(0, &twice, 1, 500);
    struct probe *patient = submit(1, &backend, 0, 60000);
    while (clock_mono_ms() < late->query.deadline_ms - 90) /* the loop is busy until too little is left for an answer */
        usleep(1000);
    run_until(done_count == 3);
    ck_assert_int_eq(late->kind, PG_NOT_SENT);
    ck_assert(!late->was_sent);
    ck_assert_str_eq(late->message, "twice: no connection was free in time");
    ck_assert_int_eq(patient->kind, PG_DONE);
    ck_assert_int_eq(patient->value, pid);
    ck_assert_int_eq(states, 1);
}

/* ---- queries that yield ---- */

static struct probe *submit_yielding(int index, const struct sql_statement *statement, int64_t number,
                                     int64_t timeout_ms)
{
    struct probe *probe = &probes[index];
    *probe = (struct probe){
        .query = {.statement = statement, .timeout_ms = timeout_ms, .on_result = on_result, .yields = true}};
    probe->query.params[0] = pg_param_int8(number);
    submit_probe(probe);
    return probe;
}

TEST(queries_that_yield_leave_a_connection_to_the_others)
{
    enum { MINE = 40 };
    LOCK(4713);
    open_usual_pool(3, 4);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MINE; i++) /* eight are sent */
            (void)submit_yielding(i, &wait_for_lock, 4713, 60000);
        run_until(look_up("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 2);
        for (int i = 0; i < 20; i++)
            ck_assert_int_eq(value_of(&twice, i), 2 * i);
        int sent = 0;
        for (int i = 0; i < MINE; i++)
            sent += probes[i].query.sent;
        ck_assert_int_eq(sent, 8);
        if (round == 0) { /* those that are lost with their connections make room for the next */
            execute("SELECT pg_terminate_backend(l.pid, 10000) FROM pg_locks AS l WHERE locktype = 'advisory' "
                    "AND NOT granted");
            int before = done_count;
            UNLOCK(4713);
            run_until(done_count >= before + MINE);
            LOCK(4713);
            /* All three must be up again: with two, those that yield have one. */
            run_until(sessions_of_pool() == 3 && beats_passed(10));
        }
    }
    UNLOCK(4713);
    int before = done_count;
    run_until(done_count == before + MINE);
    for (int i = 0; i < MINE; i++)
        ck_assert_int_eq(probes[i].kind, PG_DONE);
}

TEST(on_one_connection_both_kinds_are_answered_in_turn)
{
    LOCK(4713);
    open_usual_pool(1, 4);
    for (int i = 0; i < 10; i++) /* four are sent */
        (void)submit_yielding(i, &wait_for_lock, 4713, 60000);
    run_until(probes[3].query.sent);
    struct probe *other = submit(10, &twice, 3, 60000);
    UNLOCK(4713);
    run_until(done_count == 11);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(probes[i].kind, PG_DONE);
    ck_assert_int_eq(other->value, 6);
    ck_assert_int_eq(other->place, 4); /* before those that waited longer and yield */
}

SUITE(pg_late)
{
    TCase *tcase = tcase_create("pg_late");
    ADD_TESTS(tcase);
    add_pool_tests(suite, tcase);
}
