/* The checks of doctor that look at workers and targets (doctor.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/core/outbox.h"
#include "common/lib/base/uuid7.h"
#include "ctl/backlog.h"
#include "ctl/cluster.h"
#include "ctl/doctor/doctor.h"
#include "ctl/print.h"
#include "ctl/verdict.h"
#include "statements.h"

#define HELD_BACK_SHOWN 5
#define SENDERS_SHOWN 5
#define CERTIFICATE_DAYS_MIN 14 /* as the alert IssuingCertificateEnds */

/* No worker is a failure as soon as an event waits for one. */
static void check_no_worker(struct doctor *doctor, const struct cluster *cluster)
{
    const char *fix = "start issuing-worker; its log says why it has ended";
    char last[200] = "none was seen so far", time[PRINT_TIME_SIZE];
    struct backlog_type type;
    int64_t due = 0;
    for (int row = 0; backlog_next(cluster->open, &row, &type);)
        due += type.due + type.ends;
    if (cluster->last_us != 0)
        snprintf(last, sizeof(last), "the last one was seen at %s on host %.64s", print_time(cluster->last_us, time),
                 cluster->last_host);
    if (due > 0)
        doctor_report(doctor, "workers", false, fix, "no worker runs, and %s%" PRId64 " events are due: %s",
                      due >= BACKLOG_MAX ? "at least " : "", due, last);
    else
        doctor_warn(doctor, "workers", fix, "no worker runs: %s", last);
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

static void check_silent(struct doctor *doctor, const struct cluster *cluster)
{
    char span[PRINT_SPAN_SIZE];
    for (int i = 0; i < cluster->alive_count; i++)
        if (cluster->workers[i].is_silent)
            doctor_warn(doctor, "workers", "look whether it hangs or was killed: its log, and `systemctl status`",
                        "%s is silent: seen %s ago", cluster->workers[i].name,
                        print_span(cluster->now_us - cluster->workers[i].seen_us, span));
}

static void check_targets(struct doctor *doctor, const struct cluster *cluster)
{
    char time[PRINT_TIME_SIZE];
    int before = doctor->troubles;
    for (int i = 0; i < cluster->target_count; i++) {
        const struct cluster_target *target = &cluster->targets[i];
        bool is_open = target->open + target->half_open > 0;
        const char *text = target->cause ? outbox_code_text(target->cause) : NULL;
        bool is_file = target->cause && strcmp(target->cause, outbox_cause_name(OUTBOX_CAUSE_FILE_UNUSABLE)) == 0;
        if (target->paused_us != 0)
            doctor_warn(doctor, "targets", "issuing-ctl resume, when the reason for the pause is over",
                        "%s is paused by %s since %s: %s", target->name, target->paused_by,
                        print_time(target->paused_us, time), target->paused_why);
        if (is_open)
            doctor_warn(
                doctor, "targets",
                is_file ? "correct the file, then systemctl reload; issuing-worker --check-config says what is wrong"
                : strcmp(backlog_type_of(target->name), OUTBOX_EVENT_TYPE) == 0
                    ? "issuing-ctl doctor --issuer says why; after the repair, issuing-ctl probe asks at once"
                    : "its receiver's log says why; after the repair, issuing-ctl probe asks at once",
                "the breaker of %s is open at %" PRId64 " of %" PRId64 " workers since %s: %s%s%s", target->name,
                target->open + target->half_open, target->workers, print_time(target->since_us, time),
                target->cause ? target->cause : "?", text ? ": " : "", text ? text : "");
        if (target->resting > 0)
            doctor_warn(doctor, "targets", "if the number rises, agree on a higher limit with the peer",
                        "%s asked %" PRId64 " of %" PRId64 " workers to wait (429); %s%" PRId64
                        " event%s wait%s behind it",
                        target->name, target->resting, target->workers, target->is_least ? "at least " : "",
                        target->backlog, target->backlog == 1 ? "" : "s", target->backlog == 1 ? "s" : "");
    }
    if (doctor->troubles == before && cluster->alive_count > 0)
        doctor_report(doctor, "targets", true, NULL, "none is paused or rests, every breaker is closed");
}

/* Events of types that nobody delivers, by name. */
static void check_types(struct doctor *doctor, const struct cluster *cluster)
{
    struct backlog_type type;
    char span[PRINT_SPAN_SIZE];
    int64_t counted = 0; /* of all types that nobody delivers, which share the bound */
    for (int row = 0; backlog_next(cluster->open, &row, &type);)
        if (!type.is_delivered)
            counted += type.pending + type.processing;
    for (int row = 0; backlog_next(cluster->open, &row, &type);) {
        int64_t pending = type.pending;
        if (type.is_delivered || pending == 0)
            continue;
        doctor_warn(doctor, "routes",
                    "configure a route for it at the workers (docs/routes.md), or issuing-ctl cancel --type TYPE",
                    "nobody delivers %.64s: %s%" PRId64 " event%s wait%s, the oldest for %s", type.name,
                    counted >= BACKLOG_MAX ? "at least " : "", pending, pending == 1 ? "" : "s",
                    pending == 1 ? "s" : "", print_span(backlog_age_us(&type, cluster->now_us), span));
    }
}

/* FAILED events that hold back later ones. */
static void check_held_back(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    enum { ID, TYPE, WAITING, ALL };
    char id_text[UUID_TEXT_SIZE];
    struct uuid id = pg_uuid(rows, row, ID);
    int64_t waiting = pg_int8(rows, row, WAITING);
    uuid_format(&id, id_text);
    doctor_warn(doctor, "order", "issuing-ctl explain it, then replay or resolve it",
                "%s (%.64s) is FAILED and holds back %s%" PRId64 " later event%s of its user", id_text,
                pg_text(rows, row, TYPE), waiting == 1000 ? "at least " : "", waiting, waiting == 1 ? "" : "s");
    if (row + 1 == HELD_BACK_SHOWN && pg_int8(rows, row, ALL) > HELD_BACK_SHOWN)
        doctor_note(doctor, "order", "%" PRId64 " more hold back others: issuing-ctl list --status FAILED",
                    pg_int8(rows, row, ALL) - HELD_BACK_SHOWN);
}

/* Notifications that cannot be made. */
static void check_refused(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    enum { COUNT, REQUEST, WHY };
    int64_t count = pg_int8(rows, row, COUNT);
    if (count == 0)
        return;
    doctor_warn(doctor, "ends",
                "remove the cause, then as the owner: UPDATE issuing.end_notifications SET refused = NULL",
                "%" PRId64 " notification%s cannot be made, such as that of %.40s: %.200s", count,
                count == 1 ? "" : "s", pg_text(rows, row, REQUEST), pg_text(rows, row, WHY));
}

/* What card requests do not have: routes, and order. */
static bool check_routes(struct doctor *doctor, const struct cluster *cluster, struct err *err)
{
    const struct pg_param shown = pg_param_int8(HELD_BACK_SHOWN);
    const struct doctor_check checks[] = {
        {.statement = &sql_operator_held_back, .say = check_held_back, .params = &shown},
        {.statement = &sql_operator_ends_refused, .say = check_refused},
    };
    char time[PRINT_TIME_SIZE];
    int before = doctor->troubles;
    for (int i = 0; i < cluster->route_count; i++) {
        const struct cluster_route *route = &cluster->routes[i];
        if (route->differs)
            doctor_warn(doctor, "routes", "give all workers the same section of the route",
                        "workers disagree on %.64s: %.600s", route->type, route->differs);
        if (route->is_live)
            continue;
        doctor_warn(doctor, "routes", "start a worker that has this route, or: issuing-ctl route remove TYPE",
                    "no living worker has the route %.64s: %.100s named it last, at %s; %s%" PRId64
                    " events are open, %" PRId64 " notifications wait",
                    route->type, route->worker, print_time(route->seen_us, time),
                    route->open >= CLUSTER_OPEN_MAX ? "at least " : "", route->open, route->ends);
    }
    check_types(doctor, cluster);
    if (!doctor_ask(doctor, checks, ARRAY_SIZE(checks), err))
        return false;
    if (doctor->troubles == before && cluster->route_count > 0)
        doctor_report(doctor, "routes", true, NULL, "%d, each with a living worker; every type of event is delivered",
                      cluster->route_count);
    return true;
}

/* Only one of two workers that differ can be right. */
static void check_agreement(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    enum { OPTION, SAYS };
    doctor_warn(doctor, "agreement", "give all workers the same configuration, and restart those that had another",
                "workers disagree on %s: %s", pg_text(rows, row, OPTION), pg_text(rows, row, SAYS));
}

/* Peers whose certificate ends soon, the first to end first: then no call reaches them. */
static void check_certificates(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    enum { TARGET, ENDS, DAYS };
    char time[PRINT_TIME_SIZE];
    if (pg_int8(rows, row, DAYS) < CERTIFICATE_DAYS_MIN)
        doctor_warn(doctor, "certificates", "tell who runs that peer",
                    "a certificate of %.64s ends at %s, in %" PRId64 " days", pg_text(rows, row, TARGET),
                    print_time(pg_time_us(rows, row, ENDS), time), pg_int8(rows, row, DAYS));
    else if (row == 0)
        doctor_report(doctor, "certificates", true, NULL, "the first to end is one of %.64s, in %" PRId64 " days",
                      pg_text(rows, row, TARGET), pg_int8(rows, row, DAYS));
}

/* Events that wait for another issuer than the workers'. */
static void check_elsewhere(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    enum { ISSUER, EVENTS, PRESENT };
    doctor_warn(doctor, "issuer", "start a worker with the configuration of that issuer; or issuing-ctl adopt",
                "%" PRId64 " open card request%s to %.300s, and workers spoke to %.300s last",
                pg_int8(rows, row, EVENTS), pg_int8(rows, row, EVENTS) == 1 ? " belongs" : "s belong",
                pg_text(rows, row, ISSUER), pg_is_null(rows, row, PRESENT) ? "nobody" : pg_text(rows, row, PRESENT));
}

/* Who sends events of which type, and who may insert them past issuing.enqueue. */
static bool check_senders(struct doctor *doctor, struct err *err)
{
    enum { ROLE, TYPE, ADDED, IS_THERE, IS_SAME, MAY_CONNECT };
    pg_rows_scope struct pg_rows *senders = NULL, *inserters = NULL;
    char list[400] = "";
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_senders, NULL, &senders, err) ||
        !pg_sync_query(doctor->ctl->db, &sql_operator_inserters, NULL, &inserters, err))
        return false;
    for (int row = 0; row < pg_rows_count(inserters); row++)
        doctor_warn(doctor, "senders", "REVOKE it, and issuing-ctl sender add for each type that it sends",
                    "%s may INSERT into %s: events of every type and for every user, CARD_ISSUE included",
                    pg_text(inserters, row, 0), pg_text(inserters, row, 1));
    for (int row = 0; row < pg_rows_count(senders); row++) {
        const char *role = pg_text(senders, row, ROLE), *type = pg_text(senders, row, TYPE);
        size_t length = strlen(list);
        if (!pg_bool(senders, row, IS_THERE))
            doctor_warn(doctor, "senders", "issuing-ctl sender remove it, or create the role and sender add it again",
                        "there is no role %s, which may send %s", role, type);
        else if (!pg_bool(senders, row, IS_SAME))
            doctor_warn(
                doctor, "senders", "issuing-ctl sender add it again, if this one is meant, or sender remove it",
                "role %s is another one than was added for %s, and may not send it: it was created again, or the "
                "database was restored into another cluster",
                role, type);
        else if (!pg_bool(senders, row, MAY_CONNECT))
            doctor_warn(doctor, "senders", "as the owner of the database: GRANT CONNECT ON DATABASE ... TO it",
                        "role %s may send %s, and may not connect to this database", role, type);
        else if (row < SENDERS_SHOWN)
            snprintf(list + length, sizeof(list) - length, "%s%.40s sends %.64s", length > 0 ? ", " : "", role, type);
    }
    if (pg_rows_count(senders) > 0 || pg_rows_count(inserters) == 0)
        doctor_report(doctor, "senders", true, NULL, "%s%s", list[0] ? list : "no other service sends events",
                      pg_rows_count(senders) > SENDERS_SHOWN ? ", and others: issuing-ctl sender list" : "");
    return true;
}

