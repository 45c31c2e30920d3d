/* See http_tls.h.
 *
 * OpenSSL leaves out of a context what it had no memory for, such as an algorithm of signatures, and says nothing. So
 * one with which no handshake has succeeded yet is made again when a handshake fails.
 *
 * Invariants: a session is offered only to the origin that gave it, under the authorities and the certificate that it
 * was made with, and not beyond the end of the peer's certificate or of a CRL, which a short handshake does not look
 * at.
 * Left out: early data, ALPN other than http/1.1, OCSP. */
#include "common/lib/http_client/http_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_client/authorities.h"
#include "common/lib/http_client/client_certificate.h"

#define HOST_SIZE 256

struct http_tls {
    struct authorities *authorities;        /* borrowed, as the certificate */
    struct client_certificate *certificate; /* NULL = none */
    SSL_CTX *context;
    bool is_proven;       /* a handshake has succeeded with the context */
    SSL_SESSION *session; /* the last that the peer gave; NULL = none */
    int64_t ends_s;       /* when a certificate of the peer's chain ends, in Unix time; 0 = unknown */
    int64_t crls_end_s;   /* when a CRL of our authorities does */
    char host[HOST_SIZE]; /* without brackets, and without the dot behind it */
};

/* ---- an origin ---- */

/* Called for each session ticket of TLS 1.3, and after a handshake of TLS 1.2. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
    struct http_tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    SSL_SESSION_free(tls->session);
    tls->session = session;
    return 1; /* it is ours now */
}

static bool use_certificate(SSL_CTX *context, const struct client_certificate *certificate)
{
    const struct stack_st_X509 *chain = certificate->chain->certificates;
    bool done = SSL_CTX_use_certificate(context, sk_X509_value(chain, 0)) == 1 &&
                SSL_CTX_use_PrivateKey(context, certificate->key) == 1;
    for (int i = 1; done && i < sk_X509_num(chain); i++)
        done = SSL_CTX_add1_chain_cert(context, sk_X509_value(chain, i)) == 1;
    return done;
}

static bool set_context(SSL_CTX *context, struct http_tls *tls)
{
    static const unsigned char protocols[] = "\x08http/1.1";
    SSL_CTX_set1_cert_store(context, tls->authorities->store);
    /* guard: a peer proves by whom it is known */
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    /* OpenSSL decrypts into buffers of its own, which nothing else wipes. */
    /* guard: OpenSSL wipes what it has decrypted */
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CLEANSE_PLAINTEXT);
    SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_read_ahead(context, 1); /* one recv() an answer instead of two */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, on_session);
    return SSL_CTX_set_app_data(context, tls) == 1 && SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_alpn_protos(context, protocols, sizeof(protocols) - 1) == 0 &&
           (!tls->certificate || use_certificate(context, tls->certificate));
}

/* Connections that are there keep the context that they began with. false: the old one stays. */
static bool make_context(struct http_tls *tls)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    bool done = context && set_context(context, tls);
    SSL_CTX_free(done ? tls->context : context);
    if (done)
        tls->context = context;
    ERR_clear_error();
    return done;
}

const char *http_tls_open(const char *host, struct authorities *authorities, struct client_certificate *certificate,
                          struct http_tls **ret_tls)
{
    size_t brackets = host[0] == '[', length = strcspn(host + brackets, "]");
    length -= length > 0 && host[brackets + length - 1] == '.';
    if (length == 0 || length >= HOST_SIZE)
        return "not an address of HTTP";
    struct http_tls *tls = calloc(1, sizeof(*tls));
    if (!tls)
        return "out of memory";
    memcpy(tls->host, host + brackets, length);
    tls->authorities = authorities;
    tls->certificate = certificate;
    tls->crls_end_s = authorities->crls_end_s;
    if (!make_context(tls)) {
        http_tls_close(tls);
        return certificate ? "TLS does not start with this certificate" : "TLS does not start";
    }
    *ret_tls = tls;
    return NULL;
}

void http_tls_close(struct http_tls *tls)
{
    if (!tls)
        return;
    SSL_SESSION_free(tls->session);
    SSL_CTX_free(tls->context);
    free(tls);
}

/* ---- a connection ---- */

static bool set_names(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    X509_VERIFY_PARAM_set_hostflags(param,
                                    /* guard: a common name is not a name of a peer */
                                    X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    if (X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1)
        return true;
    /* guard: a peer proves its name */
    return X509_VERIFY_PARAM_set1_host(param, host, 0) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

SSL *http_tls_new(struct http_tls *tls, BIO *bio)
{
    SSL *ssl = SSL_new(tls->context);
    if (!ssl || !set_names(ssl, tls->host)) {
        SSL_free(ssl);
        BIO_free(bio);
        ERR_clear_error();
        return NULL;
    }
    SSL_set_bio(ssl, bio, bio);
    SSL_set_connect_state(ssl);
    int64_t now_s = clock_wall_us() / 1000000;
    /* guard: a session does not outlive the peer's certificate */
    /* guard: a session does not outlive the CRLs */
    if (tls->session && now_s < tls->ends_s && now_s < tls->crls_end_s)
        (void)SSL_set_session(ssl, tls->session);
    return ssl;
}

static int64_t end_of(const X509 *certificate)
{
    struct tm tm;
    return ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

static int64_t end_of_chain(const SSL *ssl)
{
    const STACK_OF(X509) *chain = SSL_get0_verified_chain(ssl);
    int64_t first_s = 0;
    for (int i = 0; i < sk_X509_num(chain); i++) {
        int64_t ends_s = end_of(sk_X509_value(chain, i));
        if (i == 0 || ends_s < first_s)
            first_s = ends_s;
    }
    return first_s;
}

void http_tls_note(struct http_tls *tls, const SSL *ssl)
{
    tls->is_proven = true;
    if (!SSL_session_reused(ssl))
        tls->ends_s = end_of_chain(ssl);
}

int64_t http_tls_ends_s(const struct http_tls *tls)
{
    return tls->ends_s;
}

void http_tls_failed(struct http_tls *tls, SSL *ssl, char ret_why[HTTP_TLS_WHY_SIZE])
{
    long verified = SSL_get_verify_result(ssl);
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    if (verified != X509_V_OK)
        snprintf(ret_why, HTTP_TLS_WHY_SIZE, "TLS: the peer's certificate is refused: %s",
                 X509_verify_cert_error_string(verified));
    else
        snprintf(ret_why, HTTP_TLS_WHY_SIZE, "TLS: %s", reason ? reason : "the peer ended the handshake");
    ERR_clear_error();
    /* What the peer remembers of it may be what failed. */
    SSL_SESSION_free(tls->session);
    tls->session = NULL;
    /* guard: a context that lacks something is made again */
    if (!tls->is_proven)
        (void)make_context(tls); /* else the next failure does */
}
