/* The checks of doctor that look at workers and targets (doctor.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/cluster.h"
#include "ctl/doctor.h"
#include "ctl/print.h"
#include "statements.h"

/* No worker is a failure as soon as an event waits for one. */
static bool check_no_worker(struct doctor *doctor, const struct cluster *cluster, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const char *fix = "start issuing-worker; its log says why it has ended";
    char last[200] = "none was seen so far", time[PRINT_TIME_SIZE];
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_due, NULL, &rows, err))
        return false;
    int64_t due = pg_int8(rows, 0, 0);
    if (cluster->last_us != 0)
        snprintf(last, sizeof(last), "the last one was seen at %s on host %.64s", print_time(cluster->last_us, time),
                 cluster->last_host);
    if (due > 0)
        doctor_report(doctor, "workers", false, fix, "no worker runs, and %" PRId64 " events are due: %s", due, last);
    else
        doctor_warn(doctor, "workers", fix, "no worker runs: %s", last);
    return true;
}

static void check_versions(struct doctor *doctor, const struct cluster *cluster)
{
    const struct cluster_worker *first = cluster->workers, *other = NULL;
    for (int i = 1; i < cluster->alive_count; i++)
        if (strcmp(cluster->workers[i].version, first->version) != 0)
            other = &cluster->workers[i];
    if (other)
        doctor_warn(doctor, "workers", "restart the workers of the older version",
                    "%d run, of different versions: %s has %s, %s has %s", cluster->alive_count, first->name,
                    first->version, other->name, other->version);
    else
        doctor_report(doctor, "workers", true, NULL, "%d run%s, version %s", cluster->alive_count,
                      cluster->alive_count == 1 ? "s" : "", first->version);
}

static void check_targets(struct doctor *doctor, const struct cluster *cluster)
{
    char time[PRINT_TIME_SIZE];
    bool all_fine = true;
    for (int i = 0; i < cluster->target_count; i++) {
        const struct cluster_target *target = &cluster->targets[i];
        bool is_open = target->open + target->half_open > 0;
        if (target->paused_us != 0)
            doctor_warn(doctor, "targets", "issuing-ctl resume, when the reason for the pause is over",
                        "%s is paused by %s since %s: %s", target->name, target->paused_by,
                        print_time(target->paused_us, time), target->paused_why);
        if (is_open)
            doctor_warn(doctor, "targets", "find out why its calls fail; issuing-ctl probe sends a probe at once",
                        "the breaker of %s is open at %" PRId64 " of %" PRId64 " workers since %s: %s", target->name,
                        target->open + target->half_open, target->workers, print_time(target->since_us, time),
                        target->cause ? target->cause : "?");
        all_fine &= target->paused_us == 0 && !is_open;
    }
    if (all_fine && cluster->alive_count > 0)
        doctor_report(doctor, "targets", true, NULL, "none is paused, every breaker is closed");
}

bool doctor_check_running(struct doctor *doctor, struct err *err)
{
    struct cluster cluster = {0};
    if (!cluster_read(doctor->ctl->db, &cluster, err))
        return false;
    bool done = true;
    if (cluster.alive_count == 0)
        done = check_no_worker(doctor, &cluster, err);
    else
        check_versions(doctor, &cluster);
    check_targets(doctor, &cluster);
    cluster_done(&cluster);
    return done;
}
