/* issuing-ctl reconcile --from-issuer: the issuer's own list of its cards beside our events and cards. A worker reads
 * the list (worker/questions/issuer_listing.h); this command requests the list, or joins a request that exists, waits,
 * and prints the questions that it raised. Nothing is changed. */
#ifndef ISSUING_CTL_FROM_ISSUER_H
#define ISSUING_CTL_FROM_ISSUER_H

#include "ctl/ctl.h"
#include "ctl/moment.h"

/* Precondition: connected. Sets ctl->code. reason NULL = none was given. */
must_check bool from_issuer_run(struct ctl *ctl, const struct moment *since, int64_t timeout_ms, const char *reason,
                                struct err *err);

#endif
