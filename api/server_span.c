/* See server_span.h. */
#include "api/server_span.h"

#include <stdio.h>
#include <string.h>

#include "api/client_headers.h"
#include "common/lib/base/clock.h"

#define PATH "/v1/card-requests"

void server_span_begin(struct exporter *exporter, const struct http_request *request, const struct uuid *proposed_id,
                       struct server_span *ret_span)
{
    struct trace trace;
    trace_of_event(header_read_trace(request), (struct slice){0}, proposed_id, &trace);
    if (!exporter_wants(exporter, &trace, ret_span->parent))
        return;
    memcpy(ret_span->text, trace.parent, sizeof(trace.parent));
    span_make_id(ret_span->text + SPAN_ID_AT);
}

void server_span_end(struct exporter *exporter, const struct server_span *span, const struct http_request *request,
                     int status, const struct uuid *event_id, bool is_replay)
{
    int64_t end_us = clock_wall_us(), start_us = end_us - (clock_mono_us() - request->started_us);
    const struct span server = {
        SPAN_SERVER, span->text + TRACE_ID_AT, span->text + SPAN_ID_AT, span->parent, "POST", PATH, start_us, end_us,
        {NULL}};
    struct buf *out = exporter_scratch(exporter);
    char text[UUID_TEXT_SIZE];
    span_begin(out, &server);
    span_text(out, "http.request.method", "POST");
    span_text(out, "http.route", PATH);
    span_text(out, "url.path", PATH);
    span_text(out, "url.scheme", "http");
    span_integer(out, "http.response.status_code", status);
    if (status >= 200 && status < 300) { /* else nothing is known to be recorded */
        uuid_format(event_id, text);
        span_text(out, "issuing.request_id", text);
        span_bool(out, "issuing.replayed", is_replay);
    }
    snprintf(text, sizeof(text), "%d", status);
    span_text(out, "error.type", status >= 500 ? text : NULL);
    span_end(out, status >= 500);
    exporter_put(exporter, out, 1);
}

void server_span_of_refusal(struct exporter *exporter, const struct http_request *request, int status)
{
    const struct uuid id = uuid7_make();
    struct server_span span = {0};
    server_span_begin(exporter, request, &id, &span);
    if (span.text[0])
        server_span_end(exporter, &span, request, status, &id, false);
}
