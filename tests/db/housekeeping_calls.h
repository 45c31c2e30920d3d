/* What the tests of the housekeeping share: the sessions, one pass with its results, and a past that is made by hand:
 * partitions and rows of the past, and the time when a partition was settled. Tests run in processes of their own, one
 * after the other, so the variables belong to one test. */
#ifndef ISSUING_TEST_HOUSEKEEPING_CALLS_H
#define ISSUING_TEST_HOUSEKEEPING_CALLS_H

#include "common/lib/base/uuid7.h"
#include "tests/db/database.h"

#define HOUR_MS (INT64_C(3600) * 1000)
#define DAY_MS (24 * HOUR_MS)

extern struct pg_sync *owner, *worker, *other; /* issuing_owner; two of issuing_worker. Open during a test */

/* Leaves no rows, and no partition but `_default`. */
void set_up(void);
void tear_down(void);

/* Sets the clock by which retentions are judged to what a pass left. */
void set_clock(const char *passed_ago, const char *steady_for, const char *clock_ago);

/* ---- one pass ---------------------------------------------------------------------------------------------------- */

struct retention {
    int64_t keys_ms, limits_ms, events_ms;
};

extern const struct retention usual;

/* The result of a pass, "action table amount; ...", of all its calls; valid until the next one. *ret_has_more: another
 * pass has something to do at once. */
const char *pass_of(struct pg_sync *db, const struct retention *retention, bool *ret_has_more);
/* A pass of the worker with the usual retentions. */
const char *pass(void);
/* Makes passes until there is no more to do; returns the number of those that did something. */
int passes(const struct retention *retention);
void expect_pass(const char *wanted);

/* ---- the past ---------------------------------------------------------------------------------------------------- */

void add_partition(const char *parent, int from_days_ago, int to_days_ago);
/* Settles every partition whose time is over, that long ago. */
void settle(const char *ago);
/* The number of settled partitions. */
int64_t settled(const char *parent);
/* An event that was accepted that many days ago under the key `user`, and has had its status for `ended_ago`, with one
 * attempt. */
struct uuid add_event(const char *user, int days_ago, const char *status, const char *ended_ago);

/* ---- what is there ----------------------------------------------------------------------------------------------- */

/* Of that user's key for a new request with the same body. */
void expect_verdict(const char *user, const char *wanted);
void expect_text(const char *query, const char *wanted);
int64_t partition_count(const char *parent);
/* The list of partitions matches the existing tables, and no other table is left. */
void expect_list_is_true(void);
/* The number of partitions whose end is not the beginning of the next one of their table, as the catalogue has them. */
int64_t gaps(void);

#endif
