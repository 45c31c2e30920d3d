/* See accept_calls.h. */
#include "tests/db/accept_calls.h"

#include <time.h>

#include "common/lib/base/digest.h"
#include "statements.h"

enum { REPEATS_MAX = 20000 };

struct pg_sync *owner, *api;

void set_up(void)
{
    owner = database_open(NULL);
    api = database_open("issuing_api");
    /* As after a pass of the housekeeping. */
    database_run(owner, "UPDATE housekeeping_clock SET passed_at = clock_timestamp(), steady_from = clock_timestamp(), "
                        "clock_at = clock_timestamp()");
}

void tear_down(void)
{
    pg_sync_closep(&api);
    pg_sync_closep(&owner);
}

const struct limit no_limit = {.count = 1000000, .window_ms = HOUR_MS};

struct one_try try_of(const char *user, const char *key)
{
    struct one_try try = {.id = uuid7_make()};
    snprintf(try.user, sizeof(try.user), "%s", user);
    snprintf(try.key, sizeof(try.key), "%s", key);
    snprintf(try.payload, sizeof(try.payload), "{\"kind\":\"new\"}");
    return try;
}

static void read_verdicts(const struct pg_rows *rows, struct one_try *tries, int count)
{
    for (int i = 0; i < count; i++) {
        snprintf(tries[i].verdict, sizeof(tries[i].verdict), "%s", pg_bytes(rows, i, 0).bytes);
        tries[i].event_id = pg_uuid(rows, i, 1);
        tries[i].created_us = pg_time_us(rows, i, 2);
        tries[i].used = pg_int8(rows, i, 3);
        tries[i].oldest_us = pg_time_us(rows, i, 4);
        tries[i].frees_us = pg_time_us(rows, i, 5);
        tries[i].decided_us = pg_time_us(rows, i, 6);
    }
}

