/* The workers and their targets, as heartbeats and operators have left them in the database. */
#ifndef ISSUING_CTL_CLUSTER_H
#define ISSUING_CTL_CLUSTER_H

#include "common/lib/base/base.h"
#include "common/lib/json/json.h"
#include "common/lib/pg/pg_sync.h"

#define CLUSTER_TARGETS_MAX 64
#define CLUSTER_WORKERS_MAX 1000
#define CLUSTER_ROUTES_MAX 64
#define CLUSTER_OPEN_MAX 10000 /* events of a route, in operator_routes */

/* Times in microseconds since 1970, 0 = none; texts are borrowed from the rows, NULL = none. */
struct cluster_worker {
    const char *name, *host, *version;
    int64_t pid;
    int64_t started_us, seen_us;
    int64_t in_flight, slots;
    bool is_draining;
    bool is_alive;  /* seen within the last minute */
    bool is_silent; /* alive, and yet not seen for three heartbeats */
};

/* A type that workers deliver besides card requests, as the last worker registered it (issuing.routes); ordered = at
 * least one living worker says so. */
struct cluster_route {
    const char *type;
    bool is_ordered, has_lookup, is_signed;
    int64_t key_lifetime_ms, max_attempts;
    const char *worker;
    int64_t seen_us;
    int64_t workers; /* that have named it within the last minute */
    bool is_live;    /* there are some */
    int64_t since_us;
    const char *differs; /* what these say of it; NULL = the same */
    int64_t open, ends;  /* events, counted up to CLUSTER_OPEN_MAX; notifications that wait */
};

/* One target, as all living workers see it together. */
struct cluster_target {
    const char *name;                 /* issuer, core, or the type of a route */
    int64_t workers;                  /* living ones that call it */
    int64_t blocked;                  /* of these: those that send nothing: breaker not closed, resting, or paused */
    int64_t open, half_open, resting; /* of these */
    int64_t obeying;                  /* of these: those that obey a pause */
    int64_t probed;                   /* of these: those that have obeyed the last probe that was asked for */
    int64_t since_us;                 /* the state of the breaker */
    const char *cause;                /* of the opening, else of a rest; NULL = neither */
    int64_t next_us;                  /* the next probe, or the end of the rest */
    int64_t in_flight, waiting;       /* calls */
    int64_t paused_us;                /* 0 = it is not paused */
    const char *paused_by, *paused_why;
    int64_t paused_until_us; /* 0 = until it is resumed */
    int64_t backlog;         /* backlog_behind */
    bool is_least;           /* more may be behind it than were counted */
};

/* All zeros is an empty one. */
struct cluster {
    struct pg_rows *worker_rows, *last_rows, *target_rows, *route_rows, *open_rows; /* owned */
    const struct pg_rows *open;     /* of operator_open: those of the caller, else its own; NULL = not read */
    struct cluster_worker *workers; /* owned; the living ones first, then those seen last */
    int worker_count, alive_count;
    int silent_count;      /* of the living ones */
    bool has_more_workers; /* than CLUSTER_WORKERS_MAX */
    /* When a worker was last seen, or ended, and on which host; 0 = never within a day. */
    int64_t last_us;
    const char *last_host;
    int64_t in_flight, slots; /* of the living ones */
    struct cluster_target targets[CLUSTER_TARGETS_MAX];
    int target_count;
    struct cluster_route routes[CLUSTER_ROUTES_MAX]; /* by type */
    int route_count;
    int64_t now_us; /* of the database */
};

/* open: rows of operator_open, which must outlive the cluster. NULL: the backlogs are 0. */
must_check bool cluster_read(struct pg_sync *db, const struct pg_rows *open, struct cluster *ret_cluster,
                             struct err *err);
/* For a cluster that was read without open events: reads them where a worker sends nothing to a target; else the
 * backlogs stay 0. */
must_check bool cluster_read_backlog(struct pg_sync *db, struct cluster *cluster, struct err *err);
/* Only the routes; everything else stays empty. */
must_check bool cluster_read_routes(struct pg_sync *db, struct cluster *ret_cluster, struct err *err);
void cluster_done(struct cluster *cluster);
/* NULL: it has no row. */
const struct cluster_worker *cluster_find_worker(const struct cluster *cluster, const char *name);
/* NULL: nobody delivers this type. */
const struct cluster_route *cluster_find_route(const struct cluster *cluster, const char *type);
/* NULL: no worker has such a target. */
const struct cluster_target *cluster_find_target(const struct cluster *cluster, const char *name);

/* dead, silent, draining or working. */
const char *cluster_worker_state(const struct cluster_worker *worker);
/* paused, open, half_open, resting, closed, or no_worker. */
const char *cluster_state(const struct cluster_target *target);
/* No living worker sends anything there. */
bool cluster_is_blocked(const struct cluster_target *target);
/* The target for programs; the caller may add members and prints it. NULL: out of memory. */
struct json *cluster_target_json(const struct cluster_target *target);

#endif
