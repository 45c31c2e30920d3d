/* The story: a user taps twice on two devices, and exactly one request may be recorded, however many connections race for it; a limit of N
 * means N in every window of its length, not N most of the time; and whoever does not know whether a COMMIT arrived asks again and gets the
 * same verdict. The races are real: many connections at once, each in its own thread, as issuing_api. The last tests take the locks out of a
 * copy of the function and show that the races are then lost, so the locks are known to be what wins them. */
#include "tests/db/database.h"

#include <pthread.h>
#include <time.h>

#include "common/digest.h"
#include "common/sql/statements.h"
#include "common/uuid7.h"

enum { BATCH_MAX = 64, THREADS = 24, HOUR_MS = 3600 * 1000, TRIES_MAX = 50 };

static struct pg_sync *owner, *api;

static void set_up(void)
{
    owner = database_open(NULL);
    api = database_open("issuing_api");
    /* As if the house had just been kept. */
    database_run(owner, "UPDATE house_clock SET passed_at = clock_timestamp(), steady_from = clock_timestamp(), "
                        "believed_at = clock_timestamp()");
}

static void tear_down(void)
{
    pg_sync_closep(&api);
    pg_sync_closep(&owner);
}

/* ---- one call ---------------------------------------------------------------------------------------------------------------- */

struct limit {
    int64_t count, window_ms;
    bool attempts;
    int64_t retention_ms; /* of a key; 0 = a day */
};

static const struct limit no_limit = {.count = 1000000, .window_ms = HOUR_MS};

/* One element of a batch, and what came of it. */
struct
try {
    struct uuid id;
    char user[64], key[64], payload[160];
    char verdict[24];
    struct uuid event_id;
    int64_t created_us, used, oldest_us, frees_us, decided_us;
};

static struct try try_of(const char *user, const char *key)
{
    struct try try = {.id = uuid7_make()};
    snprintf(try.user, sizeof try.user, "%s", user);
    snprintf(try.key, sizeof try.key, "%s", key);
    snprintf(try.payload, sizeof try.payload, "{\"kind\":\"new\"}");
    return try;
}

static void read_verdicts(const struct pg_rows *rows, struct try *tries, int count)
{
    for (int i = 0; i < count; i++) {
        snprintf(tries[i].verdict, sizeof tries[i].verdict, "%s", pg_bytes(rows, i, 0).bytes);
        tries[i].event_id = pg_uuid(rows, i, 1);
        tries[i].created_us = pg_time_us(rows, i, 2);
        tries[i].used = pg_int8(rows, i, 3);
        tries[i].oldest_us = pg_time_us(rows, i, 4);
        tries[i].frees_us = pg_time_us(rows, i, 5);
        tries[i].decided_us = pg_time_us(rows, i, 6);
    }
}

/* Asserts nothing: also called in threads. false: the SQLSTATE is in ret_sqlstate. */
static bool say(struct pg_sync *db, const struct limit *limit, struct try *tries, int count, char ret_sqlstate[6])
{
    static const enum pg_type types[] = {PG_UUID, PG_TEXT, PG_TEXT, PG_BYTEA, PG_TEXT, PG_TEXT};
    struct buf bufs[ARRAY_SIZE(types)];
    struct pg_array arrays[ARRAY_SIZE(types)];
    struct pg_param params[10];
    struct pg_rows *rows = NULL;
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        buf_init(&bufs[i], 1 << 20);
        pg_array_start(&arrays[i], &bufs[i], types[i]);
    }
    for (int i = 0; i < count; i++) {
        unsigned char fingerprint[DIGEST_SIZE];
        digest_sha256(tries[i].payload, strlen(tries[i].payload), fingerprint);
        pg_array_add_uuid(&arrays[0], &tries[i].id);
        pg_array_add(&arrays[1], tries[i].user, strlen(tries[i].user));
        pg_array_add(&arrays[2], tries[i].key, strlen(tries[i].key));
        pg_array_add(&arrays[3], fingerprint, sizeof fingerprint);
        pg_array_add(&arrays[4], tries[i].payload, strlen(tries[i].payload));
        pg_array_add(&arrays[5], i % 2 ? "00-trace" : NULL, i % 2 ? 8 : 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        params[i] = pg_array_param(&arrays[i]);
    params[6] = pg_param_int8(limit->count);
    params[7] = pg_param_int8(limit->window_ms);
    params[8] = pg_param_bool(limit->attempts);
    params[9] = pg_param_int8(limit->retention_ms ? limit->retention_ms : 24 * HOUR_MS);
    bool done = pg_sync_ask(db, &sql_accept_batch, params, &rows, &err);
    snprintf(ret_sqlstate, 6, "%s", pg_sync_sqlstate(db));
    if (done && pg_rows_count(rows) == count)
        read_verdicts(rows, tries, count);
    else if (done)
        snprintf(ret_sqlstate, 6, "ROWS?");
    pg_rows_free(rows);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        buf_done(&bufs[i]);
    return done && ret_sqlstate[0] == '\0';
}

/* As the acceptor does: a wait that took too long (a slow machine) is no verdict, and the same call is made again. */
static bool say_patiently(struct pg_sync *db, const struct limit *limit, struct try *tries, int count,
                          char ret_sqlstate[6])
{
    for (int i = 0; i < TRIES_MAX; i++)
        if (say(db, limit, tries, count, ret_sqlstate) || strcmp(ret_sqlstate, "55P03") != 0)
            break;
    return ret_sqlstate[0] == '\0';
}

static void accept_all(const struct limit *limit, struct try *tries, int count)
{
    char sqlstate[6];
    ck_assert_msg(say_patiently(api, limit, tries, count, sqlstate), "SQLSTATE %s", sqlstate);
}

static void expect(const struct limit *limit, struct try *try, const char *verdict)
{
    accept_all(limit, try, 1);
    ck_assert_str_eq(try->verdict, verdict);
}

static void expect_refused(struct pg_sync *db, struct try *tries, int count, const char *wanted)
{
    char sqlstate[6];
    ck_assert(!say(db, &no_limit, tries, count, sqlstate));
    ck_assert_str_eq(sqlstate, wanted);
}

static int64_t rows_of(const char *table, const char *user)
{
    return database_int(owner, "SELECT count(*) FROM %s WHERE user_id = '%s'", table, user);
}

static void expect_rows(const char *user, int64_t keys, int64_t tries, int64_t events)
{
    ck_assert_int_eq(rows_of("idempotency_keys", user), keys);
    ck_assert_int_eq(rows_of("rate_limit_log", user), tries);
    ck_assert_int_eq(rows_of("outbox_events", user), events);
}

/* ---- many connections at once -------------------------------------------------------------------------------------------------- */

struct racer {
    pthread_t thread;
    pthread_barrier_t *barrier;
    struct pg_sync *db;
    const struct limit *limit;
    struct try *tries; /* calls of batch elements each */
    int calls, batch;
    unsigned int seed;
    int pause_max_us;
    char sqlstate[6]; /* of the first call that failed */
};

static void *race(void *context)
{
    struct racer *racer = context;
    pthread_barrier_wait(racer->barrier);
    for (int i = 0; i < racer->calls && !racer->sqlstate[0]; i++) {
        if (racer->pause_max_us) {
            struct timespec pause = {.tv_nsec = (long)(rand_r(&racer->seed) % racer->pause_max_us) * 1000};
            nanosleep(&pause, NULL);
        }
        (void)say_patiently(racer->db, racer->limit, racer->tries + i * racer->batch, racer->batch, racer->sqlstate);
    }
    return NULL;
}

struct contest {
    struct racer racers[THREADS];
    int count;
};

static void contest_open(struct contest *contest, int count)
{
    memset(contest, 0, sizeof *contest);
    contest->count = count;
    for (int i = 0; i < count; i++)
        contest->racers[i].db = database_open("issuing_api");
}

static void contest_close(struct contest *contest)
{
    for (int i = 0; i < contest->count; i++)
        pg_sync_close(contest->racers[i].db);
}

/* tries: racers x calls x batch, in this order. */
static void contest_run(struct contest *contest, const struct limit *limit, struct try *tries, int calls, int batch,
                        int pause_max_us)
{
    pthread_barrier_t barrier;
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, (unsigned)contest->count), 0);
    for (int i = 0; i < contest->count; i++) {
        struct racer *racer = &contest->racers[i];
        racer->barrier = &barrier;
        racer->limit = limit;
        racer->tries = tries + i * calls * batch;
        racer->calls = calls;
        racer->batch = batch;
        racer->seed = (unsigned)i + 1;
        racer->pause_max_us = pause_max_us;
        racer->sqlstate[0] = '\0';
        ck_assert_int_eq(pthread_create(&racer->thread, NULL, race, racer), 0);
    }
    for (int i = 0; i < contest->count; i++)
        ck_assert_int_eq(pthread_join(contest->racers[i].thread, NULL), 0);
    pthread_barrier_destroy(&barrier);
}

