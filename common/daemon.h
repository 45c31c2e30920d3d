/* What both daemons do around their work: options, signals, systemd, the loop's lag, the admin listener (livez, readyz,
 * metrics). */
#ifndef ISSUING_DAEMON_H
#define ISSUING_DAEMON_H

#include <uv.h>

#include "common/config.h"
#include "common/err.h"
#include "common/http_server.h"
#include "common/metrics.h"
#include "common/pg_pool.h"

#ifndef ISSUING_VERSION
#define ISSUING_VERSION "0.0.0"
#endif

/* Called once, first in main(): from here on SIGHUP never ends the process. log.level in ret_config changes with a SIGHUP;
 * ret_config and argv must live as long as the daemon.
 *
 * Reads the command line and everything it names. Returns -1 to go on, or the exit code of a program that is done
 * (--help, --check-config, errors). */
int daemon_options(struct config *ret_config, enum config_program program, const char *name, int argc, char **argv);

struct daemon {
    /* in */
    uv_loop_t *loop;
    const char *name;
    const struct config *config;
    struct metrics *metrics;
    size_t lag_metric;       /* family of issuing_loop_lag_seconds */
    size_t build_metric;     /* family of issuing_build_info */
    size_t db_errors_metric; /* family of issuing_db_errors_total */
    const char *admin_listen;
    int pipeline, waiting_max;                /* of the pool (pg_pool.h) */
    void (*on_database_ready)(void *context); /* each time it comes (back); NULL = nothing */
    void (*on_scrape)(void *context);         /* before metrics are rendered */
    /* SIGHUP, also one from before the start: the files with secrets shall be read again. Not while draining. */
    void (*on_reload)(void *context);
    /* SIGTERM or SIGINT, once: take on nothing new. Then is_idle is asked every 10 ms; when it says so, on_drained
     * closes the rooms and ends with
     * daemon_close(). When the time is up (CONTRACT 1), on_late says the last words and the process exits 0: what is
     * open is covered by leases
     * and by clients' keys, exactly as if it were killed. */
    void (*on_stop)(void *context);
    bool (*is_idle)(void *context);
    void (*on_drained)(void *context);
    void (*on_late)(void *context);
    void *context;
    /* out */
    struct pg_pool *pool; /* open from daemon_open() to daemon_close() */
    /* private */
    uv_signal_t sigterm, sigint;
    uv_timer_t tick, drain;
    int64_t tick_due_us, lag_us, drain_until_ms;
    struct http_server *admin;
    bool is_stopping;
    char why_not_ready[320];
    struct buf text;
    int open_handles;
};

/* The database pool, which the rooms are built around. */
must_check bool daemon_open(struct daemon *daemon, struct err *err);
/* After the rooms: signals, tick, admin listener. */
must_check bool daemon_start(struct daemon *daemon, struct err *err);
/* Closes the pool and its own handles; the loop then ends by itself. */
void daemon_close(struct daemon *daemon);
/* Runs the loop to its end, and says whether every handle is gone (a leak is our bug and logged). */
bool daemon_run(uv_loop_t *loop);

#endif
