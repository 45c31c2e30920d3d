/* See heartbeat.h. One statement is in flight at a time: the note of the routes, the heartbeat that follows it, or at
 * the end the removal of the row. */
#include "worker/upkeep/heartbeat.h"

#include <string.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "common/lib/json/json_writer.h"
#include "statements.h"
#include "worker/upkeep/controls.h"
#include "worker/upkeep/route_note.h"

#define QUERY_TIMEOUT_MS 2000
#define LEAVE_TIMEOUT_MS 1500
#define FIRST_PAUSE_MS 500 /* after a first heartbeat that failed */
#define IDLE_POLL_MS 20
#define NOTE_EVERY 12   /* beats, while this worker has nothing to note: it also tidies up */
#define COLUMN_MAX 4096 /* bytes of a parameter with one element for each target */
#define AGREEMENT_MAX (256 * 1024)

#define FIRST_NOTED 1 /* parameter of heartbeat_routes: those of route_note_fill() */

/* Columns of heartbeat. */
enum {
    COL_TARGET,
    COL_IS_PAUSED,
    COL_PAUSED_BY,
    COL_PAUSED_WHY,
    COL_PROBE_NUMBER,
    COL_IS_NOTED,
    COL_LEAST_LIFETIME,
    COL_MOST_SETTLE,
};

/* What heartbeats are for at the moment. */
enum phase {
    /* The controls are not known, and the targets are paused. The first answer, or HEARTBEAT_FAILURES_MAX failures:
     * PHASE_WORKING. A stop: PHASE_DRAINING. */
    PHASE_STARTING,
    /* Every HEARTBEAT_INTERVAL_MS, or after a wakeup. A stop: PHASE_DRAINING. */
    PHASE_WORKING,
    /* One heartbeat shows that the worker drains. Then, when everything else is idle, the row is removed:
     * PHASE_LEFT. */
    PHASE_DRAINING,
    /* The removal was answered, or given up, or is in flight. */
    PHASE_LEFT,
};

struct heartbeat {
    struct job job;
    struct heartbeat_options options;
    struct controls controls;
    enum breaker_state sent_states[CONTROLS_TARGETS_MAX];
    struct route_note note;
    struct pg_columns columns;
    int64_t started_ms, sent_ms;
    char host[64];
    struct buf agreement;
    bool is_wanted; /* as soon as the gap is over */
    bool shows_drain;
    enum phase phase;
    int beats;    /* since the last note */
    int failures; /* in a row */
    bool was_noted;
};

/* ---- what is sent ---- */

/* When the next call may start, in ms from now; -1 = at any time, or not known. */
static int64_t next_call_ms(const struct target *target, int64_t now_ms)
{
    int64_t rest_ms = target_rest_ms(target, now_ms);
    if (target_state(target) != BREAKER_OPEN || target->is_unusable)
        return rest_ms > 0 ? rest_ms : -1;
    int64_t probe_ms = target_probe_at_ms(target) - now_ms;
    return probe_ms > rest_ms ? probe_ms : rest_ms;
}

/* The worker, the same in each row. */
static void set_worker(struct heartbeat *heartbeat, int64_t now_ms)
{
    const struct heartbeat_options *options = &heartbeat->options;
    struct pg_columns *columns = &heartbeat->columns;
    pg_columns_set_scalar(columns, pg_param_string(heartbeat->job.env->name));
    pg_columns_set_scalar(columns, pg_param_string(heartbeat->host));
    pg_columns_set_scalar(columns, pg_param_int8(getpid()));
    pg_columns_set_scalar(columns, pg_param_string(options->version));
    pg_columns_set_scalar(columns, pg_param_int8(now_ms - heartbeat->started_ms));
    pg_columns_set_scalar(columns, pg_param_int8(options->slots->in_flight));
    pg_columns_set_scalar(columns, pg_param_int8(options->slots->count));
    pg_columns_set_scalar(columns, pg_param_bool(heartbeat->phase == PHASE_DRAINING));
}

