/* The transport of https: calls through libcurl, which does TLS, HTTP/1.1, and HTTP/2 for calls that may use it where
 * the peer offers it. Private to the HTTP client. */
#ifndef ISSUING_HTTP_TRANSFER_H
#define ISSUING_HTTP_TRANSFER_H

#include "common/http_client/authorities.h"
#include "common/http_client/http_call.h"
#include "common/http_client/http_loop.h"

/* Embedded in the client. */
struct http_transfers {
    struct http_loop *loop;
    int connections_max; /* of one origin */
    size_t answer_max;
    const char *ca_file;             /* of the client's options */
    struct authorities *authorities; /* NULL = as ca_file names them */
    struct http_transfer *first;     /* those under way */
};

/* What belongs to one origin; zeros = nothing yet. */
struct http_transfer_origin {
    struct http_lane *open_lanes; /* those that take more calls; the first is filled up first */
    struct http_lane **lanes;     /* owned */
    int lanes_count, next_lane;
};

void http_transfers_init(struct http_transfers *transfers, struct http_loop *loop, int connections_max,
                         size_t answer_max, const char *ca_file);
void http_transfers_trust(struct http_transfers *transfers, struct authorities *authorities);
/* Takes the call over, and ends it once, from the loop; or returns why it did not start. */
const char *http_transfer_start(struct http_transfers *transfers, struct http_transfer_origin *origin,
                                struct http_call *call);
/* Precondition: the client is closing, so no call starts another. */
void http_transfers_stop_all(struct http_transfers *transfers, const char *why);
void http_transfer_origin_done(struct http_transfer_origin *origin);
/* Precondition: no transfer is under way. */
void http_transfers_done(struct http_transfers *transfers);

#endif
