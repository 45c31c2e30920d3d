/* The open and the FAILED events, each read once, for everything that `status`, the console's first page and `targets`
 * say about them. */
#ifndef ISSUING_CTL_BACKLOG_H
#define ISSUING_CTL_BACKLOG_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/pg/pg_sync.h"

#define BACKLOG_MAX 100000 /* events of a type, and FAILED ones, that are counted */
#define BACKLOG_PARAMS 2
#define BACKLOG_CAUSES_MAX 20

/* Columns of operator_failed; those from FAILED_ALL on are of all, in each row. */
enum backlog_failed_column {
    FAILED_CODE,
    FAILED_TYPE,
    FAILED_EVENTS,
    FAILED_SINCE,
    FAILED_LAST,
    FAILED_ALL,
    FAILED_UNKNOWN,
    FAILED_FIRST_SENT
};

/* The open events of one type, or of "n other types" that nobody delivers. Times in us since 1970, 0 = none. */
struct backlog_type {
    const char *name;           /* borrowed from the rows */
    bool is_delivered, is_live; /* is_live: by a living worker */
    int64_t pending, processing;
    int64_t held;                /* behind an earlier event of their user */
    int64_t due;                 /* of pending */
    int64_t overdue;             /* of pending: due for more than a minute, and delivered */
    int64_t scheduled;           /* of pending: not to run yet */
    int64_t unknown;             /* of pending: with an unknown outcome */
    int64_t ends;                /* notifications that wait, and are not events yet */
    int64_t pending_us, ends_us; /* when the oldest PENDING one was made or to run; of the oldest end */
    int64_t oldest_us;           /* of the oldest open one, without those that are not to run yet */
    int64_t overdue_us;          /* when the first overdue one was due */
    int64_t first_sent_us;       /* of those with an unknown outcome whose key has not ended */
};

/* Why events of a type are PENDING: the cause of their last attempt or deferral, or an operator's act since
 * (operator_replayed); or held_behind, scheduled, not_tried, lease_expired. */
struct backlog_cause {
    const char *name, *type; /* borrowed from the rows */
    int64_t events;
    int64_t since_us; /* when the oldest was made or to run */
    int64_t next_us;  /* when the next attempt of one of them is due */
};

/* *ret_rows is owned by the caller. */
must_check bool backlog_read(struct pg_sync *db, struct pg_rows **ret_rows, struct err *err);
/* Parameters of operator_open and operator_failed. */
void backlog_params(int64_t most, int64_t key_lifetime_ms, struct pg_param params[BACKLOG_PARAMS]);
/* The earlier one of both becomes *us; 0 = there is none. */
void backlog_take_earlier(int64_t *us, int64_t other_us);
/* The type of the events that wait for a target: for the issuer and core-api card requests, else that of the route. */
const char *backlog_type_of(const char *target);
/* The next type of the rows of operator_open. *row: 0 at first; false: there is none. */
must_check bool backlog_next(const struct pg_rows *open, int *row, struct backlog_type *ret_type);
/* Whether there is another type than that of card requests. */
bool backlog_has_types(const struct pg_rows *open);
/* How many causes there are, of at most BACKLOG_CAUSES_MAX, most frequent first. */
int backlog_causes(const struct pg_rows *open, struct backlog_cause ret_causes[BACKLOG_CAUSES_MAX]);
/* How many are PENDING for this cause, and whether more of this type are open than were counted: then a number is the
 * least there may be. */
int64_t backlog_caused_by(const struct pg_rows *open, const char *cause);
bool backlog_is_cut(const struct pg_rows *open, const char *type);
/* Its events and ends that wait. */
int64_t backlog_waiting(const struct backlog_type *type);
/* Since when the oldest of these waits, in us; 0 = not yet. */
int64_t backlog_age_us(const struct backlog_type *type, int64_t now_us);
/* For people: "yes", "no living worker" or "by nobody". */
const char *backlog_delivered_by(const struct backlog_type *type);
/* The time of the database when the rows were read. */
int64_t backlog_now_us(const struct pg_rows *open);
/* Events that wait behind a target: PENDING ones that were deferred because of it (while a worker is blocked there,
 * also by a cause that names no target), and, where no living worker sends calls, those that are due, since an event
 * is claimed only when every target that it needs takes calls. Card requests need the issuer and core-api; an event
 * of a route needs the target of its type. is_shut: no living worker sends calls; some_shut: one of them does not. */
int64_t backlog_behind(const struct pg_rows *open, const char *target, bool is_shut, bool some_shut);
int64_t backlog_failed(const struct pg_rows *failed); /* how many, up to the limit */

#endif
