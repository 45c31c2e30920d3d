/* The story: two operators pause and probe targets of the same worker at the same time. From its start on the worker
 * must not call a target that is paused. What the operators ask must be done once and recorded once. Whatever happens
 * to the tables of heartbeats, cards are issued. Needs a migrated database: its conninfo in ISSUING_TEST_DATABASE. */
#include "worker/upkeep/heartbeat.h"

#include <inttypes.h>

#include "common/lib/base/clock.h"
#include "ctl/backlog.h"
#include "ctl/cluster.h"
#include "statements.h"
#include "worker/base/worker_metrics.h"

#include "database.h"
#include "run_until.h"
#include "tests/support/suite.h"

#define NAME "host-a:17"

static struct pg_sync *owner, *anna, *ben; /* superuser; two operators */
static struct pg_pool *pool;
static struct http_client *http;
static struct metrics *metrics;
static struct config config;
static struct peers peers;
static struct slots slots;
static struct routes routes; /* none */
static struct worker_env env;
static struct jobs jobs; /* only the heartbeat */
static struct closing closing;
static struct heartbeat *heartbeat;
static int obeyed, open_count;
static bool is_rest_idle_now;

static void on_obeyed(void *context)
{
    ck_assert_ptr_eq(context, &slots);
    obeyed++;
}

static bool is_rest_idle(void *context)
{
    ck_assert_ptr_eq(context, &slots);
    return is_rest_idle_now;
}

static void on_capacity_changed(void *context)
{
    (void)context;
}

static void set_up(void)
{
    obeyed = open_count = 0;
    is_rest_idle_now = false;
    heartbeat = NULL;
    owner = database_open(NULL);
    anna = database_open("issuing_operator");
    ben = database_open("issuing_operator");
    database_run(owner,
                 "TRUNCATE workers, worker_targets, last_worker, target_controls, operator_actions, outbox_events");
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    config = (struct config){
        .issuer = {.url = "http://127.0.0.1:1", .max_concurrency = 4, .key_lifetime_ms = 60000, .settle_time_ms = 3000},
        .core = {.url = "http://127.0.0.1:2", .max_concurrency = 4},
        .breaker = {.failures = 2, .probe_interval_ms = 2000000},
    };
    slots = (struct slots){.count = 128, .in_flight = 7};
    metrics = worker_metrics_new();
    struct http_client_options client = {.connections_max = 1, .answer_max = 1024};
    ck_assert(http_client_open(&loop, &client, &http, NULL));
    struct peers_options peers_options = {
        .loop = &loop, .config = &config, .http = http, .metrics = metrics, .on_capacity_changed = on_capacity_changed};
    peers_open(&peers, &peers_options);
    char conninfo[1000];
    snprintf(conninfo, sizeof(conninfo), "%s user=issuing_worker", database_conninfo());
    struct pg_pool_options options = {.conninfo = conninfo, .connections = 2, .pipeline = 4, .waiting_max = 10};
    ck_assert(pg_pool_open(&loop, &options, &pool, NULL));
}

static void on_closed(void *context)
{
    (void)context;
    open_count--;
}

static void tear_down(void)
{
    if (heartbeat) {
        is_rest_idle_now = true;
        jobs_stop(&jobs);
        run_until(jobs_are_idle(&jobs, NULL));
        open_count++;
        closing_start(&closing, NULL, NULL, on_closed, NULL);
        jobs_close(&jobs, &closing);
        closing_end(&closing);
    }
    open_count += 3;
    peers_close(&peers, on_closed, NULL);
    http_client_close(http, on_closed, NULL);
    pg_pool_close(pool, on_closed, NULL);
    run_until(open_count == 0);
    jobs_free(&jobs);
    metrics_free(metrics);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    pg_sync_closep(&ben);
    pg_sync_closep(&anna);
    pg_sync_closep(&owner);
}

static void start(void)
{
    env = (struct worker_env){
        .loop = &loop,
        .pool = pool,
        .name = NAME,
        .config = &config,
        .peers = &peers,
        .routes = &routes,
        .jobs = &jobs,
    };
    struct heartbeat_options options = {
        .version = "1.2.3",
        .slots = &slots,
        .on_obeyed = on_obeyed,
        .is_rest_idle = is_rest_idle,
        .context = &slots,
    };
    ck_assert(heartbeat_open(&options, &env, &heartbeat, NULL));
}

