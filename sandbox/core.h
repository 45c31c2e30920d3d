/* The stand-in core-api: docs/peers.md describes the calls. */
#ifndef ISSUING_SANDBOX_CORE_H
#define ISSUING_SANDBOX_CORE_H

#include "common/http_server/http_server.h"
#include "common/json/json_writer.h"
#include "sandbox/sandbox_call.h"

/* The listener's on_request; context is the struct sandbox. */
void core_on_request(void *context, struct http_request *request);
/* Adds the `issuer` object with what the issuer must be told of the user, and tells the issuer of the holder. holder: NULL
 * = the one that the dialect makes up. Nothing is added where the dialect has no holders. */
void core_put_issuer(struct sandbox *sandbox, struct slice user_id, const char *holder, struct json_writer *writer);

#endif
