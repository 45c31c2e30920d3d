/* Leads each request to the handler of its route (routes.h), after the checks that every request passes: path and
 * method, token, media type. */
#ifndef ISSUING_ROUTER_H
#define ISSUING_ROUTER_H

#include "common/lib/http_server/http_server.h"

/* The callbacks of the HTTP server (http_server.h); `context` is the struct api_env. Where a body follows, the checks
 * are made when the head is complete, so that a client without a token cannot make the server hold a body. */
bool router_on_head(void *context, struct http_request *request);
void router_on_request(void *context, struct http_request *request);
void router_on_refused(void *context, const struct http_request *request, int status, const char *detail,
                       struct http_reply *ret_reply);

#endif
