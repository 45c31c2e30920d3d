/* The `traceparent` header of W3C Trace Context, version 00: its grammar, and the header of an outgoing call. Pure, but
 * for the random ids. */
#ifndef ISSUING_TRACE_H
#define ISSUING_TRACE_H

#include "common/base/base.h"

#define TRACE_LENGTH 55 /* 00-<trace id: 32 hex>-<span id: 16 hex>-<flags: 2 hex> */
#define TRACE_SIZE (TRACE_LENGTH + 1)

/* Lower-case hex of the right lengths, with a trace id and a span id that are not all zero. What is not valid must be
 * ignored: the call then begins a trace of its own. */
bool trace_is_valid(struct slice text);
/* The traceparent of a call that is made for `parent`: its trace and its flags, with a new span. parent is valid, or
 * "": then the call begins a new trace. */
void trace_make_child(const char *parent, char ret_text[TRACE_SIZE]);

#endif
