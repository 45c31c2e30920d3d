/* The spans of a worker: one for each attempt, and below it one for each call. Those of a mark's calls are below the span
 * that the event was accepted in. Each call's span has its id before the call is built: it is the parent that the peer
 * sees. They leave together at the end of the attempt: that of a worker that dies has none, and the tree no loose end.
 * Names and attributes: docs/run.md. Only where spans are exported. */
#ifndef ISSUING_SPANS_H
#define ISSUING_SPANS_H

#include "worker/flow/flow.h"

/* Sets flow->span_id: "" = the spans of this event are not wanted. */
void spans_begin_attempt(struct flow *flow);
/* lost: why its end is not in the database; NULL = flow->end is. */
void spans_end_attempt(struct flow *flow, const char *lost);
/* The call of the step is about to be built. */
void spans_begin_call(struct flow *flow);
/* It is done, and its outcome is that of the attempt. */
void spans_end_call(struct flow *flow);
/* A call that has ended. */
struct ended_call {
    const struct trace *trace; /* has the span's id */
    const char *parent_id;
    const struct http_call *call;
    const struct peer *peer;
    enum flow_step step;
    const struct outcome *outcome;
    int64_t at_us;
};
void spans_write_call(struct buf *out, const struct issuer_profile *profile, const struct ended_call *ended);

#endif
