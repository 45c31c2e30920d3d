/* Values of HTTP headers, read without a connection. http_put_encoded() and http_put_segment() (http_call.h)
 * live here too. */
#ifndef ISSUING_HTTP_VALUES_H
#define ISSUING_HTTP_VALUES_H

#include "common/base/base.h"

#define HTTP_RETRY_AFTER_MAX_MS (5 * 60 * 1000)

/* Retry-After: seconds or an HTTP-date in any of its three forms (RFC 9110, 10.2.3 and 5.6.7). -1 = unreadable or
 * past. */
int64_t http_retry_after_ms(struct slice value, int64_t now_ms);
/* Content-Type: application/json or application/<any>+json, parameters ignored. */
bool http_is_json(struct slice value);
/* Splits "Name: value CR LF"; false if it is no header line. */
bool http_split_header(struct slice line, struct slice *ret_name, struct slice *ret_value);
/* ASCII, case ignored. */
bool http_same_word(struct slice left, const char *right);

#endif
