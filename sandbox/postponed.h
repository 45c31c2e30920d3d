/* Calls that are executed later than they arrived, whether or not their caller is still there: a create that stood in a
 * queue while its caller gave up, a link that a proxy sends a second time. Four faults make them (faults.h). */
#ifndef ISSUING_SANDBOX_POSTPONED_H
#define ISSUING_SANDBOX_POSTPONED_H

#include "common/lib/base/base.h"
#include "sandbox/calls.h"
#include "sandbox/faults.h"
#include "sandbox/order.h"

struct postponed;

/* Executes the order of a call whose caller may be gone. late_code: a refusal that the key keeps, "" = none. */
typedef enum ledger_result postponed_execute(struct sandbox *sandbox, enum call_kind kind,
                                             const struct sandbox_order *order, const char *late_code);

/* Which call it is. */
struct postponed_call {
    enum call_kind kind;
    uint64_t number;           /* calls.h */
    const struct fault *fault; /* borrowed, during postponed_add() */
    postponed_execute *execute;
};

/* Executes a copy of the order once, at the time that the fault sets. False: out of memory. A call that arrives refused
 * is not postponed. */
must_check bool postponed_add(struct sandbox *sandbox, const struct postponed_call *call,
                              const struct sandbox_order *order);
/* The caller of that call has left. */
void postponed_caller_gone(struct sandbox *sandbox, uint64_t call_number);
/* Executes all that is outstanding now; returns the number of executions. */
unsigned postponed_run(struct sandbox *sandbox);
/* Drops all that is outstanding, without executing it. */
void postponed_drop(struct sandbox *sandbox);

#endif
