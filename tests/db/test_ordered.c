/* The story: events of a type that a route delivers are claimed by the type's own claims. Where it is ordered, one
 * event of a user follows the other, in the order of their ids: the next is held until the one before it has ended, and
 * no interleaving of claim and end may lose that. Every statement runs as issuing_worker. */
#include "tests/db/outbox_calls.h"

#include <pthread.h>

#include "tests/support/suite.h"

static void set_up_routes(void)
{
    set_up();
    database_run(owner, "TRUNCATE routes, route_workers, end_notifications");
    database_run(worker,
                 "SELECT issuing.note_routes('worker-1', '{ORDERED,PLAIN}', '{t,f}', '{f,f}', '{1,1}', '{5,5}', "
                 "'{f,f}')");
}

/* ---- events and claims ---- */

static struct uuid add_of(const char *type, const char *user)
{
    struct uuid id = uuid7_make();
    database_exec(owner,
                  "INSERT INTO outbox_events (id, event_type, user_id, payload) VALUES ('%s', '%s', '%s', '[1]')",
                  text_of(&id), type, user);
    return id;
}

static struct uuid add(const char *user)
{
    return add_of("ORDERED", user);
}

/* Claims `most` events of a type at most, from the beginning; how many it took. */
static int claim_of(struct pg_sync *db, const char *type, bool is_ordered, int most)
{
    return (int)database_int(
        db,
        "SELECT cardinality(events) FROM issuing.claim(gen_random_uuid(), %d, 3600000, 'worker-1', NULL, 100, "
        "false, '%s', %s)",
        most, type, is_ordered ? "true" : "false");
}

static int claim_ordered(struct pg_sync *db)
{
    return claim_of(db, "ORDERED", true, 100);
}

/* The end of its attempt, as the worker's statements have it: locks, end, wake-up. */
static void lock_order(struct pg_sync *db, const struct uuid *id)
{
    database_exec(db, "SELECT issuing.lock_order('{%s}')", text_of(id));
}

static void end_as(struct pg_sync *db, const struct uuid *id, const char *status)
{
    database_exec(db,
                  "UPDATE outbox_events SET status = '%s', lease_token = NULL, lease_until = NULL, completed_at = "
                  "now(), updated_at = now() WHERE id = '%s'",
                  status, text_of(id));
    if (strcmp(status, "FAILED") != 0)
        database_exec(db, "SELECT issuing.wake_held('{%s}')", text_of(id));
}

static void end(const struct uuid *id, const char *status)
{
    database_run(worker, "BEGIN");
    lock_order(worker, id);
    end_as(worker, id, status);
    database_run(worker, "COMMIT");
}

static bool is(const struct uuid *id, const char *expression)
{
    return fact(id, expression) == 1;
}

#define CLAIMED "e.status = 'PROCESSING' AND e.held_behind IS NULL"
#define DUE "e.status = 'PENDING' AND e.held_behind IS NULL AND e.due_at <= clock_timestamp()"
#define HELD "e.status = 'PENDING' AND e.held_behind IS NOT NULL AND e.due_at > now() + interval '4 minutes'"

static bool is_held_behind(const struct uuid *id, const struct uuid *before)
{
    return is(id, HELD) && database_int(owner, "SELECT held_behind = '%s' FROM outbox_events WHERE id = '%s'",
                                        text_of(before), text_of(id)) == 1;
}

/* ---- one type ---- */

