/* What must hold before a call is sent. Pure. */
#ifndef ISSUING_FLOW_BEFORE_H
#define ISSUING_FLOW_BEFORE_H

#include "worker/flow.h"

/* The last checks before a create. GO to STEP_ISSUE: send it. Else GO to a look-up or a check that comes first, or
 * DEFER. now_ms by clock_mono_ms(), wall_us by clock_wall_us(). */
struct flow_verdict flow_before_create(const struct flow *flow, int64_t now_ms, int64_t wall_us);
/* Whether the parameters for the issuer's call of the current step are known. GO to the step itself: they are. GO to
 * STEP_CHECK: core-api must be asked first. Else *ret_outcome names the parameter that core-api does not give. */
struct flow_verdict flow_before_call(const struct flow *flow, int64_t now_ms, struct outcome *ret_outcome);

#endif
