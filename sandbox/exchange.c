/* Carries out answers and misbehaviour. The only room that replies for issuer and core, and the only one that holds a
 * request back.
 *
 * Invariants: every request gets exactly one of reply, raw reply or reset, also one that "never" is answered: it is
 * held in sandbox->late until its client leaves, its listener goes down, or the sandbox ends. Leaves out: what the
 * true answer is (issuer.c, core.c). */
#include "sandbox/exchange.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/clock.h"
#include "common/json_value.h"
#include "sandbox/postponed.h"

#define DELAY_DEFAULT_MS 1000
#define HUGE_BYTES (1024 * 1024)

enum manner {
    MANNER_ANSWER,
    MANNER_RESET,
    MANNER_SILENCE,    /* until the client leaves */
    MANNER_TRUNCATED,  /* fewer bytes than announced, then the end */
    MANNER_FIRST_HALF, /* head and half of the body now, the rest later */
    MANNER_SECOND_HALF,
};

struct plan {
    enum manner manner;
    enum call_target target;
    int status;
    struct slice body;
    char retry_after[64];
    bool redirect;
    int64_t delay_ms;
    int64_t halves_ms; /* between the two halves */
};

/* A plan that waits. */
struct exchange_late {
    struct exchange_late *previous, *next;
    struct sandbox *sandbox;
    struct http_request *request;
    uint64_t call;
    uv_timer_t timer;
    struct plan plan; /* its body is `body` */
    char *body;       /* owned */
};

static void carry_out(struct sandbox *sandbox, struct http_request *request, uint64_t call, const struct plan *plan);

static void on_late_closed(uv_handle_t *handle)
{
    struct exchange_late *late = container_of((uv_timer_t *)handle, struct exchange_late, timer);
    free(late->body);
    free(late);
}

/* Takes it off the list; its request is answered by the caller. */
static void late_settle(struct exchange_late *late)
{
    if (late->next)
        late->next->previous = late->previous;
    if (late->previous)
        late->previous->next = late->next;
    else
        late->sandbox->late = late->next;
    late->request->on_gone = NULL;
    late->request->gone_at_end = false;
    late->request->user = NULL;
    uv_close((uv_handle_t *)&late->timer, on_late_closed);
}

static void on_late_due(uv_timer_t *timer)
{
    struct exchange_late *late = container_of(timer, struct exchange_late, timer);
    late_settle(late);
    late->plan.delay_ms = 0;
    carry_out(late->sandbox, late->request, late->call, &late->plan);
}

static void on_late_gone(struct http_request *request)
{
    struct exchange_late *late = request->user;
    struct sandbox *sandbox = late->sandbox;
    uint64_t call = late->call;
    late_settle(late);
    http_reply_reset(request);
    postponed_caller_gone(sandbox, call);
}

static void hold(struct sandbox *sandbox, struct http_request *request, uint64_t call, const struct plan *plan)
{
    struct exchange_late *late = calloc(1, sizeof(*late));
    char *body = malloc(plan->body.length + 1);
    if (!late || !body) {
        free(late);
        free(body);
        http_reply_reset(request);
        return;
    }
    if (plan->body.length)
        memcpy(body, plan->body.bytes, plan->body.length);
    *late = (struct exchange_late){
        .next = sandbox->late,
        .sandbox = sandbox,
        .request = request,
        .call = call,
        .plan = *plan,
        .body = body,
    };
    late->plan.body.bytes = body;
    if (late->next)
        late->next->previous = late;
    sandbox->late = late;
    request->user = late;
    request->on_gone = on_late_gone;
    request->gone_at_end = true;
    (void)uv_timer_init(sandbox->loop, &late->timer); /* never fails */
    if (plan->manner != MANNER_SILENCE)
        (void)uv_timer_start(&late->timer, on_late_due, (uint64_t)plan->delay_ms,
                             0); /* fails only without a callback */
}

