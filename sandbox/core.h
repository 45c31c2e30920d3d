/* The stand-in core-api of CONTRACT 4. */
#ifndef ISSUING_SANDBOX_CORE_H
#define ISSUING_SANDBOX_CORE_H

#include "common/http_server.h"

/* The listener's on_request; context is the struct sandbox. */
void core_on_request(void *context, struct http_request *request);

#endif
