/* See cell_transit.h.
 *
 * The mover looks at both databases, does the one step that comes next (cell_steps.c), and looks again; it believes
 * nothing that it has not just read. So a repeated command goes on wherever a mover died, and two movers of one bucket
 * only take steps from each other.
 *
 * Invariants: before the source has left, a failure is undone and the bucket is served where it was; behind it, the
 * only way is forward. The source leaves only within max_pause_ms of its closing. A lost connection is opened again for
 * RECONNECT_MS, and what was in memory is forgotten; but a closed source is opened at once when the destination is
 * lost, and that needs the source only. A mover that finds its move undone does not begin another one.
 * Left out: what the steps do in the databases (issuing.cell_*). */
#include "ctl/cells/cell_transit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "ctl/cells/cell_copy.h"
#include "ctl/stop.h"
#include "statements.h"

#define BUSY_NAP_MS 20     /* between two looks at attempts under way */
#define LOCK_NAP_MS 500    /* after a lock was not to be had: writers and claims get on */
#define RECONNECT_MS 30000 /* a failover in the middle of a move */
#define RECONNECT_NAP_US 250000
#define EMPTY_ROWS 1000    /* deleted at once */
#define QUICK_LEAST_MS 500 /* for an answer of the destination during the pause */
#define LOCK_WAIT_MS 15000 /* a mover that was stopped in a transaction loses it after 10 s (cell_session) */
#define STEPS_MAX 200      /* a move has ten; more means that two movers fight for the bucket */

/* One bucket under way. */
struct transit {
    const struct cell_mover *mover;
    int bucket, from, to;
    struct cell_db *source, *destination;
    struct cell_side source_side, destination_side; /* as they were read last */
    struct cell_memory memory;
    enum cell_wish wish;
    bool is_hasty;  /* a database is known to be away: no time to connect again */
    bool has_begun; /* this run has listed the bucket, or found it on its way: `move` */
    struct uuid move;
    int64_t drain_since_us;  /* 0: it does not wait for attempts */
    int64_t closed_since_us; /* of the pause; 0 = clients are served */
    int64_t copy_until_us;   /* the copy's share of --max-pause */
    int64_t away_until_us;   /* 0: both databases answer */
    int64_t lock_until_us;   /* 0: no lock of another mover was met */
    struct cell_report *report;
};

/* ---- the steps ---- */

static bool call_move(struct transit *transit, struct cell_db *cell, const struct sql_statement *statement,
                      const struct uuid *move, struct err *err)
{
    const struct pg_param params[] = {pg_param_int8(transit->bucket), pg_param_uuid(move)};
    return cell_query(cell, statement, params, NULL, err);
}

bool cell_list_buckets(struct cell_db *source, const struct cell_buckets *fresh, const struct cell_buckets *all,
                       const char *to, const struct uuid *move, struct err *err)
{
    struct buf fresh_room, all_room;
    const struct pg_param lists[] = {cell_buckets_param(fresh, &fresh_room), pg_param_text(to, strlen(to)),
                                     pg_param_uuid(move)};
    const struct pg_param scans[] = {cell_buckets_param(all, &all_room)};
    bool is_done = !fresh_room.failed && !all_room.failed;
    if (!is_done)
        err_set(err, ERR_MEMORY, "out of memory");
    is_done = is_done && (fresh->count == 0 || cell_query(source, &sql_cell_list, lists, NULL, err)) &&
              cell_be_patient(source, true, err) && cell_query(source, &sql_cell_list_users, scans, NULL, err) &&
              cell_be_patient(source, false, err);
    buf_done(&fresh_room);
    buf_done(&all_room);
    return is_done;
}

static bool run_list(struct transit *transit, struct err *err)
{
    struct cell_buckets one = {.count = 0};
    cell_buckets_put(&one, transit->bucket);
    transit->move = uuid7_make();
    transit->has_begun =
        cell_list_buckets(transit->source, &one, &one, transit->destination->name, &transit->move, err);
    return transit->has_begun;
}

