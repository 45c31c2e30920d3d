/* See pick.h.
 *
 * Invariants: a page starts where the last one ended, so no event is given twice, and each event that is there all the
 * time is looked at. With --since or --until only a part of the primary key is walked: an id of version 7 carries the
 * time of the clock that made it, which is taken to be at most SLACK_MS off. Other ids are in the partition _default,
 * below or above those of all partitions, so these two ends are walked as well.
 * Left out: the rows themselves (event_fetch), since most callers want only some of them. */
#include "ctl/pick.h"

#include <string.h>

#include "statements.h"

#define LOOK_FIRST 1000
#define LOOK_MAX 10000
#define SORT_MAX 100000 /* each page that is sorted reads all of its source, so there are few */
#define DENSE 25        /* if one in DENSE events matches, a walk finds a page sooner than a sort */
#define SLACK_MS (INT64_C(3600) * 1000)
#define TIME_MAX_MS ((INT64_C(1) << 48) - 1)

/* The least id of version 7 of this time. */
static struct uuid least_id(int64_t ms)
{
    struct uuid id = {{0}};
    ms = ms < 0 ? 0 : ms > TIME_MAX_MS ? TIME_MAX_MS : ms;
    for (int i = 5; i >= 0; i--, ms >>= 8)
        id.bytes[i] = (unsigned char)ms;
    return id;
}

static int compare(const struct uuid *left, const struct uuid *right)
{
    return memcmp(left->bytes, right->bytes, sizeof(left->bytes));
}

/* False: it is the greatest one. */
static bool increment(struct uuid *id)
{
    for (int i = (int)sizeof(id->bytes) - 1; i >= 0; i--)
        if (++id->bytes[i] != 0)
            return true;
    return false;
}

static bool is_empty(const struct pick_range *range)
{
    return range->has_from && range->has_to && compare(&range->from, &range->to) >= 0;
}

/* Ranges in ascending order: below the time and below all partitions, the time itself, above both. */
static void find_ranges(struct pick *pick, int64_t first_us, int64_t last_us, bool has_partitions)
{
    const struct filter *filter = pick->filter;
    bool has_from = filter->since != NULL, has_to = filter->until != NULL;
    struct uuid from = least_id(moment_us(&filter->from_time, pick->now_us) / 1000 - SLACK_MS);
    struct uuid to = least_id(moment_us(&filter->to_time, pick->now_us) / 1000 + SLACK_MS);
    struct uuid first = least_id(first_us / 1000), last = least_id(last_us / 1000);
    /* guard: a window of time also looks at ids that carry no time */
    if (has_from)
        pick->ranges[pick->count++] =
            (struct pick_range){.has_to = true, .to = has_partitions && compare(&first, &from) < 0 ? first : from};
    pick->ranges[pick->count++] = (struct pick_range){.has_from = has_from, .has_to = has_to, .from = from, .to = to};
    if (has_to)
        pick->ranges[pick->count++] =
            (struct pick_range){.has_from = true, .from = has_partitions && compare(&last, &to) > 0 ? last : to};
}

static void reverse(struct pick *pick)
{
    for (int i = 0, j = pick->count - 1; i < j; i++, j--) {
        struct pick_range range = pick->ranges[i];
        pick->ranges[i] = pick->ranges[j];
        pick->ranges[j] = range;
    }
}

static bool has_no_order(const struct filter *filter)
{
    return filter_source(filter) == FILTER_OPEN;
}

/* filter_statement(), or a walk by the primary key where that is sooner done. */
static const struct sql_statement *statement_of(const struct pick *pick)
{
    return has_no_order(pick->filter) && !pick->is_sorted ? &sql_operator_pick_all : filter_statement(pick->filter);
}

static bool begin(struct pick *pick, const struct filter *filter, bool newest_first, const struct pg_rows *bounds,
                  struct err *err)
{
    enum { NOW, FIRST, LAST };
    struct pick start = {
        .filter = filter, .newest_first = newest_first, .now_us = pg_time_us(bounds, 0, NOW), .look = LOOK_FIRST};
    if (filter->since && filter->until &&
        moment_us(&filter->from_time, start.now_us) >= moment_us(&filter->to_time, start.now_us))
        return err_set(err, ERR_USAGE, "--until is not after --since, so no event can match");
    if (filter_source(filter) == FILTER_ALL)
        find_ranges(&start, pg_time_us(bounds, 0, FIRST), pg_time_us(bounds, 0, LAST), !pg_is_null(bounds, 0, FIRST));
    else
        start.ranges[start.count++] = (struct pick_range){0};
    if (newest_first)
        reverse(&start);
    *pick = start;
    return true;
}

