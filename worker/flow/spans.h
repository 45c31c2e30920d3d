/* The spans of a worker: one for each attempt, and below it one for each call. Those of a mark's calls are below the
 * span that the event was accepted in. Each call's span has its id before the call is built: it is the parent that the
 * peer sees. They are sent together at the end of the attempt: where a worker dies, its attempt has no spans, so no
 * span lacks its parent. Names and attributes: docs/run.md. Only where spans are exported. */
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
/* The same for a mark, whose calls have no attempt: their spans leave at its end, also where it was put back. */
void spans_begin_mark(struct flow *flow);
void spans_end_mark(struct flow *flow);

#endif
