/* What the questions that operators ask of a peer have in common: a row that a worker takes under a lease and a token
 * (all, marks too), and calls (issuer_check.h, trial_run.h, issuer_listing.h).
 *
 * A call needs the permission of the peer's target (target_enter_beside()): none is sent while the target is paused or
 * rests, it counts as in flight, and a 429 rests the target. Otherwise its answer is not evidence for or against
 * events, and it is also sent while the breaker is open, which is when operators ask.
 *
 * The runner (flow/flow_run.h) does not make these calls: they are not steps of an event, but two at once, a create
 * that must fail, a card that does not exist. It would have to know how they are built, read and ordered, and there is
 * nothing more to them. */
#ifndef ISSUING_QUESTION_H
#define ISSUING_QUESTION_H

#include "worker/base/job.h"
#include "worker/peers/event_parameters.h"
#include "worker/peers/peer.h"
#include "worker/route/route.h"

#define QUESTION_ANSWER_MAX (64 * 1024)
#define QUESTION_QUERY_MS 5000 /* how long a statement may take */

struct question {
    const struct worker_env *env;
    struct uuid id, token;
    struct pg_query query; /* one at a time */
};

struct question_call {
    struct http_call http;         /* initialized by its owner, for QUESTION_ANSWER_MAX */
    struct credential *credential; /* that it was sent with; NULL = none */
    struct peer *peer;             /* private; NULL = it is not under way */
    struct target_ticket ticket;
};

typedef void question_on_result(struct pg_query *query, const struct pg_query_result *result);

/* Takes a row under a new token. The parameters from the fourth on are set by the caller. */
void question_take(struct question *question, const struct sql_statement *statement, int64_t lease_ms,
                   question_on_result *on_result);
/* A statement about the row. The parameters from the third on are set by the caller. */
void question_submit(struct question *question, const struct sql_statement *statement, question_on_result *on_result);

/* The names of the targets that are not paused, as a parameter that borrows from bytes: of the issuer this one, and of
 * the routes all, or those with a look-up. False: there are none, or out of memory. */
bool question_targets(const struct worker_env *env, const char *issuer, bool with_look_up, struct buf *bytes,
                      struct pg_param *ret_names);

/* How long a call to this peer may take: somebody waits for the answer. */
int64_t question_call_ms(const struct peer *peer);
/* Sends http, which is built. NULL: on_done follows, and reads the answer. Else why it was held back, which http shows
 * too; on_done does not follow. */
const char *question_call_send(struct question_call *call, struct peer *peer, void (*on_done)(struct http_call *http));
/* To be called when the answer is read; no effect on a call that was held back. */
void question_call_end(struct question_call *call);

#endif
