/* Claims due events of one type into free slots. Polling finds every due event; a wakeup, which may be lost, only saves
 * time.
 *
 * One claim is in flight at a time, for as many events as can start now (slots_capacity). A claim that was filled is
 * followed by the next one at once; otherwise the next one waits for a wakeup, for a free slot after a claim that was
 * filled, or for the poll.
 *
 * Card requests come from two sources: clients, and services, which may send any number at once. The claims of the two
 * take turns, each from a bookmark of its own, so that neither waits for the other's backlog.
 *
 * A claim begins at the bookmark, where the last one ended, and so never walks over what was finished before. What
 * becomes visible behind the bookmark is found by the sweep (sweep.h).
 *
 * Events that were lost with their worker more than once are claimed one by one, while the worker holds nothing else
 * (turns.h). In an ordered type the database holds an event behind an earlier one of its user, and does not hand it
 * out. */
#ifndef ISSUING_CLAIM_H
#define ISSUING_CLAIM_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "worker/base/worker_env.h"
#include "worker/flow/slots.h"
#include "worker/flow/turns.h"
#include "worker/route/route.h"

struct claim;

enum claim_source { CLAIM_CLIENTS, CLAIM_SERVICES, CLAIM_SOURCES };

/* All pointers are borrowed until the claims are closed. */
struct claim_options {
    const struct worker_env *env; /* its clock notes the database's time of each claim and look */
    const char *event_type;
    struct route *route; /* that delivers the type; NULL = CARD_ISSUE */
    struct slots *slots;
    struct slots_share *share; /* of the type */
    struct turns *turns;       /* of all types */
    /* The database's clock was set back, or may have been. From the loop. */
    void (*on_clock_set_back)(void *context);
    void *context;
};

must_check bool claim_open(const struct claim_options *options, struct claim **ret_claim, struct err *err);
/* New events may be due. Cheap; acts at the end of the loop iteration. */
void claim_wake(struct claim *claim);
/* At a poll: events may be due that the claims do not know of. */
void claim_poll(struct claim *claim);
/* The same as claim_wake of one source of card requests. */
void claim_wake_source(struct claim *claim, enum claim_source source);
/* A slot became free, or a peer takes more calls. Cheap; acts at the end of the loop iteration. */
void claim_capacity_changed(struct claim *claim);
/* The time until which everything due of the source is claimed, in microseconds since 1970 by the database's clock;
 * -1 = not known, or not recently. */
int64_t claim_bookmark_us(const struct claim *claim, enum claim_source source);
/* Something has been due since due_us, behind the bookmark. */
void claim_go_back(struct claim *claim, enum claim_source source, int64_t due_us);
/* The source as the statements take it; all events of a route are one source. */
struct pg_param claim_source_param(const struct route *route, enum claim_source source);
/* The database's time that a statement has returned, and our time when it was sent. Noted also while no claim may
 * start, since the clock may step twice in that time. */
void claim_note_clock(struct claim *claim, int64_t db_us, int64_t sent_us);
/* No claim starts after it. */
void claim_stop(struct claim *claim);
/* No claim is in flight. */
bool claim_is_idle(const struct claim *claim);
/* Precondition: claim_is_idle(). on_closed is called from the loop. */
void claim_close(struct claim *claim, void (*on_closed)(void *context), void *context);

#endif
