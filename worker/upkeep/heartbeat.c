/* See heartbeat.h. One statement is in flight at a time: the note of the routes, the heartbeat that follows it, or at
 * the end the removal of the row. */
#include "worker/upkeep/heartbeat.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/log.h"
#include "common/lib/json/json_writer.h"
#include "statements.h"
#include "worker/upkeep/controls.h"
#include "worker/upkeep/route_note.h"

#define QUERY_TIMEOUT_MS 2000
#define LEAVE_TIMEOUT_MS 1500
#define FIRST_PAUSE_MS 500 /* after a first heartbeat that failed */
#define IDLE_POLL_MS 20
#define NOTE_EVERY 12  /* beats, while this worker has nothing to note: it also tidies up */
#define ARRAY_MAX 4096 /* bytes of one parameter */
#define AGREEMENT_MAX (256 * 1024)

/* The parameters that have one element for each target, from $9 on. */
enum array {
    NAMES,
    STATES,
    SINCE_AGES,
    CAUSES,
    RESTS,
    PAUSES,
    NEXT_CALLS,
    FLIGHTS,
    WAITS,
    LIMITS,
    PROBES,
    CERTIFICATES,
    ARRAYS,
};
#define FIRST_ARRAY 8 /* the index of its parameter */
#define FIRST_NOTED 1 /* of heartbeat_routes: those of route_note_fill() */
#define AGREEMENT (FIRST_ARRAY + ARRAYS)

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
    struct heartbeat_options options;
    struct controls controls;
    enum breaker_state sent_states[CONTROLS_TARGETS_MAX];
    struct route_note note;
    uv_timer_t timer;
    int64_t started_ms, sent_ms;
    char host[64];
    struct pg_query query;
    struct buf arrays[ARRAYS], agreement;
    bool is_in_flight;
    bool is_wanted; /* as soon as the gap is over */
    bool shows_drain;
    enum phase phase;
    int beats;    /* since the last note */
    int failures; /* in a row */
    bool was_noted;
    struct closing closing;
};

static void on_timer(uv_timer_t *timer);

static void beat_in(struct heartbeat *heartbeat, int64_t ms)
{
    uv_timer_start(&heartbeat->timer, on_timer, (uint64_t)(ms > 0 ? ms : 0), 0);
}

/* ---- what is sent ---- */

static const char *state_word(enum breaker_state state)
{
    switch (state) {
    case BREAKER_CLOSED:
        return "closed";
    case BREAKER_HALF_OPEN:
        return "half_open";
    case BREAKER_OPEN:
        return "open";
    }
    return "closed";
}

static void add_text(struct pg_array *array, const char *text)
{
    pg_array_add(array, text, text ? strlen(text) : 0);
}

/* When the next call may start, in ms from now; -1 = at any time, or not known. */
static int64_t next_call_ms(const struct target *target, int64_t now_ms)
{
    int64_t rest_ms = target_rest_ms(target, now_ms);
    if (target_state(target) != BREAKER_OPEN || target->is_unusable)
        return rest_ms > 0 ? rest_ms : -1;
    int64_t probe_ms = target_probe_at_ms(target) - now_ms;
    return probe_ms > rest_ms ? probe_ms : rest_ms;
}

