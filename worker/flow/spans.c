/* See spans.h. */
#include "worker/flow/spans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "worker/peers/core_api.h"

/* ---- calls ---- */

/* "https://[::1]:443" -> the host and the port. */
static void put_server(struct buf *out, const char *origin)
{
    char host[PEER_ORIGIN_SIZE];
    const char *begin = strstr(origin, "://"), *port = strrchr(origin, ':');
    if (!begin || port <= begin)
        return; /* a longer one is not known */
    snprintf(host, sizeof(host), "%.*s", (int)(port - begin - 3), begin + 3);
    span_text(out, "server.address", host);
    span_integer(out, "server.port", strtol(port + 1, NULL, 10));
}

/* A refusal of the request is an answer like any other. */
static bool has_failed(const struct outcome *outcome)
{
    return outcome->kind != OUTCOME_EXECUTED && !(outcome->kind == OUTCOME_REFUSED && outcome->advice == ADVICE_REJECT);
}

/* NULL: a delivery or its look-up. The address of a receiver may contain a secret, so its path is left out. */
static const char *template_of(const struct issuer_profile *profile, enum flow_step step)
{
    enum issuer_call call = flow_step_call(step);
    /* guard: a span of a call has the template of its path */
    return call != ISSUER_CALLS ? profile->calls[call].path : core_path_template(step);
}

void spans_begin_call(struct flow *flow)
{
    span_make_id(flow->trace.parent + SPAN_ID_AT);
}

void spans_end_call(struct flow *flow)
{
    const struct http_call *call = &flow->call;
    const struct outcome *outcome = &flow->attempt.outcome;
    const struct peer *peer = flow_peer(flow);
    struct buf *out = &flow->spans;
    const char *template = template_of(flow->env->worker->parameters->profile, flow->attempt.step);
    const char *object = template ? template : peer->name;
    int64_t at_us = flow->attempt.wall_offset_us + clock_mono_us();
    bool is_answered = call->result == HTTP_ANSWERED, is_error = has_failed(outcome);
    const struct span span = {SPAN_CLIENT,           flow->trace.id, flow->trace.parent + SPAN_ID_AT,
                              flow->span_id,         call->method,   object,
                              at_us - call->took_us, at_us,          {NULL}};
    char status[12];
    span_begin(out, &span);
    snprintf(status, sizeof(status), "%d", call->status);
    span_text(out, "http.request.method", call->method);
    span_text(out, "url.template", template);
    put_server(out, peer->origin);
    if (is_answered)
        span_integer(out, "http.response.status_code", call->status);
    if (is_error)
        span_text(out, "error.type", is_answered && call->status >= 400 ? status : outcome->code);
    span_text(out, "issuing.step", flow_step_name(flow->attempt.step));
    span_text(out, "issuing.outcome", outcome_kind_name(outcome->kind));
    span_end(out, is_error);
    /* guard: a worker that dies leaves no span of its calls */
    flow->span_count++;
}

/* ---- attempts ---- */

void spans_begin_attempt(struct flow *flow)
{
    flow->started_us = clock_mono_us();
    flow->span_id[0] = '\0';
    if (!exporter_wants(flow->env->worker->exporter, &flow->trace, flow->span_parent))
        return;
    flow->span_id[SPAN_ID_SIZE - 1] = '\0';
    span_make_id(flow->span_id);
    buf_init(&flow->spans, EXPORTER_SPANS_BYTES);
    flow->span_count = 0;
}

/* Whether an operator should look at this attempt. */
static bool is_error(const struct write_end *end)
{
    return end->unknown || end->status == OUTBOX_FAILED || (end->status == OUTBOX_PENDING && !end->give_back);
}

/* What an operator did to the event since its last attempt; NULL = nothing. The functions that open an event again, or
 * make a new one of it, write it as the cause of a deferral. A resolved event has no attempt any more: the first
 * attempt of its notification shows it. */
static const char *act_of(const struct flow *flow)
{
    static const char *const acts[][2] = {{"operator_replayed", "operator.replayed"},
                                          {"operator_reconciled", "operator.reconciled"},
                                          {"operator_reissued", "operator.reissued"},
                                          {"operator_resent", "operator.resent"}};
    static const char resolved[] = "\"reason\": {\"code\": \"resolved\"";
    const struct attempt *attempt = &flow->attempt;
    for (size_t i = 0; i < ARRAY_SIZE(acts); i++)
        if (strcmp(attempt->deferral_code, acts[i][0]) == 0)
            return acts[i][1];
    bool is_resolved = attempt->number == 1 && attempt->deferral_count == 0 &&
                       strcmp(flow_event_type(flow), OUTBOX_ENDED_TYPE) == 0 &&
                       memmem(flow->body.bytes, flow->body.length, resolved, sizeof(resolved) - 1);
    return is_resolved ? "operator.resolved" : NULL;
}

void spans_end_attempt(struct flow *flow, const char *lost)
{
    const struct attempt *attempt = &flow->attempt;
    const struct write_end *end = lost ? &(struct write_end){.outcome = lost} : &flow->end;
    const char *type = flow_event_type(flow), *code = end->cause[0] ? end->cause : end->reason_code;
    bool has_failed = lost || is_error(end);
    int64_t start_us = attempt->wall_offset_us + flow->started_us;
    struct span span = {SPAN_CONSUMER, flow->trace.id, flow->span_id, flow->span_parent,
                        "process",     type,           start_us,      attempt->wall_offset_us + clock_mono_us(),
                        {act_of(flow)}};
    if (attempt->lost_count > 0)
        span.events[span.events[0] ? 1 : 0] = "worker.lost";
    struct buf *out = &flow->spans;
    span_begin(out, &span);
    span_text(out, "messaging.system", "issuing");
    span_text(out, "messaging.operation.name", "process");
    span_text(out, "messaging.operation.type", "process");
    span_text(out, "messaging.destination.name", type);
    span_text(out, "messaging.message.id", flow->event_text);
    span_integer(out, "issuing.attempt", attempt->number);
    span_integer(out, "issuing.waited_ms", attempt->accepted_age_ms);
    span_text(out, "issuing.outcome", end->outcome);
    span_text(out, "issuing.reason_code", code);
    span_bool(out, "issuing.unknown", end->unknown);
    if (end->give_back)
        span_integer(out, "issuing.deferred_ms", end->delay_ms);
    span_text(out, "error.type", !has_failed ? NULL : code[0] ? code : end->outcome);
    span_end(out, has_failed);
    exporter_put(flow->env->worker->exporter, out, flow->span_count + 1);
}

/* ---- marks ---- */

void spans_begin_mark(struct flow *flow)
{
    flow->span_count = 0;
    flow->span_id[0] = '\0';
    if (!exporter_wants(flow->env->worker->exporter, &flow->trace, flow->span_parent))
        return;
    memcpy(flow->span_id, flow->span_parent, SPAN_ID_SIZE);
    buf_init(&flow->spans, EXPORTER_SPANS_BYTES);
}

void spans_end_mark(struct flow *flow)
{
    if (flow->env->worker->exporter && flow->span_id[0] && flow->span_count > 0)
        exporter_put(flow->env->worker->exporter, &flow->spans, flow->span_count);
}
