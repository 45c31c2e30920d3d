/* Makes the calls of a trial (issuer_trial.h), each under a renewed lease of its check:
 *
 *     renew -> a call to the issuer, or the same one twice at once -> [pause] -> renew ... -> over
 *
 * A call that is held back (question.h) is made after a pause. Once the lease is not renewed, since another worker may
 * take the check over or nobody waits for it, or the worker drains, only what was made is closed, without pauses: a
 * close that is held back then was not made, which is a finding. */
#ifndef ISSUING_TRIAL_RUN_H
#define ISSUING_TRIAL_RUN_H

#include "worker/questions/issuer_trial.h"
#include "worker/questions/question.h"

#define TRIAL_RUN_SINCE_MS (5 * 60 * 1000) /* look-ups list the cards of this time only, so there are few to read */

struct trial_run {
    struct issuer_trial trial; /* begun by the caller */
    /* private */
    struct question question; /* its own statement about the check */
    const char *user_id;
    int64_t lease_ms;
    struct findings *findings;
    struct issuer_lookup lookup;
    struct question_call call, twin; /* twin: the same call, at the same time */
    bool is_double;
    int in_flight;
    bool is_pausing, is_draining;
    void (*on_over)(struct trial_run *run);
};

/* on_over: the trial is over, its findings are added. */
void trial_run_init(struct trial_run *run, struct findings *findings, void (*on_over)(struct trial_run *run));
void trial_run_done(struct trial_run *run);
/* question: the check, its id and token are copied. user_id is borrowed. Ends exactly once, with on_over. */
void trial_run_start(struct trial_run *run, const struct question *question, const char *user_id, int64_t lease_ms);
/* To be called each second: ends a pause. */
void trial_run_wake(struct trial_run *run);
void trial_run_drain(struct trial_run *run);

#endif
