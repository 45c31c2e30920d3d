/* The stand-ins for what routes of the worker call: a payment service and a receiver of webhooks.
 *
 *     POST|PUT /v1/charges        charges once for each Idempotency-Key
 *     GET /v1/charges/{key}       200 = this key was charged, 404 = it was not
 *     POST|PUT /hooks/{name}      keeps headers and body, 204 */
#ifndef ISSUING_SANDBOX_ROUTE_H
#define ISSUING_SANDBOX_ROUTE_H

#include "common/http_server/http_server.h"
#include "sandbox/charges.h"
#include "sandbox/sandbox_call.h"

/* The listener's on_request; context is the struct sandbox. */
void route_on_request(void *context, struct http_request *request);
/* For postponed.c: executes a charge whose caller may be gone. late_code: a refusal that the key keeps, "" = none. */
enum ledger_result route_charge_late(struct sandbox *sandbox, const struct charge_order *order, const char *late_code);
/* Keeps the answer of a charge under its key, as a rule with "stored" demands. */
void route_store(struct sandbox_call *call);

#endif
