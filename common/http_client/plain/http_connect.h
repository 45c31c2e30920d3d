/* A TCP connection for the clear-text transport: libcurl looks up the name, tries the addresses of both families and
 * keeps the time. Private to the clear-text transport. */
#ifndef ISSUING_HTTP_CONNECT_H
#define ISSUING_HTTP_CONNECT_H

#include "common/http_client/plain/http_plain.h"

/* Later, once, from the loop: on_end with a connected descriptor, which the receiver owns, or with -1 and why, NULL =
 * its time is over. false: out of memory. */
must_check bool http_connect_start(struct http_plain_origin *origin, int64_t timeout_ms,
                                   void (*on_end)(struct http_plain_origin *origin, int fd, const char *why));
/* on_end of those that are under way is not called. */
void http_connect_stop_all(struct http_plain_origin *origin);

#endif
