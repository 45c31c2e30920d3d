/* Preloaded into a program: while a folder called "hung" has a file "hangs" in it, no other file in it can be opened,
 * as on a mount whose server is away. Whoever waits makes the file "waits". */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void wait_for_mount(const char *path)
{
    char hangs[4096], waits[4096];
    const char *folder = strstr(path, "/hung/");
    int length = folder ? (int)(folder - path) + 6 : 0;
    if (!folder)
        return;
    snprintf(hangs, sizeof(hangs), "%.*shangs", length, path);
    snprintf(waits, sizeof(waits), "%.*swaits", length, path);
    while (access(hangs, F_OK) == 0) {
        close(openat(AT_FDCWD, waits, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        usleep(10 * 1000);
    }
}

/* open64(), as <fcntl.h> has it here. */
int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    wait_for_mount(path);
    return openat(AT_FDCWD, path, flags, mode);
}
