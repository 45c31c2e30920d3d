/* The request headers that have a grammar of their own: Idempotency-Key, Prefer, Content-Type, traceparent and
 * tracestate. Pure. */
#ifndef ISSUING_CLIENT_HEADERS_H
#define ISSUING_CLIENT_HEADERS_H

#include "common/core/outbox.h"
#include "common/lib/base/base.h"
#include "common/lib/base/trace.h"
#include "common/lib/http_server/http_server.h"

/* The client's Idempotency-Key, decoded. */
struct client_key {
    char text[OUTBOX_KEY_MAX + 1]; /* NUL-terminated; no NUL inside */
    size_t length;
};

/* A structured-field String (RFC 9651, 3.3.3; parameters behind it are ignored) or the same value bare: "k" and k are
 * one key. 1 to 255 bytes, 0x20-0x7E quoted, 0x21-0x7E without " , ; \ bare. false: *ret_fault (static) is the
 * fault. */
must_check bool header_read_key(struct slice value, struct client_key *ret_key, const char **ret_fault);

#define PREFER_WAIT_MAX_S 30
/* Prefer: wait=N (RFC 7240): seconds, 0 = none, above 30 = 30; anything unreadable is ignored. All Prefer lines are one
 * list; the first wait counts. */
int header_read_wait(const struct http_request *request);

/* application/json; a charset must be utf-8, and other parameters are ignored. */
bool header_is_json(struct slice content_type);

/* The traceparent if it is one (W3C Trace Context, version 00), else {NULL,0}. */
struct slice header_read_trace(const struct http_request *request);
/* The tracestate, all its lines as one, if it is one; else {NULL,0}. */
struct slice header_read_trace_state(const struct http_request *request, char ret_text[TRACE_STATE_SIZE]);

#endif
