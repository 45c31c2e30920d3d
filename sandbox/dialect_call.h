/* What the handlers of all dialects have in common: credentials, keys with stored answers, execution now and later.
 *
 * A handler of a dialect is written like this (dialect_lithic.c is a short example):
 *
 *     static void create(struct sandbox *sandbox, struct http_request *request)
 *     {
 *         struct sandbox_order order = {.card.body = request->body};
 *         const char *wrong = read_create(sandbox, request, &order);    reads what it can, also of a bad body
 *         struct sandbox_call call;
 *         if (dialect_begin(&call, sandbox, request, CALL_CREATE, &order)) {
 *             if (wrong)
 *                 dialect_refuse(&call, 400, "bad_request", wrong);     a refusal that no key keeps
 *             else
 *                 dialect_take(&call, &order);                          keys, execute(), now or later or twice
 *         }
 *         sandbox_call_finish(&call);
 *     }
 *
 * Calls that change nothing (lookup, reveal, retrieve) write their answer with dialect_begin_answer() between the two;
 * they set call.answer.card where the answer is about one card.
 *
 * dialect_begin() counts and notes the call, finds its fault, and checks the credential. False: call
 * sandbox_call_finish() and nothing else. Scripted faults need no code in the dialect: `status` and similar ones use
 * put_error, late executions use execute(), `wrong_reference`, `contradictory` and `answer` use members of the table.
 * Only `stale` does: the look-up shows cards as they were at sandbox_call_shown_ms(). */
#ifndef ISSUING_SANDBOX_DIALECT_CALL_H
#define ISSUING_SANDBOX_DIALECT_CALL_H

#include "sandbox/dialect.h"
#include "sandbox/sandbox_call.h"

/* See the head of this file. Sets order->fingerprint. */
must_check bool dialect_begin(struct sandbox_call *call, struct sandbox *sandbox, struct http_request *request,
                              enum call_kind kind, struct sandbox_order *order);
/* Refuses a malformed call: counted, and kept under no key. */
void dialect_refuse(struct sandbox_call *call, int status, const char *code, const char *detail);
/* Executes a well-formed order as its fault demands, or gives the stored answer of its key. */
void dialect_take(struct sandbox_call *call, const struct sandbox_order *order);
/* A path or method that the dialect does not have. */
void dialect_stray(struct sandbox *sandbox, struct http_request *request);

#endif