void exchange_end_late(struct sandbox *sandbox, enum call_target target)
{
    struct exchange_late *late = sandbox->late;
    while (late) {
        struct exchange_late *next = late->next;
        struct http_request *request = late->request;
        if (late->plan.target == target) {
            uint64_t call = late->call;
            late_settle(late);
            http_reply_reset(request);
            postponed_caller_gone(sandbox, call);
        }
        late = next;
    }
}

static void send_answer(struct http_request *request, const struct plan *plan)
{
    struct http_reply reply = {
        .status = plan->status,
        .content_type = "application/json",
        .body = plan->body.bytes,
        .body_length = plan->body.length,
    };
    int headers = 0;
    if (*plan->retry_after) {
        reply.headers[headers].name = "Retry-After";
        reply.headers[headers++].value = plan->retry_after;
    }
    if (plan->redirect) {
        reply.headers[headers].name = "Location";
        reply.headers[headers++].value = "/redirected";
    }
    http_reply(request, &reply);
}

/* The head of an answer whose bytes we count out ourselves. */
static bool put_head(struct buf *wire, const struct plan *plan, bool close)
{
    buf_put_format(wire, "HTTP/1.1 %d Scripted\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n",
                   plan->status, plan->body.length, close ? "Connection: close\r\n" : "");
    buf_put(wire, plan->body.bytes, plan->body.length / 2);
    return !wire->failed;
}

static void send_half(struct sandbox *sandbox, struct http_request *request, uint64_t call, const struct plan *plan)
{
    struct buf wire;
    buf_init(&wire, 2 * HUGE_BYTES);
    if (!put_head(&wire, plan, plan->manner == MANNER_TRUNCATED)) {
        http_reply_reset(request);
    } else if (plan->manner == MANNER_TRUNCATED) {
        http_reply_raw(request, wire.bytes, wire.length, true);
    } else {
        struct plan rest = *plan;
        rest.manner = MANNER_SECOND_HALF;
        rest.delay_ms = plan->halves_ms;
        rest.body.bytes += plan->body.length / 2;
        rest.body.length -= plan->body.length / 2;
        http_reply_part(request, wire.bytes, wire.length);
        hold(sandbox, request, call, &rest);
    }
    buf_done(&wire);
}

static void carry_out(struct sandbox *sandbox, struct http_request *request, uint64_t call, const struct plan *plan)
{
    if (plan->delay_ms > 0 || plan->manner == MANNER_SILENCE) {
        hold(sandbox, request, call, plan);
        return;
    }
    if (plan->manner != MANNER_RESET)
        calls_answered(sandbox->calls, call, plan->status);
    switch (plan->manner) {
    case MANNER_ANSWER:
        send_answer(request, plan);
        break;
    case MANNER_RESET:
    case MANNER_SILENCE:
        http_reply_reset(request);
        break;
    case MANNER_TRUNCATED:
    case MANNER_FIRST_HALF:
        send_half(sandbox, request, call, plan);
        break;
    case MANNER_SECOND_HALF:
        http_reply_raw(request, plan->body.bytes, plan->body.length, false);
        break;
    }
}

bool exchange_begin(struct exchange *exchange, struct sandbox *sandbox, struct http_request *request,
                    enum call_kind kind, const struct call_words *words)
{
    *exchange = (struct exchange){.sandbox = sandbox, .request = request, .kind = kind};
    if (sandbox->faults.count) {
        /* A look-up names no user. Whose reference it is, an earlier call may have told. */
        struct slice user = words->user.length ? words->user : calls_user_of(sandbox->calls, words->reference);
        exchange->fault = faults_match(&sandbox->faults, kind, user, clock_mono_ms());
    }
    struct call_words noted = *words;
    noted.traceparent = http_header(request, "traceparent", NULL);
    exchange->call = calls_note(sandbox->calls, kind, &noted,
                                exchange->fault ? fault_kind_name(exchange->fault->kind) : NULL, clock_wall_us());
    if (exchange->fault)
        ledger_add(sandbox->ledger, LEDGER_COUNT_FAULTS);
    buf_reset(&sandbox->body);
    return !exchange->fault || fault_kind_executes(exchange->fault->kind);
}

