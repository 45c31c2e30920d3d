/* The short form of what a certificate authority does, for peers in tests.
 * Left out: everything that a client does not look at when it checks a server (key usage, policies). */
#include "tests/unit/certificate.h"

#include <check.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOUR_S 3600

static void put_extension(X509 *x509, int id, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, id, value);
    ck_assert_ptr_nonnull(extension);
    ck_assert_int_eq(X509_add_ext(x509, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static void put_name(X509 *x509, const char *text)
{
    X509_NAME *name = X509_get_subject_name(x509);
    ck_assert_int_eq(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)text, -1, -1, 0), 1);
}

/* authority NULL = signs itself. */
static void make(struct certificate *ret, const struct certificate *authority, const char *name, long ends_s,
                 const char *constraints, const char *names)
{
    static long serial;
    ret->key = EVP_EC_gen("P-256");
    ret->x509 = X509_new();
    ck_assert(ret->key && ret->x509);
    const struct certificate *signer = authority ? authority : ret;
    X509_set_version(ret->x509, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(ret->x509), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(ret->x509), ends_s < 0 ? ends_s - HOUR_S : -HOUR_S);
    X509_gmtime_adj(X509_getm_notAfter(ret->x509), ends_s);
    put_name(ret->x509, name);
    ck_assert_int_eq(X509_set_issuer_name(ret->x509, X509_get_subject_name(signer->x509)), 1);
    ck_assert_int_eq(X509_set_pubkey(ret->x509, ret->key), 1);
    put_extension(ret->x509, NID_basic_constraints, constraints);
    if (names)
        put_extension(ret->x509, NID_subject_alt_name, names);
    ck_assert_int_gt(X509_sign(ret->x509, signer->key, EVP_sha256()), 0);
}

void certificate_make_authority(struct certificate *ret_authority, const char *name)
{
    make(ret_authority, NULL, name, 24 * HOUR_S, "critical,CA:TRUE", NULL);
}

void certificate_make_below(struct certificate *ret_authority, const struct certificate *authority, const char *name)
{
    make(ret_authority, authority, name, 24 * HOUR_S, "critical,CA:TRUE", NULL);
}

void certificate_make(struct certificate *ret_certificate, const struct certificate *authority, const char *names,
                      long ends_s)
{
    make(ret_certificate, authority, "peer", ends_s, "critical,CA:FALSE", names);
}

void certificate_make_with(struct certificate *ret_certificate, const struct certificate *authority,
                           const char *common_name, const char *names, long ends_s)
{
    make(ret_certificate, authority, common_name, ends_s, "critical,CA:FALSE", names);
}

void certificate_done(struct certificate *certificate)
{
    EVP_PKEY_free(certificate->key);
    X509_free(certificate->x509);
    *certificate = (struct certificate){0};
}

int certificate_key_file(const struct certificate *certificate, const char *passphrase, char *ret_path, size_t size)
{
    int fd = memfd_create("key", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fchmod(fd, 0600), 0);
    FILE *file = fdopen(dup(fd), "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(PEM_write_PrivateKey(file, certificate->key, passphrase ? EVP_aes_256_cbc() : NULL, NULL, 0, NULL,
                                          (void *)(uintptr_t)passphrase),
                     1);
    ck_assert_int_eq(fclose(file), 0);
    snprintf(ret_path, size, "/proc/self/fd/%d", fd);
    return fd;
}

int certificate_file(const struct certificate *certificate, char *ret_path, size_t size)
{
    int fd = memfd_create("certificate", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    FILE *file = fdopen(dup(fd), "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(PEM_write_X509(file, certificate->x509), 1);
    ck_assert_int_eq(fclose(file), 0);
    snprintf(ret_path, size, "/proc/self/fd/%d", fd);
    return fd;
}

/* Appends a block that PEM_write_*() writes. */
static void append(int fd, int (*write)(FILE *file, const void *block), const void *block)
{
    FILE *file = fdopen(dup(fd), "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    ck_assert_int_eq(write(file, block), 1);
    ck_assert_int_eq(fclose(file), 0);
}

static int write_certificate(FILE *file, const void *block)
{
    return PEM_write_X509(file, block);
}

static int write_crl(FILE *file, const void *block)
{
    return PEM_write_X509_CRL(file, block);
}

void certificate_add(int fd, const struct certificate *certificate)
{
    append(fd, write_certificate, certificate->x509);
}

void certificate_add_crl(int fd, const struct certificate *authority, const struct certificate *revoked, long ends_s)
{
    X509_CRL *crl = X509_CRL_new();
    ASN1_TIME *since = X509_gmtime_adj(NULL, ends_s < 0 ? ends_s - HOUR_S : -HOUR_S);
    ASN1_TIME *end = X509_gmtime_adj(NULL, ends_s);
    ck_assert(crl && since && end);
    X509_CRL_set_version(crl, X509_CRL_VERSION_2);
    ck_assert_int_eq(X509_CRL_set_issuer_name(crl, X509_get_subject_name(authority->x509)), 1);
    ck_assert_int_eq(X509_CRL_set1_lastUpdate(crl, since), 1);
    ck_assert_int_eq(X509_CRL_set1_nextUpdate(crl, end), 1);
    if (revoked) {
        X509_REVOKED *entry = X509_REVOKED_new();
        ck_assert_int_eq(X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(revoked->x509)), 1);
        ck_assert_int_eq(X509_REVOKED_set_revocationDate(entry, since), 1);
        ck_assert_int_eq(X509_CRL_add0_revoked(crl, entry), 1);
    }
    ck_assert_int_gt(X509_CRL_sign(crl, authority->key, EVP_sha256()), 0);
    append(fd, write_crl, crl);
    ASN1_TIME_free(since);
    ASN1_TIME_free(end);
    X509_CRL_free(crl);
}
