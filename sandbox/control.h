/* The sandbox's third listener: how tests and people script it and see what it did. */
#ifndef ISSUING_SANDBOX_CONTROL_H
#define ISSUING_SANDBOX_CONTROL_H

#include "common/lib/http_server/http_server.h"

#define CONTROL_BODY_MAX ((size_t)16 * 1024 * 1024) /* FAULTS_MAX rules */

/* The listener's on_request; context is the struct sandbox. */
void control_on_request(void *context, struct http_request *request);

#endif
