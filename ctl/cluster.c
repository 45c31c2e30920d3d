/* See cluster.h. */
#include "ctl/cluster.h"

#include <stdlib.h>
#include <string.h>

#include "ctl/backlog.h"
#include "ctl/row.h"
#include "statements.h"

#define SILENT_US (15 * (int64_t)1000000) /* a worker writes a heartbeat every 5 s */

#define WORKER(member) ROW_FIELD(struct cluster_worker, member)
#define TARGET(member) ROW_FIELD(struct cluster_target, member)
#define ROUTE(member) ROW_FIELD(struct cluster_route, member)

/* Behind the columns of workers and of targets: the time of the database. */
static const struct row_field worker_columns[] = {WORKER(name),
                                                  WORKER(host),
                                                  WORKER(pid),
                                                  WORKER(version),
                                                  ROW_TIME(struct cluster_worker, started_us),
                                                  ROW_TIME(struct cluster_worker, seen_us),
                                                  WORKER(in_flight),
                                                  WORKER(slots),
                                                  WORKER(is_draining),
                                                  WORKER(is_alive)};

static const struct row_field target_columns[] = {TARGET(name),
                                                  TARGET(workers),
                                                  TARGET(blocked),
                                                  TARGET(open),
                                                  TARGET(half_open),
                                                  TARGET(resting),
                                                  TARGET(obeying),
                                                  TARGET(probed),
                                                  ROW_TIME(struct cluster_target, since_us),
                                                  TARGET(cause),
                                                  ROW_TIME(struct cluster_target, next_us),
                                                  TARGET(in_flight),
                                                  TARGET(waiting),
                                                  ROW_TIME(struct cluster_target, paused_us),
                                                  TARGET(paused_by),
                                                  TARGET(paused_why),
                                                  ROW_TIME(struct cluster_target, paused_until_us)};

static const struct row_field route_columns[] = {ROUTE(type),         ROUTE(is_ordered),
                                                 ROUTE(has_lookup),   ROUTE(key_lifetime_ms),
                                                 ROUTE(max_attempts), ROUTE(is_signed),
                                                 ROUTE(worker),       ROW_TIME(struct cluster_route, seen_us),
                                                 ROUTE(workers),      ROW_TIME(struct cluster_route, since_us),
                                                 ROUTE(differs),      ROUTE(open),
                                                 ROUTE(ends)};

static bool read_workers(struct cluster *cluster, struct err *err)
{
    int count = pg_rows_count(cluster->worker_rows);
    cluster->has_more_workers = count > CLUSTER_WORKERS_MAX;
    if (cluster->has_more_workers)
        count = CLUSTER_WORKERS_MAX;
    cluster->workers = calloc(count > 0 ? (size_t)count : 1, sizeof(*cluster->workers));
    if (!cluster->workers)
        return err_set(err, ERR_MEMORY, "out of memory");
    cluster->worker_count = count;
    for (int i = 0; i < count; i++) {
        struct cluster_worker *worker = &cluster->workers[i];
        row_read(cluster->worker_rows, i, worker_columns, ARRAY_SIZE(worker_columns), worker);
        int64_t now_us = pg_time_us(cluster->worker_rows, i, ARRAY_SIZE(worker_columns));
        worker->is_silent = worker->is_alive && now_us - worker->seen_us >= SILENT_US;
        cluster->alive_count += worker->is_alive;
        cluster->silent_count += worker->is_silent;
        cluster->in_flight += worker->is_alive ? worker->in_flight : 0;
        cluster->slots += worker->is_alive ? worker->slots : 0;
    }
    return true;
}

/* The later one of the worker that was seen last, and the one that was the last to end by itself. */
static void find_last(struct cluster *cluster)
{
    for (int i = 0; i < cluster->worker_count; i++) {
        if (cluster->workers[i].seen_us <= cluster->last_us)
            continue;
        cluster->last_us = cluster->workers[i].seen_us;
        cluster->last_host = cluster->workers[i].host;
    }
    if (pg_rows_count(cluster->last_rows) > 0 && pg_time_us(cluster->last_rows, 0, 1) > cluster->last_us) {
        cluster->last_us = pg_time_us(cluster->last_rows, 0, 1);
        cluster->last_host = pg_text(cluster->last_rows, 0, 0);
    }
}

bool cluster_read_routes(struct pg_sync *db, struct cluster *ret_cluster, struct err *err)
{
    struct pg_rows *rows = NULL;
    if (!pg_sync_query(db, &sql_operator_routes, NULL, &rows, err))
        return false;
    ret_cluster->route_rows = rows;
    ret_cluster->route_count = pg_rows_count(rows);
    for (int i = 0; i < ret_cluster->route_count; i++) {
        struct cluster_route *route = &ret_cluster->routes[i];
        row_read(rows, i, route_columns, ARRAY_SIZE(route_columns), route);
        route->is_live = route->workers > 0;
    }
    return true;
}

