/* Due events -> free slots. Polling is the truth; a hint that may be lost makes it fast.
 *
 * One claim at a time, for as many events as can start now (worker_room). A full answer is followed by the next claim
 * at once, anything less by the next hint, the next free slot after a full one, or the poll.
 *
 * The attempts begin with its rows, before they are committed, and are told then what became of it (the gate, flow.h);
 * after a claim that was not committed, only with the commit.
 *
 * A claim begins where the last one ended, at the bookmark, and so never walks over what was finished before it. What
 * becomes visible behind the bookmark is the sweep's to find (sweep.h). */
#ifndef ISSUING_CLAIM_H
#define ISSUING_CLAIM_H

#include "common/base.h"
#include "common/err.h"

struct worker;
struct claim;

must_check bool claim_open(struct worker *worker, struct claim **ret_claim, struct err *err);
/* There may be something to claim, or room for it. Cheap; acts at the end of the loop's turn. */
void claim_hint(struct claim *claim);         /* new events may be there */
void claim_room_changed(struct claim *claim); /* a slot or a peer became free */
/* How far all was claimed, in microseconds since 1970 by the database's clock; -1 = not known, or not of late. */
int64_t claim_bookmark_us(const struct claim *claim);
/* Something due lies there, behind the bookmark. */
void claim_go_back(struct claim *claim, int64_t due_us);
/* No claim starts after it. */
void claim_stop(struct claim *claim);
bool claim_is_idle(const struct claim *claim); /* nothing of it is in flight */
/* Wants an idle one. on_closed from the loop. */
void claim_close(struct claim *claim, void (*on_closed)(void *context), void *context);

#endif
