/* Checks whether the issuer or a route is configured correctly, for somebody who has just set up the worker. An
 * operator leaves a check (issuing-ctl doctor --issuer, route test; issuing.issuer_checks); one worker takes it and
 * makes harmless calls:
 *
 *     take -> [GET core-api: the parameters of this user] -> GET issuer: a card that does not exist -> end
 *     take -> POST receiver: a delivery of the type TEST -> end
 *
 * An operator may ask for a trial (issuer_trial.h) behind the first: a card of the issuer's test mode. A worker takes a
 * check when the poll finds one (watch.h) and holds one at a time, under a lease and a token, so another worker takes
 * over the check of a worker that died. The calls do not go through the targets (target.h): they are also made while a
 * breaker is open, which is when operators ask, and their results are no evidence for or against events. No check of a
 * paused target is taken; while core-api is paused it is not asked. */
#ifndef ISSUING_ISSUER_CHECK_H
#define ISSUING_ISSUER_CHECK_H

#include <uv.h>

#include "common/core/config/config.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/pg/pg_pool.h"
#include "worker/peers/event_parameters.h"
#include "worker/peers/peer.h"
#include "worker/route/route.h"

struct issuer_check;

/* All pointers are borrowed until the module is closed. */
struct issuer_check_options {
    uv_loop_t *loop;
    struct pg_pool *pool;
    const struct config *config;
    const char *worker_name; /* of the lease */
    struct peers *peers;
    struct routes *routes;
    const struct parameters_env *parameters; /* with the issuer's profile */
};

must_check bool issuer_check_open(const struct issuer_check_options *options, struct issuer_check **ret_check,
                                  struct err *err);
/* Somebody may wait for one. */
void issuer_check_wake(struct issuer_check *check);
/* After this no check is taken; one that is held is put back before its next call. */
void issuer_check_stop(struct issuer_check *check);
/* No check is held and no statement is in flight. */
bool issuer_check_is_idle(const struct issuer_check *check);
/* Precondition: issuer_check_is_idle(). on_closed is called from the loop. */
void issuer_check_close(struct issuer_check *check, void (*on_closed)(void *context), void *context);

#endif