static void add_target(struct heartbeat *heartbeat, int index, int64_t now_ms)
{
    const struct peer *peer = heartbeat->controls.peers[index];
    const struct target *target = &peer->target;
    struct pg_columns *columns = &heartbeat->columns;
    int64_t next_ms = next_call_ms(target, now_ms), probes = heartbeat->controls.probes[index];
    int64_t certificate_s = peer->certificate_ends_s - clock_wall_us() / 1000000;
    enum breaker_state state = target_state(target);
    heartbeat->sent_states[index] = state;
    pg_columns_add_text(columns, peer->name);
    pg_columns_add_text(columns, breaker_state_name(state));
    pg_columns_add_int8(columns, now_ms - target_since_ms(target));
    pg_columns_add_text(columns, state != BREAKER_CLOSED ? target_cause(target) : NULL);
    pg_columns_add_bool(columns, target_rest_ms(target, now_ms) > 0);
    pg_columns_add_bool(columns, target->is_paused && heartbeat->phase != PHASE_STARTING);
    pg_columns_add_int8_or_null(columns, next_ms >= 0 ? &next_ms : NULL);
    pg_columns_add_int8(columns, target->breaker.in_flight);
    pg_columns_add_int8(columns, target->waiting_count);
    pg_columns_add_int8(columns, target->breaker.limit);
    pg_columns_add_int8(columns, probes > 0 ? probes : 0);
    pg_columns_add_int8_or_null(columns, peer->certificate_ends_s != 0 ? &certificate_s : NULL);
}

/* What all workers must have alike. */
static void set_agreed(struct heartbeat *heartbeat)
{
    const struct config *config = heartbeat->job.env->config;
    struct pg_columns *columns = &heartbeat->columns;
    pg_columns_set_scalar(columns, pg_param_text(heartbeat->agreement.bytes, heartbeat->agreement.length));
    pg_columns_set_scalar(columns, pg_param_int8(config->issuer.key_lifetime_ms));
    pg_columns_set_scalar(columns, pg_param_int8(config->issuer.settle_time_ms));
}

/* The parameters, in the order of the statement. False: out of memory. */
static bool fill_beat(struct heartbeat *heartbeat, int64_t now_ms)
{
    struct pg_columns *columns = &heartbeat->columns;
    pg_columns_start(columns);
    for (int i = 0; i < heartbeat->controls.count; i++) {
        pg_columns_start_row(columns);
        set_worker(heartbeat, now_ms);
        add_target(heartbeat, i, now_ms);
        set_agreed(heartbeat);
    }
    return pg_columns_finish(columns, heartbeat->job.query.params, sql_heartbeat.parameters);
}

static void on_beat(struct job *job, const struct pg_query_result *result);

static void send_beat(struct heartbeat *heartbeat)
{
    int64_t now_ms = clock_mono_ms();
    if (!fill_beat(heartbeat, now_ms)) {
        job_wait(&heartbeat->job, HEARTBEAT_INTERVAL_MS);
        return;
    }
    heartbeat->is_wanted = false;
    heartbeat->shows_drain = heartbeat->phase == PHASE_DRAINING;
    heartbeat->sent_ms = now_ms;
    job_send(&heartbeat->job, &sql_heartbeat, QUERY_TIMEOUT_MS, on_beat);
}

/* ---- the note of the routes, before it ---- */

static void note_failure(struct heartbeat *heartbeat, const struct pg_query_result *result);

static void work_without_controls(struct heartbeat *heartbeat)
{
    controls_do_without(&heartbeat->controls);
    heartbeat->options.on_obeyed(heartbeat->options.context);
}

/* After the first one, a note that fails changes nothing. */
static void on_routes_noted(struct job *job, const struct pg_query_result *result)
{
    struct heartbeat *heartbeat = container_of(job, struct heartbeat, job);
    bool is_done = result->kind == PG_DONE;
    if (is_done && !heartbeat->controls.routes_are_noted) {
        heartbeat->controls.routes_are_noted = true;
        if (heartbeat->phase == PHASE_WORKING)
            work_without_controls(heartbeat);
    }
    if (is_done)
        route_note_written(&heartbeat->note);
    if (is_done || heartbeat->phase != PHASE_STARTING) {
        send_beat(heartbeat);
        return;
    }
    note_failure(heartbeat, result);
    job_wait(&heartbeat->job, heartbeat->phase == PHASE_STARTING ? FIRST_PAUSE_MS : HEARTBEAT_INTERVAL_MS);
}