TEST(a_claim_takes_its_own_type_and_sees_no_card)
{
    struct uuid plain = add_of("PLAIN", "alice"), nobodys = add_of("NOBODYS", "alice"), card = add_event("alice", 1);
    database_run(owner, "UPDATE outbox_events SET payload = '{\"replaces\": \"x\"}' WHERE event_type = 'PLAIN'");
    ck_assert_int_eq(
        database_int(worker,
                     "SELECT count(*) FROM issuing.claim(gen_random_uuid(), 9, 60000, 'worker-1', "
                     "NULL, 100, false, 'PLAIN', false), unnest(events) WHERE payload = '{\"replaces\": \"x\"}' "
                     "AND user_id = 'alice' AND retry_count = 1 AND card_id IS NULL AND "
                     "replaces_issuer_card_id IS NULL AND made_ms > 0"),
        1);
    ck_assert(is(&plain, CLAIMED));
    ck_assert(is(&nobodys, DUE));
    ck_assert(is(&card, DUE));
    ck_assert_int_eq(claim_of(worker, "CARD_ISSUE", false, 9), 1);
    ck_assert(is(&card, CLAIMED));
}

TEST(events_that_are_in_no_order_are_claimed_together)
{
    for (int i = 0; i < 4; i++)
        (void)add_of("PLAIN", "alice");
    ck_assert_int_eq(claim_of(worker, "PLAIN", false, 9), 4);
}

TEST(a_claim_says_whether_more_may_be_due)
{
    static const char filled[] = "SELECT is_filled FROM issuing.claim(gen_random_uuid(), 2, 60000, 'worker-1', NULL, "
                                 "100, false, '%s', %s)";
    static const char *const types[][2] = {{"PLAIN", "false"}, {"ORDERED", "true"}};
    for (int i = 0; i < 2; i++) {
        char text[200];
        snprintf(text, sizeof(text), filled, types[i][0], types[i][1]);
        for (int k = 0; k < 3; k++) {
            char user[8];
            snprintf(user, sizeof(user), "u%d", k);
            (void)add_of(types[i][0], user);
        }
        ck_assert_int_eq(database_int(worker, "%s", text), 1);
        ck_assert_int_eq(database_int(worker, "%s", text), 0);
    }
}

TEST(a_lost_event_is_tried_alone_by_the_claim_of_its_type)
{
    static const char alone[] = "SELECT cardinality(events) FROM issuing.claim(gen_random_uuid(), 9, 60000, "
                                "'worker-1', NULL, 100, true, '%s', %s)";
    struct uuid lost = add("alice"), next = add("alice");
    database_exec(owner, "UPDATE outbox_events SET lost_count = 2 WHERE id = '%s'", text_of(&lost));
    database_exec(owner, "INSERT INTO lost_events (event_id) VALUES ('%s')", text_of(&lost));
    ck_assert_int_eq(claim_ordered(worker), 0); /* it also holds back what comes after it */
    ck_assert(is_held_behind(&next, &lost));
    ck_assert_int_eq(database_int(worker,
                                  "SELECT has_lost::int FROM issuing.claim(gen_random_uuid(), 9, 60000, 'w', NULL, "
                                  "100, false, 'PLAIN', false)"),
                     0);
    ck_assert_int_eq(database_int(worker, alone, "PLAIN", "false"), 0);
    ck_assert_int_eq(database_int(worker, alone, "ORDERED", "true"), 1);
    ck_assert(is(&lost, CLAIMED));
}

