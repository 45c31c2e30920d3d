/* JSON as RFC 8259 means it: one scanner that decides whether a text is good, and walkers that read a good text in
 * place.
 *
 * Invariants: no recursion; nothing is read outside [text, text + length); nothing is allocated until more than
 * NAMES_INLINE members are open at once; the work is O(n log n) in the worst case (the names of a large object are
 * sorted, not hashed, so no input can choose its collisions). The walkers stay inside their slice also when the
 * text is bad, but mean nothing then.
 * Left out: building documents (json.h) and any conversion to double. */
#include "common/json_strict.h"

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"

#define NAMES_INLINE 48  /* member names held without an allocation, over all open objects */
#define NAMES_PAIRWISE 8 /* up to this many members are compared each with each */
#define OBJECT_MEMBERS_MAX 1024
#define TEXT_MAX (1u << 30) /* offsets are 32 bits */

static bool is_space(unsigned char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

/* -1 when c is no hex digit. */
static int hex_value(unsigned char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The length of the well-formed UTF-8 sequence at `at` (RFC 3629: no overlong forms, no surrogates, at most
 * U+10FFFF), or 0. */
static size_t utf8_sequence(const unsigned char *at, const unsigned char *end)
{
    size_t left = (size_t)(end - at);
    unsigned char first = at[0];

    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        return left >= 2 && (at[1] & 0xC0) == 0x80 ? 2 : 0;
    if (first >= 0xE0 && first <= 0xEF) {
        if (left < 3 || (at[1] & 0xC0) != 0x80 || (at[2] & 0xC0) != 0x80)
            return 0;
        if ((first == 0xE0 && at[1] < 0xA0) || (first == 0xED && at[1] > 0x9F))
            return 0;
        return 3;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        if (left < 4 || (at[1] & 0xC0) != 0x80 || (at[2] & 0xC0) != 0x80 || (at[3] & 0xC0) != 0x80)
            return 0;
        if ((first == 0xF0 && at[1] < 0x90) || (first == 0xF4 && at[1] > 0x8F))
            return 0;
        return 4;
    }
    return 0;
}

static size_t utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

/* The four hex digits after \u, or -1. */
static int32_t hex4(const unsigned char *at, const unsigned char *end)
{
    int32_t code = 0;

    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(at[i]);
        if (digit < 0)
            return -1;
        code = code << 4 | digit;
    }
    return code;
}

/* Reads the escape that starts at the backslash `at`. Returns its raw length, or 0 when it is none of RFC 8259's, a
 * lone surrogate, or U+0000. */
static size_t read_escape(const unsigned char *at, const unsigned char *end, uint32_t *ret_code)
{
    int32_t high, low;

    if (end - at < 2)
        return 0;
    switch (at[1]) {
    case '"':
    case '\\':
    case '/':
        *ret_code = at[1];
        return 2;
    case 'b':
        *ret_code = '\b';
        return 2;
    case 'f':
        *ret_code = '\f';
        return 2;
    case 'n':
        *ret_code = '\n';
        return 2;
    case 'r':
        *ret_code = '\r';
        return 2;
    case 't':
        *ret_code = '\t';
        return 2;
    case 'u':
        break;
    default:
        return 0;
    }
    high = hex4(at + 2, end);
    if (high <= 0 || (high >= 0xDC00 && high <= 0xDFFF))
        return 0;
    if (high < 0xD800 || high > 0xDBFF) {
        *ret_code = (uint32_t)high;
        return 6;
    }
    if (end - at < 12 || at[6] != '\\' || at[7] != 'u')
        return 0;
    low = hex4(at + 8, end);
    if (low < 0xDC00 || low > 0xDFFF)
        return 0;
    *ret_code = 0x10000 + (((uint32_t)high - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
    return 12;
}

/* True when eight bytes hold nothing that a string scanner must look at: no quote, backslash, control or non-ASCII
 * byte. */
static bool all_plain(const unsigned char *at)
{
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    uint64_t word, quote, backslash;

    memcpy(&word, at, sizeof word);
    quote = word ^ ones * '"';
    backslash = word ^ ones * '\\';
    return ((word | (word - ones * 0x20) | (quote - ones) | (backslash - ones)) & highs) == 0;
}

/* ---- the scanner ---- */

struct name {
    uint32_t offset; /* of the first byte after the quote */
    uint32_t length; /* raw */
    uint32_t decoded_length;
};

enum expect {
    EXPECT_VALUE,
    EXPECT_ELEMENT_OR_END, /* after '[' */
    EXPECT_NAME,           /* after ',' in an object */
    EXPECT_NAME_OR_END,    /* after '{' */
    EXPECT_COMMA_OR_END,   /* after a value */
};

struct scan {
    const unsigned char *start, *at, *end;
    struct err *err;
    struct name *names; /* of the open objects, inner ones last */
    size_t name_count, name_capacity;
    int depth;
    struct {
        bool is_object;
        size_t first_name;
    } levels[JSON_DEPTH_MAX];
    struct name names_inline[NAMES_INLINE];
};

static bool fail_at(const struct scan *scan, const unsigned char *at, const char *what)
{
    return err_set(scan->err, ERR_MALFORMED, "byte %zu: %s", (size_t)(at - scan->start), what);
}

/* at stands on the opening quote; afterwards behind the closing one. */
static bool scan_string(struct scan *scan, struct name *ret_name)
{
    const unsigned char *at = scan->at + 1, *end = scan->end, *first = at;
    size_t saved = 0; /* raw bytes less decoded bytes */

    for (;;) {
        while (end - at >= 8 && all_plain(at))
            at += 8;
        while (at < end && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\')
            at++;
        if (at == end)
            return fail_at(scan, at, "a string has no end");
        if (*at == '"') {
            break;
        } else if (*at == '\\') {
            uint32_t code;
            char bytes[4];
            size_t length = read_escape(at, end, &code);
            if (length == 0)
                return fail_at(scan, at, "an escape that JSON does not have, U+0000 or a lone surrogate");
            saved += length - utf8_encode(code, bytes);
            at += length;
        } else if (*at < 0x20) {
            return fail_at(scan, at, "a control character inside a string");
        } else {
            size_t length = utf8_sequence(at, end);
            if (length == 0)
                return fail_at(scan, at, "invalid UTF-8");
            at += length;
        }
    }
    ret_name->offset = (uint32_t)(first - scan->start);
    ret_name->length = (uint32_t)(at - first);
    ret_name->decoded_length = (uint32_t)((size_t)(at - first) - saved);
    scan->at = at + 1;
    return true;
}

/* Whether sign, digits and exponent stay below the point where a double becomes infinite (2^1024 - 2^970). `digits`
 * runs over the integer part, and `fraction` over what follows the point. */
static bool fits_double(struct slice digits, struct slice fraction, int64_t exponent)
{
    static const char limit[] = "17976931348623158079";
    size_t leading = 0, total = digits.length + fraction.length;
    int64_t magnitude; /* the value is d.ddd * 10^magnitude */

    while (leading < total) {
        char digit = leading < digits.length ? digits.bytes[leading] : fraction.bytes[leading - digits.length];
        if (digit != '0')
            break;
        leading++;
    }
    if (leading == total)
        return true;
    magnitude = (int64_t)digits.length - 1 - (int64_t)leading + exponent;
    if (magnitude != 308)
        return magnitude < 308;
    for (size_t i = 0; i < sizeof limit - 1; i++) {
        size_t place = leading + i;
        char digit = place >= total          ? '0'
                     : place < digits.length ? digits.bytes[place]
                                             : fraction.bytes[place - digits.length];
        if (digit != limit[i])
            return digit < limit[i];
    }
    return false;
}

static bool fits_int64(bool negative, struct slice digits)
{
    const char *limit = negative ? "9223372036854775808" : "9223372036854775807";

    return digits.length < 19 || (digits.length == 19 && memcmp(digits.bytes, limit, 19) <= 0);
}

static struct slice take_digits(struct scan *scan)
{
    const unsigned char *first = scan->at;

    while (scan->at < scan->end && is_digit(*scan->at))
        scan->at++;
    return (struct slice){.bytes = (const char *)first, .length = (size_t)(scan->at - first)};
}

static bool scan_number(struct scan *scan)
{
    const unsigned char *first = scan->at;
    struct slice digits, fraction = {NULL, 0};
    int64_t exponent = 0;
    bool negative = *scan->at == '-', whole = true;

    if (negative)
        scan->at++;
    digits = take_digits(scan);
    if (digits.length == 0)
        return fail_at(scan, scan->at, "a number without digits");
    if (digits.length > 1 && digits.bytes[0] == '0')
        return fail_at(scan, first, "a number with a leading zero");
    if (scan->at < scan->end && *scan->at == '.') {
        whole = false;
        scan->at++;
        fraction = take_digits(scan);
        if (fraction.length == 0)
            return fail_at(scan, scan->at, "a number without digits after the point");
    }
    if (scan->at < scan->end && (*scan->at | 0x20) == 'e') {
        struct slice power;
        bool smaller = false;
        whole = false;
        scan->at++;
        if (scan->at < scan->end && (*scan->at == '+' || *scan->at == '-'))
            smaller = *scan->at++ == '-';
        power = take_digits(scan);
        if (power.length == 0)
            return fail_at(scan, scan->at, "a number without digits in its exponent");
        for (size_t i = 0; i < power.length && exponent < 2 * (int64_t)TEXT_MAX; i++)
            exponent = exponent * 10 + (power.bytes[i] - '0');
        if (smaller)
            exponent = -exponent;
    }
    if (whole && !fits_int64(negative, digits))
        return fail_at(scan, first, "an integer outside the 64-bit range");
    if (!whole && !fits_double(digits, fraction, exponent))
        return fail_at(scan, first, "a number too large for a double");
    return true;
}

/* ---- duplicate members ---- */

/* The next decoded bytes of a raw name: one plain byte, or a whole escape. */
struct decoder {
    const unsigned char *at, *end;
    char bytes[4];
    size_t used, count;
};

static unsigned char decoder_next(struct decoder *decoder)
{
    if (decoder->used < decoder->count)
        return (unsigned char)decoder->bytes[decoder->used++];
    if (*decoder->at == '\\') {
        uint32_t code = 0;
        decoder->at += read_escape(decoder->at, decoder->end, &code);
        decoder->count = utf8_encode(code, decoder->bytes);
        decoder->used = 1;
        return (unsigned char)decoder->bytes[0];
    }
    return *decoder->at++;
}

/* A total order in which only equal names (after unescaping) are equal; shorter ones come first. */
static int compare_names(const struct scan *scan, const struct name *left, const struct name *right)
{
    const unsigned char *left_at = scan->start + left->offset, *right_at = scan->start + right->offset;
    struct decoder left_decoder = {.at = left_at, .end = left_at + left->length};
    struct decoder right_decoder = {.at = right_at, .end = right_at + right->length};

    if (left->decoded_length != right->decoded_length)
        return left->decoded_length < right->decoded_length ? -1 : 1;
    if (left->length == left->decoded_length && right->length == right->decoded_length)
        return memcmp(left_at, right_at, left->length);
    for (uint32_t i = 0; i < left->decoded_length; i++) {
        int difference = decoder_next(&left_decoder) - decoder_next(&right_decoder);
        if (difference != 0)
            return difference;
    }
    return 0;
}

static void sift_down(const struct scan *scan, struct name *names, size_t root, size_t count)
{
    struct name moving = names[root];

    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && compare_names(scan, &names[child], &names[child + 1]) < 0)
            child++;
        if (compare_names(scan, &moving, &names[child]) >= 0)
            break;
        names[root] = names[child];
    }
    names[root] = moving;
}

/* Heapsort: in place and O(n log n) whatever the input. */
static void sort_names(const struct scan *scan, struct name *names, size_t count)
{
    for (size_t root = count / 2; root-- > 0;)
        sift_down(scan, names, root, count);
    for (size_t last = count; last-- > 1;) {
        struct name largest = names[0];
        names[0] = names[last];
        names[last] = largest;
        sift_down(scan, names, 0, last);
    }
}

static bool fail_duplicate(const struct scan *scan, const struct name *left, const struct name *right)
{
    uint32_t offset = left->offset > right->offset ? left->offset : right->offset;

    return fail_at(scan, scan->start + offset - 1, "a member for the second time in one object");
}

static bool check_names(const struct scan *scan, struct name *names, size_t count)
{
    if (count <= NAMES_PAIRWISE) {
        for (size_t i = 1; i < count; i++)
            for (size_t j = 0; j < i; j++)
                if (names[i].decoded_length == names[j].decoded_length &&
                    compare_names(scan, &names[i], &names[j]) == 0)
                    return fail_duplicate(scan, &names[i], &names[j]);
        return true;
    }
    sort_names(scan, names, count);
    for (size_t i = 1; i < count; i++)
        if (compare_names(scan, &names[i - 1], &names[i]) == 0)
            return fail_duplicate(scan, &names[i - 1], &names[i]);
    return true;
}

/* Makes room for one more name. */
static bool grow_names(struct scan *scan)
{
    struct name *names;
    size_t capacity = scan->name_capacity * 4;

    if (scan->name_count < scan->name_capacity)
        return true;
    names = realloc(scan->names == scan->names_inline ? NULL : scan->names, capacity * sizeof *names);
    if (!names)
        return err_set(scan->err, ERR_MEMORY, "no memory to check a JSON text");
    if (scan->names == scan->names_inline)
        memcpy(names, scan->names_inline, sizeof scan->names_inline);
    scan->names = names;
    scan->name_capacity = capacity;
    return true;
}

/* ---- structure ---- */

static void skip_space(struct scan *scan)
{
    while (scan->at < scan->end && is_space(*scan->at))
        scan->at++;
}

static bool scan_word(struct scan *scan, const char *word)
{
    size_t length = strlen(word);

    if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, word, length) != 0)
        return fail_at(scan, scan->at, "no JSON value");
    scan->at += length;
    return true;
}

