/* The story: in a quiet system a worker should know of a request as soon as it is committed, so the hint goes right behind
 * it on the same connection. It must not cost the request anything: two asks that travel together have still one answer
 * each, of the right kind, whatever becomes of the other, the connection or the pool; and a hint that was held up, came
 * too early or was for nothing may not silence the next. Needs a database: its conninfo (keyword=value) in
 * ISSUING_TEST_DATABASE. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/nudge.h"
#include "common/pg_listen.h"
#include "common/pg_pool.h"
#include "common/pg_sync.h"

#include "turning.h"

#define APPLICATION "test_nudge"
#define PAIRS 20
#define FOR_EVER_MS 60000

struct probe {
    struct pg_ask ask; /* first: an ask is its probe */
    int answers;
    enum pg_kind kind;
    int64_t value; /* of column 0; -1 = no row */
    int place;     /* how many were answered before it */
    bool was_sent;
    bool is_told; /* by the nudge, when it is done */
    int again;    /* through the nudge, so often */
};

static struct pg_pool *pool;
static struct pg_sync *db; /* beside the pool */
static struct pg_listen *listener;
static struct nudge nudge;
static struct err err;
static struct probe leaders[PAIRS], behinds[PAIRS];
static int answered, states, hints;
static int64_t rows_at_hint;
static bool inside_ask, closed;

static const struct sql_statement twice = {
    .name = "twice", .by_name = true, .text = "SELECT $1::int8 * 2", .parameters = 1, .shape = SQL_ONE};
static const struct sql_statement quotient = {
    .name = "quotient", .by_name = true, .text = "SELECT 100 / $1::int8", .parameters = 1, .shape = SQL_ONE};
static const struct sql_statement doze = {
    .name = "doze", .text = "SELECT pg_sleep($1::int8 / 1000.0)::text", .parameters = 1, .shape = SQL_ONE};
static const struct sql_statement insert_slowly = {
    .name = "insert_slowly",
    .text = "INSERT INTO test_nudge SELECT $1::int8 FROM pg_sleep(0.3) RETURNING pg_backend_pid()::int8",
    .parameters = 1,
    .shape = SQL_ONE};
static const struct sql_statement backend_if_there = {
    .name = "backend_if_there",
    .text = "SELECT pg_backend_pid()::int8 FROM test_nudge WHERE n = $1::int8",
    .parameters = 1,
    .shape = SQL_MANY};
/* Until it is unlocked beside. */
static const struct sql_statement hang = {
    .name = "hang", .text = "SELECT pg_advisory_xact_lock($1::int8)::text", .parameters = 1, .shape = SQL_ONE};
static const struct sql_statement notify = {
    .name = "notify", .by_name = true, .text = "SELECT pg_notify('test_nudge', '')::text", .shape = SQL_ONE};
static const struct sql_statement notify_late = {
    .name = "notify_late",
    .text = "SELECT pg_notify('test_nudge', '')::text FROM (SELECT pg_advisory_xact_lock_shared(4712) OFFSET 0) AS l",
    .shape = SQL_ONE};

static void on_state(void *context, bool is_ready, const char *error_text)
{
    (void)context;
    (void)is_ready;
    (void)error_text;
    ck_assert(!inside_ask);
    states++;
}

static void on_answer(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct probe *probe = (struct probe *)ask;
    ck_assert(!inside_ask);
    probe->answers++;
    probe->kind = answer->kind;
    probe->was_sent = ask->sent;
    probe->place = answered++;
    probe->value = -1;
    if (answer->rows && pg_rows_count(answer->rows) > 0 && pg_bytes(answer->rows, 0, 0).length == 8)
        probe->value = pg_int8(answer->rows, 0, 0);
    if (probe->again > 0) {
        probe->again--;
        probe->ask.params[0] = pg_param_int8(1);
        nudge_ask(&nudge, ask);
    } else if (probe->is_told && answer->kind == PG_DONE) {
        nudge_send_for(&nudge, ask);
    }
}