TEST(a_sweep_takes_back_the_leases_of_its_own_type)
{
    struct uuid plain = add_of("PLAIN", "alice"), ordered = add("alice");
    ck_assert_int_eq(claim_of(worker, "PLAIN", false, 9) + claim_ordered(worker), 2);
    database_run(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 s'");
    struct pg_param params[] = {pg_param_null(),  pg_param_int8(0),          pg_param_null(), pg_param_int8(100),
                                pg_param_int8(5), pg_param_text("PLAIN", 5), pg_param_null(), pg_param_int8(100)};
    struct pg_rows *rows = database_query(worker, &sql_outbox_sweep, params);
    ck_assert_int_eq(pg_int8(rows, 0, 0), 1);
    pg_rows_free(rows);
    ck_assert(is(&plain, DUE));
    ck_assert(is(&ordered, CLAIMED));
}

/* ---- order ---- */

TEST(one_event_of_a_user_is_handed_out_and_each_other_is_held_behind_the_one_before_it)
{
    struct uuid first = add("alice"), second = add("alice"), third = add("alice"), bob = add("bob");
    ck_assert_int_eq(claim_ordered(worker), 2);
    ck_assert(is(&first, CLAIMED));
    ck_assert(is(&bob, CLAIMED));
    ck_assert(is_held_behind(&second, &first));
    ck_assert(is_held_behind(&third, &second));
    ck_assert(is(&third, "e.retry_count = 0 AND e.first_sent_at IS NULL"));
    end(&first, "COMPLETED");
    ck_assert(is(&second, DUE));
    ck_assert(is_held_behind(&third, &second));
    ck_assert_int_eq(claim_ordered(worker), 1);
    ck_assert(is(&second, CLAIMED));
    end(&second, "REJECTED");
    ck_assert_int_eq(claim_ordered(worker), 1);
    ck_assert(is(&third, CLAIMED));
}

TEST(an_open_or_failed_event_holds_back_and_one_of_another_type_does_not)
{
    static const char *const statuses[] = {"FAILED", "PENDING"};
    for (int i = 0; i < 2; i++) {
        char user[8];
        snprintf(user, sizeof(user), "u%d", i);
        (void)add_of("PLAIN", user);
        struct uuid first = add(user), next;
        ck_assert_int_eq(claim_ordered(worker), 1);
        end(&first, statuses[i]);
        database_exec(owner, "UPDATE outbox_events SET next_attempt_at = now() + interval '1 hour' WHERE id = '%s'",
                      text_of(&first)); /* a retry that waits */
        next = add(user);
        ck_assert_int_eq(claim_ordered(worker), 0);
        ck_assert(is_held_behind(&next, &first));
        ck_assert_int_eq(claim_ordered(worker), 0);
        end(&first, "REJECTED"); /* by an operator */
        ck_assert_int_eq(claim_ordered(worker), 1);
        ck_assert(is(&next, CLAIMED));
    }
}

TEST(what_was_held_behind_one_that_ended_out_of_turn_finds_the_one_before)
{
    struct uuid first = add("alice"), second = add("alice"), third = add("alice");
    ck_assert_int_eq(claim_ordered(worker), 1);
    end(&second, "REJECTED"); /* cancelled */
    ck_assert(is(&third, DUE));
    ck_assert_int_eq(claim_ordered(worker), 0);
    ck_assert(is_held_behind(&third, &first));
}

TEST(a_held_event_is_looked_at_again_later_and_later)
{
    struct uuid first = add("alice"), second = add("alice");
    ck_assert_int_eq(claim_ordered(worker), 1);
    database_exec(owner,
                  "UPDATE outbox_events SET next_attempt_at = now(), created_at = now() - interval '20 minutes' "
                  "WHERE id = '%s'",
                  text_of(&second));
    ck_assert_int_eq(claim_ordered(worker), 0);
    ck_assert(is_held_behind(&second, &first));
    ck_assert(is(&second, "e.due_at BETWEEN now() + interval '19 minutes' AND now() + interval '21 minutes'"));
    database_run(owner, "UPDATE outbox_events SET next_attempt_at = now(), created_at = now() - interval '20 days' "
                        "WHERE status = 'PENDING'");
    ck_assert_int_eq(claim_ordered(worker), 0);
    ck_assert(is(&second, "e.due_at BETWEEN now() + interval '59 minutes' AND now() + interval '61 minutes'"));
    /* A wake-up that was lost: the look finds that nothing is before it. */
    database_exec(owner,
                  "UPDATE outbox_events SET status = 'COMPLETED', lease_token = NULL, lease_until = NULL WHERE "
                  "id = '%s'",
                  text_of(&first));
    database_run(owner, "UPDATE outbox_events SET next_attempt_at = now() WHERE status = 'PENDING'");
    ck_assert_int_eq(claim_ordered(worker), 1);
    ck_assert(is(&second, CLAIMED));
}

TEST(a_user_with_many_events_hides_nobody_elses_for_long)
{
    enum { EVENTS = 500 };
    database_exec(owner,
                  "INSERT INTO outbox_events (event_type, user_id, payload, next_attempt_at) SELECT 'ORDERED', "
                  "'many', '{}', now() - interval '1 minute' FROM generate_series(1, %d)",
                  EVENTS);
    struct uuid bob = add("bob");
    int claims = 0, taken = 0;
    for (int64_t since = -1; !is(&bob, CLAIMED); claims++) {
        char *text = NULL;
        ck_assert_int_ge(
            asprintf(&text,
                     "SELECT next_since_us || ' ' || is_filled || ' ' || (SELECT count(*) FROM "
                     "outbox_events WHERE status = 'PROCESSING') FROM issuing.claim(gen_random_uuid(), 10, "
                     "60000, 'w', NULLIF(%lld, -1), 100, false, 'ORDERED', true)",
                     (long long)since),
            0);
        char *last = database_text(worker, text), is_filled[8];
        ck_assert_int_eq(sscanf(last, "%ld %7s", &since, is_filled), 2);
        ck_assert(strcmp(is_filled, "true") == 0 || is(&bob, CLAIMED)); /* or the next one would wait for the poll */
        ck_assert_int_lt(claims, EVENTS / 20);
        free(text);
        free(last);
    }
    taken = (int)database_int(owner, "SELECT count(*) FROM outbox_events WHERE status = 'PROCESSING'");
    ck_assert_int_eq(taken, 2);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE held_behind IS NOT NULL"),
                     EVENTS - 1);
}

