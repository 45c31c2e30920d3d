/* What operators did, newest first: the walk that `issuing-ctl audit` and the console's audit page share.
 *
 * A step is one statement. It looks at no more than AUDIT_LOOK_MAX actions and returns no more than the caller wants,
 * since users who look at their card numbers leave many rows between those of operators. A step may find nothing; the
 * next one goes on behind what it looked at. */
#ifndef ISSUING_CTL_AUDIT_H
#define ISSUING_CTL_AUDIT_H

#include "common/lib/base/err.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/pg/pg_sync.h"
#include "ctl/moment.h"

#define AUDIT_LOOK_MAX 10000
#define AUDIT_CURSOR_SIZE 40
#define AUDIT_PARAMS 10
#define AUDIT_BATCH_SIZE 400

/* Which actions. Card numbers that users were shown (number_revealed, number_refused) are among them only where an
 * action or an event is given. */
struct audit_filter {
    /* As given, borrowed; NULL = any. The actor is one of the four names of an action. */
    const char *since, *until, *actor, *action, *event, *batch;
    bool in_full; /* each action of a bulk action, and not one line for all of them */
    /* What audit_check() read, where it was given. */
    struct moment from, to;
    struct uuid event_id, batch_id;
};

/* The action behind which a walk goes on. */
struct audit_cursor {
    int64_t at_us, id;
};

struct audit_walk {
    const struct audit_filter *filter; /* borrowed, checked */
    int64_t now_us;                    /* of the database, when the walk began: what "ago" counts from */
    bool has_cursor, is_over;          /* is_over: every action was looked at */
    struct audit_cursor cursor;
};

/* Its texts live as long as the rows that it was read from; NULL = there is none. */
struct audit_row {
    struct audit_cursor cursor;
    char event_id[UUID_TEXT_SIZE]; /* "" = of no event */
    const char *actor, *action, *reason, *db_role, *os_user, *sudo_user;
    const char *before, *after;          /* JSON */
    const char *from_status, *to_status; /* of the event, in `before` and `after` */
    const char *target;                  /* of an action on one */
    char batch[UUID_TEXT_SIZE];          /* the bulk action of which it is a part; "" = of none */
    const char *scope;                   /* what that had selected */
};

/* What a bulk action came to. */
struct audit_batch {
    int64_t count, first_us, last_us;
    char outcome[AUDIT_BATCH_SIZE]; /* "12 COMPLETED, 3 FAILED": what its events are now; "" = it has none */
};

/* ERR_USAGE: a value whose form matches nothing. */
must_check bool audit_check(struct audit_filter *filter, struct err *err);

/* "1763634000000000.17": the time in us since 1970 and the id, for a URL. False: it is not the text of a cursor. */
must_check bool audit_cursor_parse(const char *text, struct audit_cursor *ret_cursor);
void audit_cursor_format(const struct audit_cursor *cursor, char ret_text[AUDIT_CURSOR_SIZE]);

/* Asks the database for its time. The walk begins with the newest action. */
must_check bool audit_open(struct audit_walk *walk, struct pg_sync *db, const struct audit_filter *filter,
                           struct err *err);
/* Goes on behind this action: for a caller that used a part of a step, or begins where another walk ended. */
void audit_go_on_behind(struct audit_walk *walk, const struct audit_cursor *cursor);
/* One step, with at most `wanted` (1 to AUDIT_LOOK_MAX) actions that match. *ret_rows is owned by the caller. */
must_check bool audit_step(struct audit_walk *walk, struct pg_sync *db, int64_t wanted, struct pg_rows **ret_rows,
                           struct err *err);
/* False: it is the last one that the step looked at, and does not match. */
must_check bool audit_row(const struct pg_rows *rows, int row, struct audit_row *ret_row);

/* The bulk action of this row, which has one. */
must_check bool audit_read_batch(struct pg_sync *db, const struct audit_row *row, struct audit_batch *ret_batch,
                                 struct err *err);

/* For tests: the statement of a step, and its parameters. */
const struct sql_statement *audit_statement(const struct audit_filter *filter);
void audit_params(const struct audit_walk *walk, int64_t wanted, struct pg_param params[AUDIT_PARAMS]);

#endif
