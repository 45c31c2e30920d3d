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

static bool add_blocks(X509_STORE *store, const STACK_OF(X509_INFO) * blocks)
{
    int count = 0;
    for (int i = 0; i < sk_X509_INFO_num(blocks); i++) {
        const X509_INFO *block = sk_X509_INFO_value(blocks, i);
        if (block->x509 && X509_STORE_add_cert(store, block->x509) != 1)
            return false;
        if (block->crl && X509_STORE_add_crl(store, block->crl) != 1)
            return false;
        count += block->x509 != NULL;
    }
    return count > 0;
}

/* As libcurl makes its own: every block of the file, and any certificate in it ends a chain. NULL: no certificate, or
 * one that cannot be read. */
static X509_STORE *make_store(const char *bytes, size_t length)
{
    BIO *bio = BIO_new_mem_buf(bytes, (int)length);
    STACK_OF(X509_INFO) *blocks = bio ? PEM_X509_INFO_read_bio(bio, NULL, NULL, NULL) : NULL;
    X509_STORE *store = blocks ? X509_STORE_new() : NULL;
    if (store && (!add_blocks(store, blocks) || X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN) != 1)) {
        X509_STORE_free(store);
        store = NULL;
    }
    sk_X509_INFO_pop_free(blocks, X509_INFO_free);
    BIO_free(bio);
    ERR_clear_error();
    return store;
}

static bool read_whole(int fd, struct authorities *authorities)
{
    size_t done = 0;
    while (done < authorities->length) {
        ssize_t count = read(fd, authorities->bytes + done, authorities->length - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        done += (size_t)count;
    }
    authorities->bytes[done] = '\0';
    return true;
}

static void free_authorities(struct authorities *authorities)
{
    X509_STORE_free(authorities->store);
    secret_wipe(authorities->bytes, authorities->length); /* a private key may stand beside the certificates */
    free(authorities);
}

static bool load(int fd, const char *path, struct authorities **ret_authorities, struct err *err)
{
    static unsigned long loads;
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return err_set(err, ERR_CONFIG, "%s: not a regular file", path);
    if (status.st_size > AUTHORITIES_FILE_MAX)
        return err_set(err, ERR_CONFIG, "%s: more than %d bytes", path, AUTHORITIES_FILE_MAX);
    struct authorities *authorities = malloc(sizeof(*authorities) + (size_t)status.st_size + 1);
    if (!authorities)
        return err_set(err, ERR_MEMORY, "out of memory for %s", path);
    *authorities = (struct authorities){.uses = 1, .length = (size_t)status.st_size};
    snprintf(authorities->marker, sizeof(authorities->marker), "/nonexistent/authorities/%lu", ++loads);
    if (!read_whole(fd, authorities)) {
        free_authorities(authorities);
        return err_set(err, ERR_CONFIG, "%s: it could not be read as a whole", path);
    }
    authorities->store = make_store(authorities->bytes, authorities->length);
    if (!authorities->store) {
        free_authorities(authorities);
        return err_set(err, ERR_CONFIG, "%s: no certificate in it, or one that cannot be read (PEM)", path);
    }
    *ret_authorities = authorities;
    return true;
}

bool authorities_load(const char *path, struct authorities **ret_authorities, struct err *err)
{
    /* O_NONBLOCK: a named pipe must not hang the program. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
    bool done = load(fd, path, ret_authorities, err);
    close(fd);
    return done;
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
