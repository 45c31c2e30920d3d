/* Calls that are executed later than they arrived, whatever became of their caller: a create that stood in a queue
 * while its caller gave up, a link that a proxy sends a second time. Four faults make them (faults.h). */
#ifndef ISSUING_SANDBOX_POSTPONED_H
#define ISSUING_SANDBOX_POSTPONED_H

#include "common/base.h"
#include "sandbox/exchange.h"
#include "sandbox/ledger.h"

struct postponed;

/* What is to be executed, by kind: a create has order, a cancel card_id, a link and an unlink link. All texts are
 * copied. A call that arrives refused is not postponed. */
struct postponed_call {
    struct ledger_order order;
    struct slice card_id;
    struct ledger_link_order link;
};

/* Executes the call again or for the first time, when the exchange's fault says so. Without memory it answers 500. */
void postponed_add(struct exchange *exchange, const struct postponed_call *call);
/* The caller of that call has left. */
void postponed_caller_gone(struct sandbox *sandbox, uint64_t call);
/* Executes all that is outstanding now; returns how many those were. */
unsigned postponed_run(struct sandbox *sandbox);
/* Gives all that is outstanding up, without executing it. */
void postponed_drop(struct sandbox *sandbox);

#endif
