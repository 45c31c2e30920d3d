/* What the tests of cells share: two databases, `one` and `two`, which are cells, and the steps of a move between them.
 * Each test begins with empty tables; all buckets are in the first cell. Tests run in processes of their own, one after
 * the other, so the variables belong to one test. */
#ifndef ISSUING_TEST_CELL_CALLS_H
#define ISSUING_TEST_CELL_CALLS_H

#include "tests/db/database.h"

#define MOVE "00000000-0000-7000-8000-000000000001"
#define OTHER_MOVE "00000000-0000-7000-8000-000000000002"

extern struct pg_sync *one, *two;    /* the superuser in each cell. Open during a test */
extern struct pg_sync *api, *worker; /* issuing_api and issuing_worker in cell one */

/* Before the suite: makes the two databases anew. */
void cells_make(void);
void cells_set_up(void);
void cells_tear_down(void);
/* Another session of a role (NULL = the superuser) in the cell "one" or "two". */
struct pg_sync *cell_open(const char *cell, const char *role);

int bucket_of(const char *user);
/* In cell one, whatever the state was. */
void set_state(const char *user, const char *state);
void expect_side(struct pg_sync *cell, const char *user, const char *state);

/* The verdict of issuing.accept about a new card with this key; valid until the next call. */
const char *accept_one(struct pg_sync *db, const char *user, const char *key);
void expect_verdict(struct pg_sync *db, const char *user, const char *key, const char *verdict);
/* The text fails with this SQLSTATE; "" = it succeeds. */
void expect_sqlstate(struct pg_sync *db, const char *wanted, const char *format, ...) printf_like(3, 4);
/* An event of another service; %s of type and user. */
void add_foreign(struct pg_sync *db, const char *type, const char *user);
/* Claims at most this number of events of a type from the beginning; the ids' users, joined. The caller frees it. */
char *claim_users(struct pg_sync *db, const char *type, int most);

/* A step: "drain", "close", ... of the bucket of this user, by MOVE. Returns what the function returns. */
int64_t step(struct pg_sync *cell, const char *name, const char *user);
void list_bucket(const char *user);
/* Copies the bucket from `one` to `two` in one transaction, and returns whether the fingerprints are equal. */
bool copy_bucket(const char *user);
/* From `here` to `closed` in `one`, and `arriving` in `two`. */
void close_bucket(const char *user);
/* All of it; the rows of the source stay until `empty`. */
void move_bucket(const char *user);
void empty_bucket(const char *user);

#endif
