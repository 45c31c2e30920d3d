/* One call from its arrival to its answer, or to what a fault makes of its answer. */
#ifndef ISSUING_SANDBOX_SANDBOX_CALL_H
#define ISSUING_SANDBOX_SANDBOX_CALL_H

#include "common/base/base.h"
#include "common/http_server/http_server.h"
#include "sandbox/sandbox.h"

#define SANDBOX_NO_CARD UINT32_MAX

/* The true answer, besides its body, which is sandbox->body. */
struct sandbox_answer {
    int status;
    uint32_t card; /* that the answer is about; SANDBOX_NO_CARD = none */
    struct answer_header headers[ANSWER_HEADERS_MAX];
};

/* Adds a header, or replaces the value of the one of that name. Longer texts are cut; a header too many is dropped. */
void sandbox_answer_header(struct sandbox_answer *answer, const char *name, const char *value);

/* Lives on the handler's stack: everything the answer needs later is copied. */
struct sandbox_call {
    struct sandbox *sandbox;
    struct http_request *request;
    enum call_kind kind;
    uint64_t number;           /* calls.h */
    const struct fault *fault; /* NULL = none */
    struct slice user, key;    /* as in call_words */
    uint64_t fingerprint;      /* of the issuer's calls (dialect.h) and of charges */
    struct sandbox_answer answer;
};

/* Notes the call and looks for a fault. True: the call takes effect, and the handler writes the true answer into
 * sandbox->body and ->answer. False: it must not take effect. sandbox_call_finish() ends the call in both cases. */
must_check bool sandbox_call_begin(struct sandbox_call *call, struct sandbox *sandbox, struct http_request *request,
                                   enum call_kind kind, const struct call_words *words);
/* Of a call that sandbox_call_begin() let take effect: does it take effect now, and does it later (postponed.h)? With a
 * fault that executes twice it does both. */
must_check bool sandbox_call_executes_now(const struct sandbox_call *call);
must_check bool sandbox_call_executes_late(const struct sandbox_call *call);
/* The true answer is an error: {"code","detail"}, or the form that the issuer's dialect has. */
void sandbox_call_refuse(struct sandbox_call *call, int status, const char *code, const char *detail);
/* The same for an answer of core-api or of a route, without a call. */
void sandbox_write_error(struct sandbox *sandbox, struct sandbox_answer *answer, int status, const char *code,
                         const char *detail);
/* Answers, now or later, or never. The request and the call may not be used after it. */
void sandbox_call_finish(struct sandbox_call *call);

/* ---- checks that several peers make ---- */

must_check bool sandbox_call_is_json(const struct http_request *request);
/* Authorization: Bearer. An empty credential lets anybody in. */
must_check bool sandbox_call_is_authorized(const struct http_request *request, const struct secret *credential);

#endif
