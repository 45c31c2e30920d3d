/* The slots for attempts in this worker (worker.max_in_flight of them), and how many events of a type it should claim
 * now.
 *
 * No more events of a type are held than its targets can soon take: as many as they work on, and as many waiting, so
 * that a wait takes about one call and the lease outlasts it.
 *
 * The types share the slots. Each type is sure of a small part, which the others leave free. Beyond that part a type
 * takes what is free, and above an equal share (the slots divided by the types that have events now) only what no other
 * type with due events needs. Slots are not taken away: a type comes back to its equal share as its events end. Where
 * there are fewer slots than types, the type that was served longest ago goes first. */
#ifndef ISSUING_SLOTS_H
#define ISSUING_SLOTS_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "worker/flow/flow.h"
#include "worker/peers/target.h"

#define SLOTS_TARGETS_MAX 2

/* Which due events a claim takes. */
enum slots_choice {
    SLOTS_OLDEST,
    SLOTS_FRESH_FIRST, /* those that were refused (suspicion.h) come last */
    SLOTS_FRESH,       /* only those that were not refused */
    SLOTS_REFUSED,     /* only those that were */
    SLOTS_NONE,
};

/* What one type has of the slots. */
struct slots_share {
    const struct target *targets[SLOTS_TARGETS_MAX]; /* that its events call; NULL = no more */
    bool is_hungry;                                  /* events of it may be due, and its claim asks for slots */
    bool has_backlog;                                /* its last claim was filled: more are due */
    /* Private: */
    int in_flight;  /* events that are held */
    int probes;     /* of them, those that were claimed as probes */
    int granted;    /* slots that its claim in flight may fill */
    int64_t served; /* the number of its last grant */
};

struct slots {
    struct flow *flows; /* count of them */
    struct flow *free;
    int count;
    int in_flight;
    struct slots_share *shares; /* shares_count of them, in the order of the claims */
    int shares_count;
    /* Private: */
    int granted;    /* of all shares */
    int64_t grants; /* how many were made so far */
};

/* Allocates count slots, each set up with env, which must outlive them, and a share for each type. slots_done() frees
 * them and accepts zeros. */
must_check bool slots_init(struct slots *slots, int count, int shares_count, const struct flow_env *env,
                           struct err *err);
void slots_done(struct slots *slots);
/* NULL: none is free. is_probe: the event was claimed as one. */
struct flow *slots_take(struct slots *slots, struct slots_share *share, bool is_probe);
void slots_give_back(struct slots *slots, struct flow *flow);
/* Events of the type that are held, and slots that its claim may fill. */
int slots_held(const struct slots_share *share);
/* No event is held, and no claim is in flight that may bring one. */
bool slots_are_empty(const struct slots *slots);
/* A claim for `count` events is sent / is answered. */
void slots_grant(struct slots *slots, struct slots_share *share, int count);
void slots_settle(struct slots *slots, struct slots_share *share);
/* How many more events the type's targets can take; 0 = none, since one of them is away, rests or is paused. */
int slots_target_room(const struct slots_share *share, int64_t now_ms);
/* None of its targets is away, rests or is paused; or a probe is due. */
bool slots_target_is_open(const struct slots_share *share, int64_t now_ms);
/* A claim is for one probe only: a kind of call is suspected at one of its targets. */
bool slots_is_probe(const struct slots_share *share);
enum slots_choice slots_choose(const struct slots_share *share, int64_t now_ms);
/* How many events of the type may be claimed now. */
int slots_capacity(const struct slots *slots, const struct slots_share *share, int64_t now_ms);
/* The least capacity that is worth a claim while a backlog keeps the type busy; up to this many slots stay empty. */
int slots_claim_threshold(const struct slots *slots, const struct slots_share *share, int64_t now_ms);

#endif
