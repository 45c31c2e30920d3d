/* The ids of the events that match a filter, page by page, in the order of ids, which is that of their creation.
 *
 * A page is one statement that looks at a bounded number of events, with any filter; a page without a match is followed
 * by the next. */
#ifndef ISSUING_CTL_PICK_H
#define ISSUING_CTL_PICK_H

#include "common/lib/base/uuid7.h"
#include "common/lib/pg/pg_result.h"
#include "common/lib/pg/pg_sync.h"
#include "ctl/filter.h"

#define PICK_PARAMS (FILTER_PARAMS + 4)
#define PICK_RANGES 3

/* Ids from `from` on and before `to`. */
struct pick_range {
    bool has_from, has_to;
    struct uuid from, to;
};

struct pick {
    const struct filter *filter; /* borrowed, checked */
    bool newest_first;
    int64_t now_us; /* of the database, when the pick began: what "ago" counts from */
    int64_t look;   /* how many events the next page looks at */
    bool is_sorted; /* all of a source without an order of ids is read and sorted for each page */
    /* What is left, in the order in which it is walked; ranges[at] is being walked. */
    struct pick_range ranges[PICK_RANGES];
    int at, count;
    int64_t looked; /* events looked at so far */
};

struct pick_row {
    struct uuid id;
    int64_t updated_us;
};

/* Asks for the bounds of what is to be walked. ERR_USAGE: the times of the filter leave nothing. */
must_check bool pick_open(struct pick *pick, struct pg_sync *db, const struct filter *filter, bool newest_first,
                          struct err *err);
bool pick_is_over(const struct pick *pick);
/* The next page. *ret_rows is owned by the caller. */
must_check bool pick_read(struct pick *pick, struct pg_sync *db, struct pg_rows **ret_rows, struct err *err);
/* The parameters of its statement, for a test of the plan. */
void pick_params(const struct pick *pick, struct pg_param params[PICK_PARAMS]);
/* One row of a page, in any case. False: it is the last one that was looked at, and does not match. */
must_check bool pick_row(const struct pg_rows *rows, int row, struct pick_row *ret_row);
/* Goes on behind this event: for a caller that used a part of a page, or begins where another pick ended. */
void pick_go_on_behind(struct pick *pick, const struct uuid *id);

#endif
