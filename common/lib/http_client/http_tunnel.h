/* The way through a proxy: a CONNECT, and the head of its answer. After it the stream is the peer's. Private to the
 * HTTP client. */
#ifndef ISSUING_HTTP_TUNNEL_H
#define ISSUING_HTTP_TUNNEL_H

#include "common/lib/http_client/http_stream.h"

struct http_tunnel;

/* To this host and port. NULL: out of memory. */
struct http_tunnel *http_tunnel_new(const char *authority);
void http_tunnel_free(struct http_tunnel *tunnel); /* accepts NULL */
/* The next part, when the socket can be read, or written; one read at most, into `input`, which is wiped after it.
 * HTTP_STREAM_SHAKEN: the proxy has connected. */
enum http_stream_shaking http_tunnel_shake(struct http_tunnel *tunnel, struct http_stream *stream, char *input,
                                           size_t size, char ret_why[HTTP_TLS_WHY_SIZE]);

#endif
