/* Checks JSON texts as RFC 8259 defines them, with one scanner.
 *
 * Invariants: no recursion; nothing is read outside [text, text + length); nothing is allocated until the open objects
 * of a strict check have more than NAMES_INLINE members; the worst case is O(n log n), because the names of a large
 * object are sorted, not hashed, so that no input can cause collisions.
 * Left out: building documents (json.h), reading them (json_value.h), and any conversion to double. */
#include "common/lib/json/json_strict.h"

#include <stdlib.h>
#include <string.h>

#include "common/lib/json/json_text.h"

#define NAMES_INLINE 48  /* member names of all open objects without an allocation */
#define NAMES_PAIRWISE 8 /* up to this many members are compared each with each */
#define OBJECT_MEMBERS_MAX 1024
#define TEXT_MAX (1u << 30) /* offsets are 32 bits */

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
    bool is_strict;
    struct name *names; /* of the open objects, inner ones last; none unless it is strict */
    size_t name_count, name_capacity;
    int depth;
    uint64_t objects[JSON_GRAMMAR_DEPTH_MAX / 64]; /* a bit for each level: it is an object */
    size_t first_names[JSON_DEPTH_MAX];
    struct name names_inline[NAMES_INLINE];
};

static bool fail_at(const struct scan *scan, const unsigned char *at, const char *what)
{
    return err_set(scan->err, ERR_MALFORMED, "byte %zu: %s", (size_t)(at - scan->start), what);
}

