/* Draws traces, as text for a terminal and as a page that needs nothing else. Pure: spans in, text out; the same spans,
 * the same bytes. Nothing of a span's texts acts on a terminal or ends an element of the page. */
#ifndef ISSUING_SANDBOX_TRACE_DRAWING_H
#define ISSUING_SANDBOX_TRACE_DRAWING_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "sandbox/spans.h"

/* All spans of one trace, at least one: each with its bar over time. False: no memory, or `out` is full. */
bool trace_draw(const struct span *const *spans, size_t count, bool as_page, struct buf *out);

/* A trace as one line of a list. */
struct trace_line {
    const struct span *first; /* by its start */
    size_t spans, errors;
    uint64_t from_ns, to_ns;
};

/* `at`: what comes before the trace id in a link, "http://127.0.0.1:8072/traces/". */
bool trace_draw_list(const struct trace_line *lines, size_t count, const char *at, bool as_page, struct buf *out);

#endif
