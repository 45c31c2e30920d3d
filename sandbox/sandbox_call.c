/* See sandbox_call.h. Left out: what the true answer is (the dialects, core.c, route.c), what a fault makes of it
 * (fault_answer.c), how it is sent (delivery.c), how a call is executed late (postponed.c). */
#include "sandbox/sandbox_call.h"

#include <strings.h>

#include "common/lib/base/clock.h"
#include "sandbox/delivery.h"
#include "sandbox/dialect.h"
#include "sandbox/fault_answer.h"

bool sandbox_call_begin(struct sandbox_call *call, struct sandbox *sandbox, struct http_request *request,
                        enum call_kind kind, const struct call_words *words)
{
    *call = (struct sandbox_call){
        .sandbox = sandbox,
        .request = request,
        .kind = kind,
        .user = words->user,
        .key = words->key,
        .answer.card = SANDBOX_NO_CARD,
    };
    if (sandbox->faults.count) {
        /* A look-up names no user; an earlier call may have named the user of its reference. */
        struct slice user = words->user.length ? words->user : calls_user_of(sandbox->calls, words->reference);
        call->fault = faults_match(&sandbox->faults, kind, user, request->path, clock_mono_ms());
    }
    struct call_words noted = *words;
    noted.traceparent = http_header(request, "traceparent", NULL);
    noted.tracestate = http_header(request, "tracestate", NULL);
    call->number = calls_note(sandbox->calls, kind, &noted, call->fault ? fault_kind_name(call->fault->kind) : NULL,
                              clock_wall_us());
    if (call->fault)
        ledger_add(sandbox->ledger, LEDGER_COUNT_FAULTS);
    buf_reset(&sandbox->body);
    return !call->fault || fault_kind_executes(call->fault->kind);
}

bool sandbox_call_executes_now(const struct sandbox_call *call)
{
    return !call->fault || fault_executes_now(call->fault);
}

bool sandbox_call_executes_late(const struct sandbox_call *call)
{
    return call->fault && fault_executes_late(call->fault);
}

void sandbox_call_postpone(struct sandbox_call *call, const struct sandbox_order *order, postponed_execute *execute)
{
    struct postponed_call late = {.kind = call->kind, .number = call->number, .fault = call->fault, .execute = execute};
    if (!postponed_add(call->sandbox, &late, order))
        sandbox_call_refuse(call, 500, "out_of_memory", "the sandbox has no memory left");
}

int64_t sandbox_call_shown_ms(const struct sandbox_call *call)
{
    bool is_stale = call->fault && call->fault->kind == FAULT_stale;
    return sandbox_now_ms(call->sandbox) - (is_stale ? call->fault->stale_ms : 0);
}

void sandbox_call_refuse(struct sandbox_call *call, int status, const char *code, const char *detail)
{
    if (call_kind_target(call->kind) == TARGET_ISSUER) {
        dialect_answer_error(call->sandbox, &call->answer, status, code, detail);
        return;
    }
    sandbox_answer_error(call->sandbox, &call->answer, status, code, detail);
}

void sandbox_call_finish(struct sandbox_call *call)
{
    struct sandbox *sandbox = call->sandbox;
    struct delivery delivery = {
        .manner = DELIVERY_ANSWER, .target = call_kind_target(call->kind), .delay_ms = sandbox->latency_ms};
    if (call->fault)
        fault_answer_apply(call, &delivery);
    if (sandbox->body.failed)
        sandbox_call_refuse(call, 500, "out_of_memory", "the sandbox has no memory left");
    if (call->fault && call->fault->is_stored && call->store)
        call->store(call);
    memcpy(delivery.headers, call->answer.headers, sizeof(delivery.headers));
    delivery.status = call->answer.status;
    delivery.body = buf_slice(&sandbox->body);
    delivery_send(sandbox, call->request, call->number, &delivery);
}

bool sandbox_call_is_json(const struct http_request *request)
{
    struct slice type = http_header(request, "Content-Type", NULL);
    static const struct slice json = SLICE("application/json");
    return type.length >= json.length && strncasecmp(type.bytes, json.bytes, json.length) == 0 &&
           (type.length == json.length || type.bytes[json.length] == ';' || type.bytes[json.length] == ' ');
}

bool sandbox_call_is_authorized(const struct http_request *request, const struct secret *credential)
{
    static const struct slice scheme = SLICE("Bearer ");
    if (!credential->length)
        return true;
    struct slice value = http_header(request, "Authorization", NULL);
    return value.length > scheme.length && strncasecmp(value.bytes, scheme.bytes, scheme.length) == 0 &&
           secret_equal(value.bytes + scheme.length, value.length - scheme.length, credential->bytes,
                        credential->length);
}
