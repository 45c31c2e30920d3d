/* A session that was given up while the server may still be at work in it: a commit that waits for a synchronous standby
 * cannot be cancelled safely, and closing its socket does not end it. Private to pg_*.c.
 *
 * The socket stays open and is read, so that the end of the session's work is noticed, and so that whoever counts sessions
 * can count this one: it ends when everything that was asked is answered, or when the connection breaks. */
#ifndef ISSUING_PG_ABANDONED_H
#define ISSUING_PG_ABANDONED_H

#include <uv.h>

#include "common/pg_libpq.h"

struct pg_abandoned {
    PGconn *libpq; /* owned; NULL = there is none */
    uv_poll_t poll;
    int syncs;       /* transactions whose end the server has still to tell */
    bool is_closing; /* the handle */
    void (*on_over)(struct pg_abandoned *abandoned);
};

/* Neither a session nor a handle: it may be taken. */
bool pg_abandoned_is_free(const struct pg_abandoned *abandoned);
/* Takes libpq, a non-blocking pipeline with so many Syncs on their way. Later, once, from the loop: on_over, after which
 * it is free again. false: it could not be watched, and was closed. */
must_check bool pg_abandoned_take(struct pg_abandoned *abandoned, uv_loop_t *loop, PGconn *libpq, int syncs,
                                  void (*on_over)(struct pg_abandoned *abandoned));
/* Closes the socket now; on_over follows. The server may go on in that session. */
void pg_abandoned_drop(struct pg_abandoned *abandoned);
/* The process that serves the session; 0 = unknown. */
int pg_abandoned_pid(const struct pg_abandoned *abandoned);

#endif
