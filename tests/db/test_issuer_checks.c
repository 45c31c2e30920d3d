/* The story: an operator asks whether the issuer is reached as it should be, and a worker answers. One worker
 * at a time makes the check, its answer is written once, a worker that died is replaced, and it is recorded who asked.
 * Only a limited number of checks waits, and a clock that was ahead keeps no check from being taken. */
#include "tests/db/database.h"

#include "statements.h"
#include "tests/support/suite.h"

static struct pg_sync *owner, *operating, *worker;
static struct uuid check, token;

static void set_up(void)
{
    owner = database_open(NULL);
    operating = database_open("issuing_operator");
    worker = database_open("issuing_worker");
    database_run(owner, "TRUNCATE issuing.issuer_checks, issuing.operator_actions, issuing.target_controls");
}

static void tear_down(void)
{
    pg_sync_closep(&owner);
    pg_sync_closep(&operating);
    pg_sync_closep(&worker);
}

static char refused[32];

/* Why it was refused; "" = it was not, and `check` is its id. */
static const char *ask_of(const char *target, const char *user, int64_t within_ms)
{
    const struct pg_param params[] = {pg_param_string(target),  pg_param_string(user),
                                      pg_param_bool(false),     pg_param_int8(within_ms),
                                      pg_param_text("olga", 4), pg_param_text("root", 4),
                                      pg_param_text("olga", 4), pg_param_text("doctor --issuer", 15)};
    pg_rows_scope struct pg_rows *rows = database_query(operating, &sql_operator_ask_issuer_check, params);
    const char *why = pg_bytes(rows, 0, 1).bytes;
    snprintf(refused, sizeof(refused), "%s", why ? why : "");
    if (!why)
        check = pg_uuid(rows, 0, 0);
    return refused;
}

static const char *ask(const char *user, int64_t within_ms)
{
    return ask_of("issuer", user, within_ms);
}

/* Whether there was one of this target; `check` and `token` are its. */
static bool take_of(const char *target)
{
    struct uuid fresh = uuid4_make();
    struct buf bytes;
    struct pg_array targets;
    buf_init(&bytes, 256);
    pg_array_start(&targets, &bytes, PG_TEXT);
    pg_array_add_string(&targets, target);
    const struct pg_param params[] = {pg_param_uuid(&fresh), pg_param_int8(10000), pg_param_text("host:1", 6),
                                      pg_array_param(&targets)};
    pg_rows_scope struct pg_rows *rows = database_query(worker, &sql_issuer_check_take, params);
    buf_done(&bytes);
    if (pg_rows_count(rows) == 0)
        return false;
    check = pg_uuid(rows, 0, 0);
    token = fresh;
    return true;
}

static bool take(void)
{
    return take_of("issuer");
}

static bool end(const char *result, const char *findings)
{
    const struct pg_param params[] = {pg_param_uuid(&check), pg_param_uuid(&token), pg_param_string(result),
                                      pg_param_string(findings)};
    pg_rows_scope struct pg_rows *rows = database_query(worker, &sql_issuer_check_end, params);
    return pg_bool(rows, 0, 0);
}

#define ONE_FINDING "[{\"check\": \"issuer\", \"level\": \"ok\", \"found\": \"it answers\", \"fix\": null}]"

TEST(a_check_is_asked_taken_and_answered_once_and_is_on_record)
{
    ck_assert_str_eq(ask("alice", 30000), "");
    struct uuid asked = check;
    ck_assert(take());
    ck_assert(uuid_equal(&asked, &check));
    ck_assert(!take());
    struct uuid first = token;
    token = uuid4_make();
    ck_assert(!end("ok", ONE_FINDING)); /* not with another's token */
    token = first;
    ck_assert(end("ok", ONE_FINDING));
    ck_assert(!end("fail", ONE_FINDING));
    const struct pg_param params[] = {pg_param_uuid(&check)};
    pg_rows_scope struct pg_rows *rows = database_query(operating, &sql_operator_issuer_check, params);
    ck_assert_int_eq(pg_rows_count(rows), 1);
    ck_assert_str_eq(pg_bytes(rows, 0, 0).bytes, "host:1");
    ck_assert_str_eq(pg_bytes(rows, 0, 1).bytes, "ok");
    ck_assert_str_eq(pg_bytes(rows, 0, 2).bytes, "issuer");
    ck_assert_str_eq(pg_bytes(rows, 0, 4).bytes, "it answers");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM operator_actions WHERE action = 'check_issuer' AND actor"
                                         " = 'olga' AND os_user = 'root' AND after ->> 'user_id' = 'alice'"),
                     1);
}