bool call_accept(struct pg_sync *db, const struct limit *limit, struct one_try *tries, int count, char ret_sqlstate[6])
{
    static const enum pg_type types[] = {PG_UUID, PG_TEXT, PG_TEXT, PG_BYTEA, PG_TEXT, PG_TEXT, PG_TEXT};
    struct buf bufs[ARRAY_SIZE(types)];
    struct pg_array arrays[ARRAY_SIZE(types)];
    struct pg_param params[11];
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
        pg_array_add_string(&arrays[1], tries[i].user);
        pg_array_add_string(&arrays[2], tries[i].key);
        pg_array_add(&arrays[3], fingerprint, sizeof(fingerprint));
        pg_array_add_string(&arrays[4], tries[i].payload);
        pg_array_add(&arrays[5], i % 2 ? "00-trace" : NULL, i % 2 ? 8 : 0);
        pg_array_add(&arrays[6], i % 2 ? "a=1" : NULL, i % 2 ? 3 : 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        params[i] = pg_array_param(&arrays[i]);
    params[7] = pg_param_int8(limit->count);
    params[8] = pg_param_int8(limit->window_ms);
    params[9] = pg_param_bool(limit->attempts);
    params[10] = pg_param_int8(limit->retention_ms ? limit->retention_ms : 24 * HOUR_MS);
    bool done = pg_sync_query(db, &sql_accept_batch, params, &rows, &err);
    snprintf(ret_sqlstate, 6, "%s", done ? "" : err.sqlstate);
    if (done && pg_rows_count(rows) == count)
        read_verdicts(rows, tries, count);
    else if (done)
        snprintf(ret_sqlstate, 6, "ROWS?");
    pg_rows_free(rows);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        buf_done(&bufs[i]);
    return done && ret_sqlstate[0] == '\0';
}

/* Moves those that were busy to the front; their number. */
static int keep_busy(struct one_try *tries, int count)
{
    int busy = 0;
    for (int i = 0; i < count; i++) {
        struct one_try try = tries[i];
        if (strcmp(try.verdict, "busy") != 0 && strcmp(try.verdict, "recording") != 0)
            continue;
        tries[i] = tries[busy];
        tries[busy++] = try;
    }
    return busy;
}

/* Like the acceptor: who is busy is asked again, and so is a call that waited too long for a lock (a slow machine). The
 * order of the tries may change. */
static bool call_accept_repeatedly(struct pg_sync *db, const struct limit *limit, struct one_try *tries, int count,
                                   char ret_sqlstate[6])
{
    for (int i = 0; i < REPEATS_MAX && count > 0; i++) {
        if (call_accept(db, limit, tries, count, ret_sqlstate))
            count = keep_busy(tries, count);
        else if (strcmp(ret_sqlstate, "55P03") != 0)
            break;
        if (count > 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    }
    return ret_sqlstate[0] == '\0' && count == 0;
}

void accept_all(const struct limit *limit, struct one_try *tries, int count)
{
    char sqlstate[6];
    ck_assert_msg(call_accept_repeatedly(api, limit, tries, count, sqlstate), "SQLSTATE %s", sqlstate);
}

void expect(const struct limit *limit, struct one_try *try, const char *verdict)
{
    accept_all(limit, try, 1);
    ck_assert_str_eq(try->verdict, verdict);
}

void expect_refused(struct pg_sync *db, struct one_try *tries, int count, const char *wanted)
{
    char sqlstate[6];
    ck_assert(!call_accept(db, &no_limit, tries, count, sqlstate));
    ck_assert_str_eq(sqlstate, wanted);
}

int64_t rows_of(const char *table, const char *user)
{
    return database_int(owner, "SELECT count(*) FROM %s WHERE user_id = '%s'", table, user);
}

int64_t refused_rows(const char *user)
{
    return database_int(owner, "SELECT count(*) FROM rate_limit_log WHERE user_id = '%s' AND NOT accepted", user);
}

void expect_accepted(const char *user, int64_t accepted, int64_t refused)
{
    ck_assert_int_eq(rows_of("idempotency_keys", user), accepted);
    ck_assert_int_eq(rows_of("outbox_events", user), accepted);
    ck_assert_int_eq(rows_of("rate_limit_log", user) - refused_rows(user), accepted);
    ck_assert_int_ge(refused_rows(user), refused);
}

void expect_rows(const char *user, int64_t keys, int64_t tries, int64_t events)
{
    ck_assert_int_eq(rows_of("idempotency_keys", user), keys);
    ck_assert_int_eq(rows_of("rate_limit_log", user), tries);
    ck_assert_int_eq(rows_of("outbox_events", user), events);
}

void *race(void *context)
{
    struct racer *racer = context;
    pthread_barrier_wait(racer->barrier);
    for (int i = 0; i < racer->calls && !racer->sqlstate[0]; i++) {
        if (racer->pause_max_us) {
            struct timespec pause = {.tv_nsec = (long)(rand_r(&racer->seed) % racer->pause_max_us) * 1000};
            nanosleep(&pause, NULL);
        }
        (void)call_accept_repeatedly(racer->db, racer->limit, racer->tries + i * racer->batch, racer->batch,
                                     racer->sqlstate);
    }
    return NULL;
}

void contest_open(struct contest *contest, int count)
{
    memset(contest, 0, sizeof(*contest));
    contest->count = count;
    for (int i = 0; i < count; i++)
        contest->racers[i].db = database_open("issuing_api");
}

void contest_close(struct contest *contest)
{
    for (int i = 0; i < contest->count; i++)
        pg_sync_close(contest->racers[i].db);
}

void contest_run(struct contest *contest, const struct limit *limit, struct one_try *tries, int calls, int batch,
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

void expect_no_failure(const struct contest *contest)
{
    for (int i = 0; i < contest->count; i++)
        ck_assert_msg(!contest->racers[i].sqlstate[0], "connection %d: SQLSTATE %s", i, contest->racers[i].sqlstate);
}

int count_verdicts(const struct one_try *tries, int count, const char *verdict)
{
    int found = 0;
    for (int i = 0; i < count; i++)
        found += strcmp(tries[i].verdict, verdict) == 0;
    return found;
}

void shuffle(int *numbers, int count, unsigned int *seed)
{
    for (int i = 0; i < count; i++)
        numbers[i] = i;
    for (int i = count - 1; i > 0; i--) {
        int k = rand_r(seed) % (i + 1), kept = numbers[i];
        numbers[i] = numbers[k];
        numbers[k] = kept;
    }
}
