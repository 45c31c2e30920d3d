/* Sessions that keep everybody from reading our tables. They are looked for before rows are counted: a count that waits
 * for such a session would end at its lock_timeout, and not name it. */
#ifndef ISSUING_CTL_HELD_H
#define ISSUING_CTL_HELD_H

#include "common/lib/pg/pg_sync.h"

#define HELD_MAX 20
#define HELD_TEXT_SIZE 300

struct held {
    int count;
    char texts[HELD_MAX][HELD_TEXT_SIZE]; /* "process 4711 of role shop has locked outbox_events, since ..." */
};

/* The sessions that two looks, a second apart, have both seen, so that short locks are left out. None where this role
 * may not read pg_locks. False: the database went away, or refused. */
must_check bool held_look(struct pg_sync *db, struct held *ret_held, struct err *err);

#endif
