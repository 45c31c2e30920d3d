/* Reads a body of OTLP/HTTP in its JSON encoding: an ExportTraceServiceRequest of OpenTelemetry's protocol 1.9
 * (https://opentelemetry.io/docs/specs/otlp/#otlphttp). Members that it does not know are ignored, as that page says,
 * and so are those that are not drawn: scope, links, flags, tracestate. */
#ifndef ISSUING_SANDBOX_OTLP_H
#define ISSUING_SANDBOX_OTLP_H

#include "common/lib/base/base.h"
#include "sandbox/spans.h"

/* Into spans. NULL, and in *ret_rejected the spans that have no trace id, span id or name that could be used, or a
 * member of another type; or why nothing of the body can be read, and none of it is in spans. */
const char *otlp_read(struct slice body, struct spans *spans, size_t *ret_rejected);

#endif
