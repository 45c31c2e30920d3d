/* The databases that a daemon works in: the api in that of each place, another program in one. Each has a pool, and
 * gauges of what is in it. What happens to a pool is logged and counted here. */
#ifndef ISSUING_DAEMON_PLACES_H
#define ISSUING_DAEMON_PLACES_H

#include <uv.h>

#include "common/core/config/config.h"
#include "common/core/outbox_gauges.h"
#include "common/lib/base/err.h"
#include "common/lib/base/metrics.h"
#include "common/lib/pg/pg_pool.h"

struct daemon_place {
    int number;
    const char *url; /* NULL = libpq's own environment */
    struct pg_pool *pool;
    struct outbox_gauges *gauges; /* those of the first one show the sums */
    /* of daemon.c */
    char name[16];      /* "place.4", for people; with one place "database.url" */
    char why_away[320]; /* "" = it is there */
    /* private */
    const struct daemon_places_options *options;
};

/* Borrowed until the pools and gauges are closed. */
struct daemon_places_options {
    uv_loop_t *loop;
    const struct config *config;
    const char *name; /* of the daemon */
    enum config_program program;
    int pipeline, waiting_max; /* of a pool (pg_pool.h) */
    struct metrics *metrics;   /* begins with DAEMON_METRICS */
    /* The database came (back), or went away. From the loop. */
    void (*on_state)(void *context, const struct daemon_place *place, bool is_ready);
    void *context;
};

/* The places must be all zeros. The caller closes pools and gauges; after a failure the process ends. */
must_check bool daemon_places_open(const struct daemon_places_options *options,
                                   struct daemon_place places[CONFIG_PLACES_MAX], int *ret_count, struct err *err);

#endif
