/* Certificates for tests of TLS, made at run time: EC P-256, an authority of one's own, and files in memory. Whatever
 * goes wrong in here ends the test. */
#ifndef ISSUING_TEST_CERTIFICATE_H
#define ISSUING_TEST_CERTIFICATE_H

#include <openssl/evp.h>
#include <openssl/x509.h>

struct certificate {
    EVP_PKEY *key;
    X509 *x509;
};

void certificate_make_authority(struct certificate *ret_authority, const char *name);
/* The same, signed by another. */
void certificate_make_below(struct certificate *ret_authority, const struct certificate *authority, const char *name);
/* names: as in "IP:127.0.0.1,DNS:localhost". Good from an hour before now until ends_s after now. */
void certificate_make(struct certificate *ret_certificate, const struct certificate *authority, const char *names,
                      long ends_s);
/* For this common name; names NULL = no others. */
void certificate_make_with(struct certificate *ret_certificate, const struct certificate *authority,
                           const char *common_name, const char *names, long ends_s);
void certificate_done(struct certificate *certificate);
/* A PEM file that is in no folder; its path is for this process only. Returns its descriptor. */
int certificate_key_file(const struct certificate *certificate, const char *passphrase, char *ret_path, size_t size);
int certificate_file(const struct certificate *certificate, char *ret_path, size_t size);
/* Into such a file as well: a certificate; a CRL whose next update is ends_s after now. revoked NULL = of nobody. */
void certificate_add(int fd, const struct certificate *certificate);
void certificate_add_crl(int fd, const struct certificate *authority, const struct certificate *revoked, long ends_s);

#endif
