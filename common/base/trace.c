/* See trace.h. */
#include "common/base/trace.h"

#include <string.h>

#include "common/base/backoff.h"

enum { TRACE_ID_AT = 3, SPAN_ID_AT = 36, FLAGS_AT = 53, TRACE_ID_LENGTH = 32, SPAN_ID_LENGTH = 16 };

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

bool trace_is_valid(struct slice text)
{
    return text.bytes && text.length == TRACE_LENGTH && memcmp(text.bytes, "00-", TRACE_ID_AT) == 0 &&
           is_id(text.bytes + TRACE_ID_AT, TRACE_ID_LENGTH) && text.bytes[SPAN_ID_AT - 1] == '-' &&
           is_id(text.bytes + SPAN_ID_AT, SPAN_ID_LENGTH) && text.bytes[FLAGS_AT - 1] == '-' &&
           is_hex(text.bytes + FLAGS_AT, TRACE_LENGTH - FLAGS_AT);
}

static void write_hex(char *out, uint64_t value)
{
    for (int i = 15; i >= 0; i--, value >>= 4)
        out[i] = "0123456789abcdef"[value & 15];
}

void trace_make_child(const char *parent, char ret_text[TRACE_SIZE])
{
    memcpy(ret_text, "00-................................-................-00", TRACE_SIZE);
    if (parent[0]) {
        memcpy(ret_text, parent, TRACE_LENGTH);
    } else {
        write_hex(ret_text + TRACE_ID_AT, backoff_random() | 1); /* so that the id is not all zero */
        write_hex(ret_text + TRACE_ID_AT + 16, backoff_random());
    }
    write_hex(ret_text + SPAN_ID_AT, backoff_random() | 1);
}
