/* The span of POST /v1/card-requests, whatever its answer is: from the first byte of the request to its answer. The
 * event is stored with it as its parent, so that the spans of workers are below it. Only where spans are exported. */
#ifndef ISSUING_SERVER_SPAN_H
#define ISSUING_SERVER_SPAN_H

#include "common/core/exporter.h"
#include "common/lib/http_server/http_server.h"

struct server_span {
    char text[TRACE_SIZE]; /* as a traceparent; "" = there is none */
    char parent[SPAN_ID_SIZE];
};

/* Begins the span where the client or trace.sample wants one. proposed_id: of the event. */
void server_span_begin(struct exporter *exporter, const struct http_request *request, const struct uuid *proposed_id,
                       struct server_span *ret_span);
/* The request is answered with this status. Precondition: there is a span. event_id: of the event that was recorded. */
void server_span_end(struct exporter *exporter, const struct server_span *span, const struct http_request *request,
                     int status, const struct uuid *event_id, bool is_replay);
/* Begins and ends the span of a request that no handler sees: its head was read, and it is refused with this status. */
void server_span_of_refusal(struct exporter *exporter, const struct http_request *request, int status);

#endif
