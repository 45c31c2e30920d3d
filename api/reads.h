/* The reads of all calls: each is sent to the database when its user is next (read_queue.h), or refused.
 *
 * Where several connections serve reads, the reads of one user never occupy all of them: another user finds a free one.
 *
 * A refusal is reported in the next iteration of the loop, but at most READS_REFUSED_AT_ONCE of one user in a second:
 * the others follow a second later, 2000 in a second, so that a client that repeats at once cannot keep the loop busy
 * with refusals. */
#ifndef ISSUING_READS_H
#define ISSUING_READS_H

#include <uv.h>

#include "api/read_queue.h"
#include "common/lib/base/err.h"
#include "common/lib/base/metrics.h"
#include "common/lib/pg/pg_pool.h"

#define READS_WITHIN_MS 5000      /* from the submission to the result */
#define READS_AWAY_WITHIN_MS 1000 /* while no connection is up: only a database that returns quickly would help */
#define READS_REFUSED_AT_ONCE 100

struct reads;

struct reads_options {
    uv_loop_t *loop;
    const struct pg_pool *pool; /* only for pg_pool_ready() */
    struct users *users;
    int connections;               /* of the pool */
    struct metric_series *refused; /* issuing_reads_refused_total */
};

must_check bool reads_open(const struct reads_options *options, struct reads **ret_reads, struct err *err);
/* Calls on_admitted once, from the loop or before it returns; the owner sends its query then and calls reads_finish()
 * at its end. Or calls on_refused once, from the loop. user_id is borrowed during the call. */
void reads_submit(struct reads *reads, struct reading *reading, const char *user_id);
void reads_finish(struct reads *reads, struct reading *reading);
/* The time that an admitted read has left. */
int64_t reads_left_ms(const struct reads *reads, const struct reading *reading);
int reads_waiting(const struct reads *reads);
/* Precondition: no read waits, runs, or is to be refused. on_closed from the loop. */
void reads_close(struct reads *reads, void (*on_closed)(void *context), void *context);

#endif
