/* The newest spans that exporters of traces sent: a ring of fixed-size rows. Longer texts are cut, attributes and
 * events that have no room are left out, and the row says so. */
#ifndef ISSUING_SANDBOX_SPANS_H
#define ISSUING_SANDBOX_SPANS_H

#include "common/lib/base/base.h"

#define SPANS_MAX 8192
#define SPAN_TRACE_ID_SIZE 33
#define SPAN_ID_SIZE 17
#define SPAN_EVENTS_MAX 4

/* As in OpenTelemetry's protocol (trace.proto). */
enum span_kind { SPAN_UNSPECIFIED, SPAN_INTERNAL, SPAN_SERVER, SPAN_CLIENT, SPAN_PRODUCER, SPAN_CONSUMER };
enum span_status { SPAN_UNSET, SPAN_OK, SPAN_ERROR };

struct span {
    char trace_id[SPAN_TRACE_ID_SIZE], id[SPAN_ID_SIZE]; /* lower-case hex */
    char parent_id[SPAN_ID_SIZE];                        /* "" = none */
    uint64_t start_ns, end_ns;                           /* since 1970; 0 = not known */
    enum span_kind kind;
    enum span_status status;
    char service[48], name[96], message[96]; /* UTF-8 */
    struct {
        uint64_t at_ns;
        char name[64];
    } events[SPAN_EVENTS_MAX];
    int event_count, attribute_count;
    bool is_cut;           /* there were more attributes or events */
    size_t attributes_end; /* of what is used of: */
    char attributes[1024]; /* name, NUL, value, NUL, ... */
};

/* The attribute after `at`, in the span's order; NULL = the first. NULL at the end; its value stands behind its
 * name. */
const char *span_attribute(const struct span *span, const char *at);
const char *span_attribute_value(const char *name);

struct spans;

must_check struct spans *spans_new(void);
void spans_free(struct spans *spans);
void spans_clear(struct spans *spans);
/* Copies it. A span that is here already, as one of an export that was sent again, is replaced. */
void spans_put(struct spans *spans, const struct span *span);
/* The n-th newest, from 0; NULL = there are fewer. Borrowed until the next spans_put(). */
const struct span *spans_newest(const struct spans *spans, size_t n);
/* The first `max` spans of a trace, in the order of their arrival; returns how many. */
size_t spans_of(const struct spans *spans, const char *trace_id, const struct span **ret_spans, size_t max);

#endif
