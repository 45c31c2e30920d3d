/* The calls of a route: builds the delivery and the look-up, and reads their answers. Pure; the flow sends them.
 *
 * A delivery carries the payload as its body, `Idempotency-Key: <event id>` (the same on every attempt), CloudEvents
 * 1.0 in binary mode (ce-specversion, ce-id, ce-type, ce-source: issuing, ce-time, ce-subject: <user id>), and the
 * trace. A signed route adds the headers of Standard Webhooks. An event that an operator has sent again has
 * webhook-resend: 1. */
#ifndef ISSUING_ROUTE_CALL_H
#define ISSUING_ROUTE_CALL_H

#include "common/lib/base/uuid7.h"
#include "common/lib/http_client/http_call.h"
#include "common/core/decide/outcome.h"
#include "worker/route/route.h"

#define ROUTE_PAYLOAD_MAX (64 * 1024) /* bytes of a payload as text; a longer one is FAILED payload_invalid */
#define ROUTE_RESULT_MAX (8 * 1024)   /* bytes of an answer that is kept */

/* What is delivered. Borrowed during the build. */
struct route_event {
    struct uuid event_id;
    const char *user_id;
    struct slice payload;      /* JSON, as PostgreSQL writes it */
    int64_t created_ms;        /* Unix time: ce-time */
    const struct trace *trace; /* NULL = none */
    bool is_resent;
    bool is_test; /* not an event: its ce-type is TEST */
};

/* now_ms: Unix time, for the signature. False: out of memory, or a part does not fit. */
must_check bool route_build_deliver(const struct route *route, const struct route_event *event, int64_t now_ms,
                                    struct http_call *call);
/* The answer that the event keeps: well-formed JSON (object, array, string, number...) of at most ROUTE_RESULT_MAX
 * bytes that PostgreSQL takes as jsonb. Empty slice: there is none, or the route keeps none. Lives as long as the
 * call's answer. */
struct slice route_read_result(const struct http_call *call, const struct route *route);

/* Precondition: the route has a lookup_url. */
must_check bool route_build_lookup(const struct route *route, const struct route_event *event, struct http_call *call);

#endif
