/* See cell_move.h.
 *
 * Invariants: every bucket gets one report; a bucket that fails does not stop the others. A signal ends the bucket
 * under way, and opens those again that were only listed. */
#include "ctl/cells/cell_move.h"

#include <stdio.h>

#include "ctl/cells/cell_transit.h"
#include "ctl/stop.h"

static const char *const result_words[] = {
#define X(name, word) [CELL_RESULT_##name] = word,
    CELL_RESULTS(X)
#undef X
};

const char *cell_result_word(enum cell_result result)
{
    return result_words[result];
}

static struct cell_report new_report(int bucket)
{
    return (struct cell_report){.bucket = bucket, .drain_us = -1, .pause_us = -1, .last = CELL_STEP_DONE};
}

static void report_refusal(const struct cell_mover *mover, int bucket, const struct err *err)
{
    struct cell_report report = new_report(bucket);
    report.result = err->kind == ERR_AWAY ? CELL_RESULT_UNREACHED : CELL_RESULT_FAILED;
    snprintf(report.why, sizeof(report.why), "%s", err->message);
    mover->on_report(mover->context, &report);
}

static bool find_route(const struct cell_mover *mover, const struct cell_view *view, int bucket,
                       struct cell_route *ret_route, struct err *err)
{
    struct cell_route route = {.to = mover->order->to, .is_listed = false};
    if (route.to < 0 && !cell_view_destination(view, bucket, &route.to, err))
        return false;
    if (!cell_view_source(view, bucket, route.to, &route.from, err))
        return false;
    if (mover->order->wish == CELL_WISH_UNDO && route.from == route.to)
        return err_set(err, ERR_REFUSED, "bucket %d has moved to %s already: move it back with --to", bucket,
                       view->names[route.to]);
    bool needs_destination = mover->order->wish == CELL_WISH_MOVE || view->is_read[route.to];
    if (!cell_demand_mover(&mover->cells->list[route.from], err) ||
        (needs_destination && !cell_demand_mover(&mover->cells->list[route.to], err)))
        return false;
    *ret_route = route;
    return true;
}

static void find_routes(const struct cell_mover *mover, const struct cell_view *view,
                        struct cell_route routes[CELL_BUCKETS])
{
    struct err err;
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++) {
        routes[bucket].from = -1;
        if (mover->order->buckets.has[bucket] && !find_route(mover, view, bucket, &routes[bucket], &err)) {
            routes[bucket].from = -1;
            report_refusal(mover, bucket, &err);
        }
    }
}

/* One scan of each source for all buckets that leave it. */
static bool list_all(const struct cell_mover *mover, const struct cell_view *view,
                     struct cell_route routes[CELL_BUCKETS], struct err *err)
{
    struct uuid move = uuid7_make();
    const char *to = mover->cells->list[mover->order->to].name;
    for (int from = 0; from < mover->cells->count; from++) {
        struct cell_buckets fresh = {.count = 0}, all = {.count = 0};
        for (int bucket = 0; bucket < CELL_BUCKETS; bucket++) {
            enum cell_state state = view->sides[from][bucket].state;
            if (routes[bucket].from != from || from == mover->order->to)
                continue;
            if (state == CELL_HERE && view->sides[mover->order->to][bucket].state == CELL_AWAY) {
                cell_buckets_put(&fresh, bucket);
                routes[bucket].is_listed = true;
                routes[bucket].move = move;
            }
            if (state == CELL_LISTING || fresh.has[bucket])
                cell_buckets_put(&all, bucket);
        }
        if (all.count > 0 && !cell_list_buckets(&mover->cells->list[from], &fresh, &all, to, &move, err))
            return false;
    }
    return true;
}

/* The router may still think otherwise, for example when an earlier mover could not tell it. */
static void move_nothing(const struct cell_mover *mover, int bucket, struct cell_report *report)
{
    report->from = report->to = mover->cells->list[mover->order->to].name;
    report->source_state = report->destination_state = CELL_HERE;
    report->result = CELL_RESULT_ALREADY;
    report->unrouted = cell_router_flip(mover->router, bucket, report->to);
}

static enum cell_result move_one(const struct cell_mover *mover, int bucket, const struct cell_route *route,
                                 bool is_stopped)
{
    const struct cell_order *order = mover->order;
    struct cell_report report = new_report(bucket);
    bool stops_early = order->has_stop && order->stop_after == CELL_STEP_LIST;
    if (route->from == route->to) {
        move_nothing(mover, bucket, &report);
    } else if (stops_early && order->wish == CELL_WISH_MOVE) {
        report.from = mover->cells->list[route->from].name;
        report.to = mover->cells->list[route->to].name;
        report.result = CELL_RESULT_STOPPED;
        report.last = CELL_STEP_LIST;
        report.source_state = CELL_LISTING;
    } else {
        cell_transit(mover, bucket, route, is_stopped ? CELL_WISH_UNDO : order->wish, &report);
        if (is_stopped && report.result == CELL_RESULT_GAVE_UP)
            report.result = CELL_RESULT_STOPPED;
    }
    mover->on_report(mover->context, &report);
    return report.result;
}

bool cell_move(const struct cell_mover *mover, struct cell_view *view, struct err *err)
{
    struct cell_route routes[CELL_BUCKETS];
    stop_watch();
    find_routes(mover, view, routes);
    if (mover->order->wish == CELL_WISH_MOVE && !list_all(mover, view, routes, err))
        return false;
    bool is_away = false;
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++) {
        if (routes[bucket].from < 0)
            continue;
        routes[bucket].is_hasty = is_away;
        is_away = move_one(mover, bucket, &routes[bucket], stop_is_requested()) == CELL_RESULT_UNREACHED;
    }
    return true;
}