static bool open_level(struct scan *scan, bool is_object)
{
    if (scan->depth == JSON_DEPTH_MAX)
        return fail_at(scan, scan->at, "nested too deep");
    scan->levels[scan->depth].is_object = is_object;
    scan->levels[scan->depth].first_name = scan->name_count;
    scan->depth++;
    scan->at++;
    return true;
}

static bool close_level(struct scan *scan)
{
    size_t first = scan->levels[scan->depth - 1].first_name;

    if (!check_names(scan, scan->names + first, scan->name_count - first))
        return false;
    scan->name_count = first;
    scan->depth--;
    scan->at++;
    return true;
}

static bool scan_value(struct scan *scan, enum expect *ret_expect)
{
    struct name ignored;

    if (scan->at == scan->end)
        return fail_at(scan, scan->at, "the text ends where a value should be");
    *ret_expect = EXPECT_COMMA_OR_END;
    switch (*scan->at) {
    case '{':
        *ret_expect = EXPECT_NAME_OR_END;
        return open_level(scan, true);
    case '[':
        *ret_expect = EXPECT_ELEMENT_OR_END;
        return open_level(scan, false);
    case '"':
        return scan_string(scan, &ignored);
    case 't':
        return scan_word(scan, "true");
    case 'f':
        return scan_word(scan, "false");
    case 'n':
        return scan_word(scan, "null");
    default:
        if (*scan->at == '-' || is_digit(*scan->at))
            return scan_number(scan);
        return fail_at(scan, scan->at, "no JSON value");
    }
}

