/* Checks whether the issuer or a route is configured correctly, for somebody who has just set up the worker. An
 * operator leaves a check (issuing-ctl doctor --issuer, route test; issuing.issuer_checks); one worker takes it and
 * makes harmless calls:
 *
 *     take -> [GET core-api: the parameters of this user] -> GET issuer: a card that does not exist -> end
 *     take -> POST receiver: a delivery of the type TEST -> end
 *
 * An operator may ask for a trial (trial_run.h) behind the first: a card of the issuer's test mode. A worker takes a
 * check when the poll finds one (watch.h) and holds one at a time, under a lease and a token, so another worker takes
 * over the check of a worker that died. Its calls are those of question.h: they are also made while a breaker is open.
 * A call that is held back is a finding; but no check of a paused target is taken. */
#ifndef ISSUING_ISSUER_CHECK_H
#define ISSUING_ISSUER_CHECK_H

#include "worker/base/job.h"

struct issuer_check;

/* After a stop no check is taken; one that is held is put back before its next call. */
must_check bool issuer_check_open(const struct worker_env *env, struct issuer_check **ret_check, struct err *err);
/* Somebody may wait for one. */
void issuer_check_wake(struct issuer_check *check);

#endif
