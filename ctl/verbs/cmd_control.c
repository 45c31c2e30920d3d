/* issuing-ctl pause, resume, probe: what an operator asks of a target. The request is a row in the database with its
 * audit row; workers obey it when they read it. The command waits for them, but not for long: the request stands
 * whether or not a worker runs. */
#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "ctl/action.h"
#include "ctl/backlog.h"
#include "ctl/cluster.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "ctl/stop.h"
#include "statements.h"

#define OBEYED_WITHIN_MS 6000
#define LOOK_AGAIN_US 100000

enum control { PAUSE, RESUME, PROBE };

static const struct {
    const char *word, *action, *done;
} controls[] = {
    [PAUSE] = {"pause", "pause_target", "paused"},
    [RESUME] = {"resume", "resume_target", "resumed"},
    [PROBE] = {"probe", "probe_target", "probed"},
};

static int64_t obeyed_by(enum control control, const struct cluster_target *target)
{
    switch (control) {
    case PAUSE:
        return target->obeying;
    case RESUME:
        return target->workers - target->obeying;
    case PROBE:
        return target->probed;
    }
    return 0;
}

static bool is_known(const struct cluster *cluster, const char *name, struct err *err)
{
    char names[400] = "";
    if (cluster_find_target(cluster, name))
        return true;
    for (int i = 0; i < cluster->target_count; i++) {
        size_t length = strlen(names);
        snprintf(names + length, sizeof(names) - length, "%s%s", i > 0 ? ", " : "", cluster->targets[i].name);
    }
    return err_set(err, ERR_NOT_FOUND, "there is no target %.60s; there are: %s", name, names);
}

struct control_request {
    enum control control;
    const char *name;
    struct action action;
    int64_t pause_us; /* 0 = until it is resumed */
};

/* ret_refused "": it is done. */
static bool ask(struct ctl *ctl, const struct control_request *request, char ret_refused[32], struct err *err)
{
    enum control control = request->control;
    const char *name = request->name;
    pg_rows_scope struct pg_rows *rows = NULL;
    struct pg_param params[3 + ACTION_PARAMS] = {pg_param_string(controls[control].action), pg_param_string(name)};
    action_params(&request->action, params + 2);
    params[2 + ACTION_PARAMS] = request->pause_us > 0 ? pg_param_int8(request->pause_us / 1000) : pg_param_null();
    if (!pg_sync_query(ctl->db, &sql_operator_control, params, &rows, err))
        return false;
    const char *refused = pg_text(rows, 0, 0);
    snprintf(ret_refused, 32, "%s", refused ? refused : "");
    /* A wakeup that is lost costs a few seconds. */
    return refused || pg_sync_query(ctl->db, &sql_notify_wake, NULL, NULL, err);
}

/* Reads the cluster until all living workers obey, or the time is over. */
static bool wait_for_workers(struct ctl *ctl, enum control control, const char *name, const struct pg_rows *open,
                             struct cluster *cluster, struct err *err)
{
    int64_t until_ms = clock_mono_ms() + OBEYED_WITHIN_MS;
    for (;;) {
        cluster_done(cluster);
        if (!cluster_read(ctl->db, open, cluster, err))
            return false;
        const struct cluster_target *target = cluster_find_target(cluster, name);
        if (!target || obeyed_by(control, target) >= target->workers || clock_mono_ms() >= until_ms)
            return true;
        (void)stop_sleep_until(clock_mono_us() + LOOK_AGAIN_US);
    }
}

static void why_refused(const char *refused, const struct cluster_target *target, char *ret_text, size_t size)
{
    char time[PRINT_TIME_SIZE];
    if (strcmp(refused, "paused") == 0 && target && target->paused_us != 0)
        snprintf(ret_text, size, "it is paused already, by %.100s since %s: %.300s", target->paused_by,
                 print_time(target->paused_us, time), target->paused_why);
    else if (strcmp(refused, "paused") == 0)
        snprintf(ret_text, size, "it is paused");
    else if (strcmp(refused, "not_paused") == 0)
        snprintf(ret_text, size, "it is not paused");
    else
        snprintf(ret_text, size, "no target has such a name");
}

/* took_calls: nothing kept calls from the target before. */
static void describe(enum control control, const struct cluster_target *target, bool took_calls, char *ret_text,
                     size_t size)
{
    int64_t obeyed = obeyed_by(control, target);
    if (target->workers == 0)
        snprintf(ret_text, size, "no worker runs now; the next one reads it when it starts");
    else if (obeyed < target->workers)
        snprintf(ret_text, size, "%lld of %lld living workers have not obeyed within %d s: see issuing-ctl workers",
                 (long long)(target->workers - obeyed), (long long)target->workers, OBEYED_WITHIN_MS / 1000);
    else if (control == PROBE && took_calls)
        snprintf(ret_text, size, "it takes calls already, so there was nothing to probe");
    else if (control != PROBE || target->open + target->half_open == 0)
        snprintf(ret_text, size, "%lld of %lld living workers obey", (long long)obeyed, (long long)target->workers);
    else
        snprintf(ret_text, size,
                 "%lld of %lld living workers obey, and send the next call that they have; issuing-ctl targets shows "
                 "what came of it",
                 (long long)obeyed, (long long)target->workers);
}

