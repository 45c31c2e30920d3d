/* The words of the outbox, and the one reader of a request's body.
 *
 * Invariants: the api and the worker read a body through the same function, so what one accepts the other can work
 * with, once it is of that release (may_be_newer); a payload is handed out whole or not at all; a fault never repeats a
 * value, only the name of its member, cut and printable.
 * Left out: what the database checks (whether `replaces` is a card of this user), and writing a payload. */
#include "common/core/outbox.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/buf.h"
#include "common/lib/base/err.h"
#include "common/lib/base/slice.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "common/lib/json/json_writer.h"

/* How much of an unknown member's name is shown. Every byte may need two in the JSON pointer. */
#define SHOWN_NAME_MAX 32

struct reader {
    struct outbox_payload payload;
    struct outbox_fault *faults; /* may be NULL */
    int fault_count;
    bool has_kind, kind_is_known, has_replaces, has_reason;
};

static const char *const status_names[] = {
#define X(status) #status,
    OUTBOX_STATUSES(X)
#undef X
};

static const char *const attempt_names[] = {
#define X(name, word) #word,
    OUTBOX_ATTEMPTS(X)
#undef X
};

static const char *const reissue_reason_names[OUTBOX_REISSUE_REASONS] = {
    [OUTBOX_LOST] = "lost", [OUTBOX_STOLEN] = "stolen", [OUTBOX_DAMAGED] = "damaged", [OUTBOX_EXPIRED] = "expired"};

/* Reasons, then causes in the order of their enum. A user may read the detail, an operator reads the text. */
static const struct code {
    const char *code, *detail, *text;
} codes[] = {
#define X(name, detail, meaning) {#name, detail, meaning},
    OUTBOX_REASONS(X)
#undef X
#define X(name, word, meaning) {#word, NULL, meaning},
        OUTBOX_CAUSES(X)
#undef X
};
enum {
    REASON_COUNT = 0
#define X(name, detail, meaning) +1
    OUTBOX_REASONS(X)
#undef X
};

static const struct code *find_code(const char *code)
{
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (strcmp(codes[i].code, code) == 0)
            return &codes[i];
    return NULL;
}

const char *outbox_status_name(enum outbox_status status)
{
    return status_names[status];
}

bool outbox_status_parse(const char *text, size_t length, enum outbox_status *ret_status)
{
    int index = slice_among((struct slice){text, length}, status_names, ARRAY_SIZE(status_names));
    if (index >= 0)
        *ret_status = (enum outbox_status)index;
    return index >= 0;
}

bool outbox_status_is_final(enum outbox_status status)
{
    return status == OUTBOX_COMPLETED || status == OUTBOX_REJECTED || status == OUTBOX_FAILED;
}

bool outbox_reason_code_is_valid(const char *code, size_t length)
{
    if (length == 0 || length >= OUTBOX_REASON_CODE_SIZE)
        return false;
    for (size_t i = 0; i < length; i++)
        if (!((code[i] >= 'a' && code[i] <= 'z') || (code[i] >= '0' && code[i] <= '9') || code[i] == '_'))
            return false;
    return true;
}

const char *outbox_reason_detail(const char *code)
{
    const struct code *known = code ? find_code(code) : NULL;
    if (known && known->detail)
        return known->detail;
    if (code && strncmp(code, "issuer_http_", 12) == 0)
        return "The card issuer gave an answer that was not expected.";
    if (code && strncmp(code, "core_http_", 10) == 0)
        return "The account service gave an answer that was not expected.";
    if (code && strncmp(code, "route_http_", 11) == 0)
        return "The receiver of the request gave an answer that was not expected.";
    return "The request was refused.";
}

const char *outbox_cause_name(enum outbox_cause cause)
{
    return codes[REASON_COUNT + (int)cause].code;
}

const char *outbox_code_text(const char *code)
{
    const struct code *known = find_code(code);
    return known ? known->text : NULL;
}

const char *outbox_attempt_name(enum outbox_attempt attempt)
{
    return attempt_names[attempt];
}

bool outbox_attempt_parse(const char *word, enum outbox_attempt *ret_attempt)
{
    int index = slice_among(slice_of(word), attempt_names, ARRAY_SIZE(attempt_names));
    if (index >= 0)
        *ret_attempt = (enum outbox_attempt)index;
    return index >= 0;
}

const char *outbox_reissue_reason_name(enum outbox_reissue_reason reason)
{
    return reissue_reason_names[reason];
}

bool outbox_user_id_is_valid(const char *user_id, size_t length)
{
    /* guard: a user id that is a dot segment is refused */
    const struct slice id = {user_id, length};
    if (length == 0 || length > OUTBOX_USER_ID_MAX || slice_is(id, ".") || slice_is(id, ".."))
        return false;
    for (size_t i = 0; i < length; i++)
        if (user_id[i] < 0x20 || user_id[i] > 0x7e)
            return false;
    return true;
}

