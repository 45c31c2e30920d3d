/* See otlp.h. The encoding is protobuf's for JSON with ids in hex, so: an absent member and null are the default, and a
 * number of 64 bits is a text or a number. */
#include "sandbox/otlp.h"

#include <stdlib.h>
#include <string.h>

#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"

static bool is_absent(struct json_value value)
{
    return value.kind == JSON_MISSING || value.kind == JSON_NULL;
}

/* Cut between two characters. False: another type, a lone surrogate, or no memory. */
static must_check bool read_text(struct json_value value, char *ret_text, size_t size)
{
    size_t length;
    ret_text[0] = '\0';
    if (is_absent(value))
        return true;
    char *whole = value.kind == JSON_STRING ? malloc(value.raw.length) : NULL;
    bool is_text = whole && json_string(value, whole, value.raw.length, &length);
    if (is_text) {
        if (length >= size)
            for (length = size - 1; length > 0 && ((unsigned char)whole[length] & 0xc0) == 0x80;)
                length--;
        memcpy(ret_text, whole, length);
        ret_text[length] = '\0';
    }
    free(whole);
    return is_text;
}

static must_check bool read_number(struct json_value value, uint64_t *ret_number)
{
    char text[24], *end;
    int64_t number;
    *ret_number = 0;
    if (is_absent(value))
        return true;
    if (value.kind == JSON_STRING) {
        if (!json_string(value, text, sizeof(text), NULL) || *text < '0' || *text > '9')
            return false;
        *ret_number = strtoull(text, &end, 10);
        return *end == '\0';
    }
    if (!json_integer(value, 0, INT64_MAX, &number))
        return false;
    *ret_number = (uint64_t)number;
    return true;
}

/* This many hex digits, not all of them 0; in lower case. */
static must_check bool read_id(struct json_value value, char *ret_id, size_t size)
{
    size_t length;
    if (!json_string(value, ret_id, size, &length) || length != size - 1 || strspn(ret_id, "0") == length)
        return false;
    for (char *at = ret_id; *at; at++) {
        if (*at >= 'A' && *at <= 'F')
            *at = (char)(*at - 'A' + 'a');
        else if (!strchr("0123456789abcdef", *at))
            return false;
    }
    return true;
}

/* The text of an AnyValue: its one member, of which a structure is shown as it came. */
static must_check bool read_any(struct json_value any, char *ret_text, size_t size)
{
    size_t cursor = 0;
    struct slice name;
    struct json_value value;
    ret_text[0] = '\0';
    if (any.kind != JSON_OBJECT || !json_next_member(any, &cursor, &name, &value))
        return is_absent(any) || any.kind == JSON_OBJECT;
    if (value.kind == JSON_STRING)
        return read_text(value, ret_text, size);
    size_t length = value.raw.length < size ? value.raw.length : size - 1;
    while (length < value.raw.length && length > 0 && ((unsigned char)value.raw.bytes[length] & 0xc0) == 0x80)
        length--;
    memcpy(ret_text, value.raw.bytes, length);
    ret_text[length] = '\0';
    return true;
}

static bool is_list(struct json_value value)
{
    return value.kind == JSON_ARRAY || is_absent(value);
}

static must_check bool read_attributes(struct json_value list, struct span *span)
{
    size_t cursor = 0;
    struct json_value row;
    while (json_next_element(list, &cursor, &row)) {
        char name[96], value[512];
        if (row.kind != JSON_OBJECT || !read_text(json_member(row, "key"), name, sizeof(name)) ||
            !read_any(json_member(row, "value"), value, sizeof(value)))
            return false;
        size_t head = strlen(name) + 1, length = head + strlen(value) + 1;
        if (span->attributes_end + length > sizeof(span->attributes)) {
            span->is_cut = true;
            continue;
        }
        memcpy(span->attributes + span->attributes_end, name, head);
        memcpy(span->attributes + span->attributes_end + head, value, length - head);
        span->attributes_end += length;
        span->attribute_count++;
    }
    return true;
}

static must_check bool read_events(struct json_value list, struct span *span)
{
    size_t cursor = 0;
    struct json_value row;
    while (json_next_element(list, &cursor, &row)) {
        if (span->event_count == SPAN_EVENTS_MAX) {
            span->is_cut = true;
            break;
        }
        if (!read_text(json_member(row, "name"), span->events[span->event_count].name, sizeof(span->events[0].name)) ||
            !read_number(json_member(row, "timeUnixNano"), &span->events[span->event_count].at_ns))
            return false;
        span->event_count++;
    }
    return true;
}

