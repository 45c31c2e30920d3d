/* The stand-in core-api: docs/peers.md describes the calls. */
#ifndef ISSUING_SANDBOX_CORE_H
#define ISSUING_SANDBOX_CORE_H

#include "common/lib/http_server/http_server.h"

/* The listener's on_request; context is the struct sandbox. */
void core_on_request(void *context, struct http_request *request);

#endif