static void expect_no_failure(const struct contest *contest)
{
    for (int i = 0; i < contest->count; i++)
        ck_assert_msg(!contest->racers[i].sqlstate[0], "connection %d: SQLSTATE %s", i, contest->racers[i].sqlstate);
}

static int count_verdicts(const struct try *tries, int count, const char *verdict)
{
    int found = 0;
    for (int i = 0; i < count; i++)
        found += strcmp(tries[i].verdict, verdict) == 0;
    return found;
}

START_TEST(one_key_from_many_connections_is_one_request_with_one_answer)
{
    struct contest contest;
    struct try tries[THREADS];
    contest_open(&contest, THREADS);
    for (int round = 0; round < 5; round++) {
        char user[32];
        snprintf(user, sizeof user, "same-key-%d", round);
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
END_TEST

START_TEST(many_keys_of_one_user_are_accepted_up_to_the_limit_exactly)
{
    struct contest contest;
    struct try tries[THREADS];
    contest_open(&contest, THREADS);
    for (int count = 1; count <= 9; count += 4) {
        const struct limit limit = {.count = count, .window_ms = HOUR_MS, .attempts = count == 9};
        char user[32], key[32];
        snprintf(user, sizeof user, "limit-%d", count);
        for (int i = 0; i < THREADS; i++) {
            snprintf(key, sizeof key, "key-%d", i);
            tries[i] = try_of(user, key);
        }
        contest_run(&contest, &limit, tries, 1, 1, 0);
        expect_no_failure(&contest);
        ck_assert_int_eq(count_verdicts(tries, THREADS, "accepted"), count);
        ck_assert_int_eq(count_verdicts(tries, THREADS, "limited"), THREADS - count);
        expect_rows(user, count, THREADS, count);
    }
    contest_close(&contest);
}
END_TEST

static void shuffle(int *numbers, int count, unsigned int *seed)
{
    for (int i = 0; i < count; i++)
        numbers[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int k = rand_r(seed) % (i + 1), kept = numbers[i];
        numbers[i] = numbers[k];
        numbers[k] = kept;
    }
}

enum { OVERLAP_USERS = 40, OVERLAP_BATCH = 24, OVERLAP_CALLS = 6, OVERLAP_THREADS = 16 };

/* Every call takes OVERLAP_BATCH of OVERLAP_USERS users, in an order of its own, each with a new key. */
static struct try *overlapping(const char *prefix)
{
    int count = OVERLAP_THREADS * OVERLAP_CALLS * OVERLAP_BATCH;
    struct try *tries = calloc((size_t)count, sizeof *tries);
    ck_assert_ptr_nonnull(tries);
    unsigned int seed = 7;
    int users[OVERLAP_USERS];
    for (int i = 0; i < count; i++) {
        char user[48], key[32];
        if (i % OVERLAP_BATCH == 0)
            shuffle(users, OVERLAP_USERS, &seed);
        snprintf(user, sizeof user, "%s-%d", prefix, users[i % OVERLAP_BATCH]);
        snprintf(key, sizeof key, "key-%d", i);
        tries[i] = try_of(user, key);
    }
    return tries;
}

START_TEST(overlapping_batches_in_any_order_never_deadlock_and_lose_nothing)
{
    enum { ALL = OVERLAP_THREADS * OVERLAP_CALLS * OVERLAP_BATCH };
    struct contest contest;
    contest_open(&contest, OVERLAP_THREADS);
    struct try *tries = overlapping("overlap");
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
END_TEST

START_TEST(no_window_ever_holds_more_than_the_limit_and_no_try_is_refused_without_need)
{
    enum { RACERS = 8, CALLS = 40, COUNT = 3, WINDOW_MS = 150 };
    struct contest contest;
    struct try tries[RACERS * CALLS];
    const struct limit limit = {.count = COUNT, .window_ms = WINDOW_MS};
    for (int i = 0; i < RACERS * CALLS; i++) {
        char key[32];
        snprintf(key, sizeof key, "key-%d", i);
        tries[i] = try_of("sliding", key);
    }
    contest_open(&contest, RACERS);
    contest_run(&contest, &limit, tries, CALLS, 1, 40000);
    expect_no_failure(&contest);
    contest_close(&contest);
    int64_t accepted = count_verdicts(tries, RACERS * CALLS, "accepted");
    ck_assert_int_ge(accepted, COUNT);
    expect_rows("sliding", accepted, RACERS * CALLS, accepted);
    /* Over the log itself: accepted rows in the window that ends with each row, the row itself left out. */
    static const char in_window[] =
        "SELECT count(*) FROM rate_limit_log r CROSS JOIN LATERAL (SELECT count(*) AS n FROM rate_limit_log l WHERE "
        "l.user_id = r.user_id "
        "AND l.accepted AND l.at > r.at - interval '150 ms' AND l.at <= r.at AND l.request_id <> r.request_id) w "
        "WHERE r.user_id = 'sliding' AND (r.accepted AND w.n >= 3 OR NOT r.accepted AND w.n < 3)";
    ck_assert_int_eq(database_int(owner, "%s", in_window), 0);
}
END_TEST

/* ---- verdicts, one after the other -------------------------------------------------------------------------------------------- */

START_TEST(an_accepted_request_is_three_rows_of_one_time)
{
    struct try tries[2] = {try_of("three-rows-a", "k"), try_of("three-rows-b", "k")};
    accept_all(&no_limit, tries, 2);
    for (int i = 0; i < 2; i++) {
        char id[UUID_TEXT_SIZE];
        uuid_format(&tries[i].id, id);
        ck_assert_str_eq(tries[i].verdict, "accepted");
        ck_assert(uuid_equal(&tries[i].event_id, &tries[i].id));
        ck_assert_int_eq(tries[i].created_us, tries[i].decided_us);
        ck_assert_int_eq(tries[i].oldest_us, tries[i].decided_us);
        ck_assert_int_eq(tries[i].used, 1);
        ck_assert_int_eq(tries[i].frees_us, 0);
        ck_assert_int_eq(
            database_int(
                owner,
                "SELECT count(*) FROM outbox_events e JOIN idempotency_keys k ON k.event_id = e.id JOIN rate_limit_log "
                "l "
                "ON l.request_id = e.id WHERE e.id = '%s' AND e.status = 'PENDING' AND e.retry_count = 0 "
                "AND e.event_type = 'CARD_ISSUE' AND e.idempotency_key = 'k' AND e.payload = '{\"kind\":\"new\"}' "
                "AND l.accepted AND e.created_at = k.created_at AND l.at = k.created_at AND e.next_attempt_at = l.at "
                "AND e.first_sent_at IS NULL AND (e.traceparent IS NOT NULL) = %s",
                id, i ? "true" : "false"),
            1);
    }
}
END_TEST

START_TEST(a_repeat_is_never_limited_and_takes_no_slot)
{
    const struct limit one = {.count = 1, .window_ms = HOUR_MS, .attempts = true};
    struct try first = try_of("repeat", "k"), again = try_of("repeat", "k"), second = try_of("repeat", "k2");
    expect(&one, &first, "accepted");
    expect(&one, &second, "limited");
    for (int i = 0; i < 3; i++) {
        again.id = uuid7_make();
        expect(&one, &again, "replayed");
        ck_assert(uuid_equal(&again.event_id, &first.id));
        ck_assert_int_eq(again.created_us, first.created_us);
    }
    expect_rows("repeat", 1, 2, 1);
}
END_TEST

START_TEST(a_key_with_another_body_is_reused_and_changes_nothing)
{
    struct try first = try_of("reused", "k"), other = try_of("reused", "k"),
               neighbour = try_of("reused-neighbour", "k");
    expect(&no_limit, &first, "accepted");
    snprintf(other.payload, sizeof other.payload, "{\"kind\":\"new\",\"memo\":\"x\"}");
    expect(&no_limit, &other, "reused");
    expect_rows("reused", 1, 1, 1);
    expect(&no_limit, &neighbour, "accepted"); /* the scope is (user, key) */
}
END_TEST

START_TEST(a_refused_try_leaves_its_key_unused_and_its_row_in_the_log)
{
    const struct limit one = {.count = 1, .window_ms = HOUR_MS};
    struct try first = try_of("unused", "k1"), refused = try_of("unused", "k2"), again = try_of("unused", "k2");
    expect(&one, &first, "accepted");
    expect(&one, &refused, "limited");
    expect_rows("unused", 1, 2, 1);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM rate_limit_log WHERE user_id = 'unused' AND NOT accepted"), 1);
    database_run(owner,
                 "UPDATE rate_limit_log SET at = at - interval '1 h' WHERE user_id = 'unused'"); /* an hour later */
    snprintf(again.payload, sizeof again.payload,
             "{\"kind\":\"new\",\"memo\":\"another body: the key is still free\"}");
    expect(&one, &again, "accepted");
    ck_assert(uuid_equal(&again.event_id, &again.id));
}
END_TEST

START_TEST(the_same_call_again_gives_the_same_verdict)
{
    const struct limit one = {.count = 1, .window_ms = HOUR_MS};
    struct try accepted = try_of("unknown-commit", "k"), limited = try_of("unknown-commit", "k2"), copy;
    expect(&one, &accepted, "accepted");
    expect(&one, &limited, "limited");
    for (int i = 0; i < 3; i++) { /* the answer was lost; nobody knows whether it was committed */
        copy = accepted;
        expect(&one, &copy, "accepted");
        ck_assert(uuid_equal(&copy.event_id, &accepted.id));
        ck_assert_int_eq(copy.created_us, accepted.created_us);
        ck_assert_int_eq(copy.used, 1);
        copy = limited;
        expect(&one, &copy, "limited");
        ck_assert_int_eq(rows_of("rate_limit_log", "unknown-commit"), 2); /* the refused try is recorded once */
    }
    ck_assert_int_eq(rows_of("outbox_events", "unknown-commit"), 1);
    ck_assert_int_eq(rows_of("idempotency_keys", "unknown-commit"), 1);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM rate_limit_log WHERE user_id = 'unknown-commit' AND accepted"), 1);
}
END_TEST

START_TEST(a_call_that_was_rolled_back_left_nothing)
{
    struct try try = try_of("rolled-back", "k");
    database_run(api, "BEGIN");
    expect(&no_limit, &try, "accepted");
    database_run(api, "ROLLBACK");
    expect_rows("rolled-back", 0, 0, 0);
    expect(&no_limit, &try, "accepted");
    expect_rows("rolled-back", 1, 1, 1);
}
END_TEST

/* ---- how long a key counts ------------------------------------------------------------------------------------------------------- */

static const struct limit an_hour = {.count = 1000000, .window_ms = HOUR_MS, .retention_ms = HOUR_MS};

/* The user's only request was accepted `accepted_ago` ago, and has had its status for `ended_ago`. */
static void age(const char *user, const char *accepted_ago, const char *status, const char *ended_ago)
{
    database_exec(owner,
                  "UPDATE outbox_events SET created_at = now() - interval '%s', status = '%s', "
                  "lease_token = CASE WHEN '%s' = 'PROCESSING' THEN gen_random_uuid() END, "
                  "lease_until = CASE WHEN '%s' = 'PROCESSING' THEN now() END, updated_at = now() - interval '%s', "
                  "completed_at = CASE WHEN '%s' NOT IN ('PENDING', 'PROCESSING') THEN now() - interval '%s' END "
                  "WHERE user_id = '%s'",
                  accepted_ago, status, status, status, ended_ago, status, ended_ago, user);
    database_exec(owner, "UPDATE idempotency_keys SET created_at = now() - interval '%s' WHERE user_id = '%s'",
                  accepted_ago, user);
}

START_TEST(a_key_counts_for_its_retention_from_the_final_status)
{
    static const char *const statuses[] = {"COMPLETED", "REJECTED"};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char user[32];
        snprintf(user, sizeof user, "retention-%s", statuses[i]);
        struct try first = try_of(user, "k"), again = try_of(user, "k"), other = try_of(user, "k");
        snprintf(other.payload, sizeof other.payload, "{\"kind\":\"new\",\"memo\":\"x\"}");
        expect(&an_hour, &first, "accepted");
        age(user, "90 days", statuses[i], "50 min");
        expect(&an_hour, &again, "replayed");
        ck_assert(uuid_equal(&again.event_id, &first.id));
        expect(&an_hour, &other, "reused");
        age(user, "90 days", statuses[i], "61 min");
        expect(&an_hour, &other, "accepted"); /* a new request, another body: the key is free */
        ck_assert(uuid_equal(&other.event_id, &other.id));
        again.id = uuid7_make();
        expect(&an_hour, &again, "reused"); /* the newest row is the one that counts */
        struct try third = other;
        third.id = uuid7_make();
        expect(&an_hour, &third, "replayed");
        ck_assert(uuid_equal(&third.event_id, &other.id));
        ck_assert_int_eq(third.created_us, other.created_us);
        expect_rows(user, 2, 2, 2);
    }
}
END_TEST

START_TEST(the_key_of_an_unfinished_or_failed_request_counts_for_ever)
{
    static const char *const statuses[] = {"PENDING", "PROCESSING", "FAILED"};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char user[32];
        snprintf(user, sizeof user, "for-ever-%s", statuses[i]);
        struct try first = try_of(user, "k"), again = try_of(user, "k"), other = try_of(user, "k");
        snprintf(other.payload, sizeof other.payload, "{\"kind\":\"new\",\"memo\":\"x\"}");
        expect(&an_hour, &first, "accepted");
        age(user, "900 days", statuses[i], "900 days");
        expect(&an_hour, &again, "replayed");
        ck_assert(uuid_equal(&again.event_id, &first.id));
        expect(&an_hour, &other, "reused");
        expect_rows(user, 1, 1, 1);
    }
}
END_TEST

START_TEST(a_key_whose_request_is_gone_counts_for_its_retention_from_acceptance)
{
    struct try first = try_of("gone", "k"), again = try_of("gone", "k");
    expect(&an_hour, &first, "accepted");
    age("gone", "50 min", "COMPLETED", "50 min");
    database_run(owner, "DELETE FROM outbox_events WHERE user_id = 'gone'");
    expect(&an_hour, &again, "replayed");
    database_run(owner, "UPDATE idempotency_keys SET created_at = now() - interval '61 min' WHERE user_id = 'gone'");
    expect(&an_hour, &again, "accepted");
}
END_TEST

START_TEST(of_two_rows_of_a_key_in_different_partitions_the_newest_counts)
{
    struct try old = try_of("two-rows", "k"), new = try_of("two-rows", "k"), again = try_of("two-rows", "k");
    snprintf(new.payload, sizeof new.payload, "{\"kind\":\"new\",\"memo\":\"newer\"}");
    expect(&an_hour, &old, "accepted");
    age("two-rows", "90 days", "COMPLETED", "89 days");
    expect(&an_hour, &new, "accepted");
    ck_assert_int_eq(
        database_int(owner, "SELECT count(DISTINCT tableoid) FROM idempotency_keys WHERE user_id = 'two-rows'"), 2);
    expect(&an_hour, &again, "reused"); /* the old row would have said: replayed */
    snprintf(again.payload, sizeof again.payload, "%s", new.payload);
    expect(&an_hour, &again, "replayed");
    ck_assert(uuid_equal(&again.event_id, &new.id));
    /* Where the newest is over, an older one does not come to life again. */
    database_run(
        owner, "UPDATE outbox_events SET completed_at = NULL, updated_at = now(), status = CASE WHEN payload ? 'memo' "
               "THEN 'COMPLETED' ELSE 'FAILED' END WHERE user_id = 'two-rows'");
    database_run(owner, "UPDATE outbox_events SET updated_at = now() - interval '2 h' WHERE user_id = 'two-rows' AND "
                        "status = 'COMPLETED'");
    database_run(owner, "UPDATE idempotency_keys k SET created_at = now() - interval '2 h' FROM outbox_events e "
                        "WHERE k.user_id = 'two-rows' AND e.id = k.event_id AND e.status = 'COMPLETED'");
    again.id = uuid7_make();
    expect(&an_hour, &again, "accepted");
}
END_TEST

/* ---- the limit, to the row ------------------------------------------------------------------------------------------------------ */

/* Tries of the past, `ago` seconds each; 0 ends. */
static void add_past(const char *user, const int *ago, bool accepted)
{
    for (; *ago; ago++)
        database_exec(owner,
                      "INSERT INTO rate_limit_log (at, request_id, accepted, user_id) "
                      "VALUES (now() - %d * interval '1 s', gen_random_uuid(), %s, '%s')",
                      *ago, accepted ? "true" : "false", user);
}

static int64_t ago_s(const struct try *try, int64_t us)
{
    return (try->decided_us - us + 500000) / 1000000;
}

/* frees_at belongs to exactly that row of the past; the rows are 50 s apart or more, so a slow machine does not confuse them. */
static void expect_frees(const struct try *try, const char *user, int ago, int64_t window_ms)
{
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM rate_limit_log WHERE user_id = '%s' "
                                  "AND (extract(epoch FROM at) * 1000000)::int8 = %lld "
                                  "AND extract(epoch FROM to_timestamp(%lld / 1000000.0) - at) BETWEEN %d AND %d",
                                  user, (long long)(try->frees_us - window_ms * 1000), (long long)try->decided_us, ago,
                                  ago + 40),
                     1);
}

