/* What must hold before a call is sent. */
#ifndef ISSUING_FLOW_BEFORE_H
#define ISSUING_FLOW_BEFORE_H

#include "worker/flow/flow.h"

/* The last checks before a create or a delivery. GO to the step that sends: it may leave. Else GO to a look-up, a
 * check or a keep that comes first, DEFER, or FAIL where nothing can be looked up (decide_before_send). now_ms by
 * clock_mono_ms(), wall_us by clock_wall_us(). */
struct flow_verdict flow_before_send(const struct flow *flow, int64_t now_ms, int64_t wall_us);
/* What the issuer's call of the current step is built from. GO to the step itself: it is known. GO to STEP_CHECK:
 * core-api must be asked first. GO to STEP_KEEP: the event must keep it first, before the call enters the queue. Else
 * *ret_outcome tells which parameter core-api does not give. */
struct flow_verdict flow_before_call(const struct flow *flow, int64_t now_ms, int64_t wall_us,
                                     struct outcome *ret_outcome);

#endif