bool pick_is_over(const struct pick *pick)
{
    return pick->at == pick->count;
}

void pick_params(const struct pick *pick, struct pg_param params[PICK_PARAMS])
{
    const struct pick_range *range = &pick->ranges[pick->at];
    filter_params(pick->filter, pick->now_us, params);
    params[FILTER_PARAMS] = range->has_from ? pg_param_uuid(&range->from) : pg_param_null();
    params[FILTER_PARAMS + 1] = range->has_to ? pg_param_uuid(&range->to) : pg_param_null();
    params[FILTER_PARAMS + 2] = pg_param_bool(pick->newest_first);
    params[FILTER_PARAMS + 3] = pg_param_int8(pick->look);
}

static void skip_empty_ranges(struct pick *pick)
{
    while (pick->at < pick->count && is_empty(&pick->ranges[pick->at]))
        pick->at++;
}

/* Cuts off what was walked of one range: up to this id. */
static void cut(struct pick *pick, struct pick_range *range, const struct uuid *id)
{
    struct uuid next = *id;
    if (pick->newest_first) {
        if (!range->has_to || compare(id, &range->to) < 0)
            range->to = *id;
        range->has_to = true;
    } else if (!increment(&next)) {
        range->has_from = range->has_to = true;
        range->from = range->to = *id;
    } else {
        if (!range->has_from || compare(&next, &range->from) > 0)
            range->from = next;
        range->has_from = true;
    }
}

void pick_go_on_behind(struct pick *pick, const struct uuid *id)
{
    for (int i = pick->at; i < pick->count; i++)
        cut(pick, &pick->ranges[i], id);
    skip_empty_ranges(pick);
}

static int count_matches(const struct pg_rows *rows)
{
    struct pick_row row;
    int count = 0;
    for (int i = 0; i < pg_rows_count(rows); i++)
        count += pick_row(rows, i, &row);
    return count;
}

/* How many the next page looks at, and whether it is sorted: in a backlog the next matches are near, otherwise what is
 * open is little. */
static void choose_page(struct pick *pick, int64_t matches, int64_t looked)
{
    int64_t most = pick->is_sorted ? SORT_MAX : LOOK_MAX;
    pick->look = pick->look > most / 2 ? most : 2 * pick->look;
    if (has_no_order(pick->filter) && !pick->is_sorted && matches * DENSE < looked) {
        pick->is_sorted = true;
        pick->look = LOOK_MAX;
    }
}

/* Takes over the result of a page; the next page begins after it. */
static void take(struct pick *pick, const struct pg_rows *rows)
{
    enum { ID, UPDATED_AT, MATCHES, LOOKED };
    int count = pg_rows_count(rows);
    int64_t looked = count > 0 ? pg_int8(rows, count - 1, LOOKED) : 0;
    /* The last column of a sorted page counts all matches, also those beyond the page. */
    bool is_whole = pick->is_sorted ? looked <= pick->look : looked < pick->look;
    pick->looked += looked < pick->look ? looked : pick->look;
    if (count > 0) {
        struct uuid last = pg_uuid(rows, count - 1, ID);
        cut(pick, &pick->ranges[pick->at], &last);
    }
    if (is_whole)
        pick->at++;
    skip_empty_ranges(pick);
    choose_page(pick, count_matches(rows), looked);
}

bool pick_row(const struct pg_rows *rows, int row, struct pick_row *ret_row)
{
    enum { ID, UPDATED_AT, MATCHES };
    *ret_row = (struct pick_row){.id = pg_uuid(rows, row, ID), .updated_us = pg_time_us(rows, row, UPDATED_AT)};
    return pg_bool(rows, row, MATCHES);
}

bool pick_open(struct pick *pick, struct pg_sync *db, const struct filter *filter, bool newest_first, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    return pg_sync_query(db, &sql_operator_bounds, NULL, &rows, err) && begin(pick, filter, newest_first, rows, err);
}

bool pick_read(struct pick *pick, struct pg_sync *db, struct pg_rows **ret_rows, struct err *err)
{
    struct pg_param params[PICK_PARAMS];
    struct pg_rows *rows = NULL;
    pick_params(pick, params);
    if (!pg_sync_query(db, statement_of(pick), params, &rows, err))
        return false;
    take(pick, rows);
    *ret_rows = rows;
    return true;
}
