/* Reading JSON in place, and writing strings of it: so a card number never enters the heap of a library. */
#ifndef ISSUING_JSON_VALUE_H
#define ISSUING_JSON_VALUE_H

#include "common/lib/base/base.h"

struct buf;

enum json_kind {
    JSON_MISSING,
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
    JSON_TWICE, /* the object has the member more than once: it is there, and no value of any type */
};

/* The raw bytes of one value inside a checked text; a string's slice includes its quotes. */
struct json_value {
    enum json_kind kind;
    struct slice raw;
};

/* Precondition of all these: json_strict_check() or json_grammar_check() has accepted the text. */
struct json_value json_value_of(const char *text, size_t length);
/* The member's value; JSON_MISSING (also when `object` is not an object) or JSON_TWICE (also when `object` is there
 * twice). name is plain ASCII. */
struct json_value json_member(struct json_value object, const char *name);
/* Several members in one walk: as json_member() for each name. */
void json_members(struct json_value object, size_t count, const char *const *names, struct json_value *ret_values);
/* Walks an array: *cursor starts at 0; false at the end. */
bool json_next_element(struct json_value array, size_t *cursor, struct json_value *ret_element);
/* Walks an object: ret_name is the raw name with quotes. */
bool json_next_member(struct json_value object, size_t *cursor, struct slice *ret_name, struct json_value *ret_value);
/* Unescapes into out (NUL-terminated). false if it is not a string, has a lone surrogate or U+0000, or does not fit in
 * out_size - 1 bytes; ret_length may be NULL. */
must_check bool json_string(struct json_value value, char *out, size_t out_size, size_t *ret_length);
/* false if it is not an integer in [min, max]; 7.0 is 7, and 2.031e3 is 2031. */
must_check bool json_integer(struct json_value value, int64_t min, int64_t max, int64_t *ret_integer);
bool json_is_true(struct json_value value);
bool json_is_false(struct json_value value);

/* Writes text as a JSON string with quotes. Invalid UTF-8 and NULs become U+FFFD. */
bool json_put_string(struct buf *out, const char *text, size_t length);

#endif
