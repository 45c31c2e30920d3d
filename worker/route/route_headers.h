/* The headers of its own that every request to a route's receiver bears: an API key, Basic, a tenant. A file has one a
 * line, "Name: value", at most ROUTE_HEADERS_MAX; a blank line is none. They are secrets: no message has a byte of a
 * value. */
#ifndef ISSUING_ROUTE_HEADERS_H
#define ISSUING_ROUTE_HEADERS_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/http_client/http_call.h"

#define ROUTE_HEADERS_MAX 16
#define ROUTE_HEADERS_BYTES_MAX 4096 /* of the file */

struct route_headers;

/* ERR_CONFIG with the line: it is no header, or one that we set ourselves; has_credential: Authorization is one. */
must_check bool route_headers_load(const char *path, bool has_credential, struct route_headers **ret_headers,
                                   struct err *err);
/* Wipes and frees; accepts NULL, as the next three do. */
void route_headers_free(struct route_headers *headers);
void route_headers_put(const struct route_headers *headers, struct http_call *call);
/* Overwrites with '*' what a peer's words repeat of the values. */
void route_headers_hide(const struct route_headers *headers, char *text);
/* Whether one of the values is in the text; those of less than six bytes do not count. */
bool route_headers_are_in(const struct route_headers *headers, struct slice text);

#endif
