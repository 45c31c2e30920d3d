/* The claims and the sweeps of each type of events that the worker handles: card requests, and the type of each
 * route. */
#ifndef ISSUING_CLAIMS_H
#define ISSUING_CLAIMS_H

#include "worker/flow/claim.h"

struct claims;

/* The number of types. */
int claims_types(const struct routes *routes);
/* slots: with claims_types() shares; borrowed until the claims are closed. */
must_check bool claims_open(const struct worker_env *env, struct slots *slots, struct claims **ret_claims,
                            struct err *err);
/* New events of this type may be due; "" = card requests of clients, CARD_ISSUE = those of services; NULL = any type. A
 * type without a route is ignored. */
void claims_wake(struct claims *claims, const char *type);
/* At each poll: events of this type are due, or may be; a type without bytes = of all types that are not watched. */
void claims_poll(struct claims *claims, struct slice type);
/* Adds the types that are watched: those whose sweeps see that everything due can be looked at for little. Their claims
 * and sweeps rest until claims_poll(), or a wakeup. */
void claims_add_watched(struct claims *claims, struct pg_array *types);
/* Nobody watches: all types look by themselves again. */
void claims_unwatch(struct claims *claims);
/* The database's time that a statement has returned, and our time when it was sent. */
void claims_note_clock(struct claims *claims, int64_t db_us, int64_t sent_us);
/* A peer takes more calls. */
void claims_capacity_changed(struct claims *claims);
/* An event of the type with this share ended, and its slot is free. */
void claims_event_ended(struct claims *claims, const struct slots_share *share);
/* No claim starts after it. The sweeps are jobs (job.h), which the worker stops. */
void claims_stop(struct claims *claims);
bool claims_are_idle(const struct claims *claims);
/* Precondition: claims_are_idle(). on_closed is called from the loop. */
void claims_close(struct claims *claims, void (*on_closed)(void *context), void *context);

#endif
