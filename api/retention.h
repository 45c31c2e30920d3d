/* Stores in the database how long this api honours keys and counts tries (issuing.promise_retentions). Housekeeping,
 * which workers do, drops neither before the longest time that any program has stored. The api is not ready before the
 * database has stored it. */
#ifndef ISSUING_RETENTION_H
#define ISSUING_RETENTION_H

#include <uv.h>

#include "common/core/config/config.h"
#include "common/lib/base/closing.h"
#include "common/lib/pg/pg_pool.h"

struct retention {
    struct pg_pool *pool;
    const struct config *config;
    uv_timer_t timer; /* runs until the database has noted it */
    struct pg_query query;
    bool is_in_flight, is_stopped;
    bool is_noted;     /* since the start of this process */
    int64_t logged_ms; /* monotonic, of the last failure; 0 = never */
};

void retention_open(struct retention *retention, uv_loop_t *loop, struct pg_pool *pool, const struct config *config);
/* The database is connected, for the first time or again. It may be another one, so the retentions are stored once
 * more. */
void retention_tell(struct retention *retention);
/* "" once the database has noted it; else why the api is not ready, static. */
const char *retention_why_not_ready(const struct retention *retention);
/* Nothing is sent to the database any more. */
void retention_stop(struct retention *retention);
bool retention_is_idle(const struct retention *retention);
/* Precondition: retention_is_idle(). Its handle is a part of `closing`. */
void retention_close(struct retention *retention, struct closing *closing);

#endif
