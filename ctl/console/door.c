/* See door.h.
 *
 * Invariants: at most one token is good at any time, for two minutes; nothing is read from a terminal that is not ours
 * at the moment (job control would stop us).
 * Left out: which requests are answered (admission.h), and which user a connection belongs to (visitor.h). */
#include "ctl/console/door.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/lib/base/clock.h"

#define SSH_PORT 8095 /* of the URL where only the person knows which one leads here */
#define COMPLAIN_MS 10000
#define AGAIN_MS 1000

/* ---- URLs ---- */

static void print_url(const struct door *door)
{
    const struct admission *admission = &door->admission;
    const char *host = admission->is_any_address ? "127.0.0.1" : admission->host;
    printf(door->is_json ? "{\"url\": \"http://%s:%d/?token=%s\"}\n" : "http://%s:%d/?token=%s\n", host,
           admission->port > 0 ? admission->port : SSH_PORT, admission->token);
    fflush(stdout);
}

static void offer_token(struct door *door)
{
    struct err err;
    if (admission_new_token(&door->admission, clock_mono_ms(), &err))
        print_url(door);
    else
        fprintf(stderr, "issuing-ctl: no new URL: %s\n", err.message);
}

static void on_request(uv_signal_t *signal, int number)
{
    (void)number;
    offer_token(container_of(signal, struct door, request));
}

/* ---- the terminal ---- */

static void on_keys(uv_poll_t *poll, int status, int events);

static void on_again(uv_timer_t *timer)
{
    struct door *door = container_of(timer, struct door, again);
    uv_poll_start(&door->keys, UV_READABLE, on_keys);
}

static void on_keys(uv_poll_t *poll, int status, int events)
{
    struct door *door = container_of(poll, struct door, keys);
    char text[256];
    (void)events;
    uv_poll_stop(poll);
    if (status < 0)
        return;
    bool is_ours = tcgetpgrp(door->terminal) == getpgrp();
    ssize_t count = is_ours ? read(door->terminal, text, sizeof(text)) : -1;
    if (count == 0 || (is_ours && count < 0 && errno != EAGAIN && errno != EINTR))
        return; /* hung up, or Ctrl-D */
    if (count > 0 && memchr(text, '\n', (size_t)count))
        offer_token(door);
    if (is_ours)
        uv_poll_start(poll, UV_READABLE, on_keys);
    else
        uv_timer_start(&door->again, on_again, AGAIN_MS, 0);
}

/* ---- who may connect ---- */

bool door_admits(void *context, int fd)
{
    struct door *door = context;
    uid_t user;
    if (!door->checks_visitors)
        return true;
    bool is_known = visitors_user(&door->visitors, fd, &user);
    /* guard: another user of the machine is not answered */
    if (is_known && visitors_admit(&door->visitors, user))
        return true;
    int64_t now_ms = clock_mono_ms();
    if (door->complained_ms > 0 && now_ms - door->complained_ms < COMPLAIN_MS)
        return false;
    door->complained_ms = now_ms;
    if (is_known)
        fprintf(stderr, "issuing-ctl: a connection of the user %ju was refused: this console is for the user %ju%s\n",
                (uintmax_t)user, (uintmax_t)door->visitors.own,
                door->visitors.starter == door->visitors.own ? "" : " and for the user who started it by sudo");
    else
        fprintf(stderr, "issuing-ctl: a connection was refused: the kernel does not tell whose it is; a console on "
                        "--socket PATH may know\n");
    return false;
}

/* ---- the socket of the file system ---- */

/* A socket that a console has left behind when it was killed. */
static bool is_abandoned(const struct sockaddr_un *address)
{
    struct stat status;
    if (lstat(address->sun_path, &status) != 0 || !S_ISSOCK(status.st_mode) || status.st_uid != geteuid())
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool is_refused =
        fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 && errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return is_refused;
}

/* The mode is right from the start: a path may be another file's a moment later. */
static bool bind_with(int fd, const struct sockaddr_un *address, mode_t mode)
{
    mode_t before = umask(0777 & ~mode);
    bool done = bind(fd, (const struct sockaddr *)address, sizeof(*address)) == 0;
    if (!done && errno == EADDRINUSE && is_abandoned(address) && unlink(address->sun_path) == 0)
        done = bind(fd, (const struct sockaddr *)address, sizeof(*address)) == 0;
    int error = errno;
    umask(before);
    errno = error;
    return done;
}

/* Started by sudo, the person at the browser is another user than this process. Then everybody may connect, and
 * door_admits() leaves these two. */
static bool listen_at(struct door *door, const char *path, int *ret_fd, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    mode_t mode = door->visitors.starter == door->visitors.own ? 0600 : 0666;
    if (path[0] == '\0' || strlen(path) >= sizeof(address.sun_path))
        return err_set(err, ERR_USAGE, "--socket needs a path of at most %zu bytes", sizeof(address.sun_path) - 1);
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind_with(fd, &address, mode)) {
        door->socket_path = path;
        if (listen(fd, 64) == 0) {
            *ret_fd = fd;
            return true;
        }
    }
    err_set(err, ERR_SYSTEM, "can't listen on %.100s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return false;
}

/* ---- start and end ---- */

bool door_open(struct door *door, const char *listen, const char *socket_path, int *ret_fd, struct err *err)
{
    door->checks_visitors = socket_path || admission_is_loopback(listen);
    door->terminal = -1;
    *ret_fd = -1;
    visitors_open(&door->visitors);
    if (socket_path)
        return listen_at(door, socket_path, ret_fd, err);
    return !door->checks_visitors || visitors_know_tcp(&door->visitors, err);
}

static void print_words(const struct door *door)
{
    char where[300] = "";
    if (door->is_json)
        return;
    if (door->socket_path)
        snprintf(where, sizeof(where), " From your machine: ssh -L %d:%s HOST.", SSH_PORT, door->socket_path);
    fprintf(stderr,
            "The console is open%s.%s The URL works once, for one browser, within two minutes. For another one %ssend "
            "SIGUSR1 to process %ld. Ctrl-C ends the console.\n",
            door->is_read_only ? ", read-only" : "", where, door->terminal >= 0 ? "press Enter, or " : "",
            (long)getpid());
}

bool door_start(struct door *door, uv_loop_t *loop, const char *listen, int port, struct err *err)
{
    if (!admission_init(&door->admission, listen, port, err) ||
        !admission_new_token(&door->admission, clock_mono_ms(), err))
        return false;
    uv_signal_init(loop, &door->request);
    uv_timer_init(loop, &door->again);
    uv_signal_start(&door->request, on_request, SIGUSR1);
    if (isatty(STDIN_FILENO))
        door->terminal = open("/dev/tty", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (door->terminal >= 0 && uv_poll_init(loop, &door->keys, door->terminal) == 0) {
        signal(SIGTTIN, SIG_IGN);
        uv_poll_start(&door->keys, UV_READABLE, on_keys);
    } else if (door->terminal >= 0) {
        close(door->terminal);
        door->terminal = -1;
    }
    print_words(door);
    print_url(door);
    return true;
}

void door_stop(struct door *door)
{
    uv_close((uv_handle_t *)&door->request, NULL);
    uv_close((uv_handle_t *)&door->again, NULL);
    if (door->terminal >= 0) {
        uv_close((uv_handle_t *)&door->keys, NULL);
        close(door->terminal);
    }
    door->terminal = -1;
}

void door_done(struct door *door)
{
    if (door->socket_path)
        unlink(door->socket_path);
    visitors_close(&door->visitors);
    admission_done(&door->admission);
}
