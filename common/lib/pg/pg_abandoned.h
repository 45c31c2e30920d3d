/* A session that was given up while the server may still be running something in it: a commit that waits for a
 * synchronous standby cannot be cancelled safely, and closing the socket does not end it. Private to common/lib/pg.
 *
 * The socket stays open and is read, so that the end of the session's work is noticed and the pool can count the
 * session. The session ends when everything that was sent is answered, or when the connection breaks. */
#ifndef ISSUING_PG_ABANDONED_H
#define ISSUING_PG_ABANDONED_H

#include <uv.h>

#include "common/lib/pg/pg_libpq.h"

struct pg_abandoned {
    PGconn *libpq; /* owned; NULL = there is none */
    uv_poll_t poll;
    int syncs;       /* transactions that the server has not reported as ended */
    bool is_closing; /* the handle */
    void (*on_over)(struct pg_abandoned *abandoned);
};

/* There is neither a session nor a handle: pg_abandoned_take() may be called. */
bool pg_abandoned_is_free(const struct pg_abandoned *abandoned);
/* Takes ownership of libpq, a non-blocking pipeline in which `syncs` Syncs are not answered. on_over is called once,
 * later, from the loop; then it is free again. false: it could not be watched, and was closed. */
must_check bool pg_abandoned_take(struct pg_abandoned *abandoned, uv_loop_t *loop, PGconn *libpq, int syncs,
                                  void (*on_over)(struct pg_abandoned *abandoned));
/* Closes the socket now; on_over follows. The server may continue in that session. */
void pg_abandoned_drop(struct pg_abandoned *abandoned);
/* The server process of the session; 0 = unknown. */
int pg_abandoned_pid(const struct pg_abandoned *abandoned);

#endif
