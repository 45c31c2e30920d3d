/* Compares the issuer's own list of its cards with ours (issuing-ctl reconcile --from-issuer; issuing.issuer_listings):
 *
 *     take -> GET issuer: a page -> note it -> pause -> the next page ... -> compare ours, piece by piece -> end
 *
 * A worker takes a list when the poll finds one (watch.h), checks every minute whether issuer.reconcile_every asks for
 * one, and holds one list at a time, under a lease and a token. What a page has is compared, and the position of the
 * next page stored, by one function of the database; so a worker that dies loses at most a page, and another one goes
 * on. A page that cannot be read is asked for again after a pause; what the issuer refuses, and what stays unreadable,
 * ends the list with the reason. The worker rests after each page as long as the page took, up to a second. The calls
 * are those of question.h. Nothing is changed at the issuer. */
#ifndef ISSUING_ISSUER_LISTING_H
#define ISSUING_ISSUER_LISTING_H

#include "worker/base/job.h"

struct issuer_listing;

/* After a stop no list is taken; one that is held is given away before its next call. */
must_check bool issuer_listing_open(const struct worker_env *env, struct issuer_listing **ret_listing, struct err *err);
/* Somebody may wait for one. */
void issuer_listing_wake(struct issuer_listing *listing);

#endif