/* "" = done. */
static void control(struct pg_sync *db, const char *action, const char *target, const char *expected)
{
    const struct pg_param params[] = {
        pg_param_string(action), pg_param_string(target),         pg_param_text("anna", 4), pg_param_text("root", 4),
        pg_param_null(),         pg_param_text("they asked", 10), pg_param_null()};
    struct pg_rows *rows = database_query(db, &sql_operator_control, params);
    const char *refused = pg_bytes(rows, 0, 0).bytes;
    ck_assert_str_eq(refused ? refused : "", expected);
    pg_rows_free(rows);
}

#define expect_row(condition) ck_assert_int_eq(database_int(owner, "SELECT count(*) " condition), 1)

/* ---- what a worker writes and obeys ---- */

TEST(nothing_is_sent_before_the_controls_are_known_nor_to_a_paused_target)
{
    control(anna, "pause_target", "issuer", "");
    start();
    ck_assert(peers.issuer.target.is_paused && peers.core.target.is_paused);
    run_until(obeyed > 0);
    ck_assert(peers.issuer.target.is_paused && !peers.core.target.is_paused);
    run_until(database_int(owner, "SELECT count(*) FROM worker_targets WHERE target = 'issuer' AND is_paused") == 1);
    expect_row("FROM worker_targets WHERE target = 'core' AND NOT is_paused AND state = 'closed' AND cause IS NULL");
    expect_row("FROM workers WHERE name = '" NAME "' AND host = 'host-a' AND version = '1.2.3' AND in_flight = 7 AND "
               "slots = 128 AND NOT is_draining AND abs(extract(epoch FROM now() - seen_at)) < 60");
    control(ben, "resume_target", "issuer", "");
    heartbeat_wake(heartbeat);
    run_until(!peers.issuer.target.is_paused);
}

TEST(a_probe_is_obeyed_once_and_not_by_a_worker_that_starts_later)
{
    control(anna, "probe_target", "core", "");
    start();
    run_until(obeyed > 0);
    struct target_ticket ticket = {0};
    for (uint8_t event = 1; event <= SUSPICION_EVENTS; event++) {
        ticket.event_id.bytes[0] = event;
        ck_assert_int_eq(target_enter(&peers.core.target, &ticket), TARGET_ADMITTED);
        target_leave(&peers.core.target, &ticket, BREAKER_REFUSED, "core_http_401", -1);
    }
    heartbeat_target_changed(heartbeat);
    run_until(database_int(owner, "SELECT count(*) FROM worker_targets WHERE state = 'open'") == 1);
    expect_row("FROM worker_targets WHERE target = 'core' AND cause = 'core_http_401' AND next_at > now() AND "
               "since BETWEEN now() - interval '1 minute' AND now() AND probe_number = 1");
    ck_assert_int_eq(target_enter(&peers.core.target, &ticket), TARGET_REJECTED);
    control(ben, "probe_target", "core", "");
    heartbeat_wake(heartbeat);
    bool is_fresh_due, is_again_due = false;
    run_until((target_probes_due(&peers.core.target, clock_mono_ms(), &is_fresh_due, &is_again_due), is_again_due));
    run_until(database_int(owner, "SELECT count(*) FROM worker_targets WHERE probe_number = 2") == 1);
}

TEST(a_worker_that_ends_shows_its_drain_and_then_is_gone)
{
    start();
    run_until(obeyed > 0);
    jobs_stop(&jobs);
    run_until(database_int(owner, "SELECT count(*) FROM workers WHERE is_draining") == 1);
    ck_assert(!jobs_are_idle(&jobs, NULL));
    is_rest_idle_now = true;
    run_until(jobs_are_idle(&jobs, NULL));
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM workers"), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM worker_targets"), 0);
    expect_row("FROM last_worker WHERE name = '" NAME "' AND host = 'host-a' AND ended_at <= clock_timestamp()");
}

/* Somebody runs LOCK TABLE, or a VACUUM FULL: the picture stands still, and controls are obeyed all the same. */
TEST(a_locked_table_of_workers_hides_the_picture_and_not_the_controls)
{
    database_run(owner, "BEGIN; LOCK TABLE workers, worker_targets");
    control(anna, "pause_target", "core", "");
    start();
    run_until(obeyed > 0);
    ck_assert(peers.core.target.is_paused && !peers.issuer.target.is_paused);
    control(anna, "resume_target", "core", "");
    heartbeat_wake(heartbeat);
    run_until(!peers.core.target.is_paused);
    database_run(owner, "ROLLBACK");
    heartbeat_wake(heartbeat);
    run_until(database_int(owner, "SELECT count(*) FROM workers") == 1);
}

