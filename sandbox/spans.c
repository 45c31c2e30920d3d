/* See spans.h. Invariant: span n since the last clear is at n % SPANS_MAX. */
#include "sandbox/spans.h"

#include <stdlib.h>
#include <string.h>

struct spans {
    size_t count; /* ever put, less the replaced ones */
    struct span rows[SPANS_MAX];
};

const char *span_attribute(const struct span *span, const char *at)
{
    if (at)
        at = span_attribute_value(at);
    const char *next = at ? at + strlen(at) + 1 : span->attributes;
    return next < span->attributes + span->attributes_end ? next : NULL;
}

const char *span_attribute_value(const char *name)
{
    return name + strlen(name) + 1;
}

struct spans *spans_new(void)
{
    return calloc(1, sizeof(struct spans));
}

void spans_free(struct spans *spans)
{
    free(spans);
}

void spans_clear(struct spans *spans)
{
    spans->count = 0;
}

static size_t kept(const struct spans *spans)
{
    return spans->count < SPANS_MAX ? spans->count : SPANS_MAX;
}

void spans_put(struct spans *spans, const struct span *span)
{
    struct span *row = &spans->rows[spans->count % SPANS_MAX];
    bool is_new = true;
    for (size_t i = 0; i < kept(spans) && is_new; i++) {
        if (strcmp(spans->rows[i].id, span->id) == 0 && strcmp(spans->rows[i].trace_id, span->trace_id) == 0) {
            row = &spans->rows[i];
            is_new = false;
        }
    }
    *row = *span;
    spans->count += is_new;
}

const struct span *spans_newest(const struct spans *spans, size_t n)
{
    return n < kept(spans) ? &spans->rows[(spans->count - 1 - n) % SPANS_MAX] : NULL;
}

size_t spans_of(const struct spans *spans, const char *trace_id, const struct span **ret_spans, size_t max)
{
    size_t found = 0;
    for (size_t i = spans->count - kept(spans); i < spans->count && found < max; i++) {
        const struct span *span = &spans->rows[i % SPANS_MAX];
        if (strcmp(span->trace_id, trace_id) == 0)
            ret_spans[found++] = span;
    }
    return found;
}
