/* The stand-in card issuer, in the dialect that docs/peers.md describes. */
#ifndef ISSUING_SANDBOX_ISSUER_H
#define ISSUING_SANDBOX_ISSUER_H

#include "common/http_server/http_server.h"

/* The listener's on_request; context is the struct sandbox. */
void issuer_on_request(void *context, struct http_request *request);

#endif
