/* See fault_injection.h. */
#include "tests/unit/fault_injection.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

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

_Thread_local ssize_t (*send_instead)(int fd, const void *bytes, size_t length, int flags);
_Thread_local ssize_t (*recv_instead)(int fd, void *bytes, size_t length, int flags);

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

ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags)
{
    return send_instead ? send_instead(fd, bytes, length, flags) : __real_send(fd, bytes, length, flags);
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

static bool fails(void)
{
    if (!is_counting || is_pausing)
        return false;
    count++;
    if (count < fails_from || count > fails_to)
        return false;
    errno = ENOMEM;
    return true;
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
