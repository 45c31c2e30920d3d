/* Scheme, host and port: what calls must have in common to share a connection. A URL is split into its origin, which is
 * parsed once for many calls, and the rest, the request's target. Private to the HTTP client. */
#ifndef ISSUING_HTTP_URL_ORIGIN_H
#define ISSUING_HTTP_URL_ORIGIN_H

#include <curl/curl.h>

#include "common/base/base.h"

struct http_url_origin {
    char *text; /* owned, as the URLs begin; NULL = closed */
    size_t text_length;
    char *host;     /* owned, as the Host header names it */
    CURLU *address; /* owned */
    bool is_https;
    int calls; /* that use it */
};

/* The length of the scheme, host and port of a URL; 0 = it is not http or https, or has no host or no path. */
size_t http_url_origin_length(const char *url, bool *ret_is_https);
/* Returns why it did not open, or NULL. Precondition: it is closed. */
const char *http_url_origin_open(struct http_url_origin *origin, const char *url, size_t length, bool is_https);
/* Precondition: no call uses it. */
void http_url_origin_close(struct http_url_origin *origin);

#endif
