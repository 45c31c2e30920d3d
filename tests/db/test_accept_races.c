/* The story: a user taps twice on two devices, and exactly one request may be recorded, whatever number of connections
 * race for it. The races are real: many connections at once, each in its own thread, as issuing_api. The last tests
 * take the locks out of a copy of the function and show that the races are lost without them. */
#include "tests/db/accept_calls.h"

#include "tests/support/suite.h"

TEST(one_key_from_many_connections_is_one_request_with_one_answer)
{
    struct contest contest;
    struct one_try tries[THREADS];
    contest_open(&contest, THREADS);
    for (int round = 0; round < 5; round++) {
        char user[32];
        snprintf(user, sizeof(user), "same-key-%d", round);
        for (int i = 0; i < THREADS; i++)
            tries[i] = try_of(user, "the-key");
        const struct limit one = {.count = 1, .window_ms = HOUR_MS}; /* repeats take no slot */
        contest_run(&contest, &one, tries, 1, 1, 0);
        expect_no_failure(&contest);
        ck_assert_int_eq(count_verdicts(tries, THREADS, "accepted"), 1);
        ck_assert_int_eq(count_verdicts(tries, THREADS, "replayed"), THREADS - 1);
        for (int i = 1; i < THREADS; i++) {
            ck_assert(uuid_equal(&tries[i].event_id, &tries[0].event_id));
            ck_assert_int_eq(tries[i].created_us, tries[0].created_us);
        }
        expect_rows(user, 1, 1, 1);
    }
    contest_close(&contest);
}

TEST(many_keys_of_one_user_are_accepted_up_to_the_limit_exactly)
{
    struct contest contest;
    struct one_try tries[THREADS];
    contest_open(&contest, THREADS);
    for (int count = 1; count <= 9; count += 4) {
        const struct limit limit = {.count = count, .window_ms = HOUR_MS, .attempts = count == 9};
        char user[32], key[32];
        snprintf(user, sizeof(user), "limit-%d", count);
        for (int i = 0; i < THREADS; i++) {
            snprintf(key, sizeof(key), "key-%d", i);
            tries[i] = try_of(user, key);
        }
        contest_run(&contest, &limit, tries, 1, 1, 0);
        expect_no_failure(&contest);
        ck_assert_int_eq(count_verdicts(tries, THREADS, "accepted"), count);
        ck_assert_int_eq(count_verdicts(tries, THREADS, "limited"), THREADS - count);
        expect_accepted(user, count, limit.attempts ? count : 1);
    }
    contest_close(&contest);
}

enum { OVERLAP_USERS = 40, OVERLAP_BATCH = 24, OVERLAP_CALLS = 6, OVERLAP_THREADS = 16 };

/* Every call takes OVERLAP_BATCH of OVERLAP_USERS users, each call in another order and each user with a new key. The
 * caller frees it. */
static struct one_try *overlapping(const char *prefix)
{
    int count = OVERLAP_THREADS * OVERLAP_CALLS * OVERLAP_BATCH;
    struct one_try *tries = calloc((size_t)count, sizeof(*tries));
    ck_assert_ptr_nonnull(tries);
    unsigned int seed = 7;
    int users[OVERLAP_USERS];
    for (int i = 0; i < count; i++) {
        char user[48], key[32];
        if (i % OVERLAP_BATCH == 0)
            shuffle(users, OVERLAP_USERS, &seed);
        snprintf(user, sizeof(user), "%s-%d", prefix, users[i % OVERLAP_BATCH]);
        snprintf(key, sizeof(key), "key-%d", i);
        tries[i] = try_of(user, key);
    }
    return tries;
}