START_TEST(the_slot_frees_when_the_tries_that_fill_the_window_leave_it)
{
    static const int fives[] = {550, 500, 300, 200, 100, 0}, threes[] = {500, 300, 100, 0};
    const struct limit accepted = {.count = 3, .window_ms = 600 * 1000},
                       attempts = {.count = 3, .window_ms = 600 * 1000, .attempts = true};
    struct try try = try_of("frees-3", "k");
    add_past("frees-3", threes, true);
    expect(&accepted, &try, "limited");
    ck_assert_int_eq(try.used, 3);
    ck_assert_int_ge(ago_s(&try, try.oldest_us), 500);
    expect_frees(&try, "frees-3", 500, accepted.window_ms);

    try = try_of("frees-5", "k"); /* the limit was lowered meanwhile: three of five must leave */
    add_past("frees-5", fives, true);
    expect(&accepted, &try, "limited");
    ck_assert_int_eq(try.used, 3); /* counted up to the limit: nothing depends on how far it is exceeded */
    ck_assert_int_ge(ago_s(&try, try.oldest_us), 550);
    expect_frees(&try, "frees-5", 300, accepted.window_ms);

    try = try_of("frees-a", "k"); /* this refused try counts itself */
    add_past("frees-a", threes, true);
    expect(&attempts, &try, "limited");
    ck_assert_int_eq(try.used, 4);
    expect_frees(&try, "frees-a", 300, attempts.window_ms);
}
END_TEST

