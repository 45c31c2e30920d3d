/* Walkers that read a checked text in place. With an unchecked text they still stay inside their slice, but their
 * results mean nothing. No recursion, no allocation. */
#include "common/lib/json/json_value.h"

#include <string.h>

#include "common/lib/base/buf.h"
#include "common/lib/json/json_text.h"

static const char *space_end(const char *at, const char *end)
{
    while (at < end && json_text_is_space((unsigned char)*at))
        at++;
    return at;
}

static const char *plain_end(const char *at, const char *end)
{
    return (const char *)json_text_plain_end((const unsigned char *)at, (const unsigned char *)end);
}

/* `at` is the opening quote; the result is behind the closing one. */
static const char *string_end(const char *at, const char *end)
{
    for (at = plain_end(at + 1, end); at < end && *at != '"'; at = plain_end(at + 1, end))
        if (*at == '\\' && end - at > 1)
            at++;
    return at < end ? at + 1 : end;
}

static const char *container_end(const char *at, const char *end)
{
    size_t depth = 0;

    while (at < end) {
        char c = *at;
        if (c == '"') {
            at = string_end(at, end);
            continue;
        }
        at++;
        if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && --depth == 0)
            break;
    }
    return at;
}

static enum json_kind kind_of(char first)
{
    switch (first) {
    case '{':
        return JSON_OBJECT;
    case '[':
        return JSON_ARRAY;
    case '"':
        return JSON_STRING;
    case 't':
    case 'f':
        return JSON_BOOL;
    case 'n':
        return JSON_NULL;
    }
    return first == '-' || json_text_is_digit((unsigned char)first) ? JSON_NUMBER : JSON_MISSING;
}

static const char *scalar_end(const char *at, const char *end)
{
    while (at < end && *at != ',' && *at != '}' && *at != ']' && !json_text_is_space((unsigned char)*at))
        at++;
    return at;
}

/* The value at `at`, which is not white space. */
static struct json_value value_at(const char *at, const char *end)
{
    struct json_value value = {.kind = at == end ? JSON_MISSING : kind_of(*at)};

    if (value.kind == JSON_MISSING)
        return value;
    const char *behind = value.kind == JSON_STRING                               ? string_end(at, end)
                         : value.kind == JSON_OBJECT || value.kind == JSON_ARRAY ? container_end(at, end)
                                                                                 : scalar_end(at, end);
    value.raw = (struct slice){at, (size_t)(behind - at)};
    return value;
}

struct json_value json_value_of(const char *text, size_t length)
{
    const char *end = text + length, *at = space_end(text, end);

    /* A text that was checked is one value, so that it ends where the white space behind it begins. */
    while (end > at && json_text_is_space((unsigned char)end[-1]))
        end--;
    struct json_value value = {.kind = at == end ? JSON_MISSING : kind_of(*at)};
    if (value.kind != JSON_MISSING)
        value.raw = (struct slice){at, (size_t)(end - at)};
    return value;
}

/* Where the next element or member starts, or NULL at the end. */
static const char *next_start(struct json_value container, size_t cursor)
{
    const char *end = container.raw.bytes + container.raw.length;
    const char *at = space_end(container.raw.bytes + (cursor == 0 ? 1 : cursor), end);

    if (at < end && *at == ',')
        at = space_end(at + 1, end);
    return at == end || *at == ']' || *at == '}' ? NULL : at;
}

bool json_next_element(struct json_value array, size_t *cursor, struct json_value *ret_element)
{
    struct json_value element;
    const char *at = array.kind == JSON_ARRAY ? next_start(array, *cursor) : NULL;

    if (!at)
        return false;
    element = value_at(at, array.raw.bytes + array.raw.length);
    if (element.kind == JSON_MISSING)
        return false;
    *cursor = (size_t)(element.raw.bytes + element.raw.length - array.raw.bytes);
    *ret_element = element;
    return true;
}

