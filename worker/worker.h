/* The worker as a whole: opens its modules, connects them, drains and closes them. Only main.c includes this. */
#ifndef ISSUING_WORKER_H
#define ISSUING_WORKER_H

#include <uv.h>

#include "common/core/config/config.h"
#include "common/lib/base/err.h"
#include "common/lib/base/metrics.h"
#include "common/lib/http_client/http_client.h"
#include "common/lib/pg/pg_pool.h"

struct worker;

/* All pointers are borrowed until the worker is closed. */
struct worker_options {
    uv_loop_t *loop;
    const struct config *config;
    const char *name; /* host:pid or host:pid.N, the owner of its leases */
    struct pg_pool *pool;
    struct http_client *http;
    struct metrics *metrics;   /* worker_metrics_new() */
    struct exporter *exporter; /* NULL = nobody wants spans */
    /* At the start: a route with a file that cannot be used is not a failure; its events wait until a reload can read
     * it. */
    bool may_lack_files_of_routes;
};

/* Reads the files with secrets and authorities, and allocates the slots. A failure leaves nothing behind once the loop
 * has turned. A second one may be opened beside one that drains, with a name of its own. */
must_check bool worker_open(const struct worker_options *options, struct worker **ret_worker, struct err *err);
/* For --check-config: reads what worker_open() reads, and frees nothing, so the process must end. No pool is needed. */
must_check bool worker_check(const struct worker_options *options, struct err *err);
/* Reads the files again; one that cannot be used leaves the old one in force and is logged. */
void worker_reload(struct worker *worker);
/* New events of this type may be due; "" = card requests, or an operator asked something of a target; NULL = the
 * database is back, and anything may have happened. */
void worker_wake(struct worker *worker, const char *type);
/* Events held. */
int worker_in_flight(const struct worker *worker);
/* Sets the gauges that show the present state. */
void worker_update_metrics(struct worker *worker);
/* Stops claiming; from now on attempts are given back before their next call. */
void worker_drain(struct worker *worker);
/* After worker_drain(): no event is held, nothing is in flight, and the heartbeat has removed the worker's row. */
bool worker_is_idle(const struct worker *worker);
/* Precondition: worker_is_idle(). on_closed is called from the loop; the worker is freed before it. */
void worker_close(struct worker *worker, void (*on_closed)(void *context), void *context);

#endif
