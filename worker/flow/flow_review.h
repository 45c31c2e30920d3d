/* A reissue that ends REJECTED or FAILED leaves its old card as it is. The issuer may have closed that card, for
 * reasons of its own, so the card is read before the end is written: if it is closed, it is stored as cancelled, and
 * core-api removes it. The answers do not change the end; a call without a definite answer is made again at once,
 * FLOW_REVIEW_TRIES in all. */
#ifndef ISSUING_FLOW_REVIEW_H
#define ISSUING_FLOW_REVIEW_H

#include "worker/flow/flow.h"

#define FLOW_REVIEW_TRIES 3

/* The verdict, settled, would end a reissue, and its old card can be read: notes the end. True: STEP_REVIEW is next. */
bool flow_review_begins(struct flow *flow, const struct flow_verdict *verdict);
/* A verdict of the review that is not a further step: returns the end that was noted, and sets step and outcome
 * back. */
struct flow_verdict flow_review_end(struct flow *flow);

#endif