static bool report(const struct ctl *ctl, enum control control, const char *name, const struct cluster *cluster,
                   bool took_calls, const char *refused, struct err *err)
{
    const struct cluster_target *target = cluster_find_target(cluster, name);
    const char *word = refused[0] ? "refused" : controls[control].done;
    struct cluster_target none = {.name = name};
    char text[600];
    if (refused[0])
        why_refused(refused, target, text, sizeof(text));
    else
        describe(control, target ? target : &none, took_calls, text, sizeof(text));
    if (!ctl->json) {
        print_result(name, word, text);
        return true;
    }
    struct json *object = cluster_target_json(target ? target : &none);
    json_add(&object, json_text("result", word));
    json_add(&object, json_text("why", text));
    json_add(&object, json_number("obeyed", target ? obeyed_by(control, target) : 0));
    return print_json(object, err);
}

/* *ret_open: the events that wait are counted once, however long this waits; owned by the caller. */
static bool run(struct ctl *ctl, const struct control_request *request, struct pg_rows **ret_open,
                struct cluster *cluster, struct err *err)
{
    enum control control = request->control;
    const char *name = request->name;
    char refused[32] = "";
    if (!ctl_connect(ctl, err) || !backlog_read(ctl->db, ret_open, err))
        return false;
    const struct pg_rows *open = *ret_open;
    if (!cluster_read(ctl->db, open, cluster, err) || !is_known(cluster, name, err))
        return false;
    bool took_calls = cluster_find_target(cluster, name)->blocked == 0;
    if (!ask(ctl, request, refused, err))
        return false;
    if (refused[0]) {
        ctl->code = CTL_REFUSED;
        cluster_done(cluster);
        return cluster_read(ctl->db, open, cluster, err) &&
               report(ctl, control, name, cluster, took_calls, refused, err);
    }
    return wait_for_workers(ctl, control, name, open, cluster, err) &&
           report(ctl, control, name, cluster, took_calls, refused, err);
}

static bool read_request(enum control control, char **arguments, int count, struct control_request *ret_request,
                         struct err *err)
{
    const char *reason = NULL, *span = NULL;
    const struct option_spec pause[] = {
        {.name = "reason", .text = &reason}, {.name = "for", .text = &span}, {.name = NULL}};
    const struct option_spec others[] = {{.name = "reason", .text = &reason}, {.name = NULL}};
    *ret_request = (struct control_request){.control = control};
    if (!options_read(control == PAUSE ? pause : others, arguments, count, &count, err))
        return false;
    if (count != 1)
        return err_set(err, ERR_USAGE, "%s takes one target: issuer, core, or the type of a route",
                       controls[control].word);
    ret_request->name = arguments[0];
    if (span && (!options_duration(span, &ret_request->pause_us) || ret_request->pause_us < 1000000))
        return err_set(err, ERR_USAGE, "--for needs a duration such as 90s, 2h or 1d");
    return action_init(&ret_request->action, reason, err);
}

static bool run_control(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    enum control control = PAUSE;
    struct control_request request;
    pg_rows_scope struct pg_rows *open = NULL;
    struct cluster cluster = {0};
    while (strcmp(controls[control].word, ctl->command->word) != 0)
        control++;
    bool done = read_request(control, arguments, count, &request, err) && run(ctl, &request, &open, &cluster, err);
    cluster_done(&cluster);
    return done;
}

#define CONTROL_HELP                                                                                             \
    "\n  --reason TEXT  why; stored in operator_actions\n\n"                                                     \
    "Workers obey at once, or within 5 s if the wakeup was lost. The command waits at most 6 s for the living\n" \
    "workers, and says which have not obeyed; these obey later (exit 0). Refused: exit 1.\n"

const struct ctl_command ctl_pause = {
    .word = "pause",
    .usage = "TARGET --reason TEXT [--for DURATION]",
    .summary = "stop calls to the issuer, core-api or the receiver of a route",
    .help = "Stops all new calls to a target (issuer, core, or the type of a route) at all workers, until it is\n"
            "resumed. Calls in flight end as usual. Events wait without using up an attempt; requests are accepted as\n"
            "before.\n\n"
            "  --for DURATION  the pause ends by itself after this time, e.g. 2h\n" CONTROL_HELP,
    .run = run_control,
};

const struct ctl_command ctl_resume = {
    .word = "resume",
    .usage = "TARGET --reason TEXT",
    .summary = "let calls to a paused target go on",
    .help = "Ends a pause: the events that waited continue at once.\n" CONTROL_HELP,
    .run = run_control,
};

const struct ctl_command ctl_probe = {
    .word = "probe",
    .usage = "TARGET --reason TEXT",
    .summary = "send a probe to an open or resting target now",
    .help = "Makes the next probe of a target due now, if its breaker is open or it rests: one event is sent as the\n"
            "probe, and after a good answer the others follow. No effect on a target that gets calls already;\n"
            "refused while it is paused.\n" CONTROL_HELP,
    .run = run_control,
};
