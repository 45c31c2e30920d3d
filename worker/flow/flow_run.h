/* Runs attempts: the only code that changes the step of an attempt and what it waits for, holds and returns tickets,
 * and keeps the lease long enough.
 *
 * Invariants: one operation is in flight per slot; an attempt starts when its claim is committed; every write names the
 * lease token; `unknown` goes from true to false only when the card is stored or cancelled, or the receiver has
 * executed the event; a card that must go is noted in the event before it is cancelled (mark). */
#ifndef ISSUING_FLOW_RUN_H
#define ISSUING_FLOW_RUN_H

#include "worker/flow/flow.h"

/* Starts the attempt that was claimed into the slot (the first members of struct flow are filled in, and is_saved,
 * card.id, save and pending_code). payload_is_usable false: another service wrote what cannot be read; FAILED
 * payload_invalid. The attempt ends exactly once, with env->on_ended. */
void flow_run_start(struct flow *flow, bool payload_is_usable);
/* Starts a mark (questions/mark.h), whose members are filled in likewise, with this verdict. It ends exactly once, with
 * env->mark->end, which frees the slot. */
void flow_run_mark(struct flow *flow, struct flow_verdict first);

#endif