static void prepare(struct probe *probe, const struct sql_statement *statement, int64_t number, int64_t timeout_ms)
{
    *probe = (struct probe){.ask = {.statement = statement, .timeout_ms = timeout_ms, .on_answer = on_answer}};
    probe->ask.params[0] = pg_param_int8(number);
}

static void ask_pair(int index)
{
    inside_ask = true;
    pg_pool_ask_pair(pool, &leaders[index].ask, &behinds[index].ask);
    inside_ask = false;
}

/* By the nudge. */
static struct probe *ask_nudged(int index, const struct sql_statement *statement, int64_t number, bool is_told)
{
    prepare(&leaders[index], statement, number, FOR_EVER_MS);
    leaders[index].is_told = is_told;
    inside_ask = true;
    nudge_ask(&nudge, &leaders[index].ask);
    inside_ask = false;
    return &leaders[index];
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
    ck_assert_msg(pg_pool_open(&loop, &options, &pool, &err), "%s", err.message);
}

static void open_usual_pool(int connections, int pipeline)
{
    open_pool("", (struct pg_pool_options){.connections = connections, .pipeline = pipeline, .waiting_max = 1000});
    run_until(look_up("SELECT count(*) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'") ==
                  connections &&
              pg_pool_ready(pool));
}

static void on_closed(void *context)
{
    *(bool *)context = true;
}

static void close_pool(void)
{
    pg_pool_close(pool, on_closed, &closed);
    run_until(closed);
    pool = NULL;
}

static void on_hint(void *context)
{
    (void)context;
    hints++;
    rows_at_hint = look_up("SELECT count(*) FROM test_nudge");
}

/* The first hint is that of the connecting. */
static void open_nudge(const struct sql_statement *statement)
{
    ck_assert(pg_listen_open(&loop, conninfo(), "test_nudge", on_hint, NULL, &listener, &err));
    run_until(hints == 1);
    ck_assert(nudge_open(&nudge, &loop, pool, statement, &err));
    hints = 0;
}

/* Notifications come in the order of their commits: after this one, none is on its way. */
static void expect_hints(int count)
{
    execute("NOTIFY test_nudge");
    run_until(hints >= count + 1);
    ck_assert_int_eq(hints, count + 1);
    hints = 0;
}

static void rest(void)
{
    run_until(nudge_is_idle(&nudge) && beats_passed(2));
}

static void set_up(void)
{
    err = (struct err){.kind = ERR_NONE};
    memset(leaders, 0, sizeof(leaders));
    memset(behinds, 0, sizeof(behinds));
    memset(&nudge, 0, sizeof(nudge));
    answered = states = hints = 0;
    inside_ask = closed = false;
    listener = NULL;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_msg(pg_sync_open(conninfo(), "test_nudge_beside", &db, &err), "%s", err.message);
    /* What a test before abandoned may still sleep on the server. */
    execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'");
    execute("SET client_min_messages = warning; DROP TABLE IF EXISTS test_nudge; CREATE TABLE test_nudge (n int8)");
}

static void tear_down(void)
{
    bool listen_closed = false;
    execute("SELECT pg_advisory_unlock_all()");
    if (pool)
        close_pool();
    nudge_close(&nudge);
    if (listener) {
        pg_listen_close(listener, on_closed, &listen_closed);
        run_until(listen_closed);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    execute("DROP TABLE test_nudge");
    pg_sync_closep(&db);
}

/* ---- two asks that travel together ---- */

START_TEST(what_is_behind_runs_on_the_same_connection_after_even_a_slow_leader_has_committed)
{
    open_usual_pool(3, 10);
    for (int i = 0; i < 6; i++) {
        prepare(&leaders[i], &insert_slowly, i, FOR_EVER_MS);
        prepare(&behinds[i], &backend_if_there, i, FOR_EVER_MS);
        ask_pair(i);
    }
    ck_assert_int_eq(pg_pool_in_flight(pool), 12);
    run_until(answered == 12);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(leaders[i].answers, 1);
        ck_assert_int_eq(behinds[i].answers, 1);
        ck_assert_int_eq(leaders[i].kind, PG_DONE);
        ck_assert_int_eq(behinds[i].kind, PG_DONE);
        ck_assert_int_lt(leaders[i].place, behinds[i].place);
        ck_assert_int_eq(behinds[i].value, leaders[i].value); /* the row is there, and the backend is the same */
    }
    ck_assert_int_eq(pg_pool_in_flight(pool), 0);
}
END_TEST