static bool run_expect(struct transit *transit, struct err *err)
{
    pg_rows_scope struct pg_rows *clock = NULL;
    const char *from = transit->source->name;
    if (!cell_query(transit->source, &sql_cell_clock, NULL, &clock, err))
        return false;
    const struct pg_param params[] = {pg_param_int8(transit->bucket), pg_param_text(from, strlen(from)),
                                      pg_param_uuid(&transit->source_side.move), pg_param_int8(pg_int8(clock, 0, 0))};
    return cell_query(transit->destination, &sql_cell_expect, params, NULL, err);
}

static bool run_drain(struct transit *transit, struct err *err)
{
    return call_move(transit, transit->source, &sql_cell_drain, &transit->source_side.move, err);
}

static bool is_lock_timeout(const struct err *err)
{
    return err_is_sqlstate(err, "55P03");
}

/* Not ended by a signal: the bucket under way is finished first. */
static void nap(long ms)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static bool await_idle(struct transit *transit, int64_t until_us, struct err *err)
{
    for (;;) {
        pg_rows_scope struct pg_rows *rows = NULL;
        const struct pg_param params[] = {pg_param_int8(transit->bucket)};
        if (!cell_query(transit->source, &sql_cell_busy, params, &rows, err))
            return false;
        int64_t busy = pg_int8(rows, 0, 0);
        /* guard: a move waits for attempts under way */
        if (busy == 0)
            return true;
        if (clock_mono_us() >= until_us)
            return err_set(err, ERR_REFUSED, "%" PRId64 " attempts were still under way after --drain-timeout", busy);
        if (stop_is_requested())
            return err_set(err, ERR_REFUSED, "stopped while %" PRId64 " attempts were under way", busy);
        nap(BUSY_NAP_MS);
    }
}

/* The rest is for leaving, arriving and the router. */
static int64_t copy_share_us(const struct transit *transit)
{
    return transit->mover->order->max_pause_ms * 800;
}

static bool ask_to_close(struct transit *transit, bool *ret_is_closed, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_int8(transit->bucket), pg_param_uuid(&transit->source_side.move)};
    if (!cell_query(transit->source, &sql_cell_close, params, &rows, err))
        return false;
    *ret_is_closed = pg_bool(rows, 0, 0);
    return true;
}

/* While the exclusive lock is waited for, writers are refused: that wait belongs to the pause, and is short each
 * time. */
static bool run_close(struct transit *transit, struct err *err)
{
    bool is_closed = false;
    if (transit->drain_since_us == 0)
        transit->drain_since_us = clock_mono_us();
    int64_t until_us = transit->drain_since_us + transit->mover->order->drain_timeout_ms * 1000;
    while (!is_closed) {
        if (!await_idle(transit, until_us, err))
            return false;
        int64_t now_us = clock_mono_us();
        bool is_asked = ask_to_close(transit, &is_closed, err);
        if (is_closed) {
            transit->closed_since_us = now_us;
            transit->copy_until_us = now_us + copy_share_us(transit);
            transit->report->drain_us = now_us - transit->drain_since_us;
        } else if (!is_asked && !is_lock_timeout(err)) {
            return false;
        } else if (clock_mono_us() >= until_us) {
            return err_set(err, ERR_REFUSED, "writers of the bucket did not end within --drain-timeout");
        } else if (stop_is_requested()) {
            return err_set(err, ERR_REFUSED, "stopped while writers of the bucket were under way");
        } else if (!is_asked) {
            nap(LOCK_NAP_MS);
        }
    }
    return true;
}

static bool run_copy(struct transit *transit, struct err *err)
{
    struct cell_copied copied;
    if (!cell_copy(transit->source, transit->destination, transit->bucket, &transit->source_side.move,
                   transit->copy_until_us / 1000, &copied, err))
        return false;
    transit->report->rows = copied.rows;
    transit->report->bytes = copied.bytes;
    transit->memory.is_copied = true;
    return true;
}

static bool run_leave(struct transit *transit, struct err *err)
{
    if (clock_mono_us() > transit->copy_until_us)
        return err_set(err, ERR_REFUSED, "the rows were copied, but not within --max-pause");
    return call_move(transit, transit->source, &sql_cell_leave, &transit->source_side.move, err);
}

static bool run_arrive(struct transit *transit, struct err *err)
{
    return cell_query(transit->source, &sql_cell_flush, NULL, NULL, err) &&
           call_move(transit, transit->destination, &sql_cell_arrive, &transit->destination_side.move, err);
}