bool exchange_executes_now(const struct exchange *exchange)
{
    return !exchange->fault || fault_executes_now(exchange->fault);
}

bool exchange_executes_late(const struct exchange *exchange)
{
    return exchange->fault && fault_executes_late(exchange->fault);
}

void exchange_refuse(struct exchange *exchange, int status, const char *code, const char *detail)
{
    struct buf *body = &exchange->sandbox->body;
    exchange->status = status;
    buf_reset(body);
    buf_put_text(body, "{\"code\":");
    json_put_string(body, code, strlen(code));
    buf_put_text(body, ",\"detail\":");
    json_put_string(body, detail, strlen(detail));
    buf_put_byte(body, '}');
}

static void refuse_by(struct exchange *exchange, int status, const char *code)
{
    const struct fault *fault = exchange->fault;
    exchange_refuse(exchange, fault->status ? fault->status : status, *fault->code ? fault->code : code,
                    *fault->detail ? fault->detail : "a scripted fault");
}

/* The sandbox's altered answer: the true one with these members put over. */
static void override(struct exchange *exchange, const char *card)
{
    struct sandbox *sandbox = exchange->sandbox;
    buf_reset(&sandbox->altered);
    if (exchange->status && exchange->status < 300 &&
        fault_override(buf_slice(&sandbox->body), card, &sandbox->altered)) {
        buf_reset(&sandbox->body);
        buf_put(&sandbox->body, sandbox->altered.bytes, sandbox->altered.length);
    }
}

static void contradict(struct exchange *exchange)
{
    const struct buf *body = &exchange->sandbox->body;
    struct json_value answer = json_value_of(body->bytes, body->length);
    struct json_value list = json_member(answer, "cards");
    size_t cursor = 0;
    if (list.kind == JSON_ARRAY && !json_next_element(list, &cursor, &answer))
        return;
    char number[32] = "", card[40] = "{\"last4\":\"0000\"}";
    size_t length = 0;
    if (json_string(json_member(answer, "pan"), number, sizeof(number), &length) && length >= 4) {
        for (size_t i = 0; i < 4; i++)
            card[10 + i] = (char)('0' + (number[length - 4 + i] - '0' + 1) % 10);
    }
    override(exchange, card);
}

static void pad(struct exchange *exchange)
{
    struct buf *body = &exchange->sandbox->body;
    if (body->length < 2 || body->bytes[body->length - 1] != '}')
        return;
    body->length--;
    buf_put_text(body, body->length > 1 ? ",\"padding\":\"" : "\"padding\":\"");
    char *padding = buf_reserve(body, HUGE_BYTES);
    if (padding) {
        memset(padding, 'x', HUGE_BYTES);
        body->length += HUGE_BYTES;
    }
    buf_put_text(body, "\"}");
}

