/* What calls must have in common to share a connection: scheme, host and port, the proxy on the way, whom TLS trusts
 * and who we are. A URL is split into its origin, which is parsed once for many calls, and the rest, the request's
 * target.
 * Private to the HTTP client. */
#ifndef ISSUING_HTTP_URL_ORIGIN_H
#define ISSUING_HTTP_URL_ORIGIN_H

#include <curl/curl.h>

#include "common/lib/base/base.h"

struct authorities;
struct client_certificate;
struct http_tls;

/* Borrowed. */
struct http_url_way {
    const char *url;
    size_t length;                          /* of scheme, host and port */
    const char *proxy;                      /* NULL = none */
    struct authorities *authorities;        /* NULL = in clear text */
    struct client_certificate *certificate; /* NULL = none */
};

struct http_url_origin {
    char *text; /* owned, as the URLs begin; NULL = closed */
    size_t text_length;
    char *host;                             /* owned, as the Host header names it */
    CURLU *address;                         /* owned: whom to connect to, the proxy or the host */
    char *proxy;                            /* owned; NULL = none */
    char *authority;                        /* owned: what the proxy connects to, host:port; NULL = no proxy */
    struct authorities *authorities;        /* held */
    struct client_certificate *certificate; /* held */
    struct http_tls *tls;                   /* owned; NULL = in clear text */
    int calls;                              /* that use it */
};

/* The length of the scheme, host and port of a URL; 0 = it is not http or https, or has no host or no path. */
size_t http_url_origin_length(const char *url, bool *ret_is_https);
bool http_url_origin_is(const struct http_url_origin *origin, const struct http_url_way *way);
/* Returns why it did not open, or NULL. Precondition: it is closed. */
const char *http_url_origin_open(struct http_url_origin *origin, const struct http_url_way *way);
/* Precondition: no call uses it, and no connection to it is left. */
void http_url_origin_close(struct http_url_origin *origin);

#endif