/* A place of the router that does not answer is waited for, but clients of the others are served. */
static void end_pause(struct transit *transit, int64_t now_us)
{
    if (transit->closed_since_us > 0)
        transit->report->pause_us = now_us - transit->closed_since_us;
    transit->closed_since_us = 0;
}

static bool run_router(struct transit *transit, struct err *err)
{
    struct cell_router *router = transit->mover->router;
    int64_t arrived_us = clock_mono_us();
    (void)err;
    /* guard: the router is told of each bucket as it arrives */
    transit->report->unrouted = cell_router_flip(router, transit->bucket, transit->destination->name);
    end_pause(transit, router->told_us > arrived_us ? router->told_us : arrived_us);
    transit->memory.is_routed = true;
    return true;
}

bool cell_empty(struct cell_db *cell, int bucket, int64_t *rows, struct err *err)
{
    const struct pg_param params[] = {pg_param_int8(bucket), pg_param_int8(EMPTY_ROWS)};
    for (;;) {
        pg_rows_scope struct pg_rows *answer = NULL;
        struct cell_side side;
        if (!cell_query(cell, &sql_cell_empty, params, &answer, err))
            return false;
        *rows += pg_int8(answer, 0, 0);
        if (!cell_read_side(cell, bucket, &side, err))
            return false;
        if (side.state != CELL_GONE)
            return true;
        if (pg_int8(answer, 0, 0) == 0)
            return err_set(err, ERR_REFUSED, "cell %s: bucket %d was not emptied", cell->name, bucket);
    }
}

static bool run_empty(struct transit *transit, struct err *err)
{
    int64_t rows = 0;
    return cell_empty(transit->source, transit->bucket, &rows, err);
}

static bool run_open(struct transit *transit, struct err *err)
{
    if (!call_move(transit, transit->source, &sql_cell_open, &transit->source_side.move, err))
        return false;
    end_pause(transit, clock_mono_us());
    return true;
}

static bool run_refuse(struct transit *transit, struct err *err)
{
    return call_move(transit, transit->destination, &sql_cell_refuse, &transit->destination_side.move, err);
}

static bool (*const runs[CELL_STEP_COUNT])(struct transit *transit, struct err *err) = {
    [CELL_STEP_LIST] = run_list,     [CELL_STEP_EXPECT] = run_expect, [CELL_STEP_DRAIN] = run_drain,
    [CELL_STEP_CLOSE] = run_close,   [CELL_STEP_COPY] = run_copy,     [CELL_STEP_LEAVE] = run_leave,
    [CELL_STEP_ARRIVE] = run_arrive, [CELL_STEP_ROUTER] = run_router, [CELL_STEP_EMPTY] = run_empty,
    [CELL_STEP_OPEN] = run_open,     [CELL_STEP_REFUSE] = run_refuse,
};

/* ---- one bucket ---- */

static bool has_session(const struct cell_db *cell)
{
    return cell->ctl.db && !pg_sync_is_lost(cell->ctl.db);
}

/* Before the source has left its row alone says who has the bucket, so an undo opens it whatever the destination is. */
static bool can_open(const struct transit *transit)
{
    enum cell_state state = transit->source_side.state;
    return transit->wish == CELL_WISH_UNDO && (state == CELL_LISTING || state == CELL_DRAINING || state == CELL_CLOSED);
}

static bool look_at_source(struct transit *transit, struct err *err)
{
    if (!cell_open(transit->mover->cells, transit->from, err) ||
        !cell_read_side(transit->source, transit->bucket, &transit->source_side, err))
        return false;
    transit->report->source_state = transit->source_side.state;
    return true;
}

