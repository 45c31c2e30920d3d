/* The places for attempts in this worker (worker.max_in_flight of them), and how many events it should claim now.
 *
 * No more events are held than a peer can soon take: as many as it works on, and as many waiting, so that a wait is
 * about one call long and the lease outlasts it. */
#ifndef ISSUING_SLOTS_H
#define ISSUING_SLOTS_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "worker/flow.h"
#include "worker/peer.h"

struct slots {
    struct flow *flows; /* count of them */
    struct flow *free;
    int count;
    int in_flight;
};

/* Allocates count slots, each set up with env, which must outlive them. slots_done() frees them and accepts zeros. */
must_check bool slots_init(struct slots *slots, int count, const struct flow_env *env, struct err *err);
void slots_done(struct slots *slots);
/* NULL: none is free. */
struct flow *slots_take(struct slots *slots);
void slots_give_back(struct slots *slots, struct flow *flow);
/* How many events may be claimed now: bounded by the free slots and by what each peer can take. */
int slots_capacity(const struct slots *slots, const struct peers *peers, int64_t now_ms);
/* The least capacity that is worth a claim while a backlog keeps the worker busy; up to so many slots stay empty. */
int slots_claim_threshold(const struct slots *slots, const struct peers *peers);

#endif
