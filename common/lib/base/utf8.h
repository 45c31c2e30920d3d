/* UTF-8 (RFC 3629): no overlong forms, no surrogates, at most U+10FFFF. Pure. */
#ifndef ISSUING_UTF8_H
#define ISSUING_UTF8_H

#include "common/lib/base/base.h"

/* The length of the well-formed sequence at `at`, or 0. at < end; of a text that ends with a NUL, end may be at + 4. */
size_t utf8_length(const unsigned char *at, const unsigned char *end);
/* The code point of a well-formed sequence of this length. */
uint32_t utf8_code(const unsigned char *at, size_t length);
/* Whether all of it is well-formed. */
bool utf8_is(const char *bytes, size_t length);

#endif