bool json_next_member(struct json_value object, size_t *cursor, struct slice *ret_name, struct json_value *ret_value)
{
    struct json_value value;
    const char *at = object.kind == JSON_OBJECT ? next_start(object, *cursor) : NULL;
    const char *end, *after, *colon;

    if (!at || *at != '"')
        return false;
    end = object.raw.bytes + object.raw.length;
    after = string_end(at, end);
    colon = space_end(after, end);
    if (colon == end)
        return false;
    value = value_at(space_end(colon + 1, end), end);
    if (value.kind == JSON_MISSING)
        return false;
    *ret_name = (struct slice){at, (size_t)(after - at)};
    *cursor = (size_t)(value.raw.bytes + value.raw.length - object.raw.bytes);
    *ret_value = value;
    return true;
}

/* Whether the raw name (with quotes) unescapes to `name`. */
static bool name_is(struct slice raw, const char *name)
{
    /* Nearly always the first byte tells: it is the name's, or begins an escape. */
    if (raw.length < 2 || (name[0] && raw.bytes[1] != name[0] && raw.bytes[1] != '\\'))
        return false;
    struct json_text_reader reader = {.at = (const unsigned char *)raw.bytes + 1};
    size_t length = strlen(name), inner = raw.length - 2, i = 0;
    if (inner < length)
        return false;
    if (inner == length)
        return memcmp(raw.bytes + 1, name, length) == 0;
    reader.end = reader.at + inner;
    while (i < length && (reader.at < reader.end || reader.used < reader.count)) {
        if (json_text_next(&reader) != (unsigned char)name[i])
            return false;
        i++;
    }
    return i == length && reader.at == reader.end && reader.used == reader.count;
}

static const struct json_value twice = {.kind = JSON_TWICE};

void json_members(struct json_value object, size_t count, const char *const *names, struct json_value *ret_values)
{
    struct json_value value;
    struct slice raw;
    size_t cursor = 0;

    for (size_t i = 0; i < count; i++)
        ret_values[i] = (struct json_value){.kind = object.kind == JSON_TWICE ? JSON_TWICE : JSON_MISSING};
    while (json_next_member(object, &cursor, &raw, &value)) {
        for (size_t i = 0; i < count; i++) {
            if (name_is(raw, names[i])) {
                /* guard: a member that stands in an answer twice has no value */
                ret_values[i] = ret_values[i].kind == JSON_MISSING ? value : twice;
                break;
            }
        }
    }
}

struct json_value json_member(struct json_value object, const char *name)
{
    struct json_value value;

    json_members(object, 1, &name, &value);
    return value;
}

bool json_string(struct json_value value, char *out, size_t out_size, size_t *ret_length)
{
    const unsigned char *at, *end;
    size_t length = 0;

    if (value.kind != JSON_STRING || value.raw.length < 2 || out_size == 0)
        return false;
    at = (const unsigned char *)value.raw.bytes + 1;
    end = at + value.raw.length - 2;
    while (at < end) {
        const unsigned char *escape = memchr(at, '\\', (size_t)(end - at));
        size_t plain = (size_t)((escape ? escape : end) - at), count, raw;
        uint32_t code;
        char bytes[4];
        if (out_size - length <= plain)
            return false;
        memcpy(out + length, at, plain);
        length += plain;
        at += plain;
        if (at == end)
            break;
        raw = json_text_escape(at, end, &code);
        if (raw == 0)
            return false;
        count = json_text_encode(code, bytes);
        if (out_size - length <= count)
            return false;
        memcpy(out + length, bytes, count);
        length += count;
        at += raw;
    }
    out[length] = '\0';
    if (ret_length)
        *ret_length = length;
    return true;
}

/* A number as it is written, less its sign. */
struct number {
    struct slice digits, fraction;
    int64_t exponent;
};

static struct slice take_digits(struct slice *rest)
{
    struct slice digits = {.bytes = rest->bytes, .length = 0};
    while (digits.length < rest->length && json_text_is_digit((unsigned char)rest->bytes[digits.length]))
        digits.length++;
    rest->bytes += digits.length;
    rest->length -= digits.length;
    return digits;
}

static bool take(struct slice *rest, char byte)
{
    bool is_there = rest->length > 0 && rest->bytes[0] == byte;
    rest->bytes += is_there;
    rest->length -= is_there;
    return is_there;
}