static void note_routes(struct heartbeat *heartbeat)
{
    if (heartbeat->controls.routes_are_noted && !route_note_is_due(&heartbeat->note) && heartbeat->beats < NOTE_EVERY) {
        heartbeat->beats++;
        send_beat(heartbeat);
        return;
    }
    heartbeat->beats = 0;
    struct pg_param *params = heartbeat->job.query.params;
    params[0] = pg_param_string(heartbeat->job.env->name);
    if (route_note_fill(&heartbeat->note, &params[FIRST_NOTED]))
        job_send(&heartbeat->job, &sql_heartbeat_routes, QUERY_TIMEOUT_MS, on_routes_noted);
    else
        job_wait(&heartbeat->job, heartbeat->phase == PHASE_STARTING ? FIRST_PAUSE_MS : HEARTBEAT_INTERVAL_MS);
}

/* ---- what comes back ---- */

static void note_failure(struct heartbeat *heartbeat, const struct pg_query_result *result)
{
    /* The database is away, starts, or is a standby yet. The daemon has logged that. */
    if (result->kind == PG_NOT_SENT || pg_sqlstate_is_transient(result->sqlstate))
        return;
    if (heartbeat->failures++ == 0)
        log_warning("a heartbeat failed", LOG_TEXT("sqlstate", result->sqlstate), LOG_TEXT("why", result->message));
    /* guard: controls that cannot be read stop no worker */
    if (heartbeat->phase == PHASE_STARTING && heartbeat->failures >= HEARTBEAT_FAILURES_MAX) {
        log_warning("what operators have paused cannot be read: nothing counts as paused");
        heartbeat->phase = PHASE_WORKING;
        work_without_controls(heartbeat);
    }
}

static void note_agreed(struct peers *peers, const struct pg_rows *rows)
{
    if (pg_rows_count(rows) == 0 || pg_is_null(rows, 0, COL_LEAST_LIFETIME))
        return; /* the table is locked */
    peers->least_key_lifetime_ms = pg_int8(rows, 0, COL_LEAST_LIFETIME);
    peers->most_settle_time_ms = pg_int8(rows, 0, COL_MOST_SETTLE);
}

/* Returns whether a control was obeyed just now. */
static bool note_answer(struct heartbeat *heartbeat, const struct pg_rows *rows)
{
    bool has_changed = false, is_noted = true;
    note_agreed(heartbeat->job.env->peers, rows);
    for (int row = 0; row < pg_rows_count(rows); row++) {
        struct control control = {
            .target = pg_bytes(rows, row, COL_TARGET),
            .is_paused = pg_bool(rows, row, COL_IS_PAUSED),
            .by = pg_text(rows, row, COL_PAUSED_BY),
            .why = pg_text(rows, row, COL_PAUSED_WHY),
            .probe = pg_int8(rows, row, COL_PROBE_NUMBER),
        };
        has_changed |= controls_obey(&heartbeat->controls, &control);
        is_noted &= pg_bool(rows, row, COL_IS_NOTED);
    }
    if (heartbeat->failures > 0 || is_noted != heartbeat->was_noted) {
        if (is_noted)
            log_info("heartbeats are written again");
        else
            log_warning("a heartbeat could not be written; controls are obeyed all the same");
    }
    heartbeat->was_noted = is_noted;
    heartbeat->failures = 0;
    if (heartbeat->phase == PHASE_STARTING)
        heartbeat->phase = PHASE_WORKING;
    return has_changed;
}

static int64_t gap_left_ms(const struct heartbeat *heartbeat)
{
    return heartbeat->sent_ms + HEARTBEAT_GAP_MS - clock_mono_ms();
}

static void on_beat(struct job *job, const struct pg_query_result *result)
{
    struct heartbeat *heartbeat = container_of(job, struct heartbeat, job);
    bool has_changed = result->kind == PG_DONE && note_answer(heartbeat, result->rows);
    if (result->kind != PG_DONE)
        note_failure(heartbeat, result);
    if (has_changed)
        heartbeat->options.on_obeyed(heartbeat->options.context);
    if (heartbeat->phase == PHASE_DRAINING || has_changed) /* others wait to see it */
        job_wait(&heartbeat->job, 0);
    else if (heartbeat->phase == PHASE_STARTING)
        job_wait(&heartbeat->job, FIRST_PAUSE_MS);
    else
        job_wait(&heartbeat->job, heartbeat->is_wanted ? gap_left_ms(heartbeat) : HEARTBEAT_INTERVAL_MS);
}

/* ---- the end ---- */

static void on_left(struct job *job, const struct pg_query_result *result)
{
    (void)job, (void)result; /* ignoring: without it the worker counts as dead in a minute */
}

