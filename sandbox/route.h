/* The stand-ins for what routes of the worker call: a payment service and a receiver of webhooks.
 *
 *     POST|PUT /v1/charges        charges once for each Idempotency-Key
 *     GET /v1/charges/{key}       200 = this key was charged, 404 = it was not
 *     POST|PUT /hooks/{name}      keeps headers and body, 204 */
#ifndef ISSUING_SANDBOX_ROUTE_H
#define ISSUING_SANDBOX_ROUTE_H

#include "common/lib/http_server/http_server.h"

/* The listener's on_request; context is the struct sandbox. */
void route_on_request(void *context, struct http_request *request);

#endif
