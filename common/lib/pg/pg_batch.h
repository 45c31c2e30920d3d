/* The batcher: items -> one statement for many of them -> one result for each. The owner describes an item as a row of
 * parameters (pg_columns.h) and reads the result; this module decides when a batch starts and what becomes of its items
 * when the statement fails.
 *
 * - Batches are natural. Items wait in a queue; at the end of the loop's iteration a free batch takes what is there. A
 *   batch starts at once when no other is out. Beside others it starts only when it is large in comparison (`growth`),
 *   so batches grow with the load instead of competing in the database. A batch that has been out for 10 ms (a lock, a
 *   slow disk) does not hold the others up.
 * - Each batch costs a commit. Under load (the last ones had eight items or more) one with fewer than `gather_items`
 *   starts `gather_ms` after the one before at the earliest. Items that come one by one wait for nothing.
 * - When the outcome of a statement is unknown, or its fault is one that passes, the same statement is sent again for
 *   those items whose deadline has not passed. So a statement must do no harm when it runs twice for an item.
 * - A batch that the database refuses is split: each of its items goes alone, so that one bad item does not hurt its
 *   neighbours.
 *
 * Each added item ends exactly once, from the loop: in on_done or on_given_up, or when on_refused returns false. */
#ifndef ISSUING_PG_BATCH_H
#define ISSUING_PG_BATCH_H

#include <uv.h>

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/pg/pg_columns.h"
#include "common/lib/pg/pg_pool.h"

/* Embedded in what the owner wants to be written. Its memory must live until it has ended. */
struct pg_batch_item {
    /* in; monotonic */
    int64_t since_ms;    /* since when its caller waits; only read where options.away_timeout_ms is set */
    int64_t deadline_ms; /* no further try after it */
    /* out */
    bool may_be_done; /* the outcome of an earlier try is unknown */
    bool goes_alone;  /* in pg_batcher_add_again(), or since its batch was refused */
    /* private */
    struct pg_batch_item *next;
};

/* Called from the loop. An item that a hook ends belongs to the owner again, who may free it or add it again from
 * within. A hook may not close the batcher. */
struct pg_batcher_hooks {
    /* Adds one item's parameters: the same calls of pg_columns_add_*() and pg_columns_set_scalar() for each item. */
    void (*add_row)(void *context, struct pg_columns *columns, const struct pg_batch_item *item);
    /* The statement is committed; rows are valid during the call. Ends every item; may change the order of `items`. */
    void (*on_done)(void *context, struct pg_batch_item **items, int count, const struct pg_rows *rows);
    /* The database refuses this item for good, also alone. false: the item has ended. true: it is sent again now. */
    bool (*on_refused)(void *context, struct pg_batch_item *item, const struct pg_query_result *result);
    /* Ends an item that could not be written in time. */
    void (*on_given_up)(void *context, struct pg_batch_item *item, const char *why);
    /* The database refuses a batch for a reason that may pass, and it is sent again. NULL: nothing to do. */
    void (*on_transient)(void *context, const char sqlstate[6]);
};

struct pg_batcher_options {
    uv_loop_t *loop;
    struct pg_pool *pool;
    const struct sql_statement *statement;
    const struct pg_batcher_hooks *hooks;
    void *context;                       /* of the hooks */
    int batch_count;                     /* batches that may be out at once */
    int items_max;                       /* in one batch */
    size_t array_bytes_max;              /* of one parameter */
    int growth;                          /* beside n others a batch starts when it has >= growth * n times as many items
                                             as all of them together */
    int64_t gather_ms;                   /* 0: a batch waits for no further items */
    int gather_items;                    /* this many items do not wait for more */
    int64_t timeout_ms;                  /* of the statement */
    int64_t retry_base_ms, retry_cap_ms; /* backoff between tries of a batch */
    /* 0: an item that could not be sent, or whose user the database does not serve (pg_sqlstate_is_moved()), is tried
     * until its deadline, and each item is tried at least once.
     *
     * > 0: a caller waits for each item and can repeat its request. An item that could not be sent is given up at once;
     * so is every other item that has waited this long while no connection is up, and every item whose deadline passes
     * in the queue. This is also the statement's timeout while no connection is up. */
    int64_t away_timeout_ms;
};

struct pg_batcher;

must_check bool pg_batcher_open(const struct pg_batcher_options *options, struct pg_batcher **ret_batcher,
                                struct err *err);
void pg_batcher_add(struct pg_batcher *batcher, struct pg_batch_item *item);
/* Adds an item again that has ended: may_be_done stays. goes_alone: in a batch of its own, since it would be refused
 * with its neighbours. */
void pg_batcher_add_again(struct pg_batcher *batcher, struct pg_batch_item *item, bool goes_alone);
/* Every item that was added has ended. */
bool pg_batcher_is_idle(const struct pg_batcher *batcher);
/* Precondition: pg_batcher_is_idle(). on_closed from the loop; the batcher is freed before it. */
void pg_batcher_close(struct pg_batcher *batcher, void (*on_closed)(void *context), void *context);

#endif