START_TEST(refused_tries_count_only_where_attempts_count)
{
    static const int refused[] = {50, 40, 30, 0};
    const struct limit accepted = {.count = 1, .window_ms = 600 * 1000},
                       attempts = {.count = 1, .window_ms = 600 * 1000, .attempts = true};
    struct try lenient = try_of("count-accepted", "k"), strict = try_of("count-attempts", "k");
    add_past("count-accepted", refused, false);
    add_past("count-attempts", refused, false);
    expect(&accepted, &lenient, "accepted");
    expect(&attempts, &strict, "limited");
    ck_assert_int_eq(strict.used, 2);
    ck_assert_int_ge(ago_s(&strict, strict.oldest_us), 50);
    ck_assert_int_eq(strict.frees_us,
                     strict.decided_us + attempts.window_ms * 1000); /* the block is prolonged by the try itself */
}
END_TEST

START_TEST(a_try_passes_when_its_time_has_come_and_not_before)
{
    static const int threes[] = {500, 300, 100, 0};
    const struct limit limit = {.count = 3, .window_ms = 600 * 1000};
    struct try try = try_of("passes", "k");
    add_past("passes", threes, true);
    expect(&limit, &try, "limited");
    int64_t wait_us = try.frees_us - try.decided_us;
    ck_assert_int_gt(wait_us, 60 * 1000000);
    database_exec(owner, "UPDATE rate_limit_log SET at = at - %lld * interval '1 us' WHERE user_id = 'passes'",
                  (long long)(wait_us - 60 * 1000000)); /* a minute too early */
    try.id = uuid7_make();
    expect(&limit, &try, "limited");
    database_run(owner, "UPDATE rate_limit_log SET at = at - interval '61 s' WHERE user_id = 'passes'");
    try.id = uuid7_make();
    expect(&limit, &try, "accepted");
    ck_assert_int_eq(try.used, 3);
}
END_TEST

/* ---- what was tried in vain ------------------------------------------------------------------------------------------------------ */

/* Pages that the call reads, in all that it calls. */
static int64_t pages_read(const char *user, const struct limit *limit)
{
    char text[800];
    snprintf(text, sizeof text,
             "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, FORMAT JSON) SELECT * FROM "
             "issuing.accept(ARRAY[issuing.uuid7()], ARRAY['%s'], ARRAY[gen_random_uuid()::text], ARRAY['f'::bytea], "
             "ARRAY['{\"kind\":\"new\"}'], ARRAY[NULL], %lld, '1 h', %s, '1 day')",
             user, (long long)limit->count, limit->attempts ? "true" : "false");
    char *plan = database_text(owner, text);
    int64_t pages = 0;
    for (const char *key = strstr(plan, "Shared "); key && key < strstr(plan, "Planning");
         key = strstr(key + 1, "Shared "))
        if (strncmp(key, "Shared Hit", 10) == 0 || strncmp(key, "Shared Read", 11) == 0)
            pages += strtoll(strchr(key, ':') + 1, NULL, 10);
    free(plan);
    return pages;
}

/* A user who was refused a hundred thousand times in the window costs what another one costs, whatever counts and whatever the verdict. */
START_TEST(the_limit_costs_the_same_however_often_the_user_was_refused)
{
    static const int hundred_thousand = 100000;
    for (int i = 0; i < 4; i++) {
        const struct limit limit = {.count = i < 2 ? 3 : 200000, .window_ms = HOUR_MS, .attempts = i == 1};
        int64_t pages[2];
        for (int many = 0; many < 2; many++) {
            char user[32];
            snprintf(user, sizeof user, "cost-%d-%d", i, many);
            database_exec(owner,
                          "INSERT INTO rate_limit_log SELECT now() - n * interval '10 ms', gen_random_uuid(), "
                          "n <= 3, '%s' FROM generate_series(1, %d) n",
                          user, many ? hundred_thousand : 10);
            (void)pages_read(user, &limit); /* a first call reads the catalogue as well */
            pages[many] = pages_read(user, &limit);
        }
        ck_assert_int_gt(pages[0], 0);
        ck_assert_msg(pages[1] < pages[0] + 60, "%d: %lld pages after ten tries, %lld after a hundred thousand", i,
                      (long long)pages[0], (long long)pages[1]);
    }
    database_run(owner, "DELETE FROM rate_limit_log WHERE user_id LIKE 'cost-%'");
}
END_TEST

/* ---- clocks that step ------------------------------------------------------------------------------------------------------------ */