/* During the pause a destination that is silent is given up when the copy's time is over. */
static bool look_at_destination(struct transit *transit, struct err *err)
{
    struct cell_db *destination = transit->destination;
    int64_t left_ms = (transit->copy_until_us - clock_mono_us()) / 1000;
    /* guard: an undo needs no destination to open the source */
    if (can_open(transit) && !has_session(destination)) {
        transit->destination_side = (struct cell_side){.state = CELL_AWAY};
        return true;
    }
    if (!cell_open(transit->mover->cells, transit->to, err))
        return false;
    cell_limit(destination, transit->source_side.state != CELL_CLOSED ? 0
                            : left_ms > QUICK_LEAST_MS                ? left_ms
                                                                      : QUICK_LEAST_MS);
    if (!cell_read_side(destination, transit->bucket, &transit->destination_side, err))
        return false;
    transit->report->destination_state = transit->destination_side.state;
    return true;
}

static bool look(struct transit *transit, struct err *err)
{
    if (!look_at_source(transit, err) || !look_at_destination(transit, err))
        return false;
    enum cell_state state = transit->source_side.state;
    /* A pause that another mover began: it is as long as the state is old, and this one has its own time for a copy. */
    if (transit->closed_since_us == 0 &&
        (state == CELL_CLOSED || (state == CELL_GONE && transit->destination_side.state == CELL_ARRIVING))) {
        int64_t now_us = clock_mono_us();
        transit->closed_since_us = now_us - transit->source_side.age_us;
        transit->copy_until_us = now_us + copy_share_us(transit);
    }
    return true;
}

/* Whether the source is still in the move that this run began: another mover may have undone it, and somebody wanted
 * that. */
static bool is_ours(struct transit *transit)
{
    const struct cell_side *side = &transit->source_side;
    bool is_on = side->state != CELL_HERE && side->state != CELL_AWAY && side->state != CELL_ARRIVING;
    if (!transit->has_begun && is_on) {
        transit->has_begun = true;
        transit->move = side->move;
    }
    return !transit->has_begun || transit->wish == CELL_WISH_UNDO || side->state == CELL_AWAY ||
           (is_on && memcmp(&transit->move, &side->move, sizeof(side->move)) == 0);
}

/* After a step that worked. */
static void note_step(struct transit *transit, enum cell_step step)
{
    transit->report->last = step;
    if (transit->source_side.state != CELL_LISTING && transit->source_side.state != CELL_DRAINING)
        transit->drain_since_us = 0;
}

static void keep_why(struct transit *transit, const struct err *err)
{
    if (transit->report->why[0] == '\0')
        snprintf(transit->report->why, sizeof(transit->report->why), "%s", err->message);
}

static bool conclude(struct transit *transit, enum cell_result result)
{
    transit->report->result = result;
    return false;
}

/* Clients of a closed source must not wait for a destination. The rows that are there are removed by the next move. */
static bool recover_away(struct transit *transit, const struct err *err)
{
    int64_t now_us = clock_mono_us();
    enum cell_state state = transit->source_side.state;
    bool is_served = transit->wish == CELL_WISH_UNDO && transit->mover->order->wish == CELL_WISH_MOVE;
    transit->memory.is_copied = false;
    /* guard: a closed source is opened when the destination dies */
    if (state == CELL_CLOSED && !has_session(transit->destination) && transit->wish == CELL_WISH_MOVE) {
        keep_why(transit, err);
        transit->wish = CELL_WISH_UNDO;
        return true;
    }
    if (transit->away_until_us == 0)
        transit->away_until_us = now_us + (transit->is_hasty ? 0 : RECONNECT_MS * 1000);
    if (!(is_served && state == CELL_HERE) && now_us < transit->away_until_us &&
        stop_sleep_until(now_us + RECONNECT_NAP_US))
        return true;
    keep_why(transit, err);
    return conclude(transit, CELL_RESULT_UNREACHED);
}

/* What follows a failure: try again, undo, or end. False: the bucket has its result. */
static bool recover(struct transit *transit, const struct err *err)
{
    enum cell_state state = transit->source_side.state;
    struct err held;
    if (err->kind == ERR_AWAY)
        return recover_away(transit, err);
    if (err_is_sqlstate(err, "IS003")) { /* another mover took the step, or undid the move: look again */
        nap(BUSY_NAP_MS);
        return true;
    }
    if (is_lock_timeout(err)) { /* a copy has less time, and is then undone */
        if (transit->lock_until_us == 0)
            transit->lock_until_us = clock_mono_us() + LOCK_WAIT_MS * 1000;
        if (clock_mono_us() < transit->lock_until_us) {
            if (state == CELL_LISTING)
                nap(LOCK_NAP_MS);
            return true;
        }
        err_set(&held, ERR_REFUSED,
                "another session holds the bucket, such as an issuing-ctl that was stopped: end it, then repeat this");
        err = &held;
    }
    keep_why(transit, err);
    if (transit->wish == CELL_WISH_UNDO || state == CELL_GONE || state == CELL_AWAY)
        return conclude(transit, CELL_RESULT_FAILED);
    transit->wish = CELL_WISH_UNDO;
    return true;
}

