/* The databases of the cells, as a mover sees them: a session each, and the states of the buckets.
 *
 * Every session belongs to the cell that the configuration says: the database itself names its cell, and no two
 * sections lead to one database. */
#ifndef ISSUING_CTL_CELL_DB_H
#define ISSUING_CTL_CELL_DB_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "ctl/action.h"
#include "ctl/cells/cell_buckets.h"
#include "ctl/cells/cell_steps.h"
#include "ctl/ctl.h"

#define CELL_IDENTITY_SIZE 64

struct cell_db {
    const char *name; /* borrowed from the configuration */
    struct ctl ctl;   /* its db is NULL while there is no session */
    bool is_made;     /* `cell init` was done: the database has a name */
    bool is_owner;    /* the role may move buckets */
    char identity[CELL_IDENTITY_SIZE];
};

struct cells {
    const struct config *config;
    const struct action *action; /* for the audit rows; borrowed */
    struct cell_db list[CONFIG_CELLS_MAX];
    int count;
};

/* Opens nothing. ERR_CONFIG: no cell is configured. */
must_check bool cells_init(struct cells *ret_cells, const struct config *config, const struct action *action,
                           struct err *err);
void cells_done(struct cells *cells);
/* The index of a configured cell. ERR_USAGE. */
must_check bool cells_find(const struct cells *cells, const char *name, int *ret_index, struct err *err);

/* A session of this cell, if there is none or the last one was lost. ERR_AWAY; ERR_CONFIG: another schema version, the
 * name of another cell, the same database as that of an open cell. The message names the cell. */
must_check bool cell_open(struct cells *cells, int index, struct err *err);
void cell_close(struct cell_db *cell);
/* ERR_CONFIG unless `cell init` was done, and the role is the owner. */
must_check bool cell_demand_mover(const struct cell_db *cell, struct err *err);
/* Statements may take as long as they need, or only the seconds of a short one. */
must_check bool cell_be_patient(struct cell_db *cell, bool is_patient, struct err *err);
/* The longest wait for an answer; 0 = as usual. Precondition: a session. */
void cell_limit(struct cell_db *cell, int64_t answer_ms);
/* One statement in the cell; the message names the cell. */
must_check bool cell_query(struct cell_db *cell, const struct sql_statement *statement, const struct pg_param *params,
                           struct pg_rows **ret_rows, struct err *err);

/* The state of one bucket. */
must_check bool cell_read_side(struct cell_db *cell, int bucket, struct cell_side *ret_side, struct err *err);
/* Those of all; `sides` has CELL_BUCKETS elements. A bucket without a row is away. */
must_check bool cell_read_sides(struct cell_db *cell, struct cell_side *sides, struct err *err);
/* The array parameter of a set of buckets; `room` is the memory, which the caller frees with buf_done. */
struct pg_param cell_buckets_param(const struct cell_buckets *buckets, struct buf *room);

#endif
