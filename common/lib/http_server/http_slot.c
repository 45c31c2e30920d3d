/* The memory of one request: its header fields, buffers and parser. Slots are pooled (http_conn_state.c).
 *
 * Invariant: the buffers of a slot that goes back to the pool are overwritten: they held tokens. */
#include <stdlib.h>

#include "common/lib/http_server/http_parse_internal.h"

#define KEEP_CAPACITY ((size_t)2 * 1024) /* of the buffers of a pooled slot */

struct http_slot *http_slot_new(const struct http_server_options *limits)
{
    struct http_parse *parse = malloc(sizeof(*parse));
    if (!parse)
        return NULL;
    parse->limits = limits;
    buf_init(&parse->head, limits->target_max + HTTP_REQUEST_LINE_EXTRA + limits->header_max);
    buf_init(&parse->body, limits->body_max);
    http_slot_begin(&parse->slot, 0);
    return &parse->slot;
}

void http_slot_begin(struct http_slot *slot, int64_t started_us)
{
    struct http_parse *parse = http_parse_of(slot);
    struct http_request *request = &slot->request;
    request->method = HTTP_OTHER;
    request->target = request->path = request->query = request->body = (struct slice){0};
    request->header_count = 0;
    request->started_us = started_us;
    request->user = NULL;
    request->on_gone = NULL;
    request->gone_at_end = request->drops_body = false;
    slot->conn = NULL;
    slot->next_free = NULL;
    slot->is_handed_over = slot->keep_alive = slot->is_1_0 = slot->wants_continue = false;
    slot->is_at_head = slot->is_answered = false;
    slot->refusal = (struct http_refusal){0};
    buf_reset(&parse->head);
    buf_reset(&parse->body);
    parse->part = HTTP_PART_REQUEST_LINE;
    parse->last = '\0';
    parse->line_length = parse->block_length = 0;
    parse->line = (struct http_line){.method = HTTP_OTHER};
    parse->empty_lines = 0;
    parse->left = 0;
    parse->body_length = 0;
    parse->extension_bytes = 0;
    parse->head_seen = parse->end_seen = parse->is_broken = false;
}

/* The whole capacity: buf_reset() and buf_consume() leave a shorter text where a longer one was. */
static void wipe(struct buf *buf)
{
    buf_wipe(buf);
    if (buf->capacity > KEEP_CAPACITY)
        buf_done(buf);
}

void http_slot_wipe(struct http_slot *slot)
{
    wipe(&http_parse_of(slot)->head);
    wipe(&http_parse_of(slot)->body);
}

void http_slot_free(struct http_slot *slot)
{
    http_slot_wipe(slot);
    buf_done(&http_parse_of(slot)->head);
    buf_done(&http_parse_of(slot)->body);
    free(http_parse_of(slot));
}

size_t http_slot_memory(const struct http_slot *slot)
{
    const struct http_parse *parse = container_of(slot, const struct http_parse, slot);
    return sizeof(*parse) + parse->head.capacity + parse->body.capacity;
}

struct buf http_slot_buffer(const struct http_slot *slot, int which)
{
    const struct http_parse *parse = container_of(slot, const struct http_parse, slot);
    return which == 0 ? parse->head : parse->body;
}

uint64_t http_slot_announced(const struct http_slot *slot)
{
    const struct http_parse *parse = container_of(slot, const struct http_parse, slot);
    return parse->part == HTTP_PART_BODY ? parse->left : 0;
}

void http_slot_drop_body(struct http_slot *slot)
{
    slot->is_answered = slot->request.drops_body = true;
    http_slot_wipe(slot);
}

void http_drop_body(struct http_request *request)
{
    struct http_parse *parse = http_parse_of(container_of(request, struct http_slot, request));
    request->body = (struct slice){0};
    wipe(&parse->body);
}

bool http_slot_is_begun(const struct http_slot *slot)
{
    const struct http_parse *parse = container_of(slot, const struct http_parse, slot);
    return parse->head.length > 0;
}