/* U+0000-U+001F, U+007F and U+0080-U+009F (C2 80 - C2 9F). `text` is valid UTF-8. */
static bool has_controls(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < 0x20 || byte == 0x7f)
            return true;
        if (byte == 0xc2 && i + 1 < length && (unsigned char)text[i + 1] < 0xa0)
            return true;
    }
    return false;
}

static void add_fault(struct reader *reader, const char *pointer, const char *detail)
{
    if (reader->fault_count == OUTBOX_FAULTS_MAX)
        return;
    if (reader->faults) {
        struct outbox_fault *fault = &reader->faults[reader->fault_count];
        snprintf(fault->pointer, sizeof(fault->pointer), "%.*s", (int)sizeof(fault->pointer) - 1, pointer);
        snprintf(fault->detail, sizeof(fault->detail), "%.*s", (int)sizeof(fault->detail) - 1, detail);
        fault->may_be_newer = false;
    }
    reader->fault_count++;
}

/* The fault that was added last. */
static void mark_newer(struct reader *reader)
{
    if (reader->faults)
        reader->faults[reader->fault_count - 1].may_be_newer = true;
}

/* raw_name: with its quotes. A name that is too long to unescape is shown as it was written. */
static void add_unknown_fault(struct reader *reader, struct slice raw_name)
{
    char name[256], pointer[sizeof(reader->faults->pointer)];
    size_t length = 0;
    if (!json_string(json_value_of(raw_name.bytes, raw_name.length), name, sizeof(name), &length)) {
        length = sizeof(name) - 1;
        if (length > raw_name.length - 2)
            length = raw_name.length - 2;
        memcpy(name, raw_name.bytes + 1, length);
    }
    bool cut = length > SHOWN_NAME_MAX;
    char *out = pointer + sprintf(pointer, "#/");
    for (size_t i = 0; i < length && i < SHOWN_NAME_MAX; i++) {
        /* RFC 6901 */
        if (name[i] == '~' || name[i] == '/') {
            *out++ = '~';
            *out++ = name[i] == '~' ? '0' : '1';
        } else {
            *out++ = name[i] >= 0x20 && name[i] <= 0x7e ? name[i] : '?';
        }
    }
    snprintf(out, sizeof(pointer) - (size_t)(out - pointer), "%s", cut ? "..." : "");
    add_fault(reader, pointer, "is not a member of this request");
    mark_newer(reader);
}

/* Every known member is a string. */
static bool want_string(struct reader *reader, const char *pointer, struct json_value value)
{
    if (value.kind == JSON_STRING)
        return true;
    add_fault(reader, pointer, value.kind == JSON_NULL ? "must not be null" : "must be a string");
    return false;
}

static void read_kind(struct reader *reader, struct json_value value)
{
    char text[16];
    reader->has_kind = true;
    if (!want_string(reader, "#/kind", value))
        return;
    if (json_string(value, text, sizeof(text), NULL)) {
        reader->payload.is_reissue = strcmp(text, "reissue") == 0;
        reader->kind_is_known = reader->payload.is_reissue || strcmp(text, "new") == 0;
    }
    if (!reader->kind_is_known) {
        add_fault(reader, "#/kind", "must be \"new\" or \"reissue\"");
        mark_newer(reader);
    }
}

static void read_replaces(struct reader *reader, struct json_value value)
{
    char text[UUID_TEXT_SIZE];
    size_t length;
    struct uuid uuid;
    reader->has_replaces = true;
    if (!want_string(reader, "#/replaces", value))
        return;
    if (!json_string(value, text, sizeof(text), &length) || !uuid_parse(text, length, &uuid)) {
        add_fault(reader, "#/replaces", "must be the id of a card");
        return;
    }
    /* One card, one spelling: the fingerprint of a body is of its value. */
    _Static_assert(sizeof(reader->payload.replaces) >= UUID_TEXT_SIZE, "an id fits");
    uuid_format(&uuid, reader->payload.replaces);
}

static void read_reason(struct reader *reader, struct json_value value)
{
    char text[16];
    int reason = -1;
    reader->has_reason = true;
    if (!want_string(reader, "#/reason", value))
        return;
    if (json_string(value, text, sizeof(text), NULL))
        reason = slice_among(slice_of(text), reissue_reason_names, OUTBOX_REISSUE_REASONS);
    if (reason >= 0) {
        reader->payload.reason = (enum outbox_reissue_reason)reason;
        return;
    }
    add_fault(reader, "#/reason", "must be \"lost\", \"stolen\", \"damaged\" or \"expired\"");
    mark_newer(reader);
}

