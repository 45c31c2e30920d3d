/* What a client of the api sends: the body of a card request, the headers that have a grammar, the query of a list. */
#include <stdio.h>
#include <stdlib.h>

#include "api/client_headers.h"
#include "api/pages.h"
#include "api/paging.c" // NOLINT: read_page() is its own; a call would need a pool behind it
#include "common/lib/base/trace.h"
#include "common/lib/json/json_strict.h"
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

static void read_trace(struct slice parent, struct slice state)
{
    const struct http_request request = {
        .headers = {{SLICE("traceparent"), parent}, {SLICE("tracestate"), state}, {SLICE("TraceState"), parent}},
        .header_count = 3};
    const struct uuid id = {.bytes = {1, [15] = 1}};
    char text[TRACE_STATE_SIZE];
    struct trace trace;
    struct slice kept = header_read_trace(&request), kept_state = header_read_trace_state(&request, text);
    fuzz_expect(kept.length == 0 || kept.length == TRACE_LENGTH);
    trace_of_event(kept, kept_state, &id, &trace);
    fuzz_expect(trace_is_valid((struct slice){trace.parent, strlen(trace.parent)}));
    fuzz_expect(memcmp(trace.parent + 3, trace.id, strlen(trace.id)) == 0);
    fuzz_expect(strlen(trace.state) == (kept.length ? kept_state.length : 0));
    for (const char *at = trace.state; *at; at++)
        fuzz_expect((*at >= ' ' && *at <= '~') || *at == '\t');
}

static void read_query(struct slice query)
{
    struct page page;
    struct problem_errors errors = {.count = 0};
    read_page(query, &page, &errors);
    if (errors.count > 0)
        json_close_array(&errors.writer);
    fuzz_expect(!errors.list.failed || fuzz_memory_is_short);
    if (errors.count > 0 && !errors.list.failed)
        fuzz_expect(json_strict_check(errors.list.bytes, errors.list.length, NULL));
    if (errors.count == 0)
        fuzz_expect(page.limit >= 1 && page.limit <= PAGE_LIMIT_MAX);
    buf_done(&errors.list);
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
        read_trace(first, rest);
        return;
    case 5:
        (void)pages_has_tag(first, "\"0123456789abcdef01234567\"");
        return;
    default:
        read_query(first);
    }
}
