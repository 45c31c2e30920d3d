/* The checks that a text is JSON as RFC 8259 defines it. Every text from outside passes one of them before anything
 * else (json.h, json_value.h) looks at it.
 *
 * Many parsers, json-c among them, accept duplicate members, NaN, single quotes, raw control characters and overlong
 * UTF-8 and clamp big integers. So a text that is used as a whole is checked strictly. Of a text that others write for
 * many readers, of which we use some members, the grammar is checked, and json_value.h is strict about those members:
 * a member that nobody reads does not make the text unreadable. */
#ifndef ISSUING_JSON_STRICT_H
#define ISSUING_JSON_STRICT_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

#define JSON_DEPTH_MAX 16           /* of a text that is checked strictly */
#define JSON_GRAMMAR_DEPTH_MAX 8192 /* of one whose grammar is checked */

/* One value, white space around it allowed, nothing after it. Refused (ERR_MALFORMED, with the byte offset; the text
 * itself is never in the message): anything outside the grammar, duplicate members of one object (compared after
 * unescaping), invalid or overlong UTF-8, encoded or lone surrogates, U+0000, a byte order mark, integers outside
 * int64, numbers that overflow a double, depth over JSON_DEPTH_MAX, empty input. */
must_check bool json_strict_check(const char *text, size_t length, struct err *err);
/* The same, but for what the grammar leaves to each reader: duplicate members, lone surrogates and U+0000 as escapes,
 * numbers of any size, any number of members, depth up to JSON_GRAMMAR_DEPTH_MAX. */
must_check bool json_grammar_check(const char *text, size_t length, struct err *err);

#endif
