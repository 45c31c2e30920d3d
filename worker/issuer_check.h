/* Answers the question of somebody who has just set the worker up: is the issuer reached as it should be? An operator
 * leaves a check (issuing-ctl doctor --issuer, issuing.issuer_checks); one worker takes it and makes harmless calls:
 *
 *     take -> [GET core-api: what must the issuer be told of this user?] -> GET issuer: a card that does not exist -> end
 *
 * Checks are polled for every second, under a lease and a token, one at a time, so a worker that dies leaves a check
 * that another one takes up. The calls do not go through the targets (target.h): they are made while a breaker is open,
 * which is when the question comes up, and neither their failure nor their success is evidence for or against events.
 * While the issuer is paused no check is taken, and while core-api is paused it is not asked. */
#ifndef ISSUING_ISSUER_CHECK_H
#define ISSUING_ISSUER_CHECK_H

#include <uv.h>

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/config/config.h"
#include "common/pg/pg_pool.h"
#include "worker/event_parameters.h"
#include "worker/peer.h"

struct issuer_check;

/* All pointers are borrowed until the module is closed. */
struct issuer_check_options {
    uv_loop_t *loop;
    struct pg_pool *pool;
    const struct config *config;
    const char *worker_name; /* of the lease */
    struct peers *peers;
    const struct parameters_env *parameters; /* with the issuer's profile */
};

must_check bool issuer_check_open(const struct issuer_check_options *options, struct issuer_check **ret_check,
                                  struct err *err);
/* No check is taken after it; one that is held is put back before its next call. */
void issuer_check_stop(struct issuer_check *check);
/* No check is held and no statement is in flight. */
bool issuer_check_is_idle(const struct issuer_check *check);
/* Precondition: issuer_check_is_idle(). on_closed is called from the loop. */
void issuer_check_close(struct issuer_check *check, void (*on_closed)(void *context), void *context);

#endif
