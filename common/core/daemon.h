/* The parts that both daemons share: options, loop, database pool and readiness, signals and the drain, systemd, the
 * lag of the loop, the admin listener (livez, readyz, metrics). A daemon's main() fills in the first part of a struct
 * daemon and returns daemon_main(). */
#ifndef ISSUING_DAEMON_H
#define ISSUING_DAEMON_H

#include <uv.h>

#include "common/core/config/config.h"
#include "common/core/daemon_places.h"
#include "common/core/daemon_status.h"
#include "common/core/exporter.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/err.h"
#include "common/lib/base/metrics.h"
#include "common/lib/base/peak.h"
#include "common/lib/http_server/http_server.h"

#ifndef ISSUING_VERSION
#define ISSUING_VERSION "0.0.0"
#endif

struct daemon {
    /* in */
    const char *name;
    enum config_program program;
    struct metrics *(*new_metrics)(void); /* begins with DAEMON_METRICS; NULL when memory is out */
    int pipeline, waiting_max;            /* of the pool (pg_pool.h) */
    /* --check-config only: what open() would refuse and config_check() does not see, such as the files that the options
     * name, and the warnings of a start. NULL = nothing. */
    bool (*check_more)(const struct config *config, struct err *err);
    /* Opens the modules of the program; loop, metrics and pool are there. On failure the process ends, with the exit
     * code of the error. */
    bool (*open)(void *context, struct err *err);
    void (*on_started)(void *context); /* writes the line of the log */
    /* Called each time the database of one of `places` is connected, or again; may be NULL. */
    void (*on_database_ready)(void *context, int place);
    void (*on_scrape)(void *context); /* before metrics are rendered */
    /* Why the program cannot do its work in one of `places` though the database is there; "" = it can. For readyz; NULL
     * = no such hook. */
    const char *(*why_not_ready)(void *context, int place);
    /* The users or types that are not served while the program is ready, as a line of readyz; "" = none. NULL = no such
     * hook. */
    const char *(*note)(void *context);
    /* SIGHUP, also one from before the start: the files with secrets are to be read again. Not while draining. */
    void (*on_reload)(void *context);
    /* SIGHUP, when routes have changed: config has the new ones. On success the program owns *retired, which has the
     * old ones; on failure the old ones come back. NULL = the program has no routes. */
    bool (*on_routes)(void *context, struct config *retired, struct err *err);
    /* False: the last reload is not over, and SIGHUP waits. NULL = it always is. */
    bool (*may_reload)(void *context);
    /* SIGTERM or SIGINT, once: take on nothing new. From then on is_idle is called every 10 ms; when it returns true,
     * close is called. When the drain takes too long (the longer of the two peers' timeouts and 4 s), on_late is called
     * and the process exits with 0: leases and clients' keys cover what is open, exactly as after a kill. */
    void (*on_stop)(void *context);
    bool (*is_idle)(void *context);
    void (*close)(void *context, struct closing *closing); /* closes the modules: each is a part of `closing` */
    void (*on_late)(void *context);
    /* One line for `systemctl status`, of what the program holds and does; asked for four times a second. The daemon
     * puts its own state (the database is away, draining) in front. */
    void (*describe)(void *context, char ret_text[DAEMON_STATUS_SIZE]);
    void *context;
    /* out: valid from open() to the end of close() */
    struct config config; /* log.level and routes change with SIGHUP */
    uv_loop_t loop;
    struct metrics *metrics;
    struct exporter *exporter; /* of spans; NULL = nobody wants them */
    struct daemon_place places[CONFIG_PLACES_MAX];
    int place_count;
    /* private */
    struct daemon_places_options place_options;
    uv_signal_t sigterm, sigint;
    uv_timer_t tick, drain;
    int64_t tick_due_us, drain_until_ms, extended_ms;
    struct peak lag; /* of the loop, in us */
    struct daemon_status status;
    struct http_server *admin;
    struct closing modules, pools, own;
    bool is_stopping, are_modules_closed; /* closed, or about to be: they are not to be asked any more */
    struct buf text;
    int argc; /* the command line, for SIGHUP */
    char **argv;
};

/* The whole of main(): runs until the daemon has drained, and returns the exit code. `daemon` must outlive the
 * process's work: make it static. Called once. */
int daemon_main(struct daemon *daemon, int argc, char **argv);

/* Files that a daemon needs beside its clients' connections and those to the database. */
#define DAEMON_FILES 112
/* How many files this process may have open; INT32_MAX = no limit. */
int64_t daemon_file_limit(void);
/* The hook of a listener (http_server.h): logs, at most every 10 s, that it pauses accepting; `error` is an errno. */
void daemon_log_accept_pauses(void *context, int error);

#endif