TEST(controls_that_cannot_be_read_stop_nothing_for_long)
{
    database_run(owner, "BEGIN; LOCK TABLE target_controls");
    start();
    run_until(obeyed > 0);
    ck_assert(!peers.core.target.is_paused && !peers.issuer.target.is_paused);
    database_run(owner, "ROLLBACK");
    control(anna, "pause_target", "issuer", "");
    heartbeat_wake(heartbeat);
    run_until(peers.issuer.target.is_paused);
}

/* ---- rows of others ---- */

static void add_other(const char *name, int64_t seen_s, int64_t lifetime_ms, int64_t settle_ms, const char *agreement)
{
    char text[1024];
    snprintf(text, sizeof(text),
             "INSERT INTO workers (name, host, pid, version, started_at, seen_at, in_flight, slots, must_agree, "
             "key_lifetime_ms, settle_time_ms) SELECT '%s', 'h', 1, '1', now(), now() - %" PRId64
             " * interval '1 s', 0, 1, must_agree || '%s', %" PRId64 ", %" PRId64 " FROM workers WHERE name = '" NAME
             "'",
             name, seen_s, agreement, lifetime_ms, settle_ms);
    database_run(owner, text);
}

static void beat_once(void)
{
    database_run(owner, "UPDATE workers SET slots = 1 WHERE name = '" NAME "'");
    heartbeat_wake(heartbeat);
    run_until(database_int(owner, "SELECT count(*) FROM workers WHERE name = '" NAME "' AND slots = 128") == 1);
}

TEST(while_workers_disagree_the_shorter_lifetime_and_the_longer_settling_count)
{
    start();
    run_until(obeyed > 0);
    ck_assert_int_eq(peers.least_key_lifetime_ms, 60000);
    ck_assert_int_eq(peers.most_settle_time_ms, 3000);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM workers_disagree"), 0);
    add_other("dead", 3600, 1, 99999, "{\"issuer.key_lifetime\": \"1ms\"}");
    add_other("same", 1, 60000, 3000, "{}");
    beat_once();
    ck_assert_int_eq(peers.least_key_lifetime_ms, 60000);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM workers_disagree"), 0);
    add_other("other", 1, 8000, 5000, "{\"issuer.key_lifetime\": \"8s\", \"core.new_option\": \"x\"}");
    beat_once();
    run_until(peers.least_key_lifetime_ms == 8000 && peers.most_settle_time_ms == 5000);
    expect_row("FROM workers_disagree WHERE name = 'issuer.key_lifetime' AND says = '1m (" NAME "), 8s (other)'");
    expect_row("FROM workers_disagree WHERE name = 'core.new_option' AND says = 'x (other), not known (" NAME ")'");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM workers_disagree"), 2);
}

TEST(only_rows_that_nobody_writes_any_more_are_removed)
{
    database_run(owner, "INSERT INTO workers (name, host, pid, version, started_at, seen_at, in_flight, slots) "
                        "SELECT n, 'h', 1, '1', now(), now() + d::interval, 0, 1 FROM (VALUES "
                        "('old', '-25 h'), ('dead', '-23 h'), ('alive', '-3 s'), ('ahead', '2 h')) AS v (n, d)");
    database_run(owner,
                 "INSERT INTO worker_targets SELECT 'old', 'issuer', 'closed', now(), NULL, false, false, NULL, 0, "
                 "0, 1");
    start();
    run_until(obeyed > 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM workers WHERE name IN ('dead', 'alive', '" NAME "')"),
                     3);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM workers"), 3);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM worker_targets WHERE worker = 'old'"), 0);
}

/* After a night of crashes there are so many that removing them all would take longer than a worker waits. */
TEST(one_heartbeat_removes_a_part_of_many_dead_rows)
{
    database_run(
        owner, "INSERT INTO workers (name, host, pid, version, started_at, seen_at, in_flight, slots) SELECT n::text, "
               "'h', 1, '1', now(), now() - interval '25 h', 0, 1 FROM generate_series(1, 1500) AS n");
    database_run(owner, "SELECT heartbeat('" NAME "', 'host-a', 17, '1', 0, 0, 1, false, '{}', '{}', '{}', '{}', '{}', "
                        "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 1, 1)");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM workers WHERE name <> '" NAME "'"), 500);
    start();
    run_until(database_int(owner, "SELECT count(*) FROM workers WHERE name <> '" NAME "'") == 0);
}

/* ---- two operators ---- */

