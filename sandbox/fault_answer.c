/* See fault_answer.h. */
#include "sandbox/fault_answer.h"

#include <string.h>

#include "common/json/json_value.h"
#include "common/json/json_writer.h"

#define DELAY_DEFAULT_MS 1000

/* ---- members put over an answer ---- */

/* The member of that raw name (with quotes, as written), or JSON_MISSING. */
static struct json_value member_of(struct json_value object, struct slice raw_name)
{
    size_t cursor = 0;
    struct slice name;
    struct json_value value;
    while (json_next_member(object, &cursor, &name, &value)) {
        if (name.length == raw_name.length && memcmp(name.bytes, raw_name.bytes, name.length) == 0)
            return value;
    }
    return (struct json_value){.kind = JSON_MISSING};
}

static void put_member(struct buf *out, bool *first, struct slice name, struct json_value value)
{
    if (!*first)
        buf_put_byte(out, ',');
    *first = false;
    buf_put(out, name.bytes, name.length);
    buf_put_byte(out, ':');
    buf_put(out, value.raw.bytes, value.raw.length);
}

static void override_object(struct json_value object, struct json_value card, struct buf *out)
{
    size_t cursor = 0;
    struct slice name;
    struct json_value value;
    bool first = true;
    buf_put_byte(out, '{');
    while (json_next_member(object, &cursor, &name, &value)) {
        struct json_value other = member_of(card, name);
        if (other.kind != JSON_NULL)
            put_member(out, &first, name, other.kind == JSON_MISSING ? value : other);
    }
    cursor = 0;
    while (json_next_member(card, &cursor, &name, &value)) {
        if (value.kind != JSON_NULL && member_of(object, name).kind == JSON_MISSING)
            put_member(out, &first, name, value);
    }
    buf_put_byte(out, '}');
}

bool fault_override(struct slice answer, const char *card, struct buf *out)
{
    struct json_value object = json_value_of(answer.bytes, answer.length),
                      members_over = json_value_of(card, strlen(card));
    struct json_value list = json_member(object, "cards"), element;
    if (list.kind != JSON_ARRAY) {
        override_object(object, members_over, out);
        return !out->failed;
    }
    buf_put_text(out, "{\"cards\":[");
    size_t cursor = 0;
    for (bool first = true; json_next_element(list, &cursor, &element); first = false) {
        if (!first)
            buf_put_byte(out, ',');
        override_object(element, members_over, out);
    }
    buf_put_text(out, "]}");
    return !out->failed;
}

/* ---- what each kind does ---- */

static enum delivery_manner refuse_by(struct sandbox_call *call, int status, const char *code)
{
    const struct fault *fault = call->fault;
    sandbox_call_refuse(call, fault->status ? fault->status : status, *fault->code ? fault->code : code,
                        *fault->detail ? fault->detail : "a scripted fault");
    return DELIVERY_ANSWER;
}

/* Replaces a successful answer by one with these members put over it. */
static void put_over(struct sandbox_call *call, const char *card)
{
    struct sandbox *sandbox = call->sandbox;
    buf_reset(&sandbox->altered);
    if (call->status && call->status < 300 && fault_override(buf_slice(&sandbox->body), card, &sandbox->altered)) {
        buf_reset(&sandbox->body);
        buf_put(&sandbox->body, sandbox->altered.bytes, sandbox->altered.length);
    }
}

static void contradict(struct sandbox_call *call)
{
    const struct buf *body = &call->sandbox->body;
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
    put_over(call, card);
}

static void pad(struct sandbox_call *call)
{
    struct buf *body = &call->sandbox->body;
    if (body->length < 2 || body->bytes[body->length - 1] != '}')
        return;
    body->length--;
    buf_put_text(body, body->length > 1 ? ",\"padding\":\"" : "\"padding\":\"");
    char *padding = buf_reserve(body, DELIVERY_HUGE_BYTES);
    if (padding) {
        memset(padding, 'x', DELIVERY_HUGE_BYTES);
        body->length += DELIVERY_HUGE_BYTES;
    }
    buf_put_text(body, "\"}");
}

static void answer_ineligible(struct buf *body, const char *reason)
{
    struct json_writer writer = json_writer_of(body);
    json_open_object(&writer, NULL);
    json_add_bool(&writer, "eligible", false);
    json_add_text(&writer, "reason", reason);
    json_close_object(&writer);
}

/* Changes the answer as the fault demands; returns how it is to be sent. */
static enum delivery_manner misbehave(struct sandbox_call *call)
{
    struct buf *body = &call->sandbox->body;
    switch (call->fault->kind) {
    case FAULT_create_then_drop:
    case FAULT_drop:
    case FAULT_drop_then_execute:
        return DELIVERY_RESET;
    case FAULT_create_then_hang:
    case FAULT_hang:
    case FAULT_hang_then_execute:
        return DELIVERY_SILENCE;
    case FAULT_truncated:
        return DELIVERY_TRUNCATED;
    case FAULT_slow_body:
        return DELIVERY_FIRST_HALF;
    case FAULT_delay:
    case FAULT_execute_twice:
    case FAULT_stale:
        return DELIVERY_ANSWER;
    case FAULT_status_then_execute:
        return refuse_by(call, 504, "gateway_timeout");
    case FAULT_limited:
        return refuse_by(call, 429, "too_many_requests");
    case FAULT_status:
    case FAULT_execute_then_status:
        return refuse_by(call, 500, "fault");
    case FAULT_garbage:
        call->status = 200;
        buf_reset(body);
        buf_put_text(body, "{\"id\": \"ic_broken\", \"reference\": ");
        return DELIVERY_ANSWER;
    case FAULT_huge:
        pad(call);
        return DELIVERY_ANSWER;
    case FAULT_wrong_reference:
        put_over(call, "{\"reference\":\"00000000-0000-7000-8000-000000000000\"}");
        return DELIVERY_ANSWER;
    case FAULT_contradictory:
        contradict(call);
        return DELIVERY_ANSWER;
    case FAULT_answer:
        if (call->fault->status)
            call->status = call->fault->status;
        return DELIVERY_ANSWER;
    case FAULT_redirect:
        return refuse_by(call, 302, "redirect");
    case FAULT_ineligible:
        call->status = 200;
        answer_ineligible(body, *call->fault->code ? call->fault->code : "user_blocked");
        return DELIVERY_ANSWER;
    case FAULT_user_not_found:
        return refuse_by(call, 404, "user_not_found");
    case FAULT_link_refused:
        return refuse_by(call, 409, "card_limit_reached");
    }
    return DELIVERY_ANSWER;
}

void fault_answer_apply(struct sandbox_call *call, struct delivery *delivery)
{
    const struct fault *fault = call->fault;
    int64_t delay_ms = fault->delay_ms >= 0 ? fault->delay_ms : DELAY_DEFAULT_MS;
    if (fault->card && fault_kind_executes(fault->kind))
        put_over(call, fault->card);
    delivery->manner = misbehave(call);
    if (fault->body) {
        buf_reset(&call->sandbox->body);
        buf_put_text(&call->sandbox->body, fault->body);
    }
    delivery->redirect = fault->kind == FAULT_redirect;
    memcpy(delivery->retry_after, fault->retry_after, sizeof(delivery->retry_after));
    if (fault->kind == FAULT_slow_body)
        delivery->halves_ms = delay_ms;
    else if (fault->kind == FAULT_delay || fault->delay_ms > 0)
        delivery->delay_ms += delay_ms;
}
