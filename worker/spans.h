/* The spans of a worker: one for each attempt, and below it one for each call. Those of a mark's calls are below the span
 * that the event was accepted in. Each call's span has its id before the call is built: it is the parent that the peer
 * sees. Names and attributes: docs/run.md. Only where spans are exported. */
#ifndef ISSUING_SPANS_H
#define ISSUING_SPANS_H

#include "worker/flow.h"

/* Sets flow->span_id: "" = the spans of this event are not wanted. */
void spans_begin_attempt(struct flow *flow);
/* lost: why its end is not in the database; NULL = flow->end is. */
void spans_end_attempt(struct flow *flow, const char *lost);
/* The call of the step is about to be built. */
void spans_begin_call(struct flow *flow);
/* It is done, and its outcome is that of the attempt. */
void spans_end_call(struct flow *flow);
/* Any call that ends now, as a span below parent_id. The trace has the span's id; route NULL: the call goes to the issuer
 * or core-api. */
void spans_write_call(struct exporter *exporter, const struct trace *trace, const char *parent_id,
                      const struct http_call *call, const struct peer *peer, const struct route *route,
                      const struct issuer_profile *profile, enum flow_step step, const struct outcome *outcome,
                      int64_t now_us);

#endif
