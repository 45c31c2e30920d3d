/* See listen_fds.h. */
#include "common/lib/base/listen_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_FD 3
#define VALUE_MAX 256

static const char *const variables[] = {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"};
enum { PID, COUNT, NAMES };

struct passed {
    char values[ARRAY_SIZE(variables)][VALUE_MAX];
    bool is_set[ARRAY_SIZE(variables)];
};

/* Copies the variables and removes them, so that no child takes the sockets for its own. */
static bool take_variables(struct passed *passed, struct err *err)
{
    bool fits = true;
    *passed = (struct passed){.is_set = {false}};
    for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
        const char *value = getenv(variables[i]);
        if (!value)
            continue;
        size_t length = strnlen(value, VALUE_MAX);
        fits = fits && length < VALUE_MAX;
        memcpy(passed->values[i], value, length < VALUE_MAX ? length : VALUE_MAX - 1);
        passed->is_set[i] = true;
        (void)unsetenv(variables[i]); /* cannot fail: the name is well-formed */
    }
    return fits || err_set(err, ERR_CONFIG, "LISTEN_PID, LISTEN_FDS or LISTEN_FDNAMES is too long");
}

/* Digits only: no sign, no blank, nothing behind. */
static bool read_number(const char *text, long *ret_number)
{
    size_t length = strlen(text);
    if (length == 0 || length > 10 || strspn(text, "0123456789") != length)
        return false;
    *ret_number = strtol(text, NULL, 10);
    return *ret_number <= INT_MAX;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* Of a .socket unit without FileDescriptorName= the name is that of the unit. */
static bool is_name(const char *given, const char *wanted)
{
    return strcmp(given, wanted) == 0 || strcmp(given, "unknown") == 0 || strcmp(given, "stored") == 0 ||
           ends_with(given, ".socket");
}

static bool get_option(int fd, int option, int *ret_value)
{
    socklen_t size = sizeof(*ret_value);
    return getsockopt(fd, SOL_SOCKET, option, ret_value, &size) == 0;
}

static bool check_socket(int fd, struct err *err)
{
    int type = 0, domain = 0, listens = 0;
    if (fcntl(fd, F_GETFD) < 0)
        return err_set(err, ERR_CONFIG, "LISTEN_FDS says that file descriptor %d is open, and it is not", fd);
    if (!get_option(fd, SO_TYPE, &type) || !get_option(fd, SO_DOMAIN, &domain) ||
        !get_option(fd, SO_ACCEPTCONN, &listens))
        return err_set(err, ERR_CONFIG, "the file descriptor %d that was passed is not a socket: %s", fd,
                       strerror(errno));
    if (type != SOCK_STREAM || (domain != AF_INET && domain != AF_INET6))
        return err_set(err, ERR_CONFIG, "the socket that was passed is not a TCP socket");
    if (!listens)
        return err_set(err, ERR_CONFIG, "the socket that was passed does not listen (Accept=no is needed)");
    return true;
}

static bool prepare(int fd, struct err *err)
{
    int status = fcntl(fd, F_GETFL), flags = fcntl(fd, F_GETFD);
    if (status < 0 || flags < 0 || fcntl(fd, F_SETFL, status | O_NONBLOCK) != 0 ||
        /* guard: a passed socket is not inherited by a child */
        fcntl(fd, F_SETFD, flags | FD_CLOEXEC) != 0)
        return err_set(err, ERR_SYSTEM, "the socket that was passed cannot be used: %s", strerror(errno));
    return true;
}

bool listen_fds_take(const char *name, int *ret_fd, struct err *err)
{
    struct passed passed;
    long pid = 0, count = 0;
    if (!take_variables(&passed, err))
        return false;
    if (!passed.is_set[PID] || !passed.is_set[COUNT]) {
        *ret_fd = -1;
        return true;
    }
    if (!read_number(passed.values[PID], &pid) || pid == 0)
        return err_set(err, ERR_CONFIG, "LISTEN_PID is not a process id");
    /* guard: sockets of another process are not taken */
    if (pid != (long)getpid()) { /* inherited from a parent that did not remove them */
        *ret_fd = -1;
        return true;
    }
    if (!read_number(passed.values[COUNT], &count))
        return err_set(err, ERR_CONFIG, "LISTEN_FDS is not a number");
    if (count == 0) {
        *ret_fd = -1;
        return true;
    }
    if (count > 1)
        return err_set(
            err, ERR_CONFIG,
            "systemd passed %ld sockets; only one is supported. Use ListenStream=[::]:PORT, which also accepts IPv4",
            count);
    if (passed.is_set[NAMES] && !is_name(passed.values[NAMES], name))
        return err_set(err, ERR_CONFIG, "a socket with the name \"%s\" was passed, expected FileDescriptorName=%s",
                       passed.values[NAMES], name);
    if (!check_socket(FIRST_FD, err) || !prepare(FIRST_FD, err))
        return false;
    *ret_fd = FIRST_FD;
    return true;
}
