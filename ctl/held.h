/* Sessions that keep everybody from reading our tables. Whoever counts rows asks first: a count that waits for such a
 * session ends at its lock_timeout, and names nobody. */
#ifndef ISSUING_CTL_HELD_H
#define ISSUING_CTL_HELD_H

#include "common/lib/pg/pg_sync.h"

#define HELD_MAX 20
#define HELD_TEXT_SIZE 300

struct held {
    int count;
    char texts[HELD_MAX][HELD_TEXT_SIZE]; /* "process 4711 of role shop has locked outbox_events, since ..." */
};

/* Those that two looks, a second apart, have both seen: locks of a moment are no trouble. None where this role may not
 * read pg_locks. False: the database went away, or refused. */
must_check bool held_look(struct pg_sync *db, struct held *ret_held, struct err *err);

#endif