/* The clock was an hour ahead when the user's tries were recorded, and is right again: the user waits for one window, and not for an hour. */
START_TEST(tries_of_a_clock_that_was_ahead_hold_a_user_for_one_window_only)
{
    static const char *const users[] = {"ahead-accepted", "ahead-attempts"};
    for (int i = 0; i < 2; i++) {
        const struct limit limit = {.count = 2, .window_ms = 600 * 1000, .attempts = i == 1};
        struct try try = try_of(users[i], "k");
        database_exec(owner,
                      "INSERT INTO rate_limit_log SELECT now() + interval '1 h', gen_random_uuid(), true, '%s' FROM "
                      "generate_series(1, 2)",
                      users[i]);
        expect(&limit, &try, "limited");
        ck_assert_int_le(try.frees_us - try.decided_us, limit.window_ms * 1000);
        ck_assert_int_le(try.oldest_us, try.decided_us);
        ck_assert_int_eq(
            database_int(owner, "SELECT count(*) FROM rate_limit_log WHERE user_id = '%s' AND at > now()", users[i]),
            0);
        /* One window later. */
        database_exec(owner, "UPDATE rate_limit_log SET at = at - interval '601 s' WHERE user_id = '%s'", users[i]);
        try.id = uuid7_make();
        expect(&limit, &try, "accepted");
    }
}
END_TEST

START_TEST(nobody_can_move_tries_of_the_past)
{
    static const int past[] = {500, 300, 0};
    add_past("unmoved", past, true);
    database_run(api, "SELECT issuing.mend_tries('unmoved')");
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM rate_limit_log WHERE user_id = 'unmoved' AND at < now() - "
                                  "interval '299 s'"),
                     2);
}
END_TEST

static void keep_clock(const char *passed_ago, const char *believed_ago)
{
    database_exec(owner,
                  "UPDATE house_clock SET passed_at = clock_timestamp() - interval '%s', believed_at = "
                  "clock_timestamp() - interval '%s'",
                  passed_ago, believed_ago);
}

/* The database's clock jumps ahead by five hours or a year: seen from there the key's request ended longer ago than the retention. What the
 * clock says is not what has passed since, and the key is not forgotten. */
START_TEST(a_clock_that_jumps_ahead_forgets_no_key)
{
    static const char *const jumps[] = {"5 h", "365 days"};
    for (size_t i = 0; i < ARRAY_SIZE(jumps); i++) {
        char user[32];
        snprintf(user, sizeof user, "jump-%zu", i);
        struct try first = try_of(user, "k"), again = try_of(user, "k");
        expect(&an_hour, &first, "accepted");
        age(user, jumps[i], "COMPLETED", jumps[i]);
        keep_clock(jumps[i], jumps[i]); /* the last pass was before the jump */
        expect(&an_hour, &again, "replayed");
        keep_clock("10 s", jumps[i]); /* and a pass was made after it */
        expect(&an_hour, &again, "replayed");
        /* As much as the jump has really passed since: the clock is believed. */
        keep_clock("10 s", "10 s");
        expect(&an_hour, &again, "accepted");
    }
}
END_TEST

START_TEST(a_clock_that_steps_back_forgets_no_key)
{
    struct try first = try_of("step-back", "k"), again = try_of("step-back", "k");
    expect(&an_hour, &first, "accepted");
    age("step-back", "-5 h", "COMPLETED", "-5 h"); /* recorded before the step, and so in a time to come */
    keep_clock("-5 h", "-5 h");
    expect(&an_hour, &again, "replayed");
}
END_TEST

/* An api that is configured with less than the database keeps forgets nothing. */
START_TEST(no_caller_shortens_the_retention_of_keys)
{
    const struct limit shorter = {.count = 1000000, .window_ms = HOUR_MS, .retention_ms = 1000};
    struct try first = try_of("shorter", "k"), again = try_of("shorter", "k");
    expect(&shorter, &first, "accepted");
    age("shorter", "50 min", "COMPLETED", "50 min");
    expect(&shorter, &again, "replayed");
    age("shorter", "61 min", "COMPLETED", "61 min");
    expect(&shorter, &again, "accepted");
}
END_TEST

/* ---- reissues ------------------------------------------------------------------------------------------------------------------- */

/* A card of that user whose request has this status. */
static struct uuid add_card(const char *user, const char *request_status, const char *card_status)
{
    struct uuid id = uuid7_make(), request = uuid7_make();
    char id_text[UUID_TEXT_SIZE], request_text[UUID_TEXT_SIZE];
    uuid_format(&id, id_text);
    uuid_format(&request, request_text);
    database_exec(
        owner,
        "INSERT INTO outbox_events (id, user_id, payload, status) VALUES ('%s', '%s', '{\"kind\":\"new\"}', '%s')",
        request_text, user, request_status);
    database_exec(owner,
                  "INSERT INTO cards (id, request_id, user_id, issuer_card_id, last4, exp_month, exp_year, status) "
                  "VALUES ('%s', '%s', '%s', 'ic', '1111', 1, 2030, '%s')",
                  id_text, request_text, user, card_status);
    return id;
}

static struct try reissue_of(const char *user, const char *key, const struct uuid *card)
{
    struct try try = try_of(user, key);
    char text[UUID_TEXT_SIZE];
    uuid_format(card, text);
    snprintf(try.payload, sizeof try.payload, "{\"kind\":\"reissue\",\"replaces\":\"%s\"}", text);
    return try;
}

START_TEST(only_an_active_card_of_the_user_whose_request_is_done_can_be_replaced)
{
    struct uuid own = add_card("holder", "COMPLETED", "active"), stranger = uuid7_make();
    struct uuid cancelled = add_card("holder", "COMPLETED", "cancelled"),
                replaced = add_card("holder", "COMPLETED", "replaced");
    struct uuid unfinished = add_card("holder", "PENDING", "active"), failed = add_card("holder", "FAILED", "active");
    const struct uuid *const bad[] = {&stranger, &cancelled, &replaced, &unfinished, &failed};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct try try = reissue_of("holder", "k", bad[i]);
        expect(&no_limit, &try, "not_replaceable");
    }
    struct try theirs = reissue_of("not-the-holder", "k", &own);
    expect(&no_limit, &theirs, "not_replaceable");
    expect_rows("not-the-holder", 0, 0, 0); /* neither key nor slot */
    ck_assert_int_eq(rows_of("idempotency_keys", "holder"), 0);
    ck_assert_int_eq(rows_of("rate_limit_log", "holder"), 0);
    struct try good = reissue_of("holder", "k", &own); /* the same key: it was never burnt */
    expect(&no_limit, &good, "accepted");
}
END_TEST

START_TEST(not_replaceable_is_said_before_limited)
{
    const struct limit one = {.count = 1, .window_ms = HOUR_MS};
    struct uuid unknown = uuid7_make();
    struct try first = try_of("order", "k1"), second = reissue_of("order", "k2", &unknown);
    expect(&one, &first, "accepted");
    expect(&one, &second, "not_replaceable");
    expect_rows("order", 1, 1, 1);
}
END_TEST

START_TEST(a_card_has_one_live_reissue_until_that_is_rejected)
{
    struct uuid card = add_card("once", "COMPLETED", "active");
    struct try first = reissue_of("once", "k1", &card), second = reissue_of("once", "k2", &card),
               again = reissue_of("once", "k1", &card);
    char upper[UUID_TEXT_SIZE], id[UUID_TEXT_SIZE];
    expect(&no_limit, &first, "accepted");
    expect(&no_limit, &second, "not_replaceable");
    expect(&no_limit, &again, "replayed"); /* its own key is looked at first */
    uuid_format(&card, upper);
    for (char *c = upper; *c; c++)
        *c = (char)(*c >= 'a' && *c <= 'f' ? *c - 32 : *c);
    snprintf(second.payload, sizeof second.payload, "{\"kind\":\"reissue\",\"replaces\":\"%s\"}", upper);
    expect(&no_limit, &second, "not_replaceable"); /* another spelling is the same card */
    uuid_format(&first.id, id);
    database_exec(owner, "UPDATE outbox_events SET status = 'FAILED' WHERE id = '%s'", id);
    expect(&no_limit, &second, "not_replaceable");
    database_exec(owner, "UPDATE outbox_events SET status = 'REJECTED' WHERE id = '%s'", id);
    expect(&no_limit, &second, "accepted");
}
END_TEST

