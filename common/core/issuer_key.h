/* The issuer key (the event's id, sent as Idempotency-Key with every create and delivery): for how long it may be used.
 *
 * A peer honours a key for an agreed lifetime, counted from the first request that has it. After that the same request
 * makes a second card, or is executed a second time. The worker decides with these functions, and issuing-ctl uses them
 * to show operators what the worker will do. Pure. */
#ifndef ISSUING_ISSUER_KEY_H
#define ISSUING_ISSUER_KEY_H

#include "common/lib/base/base.h"

/* The longest value of issuer.key_lifetime, 3660d, means that the issuer honours its keys for ever. */
#define ISSUER_KEY_FOREVER_MS (INT64_C(3660) * 24 * 60 * 60 * 1000)

/* For how long after its first create an event may be sent again with its key: issuer.key_lifetime less a margin of a
 * tenth of it or issuer.timeout, whichever is longer, but at most 5 min; and never less than issuer.settle_time, so
 * that what is delivered late still meets its key. 0 or negative: never. INT64_MAX: for ever. */
int64_t issuer_key_sendable_ms(int64_t lifetime_ms, int64_t timeout_ms, int64_t settle_ms);
/* For how long after it was sent a delivery of a route may still arrive, by the route's key_lifetime and timeout: 30 s,
 * or 2 x timeout if that is longer. At most a quarter of the lifetime, else no delivery could be repeated; but never
 * below 2 x timeout. */
int64_t issuer_key_route_settle_ms(int64_t lifetime_ms, int64_t timeout_ms);

#endif