enum member { TRACE_ID, ID, PARENT_ID, NAME, KIND, START, END, ATTRIBUTES, EVENTS, STATUS, MEMBERS };

static must_check bool read_span(struct json_value value, const char *service, struct span *ret_span)
{
    static const char *const names[MEMBERS] = {
        "traceId",           "spanId",          "parentSpanId", "name",   "kind",
        "startTimeUnixNano", "endTimeUnixNano", "attributes",   "events", "status"};
    struct json_value members[MEMBERS], *m = members;
    uint64_t kind, status;
    struct span span = {0};
    json_members(value, MEMBERS, names, members);
    bool has_parent = !is_absent(m[PARENT_ID]) && !slice_is(m[PARENT_ID].raw, "\"\"");
    if (value.kind != JSON_OBJECT || !read_id(m[TRACE_ID], span.trace_id, sizeof(span.trace_id)) ||
        !read_id(m[ID], span.id, sizeof(span.id)) ||
        (has_parent && !read_id(m[PARENT_ID], span.parent_id, sizeof(span.parent_id))) ||
        !read_text(m[NAME], span.name, sizeof(span.name)) || !*span.name || !read_number(m[KIND], &kind) ||
        !read_number(m[START], &span.start_ns) || !read_number(m[END], &span.end_ns) || !is_list(m[ATTRIBUTES]) ||
        !is_list(m[EVENTS]) || !read_attributes(m[ATTRIBUTES], &span) || !read_events(m[EVENTS], &span) ||
        !read_number(json_member(m[STATUS], "code"), &status) ||
        !read_text(json_member(m[STATUS], "message"), span.message, sizeof(span.message)))
        return false;
    span.kind = kind <= SPAN_CONSUMER ? (enum span_kind)kind : SPAN_UNSPECIFIED;
    span.status = status <= SPAN_ERROR ? (enum span_status)status : SPAN_UNSET;
    memcpy(span.service, service, strlen(service) + 1);
    *ret_span = span;
    return true;
}

/* The attribute service.name of a resource; "" where there is none. */
static void read_service(struct json_value resource, char *ret_service, size_t size)
{
    size_t cursor = 0;
    struct json_value row;
    char name[32];
    ret_service[0] = '\0';
    while (json_next_element(json_member(resource, "attributes"), &cursor, &row)) {
        if (read_text(json_member(row, "key"), name, sizeof(name)) && strcmp(name, "service.name") == 0 &&
            read_any(json_member(row, "value"), ret_service, size))
            return;
    }
}

static void put_spans(struct json_value list, const char *service, struct spans *spans, size_t *rejected)
{
    size_t cursor = 0;
    struct json_value value;
    struct span span;
    while (json_next_element(list, &cursor, &value)) {
        if (read_span(value, service, &span))
            spans_put(spans, &span);
        else
            ++*rejected;
    }
}

/* Walks all lists of spans. spans NULL: only looks whether there are such lists. */
static const char *walk(struct json_value body, struct spans *spans, size_t *rejected)
{
    struct json_value of_resources = json_member(body, "resourceSpans"), of_resource, of_scope;
    char service[sizeof(((struct span *)0)->service)];
    size_t cursor = 0;
    if (body.kind != JSON_OBJECT || !is_list(of_resources))
        return "the body is not an object with an array resourceSpans";
    while (json_next_element(of_resources, &cursor, &of_resource)) {
        struct json_value of_scopes = json_member(of_resource, "scopeSpans");
        size_t inner = 0;
        if (of_resource.kind != JSON_OBJECT || !is_list(of_scopes))
            return "an element of resourceSpans is not an object with an array scopeSpans";
        read_service(json_member(of_resource, "resource"), service, sizeof(service));
        while (json_next_element(of_scopes, &inner, &of_scope)) {
            if (of_scope.kind != JSON_OBJECT || !is_list(json_member(of_scope, "spans")))
                return "an element of scopeSpans is not an object with an array spans";
            if (spans)
                put_spans(json_member(of_scope, "spans"), service, spans, rejected);
        }
    }
    return NULL;
}

const char *otlp_read(struct slice body, struct spans *spans, size_t *ret_rejected)
{
    *ret_rejected = 0;
    if (!json_grammar_check(body.bytes, body.length, NULL))
        return "the body is not JSON";
    struct json_value value = json_value_of(body.bytes, body.length);
    const char *wrong = walk(value, NULL, ret_rejected);
    return wrong ? wrong : walk(value, spans, ret_rejected);
}
