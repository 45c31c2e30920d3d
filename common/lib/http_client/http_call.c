/* See http_call.h.
 *
 * Invariants: a call ends in http_call_end() and nowhere else. HTTP_NOT_SENT is reported only when may_be_sent was
 * false during the whole call: when a pooled connection turned out dead and the second try was refused, the peer may
 * have read the first, so that is HTTP_LOST. */
#include "common/lib/http_client/http_call.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_client/http_url_origin.h"
#include "common/lib/http_client/http_values.h"

static void wipe_and_free(struct buf *buf)
{
    buf_wipe(buf);
    buf_done(buf);
}

void http_call_init(struct http_call *call, size_t answer_max)
{
    memset(call, 0, sizeof(*call));
    buf_init(&call->lines, HTTP_CALL_TEXT_MAX);
    buf_init(&call->body, HTTP_CALL_TEXT_MAX);
    buf_init(&call->answer, answer_max);
    call->answer_max = answer_max;
    call->retry_after_ms = -1;
}

void http_call_done(struct http_call *call)
{
    assert(!call->client);
    wipe_and_free(&call->lines);
    wipe_and_free(&call->body);
    wipe_and_free(&call->answer);
}

void http_call_forget(struct http_call *call)
{
    wipe_and_free(&call->answer);
}

/* ---- making a request ---- */

void http_call_make(struct http_call *call, const char *method, const char *base)
{
    assert(!call->client);
    call->method = method;
    call->must_not_resend = false;
    call->status_is_enough = false;
    call->noted_headers = NULL;
    call->names_other = NULL;
    buf_reset(&call->lines);
    buf_reset(&call->body);
    if (call->body.max > HTTP_CALL_TEXT_MAX) /* the call before was allowed more */
        call->body.max = HTTP_CALL_TEXT_MAX;
    call->answer.max = call->answer_max;
    buf_put_text(&call->lines, base);
}

void http_call_about(struct http_call *call, const char *subject, bool (*names_other)(struct http_call *call))
{
    size_t length = strlen(subject);
    assert(length < sizeof(call->subject));
    memcpy(call->subject, subject, length + 1);
    call->names_other = names_other;
}

void http_call_allow_body(struct http_call *call, size_t body_max)
{
    assert(body_max <= HTTP_CALL_BODY_MAX);
    call->body.max = body_max;
}

void http_call_allow_answer(struct http_call *call, size_t answer_max)
{
    call->answer.max = answer_max;
}

void http_call_url(struct http_call *call, const char *text)
{
    buf_put_text(&call->lines, text);
}

void http_call_url_segment(struct http_call *call, const char *text)
{
    http_put_segment(&call->lines, text, strlen(text));
}

void http_call_header(struct http_call *call, const char *name, const char *value)
{
    buf_put_byte(&call->lines, '\0');
    buf_put_text(&call->lines, name);
    buf_put_text(&call->lines, ": ");
    buf_put_text(&call->lines, value);
}

void http_call_trace(struct http_call *call, const struct trace *trace)
{
    if (trace->parent[0])
        http_call_header(call, "traceparent", trace->parent);
    if (trace->state[0])
        http_call_header(call, "tracestate", trace->state);
}

bool http_call_is_made(const struct http_call *call)
{
    return !call->lines.failed && !call->body.failed;
}

/* ---- what was made ---- */

const char *http_call_next_line(const struct http_call *call, const char *line)
{
    const char *next = strchr(line, '\0') + 1, *end = call->lines.bytes + call->lines.length;
    return next < end ? next : NULL;
}

bool http_call_has_body(const struct http_call *call)
{
    return call->method[0] == 'P';
}

/* A header is written verbatim, so it must not contain CR or LF. */
static bool has_break(const char *text, size_t length)
{
    return memchr(text, '\n', length) || memchr(text, '\r', length);
}

const char *http_call_check(const struct http_call *call)
{
    const struct buf *lines = &call->lines;
    if (!http_call_is_made(call))
        return "out of memory";
    if (lines->length == 0)
        return "not an address of HTTP";
    int count = 0;
    for (const char *line = http_call_next_line(call, lines->bytes); line; line = http_call_next_line(call, line))
        count++;
    if (count > HTTP_CALL_HEADERS_MAX)
        return "too many headers";
    bool breaks = has_break(lines->bytes, lines->length) ||
                  (call->secret_header && has_break(call->secret_header, strlen(call->secret_header)));
    return breaks ? "a header with a line break" : NULL;
}

