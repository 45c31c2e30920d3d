/* The stand-in card issuer of CONTRACT 3, profile `generic`. */
#ifndef ISSUING_SANDBOX_ISSUER_H
#define ISSUING_SANDBOX_ISSUER_H

#include "common/http_server.h"

/* The listener's on_request; context is the struct sandbox. */
void issuer_on_request(void *context, struct http_request *request);

#endif
