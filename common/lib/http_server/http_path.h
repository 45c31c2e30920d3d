/* Request targets: whether a path matches a route, and what stands in a query.
 *
 *     struct slice id;
 *     if (http_path_matches(request->path, "/v1/cards/{id}/number", &id)) ...
 *
 *     struct slice query = request->query;
 *     struct http_query_pair pair;
 *     while (http_query_next(&query, &pair)) ...
 *
 * Results are slices of the target, still percent-encoded, valid as long as the target; http_percent_decode() copies
 * one decoded. Paths are not normalised: a path with "." or ".." segments or with an encoded route matches nothing. */
#ifndef ISSUING_HTTP_PATH_H
#define ISSUING_HTTP_PATH_H

#include "common/lib/base/base.h"

/* Whether `path` is `pattern`. Each {name} in the pattern is a whole segment of the path, with at least one byte; its
 * bytes go to ret_segments, which has an element for each {name} (NULL when there is none) and is undefined when the
 * path does not match. */
must_check bool http_path_matches(struct slice path, const char *pattern, struct slice *ret_segments);

/* One "name=value" of a query; without "=" the value is empty. */
struct http_query_pair {
    struct slice name, value;
    bool has_value; /* there is a "=" */
};

/* Takes the next pair off the beginning of *query; false when none is left. A pair may be empty ("a=1&&b=2"). */
must_check bool http_query_next(struct slice *query, struct http_query_pair *ret_pair);
/* The value of the first pair of that name that has a value, decoded. false: there is none, or http_percent_decode()
 * fails. */
must_check bool http_query_text(struct slice query, const char *name, char *ret_text, size_t size);
/* Likewise for a decimal number; `otherwise` where there is none. */
size_t http_query_number(struct slice query, const char *name, size_t otherwise);

/* Decodes "%2F" (RFC 3986; "+" is a plus) into a NUL-terminated text. false: a malformed escape, an encoded NUL, or
 * more than size - 1 bytes; then ret_text is undefined. */
must_check bool http_percent_decode(struct slice text, char *ret_text, size_t size);

#endif
