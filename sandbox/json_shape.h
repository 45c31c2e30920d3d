/* Whether a JSON object has the members that a vendor documents: names, kinds, lengths, choices. A table of rows
 * describes one object; a row of a nested object points to the table of its members. Pure.
 *
 *     static const struct json_shape card[] = {
 *         {"brand", JSON_STRING, .is_required = true, .choices = "visa|mc"},
 *         {"cardholderName", JSON_STRING, .is_required = true, .longest = 26},
 *         {0},
 *     };
 *
 * Left out: arrays' elements, numbers' ranges, patterns. */
#ifndef ISSUING_SANDBOX_JSON_SHAPE_H
#define ISSUING_SANDBOX_JSON_SHAPE_H

#include "common/lib/base/base.h"
#include "common/lib/json/json_value.h"

struct json_shape {
    const char *name; /* NULL ends the table; "*" is every name that no row before it has */
    enum json_kind kind;
    bool is_required;
    size_t shortest, longest;         /* characters of a string; longest 0 = any length */
    const char *choices;              /* of a string, separated by '|'; NULL = any text */
    const struct json_shape *members; /* of an object; NULL = any members */
};

#define JSON_SHAPE_PATH_SIZE 128

/* One thing that is wrong. */
struct json_shape_flaw {
    char path[JSON_SHAPE_PATH_SIZE]; /* "card.authentication.phone"; cut when longer */
    const char *why;                 /* static */
    struct json_value value;         /* JSON_MISSING when a member is missing */
};

/* Fills in the first `max` flaws, unknown members included, in the order of the text and then of the table; returns how
 * many it filled in: 0 = the object has this shape. `object` may be any value; one that is not an object is a flaw. */
size_t json_shape_check(struct json_value object, const struct json_shape *shape, struct json_shape_flaw *ret_flaws,
                        size_t max);

#endif
