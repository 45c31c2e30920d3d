/* The api as a whole: what its modules share, and how they are opened and closed together. */
#ifndef ISSUING_API_H
#define ISSUING_API_H

#include <uv.h>

#include "api/acceptor.h"
#include "api/api_metrics.h"
#include "api/auth.h"
#include "api/problems.h"
#include "api/reads.h"
#include "api/refusals.h"
#include "api/retention.h"
#include "api/router.h"
#include "api/users.h"
#include "api/waiters.h"
#include "common/base/closing.h"
#include "common/base/metrics.h"
#include "common/config/config.h"
#include "common/http_server/http_server.h"
#include "common/keyring.h"
#include "common/outbox.h"
#include "common/pg/pg_pool.h"
#include "common/pg/wakeup.h"

struct api_call;

struct api {
    /* in: borrowed */
    const struct config *config;
    uv_loop_t *loop;
    struct pg_pool *pool;
    struct metrics *metrics; /* made by api_metrics_new() */
    /* owned */
    struct auth *auth;
    struct refusals refusals;
    struct retention retention;
    struct keyring *keyring;  /* NULL: card numbers are not shown */
    int64_t keys_reloaded_ms; /* monotonic: when the keys were read again for a number of an unknown key; 0 = never */
    struct api_series series;
    struct metric_series *replays, *limited;
    /* Calls that were refused because of the user's cell: [0] the bucket is elsewhere, [1] it is moving. */
    struct {
        struct metric_series *count;
        int64_t logged_ms; /* monotonic; 0 = never */
    } not_here[2];
    char limit_policy[96]; /* the value of RateLimit-Policy */
    struct acceptor *acceptor;
    struct users users;
    struct reads *reads;
    struct waiters *waiters;
    struct wakeup wakeup;
    struct closing closing;
    struct buf body; /* of the answer that is being written */
    struct api_call *free_calls;
    int free_count, busy_count;
};

/* Opens the modules around an open pool. */
must_check bool api_open(struct api *api, struct err *err);
/* Reads the files that the options name, as api_open() does, and forgets them: for --check-config. */
must_check bool api_check_files(const struct config *config, struct err *err);
/* Reads the files with secrets again. One that cannot be used leaves the old one in force and is logged. */
void api_reload(struct api *api);
bool api_is_idle(const struct api *api);
/* Precondition: api_is_idle(). on_closed from the loop. */
void api_close(struct api *api, void (*on_closed)(void *context), void *context);

#endif