TEST(of_two_operators_who_pause_at_once_one_is_told_that_it_is_paused)
{
    database_run(anna, "BEGIN");
    control(anna, "pause_target", "issuer", "");
    database_run(ben, "SET lock_timeout = '100ms'");
    struct err err = {.kind = ERR_NONE};
    ck_assert(
        !pg_sync_exec(ben, "SELECT control_target('pause_target', 'issuer', 'ben', 'ben', NULL, 'me too')", &err));
    ck_assert_str_eq(err.sqlstate, "55P03"); /* it waits for the first one */
    database_run(anna, "COMMIT");
    control(ben, "pause_target", "issuer", "paused");
    control(ben, "probe_target", "issuer", "paused");
    expect_row("FROM operator_actions");
    expect_row(
        "FROM operator_actions WHERE action = 'pause_target' AND actor = 'anna' AND reason = 'they asked' AND "
        "after ->> 'target' = 'issuer' AND before ->> 'paused_at' IS NULL AND after ->> 'paused_by' = 'anna' AND "
        "db_role IS NOT NULL");
    control(ben, "resume_target", "issuer", "");
    control(anna, "resume_target", "issuer", "not_paused");
    control(anna, "pause_target", "no target", "bad_target");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM operator_actions"), 2);
}

TEST(only_known_actions_change_a_target)
{
    control(anna, "pause_target", "issuer", "");
    const char *const unknown[] = {"NULL", "''", "'close_target'"};
    for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
        char call[200];
        struct err err = {.kind = ERR_NONE};
        snprintf(call, sizeof(call), "SELECT control_target(%s, 'issuer', 'ben', 'ben', NULL, 'why')", unknown[i]);
        ck_assert(!pg_sync_exec(ben, call, &err));
        ck_assert_str_eq(err.sqlstate, "22023");
    }
    expect_row("FROM target_controls WHERE target = 'issuer' AND paused_by = 'anna' AND probe_number = 0");
    expect_row("FROM operator_actions");
}

TEST(a_pause_for_a_time_ends_by_itself_and_once)
{
    database_run(anna, "SELECT control_target('pause_target', 'issuer', 'anna', 'anna', NULL, 'an hour', 3600000)");
    database_run(anna, "SELECT control_target('pause_target', 'core', 'anna', 'anna', NULL, 'a second', 1000)");
    start();
    run_until(obeyed > 0);
    expect_row("FROM target_controls WHERE target = 'issuer' AND paused_until > clock_timestamp()");
    run_until(database_int(owner, "SELECT count(*) FROM target_controls WHERE paused_at IS NOT NULL") == 1);
    expect_row("FROM operator_actions WHERE action = 'resume_target' AND actor = 'anna' AND "
               "before ->> 'target' = 'core' AND after ->> 'paused_until' IS NULL");
    expect_row("FROM target_controls WHERE target = 'issuer' AND paused_why = 'an hour'");
}

/* Whoever has paused a route for an hour does not bring a receiver back that has gone. */
TEST(a_receiver_that_is_gone_stays_paused_until_an_operator_resumes_it)
{
    static const char gone[] =
        "SELECT note_routes('w', '{A,B,C}', '{f,f,f}', '{f,f,f}', '{1,1,1}', '{1,1,1}', '{f,f,f}', '{A,B}', "
        "'{its receiver answered 410,its receiver answered 410}')";
    database_run(anna, "SELECT control_target('pause_target', 'A', 'anna', 'anna', NULL, 'an hour', 3600000), "
                       "control_target('pause_target', 'B', 'anna', 'anna', NULL, 'for good')");
    database_run(owner, gone);
    database_run(owner, gone); /* the heartbeat did not learn that it was noted */
    expect_row(
        "FROM target_controls WHERE target = 'A' AND paused_by = 'w' AND paused_why = 'its receiver answered 410' AND "
        "paused_until IS NULL");
    expect_row("FROM target_controls WHERE target = 'B' AND paused_by = 'anna'");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM target_controls WHERE target = 'C'"), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM operator_actions WHERE actor = 'w'"), 1);
    database_run(owner, "TRUNCATE routes, route_workers, target_controls");
}

TEST(a_probe_makes_the_next_event_due)
{
    database_run(owner,
                 "INSERT INTO outbox_events (user_id, payload, next_attempt_at) SELECT 'u', '{\"kind\":\"new\"}', "
                 "now() + n * interval '1 minute' FROM generate_series(1, 3) AS n");
    control(anna, "probe_target", "issuer", "");
    expect_row("FROM outbox_events WHERE next_attempt_at <= clock_timestamp()");
    expect_row("FROM outbox_events WHERE next_attempt_at BETWEEN now() + interval '90 s' AND now() + interval '2 min'");
}

/* ---- what operators see ---- */

