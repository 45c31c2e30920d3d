/* See log_journal.h and systemd.io/JOURNAL_NATIVE_PROTOCOL: a datagram is an entry, and its values have no newline. */
#include "common/lib/base/log_journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int journal = -1;

/* systemd.exec(5): JOURNAL_STREAM is "<device>:<inode>" of the stream; a child whose standard error was sent elsewhere
 * still inherits the variable, so it must match. */
bool log_journal_is_stderr(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat status;
    unsigned long long device = 0, inode = 0;
    if (!stream || sscanf(stream, "%llu:%llu", &device, &inode) != 2 || fstat(STDERR_FILENO, &status) != 0)
        return false;
    return status.st_dev == device && status.st_ino == inode;
}

void log_journal_open(const char *socket_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (journal >= 0)
        close(journal);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
    journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (journal >= 0 && connect(journal, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        close(journal);
        journal = -1;
    }
}

bool log_journal_send(const char *fields, size_t fields_length, const char *text, size_t text_length)
{
    struct iovec parts[] = {{.iov_base = (void *)(uintptr_t)fields, .iov_len = fields_length},
                            {.iov_base = (void *)(uintptr_t)text, .iov_len = text_length}};
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = ARRAY_SIZE(parts)};
    return journal >= 0 && sendmsg(journal, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}
