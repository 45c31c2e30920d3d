/* The steps of an attempt: what each prepares, what its answer means, and what all of them share. The steps that lead
 * to a card are in issue_card.c, those that close one in close_card.c, those of a route in deliver_event.c.
 *
 * An attempt may die after any line. So every attempt starts at check (at link once the card is stored, at deliver for
 * a route) and sends the same key again; nothing here depends on what an earlier attempt had in memory. Steps never
 * call each other and never touch timers, leases or tickets. */
#ifndef ISSUING_STEP_H
#define ISSUING_STEP_H

#include "worker/flow/flow.h"

struct flow_step_row {
    /* Builds the call in flow->call, or fills in what flow_step_write() writes. False: out of memory, or the card
     * number cannot be encrypted; nothing is sent. Precondition: nothing is in flight, and no parameter that the call
     * needs is missing. */
    bool (*prepare)(struct flow *flow);
    /* Reads the finished call or flow->write_result. *ret_outcome holds the outcome of the previous step and gets that
     * of this one. Returns what to do next. */
    struct flow_verdict (*read)(struct flow *flow, struct outcome *ret_outcome);
};
extern const struct flow_step_row flow_steps[STEP_COUNT];

/* The issuer's calls are built from its profile, whatever the step. */
#define STEP_PREPARE_FLOW_PEER_ISSUER(word) step_prepare_issuer_call
#define STEP_PREPARE_FLOW_PEER_CORE(word) step_##word##_prepare
#define STEP_PREPARE_FLOW_PEER_ROUTE(word) step_##word##_prepare
#define STEP_PREPARE_FLOW_PEER_NONE(word) step_##word##_prepare
#define X(name, word, text, peer, call, write)          \
    bool STEP_PREPARE_##peer(word)(struct flow * flow); \
    struct flow_verdict step_##word##_read(struct flow *flow, struct outcome *ret_outcome);
FLOW_STEPS(X)
#undef X

/* ---- verdicts ---- */

/* What follows the answer that the step's call got (decide.h). */
struct flow_verdict step_decide(struct flow *flow, const struct outcome *outcome, struct shown shown);
/* The verdict on a step's write; `next` follows if it was written. */
struct flow_verdict step_read_write(struct flow *flow, enum flow_step next, struct outcome *ret_outcome);

/* Puts into flow->kept what the event should keep of the parameters. False: out of memory. */
bool step_write_parameters(struct flow *flow);

/* ---- calls ---- */

const struct issuer_profile *step_profile(const struct flow *flow);
/* Adds the headers of the event's trace. */
bool step_with_trace(struct flow *flow, bool is_made);

#endif
