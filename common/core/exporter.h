/* Sends spans (span.h) to a receiver of OpenTelemetry's protocol: OTLP over HTTP, in JSON. Spans never delay the work
 * that they describe: the number of waiting spans is bounded, a batch has at most 512, one request is in flight, and
 * spans that cannot be delivered are dropped and counted. A program has one exporter, or none if spans are
 * not exported. */
#ifndef ISSUING_EXPORTER_H
#define ISSUING_EXPORTER_H

#include <uv.h>

#include "common/core/config/config.h"
#include "common/core/span.h"
#include "common/lib/base/err.h"
#include "common/lib/base/metrics.h"

struct exporter;

struct exporter_options {
    uv_loop_t *loop;
    const struct config *config; /* borrowed until it is closed, as the others */
    const char *program;         /* service.name, unless it is configured */
    struct metrics *metrics;     /* begins with DAEMON_METRICS */
};

/* *ret_exporter: NULL = no spans are wanted. After a failure the process must end. */
must_check bool exporter_open(const struct exporter_options *options, struct exporter **ret_exporter, struct err *err);
/* Whether it could be opened with these options. ERR_CONFIG where an option, a variable or a file cannot be used. */
must_check bool exporter_check(const struct config *config, const char *program, struct err *err);
/* Reads the headers and the authorities again; a file that cannot be used leaves the old one in force, and is
 * logged. */
void exporter_reload(struct exporter *exporter);
/* Whether spans of this event's trace are sent: the sampled flag says so where it was given, else trace.sample; then
 * the flag is set in the trace. ret_parent: the span that they are below; "" = none. */
bool exporter_wants(const struct exporter *exporter, struct trace *trace, char ret_parent[SPAN_ID_SIZE]);
#define EXPORTER_SPANS_BYTES (64 * 1024) /* that are put at once */
/* An empty buffer, for spans that are put in the same iteration of the loop. */
struct buf *exporter_scratch(struct exporter *exporter);
/* Copies `count` spans, together at most EXPORTER_SPANS_BYTES. All or none: if there is no room, or the buffer has
 * failed, they are counted as dropped. */
void exporter_put(struct exporter *exporter, const struct buf *spans, int count);
/* To be called again and again once the last span has ended: sends what is there, for at most two seconds. True: it is
 * over, which it is for NULL. */
bool exporter_drain(struct exporter *exporter);
/* Drops what is left. on_closed is called from the loop; the exporter is freed before it. */
void exporter_close(struct exporter *exporter, void (*on_closed)(void *context), void *context);

#endif
