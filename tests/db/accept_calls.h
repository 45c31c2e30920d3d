/* What the tests of issuing.accept share: the sessions, one call with its verdicts, and many connections that call at
 * once. Tests run in processes of their own, one after the other, so the variables belong to one test. */
#ifndef ISSUING_TEST_ACCEPT_CALLS_H
#define ISSUING_TEST_ACCEPT_CALLS_H

#include <pthread.h>

#include "common/lib/base/uuid7.h"
#include "tests/db/database.h"

enum { BATCH_MAX = 64, THREADS = 24, HOUR_MS = 3600 * 1000 };

extern struct pg_sync *owner, *api; /* the superuser; issuing_api. Open during a test */

void set_up(void);
void tear_down(void);

/* ---- one call ---------------------------------------------------------------------------------------------------- */

struct limit {
    int64_t count, window_ms;
    bool attempts;        /* refused tries count as well */
    int64_t retention_ms; /* of a key; 0 = a day */
};

extern const struct limit no_limit;

/* One element of a batch, and its verdict. */
struct one_try {
    struct uuid id;
    char user[64], key[64], payload[160];
    char verdict[24];
    struct uuid event_id;
    int64_t created_us, used, oldest_us, frees_us, decided_us;
};

struct one_try try_of(const char *user, const char *key);

/* Asserts nothing, because threads call it too. false: the SQLSTATE is in ret_sqlstate. */
bool call_accept(struct pg_sync *db, const struct limit *limit, struct one_try *tries, int count, char ret_sqlstate[6]);

void accept_all(const struct limit *limit, struct one_try *tries, int count);
void expect(const struct limit *limit, struct one_try *try, const char *verdict);
/* The call fails as a whole, with this SQLSTATE. */
void expect_refused(struct pg_sync *db, struct one_try *tries, int count, const char *wanted);

int64_t rows_of(const char *table, const char *user);
/* Rows of refused tries. */
int64_t refused_rows(const char *user);
/* A user with this number of accepted requests, and at least `refused` rows of refused tries. */
void expect_accepted(const char *user, int64_t accepted, int64_t refused);
void expect_rows(const char *user, int64_t keys, int64_t tries, int64_t events);

/* ---- many connections at once ------------------------------------------------------------------------------------ */

struct racer {
    pthread_t thread;
    pthread_barrier_t *barrier;
    struct pg_sync *db;
    const struct limit *limit;
    struct one_try *tries; /* calls of batch elements each */
    int calls, batch;
    unsigned int seed;
    int pause_max_us;
    char sqlstate[6]; /* of the first call that failed */
};

struct contest {
    struct racer racers[THREADS];
    int count;
};

/* The thread of one racer, which it gets as `context`: it waits at the barrier, then makes its calls. */
void *race(void *context);

void contest_open(struct contest *contest, int count);
void contest_close(struct contest *contest);
/* tries: racers x calls x batch, in this order. Returns when every racer has made its calls. */
void contest_run(struct contest *contest, const struct limit *limit, struct one_try *tries, int calls, int batch,
                 int pause_max_us);
void expect_no_failure(const struct contest *contest);

int count_verdicts(const struct one_try *tries, int count, const char *verdict);
/* Fills `numbers` with 0 to count - 1 in an order that the seed decides. */
void shuffle(int *numbers, int count, unsigned int *seed);

#endif