static bool scan_name(struct scan *scan)
{
    struct name name;

    if (scan->at == scan->end || *scan->at != '"')
        return fail_at(scan, scan->at, "a member name is missing");
    if (scan->name_count - scan->levels[scan->depth - 1].first_name == OBJECT_MEMBERS_MAX)
        return fail_at(scan, scan->at, "an object with more than 1024 members");
    if (!scan_string(scan, &name) || !grow_names(scan))
        return false;
    scan->names[scan->name_count++] = name;
    skip_space(scan);
    if (scan->at == scan->end || *scan->at != ':')
        return fail_at(scan, scan->at, "a colon is missing");
    scan->at++;
    return true;
}

static bool scan_separator(struct scan *scan, enum expect *ret_expect)
{
    bool is_object = scan->levels[scan->depth - 1].is_object;

    if (scan->at == scan->end)
        return fail_at(scan, scan->at, "the text ends inside an object or array");
    if (*scan->at == ',') {
        scan->at++;
        *ret_expect = is_object ? EXPECT_NAME : EXPECT_VALUE;
        return true;
    }
    if (*scan->at != (is_object ? '}' : ']'))
        return fail_at(scan, scan->at, is_object ? "',' or '}' is missing" : "',' or ']' is missing");
    return close_level(scan);
}

