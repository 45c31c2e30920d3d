/* See trace.h. */
#include "common/lib/base/trace.h"

#include <string.h>

enum { FLAGS_AT = 53, TRACE_ID_LENGTH = 32, SPAN_ID_LENGTH = 16 };

static bool is_hex(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!(text[i] >= '0' && text[i] <= '9') && !(text[i] >= 'a' && text[i] <= 'f'))
            return false;
    return true;
}

static bool is_id(const char *text, size_t length)
{
    static const char zeros[] = "00000000000000000000000000000000";
    return is_hex(text, length) && memcmp(text, zeros, length) != 0;
}

static bool has_trace_id(struct slice text)
{
    return text.bytes && text.length == TRACE_LENGTH && memcmp(text.bytes, "00-", TRACE_ID_AT) == 0 &&
           is_id(text.bytes + TRACE_ID_AT, TRACE_ID_LENGTH);
}

bool trace_is_valid(struct slice text)
{
    return has_trace_id(text) && text.bytes[SPAN_ID_AT - 1] == '-' && is_id(text.bytes + SPAN_ID_AT, SPAN_ID_LENGTH) &&
           text.bytes[FLAGS_AT - 1] == '-' && is_hex(text.bytes + FLAGS_AT, TRACE_LENGTH - FLAGS_AT);
}

/* ---- tracestate ---- */

static bool is_key(struct slice key)
{
    static const char marks[] = "_-*/@";
    for (size_t i = 0; i < key.length; i++) {
        char c = key.bytes[i];
        bool starts = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!starts && (i == 0 || !c || !strchr(marks, c)))
            return false;
    }
    return key.length >= 1 && key.length <= 256;
}

static bool is_value(struct slice value)
{
    for (size_t i = 0; i < value.length; i++)
        if (value.bytes[i] < ' ' || value.bytes[i] > '~' || value.bytes[i] == '=')
            return false;
    return value.length >= 1 && value.length <= 256;
}

bool trace_state_is_valid(struct slice text)
{
    int members = 0;
    if (!text.bytes || text.length > TRACE_STATE_MAX)
        return false;
    for (size_t at = 0; at < text.length;) {
        const char *comma = memchr(text.bytes + at, ',', text.length - at);
        size_t length = comma ? (size_t)(comma - text.bytes) - at : text.length - at;
        struct slice member = slice_trim((struct slice){text.bytes + at, length});
        const char *equals = member.length ? memchr(member.bytes, '=', member.length) : NULL;
        at += length + 1;
        if (member.length == 0) /* an empty member is allowed */
            continue;
        if (!equals || ++members > 32 || !is_key((struct slice){member.bytes, (size_t)(equals - member.bytes)}) ||
            !is_value((struct slice){equals + 1, (size_t)(member.bytes + member.length - equals - 1)}))
            return false;
    }
    return members > 0;
}

/* ---- the trace of an event ---- */

void trace_id_of(struct slice parent, const struct uuid *event_id, char ret_id[TRACE_ID_SIZE])
{
    ret_id[0] = ret_id[TRACE_ID_LENGTH] = '\0';
    if (has_trace_id(parent))
        memcpy(ret_id, parent.bytes + TRACE_ID_AT, TRACE_ID_LENGTH);
    else if (event_id)
        for (size_t i = 0; i < sizeof(event_id->bytes); i++) {
            ret_id[2 * i] = "0123456789abcdef"[event_id->bytes[i] >> 4];
            ret_id[2 * i + 1] = "0123456789abcdef"[event_id->bytes[i] & 15];
        }
}

/* "00-ID-END-00": the end of the trace's id is the span's. */
static void make_parent(const char *id, char *parent)
{
    memcpy(parent, "00-", TRACE_ID_AT);
    memcpy(parent + TRACE_ID_AT, id, TRACE_ID_LENGTH);
    parent[SPAN_ID_AT - 1] = '-';
    memcpy(parent + SPAN_ID_AT, id + TRACE_ID_LENGTH - SPAN_ID_LENGTH, SPAN_ID_LENGTH);
    memcpy(parent + FLAGS_AT - 1, "-00", TRACE_LENGTH - FLAGS_AT + 1);
}

void trace_of_event(struct slice parent, struct slice state, const struct uuid *event_id, struct trace *ret_trace)
{
    bool is_valid = trace_is_valid(parent);
    size_t length = is_valid && trace_state_is_valid(state) ? state.length : 0;
    trace_id_of(parent, event_id, ret_trace->id);
    ret_trace->is_ours = !is_valid;
    if (is_valid)
        memcpy(ret_trace->parent, parent.bytes, TRACE_LENGTH);
    else
        make_parent(ret_trace->id, ret_trace->parent);
    ret_trace->parent[TRACE_LENGTH] = '\0';
    if (!trace_is_valid((struct slice){ret_trace->parent, TRACE_LENGTH})) /* the event's id is 0 */
        ret_trace->parent[0] = '\0';
    if (length > 0)
        memcpy(ret_trace->state, state.bytes, length);
    ret_trace->state[length] = '\0';
}