static void leave(struct heartbeat *heartbeat)
{
    struct job *job = &heartbeat->job;
    heartbeat->phase = PHASE_LEFT;
    if (!pg_pool_ready(job->env->pool))
        return;
    job->query.params[0] = pg_param_string(job->env->name);
    job->query.yields = false;
    job_send(job, &sql_heartbeat_leave, LEAVE_TIMEOUT_MS, on_left);
}

static void on_due(struct job *job)
{
    struct heartbeat *heartbeat = container_of(job, struct heartbeat, job);
    const struct heartbeat_options *options = &heartbeat->options;
    if (job->is_busy)
        return;
    if (heartbeat->phase != PHASE_DRAINING) {
        note_routes(heartbeat);
    } else if (options->is_rest_idle(options->context) && jobs_are_idle(job->env->jobs, job)) {
        leave(heartbeat);
    } else if (!heartbeat->shows_drain && pg_pool_ready(job->env->pool)) {
        send_beat(heartbeat);
    } else {
        job_wait(job, IDLE_POLL_MS);
    }
}

/* ---- open, wake, stop, close ---- */

static void copy_host(struct heartbeat *heartbeat, const char *name)
{
    const char *colon = strrchr(name, ':');
    size_t length = colon ? (size_t)(colon - name) : strlen(name);
    if (length >= sizeof(heartbeat->host))
        length = sizeof(heartbeat->host) - 1;
    memcpy(heartbeat->host, name, length);
    heartbeat->host[length] = '\0';
}

static void add_agreed(void *context, const char *name, const char *value)
{
    json_add_text(context, name, value);
}

/* False: out of memory. */
static bool write_agreement(const struct config *config, struct buf *out)
{
    struct json_writer writer = json_writer_of(out);
    buf_init(out, AGREEMENT_MAX);
    json_open_object(&writer, NULL);
    bool is_whole = config_each_agreed(config, add_agreed, &writer);
    json_close_object(&writer);
    return is_whole && !out->failed;
}

static void on_stop(struct job *job)
{
    container_of(job, struct heartbeat, job)->phase = PHASE_DRAINING;
    job->is_stopped = false; /* its last statements follow */
    if (!job->is_busy)
        job_wait(job, 0);
}

static bool is_idle(const struct job *job)
{
    return container_of(job, const struct heartbeat, job)->phase == PHASE_LEFT && !job->is_busy;
}

static void release(struct job *job)
{
    struct heartbeat *heartbeat = container_of(job, struct heartbeat, job);
    pg_columns_done(&heartbeat->columns);
    buf_done(&heartbeat->agreement);
    route_note_done(&heartbeat->note);
}

bool heartbeat_open(const struct heartbeat_options *options, const struct worker_env *env,
                    struct heartbeat **ret_heartbeat, struct err *err)
{
    static const struct job_kind kind = {
        .name = "the heartbeat", .on_due = on_due, .on_stop = on_stop, .is_idle = is_idle, .release = release};
    struct heartbeat *heartbeat = job_new(&kind, env, sizeof(*heartbeat), err);
    if (!heartbeat)
        return false;
    heartbeat->options = *options;
    heartbeat->job.query.yields = true; /* nobody waits behind a heartbeat, nor for its connection */
    heartbeat->started_ms = clock_mono_ms();
    heartbeat->was_noted = true;
    copy_host(heartbeat, env->name);
    pg_columns_init(&heartbeat->columns, COLUMN_MAX);
    controls_open(&heartbeat->controls, env->peers, env->routes);
    route_note_init(&heartbeat->note, env->routes, &heartbeat->controls);
    if (!write_agreement(env->config, &heartbeat->agreement))
        return err_set(err, ERR_MEMORY, "no memory for the heartbeat");
    job_wait(&heartbeat->job, 0);
    *ret_heartbeat = heartbeat;
    return true;
}

void heartbeat_wake(struct heartbeat *heartbeat)
{
    if (heartbeat->phase > PHASE_WORKING || heartbeat->is_wanted)
        return;
    heartbeat->is_wanted = true;
    int64_t left_ms = gap_left_ms(heartbeat);
    if (!heartbeat->job.is_busy && (int64_t)uv_timer_get_due_in(&heartbeat->job.timer) > left_ms)
        job_wait(&heartbeat->job, left_ms);
}

void heartbeat_target_changed(struct heartbeat *heartbeat)
{
    for (int i = 0; i < heartbeat->controls.count; i++)
        if (target_state(&heartbeat->controls.peers[i]->target) != heartbeat->sent_states[i])
            heartbeat_wake(heartbeat);
}
