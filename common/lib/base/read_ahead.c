/* See read_ahead.h. */
#include "common/lib/base/read_ahead.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/lib/base/clock.h"

#define READ_MAX (4 * 1024 * 1024) /* the largest file that is taken (authorities) */

void read_ahead_file(const char *path)
{
    char bytes[4096];
    ssize_t count = 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    for (size_t length = 0; fd >= 0 && count > 0 && length < READ_MAX; length += sizeof(bytes))
        count = read(fd, bytes, sizeof(bytes));
    explicit_bzero(bytes, sizeof(bytes));
    if (fd >= 0)
        close(fd);
}

static void *run(void *context)
{
    struct read_ahead *ahead = context;
    ahead->read(ahead->context);
    atomic_store(&ahead->is_done, true);
    return NULL;
}

void read_ahead_start(struct read_ahead *ahead)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    atomic_store(&ahead->is_done, false);
    ahead->is_running = true;
    ahead->began_ms = clock_mono_ms();
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the loop's thread */
    /* guard: the loop waits for no file */
    if (pthread_create(&thread, NULL, run, ahead) == 0)
        (void)pthread_detach(thread);
    else
        atomic_store(&ahead->is_done, true);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool read_ahead_is_over(struct read_ahead *ahead)
{
    if (!atomic_load(&ahead->is_done))
        return false;
    ahead->is_running = false;
    return true;
}
