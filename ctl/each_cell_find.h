/* Which cells have an event, or serve a user. */
#ifndef ISSUING_CTL_EACH_CELL_FIND_H
#define ISSUING_CTL_EACH_CELL_FIND_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "ctl/ctl.h"

/* An event may be in two cells while its bucket moves; only the owner of the bucket has the one that counts. */
struct found {
    int owner;              /* in config->cells, the first one; -1 = none */
    int owner_count;        /* more than one: the databases contradict each other */
    int other_owner;        /* the second one */
    int copy;               /* a cell that has rows of it and does not own its bucket; -1 = none */
    char copy_state[16];    /* of the bucket there */
    int away_count;         /* cells that did not answer */
    int away;               /* the first of these; -1 = none */
    struct err away_reason; /* of that one */
};

/* ret_found: as many as there are ids; owned by the caller. ERR_MEMORY. */
must_check bool find_events(struct ctl *ctl, char **ids, int count, struct found **ret_found, struct err *err);
must_check bool find_user(struct ctl *ctl, const char *user, struct found *ret_found, struct err *err);
/* Why it is found in no cell or in too many, in words; the exit code. CTL_DONE: it is in one cell. what: "event 0190..."
 * or "user ...". */
int found_code(const struct ctl *ctl, const struct found *found, const char *what, char *ret_why, size_t size);

#endif