static bool scan_text(struct scan *scan)
{
    enum expect expect = EXPECT_VALUE;
    bool empty_close;

    do {
        skip_space(scan);
        switch (expect) {
        case EXPECT_ELEMENT_OR_END:
        case EXPECT_NAME_OR_END:
            empty_close = scan->at < scan->end && *scan->at == (expect == EXPECT_NAME_OR_END ? '}' : ']');
            if (empty_close) {
                if (!close_level(scan))
                    return false;
                expect = EXPECT_COMMA_OR_END;
            } else {
                expect = expect == EXPECT_NAME_OR_END ? EXPECT_NAME : EXPECT_VALUE;
            }
            break;
        case EXPECT_VALUE:
            if (!scan_value(scan, &expect))
                return false;
            break;
        case EXPECT_NAME:
            if (!scan_name(scan))
                return false;
            expect = EXPECT_VALUE;
            break;
        case EXPECT_COMMA_OR_END:
            if (!scan_separator(scan, &expect))
                return false;
            break;
        }
    } while (scan->depth > 0 || expect != EXPECT_COMMA_OR_END);
    skip_space(scan);
    return scan->at == scan->end || fail_at(scan, scan->at, "something after the end of the value");
}

bool json_strict_check(const char *text, size_t length, struct err *err)
{
    struct scan scan; /* not zeroed as a whole: the inline names are over half a KiB */
    bool good;

    if (length == 0)
        return err_set(err, ERR_MALFORMED, "byte 0: an empty text is no JSON");
    if (length > TEXT_MAX)
        return err_set(err, ERR_MALFORMED, "a JSON text of over 1 GiB");
    scan.start = scan.at = (const unsigned char *)text;
    scan.end = scan.start + length;
    scan.err = err;
    scan.names = scan.names_inline;
    scan.name_count = 0;
    scan.name_capacity = NAMES_INLINE;
    scan.depth = 0;
    good = scan_text(&scan);
    if (scan.names != scan.names_inline)
        free(scan.names);
    return good;
}

