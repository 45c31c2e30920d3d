/* Spans as OpenTelemetry's protocol has them in JSON (OTLP 1.x, opentelemetry/proto/trace/v1), written as soon as they
 * have ended: attribute after attribute into a buffer, without a structure in between. Pure.
 *
 *     span_begin(&out, &span);
 *     span_text(&out, "http.route", "/v1/card-requests");
 *     span_end(&out, false);
 *
 * A span is sent to others, who keep it: it has no card number, token, key, user id or query string, and no path but
 * its template. */
#ifndef ISSUING_SPAN_H
#define ISSUING_SPAN_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/trace.h"
#include "common/lib/base/uuid7.h"

#define SPAN_ID_SIZE 17
#define SPAN_EVENTS_MAX 2

enum span_kind { SPAN_SERVER = 2, SPAN_CLIENT = 3, SPAN_CONSUMER = 5 };

struct span {
    enum span_kind kind;
    const char *trace_id;                /* 32 digits */
    const char *id, *parent_id;          /* 16 digits; parent_id "" = it is the root */
    const char *verb, *object;           /* its name: "POST /v1/cards". Of tables, or the type of an event */
    int64_t start_us, end_us;            /* since 1970 */
    const char *events[SPAN_EVENTS_MAX]; /* what had happened when it began, of a table; NULL = no more */
};

/* Writes a new id into the 16 bytes at ret_id; no NUL follows. */
void span_make_id(char *ret_id);
/* Whether the spans of a trace that no client began are sent: this share of all ids is sampled. The api and the workers
 * come to the same answer. trace_id: 32 digits, which are an event's id. */
bool span_is_sampled(const char *trace_id, int64_t share_millionths);

/* Appends to the spans that are in the buffer. */
void span_begin(struct buf *out, const struct span *span);
void span_text(struct buf *out, const char *key, const char *value); /* NULL or "": nothing */
void span_integer(struct buf *out, const char *key, int64_t value);
void span_bool(struct buf *out, const char *key, bool value);
/* is_error: the operation failed, or its outcome is unknown. */
void span_end(struct buf *out, bool is_error);

#endif