/* ---- the header of its answer ---- */

void http_call_begin_answer(struct http_call *call)
{
    call->retry_after_ms = -1;
    /* guard: what was found in one answer says nothing of the next one */
    call->checked = HTTP_BODY_UNCHECKED;
    call->answer_is_json = false;
    call->noted_seen = 0;
    memset(call->noted, 0, sizeof(call->noted));
}

static bool is_printable(struct slice value)
{
    for (size_t i = 0; i < value.length; i++)
        if (value.bytes[i] < 0x20 || value.bytes[i] > 0x7e)
            return false;
    return true;
}

static void note(struct http_call *call, int index, struct slice value)
{
    char *noted = call->noted[index];
    bool is_first = !(call->noted_seen & 1u << index);
    call->noted_seen |= 1u << index;
    if (!is_first && (strlen(noted) != value.length || memcmp(noted, value.bytes, value.length) != 0))
        /* guard: a header that is sent with two values has none */
        noted[0] = '\0';
    else if (is_first && value.length < HTTP_NOTED_SIZE && is_printable(value))
        memcpy(noted, value.bytes, value.length); /* the rest is zeros */
}

void http_call_read_header(struct http_call *call, struct slice name, struct slice value)
{
    if (http_same_word(name, "retry-after"))
        call->retry_after_ms = http_retry_after_ms(value, clock_wall_us() / 1000);
    else if (http_same_word(name, "content-type"))
        call->answer_is_json = http_is_json(value);
    const char *const *names = call->noted_headers;
    for (int i = 0; names && names[i]; i++)
        if (http_same_word(name, names[i]))
            note(call, i, value);
}

/* ---- from its start to its end ---- */

void http_call_begin(struct http_call *call, struct http_client *client)
{
    wipe_and_free(&call->answer);
    call->client = client;
    call->origin = NULL;
    call->conn = NULL;
    call->may_be_sent = false;
    call->status = 0;
    http_call_begin_answer(call);
    call->was_resent = false;
    call->handshake = HTTP_HANDSHAKE_NONE;
    call->certificate_ends_s = 0;
    call->error[0] = '\0';
    call->took_us = clock_mono_us(); /* until the end: the time of the start */
    if (call->timeout_ms < 1)
        call->timeout_ms = 1;
    call->deadline_ms = call->took_us / 1000 + call->timeout_ms;
}

void http_call_leaves(struct http_call *call)
{
    /* guard: a second sending is reported */
    call->was_resent = call->may_be_sent;
    call->may_be_sent = true;
}

bool http_call_may_resend(const struct http_call *call)
{
    return !call->may_be_sent || !call->must_not_resend;
}

bool http_call_is_late(const struct http_call *call)
{
    return clock_mono_ms() >= call->deadline_ms;
}

static void set_error(struct http_call *call, const char *text)
{
    snprintf(call->error, sizeof(call->error), "%.*s", (int)sizeof(call->error) - 1, text);
    for (char *c = call->error; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
}

void http_call_set_failed(struct http_call *call, const char *why)
{
    /* guard: what may be known is lost, not unsent */
    call->result = call->may_be_sent ? HTTP_LOST : HTTP_NOT_SENT;
    call->status = 0;
    wipe_and_free(&call->answer);
    http_call_begin_answer(call);
    set_error(call, why);
}

void http_call_end(struct http_call *call)
{
    wipe_and_free(&call->lines);
    wipe_and_free(&call->body);
    call->took_us = clock_mono_us() - call->took_us;
    call->client = NULL;
    if (call->origin)
        call->origin->calls--;
    call->origin = NULL;
    call->on_done(call); /* may free the call or start it again */
}

void http_call_answered(struct http_call *call)
{
    call->result = HTTP_ANSWERED;
    http_call_end(call);
}

void http_call_failed(struct http_call *call, const char *why)
{
    http_call_set_failed(call, why);
    http_call_end(call);
}