START_TEST(reissues_of_one_card_from_many_connections_are_one)
{
    struct contest contest;
    struct try tries[THREADS];
    struct uuid card = add_card("race-reissue", "COMPLETED", "active");
    for (int i = 0; i < THREADS; i++) {
        char key[32];
        snprintf(key, sizeof key, "key-%d", i);
        tries[i] = reissue_of("race-reissue", key, &card);
    }
    contest_open(&contest, THREADS);
    contest_run(&contest, &no_limit, tries, 1, 1, 0);
    expect_no_failure(&contest);
    contest_close(&contest);
    ck_assert_int_eq(count_verdicts(tries, THREADS, "accepted"), 1);
    ck_assert_int_eq(count_verdicts(tries, THREADS, "not_replaceable"), THREADS - 1);
}
END_TEST

/* A reissue that another service inserts by itself; false: the SQLSTATE is in ret_sqlstate. */
struct foreign {
    pthread_t thread;
    struct pg_sync *db;
    char text[300], sqlstate[6];
};

static void *insert_foreign(void *context)
{
    struct foreign *foreign = context;
    struct err err;
    bool done = pg_sync_exec(foreign->db, foreign->text, &err);
    snprintf(foreign->sqlstate, sizeof foreign->sqlstate, "%s", done ? "" : pg_sync_sqlstate(foreign->db));
    return NULL;
}

static struct foreign foreign_of(const char *user, const struct uuid *card)
{
    struct foreign foreign = {.db = database_open(NULL)};
    struct try try = reissue_of(user, "", card);
    snprintf(foreign.text, sizeof foreign.text, "INSERT INTO outbox_events (user_id, payload) VALUES ('%s', '%s')",
             user, try.payload);
    return foreign;
}

static void wait_for_a_waiter(void)
{
    int64_t waiting = 0;
    for (int i = 0; i < 3000 && !waiting; i++) {
        waiting = database_int(owner, "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
                                      "WHERE NOT l.granted AND a.datname = current_database()");
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    ck_assert_int_gt(waiting, 0);
}

static int64_t live_reissues(const char *user)
{
    return database_int(owner,
                        "SELECT count(*) FROM outbox_events WHERE user_id = '%s' AND payload ? 'replaces' "
                        "AND status <> 'REJECTED'",
                        user);
}

/* One inserts and has not committed; another waits for it; then the first one ends as said. Returns the other's SQLSTATE. */
static void race_foreign(const char *user, const char *first_ends, char ret_sqlstate[6])
{
    struct uuid card = add_card(user, "COMPLETED", "active");
    for (int taken = 0; taken < 2; taken++) { /* the place is free; it is that of a rejected one */
        struct foreign first = foreign_of(user, &card), second = foreign_of(user, &card);
        database_run(first.db, "BEGIN");
        database_run(first.db, first.text);
        ck_assert_int_eq(pthread_create(&second.thread, NULL, insert_foreign, &second), 0);
        wait_for_a_waiter();
        database_run(first.db, first_ends);
        ck_assert_int_eq(pthread_join(second.thread, NULL), 0);
        snprintf(ret_sqlstate, 6, "%s", second.sqlstate);
        pg_sync_close(first.db);
        pg_sync_close(second.db);
        ck_assert_int_eq(live_reissues(user), 1);
        database_exec(
            owner, "UPDATE outbox_events SET status = 'REJECTED' WHERE user_id = '%s' AND payload ? 'replaces'", user);
    }
}

START_TEST(of_two_reissues_that_other_services_insert_at_once_one_is_refused)
{
    char sqlstate[6];
    race_foreign("foreign-commit", "COMMIT", sqlstate);
    ck_assert_str_eq(sqlstate, "23505");
    race_foreign("foreign-rollback", "ROLLBACK", sqlstate);
    ck_assert_str_eq(sqlstate, "");
}
END_TEST

/* The wait may also begin where the place is only locked: whoever takes it before that lock ends is seen as well. */
START_TEST(a_reissue_that_took_the_place_while_another_waited_for_it_keeps_it)
{
    struct uuid card = add_card("locked-place", "COMPLETED", "active");
    struct foreign first = foreign_of("locked-place", &card), second = foreign_of("locked-place", &card);
    database_run(first.db, first.text);
    database_run(
        owner, "UPDATE outbox_events SET status = 'REJECTED' WHERE user_id = 'locked-place' AND payload ? 'replaces'");
    database_run(first.db, "BEGIN; SELECT FROM card_reissues WHERE user_id = 'locked-place' FOR UPDATE");
    ck_assert_int_eq(pthread_create(&second.thread, NULL, insert_foreign, &second), 0);
    wait_for_a_waiter();
    database_run(first.db, first.text);
    database_run(first.db, "COMMIT");
    ck_assert_int_eq(pthread_join(second.thread, NULL), 0);
    pg_sync_close(first.db);
    pg_sync_close(second.db);
    ck_assert_str_eq(second.sqlstate, "23505");
    ck_assert_int_eq(live_reissues("locked-place"), 1);
}
END_TEST

START_TEST(a_reissue_that_another_service_inserts_and_ours_are_never_both_live)
{
    struct uuid card = add_card("foreign", "COMPLETED", "active");
    struct foreign foreign = foreign_of("foreign", &card);
    struct try ours = reissue_of("foreign", "k", &card);
    struct err err;
    char sqlstate[6];
    /* theirs first, committed */
    database_run(foreign.db, foreign.text);
    expect(&no_limit, &ours, "not_replaceable");
    database_run(owner,
                 "UPDATE outbox_events SET status = 'REJECTED' WHERE user_id = 'foreign' AND payload ? 'replaces'");
    /* ours first */
    expect(&no_limit, &ours, "accepted");
    ck_assert(!pg_sync_exec(foreign.db, foreign.text, &err));
    ck_assert_str_eq(pg_sync_sqlstate(foreign.db), "23505");
    database_run(owner,
                 "UPDATE outbox_events SET status = 'REJECTED' WHERE user_id = 'foreign' AND payload ? 'replaces'");
    /* theirs first, and we wait for it: refused as a whole, and refused properly when it is said again */
    struct contest contest;
    struct try waiting = reissue_of("foreign", "k2", &card);
    pthread_barrier_t barrier;
    contest_open(&contest, 1);
    struct racer *racer = &contest.racers[0];
    racer->barrier = &barrier;
    racer->limit = &no_limit;
    racer->tries = &waiting;
    racer->calls = racer->batch = 1;
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 1), 0);
    database_run(foreign.db, "BEGIN");
    database_run(foreign.db, foreign.text);
    ck_assert_int_eq(pthread_create(&racer->thread, NULL, race, racer), 0);
    wait_for_a_waiter();
    database_run(foreign.db, "COMMIT");
    ck_assert_int_eq(pthread_join(racer->thread, NULL), 0);
    pthread_barrier_destroy(&barrier);
    snprintf(sqlstate, sizeof sqlstate, "%s", racer->sqlstate);
    contest_close(&contest);
    ck_assert_str_eq(sqlstate, "23505");
    ck_assert_int_eq(live_reissues("foreign"), 1);
    expect(&no_limit, &waiting, "not_replaceable");
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM idempotency_keys WHERE user_id = 'foreign' AND key = 'k2'"), 0);
    pg_sync_close(foreign.db);
}
END_TEST

/* Another service has inserted a reissue and does not commit: our reissue of that card ends by lock_timeout, with its batch, and then alone; its
 * neighbours, each on its own after the batch was split, are accepted while the other transaction is still open. */
