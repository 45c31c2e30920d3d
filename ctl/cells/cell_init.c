/* See cell_init.h.
 *
 * Invariants: no bucket is given to two cells; no user with rows is left outside of the cell's buckets, which the
 * database checks again under its lock. */
#include "ctl/cells/cell_init.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/print.h"
#include "statements.h"

struct users {
    int64_t all, outside;
};

static bool count_users(struct cell_db *cell, const struct cell_buckets *buckets, struct users *ret_users,
                        struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct buf room;
    const struct pg_param params[] = {cell_buckets_param(buckets, &room)};
    bool is_done = !room.failed || err_set(err, ERR_MEMORY, "out of memory");
    is_done = is_done && cell_be_patient(cell, true, err) &&
              cell_query(cell, &sql_cell_users_outside, params, &rows, err) && cell_be_patient(cell, false, err);
    buf_done(&room);
    if (is_done)
        *ret_users = (struct users){.all = pg_int8(rows, 0, 0), .outside = pg_int8(rows, 0, 1)};
    return is_done;
}

/* All for the first cell, none for another one. */
static bool choose(struct cells *cells, const struct cell_view *view, int index, struct cell_buckets *ret_buckets,
                   struct err *err)
{
    struct cell_buckets none = {.count = 0};
    bool is_first = true;
    for (int i = 0; i < cells->count; i++) {
        if (i == index)
            continue;
        if (!view->is_read[i])
            return err_set(err, ERR_AWAY, "whether %s is the first cell is not known: %.200s", view->names[index],
                           view->why[i].message);
        is_first = is_first && !cells->list[i].is_made;
    }
    *ret_buckets = none;
    if (is_first)
        cell_buckets_all(ret_buckets);
    return true;
}

/* The first cell is the one with the users. */
static bool check_other_users(struct cells *cells, int index, const struct users *users, struct err *err)
{
    struct cell_buckets none = {.count = 0};
    for (int i = 0; users->all == 0 && i < cells->count; i++) {
        struct users others;
        if (i == index || !cells->list[i].ctl.db || cells->list[i].is_made)
            continue;
        if (!count_users(&cells->list[i], &none, &others, err))
            return false;
        if (others.all > 0)
            return err_set(err, ERR_REFUSED, "%s has %" PRId64 " users and is no cell yet: make it the first one",
                           cells->list[i].name, others.all);
    }
    return true;
}

static bool check_owners(const struct cell_view *view, int index, const struct cell_buckets *buckets, struct err *err)
{
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++) {
        int owner = buckets->has[bucket] ? cell_view_owner(view, bucket) : CELL_NOWHERE;
        if (owner == CELL_TWICE || (owner >= 0 && owner != index))
            return err_set(err, ERR_REFUSED, "bucket %d is in %s already", bucket,
                           owner >= 0 ? view->names[owner] : "several cells");
        if (owner == CELL_UNKNOWN)
            return err_set(err, ERR_AWAY, "bucket %d may be in a cell that could not be read", bucket);
    }
    return true;
}

static bool make(struct cell_db *cell, const struct cell_buckets *buckets, struct err *err)
{
    struct buf room;
    const struct pg_param params[] = {pg_param_text(cell->name, strlen(cell->name)),
                                      cell_buckets_param(buckets, &room)};
    bool is_done = !room.failed || err_set(err, ERR_MEMORY, "out of memory");
    is_done = is_done && cell_be_patient(cell, true, err) && cell_query(cell, &sql_cell_init, params, NULL, err) &&
              cell_be_patient(cell, false, err);
    buf_done(&room);
    return is_done;
}

static void report(const struct ctl *ctl, const struct cell_db *cell, const struct cell_buckets *buckets,
                   const struct users *users, bool is_made)
{
    char text[CELL_BUCKETS_TEXT_SIZE], number[PRINT_NUMBER_SIZE];
    if (ctl->json) {
        struct json *object = json_new_object();
        if (object && json_set_text(object, "cell", cell->name) &&
            json_set_text(object, "buckets", cell_buckets_text(buckets, text)) &&
            json_set_integer(object, "bucket_count", buckets->count) && json_set_integer(object, "users", users->all) &&
            json_set_integer(object, "users_outside", users->outside) &&
            json_set(object, "made", json_new_bool(is_made)))
            (void)print_json(object, stdout);
        else
            json_free(object);
        return;
    }
    printf("%s %s the buckets: %s. %s users have rows there", cell->name,
           is_made ? "is a cell now and has" : "would have", cell_buckets_text(buckets, text),
           print_number(users->all, number));
    if (users->all == 0)
        puts(".");
    else if (users->outside == 0)
        puts(", all of them in these buckets.");
    else
        printf(", and %s of them in other buckets.\n", print_number(users->outside, number));
}

static bool prepare(struct cells *cells, const struct cell_view *view, int index, const struct cell_buckets *asked,
                    struct cell_buckets *ret_buckets, struct users *ret_users, struct err *err)
{
    struct cell_db *cell = &cells->list[index];
    if (!view->is_read[index]) {
        *err = view->why[index];
        return false;
    }
    if (cell->is_made)
        return err_set(err, ERR_REFUSED, "%s is a cell already; buckets come by `cell move`", cell->name);
    if (!cell->is_owner)
        return err_set(err, ERR_CONFIG, "only the owner of the tables makes a cell: connect as issuing_owner");
    if (asked)
        *ret_buckets = *asked;
    else if (!choose(cells, view, index, ret_buckets, err))
        return false;
    return check_owners(view, index, ret_buckets, err) && count_users(cell, ret_buckets, ret_users, err) &&
           (ret_buckets->count == 0 || check_other_users(cells, index, ret_users, err));
}

int cell_init(const struct ctl *ctl, struct cells *cells, const struct cell_view *view, int index,
              const struct cell_buckets *buckets, bool is_dry_run)
{
    struct cell_buckets chosen;
    struct users users;
    struct err err;
    if (!prepare(cells, view, index, buckets, &chosen, &users, &err))
        return ctl_fail(&err);
    bool is_made = !is_dry_run && users.outside == 0;
    if (is_made && !make(&cells->list[index], &chosen, &err))
        return ctl_fail(&err);
    report(ctl, &cells->list[index], &chosen, &users, is_made);
    if (users.outside == 0)
        return CTL_DONE;
    err_set(&err, ERR_REFUSED, "%s: these users would be refused everywhere; name their buckets too, or all",
            view->names[index]);
    return ctl_fail(&err);
}
