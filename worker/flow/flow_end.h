/* Fills in the write that ends an attempt, from the verdict and the attempt. Pure. */
#ifndef ISSUING_FLOW_END_H
#define ISSUING_FLOW_END_H

#include "common/lib/base/log.h"
#include "worker/flow/flow.h"

/* verdict: settled (decide_settled), and one that ends the attempt: COMPLETE, REJECT, FAIL, RETRY or DEFER. Its code is
 * copied. now_ms: by clock_mono_ms(), for the attempt's duration. Every member is set; the texts behind pointers are
 * static. */
struct write_end flow_end_build(const struct flow *flow, const struct flow_verdict *verdict, int64_t now_ms);
/* How loudly the end is logged. A peer that does not accept our credentials or address is a warning from the first
 * event on: where events are rare, its breaker may never open. */
enum log_level flow_end_level(const struct flow *flow, const struct write_end *end);

#endif