START_TEST(a_card_that_another_service_holds_costs_its_neighbours_one_wait)
{
    struct uuid card = add_card("held", "COMPLETED", "active");
    struct foreign foreign = foreign_of("held", &card);
    struct try tries[3] = {try_of("held-a", "k"), reissue_of("held", "k", &card), try_of("held-b", "k")};
    database_run(foreign.db, "BEGIN");
    database_run(foreign.db, foreign.text);
    database_run(api, "SET statement_timeout = '60s'"); /* a wait without an end would be 57014 */
    expect_refused(api, tries, 3, "55P03");
    expect(&no_limit, &tries[0], "accepted");
    expect(&no_limit, &tries[2], "accepted");
    expect_refused(api, &tries[1], 1, "55P03");
    database_run(foreign.db, "ROLLBACK");
    expect(&no_limit, &tries[1], "accepted");
    pg_sync_close(foreign.db);
}
END_TEST

START_TEST(two_reissues_of_one_card_in_one_statement_are_refused)
{
    struct uuid card = add_card("one-statement", "COMPLETED", "active");
    struct try try = reissue_of("one-statement", "k", &card);
    struct err err;
    char text[700];
    snprintf(text, sizeof text,
             "INSERT INTO outbox_events (user_id, payload) SELECT 'one-statement', '%s' FROM generate_series(1, 2)",
             try.payload);
    ck_assert(!pg_sync_exec(owner, text, &err));
    ck_assert_str_eq(pg_sync_sqlstate(owner), "23505");
    ck_assert_int_eq(live_reissues("one-statement"), 0);
    expect(&no_limit, &try, "accepted");
}
END_TEST

/* ---- batches -------------------------------------------------------------------------------------------------------------------- */

START_TEST(a_batch_of_64_comes_back_in_the_order_it_went)
{
    static const char *const verdicts[] = {"accepted", "replayed", "reused", "limited"};
    const struct limit one = {.count = 1, .window_ms = HOUR_MS};
    static struct try tries[BATCH_MAX];
    int order[BATCH_MAX];
    unsigned int seed = 3;
    shuffle(order, BATCH_MAX, &seed);
    for (int i = 0; i < BATCH_MAX; i++) {
        char user[32];
        snprintf(user, sizeof user, "ordered-%02d", order[i]);
        tries[i] = try_of(user, "k");
        if (order[i] % 4)
            expect(&one, &tries[i], "accepted");
        if (order[i] % 4 == 2)
            snprintf(tries[i].payload, sizeof tries[i].payload, "{\"kind\":\"new\",\"memo\":\"m\"}");
        if (order[i] % 4 == 3)
            snprintf(tries[i].key, sizeof tries[i].key, "k2");
    }
    for (int i = BATCH_MAX - 1; i >= 0; i--)
        tries[i].id = uuid7_make(); /* falling, so that their own order is not the one asked for */
    accept_all(&one, tries, BATCH_MAX);
    for (int i = 0; i < BATCH_MAX; i++) {
        ck_assert_str_eq(tries[i].verdict, verdicts[order[i] % 4]);
        if (order[i] % 4 == 0)
            ck_assert(uuid_equal(&tries[i].event_id, &tries[i].id));
        ck_assert_int_eq(tries[i].decided_us, tries[0].decided_us);
    }
}
END_TEST

START_TEST(a_user_twice_in_one_batch_is_refused_because_both_would_pass)
{
    struct try tries[3] = {try_of("twice", "k1"), try_of("twice-neighbour", "k"), try_of("twice", "k2")};
    expect_refused(api, tries, 3, "22023");
    expect_rows("twice", 0, 0, 0);
    expect_rows("twice-neighbour", 0, 0, 0);
}
END_TEST

START_TEST(a_bad_element_fails_the_call_as_a_whole_and_its_neighbours_pass_alone)
{
    struct try tries[3] = {try_of("bad-a", "k"), try_of("bad-b", "k"), try_of("bad-c", "k")};
    snprintf(tries[1].payload, sizeof tries[1].payload, "{\"kind\":");
    expect_refused(api, tries, 3, "22P02");
    for (int i = 0; i < 3; i++)
        expect_rows(tries[i].user, 0, 0, 0);
    expect(&no_limit, &tries[0], "accepted");
    expect_refused(api, &tries[1], 1, "22P02");
    expect(&no_limit, &tries[2], "accepted");
}
END_TEST

START_TEST(an_empty_batch_is_no_error)
{
    char sqlstate[6];
    ck_assert(say(api, &no_limit, NULL, 0, sqlstate));
}
END_TEST

START_TEST(other_isolation_levels_are_refused)
{
    static const char *const levels[] = {"REPEATABLE READ", "SERIALIZABLE"};
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
        struct try try = try_of("isolation", "k");
        database_exec(api, "BEGIN ISOLATION LEVEL %s", levels[i]);
        expect_refused(api, &try, 1, "25001");
        database_run(api, "ROLLBACK");
    }
    expect_rows("isolation", 0, 0, 0);
    struct try try = try_of("isolation", "k");
    database_run(api, "BEGIN ISOLATION LEVEL READ COMMITTED");
    expect(&no_limit, &try, "accepted");
    database_run(api, "COMMIT");
}
END_TEST

START_TEST(a_key_that_somebody_still_records_ends_the_wait_and_spares_the_neighbours)
{
    struct try recorded = try_of("blocked", "k");
    struct try tries[2] = {try_of("blocked", "k"), try_of("blocked-neighbour", "k")};
    struct pg_sync *slow = database_open("issuing_api");
    char sqlstate[6];
    database_run(slow, "BEGIN");
    ck_assert(say(slow, &no_limit, &recorded, 1, sqlstate));
    database_run(api, "SET statement_timeout = '60s'"); /* a wait without an end would be 57014, not 55P03 */
    expect_refused(api, tries, 2, "55P03");
    expect_rows("blocked-neighbour", 0, 0, 0);
    expect(&no_limit, &tries[1], "accepted");
    database_run(slow, "COMMIT");
    pg_sync_close(slow);
    expect(&no_limit, &tries[0], "replayed");
    ck_assert(uuid_equal(&tries[0].event_id, &recorded.id));
    expect_rows("blocked", 1, 1, 1);
}
END_TEST

START_TEST(somebody_who_died_holding_a_users_lock_holds_it_no_more)
{
    struct try first = try_of("died", "k1"), second = try_of("died", "k2");
    struct pg_sync *doomed = database_open("issuing_api");
    char sqlstate[6];
    database_run(doomed, "BEGIN");
    ck_assert(say(doomed, &no_limit, &first, 1, sqlstate));
    expect_refused(api, &second, 1, "55P03"); /* the lock is real */
    pg_sync_close(doomed);
    expect(&no_limit, &second, "accepted");
    ck_assert_int_eq(rows_of("outbox_events", "died"), 1);
}
END_TEST

