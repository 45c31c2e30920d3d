/* TLS of one origin: whom its connections trust, who we are, and the session with which the next handshake is a short
 * one. OpenSSL verifies; what it does not do by itself is here. Private to the HTTP client.
 *
 * TLS 1.2 or newer. The peer proves a name that its certificate has as a subjectAltName: the common name does not count
 * (RFC 9110, 4.3.4), and a wildcard is a whole label. */
#ifndef ISSUING_HTTP_TLS_H
#define ISSUING_HTTP_TLS_H

#include "common/lib/base/base.h"

struct authorities;
struct bio_st;
struct client_certificate;
struct http_tls;
struct ssl_st;

#define HTTP_TLS_WHY_SIZE 160

/* host: a name as punycode, or an address, that of version 6 in brackets. The others are borrowed until it is closed;
 * certificate NULL = none. Returns why it did not open, or NULL. */
const char *http_tls_open(const char *host, struct authorities *authorities, struct client_certificate *certificate,
                          struct http_tls **ret_tls);
/* Precondition: none of its connections is left. Accepts NULL. */
void http_tls_close(struct http_tls *tls);
/* The TLS of a new connection, over this BIO, which it takes over, also when it fails. NULL: out of memory. */
struct ssl_st *http_tls_new(struct http_tls *tls, struct bio_st *bio);
/* After each handshake: http_tls_ends_s() is that of the chain that was shown. */
void http_tls_note(struct http_tls *tls, const struct ssl_st *ssl);
/* When the first certificate of the peer's chain ends, since 1970; 0 = not known. */
int64_t http_tls_ends_s(const struct http_tls *tls);
/* Why a handshake failed. */
void http_tls_failed(struct http_tls *tls, struct ssl_st *ssl, char ret_why[HTTP_TLS_WHY_SIZE]);

#endif