static void add_target(struct heartbeat *heartbeat, int index, struct pg_array arrays[ARRAYS], int64_t now_ms)
{
    const struct peer *peer = heartbeat->controls.peers[index];
    const struct target *target = &peer->target;
    const struct breaker *breaker = &target->breaker;
    int64_t next_ms = next_call_ms(target, now_ms);
    enum breaker_state state = target_state(target);
    heartbeat->sent_states[index] = state;
    add_text(&arrays[NAMES], peer->name);
    add_text(&arrays[STATES], state_word(state));
    pg_array_add_int8(&arrays[SINCE_AGES], now_ms - target_since_ms(target));
    add_text(&arrays[CAUSES], state != BREAKER_CLOSED ? target_cause(target) : NULL);
    pg_array_add_bool(&arrays[RESTS], target_rest_ms(target, now_ms) > 0);
    pg_array_add_bool(&arrays[PAUSES], target->is_paused && heartbeat->phase != PHASE_STARTING);
    if (next_ms >= 0)
        pg_array_add_int8(&arrays[NEXT_CALLS], next_ms);
    else
        pg_array_add(&arrays[NEXT_CALLS], NULL, 0);
    pg_array_add_int8(&arrays[FLIGHTS], breaker->in_flight);
    pg_array_add_int8(&arrays[WAITS], target->waiting_count);
    pg_array_add_int8(&arrays[LIMITS], breaker->limit);
    pg_array_add_int8(&arrays[PROBES], heartbeat->controls.probes[index] > 0 ? heartbeat->controls.probes[index] : 0);
    if (peer->certificate_ends_s != 0)
        pg_array_add_int8(&arrays[CERTIFICATES], peer->certificate_ends_s - clock_wall_us() / 1000000);
    else
        pg_array_add(&arrays[CERTIFICATES], NULL, 0);
}

/* False: out of memory. */
static bool fill_arrays(struct heartbeat *heartbeat, int64_t now_ms)
{
    static const enum pg_type types[ARRAYS] = {
        [NAMES] = PG_TEXT, [STATES] = PG_TEXT, [SINCE_AGES] = PG_INT8, [CAUSES] = PG_TEXT,
        [RESTS] = PG_BOOL, [PAUSES] = PG_BOOL, [NEXT_CALLS] = PG_INT8, [FLIGHTS] = PG_INT8,
        [WAITS] = PG_INT8, [LIMITS] = PG_INT8, [PROBES] = PG_INT8,     [CERTIFICATES] = PG_INT8,
    };
    struct pg_array arrays[ARRAYS];
    bool is_whole = true;
    for (int i = 0; i < ARRAYS; i++)
        pg_array_start(&arrays[i], &heartbeat->arrays[i], types[i]);
    for (int i = 0; i < heartbeat->controls.count; i++)
        add_target(heartbeat, i, arrays, now_ms);
    for (int i = 0; i < ARRAYS; i++) {
        heartbeat->query.params[FIRST_ARRAY + i] = pg_array_param(&arrays[i]);
        is_whole &= !heartbeat->arrays[i].failed;
    }
    return is_whole;
}

static void on_beat(struct pg_query *query, const struct pg_query_result *result);

/* Nobody waits behind a heartbeat, nor for its connection. */
static void submit(struct heartbeat *heartbeat, const struct sql_statement *statement,
                   void (*on_result)(struct pg_query *query, const struct pg_query_result *result))
{
    const struct heartbeat_options *options = &heartbeat->options;
    struct pg_query *query = &heartbeat->query;
    heartbeat->is_in_flight = true;
    query->statement = statement;
    query->params[0] = pg_param_text(options->worker_name, strlen(options->worker_name));
    query->timeout_ms = QUERY_TIMEOUT_MS;
    query->is_slow = true;
    query->yields = true;
    query->on_result = on_result;
    pg_pool_submit(options->pool, query);
}

static void send_beat(struct heartbeat *heartbeat)
{
    const struct heartbeat_options *options = &heartbeat->options;
    struct pg_query *query = &heartbeat->query;
    int64_t now_ms = clock_mono_ms();
    if (!fill_arrays(heartbeat, now_ms)) {
        beat_in(heartbeat, HEARTBEAT_INTERVAL_MS);
        return;
    }
    heartbeat->is_wanted = false;
    heartbeat->shows_drain = heartbeat->phase == PHASE_DRAINING;
    heartbeat->sent_ms = now_ms;
    query->params[1] = pg_param_text(heartbeat->host, strlen(heartbeat->host));
    query->params[2] = pg_param_int8(getpid());
    query->params[3] = pg_param_text(options->version, strlen(options->version));
    query->params[4] = pg_param_int8(now_ms - heartbeat->started_ms);
    query->params[5] = pg_param_int8(options->slots->in_flight);
    query->params[6] = pg_param_int8(options->slots->count);
    query->params[7] = pg_param_bool(heartbeat->shows_drain);
    query->params[AGREEMENT] = pg_param_text(heartbeat->agreement.bytes, heartbeat->agreement.length);
    query->params[AGREEMENT + 1] = pg_param_int8(options->config->issuer.key_lifetime_ms);
    query->params[AGREEMENT + 2] = pg_param_int8(options->config->issuer.settle_time_ms);
    submit(heartbeat, &sql_heartbeat, on_beat);
}