START_TEST(the_clock_is_read_after_the_lock)
{
    struct contest contest;
    struct try first = try_of("clock", "k1"), second = try_of("clock", "k2");
    char sqlstate[6];
    pthread_barrier_t barrier;
    contest_open(&contest, 1);
    struct racer *racer = &contest.racers[0];
    racer->barrier = &barrier;
    racer->limit = &no_limit;
    racer->tries = &second;
    racer->calls = racer->batch = 1;
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
    database_run(api, "BEGIN");
    ck_assert(say(api, &no_limit, &first, 1, sqlstate));
    ck_assert_int_eq(pthread_create(&racer->thread, NULL, race, racer), 0);
    pthread_barrier_wait(&barrier);
    int64_t waiting = 0;
    for (int i = 0; i < 3000 && !waiting; i++) {
        waiting =
            database_int(owner, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
                                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())");
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    struct pg_rows *rows = database_rows(owner, "SELECT clock_timestamp()");
    int64_t released_us = pg_time_us(rows, 0, 0);
    pg_rows_free(rows);
    database_run(api, "COMMIT");
    ck_assert_int_eq(pthread_join(racer->thread, NULL), 0);
    pthread_barrier_destroy(&barrier);
    ck_assert_int_gt(waiting, 0);
    expect_no_failure(&contest);
    contest_close(&contest);
    ck_assert_str_eq(second.verdict, "accepted");
    ck_assert_int_ge(second.decided_us,
                     released_us); /* else the times of a user's rows would not rise as they are committed */
    ck_assert_int_eq(second.used, 2);
}
END_TEST

/* Whether the call, in a transaction of its own, left a record in the log: then its commit has waited for the disk and the standbys.
 * Nobody else writes meanwhile that the test knows of, but the server may: so what writes nothing must show it in one of many tries. */
static bool writes_log(struct try *try, const char *verdict)
{
    enum { ROUNDS = 20 };
    for (int round = 0; round < ROUNDS; round++) {
        int64_t before = database_int(owner, "SELECT (pg_current_wal_insert_lsn() - '0/0') %% 1000000000");
        accept_all(&no_limit, try, 1);
        int64_t after = database_int(owner, "SELECT (pg_current_wal_insert_lsn() - '0/0') %% 1000000000");
        ck_assert_str_eq(try->verdict, verdict);
        if (before == after)
            return false;
    }
    return true;
}

START_TEST(a_call_that_only_found_waits_for_the_disk_as_if_it_had_written)
{
    struct try first = try_of("found", "k"), repeat = try_of("found", "k"), other = try_of("found", "k");
    struct try reissue = try_of("found", "r");
    snprintf(other.payload, sizeof other.payload, "{\"kind\":\"new\",\"memo\":\"x\"}");
    snprintf(reissue.payload, sizeof reissue.payload,
             "{\"kind\":\"reissue\",\"replaces\":\"00000000-0000-7000-8000-000000000001\"}");
    expect(&no_limit, &first, "accepted");
    ck_assert(writes_log(&repeat, "replayed"));
    ck_assert(writes_log(&first, "accepted")); /* after an unknown COMMIT */
    ck_assert(writes_log(&other, "reused"));
    ck_assert(writes_log(&reissue, "not_replaceable"));
}
END_TEST

/* ---- faults: without the lock, and with it in the wrong order -------------------------------------------------------------------- */

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

START_TEST(without_the_users_lock_the_limit_is_broken)
{
    enum { ROUNDS = 100 };
    const struct limit one = {.count = 1, .window_ms = HOUR_MS};
    struct contest contest;
    struct try tries[THREADS];
    int broken = 0;
    make_mutant("PERFORM pg_advisory_xact_lock.*AS l;", "");
    contest_open(&contest, THREADS);
    for (int round = 0; round < ROUNDS && !broken; round++) {
        for (int i = 0; i < THREADS; i++) {
            char user[32], key[32];
            snprintf(user, sizeof user, "unlocked-%d", round);
            snprintf(key, sizeof key, "key-%d", i);
            tries[i] = try_of(user, key);
        }
        contest_run(&contest, &one, tries, 1, 1, 0);
        broken = count_verdicts(tries, THREADS, "accepted") > 1;
    }
    contest_close(&contest);
    restore_function();
    ck_assert_msg(broken, "the limit held without its lock: then this test proves nothing, or something else holds it");
}
END_TEST

START_TEST(without_the_order_of_the_locks_batches_deadlock)
{
    enum { ROUNDS = 30 };
    struct contest contest;
    int deadlocks = 0;
    make_mutant("ORDER BY 1 OFFSET 0", "OFFSET 0");
    contest_open(&contest, OVERLAP_THREADS);
    for (int i = 0; i < OVERLAP_THREADS; i++) /* found before the lock_timeout ends the wait */
        database_run(contest.racers[i].db, "RESET ROLE; SET deadlock_timeout = '20ms'");
    for (int round = 0; round < ROUNDS && !deadlocks; round++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "unordered%d", round);
        struct try *tries = overlapping(prefix);
        contest_run(&contest, &no_limit, tries, OVERLAP_CALLS, OVERLAP_BATCH, 0);
        for (int i = 0; i < OVERLAP_THREADS; i++)
            deadlocks += strcmp(contest.racers[i].sqlstate, "40P01") == 0;
        free(tries);
    }
    contest_close(&contest);
    restore_function();
    ck_assert_int_gt(deadlocks, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("accept");
    TCase *tcase = tcase_create("accept");
    tcase_set_timeout(tcase, 300);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, one_key_from_many_connections_is_one_request_with_one_answer);
    tcase_add_test(tcase, many_keys_of_one_user_are_accepted_up_to_the_limit_exactly);
    tcase_add_test(tcase, overlapping_batches_in_any_order_never_deadlock_and_lose_nothing);
    tcase_add_test(tcase, no_window_ever_holds_more_than_the_limit_and_no_try_is_refused_without_need);
    tcase_add_test(tcase, an_accepted_request_is_three_rows_of_one_time);
    tcase_add_test(tcase, a_repeat_is_never_limited_and_takes_no_slot);
    tcase_add_test(tcase, a_key_with_another_body_is_reused_and_changes_nothing);
    tcase_add_test(tcase, a_refused_try_leaves_its_key_unused_and_its_row_in_the_log);
    tcase_add_test(tcase, the_same_call_again_gives_the_same_verdict);
    tcase_add_test(tcase, a_call_that_was_rolled_back_left_nothing);
    tcase_add_test(tcase, a_key_counts_for_its_retention_from_the_final_status);
    tcase_add_test(tcase, the_key_of_an_unfinished_or_failed_request_counts_for_ever);
    tcase_add_test(tcase, a_key_whose_request_is_gone_counts_for_its_retention_from_acceptance);
    tcase_add_test(tcase, of_two_rows_of_a_key_in_different_partitions_the_newest_counts);
    tcase_add_test(tcase, the_slot_frees_when_the_tries_that_fill_the_window_leave_it);
    tcase_add_test(tcase, refused_tries_count_only_where_attempts_count);
    tcase_add_test(tcase, a_try_passes_when_its_time_has_come_and_not_before);
    tcase_add_test(tcase, the_limit_costs_the_same_however_often_the_user_was_refused);
    tcase_add_test(tcase, tries_of_a_clock_that_was_ahead_hold_a_user_for_one_window_only);
    tcase_add_test(tcase, nobody_can_move_tries_of_the_past);
    tcase_add_test(tcase, a_clock_that_jumps_ahead_forgets_no_key);
    tcase_add_test(tcase, a_clock_that_steps_back_forgets_no_key);
    tcase_add_test(tcase, no_caller_shortens_the_retention_of_keys);
    tcase_add_test(tcase, only_an_active_card_of_the_user_whose_request_is_done_can_be_replaced);
    tcase_add_test(tcase, not_replaceable_is_said_before_limited);
    tcase_add_test(tcase, a_card_has_one_live_reissue_until_that_is_rejected);
    tcase_add_test(tcase, reissues_of_one_card_from_many_connections_are_one);
    tcase_add_test(tcase, of_two_reissues_that_other_services_insert_at_once_one_is_refused);
    tcase_add_test(tcase, a_reissue_that_took_the_place_while_another_waited_for_it_keeps_it);
    tcase_add_test(tcase, a_reissue_that_another_service_inserts_and_ours_are_never_both_live);
    tcase_add_test(tcase, a_card_that_another_service_holds_costs_its_neighbours_one_wait);
    tcase_add_test(tcase, two_reissues_of_one_card_in_one_statement_are_refused);
    tcase_add_test(tcase, a_batch_of_64_comes_back_in_the_order_it_went);
    tcase_add_test(tcase, a_user_twice_in_one_batch_is_refused_because_both_would_pass);
    tcase_add_test(tcase, a_bad_element_fails_the_call_as_a_whole_and_its_neighbours_pass_alone);
    tcase_add_test(tcase, an_empty_batch_is_no_error);
    tcase_add_test(tcase, other_isolation_levels_are_refused);
    tcase_add_test(tcase, a_key_that_somebody_still_records_ends_the_wait_and_spares_the_neighbours);
    tcase_add_test(tcase, somebody_who_died_holding_a_users_lock_holds_it_no_more);
    tcase_add_test(tcase, the_clock_is_read_after_the_lock);
    tcase_add_test(tcase, a_call_that_only_found_waits_for_the_disk_as_if_it_had_written);
    tcase_add_test(tcase, without_the_users_lock_the_limit_is_broken);
    tcase_add_test(tcase, without_the_order_of_the_locks_batches_deadlock);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