TEST(a_check_of_a_route_is_taken_by_a_worker_that_may_call_it)
{
    database_run(owner, "DELETE FROM issuing.routes WHERE event_type = 'MAIL'");
    ck_assert_str_eq(ask_of("MAIL", NULL, 30000), "not_found");
    database_run(owner, "INSERT INTO issuing.routes (event_type, is_ordered, has_lookup, key_lifetime_ms, max_attempts,"
                        " is_signed, worker, seen_at) VALUES ('MAIL', false, false, 1, 1, false, 'w', now())");
    ck_assert_str_eq(ask_of("MAIL", NULL, 30000), "");
    ck_assert(!take());
    ck_assert(take_of("MAIL"));
    database_run(owner, "INSERT INTO issuing.target_controls (target, paused_at, paused_by, paused_why)"
                        " VALUES ('MAIL', now(), 'olga', 'x')");
    ck_assert_str_eq(ask_of("MAIL", NULL, 30000), "paused");
    ck_assert_str_eq(ask(NULL, 30000), "");
    database_run(owner, "DELETE FROM issuing.routes WHERE event_type = 'MAIL'");
}

TEST(a_check_of_a_worker_that_died_or_drains_is_taken_by_another)
{
    ck_assert_str_eq(ask(NULL, 30000), "");
    ck_assert(take());
    struct uuid dead = token;
    database_run(owner, "UPDATE issuer_checks SET lease_until = now() - interval '1 ms'");
    ck_assert(take());
    const struct pg_param params[] = {pg_param_uuid(&check), pg_param_uuid(&dead)};
    pg_rows_free(database_query(worker, &sql_issuer_check_put_back, params)); /* has no effect any more */
    ck_assert(!take());
    const struct pg_param drains[] = {pg_param_uuid(&check), pg_param_uuid(&token)};
    pg_rows_free(database_query(worker, &sql_issuer_check_put_back, drains));
    ck_assert(take());
    struct uuid alive = token;
    token = dead;
    ck_assert(!end("ok", ONE_FINDING));
    token = alive;
    ck_assert(end("ok", ONE_FINDING));
}

static bool renew(void)
{
    const struct pg_param params[] = {pg_param_uuid(&check), pg_param_uuid(&token), pg_param_int8(10000)};
    pg_rows_scope struct pg_rows *rows = database_query(worker, &sql_issuer_check_renew, params);
    return pg_bool(rows, 0, 0);
}

/* The story: a trial lasted longer than its lease. Another worker took it over, and what the first one found was
 * lost. */
TEST(a_worker_keeps_a_check_that_it_renews_and_tells_what_it_found_after_the_deadline)
{
    ck_assert_str_eq(ask(NULL, 30000), "");
    ck_assert(take());
    database_run(owner, "UPDATE issuer_checks SET lease_until = now() - interval '1 ms'");
    ck_assert(renew());
    ck_assert(!take());
    struct uuid mine = token;
    token = uuid4_make();
    ck_assert(!renew());
    token = mine;
    database_run(owner, "UPDATE issuer_checks SET deadline_at = now()");
    ck_assert(!renew());
    ck_assert(!take());
    ck_assert(end("ok", ONE_FINDING));
    ck_assert(!renew());
    ck_assert_str_eq(ask(NULL, 30000), "");
    ck_assert(take());
    database_run(owner, "UPDATE issuer_checks SET deadline_at = now(), lease_until = now() WHERE ended_at IS NULL");
    ck_assert(!take());
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM issuer_checks WHERE result = 'unanswered'"), 1);
}

