/* What the modules of one worker share. Owned by the worker, and outlives all of them. */
#ifndef ISSUING_WORKER_ENV_H
#define ISSUING_WORKER_ENV_H

#include <uv.h>

#include "common/core/config/config.h"
#include "common/lib/pg/pg_pool.h"
#include "worker/base/db_clock.h"
#include "worker/base/worker_metrics.h"

struct exporter;
struct jobs;
struct parameters_env;
struct peers;
struct routes;

struct worker_env {
    uv_loop_t *loop;
    struct pg_pool *pool;
    const struct config *config;
    const char *name; /* host:pid or host:pid.N, the owner of its leases */
    struct peers *peers;
    struct routes *routes;
    const struct parameters_env *parameters; /* with the issuer's profile */
    struct worker_series *series;            /* of its metrics */
    struct db_clock *db_clock;               /* noted by the claims */
    struct exporter *exporter;               /* of spans; NULL = nobody wants them */
    struct jobs *jobs;
};

#endif
