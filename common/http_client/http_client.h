/* The outgoing HTTP client: calls (http_call.h) on one loop, over pooled connections. http:// URLs go in clear text
 * (plain/), https:// URLs through libcurl (http_transfer.h). README.md beside this file has the whole picture.
 *
 * No redirects, http and https only, at most answer_max bytes of answer, TLS >= 1.2 with peer and host verified, no
 * proxy from the environment, no cookies, no .netrc, signals off. */
#ifndef ISSUING_HTTP_CLIENT_H
#define ISSUING_HTTP_CLIENT_H

#include <uv.h>

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/http_client/authorities.h"
#include "common/http_client/http_call.h"

struct http_client;

struct http_client_options {
    int connections_max; /* pooled ones, for each scheme, host and port */
    size_t answer_max;
    /* The authorities that TLS trusts, PEM; NULL or "" = the system's bundle. Borrowed until the client is closed. */
    const char *ca_file;
};

must_check bool http_client_open(uv_loop_t *loop, const struct http_client_options *options,
                                 struct http_client **ret_client, struct err *err);
/* From now on TLS trusts these instead of ca_file; calls under way go on with those that they began with. */
void http_client_trust(struct http_client *client, struct authorities *authorities);
/* The request is wiped and freed when the call ends, so it is made again before the next start. An allocation that
 * fails ends the call with HTTP_NOT_SENT. */
void http_client_start(struct http_client *client, struct http_call *call);
/* Ends every call (HTTP_NOT_SENT or HTTP_LOST), closes handles, then on_closed from the loop. */
void http_client_close(struct http_client *client, void (*on_closed)(void *context), void *context);
/* Does this libcurl speak HTTP/2 well enough to be trusted with calls? version: its name, static. */
bool http_client_http2_is_sound(const char **ret_version);

#endif
