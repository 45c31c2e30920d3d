/* A TCP connection, to the proxy if there is one: libcurl looks up the name, tries the addresses of both families, and
 * keeps the time. Private to the HTTP client. */
#ifndef ISSUING_HTTP_CONNECT_H
#define ISSUING_HTTP_CONNECT_H

#include "common/lib/http_client/http_pool.h"

/* Later, once, from the loop: on_end with a connected descriptor, which the receiver owns, or with -1 and why, NULL =
 * its time is over. false: out of memory. */
must_check bool http_connect_start(struct http_pool_origin *origin, int64_t deadline_ms,
                                   void (*on_end)(struct http_pool_origin *origin, int fd, int64_t deadline_ms,
                                                  const char *why));
/* on_end of those that are under way is not called. */
void http_connect_stop_all(struct http_pool_origin *origin);

#endif
