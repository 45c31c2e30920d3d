/* sd_notify(3) by hand, as its manual page invites to: one datagram to the socket that systemd names.
 *
 * Invariants: without NOTIFY_SOCKET nothing happens; nothing here can fail the program or hold the loop for longer than
 * SEND_TIMEOUT_MS, and only ready and stopping, which are sent once, wait at all.
 * Left out: sockets that systemd passes (listen_fds.h), the file descriptor store. */
#include "common/lib/base/sd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define SEND_TIMEOUT_MS 500

static void notify(const char *text, int send_flags)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || path[1] == '\0')
        return;
    size_t length = strlen(path);
    if (length >= sizeof(address.sun_path))
        return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0'; /* the abstract namespace */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    struct timeval timeout = {.tv_usec = SEND_TIMEOUT_MS * 1000L};
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    socklen_t address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    ssize_t sent;
    do {
        sent = sendto(fd, text, strlen(text), send_flags | MSG_NOSIGNAL, (struct sockaddr *)&address, address_length);
    } while (sent < 0 && errno == EINTR);
    close(fd);
}

void sd_ready(void)
{
    notify("READY=1", 0);
}

void sd_stopping(void)
{
    notify("STOPPING=1", 0);
}

void sd_status(const char *format, ...)
{
    char text[256] = "STATUS=";
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(text + used, sizeof(text) - used, format, arguments);
    va_end(arguments);
    if (wanted < 0)
        return;
    /* A newline would begin another assignment. */
    for (char *next = text + used; *next != '\0'; next++)
        if (*next == '\n' || *next == '\r')
            *next = ' ';
    notify(text, MSG_DONTWAIT);
}

void sd_watchdog(void)
{
    notify("WATCHDOG=1", MSG_DONTWAIT);
}

void sd_extend_timeout(int64_t more_ms)
{
    char text[64];
    if (more_ms <= 0)
        return;
    snprintf(text, sizeof(text), "EXTEND_TIMEOUT_USEC=%" PRId64, more_ms * 1000);
    notify(text, MSG_DONTWAIT);
}