/* The members that are texts and may be left out: outbox_payload_read() and outbox_payload_write() need no more. */
#define TEXT_MEMBER(NAME, LEAST, LENGTH_FAULT)                                                 \
    {                                                                                          \
#NAME, "#/" #NAME, LENGTH_FAULT, LEAST, sizeof(((struct outbox_payload *)0)->NAME),    \
            offsetof(struct outbox_payload, has_##NAME), offsetof(struct outbox_payload, NAME) \
    }
static const struct text_member {
    const char *name, *pointer, *length_fault;
    size_t least, size; /* bytes; the size is of the array, with its NUL */
    size_t has, text;   /* where the bool and the array are in struct outbox_payload */
} text_members[] = {
    TEXT_MEMBER(program, 1, "must have 1 to 64 bytes"),
    TEXT_MEMBER(memo, 0, "must have at most 255 bytes"),
};

static void read_text_member(struct reader *reader, const struct text_member *member, struct json_value value)
{
    char *text = (char *)&reader->payload + member->text;
    size_t length;
    *(bool *)((char *)&reader->payload + member->has) = true;
    if (!want_string(reader, member->pointer, value))
        return;
    if (!json_string(value, text, member->size, &length)) {
        add_fault(reader, member->pointer, member->length_fault);
        mark_newer(reader);
    } else if (length < member->least) {
        add_fault(reader, member->pointer, member->length_fault);
    } else if (has_controls(text, length)) {
        add_fault(reader, member->pointer, "must not contain control characters");
    }
}

static bool read_if_text_member(struct reader *reader, const char *name, struct json_value value)
{
    for (size_t i = 0; i < ARRAY_SIZE(text_members); i++) {
        if (strcmp(name, text_members[i].name) != 0)
            continue;
        read_text_member(reader, &text_members[i], value);
        return true;
    }
    return false;
}

static void read_member(struct reader *reader, struct slice raw_name, struct json_value value)
{
    char name[16];
    if (!json_string(json_value_of(raw_name.bytes, raw_name.length), name, sizeof(name), NULL))
        add_unknown_fault(reader, raw_name);
    else if (strcmp(name, "kind") == 0)
        read_kind(reader, value);
    else if (strcmp(name, "replaces") == 0)
        read_replaces(reader, value);
    else if (strcmp(name, "reason") == 0)
        read_reason(reader, value);
    else if (!read_if_text_member(reader, name, value))
        add_unknown_fault(reader, raw_name);
}

/* Rules about two members, checked once all members are read. A member that has a fault already gets no second one. */
static void check_together(struct reader *reader)
{
    if (!reader->has_kind)
        add_fault(reader, "#/kind", "is required");
    if (!reader->kind_is_known)
        return;
    if (reader->payload.is_reissue && !reader->has_replaces)
        add_fault(reader, "#/replaces", "is required for a reissue");
    if (!reader->payload.is_reissue && reader->payload.replaces[0] != '\0')
        add_fault(reader, "#/replaces", "is only for a reissue");
    if (!reader->payload.is_reissue && reader->has_reason)
        add_fault(reader, "#/reason", "is only for a reissue");
}

int outbox_payload_read(const char *text, size_t length, struct outbox_payload *ret_payload,
                        struct outbox_fault *ret_faults)
{
    struct reader reader = {.faults = ret_faults};
    struct err err;
    if (!json_strict_check(text, length, &err)) {
        add_fault(&reader, "#", err.message);
        return reader.fault_count;
    }
    struct json_value object = json_value_of(text, length);
    if (object.kind != JSON_OBJECT) {
        add_fault(&reader, "#", "must be an object");
        return reader.fault_count;
    }
    size_t cursor = 0;
    struct slice raw_name;
    struct json_value value;
    while (json_next_member(object, &cursor, &raw_name, &value))
        read_member(&reader, raw_name, value);
    check_together(&reader);
    if (reader.fault_count == 0)
        *ret_payload = reader.payload;
    return reader.fault_count;
}

void outbox_payload_write(struct buf *out, const struct outbox_payload *payload)
{
    struct json_writer writer = json_writer_of(out);
    json_open_object(&writer, NULL);
    json_add_text(&writer, "kind", payload->is_reissue ? "reissue" : "new");
    if (payload->is_reissue)
        json_add_text(&writer, "replaces", payload->replaces);
    /* Left out where it is the default: a body that names it is the same value. */
    if (payload->reason != OUTBOX_LOST)
        json_add_text(&writer, "reason", outbox_reissue_reason_name(payload->reason));
    for (size_t i = 0; i < ARRAY_SIZE(text_members); i++)
        if (*(const bool *)((const char *)payload + text_members[i].has))
            json_add_text(&writer, text_members[i].name, (const char *)payload + text_members[i].text);
    json_close_object(&writer);
}
