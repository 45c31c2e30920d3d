/* LISTEN on one dedicated connection: a hint that may be lost at any time (poolers, failover, reconnects). Whoever uses
 * it also polls. */
#ifndef ISSUING_PG_LISTEN_H
#define ISSUING_PG_LISTEN_H

#include "common/err.h"
#include "common/pg_conn.h"

struct pg_listen;

/* channel: a lower-case identifier. on_hint is called from the loop for each notification, and once after every
 * (re)connect. */
must_check bool pg_listen_open(uv_loop_t *loop, const char *conninfo, const char *channel,
                               void (*on_hint)(void *context), void *context, struct pg_listen **ret_listen,
                               struct err *err);
/* Whether hints are of use; at first they are. For each NOTIFY, whatever its channel, the server wakes every session of
 * the database that listens to anything: one that has no use for it should not. Wanting them again gives one hint as
 * soon as it listens. */
void pg_listen_want(struct pg_listen *listen, bool wanted);
void pg_listen_close(struct pg_listen *listen, void (*on_closed)(void *context), void *context);

#endif
