/* See http_url_origin.h. */
#include "common/http_client/http_url_origin.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

size_t http_url_origin_length(const char *url, bool *ret_is_https)
{
    *ret_is_https = strncasecmp(url, "https://", 8) == 0;
    if (!*ret_is_https && strncasecmp(url, "http://", 7) != 0)
        return 0;
    size_t scheme = *ret_is_https ? 8 : 7, host = strcspn(url + scheme, "/?#");
    return host > 0 && url[scheme + host] == '/' ? scheme + host : 0;
}

/* NULL: out of memory, or the address has a user name. */
static char *make_host(CURLU *address)
{
    char *host = NULL, *port = NULL, *user = NULL, *both = NULL;
    size_t size = 0;
    (void)curl_url_get(address, CURLUPART_USER, &user, 0);
    if (!user && curl_url_get(address, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
        (void)curl_url_get(address, CURLUPART_PORT, &port, CURLU_NO_DEFAULT_PORT);
        size = strlen(host) + (port ? strlen(port) + 1 : 0) + 1;
        both = malloc(size);
    }
    if (both)
        snprintf(both, size, port ? "%s:%s" : "%s", host, port);
    curl_free(user);
    curl_free(host);
    curl_free(port);
    return both;
}

const char *http_url_origin_open(struct http_url_origin *origin, const char *url, size_t length, bool is_https)
{
    assert(!origin->text);
    *origin = (struct http_url_origin){
        .text = strndup(url, length), .text_length = length, .address = curl_url(), .is_https = is_https};
    const char *why = origin->text && origin->address ? NULL : "out of memory";
    if (!why && curl_url_set(origin->address, CURLUPART_URL, origin->text, 0) == CURLUE_OK)
        origin->host = make_host(origin->address);
    if (!why && !origin->host)
        why = "not an address of HTTP";
    if (why)
        http_url_origin_close(origin);
    return why;
}

void http_url_origin_close(struct http_url_origin *origin)
{
    assert(origin->calls == 0);
    curl_url_cleanup(origin->address);
    free(origin->text);
    free(origin->host);
    *origin = (struct http_url_origin){0};
}