START_TEST(neither_of_two_is_hurt_by_the_refusal_of_the_other)
{
    open_usual_pool(1, 10);
    for (int i = 0; i < 3; i++) {
        prepare(&leaders[i], &quotient, i == 0 ? 0 : 5, FOR_EVER_MS);
        prepare(&behinds[i], &quotient, i == 1 ? 0 : 4, FOR_EVER_MS);
        ask_pair(i);
    }
    run_until(answered == 6);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(leaders[i].answers + behinds[i].answers, 2);
        ck_assert_int_eq(leaders[i].kind, i == 0 ? PG_REFUSED : PG_DONE);
        ck_assert_int_eq(behinds[i].kind, i == 1 ? PG_REFUSED : PG_DONE);
    }
    ck_assert_int_eq(states, 1);
}
END_TEST

START_TEST(two_may_be_one_more_than_the_pipeline_and_no_more)
{
    open_usual_pool(1, 1);
    for (int i = 0; i < 3; i++) {
        prepare(&leaders[i], &twice, i, FOR_EVER_MS);
        prepare(&behinds[i], &twice, 100 + i, FOR_EVER_MS);
        ask_pair(i);
    }
    run_until(answered == 6);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(leaders[i].value, 2 * i);
        ck_assert_int_eq(behinds[i].value, 2 * (100 + i));
        ck_assert_int_eq(leaders[i].place, 2 * i);
        ck_assert_int_eq(behinds[i].place, 2 * i + 1);
    }
}
END_TEST

START_TEST(what_is_behind_is_not_late_while_its_leader_may_run)
{
    open_usual_pool(2, 10);
    prepare(&leaders[0], &doze, 600, FOR_EVER_MS);
    prepare(&behinds[0], &twice, 4, 50);
    ask_pair(0);
    prepare(&leaders[1], &doze, 20000, 200); /* on the other connection: when it is late, all are looked at */
    pg_pool_ask(pool, &leaders[1].ask);
    run_until(answered == 3);
    ck_assert_int_eq(leaders[1].kind, PG_UNKNOWN);
    ck_assert_int_eq(leaders[0].kind, PG_DONE);
    ck_assert_int_eq(behinds[0].kind, PG_DONE);
    ck_assert_int_eq(behinds[0].value, 8);
}
END_TEST

START_TEST(silence_behind_is_unknown_and_leaves_the_leader_done)
{
    open_usual_pool(1, 10);
    prepare(&leaders[0], &twice, 4, 500);
    prepare(&behinds[0], &doze, 20000, 100);
    ask_pair(0);
    run_until(answered == 2);
    ck_assert_int_eq(leaders[0].kind, PG_DONE);
    ck_assert_int_eq(leaders[0].answers, 1);
    ck_assert_int_eq(behinds[0].kind, PG_UNKNOWN);
    ck_assert(behinds[0].was_sent);
}
END_TEST

START_TEST(a_leader_that_is_not_sent_takes_along_what_is_behind)
{
    open_pool("host=127.0.0.1 port=1", (struct pg_pool_options){.connections = 1, .pipeline = 2, .waiting_max = 2});
    for (int i = 0; i < 4; i++) { /* two wait in vain, two are too many */
        prepare(&leaders[i], &twice, 1, 200);
        prepare(&behinds[i], &twice, 1, FOR_EVER_MS);
        ask_pair(i);
    }
    ck_assert_int_eq(answered, 0);
    run_until(answered == 8);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(leaders[i].answers, 1);
        ck_assert_int_eq(behinds[i].answers, 1);
        ck_assert_int_eq(leaders[i].kind, PG_NOT_SENT);
        ck_assert_int_eq(behinds[i].kind, PG_NOT_SENT);
        ck_assert(!leaders[i].was_sent && !behinds[i].was_sent);
        ck_assert_int_eq(behinds[i].place, leaders[i].place + 1);
    }
    ck_assert_int_eq(leaders[2].place, 0);
    ck_assert_int_eq(pg_pool_in_flight(pool), 0);
}
END_TEST