TEST(times_of_a_clock_that_was_ahead_move_back_when_an_event_is_held_behind_another)
{
    struct uuid first = add("alice"), second = add("alice");
    database_exec(owner,
                  "UPDATE outbox_events SET updated_at = now() + interval '1 day', first_sent_at = now() + "
                  "interval '1 day' - interval '1 minute' WHERE id = '%s'",
                  text_of(&second));
    ck_assert_int_eq(claim_ordered(worker), 1);
    ck_assert(is_held_behind(&second, &first));
    ck_assert(is(&second, "e.first_sent_at BETWEEN now() - interval '2 minutes' AND now() - interval '55 s'"));
    ck_assert(is(&second, "e.updated_at <= now()"));
}

/* Rows from before the bounds of the schema, or of a superuser. */
TEST(an_event_with_a_time_that_no_clock_has_shown_is_held_and_stops_no_other)
{
    static const char *const odd[] = {"created_at = 'infinity'", "created_at = '-infinity'",
                                      "created_at = '4000-01-01 BC'", "updated_at = 'infinity'",
                                      "updated_at = '-infinity', first_sent_at = '-infinity'"};
    for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
        database_run(owner, "TRUNCATE outbox_events");
        struct uuid first = add("alice"), second = add("alice"), bob = add("bob");
        database_exec(owner, "UPDATE outbox_events SET %s WHERE id = '%s'", odd[i], text_of(&second));
        ck_assert_int_eq(claim_ordered(worker), 2);
        ck_assert(is(&first, CLAIMED));
        ck_assert(is(&bob, CLAIMED));
        ck_assert(is_held_behind(&second, &first));
    }
}

/* ---- claim against end ---- */

TEST(a_claim_before_the_end_holds_the_event_and_the_end_sees_that)
{
    struct uuid first = add("alice");
    ck_assert_int_eq(claim_ordered(worker), 1);
    struct uuid second = add("alice");
    database_run(other, "BEGIN");
    ck_assert_int_eq(claim_ordered(other), 0); /* it has the lock now */
    ck_assert_int_eq(database_int(worker, "SELECT (issuing.try_orders('ORDERED', '{alice}'))[1]"), 0);
    database_run(other, "COMMIT");
    end(&first, "COMPLETED");
    ck_assert(is(&second, DUE));
}

