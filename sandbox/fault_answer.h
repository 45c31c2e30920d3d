/* How a fault changes a true answer: another status, another body, another way of sending it. To add a fault, add a row
 * to FAULT_KINDS (faults.h) and a case here; the compiler names the line. */
#ifndef ISSUING_SANDBOX_FAULT_ANSWER_H
#define ISSUING_SANDBOX_FAULT_ANSWER_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "sandbox/delivery.h"
#include "sandbox/sandbox_call.h"

/* The call has a fault. Changes call->status and sandbox->body, and sets how the answer is delivered. */
void fault_answer_apply(struct sandbox_call *call, struct delivery *delivery);
/* Writes `answer` with `card` merged into it: its members replace those of the answer, null removes, objects are
 * merged (RFC 7396); in an answer with an array `list` (may be NULL), into each element of it. Both are checked
 * JSON. */
bool fault_override(struct slice answer, const char *list, const char *card, struct buf *out);

#endif