/* A peer that refuses everybody looks well from here: each answer is a definite one. */
static void check_ends(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    char found[VERDICT_SENTENCE_SIZE];
    if (row == 0 && verdict_find_rejected(rows, found)) /* which speaks of all */
        doctor_warn(doctor, "ends", "each user has a final answer: if it is wrong, pause the target and tell that team",
                    "%s", found);
}

bool doctor_check_running(struct doctor *doctor, struct err *err)
{
    pg_rows_scope struct pg_rows *open = NULL;
    struct cluster cluster = {0};
    if (!backlog_read(doctor->ctl->db, &open, err) || !cluster_read(doctor->ctl->db, open, &cluster, err))
        return false;
    static const struct doctor_check elsewhere = {.statement = &sql_operator_elsewhere, .say = check_elsewhere};
    static const struct doctor_check checks[] = {
        {.statement = &sql_operator_status_rejected, .say = check_ends},
        {.statement = &sql_operator_doctor_disagree, .say = check_agreement},
        {.statement = &sql_operator_doctor_certificates, .say = check_certificates},
    };
    bool is_elsewhere = backlog_caused_by(open, outbox_cause_name(OUTBOX_CAUSE_OTHER_ISSUER)) > 0 ||
                        backlog_is_cut(open, OUTBOX_EVENT_TYPE);
    bool done = check_senders(doctor, err);
    if (cluster.alive_count == 0)
        check_no_worker(doctor, &cluster);
    else
        check_versions(doctor, &cluster);
    check_silent(doctor, &cluster);
    check_targets(doctor, &cluster);
    done = done && check_routes(doctor, &cluster, err) && doctor_ask(doctor, &elsewhere, is_elsewhere, err) &&
           doctor_ask(doctor, checks, ARRAY_SIZE(checks), err);
    cluster_done(&cluster);
    return done;
}
