/* See authorities.h. */
#include "common/lib/http_client/authorities.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/secret.h"

static void free_authorities(struct authorities *authorities)
{
    if (!authorities)
        return;
    X509_STORE_free(authorities->store);
    sk_X509_pop_free(authorities->certificates, X509_free);
    free(authorities);
}

/* Whoever signed the peer's certificate must have a CRL in the file; an authority above it may. What ends a chain is
 * trusted because it is in the file: no CRL of another decides about that. */
static int on_verified(int is_good, X509_STORE_CTX *chain)
{
    int depth = X509_STORE_CTX_get_error_depth(chain), last = sk_X509_num(X509_STORE_CTX_get0_chain(chain)) - 1;
    bool has_no_crl = X509_STORE_CTX_get_error(chain) == X509_V_ERR_UNABLE_TO_GET_CRL;
    bool is_of_end = depth == last && X509_STORE_CTX_get0_current_crl(chain) != NULL;
    /* guard: without a CRL of its authority a certificate is refused */
    if (is_good || depth == 0 || !(has_no_crl || is_of_end))
        return is_good;
    X509_STORE_CTX_set_error(chain, X509_V_OK);
    return 1;
}

static bool add_crl(struct authorities *authorities, X509_CRL *crl)
{
    struct tm tm;
    const ASN1_TIME *next = X509_CRL_get0_nextUpdate(crl);
    int64_t ends_s = next && ASN1_TIME_to_tm(next, &tm) == 1 ? (int64_t)timegm(&tm) : INT64_MAX;
    if (ends_s < authorities->crls_end_s)
        authorities->crls_end_s = ends_s;
    X509_STORE_set_verify_cb(authorities->store, on_verified);
    return X509_STORE_add_crl(authorities->store, crl) == 1 &&
           /* guard: a CRL in the file is asked */
           X509_STORE_set_flags(authorities->store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL) == 1;
}

static bool add_blocks(struct authorities *authorities, const STACK_OF(X509_INFO) * blocks)
{
    for (int i = 0; i < sk_X509_INFO_num(blocks); i++) {
        const X509_INFO *block = sk_X509_INFO_value(blocks, i);
        /* OpenSSL would read its extensions in the first handshake, and refuse it for ever if it had no memory then. */
        if (block->x509)
            (void)X509_check_purpose(block->x509, -1, 0);
        if (block->x509 && (X509_STORE_add_cert(authorities->store, block->x509) != 1 ||
                            X509_add_cert(authorities->certificates, block->x509, X509_ADD_FLAG_UP_REF) != 1))
            return false;
        if (block->crl && !add_crl(authorities, block->crl))
            return false;
    }
    return sk_X509_num(authorities->certificates) > 0;
}

/* Every block of the file, and any certificate in it ends a chain. false: no certificate, or one that cannot be
 * read. */
static bool add_pem(struct authorities *authorities, const char *bytes, size_t length)
{
    BIO *bio = BIO_new_mem_buf(bytes, (int)length);
    STACK_OF(X509_INFO) *blocks = bio ? PEM_X509_INFO_read_bio(bio, NULL, NULL, NULL) : NULL;
    authorities->certificates = sk_X509_new_null();
    bool done = blocks && authorities->certificates && add_blocks(authorities, blocks);
    sk_X509_INFO_pop_free(blocks, X509_INFO_free);
    BIO_free(bio);
    ERR_clear_error();
    return done;
}

static bool read_whole(int fd, char *bytes, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t count = read(fd, bytes + done, length - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        done += (size_t)count;
    }
    return true;
}

static bool load(int fd, const char *path, struct authorities *authorities, struct err *err)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return err_set(err, ERR_CONFIG, "%s: not a regular file", path);
    if (status.st_size > AUTHORITIES_FILE_MAX)
        return err_set(err, ERR_CONFIG, "%s: more than %d bytes", path, AUTHORITIES_FILE_MAX);
    size_t length = (size_t)status.st_size;
    char *bytes = malloc(length + 1);
    if (!bytes)
        return err_set(err, ERR_MEMORY, "out of memory for %s", path);
    bool done = read_whole(fd, bytes, length);
    if (!done)
        err_set(err, ERR_CONFIG, "%s: it could not be read as a whole", path);
    else if (!(done = add_pem(authorities, bytes, length)))
        err_set(err, ERR_CONFIG, "%s: no certificate in it, or one that cannot be read (PEM)", path);
    secret_wipe(bytes, length); /* a private key may stand beside the certificates */
    free(bytes);
    return done;
}

static bool load_file(const char *path, struct authorities *authorities, struct err *err)
{
    /* O_NONBLOCK: a named pipe must not hang the program. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
    bool done = load(fd, path, authorities, err);
    close(fd);
    return done;
}

bool authorities_load(const char *path, struct authorities **ret_authorities, struct err *err)
{
    struct authorities *authorities = calloc(1, sizeof(*authorities));
    if (!authorities || !(authorities->store = X509_STORE_new()) ||
        X509_STORE_set_flags(authorities->store, X509_V_FLAG_PARTIAL_CHAIN) != 1 ||
        (!path && X509_STORE_set_default_paths(authorities->store) != 1)) {
        free_authorities(authorities);
        return err_set(err, ERR_MEMORY, "out of memory for authorities");
    }
    authorities->uses = 1;
    authorities->crls_end_s = INT64_MAX;
    if (path && !load_file(path, authorities, err)) {
        free_authorities(authorities);
        return false;
    }
    *ret_authorities = authorities;
    return true;
}

const char *authorities_doubt(const struct authorities *authorities)
{
    return clock_wall_us() / 1000000 < authorities->crls_end_s ? NULL : "the next update of a CRL in it is past";
}

struct authorities *authorities_hold(struct authorities *authorities)
{
    if (authorities)
        authorities->uses++;
    return authorities;
}

void authorities_release(struct authorities *authorities)
{
    if (authorities && --authorities->uses == 0)
        free_authorities(authorities);
}
