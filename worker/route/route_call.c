/* See route_call.h. */
#include "worker/route/route_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_text.h"

#define ID_PLACE "{id}" /* common/core/config has checked that it stands once in lookup_url, and at most once in url */

/* ---- the delivery ---- */

/* The value of an attribute as CloudEvents' binding to HTTP writes it into a header (version 1.0.2, 3.1.3.2): each byte
 * outside the printable ASCII characters, the blank, the quote and the percent sign as %XX. */
static void put_attribute(struct http_call *call, const char *name, const char *value)
{
    static const char hex[] = "0123456789ABCDEF";
    http_call_header(call, name, "");
    for (; *value; value++) {
        unsigned char byte = (unsigned char)*value;
        /* guard: a blank in a user id is encoded in ce-subject */
        if (byte > ' ' && byte <= '~' && byte != '"' && byte != '%') {
            buf_put_byte(&call->lines, (char)byte);
        } else {
            const char escaped[3] = {'%', hex[byte >> 4], hex[byte & 15]};
            buf_put(&call->lines, escaped, sizeof(escaped));
        }
    }
}

/* RFC 3339 in UTC, with milliseconds: what the clock writes, less three digits. */
static void put_time(struct http_call *call, int64_t created_ms)
{
    enum { MS_LENGTH = sizeof("2026-11-20T10:39:57.123") - 1 };
    char text[CLOCK_RFC3339_SIZE];
    int64_t created_us;
    if (__builtin_mul_overflow(created_ms, INT64_C(1000), &created_us))
        created_us = created_ms < 0 ? INT64_MIN : INT64_MAX;
    clock_format(created_us, text);
    memcpy(text + MS_LENGTH, "Z", sizeof("Z"));
    put_attribute(call, "ce-time", text);
}

static bool put_signature(struct http_call *call, const struct route_signer *signer, const char *id, int64_t now_ms,
                          struct slice body)
{
    char timestamp[24], signature[ROUTE_SIGNATURE_SIZE];
    int64_t now_s = now_ms / 1000;
    if (!signer || !route_sign(signer, id, now_s, body, signature))
        return false;
    snprintf(timestamp, sizeof(timestamp), "%" PRId64, now_s);
    http_call_header(call, "webhook-id", id);
    http_call_header(call, "webhook-timestamp", timestamp);
    http_call_header(call, "webhook-signature", signature);
    return true;
}

/* With the id instead of {id}, where the url has it. */
static void put_url(struct http_call *call, const char *url, const char *id)
{
    const char *place = strstr(url, ID_PLACE);
    size_t length = place ? (size_t)(place - url) : strlen(url);
    buf_put(&call->lines, url, length);
    if (place) {
        http_call_url(call, id);
        http_call_url(call, place + sizeof(ID_PLACE) - 1);
    }
}

bool route_build_deliver(const struct route *route, const struct route_event *event, int64_t now_ms,
                         struct http_call *call)
{
    char id[UUID_TEXT_SIZE];
    uuid_format(&event->event_id, id);
    http_call_make(call, route->config->method, "");
    put_url(call, route->config->url, id);
    http_call_allow_body(call, ROUTE_PAYLOAD_MAX);
    call->status_is_enough = true; /* a receiver that answers with a large page has taken the event all the same */
    http_call_header(call, "Content-Type", "application/json");
    /* guard: a delivery has the same key on every attempt */
    http_call_header(call, "Idempotency-Key", id);
    http_call_header(call, "ce-specversion", "1.0");
    http_call_header(call, "ce-id", id);
    http_call_header(call, "ce-type", event->is_test ? "TEST" : route->config->type);
    http_call_header(call, "ce-source", "issuing");
    put_time(call, event->created_ms);
    put_attribute(call, "ce-subject", event->user_id);
    if (event->trace)
        http_call_trace(call, event->trace);
    header_file_put(route->headers, call);
    if (event->is_resent)
        http_call_header(call, "webhook-resend", "1");
    buf_put(&call->body, event->payload.bytes, event->payload.length);
    /* Never unsigned where a secret is configured. */
    if (route->config->sign_secret_file && !put_signature(call, route->signer, id, now_ms, event->payload))
        call->lines.failed = true; /* so that it cannot be started either */
    return http_call_is_made(call);
}

/* ---- the kept result ---- */

/* The digits that the exponents of a checked JSON text stand for. PostgreSQL writes a number of jsonb without an
 * exponent: 1e300 becomes 300 bytes longer. */
static size_t exponents_of(const char *text, size_t length)
{
    size_t digits = 0;
    bool is_string = false;
    for (size_t i = 0; i < length; i++) {
        if (is_string && text[i] == '\\') {
            i++;
        } else if (text[i] == '"') {
            is_string = !is_string;
        } else if (!is_string && (text[i] | 0x20) == 'e' && i > 0 && json_text_is_digit((unsigned char)text[i - 1])) {
            size_t power = 0;
            if (text[i + 1] == '+' || text[i + 1] == '-') /* a digit follows: the text was checked */
                i++;
            while (i + 1 < length && json_text_is_digit((unsigned char)text[i + 1]) && power <= ROUTE_RESULT_MAX)
                power = power * 10 + (size_t)(text[++i] - '0');
            digits += power;
        }
    }
    return digits;
}

struct slice route_read_result(const struct http_call *call, const struct route *route)
{
    const struct slice none = {.bytes = "", .length = 0}, answer = buf_slice(&call->answer);
    if (!route->config->keep_result || call->result != HTTP_ANSWERED || call->status < 200 || call->status > 299)
        return none;
    if (answer.length == 0 || answer.length > ROUTE_RESULT_MAX ||
        !json_strict_check(answer.bytes, answer.length, NULL) ||
        answer.length + exponents_of(answer.bytes, answer.length) > ROUTE_RESULT_MAX)
        return none;
    /* A peer that repeats what is secret must not get it into the database. */
    bool is_secret = credential_is_in(route->peer.credential, answer) || route_signer_is_in(route->signer, answer) ||
                     header_file_has_value_in(route->headers, answer);
    return is_secret ? none : answer;
}

/* ---- the look-up ---- */

bool route_build_lookup(const struct route *route, const struct route_event *event, struct http_call *call)
{
    char id[UUID_TEXT_SIZE];
    uuid_format(&event->event_id, id);
    http_call_make(call, "GET", "");
    put_url(call, route->config->lookup_url, id);
    call->status_is_enough = true;
    header_file_put(route->headers, call);
    if (event->trace)
        http_call_trace(call, event->trace);
    return http_call_is_made(call);
}