/* Every session that may connect can take an advisory lock whose key it knows. */
TEST(no_lock_that_another_role_can_take_stops_a_claim_or_an_end)
{
    struct uuid first = add("alice");
    database_run(other, "BEGIN; SELECT pg_advisory_xact_lock(4712, hashtext('ORDEREDalice'))");
    database_run(worker, "SET lock_timeout = '200ms'");
    ck_assert_int_eq(claim_ordered(worker), 1);
    end(&first, "COMPLETED");
    database_run(other, "ROLLBACK");
}

TEST(a_claim_during_the_end_leaves_the_event_and_its_bookmark_before_it)
{
    struct uuid first = add("alice");
    ck_assert_int_eq(claim_ordered(worker), 1);
    struct uuid second = add("alice");
    database_run(worker, "BEGIN");
    lock_order(worker, &first);
    end_as(worker, &first, "COMPLETED");
    ck_assert_int_eq(database_int(other,
                                  "SELECT next_since_us <= (SELECT (extract(epoch FROM e.due_at) * "
                                  "1000000)::int8 FROM outbox_events e WHERE e.id = '%s') FROM "
                                  "issuing.claim(gen_random_uuid(), 9, 60000, 'w', NULL, 0, false, 'ORDERED', "
                                  "true)",
                                  text_of(&second)),
                     1);
    ck_assert(is(&second, DUE)); /* not held behind what is ending */
    database_run(worker, "COMMIT");
    ck_assert_int_eq(claim_ordered(other), 1);
    ck_assert(is(&second, CLAIMED));
}

/* A statement in a thread of its own. */
struct running {
    pthread_t thread;
    struct pg_sync *db;
    const char *text;
    bool is_done;
};

static void *run_statement(void *context)
{
    struct running *running = context;
    struct err err = {0};
    running->is_done = pg_sync_exec(running->db, running->text, &err);
    return NULL;
}

/* The statement of the claim has its snapshot before the end commits, and waits. The look that decides comes after the
 * lock, in a statement of its own, so it sees the end. */
TEST(a_claim_whose_statement_began_before_the_end_committed_sees_the_end)
{
    struct running running = {
        .db = other,
        .text =
            "SELECT cardinality(events) FROM (SELECT pg_advisory_xact_lock(77)) waited, LATERAL "
            "issuing.claim(CASE WHEN waited IS NOT NULL THEN gen_random_uuid() END, 9, 60000, 'w', NULL, 100, false, "
            "'ORDERED', true)"};
    struct uuid first = add("alice");
    ck_assert_int_eq(claim_ordered(worker), 1);
    struct uuid second = add("alice");
    database_run(owner, "SELECT pg_advisory_lock(77)");
    ck_assert_int_eq(pthread_create(&running.thread, NULL, run_statement, &running), 0);
    while (database_int(owner, "SELECT count(*) FROM pg_locks WHERE objid = 77 AND NOT granted") == 0)
        ;
    end(&first, "COMPLETED");
    database_run(owner, "SELECT pg_advisory_unlock(77)");
    ck_assert_int_eq(pthread_join(running.thread, NULL), 0);
    ck_assert(running.is_done);
    ck_assert(is(&second, CLAIMED));
}

/* Claims and ends what it claimed, until nothing is open that is not held by another one of its kind. */
static const char work[] =
    "DO $do$ DECLARE mine uuid[]; token uuid; BEGIN "
    "FOR turn IN 1 .. 100000 LOOP "
    "    token := gen_random_uuid(); "
    "    SELECT array_agg(id) INTO mine FROM issuing.claim(token, 2, 60000, 'w', NULL, 100, false, 'ORDERED', true), "
    "        unnest(events); "
    "    COMMIT; "
    "    IF mine IS NOT NULL THEN "
    "        PERFORM issuing.lock_order(mine); "
    "        UPDATE outbox_events SET status = 'COMPLETED', lease_token = NULL, lease_until = NULL, "
    "            completed_at = clock_timestamp() WHERE id = ANY (mine) AND lease_token = token; "
    "        PERFORM issuing.wake_held(mine); "
    "        COMMIT; "
    "    ELSE "
    "        EXIT WHEN NOT EXISTS (SELECT FROM outbox_events WHERE due_at IS NOT NULL AND (status = 'PROCESSING' OR "
    "                              due_at <= clock_timestamp())); "
    "    END IF; "
    "END LOOP; END $do$";

