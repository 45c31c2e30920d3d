/* See fault_injection.h. */
#include "tests/unit/fault_injection.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>

ssize_t __real_send(int fd, const void *bytes, size_t length, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags);
ssize_t __real_recv(int fd, void *bytes, size_t length, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t length, int flags);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
/* These are wrapped in one program only (meson.build). */
char *__real_strdup(const char *text) __attribute__((weak));
char *__wrap_strdup(const char *text);
char *__real_strndup(const char *text, size_t length) __attribute__((weak));
char *__wrap_strndup(const char *text, size_t length);
int __real_open64(const char *path, int flags, ...) __attribute__((weak));
int __wrap_open64(const char *path, int flags, mode_t mode);
ssize_t __real_read(int fd, void *bytes, size_t length) __attribute__((weak));
ssize_t __wrap_read(int fd, void *bytes, size_t length);
int __real_fstat64(int fd, struct stat *ret_status) __attribute__((weak));
int __wrap_fstat64(int fd, struct stat *ret_status);

_Thread_local ssize_t (*send_instead)(int fd, const void *bytes, size_t length, int flags);
_Thread_local ssize_t (*recv_instead)(int fd, void *bytes, size_t length, int flags);

_Thread_local bool spares_handshakes;

#define DESCRIPTORS 4096

static _Thread_local bool is_shaken[DESCRIPTORS];
static _Thread_local bool is_counting, is_pausing;
static _Thread_local long count, fails_from, fails_to;

ssize_t real_send(int fd, const void *bytes, size_t length, int flags)
{
    return __real_send(fd, bytes, length, flags);
}

ssize_t real_recv(int fd, void *bytes, size_t length, int flags)
{
    return __real_recv(fd, bytes, length, flags);
}

/* A client sends a ClientHello, then its Finished behind a ChangeCipherSpec (RFC 8446, appendix D.4). */
static bool is_handshake(int fd, const unsigned char *bytes, size_t length)
{
    bool is_hello = length > 5 && bytes[0] == 22 && bytes[1] == 3 && bytes[5] == 1;
    if (!spares_handshakes || fd >= DESCRIPTORS)
        return false;
    is_shaken[fd] = !is_hello && (is_shaken[fd] || bytes[0] != 20);
    return !is_shaken[fd];
}

ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags)
{
    bool is_spared = is_handshake(fd, bytes, length);
    return send_instead && !is_spared ? send_instead(fd, bytes, length, flags) : __real_send(fd, bytes, length, flags);
}

ssize_t __wrap_recv(int fd, void *bytes, size_t length, int flags)
{
    return recv_instead ? recv_instead(fd, bytes, length, flags) : __real_recv(fd, bytes, length, flags);
}

void allocations_fail_at(long n, long further)
{
    count = 0;
    fails_from = n;
    fails_to = n + further;
    is_counting = true;
}

long allocations_stop_failing(void)
{
    is_counting = false;
    return count;
}

bool allocations_pause(bool is_paused)
{
    bool before = is_pausing;
    is_pausing = is_paused;
    return before;
}

static bool fails_with(int error)
{
    if (!is_counting || is_pausing)
        return false;
    count++;
    if (count < fails_from || count > fails_to)
        return false;
    errno = error;
    return true;
}

static bool fails(void)
{
    return fails_with(ENOMEM);
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t number, size_t size)
{
    return fails() ? NULL : __real_calloc(number, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t length)
{
    return fails() ? NULL : __real_strndup(text, length);
}

int __wrap_open64(const char *path, int flags, mode_t mode)
{
    return fails_with(EIO) ? -1 : __real_open64(path, flags, mode);
}

ssize_t __wrap_read(int fd, void *bytes, size_t length)
{
    return fails_with(EIO) ? -1 : __real_read(fd, bytes, length);
}

int __wrap_fstat64(int fd, struct stat *ret_status)
{
    return fails_with(EIO) ? -1 : __real_fstat64(fd, ret_status);
}

static void *allocate(size_t size, const char *file, int line)
{
    (void)file, (void)line;
    return __wrap_malloc(size);
}

static void *reallocate(void *old, size_t size, const char *file, int line)
{
    (void)file, (void)line;
    return __wrap_realloc(old, size);
}

static void release(void *bytes, const char *file, int line)
{
    (void)file, (void)line;
    free(bytes);
}

/* OpenSSL takes them before its first allocation only. */
__attribute__((constructor)) static void give_to_openssl(void)
{
    if (CRYPTO_set_mem_functions(allocate, reallocate, release) != 1)
        abort();
}
