/* See authorities.h. */
#include "common/http_client/authorities.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/secret.h"

static void free_authorities(struct authorities *authorities)
{
    if (!authorities)
        return;
    X509_STORE_free(authorities->store);
    sk_X509_pop_free(authorities->certificates, X509_free);
    free(authorities);
}

static bool add_blocks(struct authorities *authorities, const STACK_OF(X509_INFO) * blocks)
{
    for (int i = 0; i < sk_X509_INFO_num(blocks); i++) {
        const X509_INFO *block = sk_X509_INFO_value(blocks, i);
        if (block->x509 && (X509_STORE_add_cert(authorities->store, block->x509) != 1 ||
                            X509_add_cert(authorities->certificates, block->x509, X509_ADD_FLAG_UP_REF) != 1))
            return false;
        if (block->crl && X509_STORE_add_crl(authorities->store, block->crl) != 1)
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
    if (path && !load_file(path, authorities, err)) {
        free_authorities(authorities);
        return false;
    }
    *ret_authorities = authorities;
    return true;
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
