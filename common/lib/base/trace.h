/* The headers `traceparent`, version 00, and `tracestate` of W3C Trace Context: their grammar, and what an outgoing
 * call sends of them. Pure. */
#ifndef ISSUING_TRACE_H
#define ISSUING_TRACE_H

#include "common/lib/base/base.h"
#include "common/lib/base/uuid7.h"

#define TRACE_LENGTH 55 /* 00-<trace id: 32 hex>-<parent id: 16 hex>-<flags: 2 hex> */
#define TRACE_SIZE (TRACE_LENGTH + 1)
#define TRACE_ID_AT 3 /* in it */
#define SPAN_ID_AT 36 /* likewise, the parent id: 16 digits */
#define TRACE_ID_SIZE 33
#define TRACE_STATE_MAX 512 /* bytes; a longer tracestate is dropped */
#define TRACE_STATE_SIZE (TRACE_STATE_MAX + 1)

/* Of a request, and of all calls that are made for it. */
struct trace {
    char parent[TRACE_SIZE];      /* traceparent; "" = none */
    char state[TRACE_STATE_SIZE]; /* tracestate; "" = none */
    char id[TRACE_ID_SIZE];       /* the trace id alone */
    bool is_ours;                 /* nobody gave one */
};

/* Lower-case hex of the right lengths, with a trace id and a parent id that are not all zero. What is not valid must be
 * ignored, and the tracestate with it. */
bool trace_is_valid(struct slice text);
/* At most 512 bytes and 32 members key=value. What is not valid must be ignored as a whole. */
bool trace_state_is_valid(struct slice text);
/* The trace of an event: what its client gave, as it is; common/core/exporter.h adds the spans below it. Where the
 * client gave none that is valid: a trace whose id is the event's id, not sampled; the same in each attempt. What
 * follows from such an event has the event's trace id with a parent of zeros (issuing.trace_below), which is not valid
 * either: its trace id is used, and it is sampled as the event was. */
void trace_of_event(struct slice parent, struct slice state, const struct uuid *event_id, struct trace *ret_trace);
/* The trace id within a traceparent, else that of the event; event_id NULL: else "". */
void trace_id_of(struct slice parent, const struct uuid *event_id, char ret_id[TRACE_ID_SIZE]);

#endif
