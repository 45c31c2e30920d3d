/* The tickets of an attempt at its peers (target.h): which step must not begin now, the ticket of each call, and the
 * ticket at the issuer that is reserved before core-api is asked. Sends nothing, and changes neither the step nor what
 * the attempt waits for.
 *
 * No card may be made whose next calls are refused to everybody. So while a kind of call is suspected at the issuer or
 * core-api (target.h), only an event that was claimed as a probe begins a check or a create. A card that is stored is
 * linked as soon as a probe is due.
 *
 * An issuer that grants few calls (its limit is lowered, or its last answer was 429) must not cause more questions than
 * creates: a check then gets the ticket of its create first, and the create is sent with it. An eligibility that became
 * too old in the issuer's queue is asked for again while the ticket is kept. */
#ifndef ISSUING_FLOW_TICKET_H
#define ISSUING_FLOW_TICKET_H

#include "worker/flow/flow.h"

/* Why the current step must not begin, or its call must not leave, even if its peer admits it: a cause; NULL = it
 * may. */
const char *flow_ticket_closed(const struct flow *flow, int64_t now_ms);
/* For how long an attempt is deferred that its peers did not take; -1 = as usual. */
int64_t flow_ticket_wait_ms(const struct flow *flow);

/* The current step is a check that needs its create's ticket first. */
bool flow_ticket_is_needed(const struct flow *flow);
/* Reserves it. on_admitted is that of target_ticket, with &flow->reserved. */
enum target_entry flow_ticket_reserve(struct flow *flow,
                                      void (*on_admitted)(struct target_ticket *ticket, enum target_entry entry));
/* The create is not sent now: its ticket stays reserved. */
void flow_ticket_keep(struct flow *flow);
/* The current step is the create: the reserved ticket becomes its ticket. False: there is none, or what the issuer has
 * answered since then ended it. */
bool flow_ticket_use(struct flow *flow);
/* Gives it back where it was not used. */
void flow_ticket_release(struct flow *flow);

/* The call of the current step enters its peer's queue. */
enum target_entry flow_ticket_enter(struct flow *flow,
                                    void (*on_admitted)(struct target_ticket *ticket, enum target_entry entry));
/* Nothing was sent with the ticket. */
void flow_ticket_return(struct flow *flow);
/* The call is done: reports to the target what its result shows of the peer. */
void flow_ticket_leave(struct flow *flow, struct flow_verdict *verdict);

#endif
