/* issuing-ctl targets: what the workers see of the issuer, core-api and the receivers of routes, and what operators
 * have paused. */
#include <stdio.h>

#include "ctl/backlog.h"
#include "ctl/cluster.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"

static void add_row(const struct cluster_target *target, int64_t now_us, struct table *table)
{
    char time[PRINT_TIME_SIZE], span[PRINT_SPAN_SIZE], text[64];
    table_add(table, target->name);
    table_add(table, cluster_state(target));
    snprintf(text, sizeof(text), "%lld of %lld", (long long)target->blocked, (long long)target->workers);
    table_add(table, text);
    table_add(table, print_time(target->paused_us != 0 ? target->paused_us : target->since_us, time));
    table_add(table, target->cause);
    snprintf(text, sizeof(text), "in %s", print_span(target->next_us - now_us, span));
    table_add(table, target->next_us == 0 ? NULL : target->next_us > now_us ? text : "now");
    table_add_number(table, target->in_flight);
    snprintf(text, sizeof(text), "%lld%s", (long long)target->backlog, target->is_least ? "+" : "");
    table_add(table, text);
}

static void print_pause(const struct cluster_target *target)
{
    char time[PRINT_TIME_SIZE], until[PRINT_TIME_SIZE];
    if (target->paused_us == 0)
        return;
    printf("\n%s is paused by ", target->name);
    print_text(target->paused_by, stdout);
    printf(" since %s: ", print_time(target->paused_us, time));
    print_text(target->paused_why, stdout);
    printf("\n%lld of %lld living workers obey. It goes on ", (long long)target->obeying, (long long)target->workers);
    if (target->paused_until_us != 0)
        printf("at %s, or ", print_time(target->paused_until_us, until));
    printf("with: issuing-ctl resume %s --reason TEXT\n", target->name);
}

static bool print_targets(const struct ctl *ctl, const struct cluster *cluster, struct err *err)
{
    static const char *const heads[] = {"TARGET",    "STATE",     "BLOCKED AT",    "SINCE", "CAUSE",
                                        "NEXT CALL", "IN FLIGHT", "EVENTS BEHIND", NULL};
    struct table table;
    table_init(&table, heads);
    for (int i = 0; i < cluster->target_count; i++) {
        if (ctl->json)
            table_add_json(&table, cluster_target_json(&cluster->targets[i]));
        else
            add_row(&cluster->targets[i], cluster->now_us, &table);
    }
    bool whole = table_end(&table, err);
    for (int i = 0; !ctl->json && i < cluster->target_count; i++)
        print_pause(&cluster->targets[i]);
    if (cluster->alive_count == 0) {
        fflush(stdout);
        fputs("No worker runs.\n", stderr);
    }
    return whole;
}

static bool run_targets(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    pg_rows_scope struct pg_rows *open = NULL;
    struct cluster cluster = {0};
    if (!options_alone(OPTIONS_NONE, "targets", arguments, count, err))
        return false;
    bool done = ctl_connect(ctl, err) && backlog_read(ctl->db, &open, err) &&
                cluster_read(ctl->db, open, &cluster, err) && print_targets(ctl, &cluster, err);
    cluster_done(&cluster);
    return done;
}

const struct ctl_command ctl_targets = {
    .word = "targets",
    .usage = "",
    .summary = "the state of the issuer, core-api and routes: breakers, pauses, events behind",
    .help = "Shows each target (issuer, core, and each route by its type) as all living workers see it together:\n\n"
            "  STATE          closed: calls are made; open: calls failed, and only probes are sent;\n"
            "                 half_open: a probe is under way; resting: it answered 429 (too many requests);\n"
            "                 paused: an operator has stopped calls; no_worker: no living worker calls it\n"
            "  BLOCKED AT     how many of the living workers send nothing\n"
            "  SINCE, CAUSE   since when, and the last failure that opened the breaker or kept it open, or the 429\n"
            "                 after which it rests\n"
            "  NEXT CALL      the next probe, or the end of the rest after a 429\n"
            "  EVENTS BEHIND  PENDING events that wait because no worker sends anything there; 12+: among the first\n"
            "                 100000 open events of the type, and there are more of these\n\n"
            "--json adds who paused it and why (paused_at, paused_by, paused_why, paused_until), and how many workers\n"
            "obey (paused_workers).\n",
    .run = run_targets,
};