/* Changes the answer as the fault wants it, and says how it is to be sent. */
static enum manner misbehave(struct exchange *exchange)
{
    struct buf *body = &exchange->sandbox->body;
    switch (exchange->fault->kind) {
    case FAULT_create_then_drop:
    case FAULT_drop:
    case FAULT_drop_then_execute:
        return MANNER_RESET;
    case FAULT_create_then_hang:
    case FAULT_hang:
    case FAULT_hang_then_execute:
        return MANNER_SILENCE;
    case FAULT_truncated:
        return MANNER_TRUNCATED;
    case FAULT_slow_body:
        return MANNER_FIRST_HALF;
    case FAULT_delay:
    case FAULT_execute_twice:
    case FAULT_stale:
        return MANNER_ANSWER;
    case FAULT_status_then_execute:
        refuse_by(exchange, 504, "gateway_timeout");
        return MANNER_ANSWER;
    case FAULT_limited:
        refuse_by(exchange, 429, "too_many_requests");
        return MANNER_ANSWER;
    case FAULT_status:
    case FAULT_execute_then_status:
        refuse_by(exchange, 500, "fault");
        return MANNER_ANSWER;
    case FAULT_garbage:
        exchange->status = 200;
        buf_reset(body);
        buf_put_text(body, "{\"id\": \"ic_broken\", \"reference\": ");
        return MANNER_ANSWER;
    case FAULT_huge:
        pad(exchange);
        return MANNER_ANSWER;
    case FAULT_wrong_reference:
        override(exchange, "{\"reference\":\"00000000-0000-7000-8000-000000000000\"}");
        return MANNER_ANSWER;
    case FAULT_contradictory:
        contradict(exchange);
        return MANNER_ANSWER;
    case FAULT_answer:
        if (exchange->fault->status)
            exchange->status = exchange->fault->status;
        return MANNER_ANSWER;
    case FAULT_redirect:
        refuse_by(exchange, 302, "redirect");
        return MANNER_ANSWER;
    case FAULT_ineligible:
        exchange->status = 200;
        buf_put_text(body, "{\"eligible\":false,\"reason\":");
        const char *reason = *exchange->fault->code ? exchange->fault->code : "user_blocked";
        json_put_string(body, reason, strlen(reason));
        buf_put_byte(body, '}');
        return MANNER_ANSWER;
    case FAULT_user_not_found:
        refuse_by(exchange, 404, "user_not_found");
        return MANNER_ANSWER;
    case FAULT_link_refused:
        refuse_by(exchange, 409, "card_limit_reached");
        return MANNER_ANSWER;
    }
    return MANNER_ANSWER;
}

static void apply_fault(struct exchange *exchange, struct plan *plan)
{
    const struct fault *fault = exchange->fault;
    int64_t delay_ms = fault->delay_ms >= 0 ? fault->delay_ms : DELAY_DEFAULT_MS;
    if (fault->card && fault_kind_executes(fault->kind))
        override(exchange, fault->card);
    plan->manner = misbehave(exchange);
    if (fault->body) {
        buf_reset(&exchange->sandbox->body);
        buf_put_text(&exchange->sandbox->body, fault->body);
    }
    plan->redirect = fault->kind == FAULT_redirect;
    memcpy(plan->retry_after, fault->retry_after, sizeof(plan->retry_after));
    if (fault->kind == FAULT_slow_body)
        plan->halves_ms = delay_ms;
    else if (fault->kind == FAULT_delay || fault->delay_ms > 0)
        plan->delay_ms += delay_ms;
}

void exchange_finish(struct exchange *exchange)
{
    struct sandbox *sandbox = exchange->sandbox;
    struct plan plan = {
        .manner = MANNER_ANSWER, .target = call_kind_target(exchange->kind), .delay_ms = sandbox->latency_ms};
    if (exchange->fault)
        apply_fault(exchange, &plan);
    if (sandbox->body.failed)
        exchange_refuse(exchange, 500, "out_of_memory", "the sandbox has no memory left");
    plan.status = exchange->status;
    plan.body = buf_slice(&sandbox->body);
    carry_out(sandbox, exchange->request, exchange->call, &plan);
}

bool exchange_is_json(const struct http_request *request)
{
    struct slice type = http_header(request, "Content-Type", NULL);
    static const struct slice json = SLICE("application/json");
    return type.length >= json.length && strncasecmp(type.bytes, json.bytes, json.length) == 0 &&
           (type.length == json.length || type.bytes[json.length] == ';' || type.bytes[json.length] == ' ');
}

bool exchange_is_authorized(const struct http_request *request, const struct secret *credential)
{
    static const struct slice scheme = SLICE("Bearer ");
    if (!credential->length)
        return true;
    struct slice value = http_header(request, "Authorization", NULL);
    return value.length > scheme.length && strncasecmp(value.bytes, scheme.bytes, scheme.length) == 0 &&
           secret_equal(value.bytes + scheme.length, value.length - scheme.length, credential->bytes,
                        credential->length);
}