static bool read_number(struct slice rest, struct number *ret_number)
{
    *ret_number = (struct number){.digits = take_digits(&rest)};
    if (take(&rest, '.'))
        ret_number->fraction = take_digits(&rest);
    if (take(&rest, 'e') || take(&rest, 'E')) {
        bool is_negative = take(&rest, '-');
        (void)(is_negative || take(&rest, '+'));
        struct slice digits = take_digits(&rest);
        for (size_t i = 0; i < digits.length && ret_number->exponent < INT32_MAX; i++)
            ret_number->exponent = ret_number->exponent * 10 + (digits.bytes[i] - '0');
        ret_number->exponent *= is_negative ? -1 : 1;
    }
    return rest.length == 0 && ret_number->digits.length > 0;
}

/* Minus the number, because INT64_MIN has no positive twin. */
static bool negate(const struct number *number, int64_t *ret_integer)
{
    size_t before = number->digits.length, count = before + number->fraction.length;
    int64_t point = (int64_t)before + number->exponent, integer = 0;

    for (size_t i = 0; i < count; i++) {
        int digit = (i < before ? number->digits.bytes[i] : number->fraction.bytes[i - before]) - '0';
        if ((int64_t)i >= point
                ? digit != 0
                : __builtin_mul_overflow(integer, 10, &integer) || __builtin_sub_overflow(integer, digit, &integer))
            return false;
    }
    for (int64_t i = (int64_t)count; i < point && integer != 0; i++)
        if (__builtin_mul_overflow(integer, 10, &integer))
            return false;
    *ret_integer = integer;
    return true;
}

bool json_integer(struct json_value value, int64_t min, int64_t max, int64_t *ret_integer)
{
    struct slice rest = value.raw;
    struct number number;
    int64_t integer;

    if (value.kind != JSON_NUMBER)
        return false;
    bool is_negative = take(&rest, '-');
    if (!read_number(rest, &number) || !negate(&number, &integer))
        return false;
    if (is_negative && integer == 0) /* no count is minus zero */
        return false;
    if (!is_negative && __builtin_sub_overflow((int64_t)0, integer, &integer))
        return false;
    if (integer < min || integer > max)
        return false;
    *ret_integer = integer;
    return true;
}

bool json_is_true(struct json_value value)
{
    return value.kind == JSON_BOOL && value.raw.length == 4 && memcmp(value.raw.bytes, "true", 4) == 0;
}

bool json_is_false(struct json_value value)
{
    return value.kind == JSON_BOOL && value.raw.length == 5 && memcmp(value.raw.bytes, "false", 5) == 0;
}

/* ---- writing ---- */

static bool put_escaped(struct buf *out, unsigned char c)
{
    switch (c) {
    case '"':
        return buf_put(out, "\\\"", 2);
    case '\\':
        return buf_put(out, "\\\\", 2);
    case '\n':
        return buf_put(out, "\\n", 2);
    case '\r':
        return buf_put(out, "\\r", 2);
    case '\t':
        return buf_put(out, "\\t", 2);
    default:
        return buf_put_format(out, "\\u%04x", c);
    }
}

static void put_text(struct buf *out, const unsigned char *at, const unsigned char *end)
{
    while (at < end) {
        const unsigned char *first = at;
        size_t sequence = 1;
        while (at < end && *at >= 0x20 && *at != '"' && *at != '\\' && (sequence = utf8_length(at, end)) > 0)
            at += sequence;
        if (at > first)
            buf_put(out, first, (size_t)(at - first));
        if (at == end)
            break;
        if (sequence == 0 ||
            *at == '\0') /* the inner loop stopped at a byte that starts nothing, or that JSON may not say */
            buf_put(out, "\xEF\xBF\xBD", 3);
        else
            put_escaped(out, *at);
        at++;
    }
}

bool json_put_string(struct buf *out, const char *text, size_t length)
{
    size_t plain = (size_t)(plain_end(text, text + length) - text);
    char *place = buf_reserve(out, plain + 2);
    if (!place)
        return false;
    place[0] = '"';
    if (plain > 0)
        memcpy(place + 1, text, plain);
    if (plain == length) { /* nearly always: names, ids, times */
        place[1 + plain] = '"';
        out->length += plain + 2;
        return true;
    }
    place[1 + plain] = '\0';
    out->length += 1 + plain;
    put_text(out, (const unsigned char *)text + plain, (const unsigned char *)text + length);
    return buf_put_byte(out, '"');
}
