/* See calls.h. Invariant: the note of call n is at n % CALLS_MAX and holds n. Left out: bodies, credentials, card
 * numbers; counting (the ledger counts, also calls whose notes are overwritten). */
#include "sandbox/calls.h"

#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/json/json_writer.h"

struct note {
    uint64_t call; /* 0 = empty */
    int64_t wall_us;
    const char *fault;
    int status;
    enum call_kind kind;
    char user[132], key[132], reference[132], traceparent[64], tracestate[513];
};

struct calls {
    uint64_t made, cleared;
    struct note notes[CALLS_MAX];
};

const char *call_kind_name(enum call_kind kind)
{
    switch (kind) {
#define X(call, name, target) \
    case CALL_##call:         \
        return name;
        CALL_KINDS(X)
#undef X
    }
    return "?";
}

enum call_target call_kind_target(enum call_kind kind)
{
    switch (kind) {
#define X(call, name, target) \
    case CALL_##call:         \
        return TARGET_##target;
        CALL_KINDS(X)
#undef X
    }
    return TARGET_ISSUER;
}

static const char *const target_names[] = {
    [TARGET_ISSUER] = "issuer",
    [TARGET_CORE] = "core",
    [TARGET_ROUTE] = "route",
};

const char *call_target_name(enum call_target target)
{
    return target_names[target];
}

bool call_target_of_name(const char *name, enum call_target *ret_target)
{
    for (size_t i = 0; i < ARRAY_SIZE(target_names); i++) {
        if (strcmp(name, target_names[i]) == 0) {
            *ret_target = (enum call_target)i;
            return true;
        }
    }
    return false;
}

struct calls *calls_new(void)
{
    return calloc(1, sizeof(struct calls));
}

void calls_free(struct calls *calls)
{
    free(calls);
}

void calls_clear(struct calls *calls)
{
    calls->cleared = calls->made;
}

static void copy(char *text, size_t size, struct slice words)
{
    size_t length = words.length < size - 1 ? words.length : size - 1;
    if (length)
        memcpy(text, words.bytes, length);
    text[length] = '\0';
}

uint64_t calls_note(struct calls *calls, enum call_kind kind, const struct call_words *words, const char *fault,
                    int64_t wall_us)
{
    uint64_t call = ++calls->made;
    struct note *note = &calls->notes[call % CALLS_MAX];
    note->call = call;
    note->wall_us = wall_us;
    note->fault = fault;
    note->status = 0;
    note->kind = kind;
    copy(note->user, sizeof(note->user), words->user);
    copy(note->key, sizeof(note->key), words->key);
    copy(note->reference, sizeof(note->reference), words->reference);
    copy(note->traceparent, sizeof(note->traceparent), words->traceparent);
    copy(note->tracestate, sizeof(note->tracestate), words->tracestate);
    return call;
}

struct slice calls_user_of(const struct calls *calls, struct slice reference)
{
    uint64_t oldest = calls->made > CALLS_MAX ? calls->made - CALLS_MAX : 0;
    for (uint64_t call = calls->made; reference.length && call > oldest; call--) {
        const struct note *note = &calls->notes[call % CALLS_MAX];
        if (*note->user && slice_is(reference, note->reference))
            return (struct slice){.bytes = note->user, .length = strlen(note->user)};
    }
    return (struct slice){0};
}

void calls_answered(struct calls *calls, uint64_t call, int status)
{
    struct note *note = &calls->notes[call % CALLS_MAX];
    if (note->call == call)
        note->status = status;
}

/* An empty text is shown as null. */
static void add_text(struct json_writer *writer, const char *name, const char *text)
{
    json_add_text(writer, name, text && *text ? text : NULL);
}

static void add_note(struct json_writer *writer, const struct note *note)
{
    char at[CLOCK_RFC3339_SIZE];
    clock_format(note->wall_us, at);
    json_open_object(writer, NULL);
    json_add_text(writer, "at", at);
    json_add_text(writer, "target", call_target_name(call_kind_target(note->kind)));
    json_add_text(writer, "call", call_kind_name(note->kind));
    add_text(writer, "user", note->user);
    add_text(writer, "key", note->key);
    add_text(writer, "reference", note->reference);
    add_text(writer, "traceparent", note->traceparent);
    add_text(writer, "tracestate", note->tracestate);
    json_add_integer(writer, "status", note->status);
    add_text(writer, "fault", note->fault);
    json_close_object(writer);
}

bool calls_write(const struct calls *calls, size_t limit, struct buf *out)
{
    uint64_t oldest = calls->made > CALLS_MAX ? calls->made - CALLS_MAX : 0;
    if (oldest < calls->cleared)
        oldest = calls->cleared;
    struct json_writer writer = json_writer_of(out);
    json_open_object(&writer, NULL);
    json_open_array(&writer, "calls");
    for (uint64_t call = calls->made; call > oldest && calls->made - call < limit; call--)
        add_note(&writer, &calls->notes[call % CALLS_MAX]);
    json_close_array(&writer);
    json_close_object(&writer);
    buf_put_byte(out, '\n');
    return !out->failed;
}
