/* See log_output.h.
 *
 * Invariants: lines leave in their order, whole; while lines are lost, none is kept, so there is only one gap. Any
 * error is taken as "not now": a full disk may have space again. */
#include "common/lib/base/log_output.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int own = -1; /* standard error, opened a second time; -1 = it was not */
static bool is_socket, must_poll;
static char kept[LOG_OUTPUT_KEPT_MAX];
static size_t kept_from, kept_until;
static uint64_t lost, lost_unreported;

void log_output_open(void)
{
    struct stat status;
    if (own >= 0)
        close(own);
    own = -1;
    is_socket = must_poll = false;
    if (fstat(STDERR_FILENO, &status) != 0)
        return;
    is_socket = S_ISSOCK(status.st_mode);
    if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode))
        return;
    /* guard: a log that nobody reads stops nothing */
    own = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    /* Another user's, as a pipe of a container may be: a line fits where a pipe has any space. */
    must_poll = own < 0;
}

static bool has_space(void)
{
    struct pollfd error = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&error, 1, 0) > 0;
}

/* How many bytes were taken. */
static size_t put(const char *bytes, size_t length)
{
    ssize_t count = -1;
    if (is_socket)
        count = send(STDERR_FILENO, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    else if (!must_poll || has_space())
        count = write(own >= 0 ? own : STDERR_FILENO, bytes, length);
    return count > 0 ? (size_t)count : 0;
}

static bool put_kept_line(void)
{
    const char *line = kept + kept_from;
    size_t length = (size_t)((char *)memchr(line, '\n', kept_until - kept_from) - line) + 1;
    size_t taken = put(line, length);
    kept_from += taken;
    return taken == length;
}

uint64_t log_output_flush(void)
{
    uint64_t unreported = lost_unreported;
    while (kept_from < kept_until)
        if (!put_kept_line())
            return 0;
    kept_from = kept_until = 0;
    lost_unreported = 0;
    return unreported;
}

static void keep(const char *line, size_t length)
{
    if (kept_from > 0) {
        memmove(kept, kept + kept_from, kept_until - kept_from);
        kept_until -= kept_from;
        kept_from = 0;
    }
    if (lost_unreported > 0 || length > sizeof(kept) - kept_until) {
        lost++;
        lost_unreported++;
        return;
    }
    memcpy(kept + kept_until, line, length);
    kept_until += length;
}

void log_output_line(const char *line, size_t length)
{
    size_t taken = kept_from < kept_until ? 0 : put(line, length);
    if (taken < length)
        keep(line + taken, length - taken);
}

uint64_t log_output_lost(void)
{
    return lost;
}
