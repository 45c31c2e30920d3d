/* See span.h. */
#include "common/core/span.h"

#include <stdlib.h>
#include <string.h>

#include "common/lib/base/backoff.h"
#include "common/lib/json/json_value.h"

#define PUT(out, literal) buf_put((out), (literal), sizeof(literal) - 1)

void span_make_id(char *ret_id)
{
    uint64_t random = backoff_random() | 1; /* never zero */
    for (int i = SPAN_ID_SIZE - 2; i >= 0; i--, random >>= 4)
        ret_id[i] = "0123456789abcdef"[random & 15];
}

bool span_is_sampled(const char *trace_id, int64_t share_millionths)
{
    uint64_t random = strtoul(trace_id + 24, NULL, 16); /* these digits are random in each version of a UUID that is */
    return random * 1000000 >> 32 < (uint64_t)share_millionths;
}

static void put_number(struct buf *out, int64_t number)
{
    char digits[20];
    size_t at = sizeof(digits);
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do
        digits[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        buf_put_byte(out, '-');
    buf_put(out, digits + at, sizeof(digits) - at);
}

/* In nanoseconds. */
static void put_time(struct buf *out, int64_t us)
{
    buf_put_byte(out, '"');
    put_number(out, us > 0 ? us : 1); /* before 1970: no clock */
    PUT(out, "000\"");
}

static void put_events(struct buf *out, const struct span *span)
{
    for (size_t i = 0; i < SPAN_EVENTS_MAX && span->events[i]; i++) {
        buf_put_text(out, i > 0 ? ",{\"timeUnixNano\":" : ",\"events\":[{\"timeUnixNano\":");
        put_time(out, span->start_us);
        PUT(out, ",\"name\":\"");
        buf_put_text(out, span->events[i]);
        PUT(out, "\"}");
    }
    if (span->events[0])
        buf_put_byte(out, ']');
}

void span_begin(struct buf *out, const struct span *span)
{
    if (out->length > 0)
        buf_put_byte(out, ',');
    PUT(out, "{\"traceId\":\"");
    buf_put(out, span->trace_id, TRACE_ID_SIZE - 1);
    PUT(out, "\",\"spanId\":\"");
    buf_put(out, span->id, SPAN_ID_SIZE - 1);
    if (span->parent_id[0]) {
        PUT(out, "\",\"parentSpanId\":\"");
        buf_put(out, span->parent_id, SPAN_ID_SIZE - 1);
    }
    PUT(out, "\",\"name\":\"");
    buf_put_text(out, span->verb);
    buf_put_byte(out, ' ');
    buf_put_text(out, span->object);
    PUT(out, "\",\"kind\":");
    buf_put_byte(out, (char)('0' + (int)span->kind));
    PUT(out, ",\"startTimeUnixNano\":");
    put_time(out, span->start_us);
    PUT(out, ",\"endTimeUnixNano\":");
    put_time(out, span->end_us > span->start_us ? span->end_us : span->start_us);
    put_events(out, span);
    PUT(out, ",\"attributes\":[");
}

static void put_key(struct buf *out, const char *key)
{
    if (out->length > 0 && out->bytes[out->length - 1] != '[')
        buf_put_byte(out, ',');
    PUT(out, "{\"key\":");
    json_put_string(out, key, strlen(key));
    PUT(out, ",\"value\":{\"");
}

void span_text(struct buf *out, const char *key, const char *value)
{
    if (!value || !value[0])
        return;
    put_key(out, key);
    PUT(out, "stringValue\":");
    json_put_string(out, value, strlen(value));
    PUT(out, "}}");
}

void span_integer(struct buf *out, const char *key, int64_t value)
{
    put_key(out, key);
    PUT(out, "intValue\":\"");
    put_number(out, value);
    PUT(out, "\"}}");
}

void span_bool(struct buf *out, const char *key, bool value)
{
    put_key(out, key);
    PUT(out, "boolValue\":");
    buf_put_text(out, value ? "true}}" : "false}}");
}

void span_end(struct buf *out, bool is_error)
{
    buf_put_text(out, is_error ? "],\"status\":{\"code\":2}}" : "]}");
}
