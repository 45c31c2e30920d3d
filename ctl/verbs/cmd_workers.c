/* issuing-ctl workers: which workers run, and which have run within the last day. */
#include <stdio.h>

#include "ctl/cluster_show.h"
#include "ctl/print.h"

static bool print_worker_json(const struct cluster_worker *worker)
{
    struct json *object = json_new_object();
    if (object && json_set_text(object, "name", worker->name) && json_set_text(object, "host", worker->host) &&
        json_set_integer(object, "pid", worker->pid) && json_set_text(object, "version", worker->version) &&
        json_set_text(object, "state", cluster_worker_state(worker)) &&
        print_set_time(object, "since", worker->started_us) && print_set_time(object, "seen_at", worker->seen_us) &&
        json_set_integer(object, "in_flight", worker->in_flight) && json_set_integer(object, "slots", worker->slots))
        return print_json(object, stdout);
    json_free(object);
    return false;
}

static void add_row(const struct cluster_worker *worker, int64_t now_us, struct table *table)
{
    char time[PRINT_TIME_SIZE], span[PRINT_SPAN_SIZE], text[64];
    table_add(table, worker->name);
    table_add(table, cluster_worker_state(worker));
    table_add(table, worker->version);
    table_add(table, print_time(worker->started_us, time));
    if (worker->seen_us <= now_us)
        snprintf(text, sizeof(text), "%s ago", print_span(now_us - worker->seen_us, span));
    else /* before the database's clock was set back */
        snprintf(text, sizeof(text), "in %s", print_span(worker->seen_us - now_us, span));
    table_add(table, text);
    snprintf(text, sizeof(text), "%lld of %lld", (long long)worker->in_flight, (long long)worker->slots);
    table_add(table, text);
}

static bool print_workers(const struct ctl *ctl, const struct cluster *cluster, struct err *err)
{
    static const char *const heads[] = {"WORKER", "STATE", "VERSION", "SINCE", "SEEN", "EVENTS HELD", NULL};
    struct table table;
    bool whole = true;
    table_init(&table, heads);
    for (int i = 0; whole && i < cluster->worker_count; i++) {
        const struct cluster_worker *worker = &cluster->workers[i];
        if (ctl->json)
            whole = print_worker_json(worker);
        else
            add_row(worker, cluster->now_us, &table);
    }
    if (!ctl->json && cluster->worker_count > 0)
        whole = table_flush(&table, stdout);
    table_done(&table);
    if (cluster->has_more_workers) {
        fflush(stdout);
        fprintf(stderr, "issuing-ctl: only %d are shown, the living ones and those that were seen last\n",
                cluster->worker_count);
    }
    if (cluster->alive_count == 0) {
        char time[PRINT_TIME_SIZE];
        fflush(stdout);
        if (cluster->last_us != 0)
            fprintf(stderr, "No worker runs: the last one was seen at %s on host %.64s.\n",
                    print_time(cluster->last_us, time), cluster->last_host);
        else
            fputs("No worker runs, and none was seen so far.\n", stderr);
    }
    return whole || err_set(err, ERR_MEMORY, "out of memory");
}

static int run_workers(struct ctl *ctl, char **arguments, int count)
{
    return cluster_show(ctl, "workers", false, print_workers, arguments, count);
}

const struct ctl_command ctl_workers = {
    .word = "workers",
    .usage = "",
    .summary = "which workers run",
    .help = "Shows each worker: name (host:pid), version, since when it runs, when it was last seen, and how many\n"
            "events it holds of how many it can hold. A worker writes a heartbeat every 5 s. STATE is working,\n"
            "draining (it ends when its calls are answered), or dead: no heartbeat for 60 s. A worker that has\n"
            "drained is not listed any more, a dead one for a day.\n",
    .run = run_workers,
};
