/* LISTEN on one connection of its own. A notification is a hint that may be lost at any time (poolers, failover, new
 * connections), so every user also polls. */
#ifndef ISSUING_PG_LISTEN_H
#define ISSUING_PG_LISTEN_H

#include <uv.h>

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

struct pg_listen;

/* channel: a lower-case identifier. on_hint is called from the loop for each notification, with its payload ("" =
 * none), and once whenever it starts to listen, with NULL. It may close the listener. */
must_check bool pg_listen_open(uv_loop_t *loop, const char *conninfo, const char *channel,
                               void (*on_hint)(void *context, const char *payload), void *context,
                               struct pg_listen **ret_listen, struct err *err);
/* Whether to listen; at first it does. For each NOTIFY, on any channel, the server wakes every session of the database
 * that listens to anything, so a session that does not need hints should not listen. */
void pg_listen_want(struct pg_listen *listen, bool is_wanted);
/* on_closed from the loop; the listener is freed before it. No on_hint is called any more. */
void pg_listen_close(struct pg_listen *listen, void (*on_closed)(void *context), void *context);

#endif
