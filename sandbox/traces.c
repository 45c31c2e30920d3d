/* See traces.h. */
#include "sandbox/traces.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/lib/json/json_writer.h"
#include "sandbox/listener.h"
#include "sandbox/otlp.h"
#include "sandbox/sandbox_call.h"
#include "sandbox/span_tree.h"
#include "sandbox/trace_drawing.h"

#define LINES_MAX 200
#define INVALID_ARGUMENT 3 /* google.rpc.Code */

/* A Status of google.rpc, as a receiver's errors are. */
static int refuse(struct buf *out, int status, const char *message)
{
    struct json_writer writer = json_writer_of(out);
    json_open_object(&writer, NULL);
    json_add_integer(&writer, "code", INVALID_ARGUMENT);
    json_add_text(&writer, "message", message);
    json_close_object(&writer);
    return status;
}

int traces_take(struct sandbox *sandbox, const struct http_request *request, struct buf *out)
{
    struct json_writer writer = json_writer_of(out);
    size_t rejected;
    char count[24];
    ledger_find_leaks(sandbox->ledger, request->body);
    if (!sandbox_call_is_json(request) || http_header(request, "Content-Encoding", NULL).length)
        return refuse(out, 415, "want application/json, not encoded");
    const char *wrong = otlp_read(request->body, sandbox->spans, &rejected);
    if (wrong)
        return refuse(out, 400, wrong);
    json_open_object(&writer, NULL);
    if (rejected) {
        snprintf(count, sizeof(count), "%zu", rejected);
        json_open_object(&writer, "partialSuccess");
        json_add_text(&writer, "rejectedSpans", count);
        json_add_text(&writer, "errorMessage", "these have no traceId, spanId or name, or a member of another type");
        json_close_object(&writer);
    }
    json_close_object(&writer);
    return 200;
}

bool traces_as_page(const struct http_request *request)
{
    static const struct slice html = SLICE("text/html");
    struct slice accept = http_header(request, "Accept", NULL);
    for (size_t i = 0; i + html.length <= accept.length; i++)
        if (strncasecmp(accept.bytes + i, html.bytes, html.length) == 0)
            return true;
    return false;
}

static struct trace_line *line_of(struct trace_line *lines, size_t count, const struct span *span)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(lines[i].first->trace_id, span->trace_id) == 0)
            return &lines[i];
    return NULL;
}

static void add_span(struct trace_line *line, const struct span *span)
{
    uint64_t end_ns = span->start_ns + span_took_ns(span);
    if (!line->first || (span->start_ns && (!line->from_ns || span->start_ns < line->from_ns))) {
        line->first = span;
        line->from_ns = span->start_ns;
    }
    if (end_ns > line->to_ns)
        line->to_ns = end_ns;
    line->spans++;
    line->errors += span->status == SPAN_ERROR;
}

void traces_write_list(const struct sandbox *sandbox, const struct http_request *request, size_t limit, struct buf *out)
{
    static struct trace_line lines[LINES_MAX];
    size_t count = 0;
    const struct span *span;
    char at[320];
    for (size_t n = 0; (span = spans_newest(sandbox->spans, n)); n++) {
        struct trace_line *line = line_of(lines, count, span);
        if (!line && count < limit && count < LINES_MAX)
            *(line = &lines[count++]) = (struct trace_line){0};
        if (line)
            add_span(line, span);
    }
    snprintf(at, sizeof(at), "http://%s/traces/", listener_address(sandbox->listeners[LISTENER_CONTROL]));
    if (!trace_draw_list(lines, count, at, traces_as_page(request), out))
        out->failed = true;
}

bool traces_write(const struct sandbox *sandbox, struct slice trace_id, bool as_page, struct buf *out)
{
    char id[SPAN_TRACE_ID_SIZE];
    const struct span **spans = calloc(SPANS_MAX, sizeof(*spans));
    snprintf(id, sizeof(id), "%.*s", (int)(trace_id.length < sizeof(id) ? trace_id.length : sizeof(id)),
             trace_id.bytes);
    size_t count = spans ? spans_of(sandbox->spans, id, spans, SPANS_MAX) : 0;
    if (!spans || (count && !trace_draw(spans, count, as_page, out)))
        out->failed = true;
    free(spans);
    return count || out->failed;
}