/* ---- the note of the routes, before it ---- */

static void note_failure(struct heartbeat *heartbeat, const struct pg_query_result *result);

static void work_without_controls(struct heartbeat *heartbeat)
{
    controls_do_without(&heartbeat->controls);
    heartbeat->options.on_obeyed(heartbeat->options.context);
}

/* After the first one, a note that fails changes nothing. */
static void on_routes_noted(struct pg_query *query, const struct pg_query_result *result)
{
    struct heartbeat *heartbeat = container_of(query, struct heartbeat, query);
    heartbeat->is_in_flight = false;
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
    beat_in(heartbeat, heartbeat->phase == PHASE_STARTING ? FIRST_PAUSE_MS : HEARTBEAT_INTERVAL_MS);
}

static void note_routes(struct heartbeat *heartbeat)
{
    if (heartbeat->controls.routes_are_noted && !route_note_is_due(&heartbeat->note) && heartbeat->beats < NOTE_EVERY) {
        heartbeat->beats++;
        send_beat(heartbeat);
        return;
    }
    heartbeat->beats = 0;
    if (route_note_fill(&heartbeat->note, &heartbeat->query.params[FIRST_NOTED]))
        submit(heartbeat, &sql_heartbeat_routes, on_routes_noted);
    else
        beat_in(heartbeat, heartbeat->phase == PHASE_STARTING ? FIRST_PAUSE_MS : HEARTBEAT_INTERVAL_MS);
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
    note_agreed(heartbeat->options.peers, rows);
    for (int row = 0; row < pg_rows_count(rows); row++) {
        struct control control = {
            .target = pg_bytes(rows, row, COL_TARGET),
            .is_paused = pg_bool(rows, row, COL_IS_PAUSED),
            .by = pg_bytes(rows, row, COL_PAUSED_BY).bytes,
            .why = pg_bytes(rows, row, COL_PAUSED_WHY).bytes,
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

static void on_beat(struct pg_query *query, const struct pg_query_result *result)
{
    struct heartbeat *heartbeat = container_of(query, struct heartbeat, query);
    heartbeat->is_in_flight = false;
    bool has_changed = result->kind == PG_DONE && note_answer(heartbeat, result->rows);
    if (result->kind != PG_DONE)
        note_failure(heartbeat, result);
    if (has_changed)
        heartbeat->options.on_obeyed(heartbeat->options.context);
    if (heartbeat->phase == PHASE_DRAINING || has_changed) /* others wait to see it */
        beat_in(heartbeat, 0);
    else if (heartbeat->phase == PHASE_STARTING)
        beat_in(heartbeat, FIRST_PAUSE_MS);
    else
        beat_in(heartbeat, heartbeat->is_wanted ? gap_left_ms(heartbeat) : HEARTBEAT_INTERVAL_MS);
}

/* ---- the end ---- */

static void on_left(struct pg_query *query, const struct pg_query_result *result)
{
    (void)result; /* ignoring: without it the worker counts as dead in a minute */
    struct heartbeat *heartbeat = container_of(query, struct heartbeat, query);
    heartbeat->is_in_flight = false;
}

static void leave(struct heartbeat *heartbeat)
{
    const struct heartbeat_options *options = &heartbeat->options;
    struct pg_query *query = &heartbeat->query;
    heartbeat->phase = PHASE_LEFT;
    if (!pg_pool_ready(options->pool))
        return;
    heartbeat->is_in_flight = true;
    query->statement = &sql_heartbeat_leave;
    query->params[0] = pg_param_text(options->worker_name, strlen(options->worker_name));
    query->timeout_ms = LEAVE_TIMEOUT_MS;
    query->is_slow = true;
    query->yields = false;
    query->on_result = on_left;
    pg_pool_submit(options->pool, query);
}

static void on_timer(uv_timer_t *timer)
{
    struct heartbeat *heartbeat = container_of(timer, struct heartbeat, timer);
    const struct heartbeat_options *options = &heartbeat->options;
    if (heartbeat->is_in_flight)
        return;
    if (heartbeat->phase != PHASE_DRAINING) {
        note_routes(heartbeat);
    } else if (options->is_rest_idle(options->context)) {
        leave(heartbeat);
    } else if (!heartbeat->shows_drain && pg_pool_ready(options->pool)) {
        send_beat(heartbeat);
    } else {
        beat_in(heartbeat, IDLE_POLL_MS);
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

bool heartbeat_open(const struct heartbeat_options *options, struct heartbeat **ret_heartbeat, struct err *err)
{
    struct heartbeat *heartbeat = calloc(1, sizeof(*heartbeat));
    struct buf agreement;
    if (!write_agreement(options->config, &agreement) || !heartbeat) {
        buf_done(&agreement);
        free(heartbeat);
        return err_set(err, ERR_MEMORY, "no memory for the heartbeat");
    }
    heartbeat->agreement = agreement;
    heartbeat->options = *options;
    heartbeat->started_ms = clock_mono_ms();
    heartbeat->was_noted = true;
    copy_host(heartbeat, options->worker_name);
    for (int i = 0; i < ARRAYS; i++)
        buf_init(&heartbeat->arrays[i], ARRAY_MAX);
    controls_open(&heartbeat->controls, options->peers, options->routes);
    route_note_init(&heartbeat->note, options->routes, &heartbeat->controls);
    uv_timer_init(options->loop, &heartbeat->timer);
    beat_in(heartbeat, 0);
    *ret_heartbeat = heartbeat;
    return true;
}

void heartbeat_wake(struct heartbeat *heartbeat)
{
    if (heartbeat->phase > PHASE_WORKING || heartbeat->is_wanted)
        return;
    heartbeat->is_wanted = true;
    int64_t left_ms = gap_left_ms(heartbeat);
    if (!heartbeat->is_in_flight && (int64_t)uv_timer_get_due_in(&heartbeat->timer) > left_ms)
        beat_in(heartbeat, left_ms);
}

void heartbeat_target_changed(struct heartbeat *heartbeat)
{
    for (int i = 0; i < heartbeat->controls.count; i++)
        if (target_state(&heartbeat->controls.peers[i]->target) != heartbeat->sent_states[i])
            heartbeat_wake(heartbeat);
}

void heartbeat_stop(struct heartbeat *heartbeat)
{
    heartbeat->phase = PHASE_DRAINING;
    if (!heartbeat->is_in_flight)
        beat_in(heartbeat, 0);
}

bool heartbeat_is_idle(const struct heartbeat *heartbeat)
{
    return heartbeat->phase == PHASE_LEFT && !heartbeat->is_in_flight;
}

static void release(void *module)
{
    struct heartbeat *heartbeat = module;
    for (int i = 0; i < ARRAYS; i++)
        buf_done(&heartbeat->arrays[i]);
    buf_done(&heartbeat->agreement);
    route_note_done(&heartbeat->note);
    free(heartbeat);
}

void heartbeat_close(struct heartbeat *heartbeat, void (*on_closed)(void *context), void *context)
{
    assert(heartbeat_is_idle(heartbeat));
    closing_start(&heartbeat->closing, release, heartbeat, on_closed, context);
    closing_handle(&heartbeat->closing, &heartbeat->timer);
    closing_end(&heartbeat->closing);
}
