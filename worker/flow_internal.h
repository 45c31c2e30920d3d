/* What the two halves of the runner share: flow.c moves an attempt, flow_end.c ends it. */
#ifndef ISSUING_FLOW_INTERNAL_H
#define ISSUING_FLOW_INTERNAL_H

#include "worker/flow.h"

/* flow.c */

/* Does what the verdict says, once the claim is committed where it must be. */
void flow_act(struct flow *flow, struct flow_verdict verdict);
/* The attempt is over and written; its slot is free. */
void flow_leave(struct flow *flow);
/* The attempt is over, and nothing of it was written: another worker has the event. */
void flow_lease_lost(struct flow *flow, const char *at);

/* An earlier attempt may have sent a create, and the issuer may have forgotten its key by now, or soon will. */
bool flow_is_expired(const struct flow *flow);
/* So long no look-up that finds nothing may decide; 0 = it may. */
int64_t flow_unsettled_ms(const struct flow *flow);

/* flow_end.c: each puts the one write that ends the attempt, and frees the slot when it is done. */

/* code NULL = none (COMPLETED). */
void flow_end_final(struct flow *flow, enum outbox_status status, const char *outcome, const char *code);
/* After the last attempt: a look-up where the outcome is unknown, else FAILED. */
void flow_end_retry(struct flow *flow, const struct flow_verdict *verdict);
void flow_end_defer(struct flow *flow, const struct flow_verdict *verdict);

#endif
