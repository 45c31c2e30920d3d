/* See cell_steps.h.
 *
 * Invariants: of one move, the destination's rows are deleted only when the source is open again, so a mover that wakes
 * up late cannot leave behind rows that are no longer there; ARRIVE comes only when the source is gone; EMPTY comes
 * only when the destination has the bucket. */
#include "ctl/cells/cell_steps.h"

#include <assert.h>
#include <string.h>

static const char *const state_words[] = {
#define X(name, word) [CELL_##name] = word,
    CELL_STATES(X)
#undef X
};

static const char *const step_words[] = {
#define X(name, word) [CELL_STEP_##name] = word,
    CELL_STEPS(X)
#undef X
};

static_assert(ARRAY_SIZE(state_words) == CELL_STATE_COUNT, "the number of states");
static_assert(ARRAY_SIZE(step_words) == CELL_STEP_COUNT, "the number of steps");

const char *cell_state_word(enum cell_state state)
{
    return state_words[state];
}

bool cell_state_parse(const char *word, enum cell_state *ret_state)
{
    for (size_t i = 0; i < ARRAY_SIZE(state_words); i++) {
        if (strcmp(word, state_words[i]) == 0) {
            *ret_state = (enum cell_state)i;
            return true;
        }
    }
    return false;
}

const char *cell_step_word(enum cell_step step)
{
    return step_words[step];
}

bool cell_step_parse(const char *word, enum cell_step *ret_step)
{
    for (size_t i = 0; i < ARRAY_SIZE(step_words); i++) {
        if (strcmp(word, step_words[i]) == 0) {
            *ret_step = (enum cell_step)i;
            return true;
        }
    }
    return false;
}

/* Shorter names, so that the table fits on the screen. */
#define LIST CELL_STEP_LIST
#define EXPECT CELL_STEP_EXPECT
#define DRAIN CELL_STEP_DRAIN
#define CLOSE CELL_STEP_CLOSE
#define COPY CELL_STEP_COPY
#define ARRIVE CELL_STEP_ARRIVE
#define ROUTER CELL_STEP_ROUTER
#define OPEN CELL_STEP_OPEN
#define REFUSE CELL_STEP_REFUSE
#define DONE CELL_STEP_DONE
#define LATE CELL_STEP_TOO_LATE
#define WRONG CELL_STEP_CONFLICT

/* By the source's state. The columns are the destination's: away; arriving under the same move; arriving under another
 * move; here. In any other state the destination itself gives buckets away, or has given this one away. */
enum { TO_AWAY, TO_ARRIVING, TO_OTHER_MOVE, TO_HERE, TO_COUNT };

static const enum cell_step steps_of_move[CELL_STATE_COUNT][TO_COUNT] = {
    /* source           away    arriving  other   here */
    [CELL_HERE] = {LIST, REFUSE, REFUSE, WRONG},
    [CELL_LISTING] = {EXPECT, DRAIN, REFUSE, WRONG},
    [CELL_DRAINING] = {EXPECT, CLOSE, REFUSE, WRONG},
    [CELL_CLOSED] = {EXPECT, COPY, REFUSE, WRONG},
    [CELL_GONE] = {WRONG, ARRIVE, WRONG, ROUTER},
    [CELL_AWAY] = {WRONG, ARRIVE, WRONG, ROUTER}, /* emptied by somebody else, so it had left */
    [CELL_ARRIVING] = {WRONG, WRONG, WRONG, WRONG},
};

static const enum cell_step steps_of_undo[CELL_STATE_COUNT][TO_COUNT] = {
    /* source           away    arriving  other   here */
    [CELL_HERE] = {DONE, REFUSE, REFUSE, WRONG},    [CELL_LISTING] = {OPEN, OPEN, OPEN, WRONG},
    [CELL_DRAINING] = {OPEN, OPEN, OPEN, WRONG},    [CELL_CLOSED] = {OPEN, OPEN, OPEN, WRONG},
    [CELL_GONE] = {WRONG, LATE, WRONG, LATE},       [CELL_AWAY] = {WRONG, LATE, WRONG, LATE},
    [CELL_ARRIVING] = {WRONG, WRONG, WRONG, WRONG},
};

bool cell_is_one_move(const struct cell_side *source, const struct cell_side *destination)
{
    static const struct uuid none;
    return memcmp(&source->move, &destination->move, sizeof(none)) == 0 &&
           memcmp(&source->move, &none, sizeof(none)) != 0;
}

static int column_of(const struct cell_side *source, const struct cell_side *destination)
{
    switch (destination->state) {
    case CELL_AWAY:
        return TO_AWAY;
    case CELL_ARRIVING:
        return cell_is_one_move(source, destination) ? TO_ARRIVING : TO_OTHER_MOVE;
    case CELL_HERE:
    case CELL_LISTING: /* it gives the bucket to a third cell by now */
    case CELL_DRAINING:
        return TO_HERE;
    case CELL_CLOSED:
    case CELL_GONE:
        break;
    }
    return TO_COUNT;
}

enum cell_step cell_next_step(enum cell_wish wish, const struct cell_side *source, const struct cell_side *destination,
                              const struct cell_memory *memory)
{
    int column = column_of(source, destination);
    if (column == TO_COUNT)
        return CELL_STEP_CONFLICT;
    if (wish == CELL_WISH_UNDO)
        return steps_of_undo[source->state][column];
    enum cell_step step = steps_of_move[source->state][column];
    if (step == CELL_STEP_COPY && memory->is_copied)
        /* guard: the source leaves before the destination has the bucket */
        return CELL_STEP_LEAVE;
    if (step == CELL_STEP_ROUTER && memory->is_routed)
        return source->state == CELL_GONE && !memory->keeps_source ? CELL_STEP_EMPTY : CELL_STEP_DONE;
    return step;
}