TEST(overlapping_batches_in_any_order_never_deadlock_and_lose_nothing)
{
    enum { ALL = OVERLAP_THREADS * OVERLAP_CALLS * OVERLAP_BATCH };
    struct contest contest;
    contest_open(&contest, OVERLAP_THREADS);
    struct one_try *tries = overlapping("overlap");
    contest_run(&contest, &no_limit, tries, OVERLAP_CALLS, OVERLAP_BATCH, 0);
    expect_no_failure(&contest);
    ck_assert_int_eq(count_verdicts(tries, ALL, "accepted"), ALL);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id LIKE 'overlap-%%'"), ALL);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM idempotency_keys WHERE user_id LIKE 'overlap-%%'"), ALL);
    for (int i = 0; i < ALL; i++)
        ck_assert(uuid_equal(&tries[i].event_id, &tries[i].id));
    free(tries);

    const struct limit three = {.count = 3, .window_ms = HOUR_MS};
    tries = overlapping("overlap3");
    contest_run(&contest, &three, tries, OVERLAP_CALLS, OVERLAP_BATCH, 0);
    expect_no_failure(&contest);
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM (SELECT 1 FROM outbox_events WHERE user_id LIKE 'overlap3-%%' "
                                  "GROUP BY user_id HAVING count(*) = 3) g"),
                     OVERLAP_USERS);
    ck_assert_int_eq(count_verdicts(tries, ALL, "accepted"), 3 * OVERLAP_USERS);
    ck_assert_int_eq(count_verdicts(tries, ALL, "limited"), ALL - 3 * OVERLAP_USERS);
    free(tries);
    contest_close(&contest);
}

TEST(no_window_ever_holds_more_than_the_limit_and_no_try_is_refused_without_need)
{
    enum { RACERS = 8, CALLS = 40, COUNT = 3, WINDOW_MS = 150 };
    struct contest contest;
    struct one_try tries[RACERS * CALLS];
    const struct limit limit = {.count = COUNT, .window_ms = WINDOW_MS};
    for (int i = 0; i < RACERS * CALLS; i++) {
        char key[32];
        snprintf(key, sizeof(key), "key-%d", i);
        tries[i] = try_of("sliding", key);
    }
    contest_open(&contest, RACERS);
    contest_run(&contest, &limit, tries, CALLS, 1, 40000);
    expect_no_failure(&contest);
    contest_close(&contest);
    int64_t accepted = count_verdicts(tries, RACERS * CALLS, "accepted");
    ck_assert_int_ge(accepted, COUNT);
    expect_accepted("sliding", accepted, 1);
    /* From the log itself: accepted rows in the window that ends with each row, without that row. */
    static const char in_window[] =
        "SELECT count(*) FROM rate_limit_log r CROSS JOIN LATERAL (SELECT count(*) AS n FROM rate_limit_log l WHERE "
        "l.user_id = r.user_id "
        "AND l.accepted AND l.at > r.at - interval '150 ms' AND l.at <= r.at AND l.request_id <> r.request_id) w "
        "WHERE r.user_id = 'sliding' AND (r.accepted AND w.n >= 3 OR NOT r.accepted AND w.n < 3)";
    ck_assert_int_eq(database_int(owner, "%s", in_window), 0);
}

/* The function, changed by a regular expression until restore_function() is called. */
static void make_mutant(const char *pattern, const char *instead)
{
    database_run(owner, "CREATE TABLE original AS SELECT pg_get_functiondef('issuing.accept'::regproc) AS text");
    database_exec(owner,
                  "DO $do$ DECLARE d text := (SELECT text FROM original); m text := regexp_replace(d, $p$%s$p$, '%s'); "
                  "BEGIN IF m = d THEN RAISE EXCEPTION 'there is nothing to take out'; END IF; EXECUTE m; END $do$",
                  pattern, instead);
}

static void restore_function(void)
{
    database_run(owner, "DO $do$ BEGIN EXECUTE (SELECT text FROM original); END $do$; DROP TABLE original");
}

TEST(without_the_users_lock_the_limit_is_broken)
{
    enum { ROUNDS = 100 };
    const struct limit one = {.count = 1, .window_ms = HOUR_MS};
    struct contest contest;
    struct one_try tries[THREADS];
    int broken = 0;
    make_mutant("pg_try_advisory_xact_lock\\(", "0 < abs(");
    contest_open(&contest, THREADS);
    for (int round = 0; round < ROUNDS && !broken; round++) {
        for (int i = 0; i < THREADS; i++) {
            char user[32], key[32];
            snprintf(user, sizeof(user), "unlocked-%d", round);
            snprintf(key, sizeof(key), "key-%d", i);
            tries[i] = try_of(user, key);
        }
        contest_run(&contest, &one, tries, 1, 1, 0);
        broken = count_verdicts(tries, THREADS, "accepted") > 1;
    }
    contest_close(&contest);
    restore_function();
    ck_assert_msg(broken, "the limit held without its lock: then this test proves nothing, or something else holds it");
}

TESTS_BETWEEN(accept_races, set_up, tear_down)
