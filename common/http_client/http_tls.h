/* What TLS of an outgoing call adds to libcurl's own checks: the authorities, names, the protocol that was agreed on,
 * and a budget of bytes. Private to the HTTP client.
 *
 * Authorities. libcurl would copy and parse all of them for each connection, and copy them once more for each call to
 * compare them with a connection's. So each connection gets the store that was parsed once.
 *
 * Names. libcurl takes the common name of a certificate that has no subjectAltName for the peer's host. RFC 9110, 4.3.4
 * does not: such a certificate is refused.
 *
 * Budget. What a peer sends is read by OpenSSL and libcurl in loops of their own: handshake messages, empty records,
 * frames of HTTP/2 and extensions of chunks never reach a callback of ours, and while they come fast enough those loops
 * do not end. So the bytes are counted below both, where they are read off the socket. In one turn of the loop a
 * connection gets HTTP_TLS_TURN_BYTES at most: then reading ends as if nothing more had come yet, and the loop sees to
 * everything else first. For one call it gets `call_max` bytes: then the connection breaks. */
#ifndef ISSUING_HTTP_TLS_H
#define ISSUING_HTTP_TLS_H

#include <curl/curl.h>

#include "common/base/base.h"
#include "common/http_client/authorities.h"

#define HTTP_TLS_TURN_BYTES (64 * 1024)
#define HTTP_TLS_SHARED_CALLS 8 /* calls whose bytes those on one connection of HTTP/2 may use together */

/* Of one loop; outlives its connections. */
struct http_tls_turn {
    uint64_t number;  /* counts turns, from 1 */
    uint64_t flooded; /* the last turn in which a connection was broken because its calls' bytes were used up */
};

/* The value of CURLOPT_SSL_CTX_DATA for http_tls_prepare(); both outlive the transfer's connecting. */
struct http_tls_options {
    struct http_tls_turn *turn;
    struct authorities *authorities; /* whom the connection trusts; NULL = those of libcurl's options */
    size_t call_max;                 /* bytes that a peer may send for one call, its share of the handshake included */
};

/* A CURLOPT_SSL_CTX_FUNCTION: before a connection's handshake. */
CURLcode http_tls_prepare(CURL *easy, void *ssl_ctx, void *options);
/* Just before the request of a call is sent (CURLOPT_PREREQFUNCTION): the call's bytes are counted from here. Returns
 * why the connection cannot be used, or NULL. */
const char *http_tls_begin_call(CURL *easy, size_t call_max, bool may_be_http2);

#endif
