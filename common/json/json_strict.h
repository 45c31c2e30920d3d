/* The check that a text is JSON as RFC 8259 defines it.
 *
 * Many parsers, json-c among them, accept duplicate members, NaN, single quotes, raw control characters and overlong
 * UTF-8 and clamp big integers; every text from outside passes json_strict_check() before anything else (json.h,
 * json_value.h) looks at it. */
#ifndef ISSUING_JSON_STRICT_H
#define ISSUING_JSON_STRICT_H

#include "common/base/base.h"
#include "common/base/err.h"

#define JSON_DEPTH_MAX 16

/* One value, white space around it allowed, nothing after it. Refused (ERR_MALFORMED, with the byte offset; the text
 * itself is never in the message): anything outside the grammar, duplicate members of one object (compared after
 * unescaping), invalid or overlong UTF-8, encoded or lone surrogates, U+0000, a byte order mark, integers outside
 * int64, numbers that overflow a double, depth over JSON_DEPTH_MAX, empty input. */
must_check bool json_strict_check(const char *text, size_t length, struct err *err);

#endif
