/* Bytes that are wiped when they go.
 *
 * Invariants: no message contains a byte of a secret; every buffer a secret passed through is overwritten; a failed
 * call leaves nothing behind.
 * Left out: locking memory (mlock): core files are off, and swap is the machine owner's decision. */
#include "common/lib/base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

bool secret_copy(struct secret *ret_secret, const void *bytes, size_t length, struct err *err)
{
    unsigned char *copy = length < SIZE_MAX ? malloc(length + 1) : NULL;
    if (!copy)
        return err_set(err, ERR_MEMORY, "out of memory for a secret");
    if (length > 0)
        memcpy(copy, bytes, length);
    copy[length] = '\0';
    *ret_secret = (struct secret){.bytes = copy, .length = length};
    return true;
}

/* A user who may write a key may choose it. Root is not refused a file of another user: it can read every file, and
 * changes the key files of others (issuing-ctl keys rotate). */
bool secret_check_writers(int fd, struct err *err)
{
    struct stat status;
    uid_t user = geteuid();
    if (fstat(fd, &status) != 0)
        return err_set(err, ERR_CONFIG, "%s", strerror(errno));
    if (!S_ISREG(status.st_mode))
        return err_set(err, ERR_CONFIG, "not a regular file");
    /* guard: a secret that the group may write is refused */
    if (status.st_mode & 0022)
        return err_set(err, ERR_CONFIG, "mode %04o lets others than its owner write it; use chmod go-w",
                       (unsigned int)(status.st_mode & 07777));
    /* guard: a secret of another user is refused */
    if (status.st_uid != 0 && status.st_uid != user && user != 0)
        return err_set(err, ERR_CONFIG, "it belongs to user %lu; the owner must be root or user %lu",
                       (unsigned long)status.st_uid, (unsigned long)user);
    return true;
}

static bool check_readers(int fd, const char *path, struct err *err)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
    if (status.st_mode & 0007)
        return err_set(err, ERR_CONFIG, "%s: mode %04o gives every user access; use chmod o= (or 0600)", path,
                       (unsigned int)(status.st_mode & 07777));
    return true;
}

/* `bytes` holds SECRET_FILE_MAX + 1; the last byte is only there to notice a file that is too big. */
static bool read_file(int fd, const char *path, unsigned char *bytes, size_t *ret_length, struct err *err)
{
    size_t length = 0;
    for (;;) {
        ssize_t count = read(fd, bytes + length, SECRET_FILE_MAX + 1 - length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
        length += (size_t)count;
        if (length > SECRET_FILE_MAX)
            return err_set(err, ERR_CONFIG, "%s: more than %d bytes", path, SECRET_FILE_MAX);
        if (count == 0)
            break;
    }
    if (length > 0 && bytes[length - 1] == '\n') {
        length--;
        if (length > 0 && bytes[length - 1] == '\r')
            length--;
    }
    if (length == 0)
        return err_set(err, ERR_CONFIG, "%s: the file is empty", path);
    *ret_length = length;
    return true;
}

bool secret_load(struct secret *ret_secret, const char *path, struct err *err)
{
    /* O_NONBLOCK: a named pipe must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
    unsigned char *bytes = malloc(SECRET_FILE_MAX + 1);
    size_t length = 0;
    bool done = false;
    if (!bytes)
        err_set(err, ERR_MEMORY, "out of memory for a secret");
    else
        done = (secret_check_writers(fd, err) || err_prefix(err, "%s", path)) && check_readers(fd, path, err) &&
               read_file(fd, path, bytes, &length, err) && secret_copy(ret_secret, bytes, length, err);
    close(fd);
    if (bytes)
        secret_wipe(bytes, SECRET_FILE_MAX + 1);
    free(bytes);
    return done;
}

void secret_done(struct secret *secret)
{
    if (secret->bytes)
        secret_wipe(secret->bytes, secret->length);
    free(secret->bytes);
    *secret = (struct secret){.bytes = NULL};
}

bool secret_each_line(const struct secret *file, int most,
                      bool (*add)(void *context, struct slice line, struct err *err), void *context, struct err *err)
{
    const char *at = (const char *)file->bytes, *end = at + file->length;
    for (int number = 1; at <= end; number++) {
        const char *newline = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        struct slice line = {.bytes = at, .length = (size_t)((newline ? newline : end) - at)};
        if (line.length > 0 && line.bytes[line.length - 1] == '\r')
            line.length--;
        if (number > most)
            return err_set(err, ERR_CONFIG, "there are more than %d lines in it", most);
        if (!add(context, line, err))
            return false;
        at = newline ? newline + 1 : end + 1;
    }
    return true;
}

void secret_base64(const void *bytes, size_t length, char *ret_text)
{
    (void)EVP_EncodeBlock((unsigned char *)ret_text, bytes, (int)length);
}

void secret_wipe(void *bytes, size_t length)
{
    explicit_bzero(bytes, length);
}

bool secret_equal(const void *left, size_t left_length, const void *right, size_t right_length)
{
    if (left_length != right_length)
        return false;
    const volatile unsigned char *a = left, *b = right;
    unsigned char difference = 0;
    for (size_t i = 0; i < left_length; i++)
        difference |= (unsigned char)(a[i] ^ b[i]);
    return difference == 0;
}

void secret_protect_process(void)
{
    /* Best effort: a kernel that refuses one of the two still has the other. */
    struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
