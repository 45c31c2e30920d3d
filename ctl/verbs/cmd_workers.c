/* issuing-ctl workers: which workers run, and which have run within the last day. */
#include <stdio.h>

#include "ctl/cluster.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"

static struct json *worker_json(const struct cluster_worker *worker)
{
    return JSON_OBJECT(json_text("name", worker->name), json_text("host", worker->host),
                       json_number("pid", worker->pid), json_text("version", worker->version),
                       json_text("state", cluster_worker_state(worker)), json_time("since", worker->started_us),
                       json_time("seen_at", worker->seen_us), json_number("in_flight", worker->in_flight),
                       json_number("slots", worker->slots));
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
    table_init(&table, heads);
    for (int i = 0; i < cluster->worker_count; i++) {
        if (ctl->json)
            table_add_json(&table, worker_json(&cluster->workers[i]));
        else
            add_row(&cluster->workers[i], cluster->now_us, &table);
    }
    bool whole = table_end(&table, err);
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
    return whole;
}

static bool run_workers(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct cluster cluster = {0};
    if (!options_alone(OPTIONS_NONE, "workers", arguments, count, err))
        return false;
    bool done =
        ctl_connect(ctl, err) && cluster_read(ctl->db, NULL, &cluster, err) && print_workers(ctl, &cluster, err);
    cluster_done(&cluster);
    return done;
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
