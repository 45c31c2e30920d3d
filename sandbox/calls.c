/* The call ring. Invariant: the note of call n is at n % CALLS_KEPT and says so itself. Leaves out: bodies,
 * credentials, card numbers; counting (ledger.c counts, also what the ring has forgotten). */
#include "sandbox/calls.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/json_value.h"

struct note {
    uint64_t call; /* 0 = empty */
    int64_t wall_us;
    const char *fault;
    int status;
    enum call_kind kind;
    char user[132], key[132], reference[132], traceparent[64];
};

struct calls {
    uint64_t made, cleared;
    struct note notes[CALLS_KEPT];
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

const char *call_target_name(enum call_target target)
{
    return target == TARGET_ISSUER ? "issuer" : "core";
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

static void keep(char *text, size_t size, struct slice words)
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
    struct note *note = &calls->notes[call % CALLS_KEPT];
    note->call = call;
    note->wall_us = wall_us;
    note->fault = fault;
    note->status = 0;
    note->kind = kind;
    keep(note->user, sizeof(note->user), words->user);
    keep(note->key, sizeof(note->key), words->key);
    keep(note->reference, sizeof(note->reference), words->reference);
    keep(note->traceparent, sizeof(note->traceparent), words->traceparent);
    return call;
}

struct slice calls_user_of(const struct calls *calls, struct slice reference)
{
    uint64_t oldest = calls->made > CALLS_KEPT ? calls->made - CALLS_KEPT : 0;
    for (uint64_t call = calls->made; reference.length && call > oldest; call--) {
        const struct note *note = &calls->notes[call % CALLS_KEPT];
        if (*note->user && strlen(note->reference) == reference.length &&
            memcmp(note->reference, reference.bytes, reference.length) == 0)
            return (struct slice){.bytes = note->user, .length = strlen(note->user)};
    }
    return (struct slice){0};
}

void calls_answered(struct calls *calls, uint64_t call, int status)
{
    struct note *note = &calls->notes[call % CALLS_KEPT];
    if (note->call == call)
        note->status = status;
}

static void put_member(struct buf *out, const char *name, const char *text)
{
    buf_put_format(out, ",\"%s\":", name);
    if (text && *text)
        json_put_string(out, text, strlen(text));
    else
        buf_put_text(out, "null");
}

bool calls_write(const struct calls *calls, size_t limit, struct buf *out)
{
    buf_put_text(out, "{\"calls\":[");
    uint64_t oldest = calls->made > CALLS_KEPT ? calls->made - CALLS_KEPT : 0;
    if (oldest < calls->cleared)
        oldest = calls->cleared;
    for (uint64_t call = calls->made; call > oldest && calls->made - call < limit; call--) {
        const struct note *note = &calls->notes[call % CALLS_KEPT];
        char at[CLOCK_RFC3339_SIZE];
        clock_format(note->wall_us, at);
        buf_put_format(out, "%s{\"at\":\"%s\",\"target\":\"%s\",\"call\":\"%s\"", call == calls->made ? "" : ",", at,
                       call_target_name(call_kind_target(note->kind)), call_kind_name(note->kind));
        put_member(out, "user", note->user);
        put_member(out, "key", note->key);
        put_member(out, "reference", note->reference);
        put_member(out, "traceparent", note->traceparent);
        buf_put_format(out, ",\"status\":%d", note->status);
        put_member(out, "fault", note->fault);
        buf_put_byte(out, '}');
    }
    buf_put_text(out, "]}\n");
    return !out->failed;
}
