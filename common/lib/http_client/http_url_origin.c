/* See http_url_origin.h. */
#include "common/lib/http_client/http_url_origin.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/lib/http_client/authorities.h"
#include "common/lib/http_client/client_certificate.h"
#include "common/lib/http_client/http_tls.h"

size_t http_url_origin_length(const char *url, bool *ret_is_https)
{
    *ret_is_https = strncasecmp(url, "https://", 8) == 0;
    if (!*ret_is_https && strncasecmp(url, "http://", 7) != 0)
        return 0;
    size_t scheme = *ret_is_https ? 8 : 7, host = strcspn(url + scheme, "/?#");
    return host > 0 && url[scheme + host] == '/' ? scheme + host : 0;
}

static bool is_same(const char *left, const char *right)
{
    return left && right ? strcmp(left, right) == 0 : left == right;
}

bool http_url_origin_is(const struct http_url_origin *origin, const struct http_url_way *way)
{
    return origin->text && origin->text_length == way->length && memcmp(origin->text, way->url, way->length) == 0 &&
           is_same(origin->proxy, way->proxy) &&
           /* guard: a connection is not used again with other authorities than its own */
           origin->authorities == way->authorities &&
           /* guard: a connection is not used again with another certificate of ours */
           origin->certificate == way->certificate;
}

/* Host and port as the Host header names them. NULL: out of memory. */
static char *join_host(const char *host, const char *port)
{
    size_t size = strlen(host) + (port ? strlen(port) + 1 : 0) + 1;
    char *both = malloc(size);
    if (both)
        snprintf(both, size, port ? "%s:%s" : "%s", host, port);
    return both;
}

/* libcurl only makes the connection, so it gets the address as http, also where the scheme is https. Returns the reason
 * if it is not a URL, or NULL. */
static const char *set_address(struct http_url_origin *origin, const char *host, const char *port)
{
    CURLU *address = origin->address;
    if (!origin->proxy)
        return curl_url_set(address, CURLUPART_SCHEME, "http", 0) == CURLUE_OK &&
                       curl_url_set(address, CURLUPART_PORT, port, 0) == CURLUE_OK
                   ? NULL
                   : "out of memory";
    origin->authority = join_host(host, port);
    if (!origin->authority)
        return "out of memory";
    return curl_url_set(address, CURLUPART_URL, origin->proxy, 0) == CURLUE_OK ? NULL : "not an address of a proxy";
}

static const char *read_address(struct http_url_origin *origin)
{
    char *user = NULL, *host = NULL, *port = NULL, *any_port = NULL;
    const char *why = "not an address of HTTP";
    (void)curl_url_get(origin->address, CURLUPART_USER, &user, 0);
    (void)curl_url_get(origin->address, CURLUPART_PORT, &port, CURLU_NO_DEFAULT_PORT);
    if (!user && curl_url_get(origin->address, CURLUPART_HOST, &host, CURLU_PUNYCODE) == CURLUE_OK &&
        curl_url_get(origin->address, CURLUPART_PORT, &any_port, CURLU_DEFAULT_PORT) == CURLUE_OK) {
        origin->host = join_host(host, port);
        why = origin->host ? set_address(origin, host, any_port) : "out of memory";
    }
    if (!why && origin->authorities)
        why = http_tls_open(host, origin->authorities, origin->certificate, &origin->tls);
    curl_free(user);
    curl_free(host);
    curl_free(port);
    curl_free(any_port);
    return why;
}

const char *http_url_origin_open(struct http_url_origin *origin, const struct http_url_way *way)
{
    assert(!origin->text);
    *origin = (struct http_url_origin){.text = strndup(way->url, way->length),
                                       .text_length = way->length,
                                       .address = curl_url(),
                                       .proxy = way->proxy ? strdup(way->proxy) : NULL,
                                       .authorities = authorities_hold(way->authorities),
                                       /* guard: a call keeps the certificate that it began with */
                                       .certificate = client_certificate_hold(way->certificate)};
    const char *why = origin->text && origin->address && !origin->proxy == !way->proxy ? NULL : "out of memory";
    if (!why && curl_url_set(origin->address, CURLUPART_URL, origin->text, 0) != CURLUE_OK)
        why = "not an address of HTTP";
    if (!why)
        why = read_address(origin);
    if (why)
        http_url_origin_close(origin);
    return why;
}

void http_url_origin_close(struct http_url_origin *origin)
{
    assert(origin->calls == 0);
    http_tls_close(origin->tls);
    authorities_release(origin->authorities);
    client_certificate_release(origin->certificate);
    curl_url_cleanup(origin->address);
    free(origin->text);
    free(origin->host);
    free(origin->proxy);
    free(origin->authority);
    *origin = (struct http_url_origin){0};
}
