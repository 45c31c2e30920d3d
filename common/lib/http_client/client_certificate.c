/* See client_certificate.h. */
#include "common/lib/http_client/client_certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>

#include "common/lib/base/secret.h"

/* A daemon has no user who could type a passphrase. */
static int on_passphrase(char *bytes, int size, int writing, void *context)
{
    (void)bytes, (void)size, (void)writing;
    *(bool *)context = true;
    return -1;
}

/* NULL: err says why. */
static EVP_PKEY *read_key(const char *path, struct err *err)
{
    struct secret pem = {0};
    if (!secret_load(&pem, path, err))
        return NULL;
    BIO *bio = BIO_new_mem_buf(pem.bytes, (int)pem.length);
    bool has_passphrase = false;
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, on_passphrase, &has_passphrase) : NULL;
    BIO_free(bio);
    secret_done(&pem);
    ERR_clear_error();
    if (!key)
        err_set(err, ERR_CONFIG, "%s: %s", path,
                has_passphrase ? "the key has a passphrase; a key without one is needed"
                               : "no private key in it (PEM)");
    return key;
}

static X509 *own_certificate(const struct client_certificate *certificate)
{
    return sk_X509_value(certificate->chain->certificates, 0);
}

static bool is_pair(const struct client_certificate *certificate)
{
    /* guard: half of a new pair does not replace the old one */
    /* guard: half of a new pair does not replace the old one under load */
    bool is = X509_check_private_key(own_certificate(certificate), certificate->key) == 1;
    ERR_clear_error();
    return is;
}

bool client_certificate_load(const char *cert_path, const char *key_path, struct client_certificate **ret_certificate,
                             struct err *err)
{
    struct client_certificate *certificate = calloc(1, sizeof(*certificate));
    if (!certificate)
        return err_set(err, ERR_MEMORY, "out of memory for a certificate");
    certificate->uses = 1;
    bool is_read =
        authorities_load(cert_path, &certificate->chain, err) && (certificate->key = read_key(key_path, err)) != NULL;
    if (is_read && is_pair(certificate)) {
        *ret_certificate = certificate;
        return true;
    }
    if (is_read)
        err_set(err, ERR_CONFIG, "%s: the first certificate in it does not belong to the key in %s", cert_path,
                key_path);
    client_certificate_release(certificate);
    return false;
}

const char *client_certificate_doubt(const struct client_certificate *certificate)
{
    const X509 *x509 = own_certificate(certificate);
    if (X509_cmp_current_time(X509_get0_notAfter(x509)) < 0)
        return "the certificate has expired";
    return X509_cmp_current_time(X509_get0_notBefore(x509)) > 0 ? "the certificate is not valid yet" : NULL;
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
    EVP_PKEY_free(certificate->key); /* wipes it */
    free(certificate);
}
