/* See authorities.h. */
#include "common/authorities.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* As libcurl will read them: every block of the file, other kinds included. */
static bool has_certificates(const char *bytes, size_t length)
{
    BIO *bio = BIO_new_mem_buf(bytes, (int)length);
    STACK_OF(X509_INFO) *blocks = bio ? PEM_X509_INFO_read_bio(bio, NULL, NULL, NULL) : NULL;
    int count = 0;
    for (int i = 0; blocks && i < sk_X509_INFO_num(blocks); i++)
        count += sk_X509_INFO_value(blocks, i)->x509 != NULL;
    sk_X509_INFO_pop_free(blocks, X509_INFO_free);
    BIO_free(bio);
    ERR_clear_error();
    return count > 0;
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

static bool load(int fd, const char *path, struct authorities **ret_authorities, struct err *err)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return err_set(err, ERR_CONFIG, "%s: not a regular file", path);
    if (status.st_size > AUTHORITIES_FILE_MAX)
        return err_set(err, ERR_CONFIG, "%s: more than %d bytes", path, AUTHORITIES_FILE_MAX);
    struct authorities *authorities = malloc(sizeof(*authorities) + (size_t)status.st_size + 1);
    if (!authorities)
        return err_set(err, ERR_MEMORY, "out of memory for %s", path);
    authorities->uses = 1;
    authorities->length = (size_t)status.st_size;
    if (!read_whole(fd, authorities)) {
        free(authorities);
        return err_set(err, ERR_CONFIG, "%s: it could not be read as a whole", path);
    }
    if (!has_certificates(authorities->bytes, authorities->length)) {
        free(authorities);
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
        free(authorities);
}