static void take_backlog(struct cluster *cluster, const struct pg_rows *open)
{
    cluster->open = open;
    for (int i = 0; open && i < cluster->target_count; i++) {
        struct cluster_target *target = &cluster->targets[i];
        target->backlog = backlog_behind(open, target->name, cluster_is_blocked(target), target->blocked > 0);
        target->is_least = backlog_is_cut(open, backlog_type_of(target->name));
    }
}

bool cluster_read_backlog(struct pg_sync *db, struct cluster *cluster, struct err *err)
{
    bool some_blocked = false;
    for (int i = 0; i < cluster->target_count; i++)
        some_blocked |= cluster->targets[i].blocked > 0 || cluster_is_blocked(&cluster->targets[i]);
    if (some_blocked && !backlog_read(db, &cluster->open_rows, err))
        return false;
    take_backlog(cluster, cluster->open_rows);
    return true;
}

static void read_targets(const struct pg_rows *open, struct cluster *cluster)
{
    cluster->target_count = pg_rows_count(cluster->target_rows);
    /* Issuer and core are always there. */
    cluster->now_us = pg_time_us(cluster->target_rows, 0, ARRAY_SIZE(target_columns));
    for (int i = 0; i < cluster->target_count; i++)
        row_read(cluster->target_rows, i, target_columns, ARRAY_SIZE(target_columns), &cluster->targets[i]);
    take_backlog(cluster, open);
}

bool cluster_read(struct pg_sync *db, const struct pg_rows *open, struct cluster *ret_cluster, struct err *err)
{
    struct cluster cluster = {0};
    const struct pg_param most = pg_param_int8(CLUSTER_WORKERS_MAX + 1);
    if (!pg_sync_query(db, &sql_operator_workers, &most, &cluster.worker_rows, err) ||
        !pg_sync_query(db, &sql_operator_last_worker, NULL, &cluster.last_rows, err) ||
        !pg_sync_query(db, &sql_operator_targets, NULL, &cluster.target_rows, err) ||
        !cluster_read_routes(db, &cluster, err) || !read_workers(&cluster, err)) {
        cluster_done(&cluster);
        return false;
    }
    read_targets(open, &cluster);
    find_last(&cluster);
    *ret_cluster = cluster;
    return true;
}

void cluster_done(struct cluster *cluster)
{
    pg_rows_free(cluster->worker_rows);
    pg_rows_free(cluster->last_rows);
    pg_rows_free(cluster->target_rows);
    pg_rows_free(cluster->route_rows);
    pg_rows_free(cluster->open_rows);
    free(cluster->workers);
    *cluster = (struct cluster){0};
}

const struct cluster_worker *cluster_find_worker(const struct cluster *cluster, const char *name)
{
    for (int i = 0; i < cluster->worker_count; i++)
        if (strcmp(cluster->workers[i].name, name) == 0)
            return &cluster->workers[i];
    return NULL;
}

const struct cluster_route *cluster_find_route(const struct cluster *cluster, const char *type)
{
    for (int i = 0; i < cluster->route_count; i++)
        if (strcmp(cluster->routes[i].type, type) == 0)
            return &cluster->routes[i];
    return NULL;
}

const struct cluster_target *cluster_find_target(const struct cluster *cluster, const char *name)
{
    for (int i = 0; i < cluster->target_count; i++)
        if (strcmp(cluster->targets[i].name, name) == 0)
            return &cluster->targets[i];
    return NULL;
}

const char *cluster_worker_state(const struct cluster_worker *worker)
{
    return !worker->is_alive ? "dead" : worker->is_silent ? "silent" : worker->is_draining ? "draining" : "working";
}

const char *cluster_state(const struct cluster_target *target)
{
    return target->paused_us != 0  ? "paused"
           : target->workers == 0  ? "no_worker"
           : target->open > 0      ? "open"
           : target->half_open > 0 ? "half_open"
           : target->resting > 0   ? "resting"
                                   : "closed";
}

bool cluster_is_blocked(const struct cluster_target *target)
{
    return target->paused_us != 0 || (target->workers > 0 && target->blocked == target->workers);
}

struct json *cluster_target_json(const struct cluster_target *target)
{
    return JSON_OBJECT(json_text("target", target->name), json_text("state", cluster_state(target)),
                       json_number("workers", target->workers), json_number("blocked_at", target->blocked),
                       json_time("since", target->since_us), json_text("cause", target->cause),
                       json_time("next_at", target->next_us), json_number("in_flight", target->in_flight),
                       json_number("waiting", target->waiting), json_number("backlog", target->backlog),
                       json_time("paused_at", target->paused_us), json_text("paused_by", target->paused_by),
                       json_text("paused_why", target->paused_why), json_time("paused_until", target->paused_until_us),
                       json_number("paused_workers", target->obeying));
}
