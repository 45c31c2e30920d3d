/* JSON as RFC 8259 means it, and a way to read it without copying it.
 *
 * json-c takes duplicate members, NaN, single quotes, raw control characters and overlong UTF-8 and clamps big
 * integers; every text from outside passes json_strict_check() before anything else looks at it. The walkers
 * below read values in place, so a card number never enters somebody else's heap. */
#ifndef ISSUING_JSON_STRICT_H
#define ISSUING_JSON_STRICT_H

#include "common/base.h"
#include "common/err.h"

#define JSON_DEPTH_MAX 16

/* One value, white space around it allowed, nothing after it. Refused (ERR_MALFORMED, with the byte offset; the text
 * itself is
 * never in the message): anything outside the grammar, duplicate members of one object (compared after unescaping),
 * invalid or
 * overlong UTF-8, encoded or lone surrogates, U+0000, a byte order mark, integers outside int64, numbers that overflow
 * a
 * double, depth over JSON_DEPTH_MAX, empty input. */
must_check bool json_strict_check(const char *text, size_t length, struct err *err);

enum json_kind { JSON_MISSING, JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* The raw bytes of one value inside a checked text; a string's slice includes its quotes. */
struct json_value {
    enum json_kind kind;
    struct slice raw;
};

/* All of these want text that json_strict_check() has passed. */
struct json_value json_value_of(const char *text, size_t length);
/* The member's value, or kind JSON_MISSING (also when `object` is no object). name is plain ASCII. */
struct json_value json_member(struct json_value object, const char *name);
/* Several members in one walk: as json_member() for each name. */
void json_members(struct json_value object, size_t count, const char *const *names, struct json_value *ret_values);
/* Walks an array: *cursor starts at 0; false at the end. */
bool json_next_element(struct json_value array, size_t *cursor, struct json_value *ret_element);
/* Walks an object: ret_name is the raw name with quotes. */
bool json_next_member(struct json_value object, size_t *cursor, struct slice *ret_name, struct json_value *ret_value);
/* Unescapes into out (NUL-terminated). false if it is no string or does not fit in out_size - 1 bytes; ret_length may
 * be NULL. */
must_check bool json_string(struct json_value value, char *out, size_t out_size, size_t *ret_length);
/* false if it is no integer in [min, max] (1.0 and 1e2 are no integers here). */
must_check bool json_integer(struct json_value value, int64_t min, int64_t max, int64_t *ret_integer);
bool json_is_true(struct json_value value);
bool json_is_false(struct json_value value);

/* Writes text as a JSON string with quotes. Invalid UTF-8 becomes U+FFFD. */
struct buf;
bool json_put_string(struct buf *out, const char *text, size_t length);

#endif
