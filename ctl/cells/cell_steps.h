/* The move of one bucket as a table: the states of its two sides, and the step that comes next. Pure.
 *
 * A move keeps nothing but the rows of issuing.cell_buckets in the two databases. So whoever looks at both can go on,
 * at any place where a mover died. docs/scaling.md has the states. */
#ifndef ISSUING_CTL_CELL_STEPS_H
#define ISSUING_CTL_CELL_STEPS_H

#include "common/base/base.h"
#include "common/base/uuid7.h"
#include "common/config/config.h"

#define CELL_NAME_SIZE CONFIG_CELL_NAME_SIZE

#define CELL_STATES(X)      \
    X(AWAY, "away")         \
    X(HERE, "here")         \
    X(LISTING, "listing")   \
    X(DRAINING, "draining") \
    X(CLOSED, "closed")     \
    X(GONE, "gone")         \
    X(ARRIVING, "arriving")

enum cell_state {
#define X(name, word) CELL_##name,
    CELL_STATES(X)
#undef X
};
#define CELL_STATE_COUNT 7

/* A row of issuing.cell_buckets. */
struct cell_side {
    enum cell_state state;
    struct uuid move;           /* of the move that is on, or was last; zeros = none */
    char other[CELL_NAME_SIZE]; /* the other cell of that move; "" = none */
    int64_t age_us;             /* how long it has been in this state, by the database's clock */
};

#define CELL_STEPS(X)                                                                               \
    X(LIST, "list")         /* source: here -> listing, and the scan */                             \
    X(EXPECT, "expect")     /* destination: away -> arriving */                                     \
    X(DRAIN, "drain")       /* source: listing -> draining */                                       \
    X(CLOSE, "close")       /* source: waits for attempts under way, then draining -> closed */     \
    X(COPY, "copy")         /* one transaction of the destination; both sides are compared in it */ \
    X(LEAVE, "leave")       /* source: closed -> gone; behind it there is no way back */            \
    X(ARRIVE, "arrive")     /* destination: arriving -> here */                                     \
    X(ROUTER, "router")     /* the map names the destination */                                     \
    X(EMPTY, "empty")       /* source: the rows are deleted, gone -> away */                        \
    X(OPEN, "open")         /* undo, source: listing, draining, closed -> here */                   \
    X(REFUSE, "refuse")     /* undo, destination: what was copied is deleted, arriving -> away */   \
    X(DONE, "done")         /* nothing is left to do */                                             \
    X(TOO_LATE, "too_late") /* an undo behind the point of no return */                             \
    X(CONFLICT, "conflict") /* the two sides contradict each other: nothing may be done by a program */

enum cell_step {
#define X(name, word) CELL_STEP_##name,
    CELL_STEPS(X)
#undef X
};
#define CELL_STEP_COUNT 14

const char *cell_state_word(enum cell_state state);
must_check bool cell_state_parse(const char *word, enum cell_state *ret_state);
const char *cell_step_word(enum cell_step step);
must_check bool cell_step_parse(const char *word, enum cell_step *ret_step);

enum cell_wish { CELL_WISH_MOVE, CELL_WISH_UNDO };

/* What this run has done for this bucket, and no row can tell. */
struct cell_memory {
    bool is_copied; /* the rows are in the destination and were compared, under the move that both sides name */
    bool is_routed;
    bool keeps_source; /* --keep-source */
};

/* Whether both sides name the same move. */
bool cell_is_one_move(const struct cell_side *source, const struct cell_side *destination);
/* The next step, by what both databases say now. */
enum cell_step cell_next_step(enum cell_wish wish, const struct cell_side *source, const struct cell_side *destination,
                              const struct cell_memory *memory);

#endif
