/* Percent-decoding of paths and queries (RFC 3986; '+' is a plus). */
#ifndef ISSUING_SANDBOX_URI_H
#define ISSUING_SANDBOX_URI_H

#include "common/base.h"

/* false: a bad escape, an encoded NUL, or it does not fit in size - 1 bytes. NUL-terminated. */
must_check bool uri_decode(struct slice text, char *ret_text, size_t size);
/* The first parameter of that name, decoded; false also when there is none. */
must_check bool uri_query(struct slice query, const char *name, char *ret_text, size_t size);
/* A decimal parameter; `otherwise` when it is missing or not one. */
size_t uri_query_number(struct slice query, const char *name, size_t otherwise);
/* If path is `before` + one non-empty segment + `after`, the segment, still encoded. */
must_check bool uri_segment(struct slice path, const char *before, const char *after, struct slice *ret_segment);
bool uri_is(struct slice path, const char *text);

#endif
