/* What a client of the api sends: the body of a card request, the headers that have a grammar, the query of a list. */
#include <stdio.h>
#include <stdlib.h>

#include "api/client_headers.h"
#include "api/pages.h"
#include "api/paging.c" // NOLINT: read_page() is its own; a call would need a pool behind it
#include "common/base/trace.h"
#include "common/json/json_strict.h"
#include "tests/fuzz/fuzz.h"

static void read_body(struct slice text)
{
    struct outbox_payload payload;
    struct outbox_fault faults[OUTBOX_FAULTS_MAX];
    int count = outbox_payload_read(text.bytes, text.length, &payload, faults);
    fuzz_expect(count >= 0);
    fuzz_expect((count == 0) == (outbox_payload_read(text.bytes, text.length, &payload, NULL) == 0));
    for (int i = 0; i < count && i < OUTBOX_FAULTS_MAX; i++)
        fuzz_expect(faults[i].detail[0] && strlen(faults[i].pointer) < sizeof(faults[i].pointer));
    if (count > 0)
        return;
    fuzz_expect(json_strict_check(text.bytes, text.length, NULL));
    fuzz_expect(payload.is_reissue == (payload.replaces[0] != '\0'));
    fuzz_expect(strlen(payload.program) <= OUTBOX_PROGRAM_MAX && strlen(payload.memo) <= OUTBOX_MEMO_MAX);
}

/* The key is the same when it comes back in quotes. */
static void read_key(struct slice value)
{
    struct client_key key, again;
    const char *fault = NULL;
    if (!header_read_key(value, &key, &fault)) {
        fuzz_expect(fault && fuzz_is_plain(fault));
        return;
    }
    fuzz_expect(key.length >= 1 && key.length <= OUTBOX_KEY_MAX && strlen(key.text) == key.length);
    fuzz_expect(fuzz_is_plain(key.text));
    char quoted[2 * OUTBOX_KEY_MAX + 3] = "\"";
    size_t length = 1;
    for (size_t i = 0; i < key.length; i++) {
        if (strchr("\"\\", key.text[i]))
            quoted[length++] = '\\';
        quoted[length++] = key.text[i];
    }
    quoted[length++] = '"';
    fuzz_expect(header_read_key((struct slice){quoted, length}, &again, &fault));
    fuzz_expect(again.length == key.length && memcmp(again.text, key.text, key.length) == 0);
}

static void read_prefer(struct slice first, struct slice second)
{
    struct http_request request = {.headers = {{SLICE("Prefer"), first}, {SLICE("prefer"), second}}, .header_count = 2};
    int wait_s = header_read_wait(&request);
    fuzz_expect(wait_s >= 0 && wait_s <= PREFER_WAIT_MAX_S);
}

static void read_trace(struct slice value)
{
    struct http_request request = {.headers = {{SLICE("traceparent"), value}}, .header_count = 1};
    struct slice trace = header_read_trace(&request);
    char parent[TRACE_SIZE], child[TRACE_SIZE];
    if (trace.length == 0)
        return;
    fuzz_expect(trace.length == TRACE_LENGTH);
    snprintf(parent, sizeof(parent), "%.*s", (int)trace.length, trace.bytes);
    trace_make_child(parent, child);
    fuzz_expect(trace_is_valid((struct slice){child, strlen(child)}) && memcmp(parent, child, 36) == 0);
}

static void read_query(struct slice query)
{
    struct page page;
    struct buf errors;
    buf_init(&errors, ERRORS_MAX);
    const char *fault = read_page(query, &page, &errors);
    if (fault && !errors.failed)
        fuzz_expect(json_strict_check(errors.bytes, errors.length, NULL));
    if (fault)
        fuzz_expect(!errors.failed || fuzz_memory_is_short);
    if (!fault)
        fuzz_expect(errors.length == 0 && page.limit >= 1 && page.limit <= PAGE_LIMIT_MAX);
    buf_done(&errors);
}

FUZZ(request)
{
    unsigned which = fuzz_choose(in, 7);
    struct slice first = fuzz_take(in, which == 2 ? '\n' : '\0'), rest = {in->bytes, in->length};
    switch (which) {
    case 0:
        read_body(first);
        return;
    case 1:
        read_key(first);
        return;
    case 2:
        read_prefer(first, rest);
        return;
    case 3:
        (void)header_is_json(first);
        return;
    case 4:
        read_trace(first);
        return;
    case 5:
        (void)pages_has_tag(first, "\"0123456789abcdef01234567\"");
        return;
    default:
        read_query(first);
    }
}
