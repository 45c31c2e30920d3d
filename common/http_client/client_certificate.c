/* See client_certificate.h. */
#include "common/http_client/client_certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>

/* A daemon has no user who could type a passphrase. */
static int on_passphrase(char *bytes, int size, int writing, void *context)
{
    (void)bytes, (void)size, (void)writing;
    *(bool *)context = true;
    return -1;
}

static X509 *read_certificate(const struct authorities *chain)
{
    BIO *bio = BIO_new_mem_buf(chain->bytes, (int)chain->length);
    bool unused = false;
    X509 *certificate = bio ? PEM_read_bio_X509(bio, NULL, on_passphrase, &unused) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    return certificate;
}

static EVP_PKEY *read_key(const struct secret *pem, const char *path, struct err *err)
{
    BIO *bio = BIO_new_mem_buf(pem->bytes, (int)pem->length);
    bool has_passphrase = false;
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, on_passphrase, &has_passphrase) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    if (!key)
        err_set(err, ERR_CONFIG, "%s: %s", path,
                has_passphrase ? "the key has a passphrase; a key without one is needed"
                               : "no private key in it (PEM)");
    return key;
}

static bool is_pair(const struct client_certificate *certificate, const char *cert_path, const char *key_path,
                    struct err *err)
{
    X509 *x509 = read_certificate(certificate->chain);
    EVP_PKEY *key = x509 ? read_key(&certificate->key, key_path, err) : NULL;
    /* guard: half of a new pair does not take the place of the old one */
    /* guard: the same, under load */
    bool done = key && X509_check_private_key(x509, key) == 1;
    ERR_clear_error();
    if (!x509)
        err_set(err, ERR_CONFIG, "%s: no certificate in it, or one that cannot be read (PEM)", cert_path);
    else if (key && !done)
        err_set(err, ERR_CONFIG, "%s: the first certificate in it does not belong to the key in %s", cert_path,
                key_path);
    X509_free(x509);
    EVP_PKEY_free(key); /* wipes it */
    return done;
}

bool client_certificate_load(const char *cert_path, const char *key_path, struct client_certificate **ret_certificate,
                             struct err *err)
{
    struct client_certificate *certificate = calloc(1, sizeof(*certificate));
    if (!certificate)
        return err_set(err, ERR_MEMORY, "out of memory for a certificate");
    certificate->uses = 1;
    if (!authorities_load(cert_path, &certificate->chain, err) || !secret_load(&certificate->key, key_path, err) ||
        !is_pair(certificate, cert_path, key_path, err)) {
        client_certificate_release(certificate);
        return false;
    }
    *ret_certificate = certificate;
    return true;
}

const char *client_certificate_doubt(const struct client_certificate *certificate)
{
    X509 *x509 = read_certificate(certificate->chain);
    const char *doubt = NULL;
    if (x509 && X509_cmp_current_time(X509_get0_notAfter(x509)) < 0)
        doubt = "the certificate has expired";
    else if (x509 && X509_cmp_current_time(X509_get0_notBefore(x509)) > 0)
        doubt = "the certificate is not valid yet";
    X509_free(x509);
    return doubt;
}

struct client_certificate *client_certificate_hold(struct client_certificate *certificate)
{
    if (certificate)
        certificate->uses++;
    return certificate;
}

void client_certificate_release(struct client_certificate *certificate)
{
    if (!certificate || --certificate->uses > 0)
        return;
    authorities_release(certificate->chain);
    secret_done(&certificate->key);
    free(certificate);
}
