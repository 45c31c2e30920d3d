/* The outgoing HTTP client: calls (http_call.h) on one loop, over pooled connections, in clear text or over TLS.
 * README.md beside this file has the whole picture.
 *
 * No redirects, http and https only, at most answer_max bytes of answer, TLS >= 1.2 with peer and host verified, no
 * proxy from the environment, no cookies, no .netrc, signals off. */
#ifndef ISSUING_HTTP_CLIENT_H
#define ISSUING_HTTP_CLIENT_H

#include <uv.h>

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/http_client/authorities.h"
#include "common/lib/http_client/http_call.h"

struct http_client;

struct http_client_options {
    int connections_max; /* pooled ones, for each scheme, host and port */
    size_t answer_max;
};

must_check bool http_client_open(uv_loop_t *loop, const struct http_client_options *options,
                                 struct http_client **ret_client, struct err *err);
/* From now on TLS trusts these instead of the system's; calls under way go on with those that they began with. */
void http_client_trust(struct http_client *client, struct authorities *authorities);
/* The request is wiped and freed when the call ends, so it is made again before the next start. An allocation that
 * fails ends the call with HTTP_NOT_SENT. */
void http_client_start(struct http_client *client, struct http_call *call);
/* The connections to the origin of this URL, and how many of them are idle. */
void http_client_count(const struct http_client *client, const char *url, int *ret_open, int *ret_idle);
/* Ends every call (HTTP_NOT_SENT or HTTP_LOST), closes handles, then on_closed from the loop. */
void http_client_close(struct http_client *client, void (*on_closed)(void *context), void *context);

#endif
