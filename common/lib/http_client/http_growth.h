/* Makes the connections of an origin: one after the other is connected, shakes hands, and goes to the pool.
 * http_conn_limit.h says how many there may be. Private to the HTTP client. */
#ifndef ISSUING_HTTP_GROWTH_H
#define ISSUING_HTTP_GROWTH_H

#include "common/lib/http_client/http_pool.h"
#include "common/lib/http_client/http_pooled_conn.h"

void http_growth_open(struct http_pool *pool);
/* Makes as many as are allowed for the calls that wait. false: there is no memory for one, and none is there or being
 * made. A call whose time is over ends in the next iteration of the loop. */
bool http_growth_more(struct http_pool_origin *origin);
/* Whether no more are allowed. */
bool http_growth_is_full(const struct http_pool_origin *origin);
/* The next part of a handshake; the last one hands the connection to the pool, or ends the call that waits longest. */
void http_growth_shake(struct http_pooled_conn *conn);
/* Handshakes that take too long. Returns the next deadline. */
int64_t http_growth_look(struct http_pool_origin *origin, int64_t now_ms);
/* Ends all that are being made. */
void http_growth_stop(struct http_pool_origin *origin);

#endif
