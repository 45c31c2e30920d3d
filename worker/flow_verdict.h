/* When an attempt that did not succeed is over, and how long the event then waits.
 *
 * Whether a failure or a refusal is the event's fault or the peer's is decided by evidence: by what the peer answered
 * to other events in the same kind of call, as far as this worker saw it (target.h). Without evidence nothing ends: the
 * attempt is deferred, and the delay grows. No end is decided over an unknown outcome without a look-up. */
#ifndef ISSUING_FLOW_VERDICT_H
#define ISSUING_FLOW_VERDICT_H

#include "worker/flow.h"

/* Turns a step's verdict into what is applied: a RETRY after the last attempt becomes a look-up, a FAIL or a DEFER; a
 * DEFER may become a look-up or a FAIL where the evidence is against the event; RETRY and DEFER get their exact delay.
 * Other verdicts pass unchanged. Changes nothing; draws the jitter from backoff_random(). Call it after target_leave(),
 * since it reads the state of the peers. */
struct flow_verdict flow_verdict_settle(const struct flow *flow, struct flow_verdict verdict, int64_t now_ms);

#endif
