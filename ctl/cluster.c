/* See cluster.h. */
#include "ctl/cluster.h"

#include <string.h>

#include "ctl/print.h"
#include "statements.h"

enum worker_column { NAME, HOST, PID, VERSION, STARTED, SEEN, HELD, SLOTS, DRAINING, ALIVE, WORKERS_NOW };

enum target_column {
    TARGET,
    WORKERS,
    SHUT,
    OPEN,
    HALF_OPEN,
    RESTING,
    OBEYING,
    PROBED,
    SINCE,
    CAUSE,
    NEXT,
    IN_FLIGHT,
    WAITING,
    PAUSED_AT,
    PAUSED_BY,
    PAUSED_WHY,
    BACKLOG,
    TARGETS_NOW
};

static int64_t time_at(const struct pg_rows *rows, int row, int column)
{
    return pg_is_null(rows, row, column) ? 0 : pg_time_us(rows, row, column);
}

static struct cluster_target target_at(const struct pg_rows *rows, int row)
{
    return (struct cluster_target){
        .name = pg_bytes(rows, row, TARGET).bytes,
        .workers = pg_int8(rows, row, WORKERS),
        .shut = pg_int8(rows, row, SHUT),
        .open = pg_int8(rows, row, OPEN),
        .half_open = pg_int8(rows, row, HALF_OPEN),
        .resting = pg_int8(rows, row, RESTING),
        .obeying = pg_int8(rows, row, OBEYING),
        .probed = pg_int8(rows, row, PROBED),
        .since_us = time_at(rows, row, SINCE),
        .cause = pg_bytes(rows, row, CAUSE).bytes,
        .next_us = time_at(rows, row, NEXT),
        .in_flight = pg_int8(rows, row, IN_FLIGHT),
        .waiting = pg_int8(rows, row, WAITING),
        .paused_us = time_at(rows, row, PAUSED_AT),
        .paused_by = pg_bytes(rows, row, PAUSED_BY).bytes,
        .paused_why = pg_bytes(rows, row, PAUSED_WHY).bytes,
        .backlog = pg_int8(rows, row, BACKLOG),
    };
}

bool cluster_read(struct pg_sync *db, struct cluster *ret_cluster, struct err *err)
{
    struct cluster cluster = {0};
    if (!pg_sync_query(db, &sql_operator_workers, NULL, &cluster.worker_rows, err) ||
        !pg_sync_query(db, &sql_operator_targets, NULL, &cluster.target_rows, err)) {
        cluster_done(&cluster);
        return false;
    }
    cluster.worker_count = pg_rows_count(cluster.worker_rows);
    for (int i = 0; i < cluster.worker_count; i++) {
        struct cluster_worker worker = cluster_worker_at(&cluster, i);
        cluster.alive_count += worker.is_alive;
        cluster.in_flight += worker.is_alive ? worker.in_flight : 0;
        cluster.slots += worker.is_alive ? worker.slots : 0;
    }
    cluster.target_count = pg_rows_count(cluster.target_rows);
    for (int i = 0; i < cluster.target_count; i++)
        cluster.targets[i] = target_at(cluster.target_rows, i);
    cluster.now_us = pg_time_us(cluster.target_rows, 0, TARGETS_NOW); /* issuer and core are always there */
    *ret_cluster = cluster;
    return true;
}

void cluster_done(struct cluster *cluster)
{
    pg_rows_free(cluster->worker_rows);
    pg_rows_free(cluster->target_rows);
    *cluster = (struct cluster){0};
}

struct cluster_worker cluster_worker_at(const struct cluster *cluster, int index)
{
    const struct pg_rows *rows = cluster->worker_rows;
    return (struct cluster_worker){
        .name = pg_bytes(rows, index, NAME).bytes,
        .host = pg_bytes(rows, index, HOST).bytes,
        .version = pg_bytes(rows, index, VERSION).bytes,
        .pid = pg_int8(rows, index, PID),
        .started_us = pg_time_us(rows, index, STARTED),
        .seen_us = pg_time_us(rows, index, SEEN),
        .in_flight = pg_int8(rows, index, HELD),
        .slots = pg_int8(rows, index, SLOTS),
        .is_draining = pg_bool(rows, index, DRAINING),
        .is_alive = pg_bool(rows, index, ALIVE),
    };
}

bool cluster_find_worker(const struct cluster *cluster, const char *name, struct cluster_worker *ret_worker)
{
    for (int i = 0; i < cluster->worker_count; i++) {
        struct cluster_worker worker = cluster_worker_at(cluster, i);
        if (strcmp(worker.name, name) == 0) {
            *ret_worker = worker;
            return true;
        }
    }
    return false;
}

const struct cluster_target *cluster_find_target(const struct cluster *cluster, const char *name)
{
    for (int i = 0; i < cluster->target_count; i++)
        if (strcmp(cluster->targets[i].name, name) == 0)
            return &cluster->targets[i];
    return NULL;
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

bool cluster_is_shut(const struct cluster_target *target)
{
    return target->paused_us != 0 || (target->workers > 0 && target->shut == target->workers);
}

struct json *cluster_target_json(const struct cluster_target *target)
{
    struct json *object = json_new_object();
    if (object && json_set_text(object, "target", target->name) &&
        json_set_text(object, "state", cluster_state(target)) && json_set_integer(object, "workers", target->workers) &&
        json_set_integer(object, "shut_at", target->shut) && print_set_time(object, "since", target->since_us) &&
        json_set_text(object, "cause", target->cause) && print_set_time(object, "next_at", target->next_us) &&
        json_set_integer(object, "in_flight", target->in_flight) &&
        json_set_integer(object, "waiting", target->waiting) && json_set_integer(object, "backlog", target->backlog) &&
        print_set_time(object, "paused_at", target->paused_us) &&
        json_set_text(object, "paused_by", target->paused_by) &&
        json_set_text(object, "paused_why", target->paused_why) &&
        json_set_integer(object, "paused_workers", target->obeying))
        return object;
    json_free(object);
    return NULL;
}