TEST(no_race_of_claims_and_ends_leaves_an_event_held_or_breaks_the_order)
{
    enum { EVENTS = 400 };
    struct running running[3];
    database_exec(owner,
                  "INSERT INTO outbox_events (event_type, user_id, payload) SELECT 'ORDERED', 'u' || i %% 4, "
                  "'{}' FROM generate_series(1, %d) i",
                  EVENTS);
    for (int i = 0; i < 3; i++) {
        running[i] = (struct running){.db = database_open("issuing_worker"), .text = work};
        ck_assert_int_eq(pthread_create(&running[i].thread, NULL, run_statement, &running[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(pthread_join(running[i].thread, NULL), 0);
        ck_assert(running[i].is_done);
        pg_sync_close(running[i].db);
    }
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), EVENTS);
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM (SELECT completed_at < lag(completed_at) OVER (PARTITION "
                                  "BY user_id ORDER BY id) AS is_early FROM outbox_events) o WHERE is_early"),
                     0);
}

/* ---- plans ---- */

TEST(a_claim_reads_the_index_of_due_events_for_each_type_however_many_wait_of_another)
{
    static const char *const types[] = {"'CARD_ISSUE', false", "'PLAIN', false", "'ORDERED', true"};
    (void)add_event("alice", 1);
    (void)add_of("PLAIN", "alice");
    (void)add("alice");
    for (int analysed = 0; analysed < 2; analysed++) {
        for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
            int64_t reads[2];
            for (int k = 0; k < 2; k++) {
                if (k == 1)
                    database_run(owner, "INSERT INTO outbox_events (event_type, user_id, payload) SELECT 'DEAD', 'u', "
                                        "'{}' FROM generate_series(1, 3000)");
                database_run(worker, "BEGIN");
                reads[k] =
                    -database_int(worker, "SELECT sum(idx_tup_fetch + seq_tup_read) FROM pg_stat_xact_user_tables");
                ck_assert_int_eq(
                    database_int(worker,
                                 "SELECT cardinality(events) FROM issuing.claim(gen_random_uuid(), 9, 60000, 'w', "
                                 "NULL, 100, false, %s)",
                                 types[i]),
                    1);
                reads[k] +=
                    database_int(worker, "SELECT sum(idx_tup_fetch + seq_tup_read) FROM pg_stat_xact_user_tables");
                database_run(worker, "ROLLBACK");
            }
            ck_assert_int_eq(reads[0], reads[1]);
            database_run(owner, "DELETE FROM outbox_events WHERE event_type = 'DEAD'");
        }
        database_run(owner, "ANALYZE outbox_events");
    }
}

/* ---- routes ---- */

static int64_t routes(const char *condition)
{
    return database_int(owner, "SELECT count(*) FROM routes WHERE %s", condition);
}

