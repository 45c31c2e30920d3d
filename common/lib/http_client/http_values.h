/* Values of HTTP headers, read without a connection, and percent-encoding. */
#ifndef ISSUING_HTTP_VALUES_H
#define ISSUING_HTTP_VALUES_H

#include <string.h>
#include <strings.h>

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"

#define HTTP_RETRY_AFTER_MAX_MS (5 * 60 * 1000)

/* Retry-After: seconds or an HTTP-date in any of its three forms (RFC 9110, 10.2.3 and 5.6.7). -1 = unreadable or
 * past. */
int64_t http_retry_after_ms(struct slice value, int64_t now_ms);
/* Content-Type: application/json or application/<any>+json, parameters ignored. */
bool http_is_json(struct slice value);
/* ASCII, case ignored. */
static inline bool http_same_word(struct slice left, const char *right)
{
    return left.length == strlen(right) && strncasecmp(left.bytes, right, left.length) == 0;
}
/* Appends text percent-encoded outside RFC 3986 unreserved. */
bool http_put_encoded(struct buf *out, const char *text, size_t length);
/* The same for a segment of a path. An empty segment, "." and ".." change the path, however they are encoded (RFC 3986,
 * 5.2.4; the URL standard takes %2E for a dot): they fail the buffer, so the call cannot be made. */
bool http_put_segment(struct buf *out, const char *text, size_t length);

#endif
