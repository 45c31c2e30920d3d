/* See delivery.h. The only module that replies for issuer and core, and the only one that holds a request back.
 *
 * Invariant: every request gets exactly one of reply, raw reply or reset, also one that is never answered: it is held
 * in sandbox->held until its client leaves, its listener goes down, or the sandbox ends. */
#include "sandbox/delivery.h"

#include <stdlib.h>
#include <string.h>

#include "sandbox/postponed.h"

/* A delivery that waits. */
struct held_answer {
    struct held_answer *previous, *next;
    struct sandbox *sandbox;
    struct http_request *request;
    uint64_t number;
    uv_timer_t timer;
    struct delivery delivery; /* its body is `body` */
    char *body;               /* owned */
};

static void on_closed(uv_handle_t *handle)
{
    struct held_answer *held = container_of((uv_timer_t *)handle, struct held_answer, timer);
    free(held->body);
    free(held);
}

/* Takes it off the list; its request is answered by the caller. */
static void release(struct held_answer *held)
{
    if (held->next)
        held->next->previous = held->previous;
    if (held->previous)
        held->previous->next = held->next;
    else
        held->sandbox->held = held->next;
    held->request->on_gone = NULL;
    held->request->gone_at_end = false;
    held->request->user = NULL;
    uv_close((uv_handle_t *)&held->timer, on_closed);
}

static void on_due(uv_timer_t *timer)
{
    struct held_answer *held = container_of(timer, struct held_answer, timer);
    release(held);
    held->delivery.delay_ms = 0;
    delivery_send(held->sandbox, held->request, held->number, &held->delivery);
}

static void on_gone(struct http_request *request)
{
    struct held_answer *held = request->user;
    struct sandbox *sandbox = held->sandbox;
    uint64_t number = held->number;
    release(held);
    http_reply_reset(request);
    postponed_caller_gone(sandbox, number);
}

static void hold(struct sandbox *sandbox, struct http_request *request, uint64_t number,
                 const struct delivery *delivery)
{
    struct held_answer *held = calloc(1, sizeof(*held));
    char *body = malloc(delivery->body.length + 1);
    if (!held || !body) {
        free(held);
        free(body);
        http_reply_reset(request);
        return;
    }
    if (delivery->body.length)
        memcpy(body, delivery->body.bytes, delivery->body.length);
    *held = (struct held_answer){
        .next = sandbox->held,
        .sandbox = sandbox,
        .request = request,
        .number = number,
        .delivery = *delivery,
        .body = body,
    };
    held->delivery.body.bytes = body;
    if (held->next)
        held->next->previous = held;
    sandbox->held = held;
    request->user = held;
    request->on_gone = on_gone;
    request->gone_at_end = true;
    (void)uv_timer_init(sandbox->loop, &held->timer); /* never fails */
    if (delivery->manner != DELIVERY_SILENCE)
        (void)uv_timer_start(&held->timer, on_due, (uint64_t)delivery->delay_ms, 0); /* fails only without a callback */
}

void delivery_reset_held(struct sandbox *sandbox, enum call_target target)
{
    struct held_answer *held = sandbox->held;
    while (held) {
        struct held_answer *next = held->next;
        struct http_request *request = held->request;
        if (held->delivery.target == target) {
            uint64_t number = held->number;
            release(held);
            http_reply_reset(request);
            postponed_caller_gone(sandbox, number);
        }
        held = next;
    }
}

static void send_answer(struct http_request *request, const struct delivery *delivery)
{
    struct http_reply reply = {
        .status = delivery->status,
        .content_type = "application/json",
        .body = delivery->body.bytes,
        .body_length = delivery->body.length,
    };
    int headers = 0;
    if (*delivery->retry_after) {
        reply.headers[headers].name = "Retry-After";
        reply.headers[headers++].value = delivery->retry_after;
    }
    if (delivery->redirect) {
        reply.headers[headers].name = "Location";
        reply.headers[headers++].value = "/redirected";
    }
    for (int i = 0; i < ANSWER_HEADERS_MAX && *delivery->headers[i].name; i++) {
        reply.headers[headers].name = delivery->headers[i].name;
        reply.headers[headers++].value = delivery->headers[i].value;
    }
    http_reply(request, &reply);
}

/* The head of an answer whose bytes we count out ourselves. */
static bool put_head(struct buf *wire, const struct delivery *delivery, bool close)
{
    buf_put_format(wire, "HTTP/1.1 %d Scripted\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n",
                   delivery->status, delivery->body.length, close ? "Connection: close\r\n" : "");
    buf_put(wire, delivery->body.bytes, delivery->body.length / 2);
    return !wire->failed;
}

static void send_half(struct sandbox *sandbox, struct http_request *request, uint64_t number,
                      const struct delivery *delivery)
{
    struct buf wire;
    buf_init(&wire, 2 * DELIVERY_HUGE_BYTES);
    if (!put_head(&wire, delivery, delivery->manner == DELIVERY_TRUNCATED)) {
        http_reply_reset(request);
    } else if (delivery->manner == DELIVERY_TRUNCATED) {
        http_reply_raw(request, wire.bytes, wire.length, true);
    } else {
        struct delivery rest = *delivery;
        rest.manner = DELIVERY_SECOND_HALF;
        rest.delay_ms = delivery->halves_ms;
        rest.body.bytes += delivery->body.length / 2;
        rest.body.length -= delivery->body.length / 2;
        http_reply_part(request, wire.bytes, wire.length);
        hold(sandbox, request, number, &rest);
    }
    buf_done(&wire);
}

void delivery_send(struct sandbox *sandbox, struct http_request *request, uint64_t number,
                   const struct delivery *delivery)
{
    if (delivery->delay_ms > 0 || delivery->manner == DELIVERY_SILENCE) {
        hold(sandbox, request, number, delivery);
        return;
    }
    if (delivery->manner != DELIVERY_RESET)
        calls_answered(sandbox->calls, number, delivery->status);
    switch (delivery->manner) {
    case DELIVERY_ANSWER:
        send_answer(request, delivery);
        break;
    case DELIVERY_RESET:
    case DELIVERY_SILENCE:
        http_reply_reset(request);
        break;
    case DELIVERY_TRUNCATED:
    case DELIVERY_FIRST_HALF:
        send_half(sandbox, request, number, delivery);
        break;
    case DELIVERY_SECOND_HALF:
        http_reply_raw(request, delivery->body.bytes, delivery->body.length, false);
        break;
    }
}