/* scan->at is the opening quote; afterwards it is behind the closing one. */
static bool scan_string(struct scan *scan, struct name *ret_name)
{
    const unsigned char *at = scan->at + 1, *end = scan->end, *first = at;
    size_t saved = 0; /* raw bytes less decoded bytes */

    for (;;) {
        at = json_text_plain_end(at, end);
        if (at == end)
            return fail_at(scan, at, "a string has no end");
        if (*at == '"') {
            break;
        } else if (*at == '\\') {
            uint32_t code;
            char bytes[4];
            size_t length = json_text_escape(at, end, &code);
            if (length > 0)
                saved += length - json_text_encode(code, bytes);
            else if (scan->is_strict || (length = json_text_any_escape(at, end)) == 0)
                return fail_at(scan, at, "an escape that JSON does not have, U+0000 or a lone surrogate");
            at += length;
        } else if (*at < 0x20) {
            return fail_at(scan, at, "a control character inside a string");
        } else {
            size_t length = utf8_length(at, end);
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

/* Whether the number is below 2^1024 - 2^970, where a double becomes infinite; the sign does not matter. `digits` is
 * the integer part, `fraction` the digits behind the point. */
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
    for (size_t i = 0; i < sizeof(limit) - 1; i++) {
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

    while (scan->at < scan->end && json_text_is_digit(*scan->at))
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
    if (!scan->is_strict)
        return true;
    if (whole && !fits_int64(negative, digits))
        return fail_at(scan, first, "an integer outside the 64-bit range");
    if (!whole && !fits_double(digits, fraction, exponent))
        return fail_at(scan, first, "a number too large for a double");
    return true;
}

/* ---- duplicate members ---- */

/* A total order of the unescaped names: 0 only for equal names; shorter names come first. */
static int compare_names(const struct scan *scan, const struct name *left, const struct name *right)
{
    const unsigned char *left_at = scan->start + left->offset, *right_at = scan->start + right->offset;
    struct json_text_reader left_reader = {.at = left_at, .end = left_at + left->length};
    struct json_text_reader right_reader = {.at = right_at, .end = right_at + right->length};

    if (left->decoded_length != right->decoded_length)
        return left->decoded_length < right->decoded_length ? -1 : 1;
    if (left->length == left->decoded_length && right->length == right->decoded_length)
        return memcmp(left_at, right_at, left->length);
    for (uint32_t i = 0; i < left->decoded_length; i++) {
        int difference = json_text_next(&left_reader) - json_text_next(&right_reader);
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
                    /* guard: a member may stand in an object once */
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

/* Makes space for one more name. */
static bool grow_names(struct scan *scan)
{
    struct name *names;
    size_t capacity = scan->name_capacity * 4;

    if (scan->name_count < scan->name_capacity)
        return true;
    names = realloc(scan->names == scan->names_inline ? NULL : scan->names, capacity * sizeof(*names));
    if (!names)
        return err_set(scan->err, ERR_MEMORY, "no memory to check a JSON text");
    if (scan->names == scan->names_inline)
        memcpy(names, scan->names_inline, sizeof(scan->names_inline));
    scan->names = names;
    scan->name_capacity = capacity;
    return true;
}

/* ---- structure ---- */

static void skip_space(struct scan *scan)
{
    while (scan->at < scan->end && json_text_is_space(*scan->at))
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
    uint64_t bit = UINT64_C(1) << scan->depth % 64;

    if (scan->depth == (scan->is_strict ? JSON_DEPTH_MAX : JSON_GRAMMAR_DEPTH_MAX))
        return fail_at(scan, scan->at, "nested too deep");
    if (is_object)
        scan->objects[scan->depth / 64] |= bit;
    else
        scan->objects[scan->depth / 64] &= ~bit;
    if (scan->is_strict)
        scan->first_names[scan->depth] = scan->name_count;
    scan->depth++;
    scan->at++;
    return true;
}

static bool close_level(struct scan *scan)
{
    scan->depth--;
    if (scan->is_strict) {
        size_t first = scan->first_names[scan->depth];
        if (!check_names(scan, scan->names + first, scan->name_count - first))
            return false;
        scan->name_count = first;
    }
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
        if (*scan->at == '-' || json_text_is_digit(*scan->at))
            return scan_number(scan);
        return fail_at(scan, scan->at, "no JSON value");
    }
}

static bool keep_name(struct scan *scan, const struct name *name)
{
    if (scan->name_count - scan->first_names[scan->depth - 1] == OBJECT_MEMBERS_MAX)
        return fail_at(scan, scan->start + name->offset - 1, "an object with more than 1024 members");
    if (!grow_names(scan))
        return false;
    scan->names[scan->name_count++] = *name;
    return true;
}

static bool scan_name(struct scan *scan)
{
    struct name name;

    if (scan->at == scan->end || *scan->at != '"')
        return fail_at(scan, scan->at, "a member name is missing");
    if (!scan_string(scan, &name) || (scan->is_strict && !keep_name(scan, &name)))
        return false;
    skip_space(scan);
    if (scan->at == scan->end || *scan->at != ':')
        return fail_at(scan, scan->at, "a colon is missing");
    scan->at++;
    return true;
}

static bool scan_separator(struct scan *scan, enum expect *ret_expect)
{
    bool is_object = scan->objects[(scan->depth - 1) / 64] >> (scan->depth - 1) % 64 & 1;

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

static bool check(const char *text, size_t length, bool is_strict, struct err *err)
{
    struct scan scan; /* not zeroed as a whole: it has some KiB */
    bool good;

    if (length == 0)
        return err_set(err, ERR_MALFORMED, "byte 0: an empty text is not JSON");
    if (length > TEXT_MAX)
        return err_set(err, ERR_MALFORMED, "a JSON text of over 1 GiB");
    scan.start = scan.at = (const unsigned char *)text;
    scan.end = scan.start + length;
    scan.err = err;
    scan.is_strict = is_strict;
    scan.names = scan.names_inline;
    scan.name_count = 0;
    scan.name_capacity = NAMES_INLINE;
    scan.depth = 0;
    good = scan_text(&scan);
    if (scan.names != scan.names_inline)
        free(scan.names);
    return good;
}

bool json_strict_check(const char *text, size_t length, struct err *err)
{
    return check(text, length, true, err);
}

bool json_grammar_check(const char *text, size_t length, struct err *err)
{
    return check(text, length, false, err);
}
