/* See fault_answer.h. */
#include "sandbox/fault_answer.h"

#include <stdio.h>
#include <string.h>

#include "common/lib/json/json_value.h"
#include "common/lib/json/json_writer.h"
#include "sandbox/dialect.h"

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

#define DEPTH_MAX 8 /* of objects in objects that are merged; deeper ones are replaced */

static void merge(struct json_value object, struct json_value card, int depth, struct buf *out);

/* name: as written, with quotes. */
static void put_merged(struct slice name, struct json_value own, struct json_value other, int depth, struct buf *out)
{
    buf_put(out, name.bytes, name.length);
    buf_put_byte(out, ':');
    merge(own, other, depth, out);
}

static void merge(struct json_value object, struct json_value card, int depth, struct buf *out)
{
    if (object.kind != JSON_OBJECT || card.kind != JSON_OBJECT || depth == DEPTH_MAX) {
        struct json_value chosen = card.kind == JSON_MISSING ? object : card;
        buf_put(out, chosen.raw.bytes, chosen.raw.length);
        return;
    }
    size_t cursor = 0;
    struct slice name;
    struct json_value value;
    const char *comma = "";
    buf_put_byte(out, '{');
    while (json_next_member(object, &cursor, &name, &value)) {
        struct json_value other = member_of(card, name);
        if (other.kind == JSON_NULL)
            continue;
        buf_put_text(out, comma);
        comma = ",";
        put_merged(name, value, other, depth + 1, out);
    }
    cursor = 0;
    while (json_next_member(card, &cursor, &name, &value)) {
        if (value.kind == JSON_NULL || member_of(object, name).kind != JSON_MISSING)
            continue;
        buf_put_text(out, comma);
        comma = ",";
        put_merged(name, value, (struct json_value){.kind = JSON_MISSING}, depth + 1, out);
    }
    buf_put_byte(out, '}');
}

static void merge_list(struct json_value list, struct json_value card, struct buf *out)
{
    size_t cursor = 0;
    struct json_value element;
    buf_put_byte(out, '[');
    for (const char *comma = ""; json_next_element(list, &cursor, &element); comma = ",") {
        buf_put_text(out, comma);
        merge(element, card, 0, out);
    }
    buf_put_byte(out, ']');
}

bool fault_override(struct slice answer, const char *list, const char *card, struct buf *out)
{
    struct json_value object = json_value_of(answer.bytes, answer.length), over = json_value_of(card, strlen(card));
    struct json_value cards = list ? json_member(object, list) : (struct json_value){.kind = JSON_MISSING};
    if (cards.kind != JSON_ARRAY) {
        merge(object, over, 0, out);
        return !out->failed;
    }
    size_t cursor = 0;
    struct slice name;
    struct json_value value;
    buf_put_byte(out, '{');
    for (const char *comma = ""; json_next_member(object, &cursor, &name, &value); comma = ",") {
        buf_put_text(out, comma);
        buf_put(out, name.bytes, name.length);
        buf_put_byte(out, ':');
        if (value.raw.bytes == cards.raw.bytes)
            merge_list(value, over, out);
        else
            buf_put(out, value.raw.bytes, value.raw.length);
    }
    buf_put_byte(out, '}');
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

/* Merges these members into a successful answer. */
static void put_over(struct sandbox_call *call, const char *card)
{
    struct sandbox *sandbox = call->sandbox;
    const char *list = call_kind_target(call->kind) == TARGET_ISSUER ? sandbox->dialect->list : NULL;
    buf_reset(&sandbox->altered);
    if (call->answer.status && call->answer.status < 300 && sandbox->body.length &&
        fault_override(buf_slice(&sandbox->body), list, card, &sandbox->altered)) {
        buf_reset(&sandbox->body);
        buf_put(&sandbox->body, sandbox->altered.bytes, sandbox->altered.length);
    }
}

/* The last four digits of the answer become others than those of the card's number. */
static void contradict(struct sandbox_call *call)
{
    const struct sandbox *sandbox = call->sandbox;
    char number[LEDGER_NUMBER_SIZE] = "0000", card[80];
    if (call->answer.card != SANDBOX_NO_CARD)
        ledger_card_number(sandbox->ledger, call->answer.card, number);
    char *last4 = number + strlen(number) - 4;
    for (int i = 0; i < 4; i++)
        last4[i] = (char)('0' + (last4[i] - '0' + 1) % 10);
    const char *before = sandbox->dialect->last4_before, *after = sandbox->dialect->last4_after;
    snprintf(card, sizeof(card), "%s%s%s", before, last4, after);
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

static void answer_ineligible(struct sandbox_call *call, const char *reason)
{
    struct json_writer writer = json_writer_of(&call->sandbox->body);
    json_open_object(&writer, NULL);
    json_add_slice(&writer, "user_id", call->user);
    json_add_bool(&writer, "eligible", false);
    json_add_text(&writer, "reason", reason);
    dialect_put_issuer(call->sandbox, call->user, NULL, &writer);
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
    case FAULT_skip_row:
        return DELIVERY_ANSWER;
    case FAULT_status_then_execute:
        return refuse_by(call, 504, "gateway_timeout");
    case FAULT_limited:
        return refuse_by(call, 429, "too_many_requests");
    case FAULT_status:
    case FAULT_execute_then_status:
        return refuse_by(call, 500, "fault");
    case FAULT_garbage:
        call->answer.status = 200;
        buf_reset(body);
        buf_put_text(body, "{\"id\": \"ic_broken\", \"reference\": ");
        return DELIVERY_ANSWER;
    case FAULT_huge:
        pad(call);
        return DELIVERY_ANSWER;
    case FAULT_wrong_reference:
        put_over(call, call->sandbox->dialect->other_reference);
        return DELIVERY_ANSWER;
    case FAULT_contradictory:
        contradict(call);
        return DELIVERY_ANSWER;
    case FAULT_answer:
        if (call->fault->status)
            call->answer.status = call->fault->status;
        return DELIVERY_ANSWER;
    case FAULT_redirect:
        return refuse_by(call, 302, "redirect");
    case FAULT_ineligible:
        call->answer.status = 200;
        answer_ineligible(call, *call->fault->code ? call->fault->code : "user_blocked");
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
    for (size_t i = 0; i < ANSWER_HEADERS_MAX && *fault->headers[i].name; i++)
        sandbox_answer_header(&call->answer, fault->headers[i].name, fault->headers[i].value);
    delivery->redirect = fault->kind == FAULT_redirect;
    memcpy(delivery->retry_after, fault->retry_after, sizeof(delivery->retry_after));
    if (fault->kind == FAULT_slow_body)
        delivery->halves_ms = delay_ms;
    else if (fault->kind == FAULT_delay || fault->delay_ms > 0)
        delivery->delay_ms += delay_ms;
}
