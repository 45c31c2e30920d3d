/* See http_tls.h.
 *
 * The meter of a connection hangs on its BIO: OpenSSL calls it before and after each read, and once when the BIO is
 * freed. libcurl makes the BIO after the SSL_CTX was given to us, so the meter is put there when the handshake begins.
 *
 * Invariants: a meter lives as long as its BIO; a connection without a meter (no memory for one) is not used.
 * Left out: what is sent; clear text (http_plain.c reads a bounded piece in each turn). */
#include "common/http_client/http_tls.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct meter {
    struct http_tls_turn *turn;
    uint64_t seen_turn;
    size_t in_turn;
    size_t left;          /* of what the calls may take */
    curl_socket_t socket; /* CURL_SOCKET_BAD before the first call */
};

/* ---- names ---- */

static bool has_names(X509 *certificate)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    bool found = false;
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
        int type = sk_GENERAL_NAME_value(names, i)->type;
        found |= type == GEN_DNS || type == GEN_IPADD;
    }
    GENERAL_NAMES_free(names);
    return found;
}

/* For each certificate of the chain, the peer's own last. */
static int on_verify(int is_fine, X509_STORE_CTX *store)
{
    if (!is_fine || X509_STORE_CTX_get_error_depth(store) > 0)
        return is_fine;
    X509 *certificate = X509_STORE_CTX_get_current_cert(store);
    /* guard: a common name is no name of a peer */
    if (certificate && has_names(certificate))
        return 1;
    X509_STORE_CTX_set_error(store, X509_V_ERR_HOSTNAME_MISMATCH);
    return 0;
}

/* ---- the budget ---- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* A read error alone would not be enough: while libcurl has something to write, it treats it as a pause. So the socket
 * itself is made to fail: it is disconnected, and what has arrived unread is discarded. */
static bool break_connection(struct meter *meter)
{
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    meter->turn->flooded = meter->turn->number;
    return meter->socket != CURL_SOCKET_BAD && connect(meter->socket, &nowhere, sizeof(nowhere)) == 0;
}

/* Whether the socket may be read now. */
static bool may_read(BIO *bio, struct meter *meter)
{
    if (meter->seen_turn != meter->turn->number) {
        meter->seen_turn = meter->turn->number;
        meter->in_turn = 0;
    }
    /* guard: a connection gets a share of each turn */
    if (meter->left > 0 && meter->in_turn < HTTP_TLS_TURN_BYTES)
        return true;
    if (meter->left == 0 && break_connection(meter))
        return true;
    BIO_clear_retry_flags(bio);
    if (meter->left > 0)
        BIO_set_retry_read(bio);
    return false;
}

static long on_bio(BIO *bio, int operation, const char *bytes, size_t length, int number, long value, int result,
                   size_t *processed)
{
    (void)bytes, (void)length, (void)number, (void)value;
    struct meter *meter = (struct meter *)(void *)BIO_get_callback_arg(bio);
    switch (operation) {
    case BIO_CB_READ:
        return may_read(bio, meter) ? 1 : -1;
    case BIO_CB_READ | BIO_CB_RETURN:
        if (result > 0 && processed) {
            meter->in_turn += *processed;
            /* guard: a call takes so many bytes and no more */
            meter->left -= least(meter->left, *processed);
        }
        return result;
    case BIO_CB_FREE:
        free(meter);
        BIO_set_callback_ex(bio, NULL);
        return 1;
    }
    return result;
}

static struct meter *meter_of(const SSL *ssl)
{
    BIO *bio = ssl ? SSL_get_rbio(ssl) : NULL;
    return bio && BIO_get_callback_ex(bio) == on_bio ? (struct meter *)(void *)BIO_get_callback_arg(bio) : NULL;
}

static void on_info(const SSL *ssl, int where, int result)
{
    (void)result;
    BIO *bio = where & SSL_CB_HANDSHAKE_START ? SSL_get_rbio(ssl) : NULL;
    if (!bio || meter_of(ssl))
        return;
    SSL_CTX *context = SSL_get_SSL_CTX(ssl);
    const struct http_tls_options *options = SSL_CTX_get_app_data(context);
    struct meter *meter = options ? malloc(sizeof(*meter)) : NULL;
    SSL_CTX_set_app_data(context, NULL); /* the transfer may be gone at a later handshake message */
    if (!meter)
        return; /* http_tls_begin_call() misses it */
    *meter = (struct meter){.turn = options->turn, .left = options->call_max, .socket = CURL_SOCKET_BAD};
    BIO_set_callback_ex(bio, on_bio);
    BIO_set_callback_arg(bio, (char *)meter);
}

/* ---- for the HTTP client ---- */

CURLcode http_tls_prepare(CURL *easy, void *ssl_ctx, void *options)
{
    (void)easy;
    SSL_CTX *context = ssl_ctx;
    const struct http_tls_options *wanted = options;
    if (!SSL_CTX_set_app_data(context, options))
        return CURLE_OUT_OF_MEMORY;
    if (wanted->authorities)
        SSL_CTX_set1_cert_store(context, wanted->authorities->store);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, on_verify);
    /* The latter: OpenSSL decrypts into buffers of its own, which no allocator of libcurl's wipes. */
    /* guard: OpenSSL wipes what it has decrypted */
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CLEANSE_PLAINTEXT);
    SSL_CTX_set_info_callback(context, on_info);
    return CURLE_OK;
}

const char *http_tls_begin_call(CURL *easy, size_t call_max, bool may_be_http2)
{
    const struct curl_tlssessioninfo *session = NULL;
    const unsigned char *protocol = NULL;
    unsigned int length = 0;
    if (curl_easy_getinfo(easy, CURLINFO_TLS_SSL_PTR, &session) != CURLE_OK || !session ||
        session->backend != CURLSSLBACKEND_OPENSSL)
        return "its TLS is not OpenSSL's";
    struct meter *meter = meter_of(session->internals);
    if (!meter)
        return "out of memory";
    (void)curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &meter->socket);
    SSL_get0_alpn_selected(session->internals, &protocol, &length);
    bool is_http2 = length == 2 && memcmp(protocol, "h2", 2) == 0;
    if (is_http2 && !may_be_http2) /* a newer OpenSSL refuses that by itself */
        return "the peer chose a protocol that was not offered";
    meter->left = is_http2 ? least(meter->left + call_max, HTTP_TLS_SHARED_CALLS * call_max) : call_max;
    return NULL;
}