TEST(a_check_that_nobody_took_in_time_ends_unanswered_and_is_removed_after_a_week)
{
    ck_assert_str_eq(ask(NULL, 0), "");
    ck_assert(!take());
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM issuer_checks WHERE result = 'unanswered'"), 1);
    database_run(owner, "UPDATE issuer_checks SET ended_at = now() - interval '8 days'");
    ck_assert(!take());
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM issuer_checks"), 0);
}

/* The story: what the issuer does where its documents are silent was found by experiment, and forgotten after a
 * week. */
TEST(the_last_trial_that_made_a_card_is_kept)
{
    database_run(owner,
                 "INSERT INTO issuer_checks (target, creates, deadline_at, actor, ended_at, result, detail)"
                 " SELECT 'issuer', g.creates, now(), 'a', now() - g.days * interval '1 day', 'ok', g.detail"
                 " FROM (VALUES (true, 30, '[{\"check\": \"create\", \"level\": \"ok\"}]'::jsonb),"
                 " (true, 20, '[{\"check\": \"create\", \"level\": \"ok\"}]'), (true, 10,"
                 " '[{\"check\": \"create\", \"level\": \"fail\"}]'), (false, 9, '[]')) g (creates, days, detail)");
    ck_assert(!take());
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM issuer_checks"), 1);
    ck_assert_int_eq(database_int(owner, "SELECT extract(day FROM now() - ended_at)::int8 FROM issuer_checks"
                                         " WHERE id = last_trial()"),
                     20);
}

TEST(no_check_is_asked_while_the_issuer_is_paused_or_too_many_wait)
{
    database_run(owner, "INSERT INTO target_controls (target, paused_at, paused_by, paused_why)"
                        " VALUES ('issuer', now(), 'olga', 'maintenance')");
    ck_assert_str_eq(ask(NULL, 30000), "paused");
    database_run(owner, "DELETE FROM target_controls");
    for (int i = 0; i < 20; i++)
        ck_assert_str_eq(ask(NULL, 30000), "");
    ck_assert_str_eq(ask(NULL, 30000), "busy");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM operator_actions"), 20);
    database_run(owner, "UPDATE issuer_checks SET deadline_at = now()");
    ck_assert_str_eq(ask(NULL, 30000), "");
}

/* The story: the database's clock was six hours ahead when a worker took the check and died, and is right again. */
TEST(a_lease_or_a_question_by_a_clock_that_was_ahead_holds_nothing_up)
{
    ck_assert_str_eq(ask(NULL, 30000), "");
    ck_assert(take());
    database_run(owner, "UPDATE issuer_checks SET asked_at = asked_at + interval '6 h', deadline_at = deadline_at +"
                        " interval '6 h', lease_until = lease_until + interval '6 h'");
    ck_assert(take());
    for (int i = 0; i < 20; i++)
        ck_assert_str_eq(ask(NULL, 30000), "");
}

TEST(what_a_worker_writes_is_bounded)
{
    struct err err;
    char *text = NULL;
    ck_assert_str_eq(ask(NULL, 30000), "");
    ck_assert(take());
    ck_assert_int_ge(asprintf(&text, "[\"%070000d\"]", 0), 0);
    const char *const unusable[] = {"{}", "77", text};
    for (size_t i = 0; i < ARRAY_SIZE(unusable); i++) {
        const struct pg_param params[] = {pg_param_uuid(&check), pg_param_uuid(&token), pg_param_text("ok", 2),
                                          pg_param_string(unusable[i])};
        struct pg_rows *rows = NULL;
        ck_assert(!pg_sync_query(worker, &sql_issuer_check_end, params, &rows, &err));
        ck_assert_msg(strstr(err.message, "23514"), "%s", err.message);
    }
    free(text);
    ck_assert(end("fail", "[]"));
}

TESTS_BETWEEN(issuer_checks, set_up, tear_down)
