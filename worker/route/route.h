/* The routes of a worker: for each configured event type its peer (target, breaker, credential, limit of calls) and the
 * key that signs its deliveries.
 *
 * A route's peer is named after its event type: in worker_targets, in target_controls, in metrics and in the log. */
#ifndef ISSUING_ROUTE_H
#define ISSUING_ROUTE_H

#include "common/core/config/config.h"
#include "common/core/decide/outcome.h"
#include "common/core/header_file.h"
#include "common/lib/base/err.h"
#include "worker/peers/peer.h"
#include "worker/route/route_sign.h"

struct route {
    const struct config_route *config; /* borrowed */
    struct peer peer;
    struct route_signer *signer; /* NULL = deliveries are not signed; replaced by a reload */
    struct header_file *headers; /* NULL = none of its own; replaced by a reload */
};

struct routes {
    struct route *routes; /* count of them, in the order of config->routes */
    int count;
    struct closing closing; /* private */
};

/* NULL: no route delivers this type. */
struct route *routes_find(const struct routes *routes, const char *type);

/* Reads no files: peer_load_credential() of each route's peer, route_load_secret() and
 * route_load_headers() do. options as for peers_open(). */
must_check bool routes_open(struct routes *routes, const struct peers_options *options, struct err *err);
/* Reads the secrets that sign; a file that cannot be used leaves the old ones in force. */
must_check bool route_load_secret(struct route *route, struct err *err);
/* The same for the route's own headers. */
must_check bool route_load_headers(struct route *route, struct err *err);
/* Overwrites with '*' what a peer's words repeat of the headers' values; NULL = there are none. */
static inline void route_headers_hide(const struct header_file *headers, char *text)
{
    const char *const *values;
    size_t count = header_file_values(headers, &values);
    outcome_hide(count, values, text);
}
/* Sets issuing_breaker_state of each route. */
void routes_update_metrics(struct routes *routes);
/* Precondition and callback as peers_close(). */
void routes_close(struct routes *routes, void (*on_closed)(void *context), void *context);

#endif
