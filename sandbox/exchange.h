/* One call from its arrival to its answer, or to what a fault makes of its answer. */
#ifndef ISSUING_SANDBOX_EXCHANGE_H
#define ISSUING_SANDBOX_EXCHANGE_H

#include "common/base.h"
#include "common/http_server.h"
#include "sandbox/sandbox.h"

/* Lives on the handler's stack: everything the answer needs later is copied. */
struct exchange {
    struct sandbox *sandbox;
    struct http_request *request;
    enum call_kind kind;
    uint64_t call;
    const struct fault *fault; /* NULL = none */
    int status;                /* of the true answer, whose body is sandbox->body */
};

/* Notes the call and looks for a fault. True: the call takes effect, and the handler writes the true answer into
 * sandbox->body and ->status. False: it must not take effect. exchange_finish() ends both. */
must_check bool exchange_begin(struct exchange *exchange, struct sandbox *sandbox, struct http_request *request,
                               enum call_kind kind, const struct call_words *words);
/* Of a call that exchange_begin() let take effect: does it take effect now, and does it later (postponed.h)? With a
 * fault that executes twice it does both. */
must_check bool exchange_executes_now(const struct exchange *exchange);
must_check bool exchange_executes_late(const struct exchange *exchange);
/* The true answer is an error: {"code","detail"}. */
void exchange_refuse(struct exchange *exchange, int status, const char *code, const char *detail);
/* Answers, now or later, or never. The request and the exchange may not be used after it. */
void exchange_finish(struct exchange *exchange);
/* Resets every request to that target that still waits for its answer. */
void exchange_end_late(struct sandbox *sandbox, enum call_target target);

/* The handlers' common questions. */
must_check bool exchange_is_json(const struct http_request *request);
must_check bool exchange_is_authorized(const struct http_request *request, const struct secret *credential);

#endif