TEST(a_route_stays_registered_though_no_worker_names_it)
{
    static const char none[] = "SELECT issuing.note_routes('worker-2', '{}', '{}', '{}', '{}', '{}', '{}')";
    ck_assert_int_eq(routes("event_type = 'ORDERED' AND is_ordered AND worker = 'worker-1' AND max_attempts = 5"), 1);
    database_run(other, "SELECT issuing.note_routes('worker-2', '{PLAIN}', '{f}', '{t}', '{9}', '{7}', '{t}')");
    ck_assert_int_eq(routes("event_type = 'PLAIN' AND has_lookup AND key_lifetime_ms = 9 AND is_signed AND worker = "
                            "'worker-2'"),
                     1);
    /* A worker that is silent for long, and a clock that was ahead. */
    static const char *const seen[] = {"- interval '61 s'", "- interval '29 days'", "+ interval '1 year'"};
    for (size_t i = 0; i < ARRAY_SIZE(seen); i++) {
        database_exec(owner, "UPDATE routes SET seen_at = now() %s", seen[i]);
        database_run(other, none);
        ck_assert_int_eq(routes("true"), 2);
    }
    /* Past the retention, where nothing of its type is open, it leaves with an audit row. */
    struct uuid open = add("alice");
    database_run(owner, "UPDATE routes SET seen_at = now() - interval '31 days'; TRUNCATE operator_actions");
    database_run(other, none);
    ck_assert_int_eq(routes("event_type = 'ORDERED'"), 1);
    ck_assert_int_eq(routes("true"), 1);
    end_as(owner, &open, "COMPLETED");
    database_run(other, none);
    ck_assert_int_eq(routes("true"), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM operator_actions WHERE action = 'route_left'"), 2);
}

TEST(a_type_is_ordered_while_one_living_worker_says_so)
{
    static const char no[] = "SELECT issuing.note_routes('worker-2', '{ORDERED}', '{f}', '{f}', '{1}', '{5}', '{f}')";
    database_run(other, no);
    ck_assert_int_eq(routes("event_type = 'ORDERED' AND is_ordered AND worker = 'worker-2'"), 1);
    /* Its claims hold back all the same, though it asks for no order. */
    add("alice"), add("alice");
    ck_assert_int_eq(claim_of(other, "ORDERED", false, 100), 1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE held_behind IS NOT NULL"), 1);
    /* The order is given up: what was held is due. */
    database_run(owner, "UPDATE route_workers SET seen_at = now() - interval '61 s' WHERE worker = 'worker-1'");
    database_run(other, no);
    ck_assert_int_eq(routes("event_type = 'ORDERED' AND NOT is_ordered"), 1);
    ck_assert_int_eq(claim_of(other, "ORDERED", false, 100), 1);
    database_run(other, no);
    ck_assert_int_eq(routes("frees_held"), 0);
}

TEST(a_route_leaves_by_an_operators_word_and_not_while_it_is_in_use)
{
    struct uuid open = add("alice");
    ck_assert(
        database_int(owner, "SELECT (issuing.remove_route('X', false, 'a', 'b', NULL, 'why') = 'not_found')::int"));
    ck_assert_int_eq(database_int(owner, "SELECT (issuing.remove_route('ORDERED', true, 'a', 'b', NULL, 'why') = "
                                         "'living')::int"),
                     1);
    database_run(owner, "DELETE FROM route_workers");
    ck_assert_int_eq(database_int(owner, "SELECT (issuing.remove_route('ORDERED', false, 'a', 'b', NULL, 'why') = "
                                         "'open')::int"),
                     1);
    ck_assert_int_eq(routes("event_type = 'ORDERED'"), 1);
    end_as(owner, &open, "COMPLETED");
    database_run(owner, "TRUNCATE operator_actions");
    ck_assert_int_eq(database_int(owner, "SELECT (issuing.remove_route('ORDERED', false, 'a', 'b', NULL, 'why') IS "
                                         "NULL)::int"),
                     1);
    ck_assert_int_eq(routes("event_type = 'ORDERED'"), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM operator_actions WHERE action = 'remove_route'"), 1);
}

TEST(a_probe_of_a_route_makes_its_next_event_due)
{
    struct uuid plain = add_of("PLAIN", "alice"), card = add_event("alice", 1);
    database_run(owner, "UPDATE outbox_events SET next_attempt_at = now() + interval '1 hour'");
    database_run(owner, "SELECT issuing.control_target('probe_target', 'PLAIN', 'a', 'b', NULL, 'why')");
    ck_assert(is(&plain, DUE));
    ck_assert(is(&card, "e.due_at > now()"));
    database_run(owner, "SELECT issuing.control_target('probe_target', 'issuer', 'a', 'b', NULL, 'why')");
    ck_assert(is(&card, DUE));
}

TESTS_BETWEEN(ordered, set_up_routes, tear_down)