static int64_t backlog_of(const char *target)
{
    struct pg_rows *open = NULL;
    struct cluster cluster;
    ck_assert(backlog_read(anna, &open, NULL) && cluster_read(anna, open, &cluster, NULL));
    int64_t backlog = cluster_find_target(&cluster, target)->backlog;
    cluster_done(&cluster);
    pg_rows_free(open);
    return backlog;
}

TEST(due_events_wait_behind_a_target_only_when_every_living_worker_is_shut_there)
{
    database_run(owner, "INSERT INTO workers (name, host, pid, version, started_at, seen_at, in_flight, slots) "
                        "SELECT n, 'h', 1, '1', now(), now() - d::interval, 0, 1 FROM (VALUES "
                        "('a', '1 s'), ('b', '59 s'), ('dead', '61 s')) AS v (n, d)");
    database_run(owner,
                 "INSERT INTO worker_targets (worker, target, state, since, cause, is_resting, is_paused, in_flight, "
                 "waiting, call_limit) SELECT n, 'issuer', s, now(), c, false, false, 0, 0, 1 FROM (VALUES "
                 "('a', 'open', 'issuer_http_503'), ('b', 'closed', NULL), ('dead', 'closed', NULL)) AS v (n, s, c)");
    database_run(owner,
                 "INSERT INTO outbox_events (user_id, payload, next_attempt_at, deferral_code, event_type) SELECT "
                 "'u', '{\"kind\":\"new\"}', now() + t::interval, c, e FROM (VALUES "
                 "('-1 s', NULL, 'CARD_ISSUE'), ('1 min', 'breaker_open', 'CARD_ISSUE'), "
                 "('1 min', 'issuer_http_503', 'CARD_ISSUE'), ('1 min', 'core_http_503', 'CARD_ISSUE'), "
                 "('1 min', NULL, 'CARD_ISSUE'), ('-1 s', NULL, 'OTHER')) AS v (t, c, e)");
    ck_assert_int_eq(backlog_of("issuer"), 2); /* deferred because of it; what is due goes to the other worker */
    ck_assert_int_eq(backlog_of("core"), 1);
    database_run(owner, "UPDATE worker_targets SET state = 'half_open' WHERE worker = 'b'");
    ck_assert_int_eq(backlog_of("issuer"), 3);
    ck_assert_int_eq(backlog_of("core"), 1);
    control(anna, "pause_target", "core", "");
    ck_assert_int_eq(backlog_of("core"), 3);
}

static void cause_is(const char *target, const char *wanted)
{
    char cause[100] = "no cause";
    struct pg_rows *rows = database_query(anna, &sql_operator_targets, NULL);
    for (int row = 0; row < pg_rows_count(rows); row++)
        if (strcmp(pg_bytes(rows, row, 0).bytes, target) == 0 && !pg_is_null(rows, row, 9))
            snprintf(cause, sizeof(cause), "%s", pg_bytes(rows, row, 9).bytes);
    pg_rows_free(rows);
    ck_assert_str_eq(cause, wanted);
}

/* In a storm of 429 the column CAUSE was "-". */
TEST(the_cause_of_a_rest_is_told_unless_a_breaker_is_open)
{
    database_run(owner, "INSERT INTO workers (name, host, pid, version, started_at, seen_at, in_flight, slots) VALUES "
                        "('a', 'h', 1, '1', now(), now(), 0, 1), ('b', 'h', 2, '1', now(), now(), 0, 1)");
    database_run(owner, "INSERT INTO worker_targets (worker, target, state, since, is_resting, is_paused, in_flight, "
                        "waiting, call_limit) SELECT 'a', t, 'closed', now(), t <> 'core', false, 0, 0, 1 "
                        "FROM (VALUES ('issuer'), ('core'), ('MAIL')) AS v (t)");
    cause_is("issuer", "issuer_http_429");
    cause_is("core", "no cause");
    cause_is("MAIL", "route_http_429");
    database_run(owner, "INSERT INTO worker_targets (worker, target, state, since, cause, is_resting, is_paused, "
                        "in_flight, waiting, call_limit) VALUES ('b', 'issuer', 'open', now(), 'issuer_http_503', "
                        "false, false, 0, 0, 1)");
    cause_is("issuer", "issuer_http_503");
}

TEST(other_targets_do_not_hide_the_issuer_and_core_api)
{
    database_run(owner, "INSERT INTO target_controls SELECT 'z' || n, now(), 'anna', 'they asked' "
                        "FROM generate_series(1, 70) AS n");
    ck_assert_int_eq(backlog_of("issuer"), 0);
    ck_assert_int_eq(backlog_of("core"), 0);
}

TESTS_BETWEEN(heartbeat, set_up, tear_down)