static bool conclude_done(struct transit *transit)
{
    bool is_asked = transit->mover->order->wish == CELL_WISH_UNDO;
    if (transit->wish == CELL_WISH_UNDO)
        return conclude(transit, is_asked ? CELL_RESULT_UNDONE : CELL_RESULT_GAVE_UP);
    return conclude(transit, CELL_RESULT_MOVED);
}

static bool conclude_conflict(struct transit *transit, enum cell_step step)
{
    struct err err;
    const char *source = transit->source->name, *destination = transit->destination->name;
    if (step == CELL_STEP_TOO_LATE)
        err_set(&err, ERR_REFUSED, "the bucket has left %s already: `cell move %d --to %s` goes on", source,
                transit->bucket, destination);
    else if (transit->has_begun && transit->source_side.state == CELL_AWAY)
        err_set(&err, ERR_REFUSED, "another issuing-ctl has moved the bucket elsewhere");
    else if (transit->destination_side.state == CELL_GONE)
        err_set(&err, ERR_REFUSED, "%s still has rows from when the bucket was there: `cell empty %d` first",
                destination, transit->bucket);
    else
        err_set(&err, ERR_REFUSED, "the bucket is %s in %s and %s in %s: no step leads from there",
                cell_state_word(transit->source_side.state), source, cell_state_word(transit->destination_side.state),
                destination);
    keep_why(transit, &err);
    return conclude(transit, CELL_RESULT_FAILED);
}

/* One look and one step. False: the bucket has its result. */
static bool advance(struct transit *transit)
{
    const struct cell_order *order = transit->mover->order;
    struct err err;
    if (!look(transit, &err))
        return recover(transit, &err);
    if (!is_ours(transit)) {
        err_set(&err, ERR_REFUSED, "another issuing-ctl has undone this move");
        keep_why(transit, &err);
        return conclude(transit, CELL_RESULT_FAILED);
    }
    enum cell_step step =
        cell_next_step(transit->wish, &transit->source_side, &transit->destination_side, &transit->memory);
    if (step == CELL_STEP_DONE)
        return conclude_done(transit);
    if (step == CELL_STEP_TOO_LATE && order->wish == CELL_WISH_MOVE) { /* another mover was faster */
        transit->wish = CELL_WISH_MOVE;
        return true;
    }
    if (!runs[step])
        return conclude_conflict(transit, step);
    if (!runs[step](transit, &err))
        return recover(transit, &err);
    transit->away_until_us = transit->lock_until_us = 0;
    note_step(transit, step);
    if (order->has_stop && step == order->stop_after && transit->wish == order->wish)
        return conclude(transit, CELL_RESULT_STOPPED);
    return true;
}

void cell_transit(const struct cell_mover *mover, int bucket, const struct cell_route *route, enum cell_wish wish,
                  struct cell_report *report)
{
    struct transit transit = {
        .mover = mover,
        .bucket = bucket,
        .from = route->from,
        .to = route->to,
        .source = &mover->cells->list[route->from],
        .destination = &mover->cells->list[route->to],
        .has_begun = route->is_listed,
        .move = route->move,
        .is_hasty = route->is_hasty,
        .memory = {.keeps_source = mover->order->keeps_source},
        .wish = wish,
        .report = report,
    };
    report->from = transit.source->name;
    report->to = transit.destination->name;
    for (int steps = 0; steps < STEPS_MAX; steps++)
        if (!advance(&transit))
            return;
    struct err err;
    err_set(&err, ERR_REFUSED, "another mover works on this bucket");
    keep_why(&transit, &err);
    (void)conclude(&transit, CELL_RESULT_FAILED);
}
