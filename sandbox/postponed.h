/* Calls that are executed later than they arrived, whether or not their caller is still there: a create that stood in a
 * queue while its caller gave up, a link that a proxy sends a second time. Four faults make them (faults.h). */
#ifndef ISSUING_SANDBOX_POSTPONED_H
#define ISSUING_SANDBOX_POSTPONED_H

#include "common/base/base.h"
#include "sandbox/charges.h"
#include "sandbox/dialect.h"
#include "sandbox/ledger.h"
#include "sandbox/sandbox_call.h"

struct postponed;

/* What is to be executed: the issuer's calls have order, a link and an unlink link, a charge charge. All texts are
 * copied. A call that arrives refused is not postponed. */
struct postponed_execution {
    struct dialect_order order;
    struct ledger_link_order link;
    struct charge_order charge;
};

/* Executes the call again or for the first time, at the time that its fault sets. Without memory it answers 500. */
void postponed_add(struct sandbox_call *call, const struct postponed_execution *execution);
/* The caller of that call has left. */
void postponed_caller_gone(struct sandbox *sandbox, uint64_t call_number);
/* Executes all that is outstanding now; returns the number of executions. */
unsigned postponed_run(struct sandbox *sandbox);
/* Drops all that is outstanding, without executing it. */
void postponed_drop(struct sandbox *sandbox);

#endif