/* ---- walkers: a text that passed the check is assumed, the bounds are kept in any case ---- */

static const char *space_end(const char *at, const char *end)
{
    while (at < end && is_space((unsigned char)*at))
        at++;
    return at;
}

/* at stands on the opening quote; the result is behind the closing one. */
static const char *string_end(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++)
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

static const char *scalar_end(const char *at, const char *end)
{
    while (at < end && *at != ',' && *at != '}' && *at != ']' && !is_space((unsigned char)*at))
        at++;
    return at;
}

/* The value at `at`, which is no white space. */
static struct json_value value_at(const char *at, const char *end)
{
    struct json_value value = {.kind = JSON_MISSING};

    if (at == end)
        return value;
    if (*at == '{' || *at == '[') {
        value.kind = *at == '{' ? JSON_OBJECT : JSON_ARRAY;
        value.raw = (struct slice){at, (size_t)(container_end(at, end) - at)};
    } else if (*at == '"') {
        value.kind = JSON_STRING;
        value.raw = (struct slice){at, (size_t)(string_end(at, end) - at)};
    } else if (*at == '-' || is_digit((unsigned char)*at) || *at == 't' || *at == 'f' || *at == 'n') {
        value.kind = *at == 'n' ? JSON_NULL : *at == 't' || *at == 'f' ? JSON_BOOL : JSON_NUMBER;
        value.raw = (struct slice){at, (size_t)(scalar_end(at, end) - at)};
    }
    return value;
}

