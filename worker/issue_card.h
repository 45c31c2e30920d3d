/* The steps of an attempt that issues a card: the calls and writes that they prepare, and what each answer means. */
#ifndef ISSUING_ISSUE_CARD_H
#define ISSUING_ISSUE_CARD_H

#include "worker/flow.h"

struct flow_step_row {
    /* Builds the call in flow->call, or fills what flow_step_write() writes. False: memory, or the card cannot be
     * sealed; nothing is sent. Precondition: nothing is in flight. */
    bool (*prepare)(struct flow *flow);
    /* Reads the finished call or flow->write_result. Sets *ret_outcome, and returns what to do. */
    struct flow_verdict (*read)(struct flow *flow, struct outcome *ret_outcome);
};
extern const struct flow_step_row flow_steps[STEP_COUNT];

#endif
