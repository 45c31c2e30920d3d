/* A receiver of OpenTelemetry's traces (OTLP/HTTP in JSON), which draws them: POST /v1/traces, GET /traces, GET
 * /traces/{trace_id}. Left out: protobuf's binary encoding and gzip, which are answered 415. */
#ifndef ISSUING_SANDBOX_TRACES_H
#define ISSUING_SANDBOX_TRACES_H

#include "common/lib/base/buf.h"
#include "common/lib/http_server/http_server.h"
#include "sandbox/sandbox.h"

/* Takes an export; returns the answer's status, its JSON body is in `out`. */
int traces_take(struct sandbox *sandbox, const struct http_request *request, struct buf *out);
/* Whether it is drawn as a page, or as text: Accept names text/html. */
bool traces_as_page(const struct http_request *request);
/* The traces whose spans arrived last, the newest first. */
void traces_write_list(const struct sandbox *sandbox, const struct http_request *request, size_t limit,
                       struct buf *out);
/* False: there is no span of this trace here. */
must_check bool traces_write(const struct sandbox *sandbox, struct slice trace_id, bool as_page, struct buf *out);

#endif