struct json_value json_value_of(const char *text, size_t length)
{
    return value_at(space_end(text, text + length), text + length);
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
static bool name_is(struct slice raw, const char *name, size_t length)
{
    struct decoder decoder = {.at = (const unsigned char *)raw.bytes + 1};
    size_t inner = raw.length - 2, i = 0;

    if (raw.length < 2 || inner < length)
        return false;
    if (inner == length)
        return memcmp(raw.bytes + 1, name, length) == 0;
    decoder.end = decoder.at + inner;
    while (i < length && (decoder.at < decoder.end || decoder.used < decoder.count)) {
        if (decoder_next(&decoder) != (unsigned char)name[i])
            return false;
        i++;
    }
    return i == length && decoder.at == decoder.end && decoder.used == decoder.count;
}

void json_members(struct json_value object, size_t count, const char *const *names, struct json_value *ret_values)
{
    struct json_value value;
    struct slice raw;
    size_t cursor = 0, missing = count;

    for (size_t i = 0; i < count; i++)
        ret_values[i] = (struct json_value){.kind = JSON_MISSING};
    while (missing > 0 && json_next_member(object, &cursor, &raw, &value)) {
        for (size_t i = 0; i < count; i++) {
            if (ret_values[i].kind == JSON_MISSING && name_is(raw, names[i], strlen(names[i]))) {
                ret_values[i] = value;
                missing--;
                break;
            }
        }
    }
}

struct json_value json_member(struct json_value object, const char *name)
{
    struct json_value value;
    struct slice raw;
    size_t cursor = 0, length = strlen(name);

    while (json_next_member(object, &cursor, &raw, &value))
        if (name_is(raw, name, length))
            return value;
    return (struct json_value){.kind = JSON_MISSING};
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
        raw = read_escape(at, end, &code);
        if (raw == 0)
            return false;
        count = utf8_encode(code, bytes);
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

bool json_integer(struct json_value value, int64_t min, int64_t max, int64_t *ret_integer)
{
    struct slice digits = value.raw;
    int64_t integer = 0;
    bool negative;

    if (value.kind != JSON_NUMBER || digits.length == 0)
        return false;
    negative = digits.bytes[0] == '-';
    digits.bytes += negative;
    digits.length -= negative;
    if (digits.length == 0 || (digits.bytes[0] == '0' && (negative || digits.length > 1)))
        return false; /* "-0" too: nothing that is counted is ever minus zero */
    for (size_t i = 0; i < digits.length; i++) {
        if (!is_digit((unsigned char)digits.bytes[i]))
            return false;
        /* Counted downwards, because INT64_MIN has no positive twin. */
        if (__builtin_mul_overflow(integer, 10, &integer) ||
            __builtin_sub_overflow(integer, digits.bytes[i] - '0', &integer))
            return false;
    }
    if (!negative && __builtin_sub_overflow((int64_t)0, integer, &integer))
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

bool json_put_string(struct buf *out, const char *text, size_t length)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + length;

    buf_put_byte(out, '"');
    while (at < end) {
        const unsigned char *first = at;
        size_t sequence = 1;
        while (at < end && *at >= 0x20 && *at != '"' && *at != '\\' && (sequence = utf8_sequence(at, end)) > 0)
            at += sequence;
        if (at > first)
            buf_put(out, first, (size_t)(at - first));
        if (at == end)
            break;
        if (sequence == 0) /* the inner loop stopped at a byte that starts nothing */
            buf_put(out, "\xEF\xBF\xBD", 3);
        else
            put_escaped(out, *at);
        at++;
    }
    buf_put_byte(out, '"');
    return !out->failed;
}
