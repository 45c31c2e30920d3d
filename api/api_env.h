/* What the modules of the api share: what api.c opens, and the handlers (router.h) use. */
#ifndef ISSUING_API_ENV_H
#define ISSUING_API_ENV_H

#include <string.h>
#include <uv.h>

#include "api/acceptor.h"
#include "api/api_metrics.h"
#include "api/auth.h"
#include "api/reads.h"
#include "api/refusals.h"
#include "api/retention.h"
#include "api/users.h"
#include "api/waiters.h"
#include "common/core/config/config.h"
#include "common/core/exporter.h"
#include "common/core/keyring.h"
#include "common/core/place.h"
#include "common/lib/base/again.h"
#include "common/lib/base/metrics.h"
#include "common/lib/pg/pg_pool.h"
#include "common/lib/pg/wakeup.h"

struct api_call;

/* What the api has for each place: the pool of its database, and the queues before it. */
struct api_place {
    /* in: borrowed */
    struct pg_pool *pool;
    const char *url;
    /* owned */
    struct acceptor *acceptor;
    struct reads *reads;
    struct waiters *waiters;
    struct retention retention;
    struct wakeup wakeup;
};

struct api_env {
    /* in: borrowed */
    const struct config *config;
    uv_loop_t *loop;
    struct metrics *metrics;   /* made by api_metrics_new() */
    struct exporter *exporter; /* of spans; NULL = nobody wants them */
    /* owned */
    struct auth *auth;
    struct refusals refusals;
    struct keyring *keyring;  /* NULL: card numbers are not shown */
    int64_t keys_reloaded_ms; /* monotonic: when the keys were read again for a number of an unknown key; 0 = never */
    struct api_series series;
    struct metric_series *replays, *limited;
    char limit_policy[96]; /* the value of RateLimit-Policy */
    struct api_place places[CONFIG_PLACES_MAX];
    int place_count;
    struct users users;
    struct again reveals; /* that wait: for the user's lock, or for keys */
    struct buf body;      /* of the answer that is being written */
    struct api_call *free_calls;
    int free_count, busy_count;
};

/* Where the requests, events and cards of a user are. */
static inline struct api_place *api_place_of(struct api_env *env, const char *user_id)
{
    return &env->places[place_of_user(user_id, strlen(user_id), env->place_count)];
}

#endif