START_TEST(a_lost_connection_makes_both_unknown_and_those_that_wait_are_done)
{
    open_usual_pool(1, 1);
    execute("SELECT pg_advisory_lock(4711)");
    for (int i = 0; i < 2; i++) {
        prepare(&leaders[i], i == 0 ? &hang : &twice, 4711, FOR_EVER_MS);
        prepare(&behinds[i], &twice, 4, FOR_EVER_MS);
        ask_pair(i);
    }
    run_until(look_up("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1);
    execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'");
    run_until(answered == 4);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(leaders[i].answers, 1);
        ck_assert_int_eq(behinds[i].answers, 1);
        ck_assert_int_eq(leaders[i].kind, i == 0 ? PG_UNKNOWN : PG_DONE);
        ck_assert_int_eq(behinds[i].kind, i == 0 ? PG_UNKNOWN : PG_DONE);
    }
}
END_TEST

START_TEST(closing_answers_both_of_each_two_once)
{
    open_usual_pool(2, 2);
    execute("SELECT pg_advisory_lock(4711)");
    for (int i = 0; i < 6; i++) { /* two are on their way, four wait */
        prepare(&leaders[i], &hang, 4711, FOR_EVER_MS);
        prepare(&behinds[i], &twice, 1, FOR_EVER_MS);
        ask_pair(i);
    }
    run_until(look_up("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 2);
    pg_pool_close(pool, on_closed, &closed);
    prepare(&leaders[6], &twice, 1, FOR_EVER_MS);
    prepare(&behinds[6], &twice, 1, FOR_EVER_MS);
    ask_pair(6);
    ck_assert_int_eq(answered, 0);
    run_until(closed);
    pool = NULL;
    ck_assert_int_eq(answered, 14);
    for (int i = 0; i < 7; i++) {
        ck_assert_int_eq(leaders[i].answers, 1);
        ck_assert_int_eq(behinds[i].answers, 1);
        ck_assert_int_eq(leaders[i].kind, i < 2 ? PG_UNKNOWN : PG_NOT_SENT);
        ck_assert_int_eq(behinds[i].kind, i < 2 ? PG_UNKNOWN : PG_NOT_SENT);
    }
}
END_TEST

START_TEST(a_leader_whose_name_is_gone_is_done_all_the_same)
{
    open_usual_pool(1, 10);
    for (int i = 0; i < 3; i++) {
        static const struct sql_statement forget = {.name = "forget", .text = "DEALLOCATE ALL", .shape = SQL_NONE};
        prepare(&leaders[i], i == 1 ? &forget : &twice, i, FOR_EVER_MS);
        leaders[i].ask.params[0] = pg_param_int8(i);
        prepare(&behinds[i], &quotient, 5, FOR_EVER_MS);
        ask_pair(i);
        run_until(answered == 2 * (i + 1));
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(leaders[i].answers, 1);
        ck_assert_int_eq(behinds[i].answers, 1);
        ck_assert_int_eq(leaders[i].kind, PG_DONE);
        ck_assert_int_eq(behinds[i].value, 20);
    }
    ck_assert_int_eq(leaders[2].value, 4);
    ck_assert_int_eq(states, 1);
}
END_TEST

static void on_answer_alone(struct pg_ask *ask, const struct pg_answer *answer)
{
    on_answer(ask, answer);
    if (answered < 10)
        pg_pool_ask(pool, ask);
}

START_TEST(a_leader_that_asks_again_alone_leaves_the_other_behind)
{
    open_usual_pool(1, 10);
    prepare(&leaders[0], &twice, 1, FOR_EVER_MS);
    leaders[0].ask.on_answer = on_answer_alone;
    prepare(&behinds[0], &twice, 1, FOR_EVER_MS);
    ask_pair(0);
    run_until(answered >= 10 && pg_pool_in_flight(pool) == 0);
    ck_assert_int_eq(behinds[0].answers, 1);
    ck_assert_int_eq(leaders[0].answers, answered - 1);
}
END_TEST

/* ---- the nudge ---- */

START_TEST(a_quiet_ask_is_told_once_and_when_it_is_committed)
{
    open_usual_pool(2, 10);
    open_nudge(&notify);
    struct probe *probe = ask_nudged(0, &insert_slowly, 1, true);
    ck_assert(!nudge_is_idle(&nudge));
    run_until(hints == 1);
    ck_assert_int_eq(rows_at_hint, 1);
    run_until(answered == 1);
    ck_assert_int_eq(probe->kind, PG_DONE);
    rest();
    expect_hints(1);
}
END_TEST

START_TEST(what_comes_within_the_gap_is_told_too)
{
    open_usual_pool(2, 10);
    open_nudge(&notify);
    for (int round = 0; round < 5; round++) {
        answered = 0;
        execute("DELETE FROM test_nudge");
        for (int i = 0; i < 4; i++)
            (void)ask_nudged(i, &insert_slowly, i, true);
        run_until(answered == 4);
        run_until(rows_at_hint == 4); /* some hint came after the last of them */
        rest();
        ck_assert_int_lt(hints, 5);
        hints = 0;
    }
}
END_TEST

/* However fast one follows the other. */
START_TEST(hints_are_a_gap_apart)
{
    enum { ASKS = 200 };
    open_usual_pool(1, 10);
    open_nudge(&notify);
    int64_t from_ms = clock_mono_ms();
    for (int i = 0; i < ASKS; i++) {
        answered = 0;
        (void)ask_nudged(0, &twice, 1, true);
        run_until(answered == 1 && !nudge.followed);
    }
    rest();
    int64_t took_ms = clock_mono_ms() - from_ms;
    run_until(hints > 0);
    ck_assert_int_le(hints, took_ms / NUDGE_GAP_MS + 2);
}
END_TEST

START_TEST(a_hint_that_hangs_is_not_asked_for_twice)
{
    open_usual_pool(3, 10);
    open_nudge(&notify_late);
    execute("SELECT pg_advisory_lock(4712)");
    for (int i = 0; i < 3; i++) {
        struct probe *probe = ask_nudged(i, &twice, i, true);
        run_until(probe->answers == 1 && beats_passed(2));
    }
    ck_assert_int_eq(pg_pool_in_flight(pool), 2); /* one behind the first, one for the others */
    execute("SELECT pg_advisory_unlock(4712)");
    rest();
    ck_assert_int_eq(pg_pool_in_flight(pool), 0);
    expect_hints(3); /* and one for what came while the second hung */
}
END_TEST

START_TEST(what_hangs_does_not_hold_up_the_hints_of_others)
{
    open_usual_pool(2, 10);
    open_nudge(&notify);
    execute("SELECT pg_advisory_lock(4711)");
    struct probe *hanging = ask_nudged(0, &hang, 4711, true);
    run_until(look_up("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1);
    struct probe *other = ask_nudged(1, &twice, 1, true);
    run_until(hints == 1);
    ck_assert_int_eq(other->answers, 1);
    ck_assert_int_eq(hanging->answers, 0);
    execute("SELECT pg_advisory_unlock(4711)");
    run_until(hanging->answers == 1);
    rest();
    expect_hints(2);
}
END_TEST

START_TEST(after_a_hint_for_nothing_none_goes_ahead_until_there_was_something_to_tell)
{
    open_usual_pool(1, 10);
    open_nudge(&notify);
    (void)ask_nudged(0, &quotient, 0, true);
    run_until(answered == 1);
    rest();
    expect_hints(1);
    for (int i = 0; i < 5; i++) {
        struct probe *replayed = ask_nudged(0, &twice, 1, false);
        run_until(replayed->answers == 1);
        rest();
    }
    expect_hints(0);
    struct probe *accepted = ask_nudged(0, &twice, 1, true);
    run_until(accepted->answers == 1);
    rest();
    expect_hints(1);
    struct probe *next = ask_nudged(0, &twice, 1, false);
    run_until(next->answers == 1);
    rest();
    expect_hints(1); /* ahead again */
}
END_TEST

/* The hint behind the first run is held up until the second is done. */
START_TEST(an_ask_that_runs_once_more_is_told_once_more)
{
    open_usual_pool(3, 10);
    open_nudge(&notify_late);
    execute("SELECT pg_advisory_lock(4712)");
    struct probe *probe = ask_nudged(0, &quotient, 0, true);
    probe->again = 1;
    run_until(probe->answers == 2);
    ck_assert_int_eq(probe->kind, PG_DONE);
    ck_assert_int_eq(hints, 0);
    execute("SELECT pg_advisory_unlock(4712)");
    rest();
    expect_hints(2);
}
END_TEST

START_TEST(a_name_that_is_gone_costs_no_hint)
{
    static const struct sql_statement insert = {.name = "insert",
                                                .by_name = true,
                                                .text = "INSERT INTO test_nudge VALUES ($1::int8)",
                                                .parameters = 1,
                                                .shape = SQL_NONE};
    static const struct sql_statement forget = {.name = "forget", .text = "DEALLOCATE ALL", .shape = SQL_NONE};
    open_usual_pool(1, 10);
    open_nudge(&notify);
    for (int i = 0; i < 3; i++) {
        struct probe *probe = ask_nudged(0, i == 1 ? &forget : &insert, i, true);
        run_until(probe->answers == 1);
        ck_assert_int_eq(probe->kind, PG_DONE);
        rest();
    }
    run_until(rows_at_hint == 2);
}
END_TEST

START_TEST(a_nudge_is_idle_when_its_pool_is_gone)
{
    open_usual_pool(1, 10);
    open_nudge(&notify);
    execute("SELECT pg_advisory_lock(4711)");
    struct probe *probe = ask_nudged(0, &hang, 4711, true);
    run_until(look_up("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1);
    ck_assert(!nudge_is_idle(&nudge));
    close_pool();
    ck_assert_int_eq(probe->answers, 1);
    ck_assert_int_eq(probe->kind, PG_UNKNOWN);
    ck_assert(nudge_is_idle(&nudge));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nudge");
    TCase *tcase = tcase_create("nudge");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, what_is_behind_runs_on_the_same_connection_after_even_a_slow_leader_has_committed);
    tcase_add_test(tcase, neither_of_two_is_hurt_by_the_refusal_of_the_other);
    tcase_add_test(tcase, two_may_be_one_more_than_the_pipeline_and_no_more);
    tcase_add_test(tcase, what_is_behind_is_not_late_while_its_leader_may_run);
    tcase_add_test(tcase, silence_behind_is_unknown_and_leaves_the_leader_done);
    tcase_add_test(tcase, a_leader_that_is_not_sent_takes_along_what_is_behind);
    tcase_add_test(tcase, a_lost_connection_makes_both_unknown_and_those_that_wait_are_done);
    tcase_add_test(tcase, closing_answers_both_of_each_two_once);
    tcase_add_test(tcase, a_leader_whose_name_is_gone_is_done_all_the_same);
    tcase_add_test(tcase, a_leader_that_asks_again_alone_leaves_the_other_behind);
    tcase_add_test(tcase, a_quiet_ask_is_told_once_and_when_it_is_committed);
    tcase_add_test(tcase, what_comes_within_the_gap_is_told_too);
    tcase_add_test(tcase, hints_are_a_gap_apart);
    tcase_add_test(tcase, a_hint_that_hangs_is_not_asked_for_twice);
    tcase_add_test(tcase, what_hangs_does_not_hold_up_the_hints_of_others);
    tcase_add_test(tcase, after_a_hint_for_nothing_none_goes_ahead_until_there_was_something_to_tell);
    tcase_add_test(tcase, an_ask_that_runs_once_more_is_told_once_more);
    tcase_add_test(tcase, a_name_that_is_gone_costs_no_hint);
    tcase_add_test(tcase, a_nudge_is_idle_when_its_pool_is_gone);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
