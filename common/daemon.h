/* What both daemons do around their work: options, signals, systemd, the loop's lag, the admin listener (livez, readyz,
 * metrics). */
#ifndef ISSUING_DAEMON_H
#define ISSUING_DAEMON_H

#include <uv.h>

#include "common/config.h"
#include "common/err.h"
#include "common/http_server.h"
#include "common/metrics.h"

#ifndef ISSUING_VERSION
#define ISSUING_VERSION "0.0.0"
#endif

/* Reads the command line and everything it names. Returns -1 to go on, or the exit code of a program that is done
 * (--help, --check-config, errors). */
int daemon_options(struct config *ret_config, enum config_program program, const char *name, int argc, char **argv);

struct daemon {
    /* in */
    uv_loop_t *loop;
    const char *name;
    struct metrics *metrics;
    size_t lag_metric;   /* family of issuing_loop_lag_seconds */
    size_t build_metric; /* family of issuing_build_info */
    const char *admin_listen;
    bool (*is_ready)(void *context, const char **ret_why); /* for readyz */
    void (*on_scrape)(void *context);                      /* before metrics are rendered; NULL = nothing */
    void (*on_stop)(void *context);                        /* SIGTERM or SIGINT, once */
    void *context;
    /* private */
    uv_signal_t sigterm, sigint;
    uv_timer_t tick;
    int64_t tick_due_us, lag_us;
    struct http_server *admin;
    bool is_stopping;
    struct buf text;
    int open_handles;
    void (*on_closed)(void *context);
};

must_check bool daemon_start(struct daemon *daemon, struct err *err);
/* Closes its handles; on_closed(context) from the loop. */
void daemon_close(struct daemon *daemon, void (*on_closed)(void *context));
/* After the last close: runs the loop dry and says whether every handle is gone (a leak is our bug and logged). */
bool daemon_end_loop(uv_loop_t *loop);

#endif
