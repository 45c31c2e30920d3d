/* Requests as the server reads them (http_slot_read()): what comes of the bytes is the same however they are cut into
 * pieces, so that nobody in front of the server can make it see another request than the one that was sent. */
#include <stdio.h>
#include <stdlib.h>

#include "common/lib/http_server/http_server_internal.h"
#include "tests/fuzz/fuzz.h"

#define TOLD_MAX ((size_t)1024 * 1024)

static void tell(struct buf *out, struct slice bytes)
{
    buf_put(out, bytes.bytes ? bytes.bytes : "", bytes.length);
    buf_put_byte(out, '|');
}

/* A body has the length that was announced, and no more than is allowed. */
static void check_body(const struct http_request *request, const struct http_server_options *limits)
{
    int lengths, encodings;
    struct slice announced = http_header(request, "content-length", &lengths);
    (void)http_header(request, "transfer-encoding", &encodings);
    fuzz_expect(request->body.length <= limits->body_max && lengths <= 1 && !(lengths && encodings));
    if (lengths == 1 && announced.length < 10) {
        char text[11];
        snprintf(text, sizeof(text), "%.*s", (int)announced.length, announced.bytes);
        fuzz_expect(strtoul(text, NULL, 10) == request->body.length);
    }
    if (lengths + encodings == 0)
        fuzz_expect(request->body.length == 0);
}

static void check_head(const struct http_request *request, const struct http_server_options *limits)
{
    int hosts;
    (void)http_header(request, "host", &hosts);
    fuzz_expect(hosts <= 1 && request->header_count <= HTTP_HEADERS_MAX);
    fuzz_expect(request->target.length >= 1 && request->target.length <= limits->target_max);
    fuzz_expect(request->target.bytes[0] == '/' && request->path.bytes == request->target.bytes);
    for (int i = 0; i < request->header_count; i++) {
        struct slice value = request->headers[i].value;
        fuzz_expect(request->headers[i].name.length > 0);
        for (size_t at = 0; at < value.length; at++)
            fuzz_expect((unsigned char)value.bytes[at] >= 0x20 || value.bytes[at] == '\t');
    }
}

/* Reads one request, `step` bytes at a time, and writes down what came of it. */
static enum http_progress read_one(struct http_slot *slot, const struct http_server_options *limits, struct slice bytes,
                                   size_t step, size_t *ret_used, struct buf *out)
{
    enum http_progress progress = HTTP_MORE;
    size_t used = 0;
    http_slot_begin(slot, 1);
    while (used < bytes.length && (progress == HTTP_MORE || progress == HTTP_HEAD_DONE)) {
        size_t piece = bytes.length - used < step ? bytes.length - used : step, taken = 0;
        char *copy = fuzz_copy((struct slice){bytes.bytes + used, piece});
        progress = http_slot_read(slot, copy, piece, &taken);
        free(copy);
        fuzz_expect(taken <= piece && (progress != HTTP_MORE || taken == piece));
        used += taken;
    }
    const struct http_request *request = &slot->request;
    *ret_used = used;
    buf_put_format(out, "%d|", progress == HTTP_HEAD_DONE ? HTTP_MORE : progress);
    if (progress == HTTP_REFUSED) {
        fuzz_expect(slot->refusal.status >= 400 && slot->refusal.status < 600);
        buf_put_format(out, "%d %s|", slot->refusal.status, slot->refusal.detail);
    }
    if (progress != HTTP_COMPLETE)
        return progress;
    check_head(request, limits);
    check_body(request, limits);
    buf_put_format(out, "%d %zu %d %d|", request->method, used, slot->keep_alive, slot->is_1_0);
    tell(out, request->target);
    tell(out, request->path);
    tell(out, request->query);
    for (int i = 0; i < request->header_count; i++) {
        tell(out, request->headers[i].name);
        tell(out, request->headers[i].value);
    }
    tell(out, request->body);
    return progress;
}

/* All requests of the bytes, one behind the other. */
static bool read_all(const struct http_server_options *limits, struct slice bytes, size_t step, struct buf *out)
{
    struct http_slot *slot = http_slot_new(limits);
    enum http_progress progress = HTTP_COMPLETE;
    if (!slot) {
        fuzz_expect(fuzz_memory_is_short);
        return false;
    }
    while (progress == HTTP_COMPLETE && bytes.length > 0) {
        size_t used;
        progress = read_one(slot, limits, bytes, step, &used, out);
        bytes = (struct slice){bytes.bytes + used, bytes.length - used};
        http_slot_wipe(slot);
    }
    http_slot_free(slot);
    fuzz_expect(progress != HTTP_BROKEN || fuzz_memory_is_short);
    return progress != HTTP_BROKEN && !out->failed;
}

FUZZ(head)
{
    struct http_server_options limits;
    http_server_defaults(&limits);
    limits.target_max = 64; /* so that limits are met */
    limits.header_max = 512;
    limits.body_max = 256;
    size_t step = 1 + fuzz_choose(in, 8);
    struct slice bytes = {in->bytes, in->length};
    struct buf whole, pieces;
    buf_init(&whole, TOLD_MAX);
    buf_init(&pieces, TOLD_MAX);
    if (read_all(&limits, bytes, bytes.length, &whole) && read_all(&limits, bytes, step, &pieces))
        fuzz_expect(whole.length == pieces.length &&
                    (whole.length == 0 || memcmp(whole.bytes, pieces.bytes, whole.length) == 0));
    buf_done(&whole);
    buf_done(&pieces);
}
