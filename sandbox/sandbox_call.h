/* One call from its arrival to its answer, or to what a fault makes of its answer. */
#ifndef ISSUING_SANDBOX_SANDBOX_CALL_H
#define ISSUING_SANDBOX_SANDBOX_CALL_H

#include "common/lib/base/base.h"
#include "common/lib/http_server/http_server.h"
#include "sandbox/order.h"
#include "sandbox/postponed.h"
#include "sandbox/sandbox.h"

/* Lives on the handler's stack: everything the answer needs later is copied. */
struct sandbox_call {
    struct sandbox *sandbox;
    struct http_request *request;
    enum call_kind kind;
    uint64_t number;           /* calls.h */
    const struct fault *fault; /* NULL = none */
    struct slice user, key;    /* as in call_words */
    uint64_t fingerprint;      /* of struct sandbox_order */
    struct sandbox_answer answer;
    /* Keeps the answer under the call's key, as a rule with "stored" demands; set after sandbox_call_begin(), NULL =
     * such a rule is not for this call. */
    void (*store)(struct sandbox_call *call);
};

/* Notes the call and looks for a fault. True: the call takes effect, and the handler writes the true answer into
 * sandbox->body and ->answer. False: it must not take effect. sandbox_call_finish() ends the call in both cases. */
must_check bool sandbox_call_begin(struct sandbox_call *call, struct sandbox *sandbox, struct http_request *request,
                                   enum call_kind kind, const struct call_words *words);
/* Of a call that sandbox_call_begin() let take effect: does it take effect now, and does it later (postponed.h)? With a
 * fault that executes twice it does both. */
must_check bool sandbox_call_executes_now(const struct sandbox_call *call);
must_check bool sandbox_call_executes_late(const struct sandbox_call *call);
/* Executes the order once more or for the first time, at the time that the call's fault sets. */
void sandbox_call_postpone(struct sandbox_call *call, const struct sandbox_order *order, postponed_execute *execute);
/* The time whose state a look-up shows: now, or earlier by the fault `stale`. */
int64_t sandbox_call_shown_ms(const struct sandbox_call *call);
/* The true answer is an error: {"code","detail"}, or the form that the issuer's dialect has. */
void sandbox_call_refuse(struct sandbox_call *call, int status, const char *code, const char *detail);
/* Answers, now or later, or never. The request and the call may not be used after it. */
void sandbox_call_finish(struct sandbox_call *call);

/* ---- checks that several peers make ---- */

must_check bool sandbox_call_is_json(const struct http_request *request);
/* Authorization: Bearer. An empty credential lets anybody in. */
must_check bool sandbox_call_is_authorized(const struct http_request *request, const struct secret *credential);

#endif
