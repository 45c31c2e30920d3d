/* The story: systemd holds the client socket and passes it to the api, so that a restart refuses nobody. What is passed
 * is described by three variables that anybody may have set: a parent's that were inherited, garbage, numbers of files
 * that are not sockets. Whatever they say, the api takes its socket or says what is wrong, and no child of it is
 * misled.
 *
 * Each case runs in a process of its own, since it decides what file descriptor 3 is. */
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/lib/base/listen_fds.h"
#include "tests/support/suite.h"

enum third { LISTENING, LISTENING_V6, NOT_LISTENING, DATAGRAM, LOCAL, NO_SOCKET, NOTHING };

static int make(enum third third)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = -1;
    switch (third) {
    case LISTENING:
        fd = socket(AF_INET, SOCK_STREAM, 0);
        return bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, 5) == 0 ? fd : -1;
    case LISTENING_V6:
        fd = socket(AF_INET6, SOCK_STREAM, 0);
        return listen(fd, 5) == 0 ? fd : -1; /* on any port */
    case NOT_LISTENING:
        return socket(AF_INET, SOCK_STREAM, 0);
    case DATAGRAM:
        return socket(AF_INET, SOCK_DGRAM, 0);
    case LOCAL:
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        return fd;
    case NO_SOCKET:
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    case NOTHING:
        return -1;
    }
    return -1;
}

static void set(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* What listen_fds_take() makes of it, as text. "%" in pid stands for the process's own. */
static void take(enum third third, const char *pid, const char *count, const char *names, char *ret_text, size_t size)
{
    int fd = make(third), ret_fd = -2;
    char own[24];
    struct err err = {0};
    snprintf(own, sizeof(own), "%ld", (long)getpid());
    close(3);
    if (fd >= 0 && fd != 3)
        dup2(fd, 3);
    set("LISTEN_PID", pid && strcmp(pid, "%") == 0 ? own : pid);
    set("LISTEN_FDS", count);
    set("LISTEN_FDNAMES", names);
    bool is_taken = listen_fds_take("http", &ret_fd, &err);
    bool are_left = getenv("LISTEN_PID") || getenv("LISTEN_FDS") || getenv("LISTEN_FDNAMES");
    if (!is_taken)
        snprintf(ret_text, size, "%d: %s", (int)err.kind, err.message);
    else if (ret_fd >= 0)
        snprintf(ret_text, size, "fd %d%s%s", ret_fd, fcntl(ret_fd, F_GETFD) & FD_CLOEXEC ? " cloexec" : "",
                 fcntl(ret_fd, F_GETFL) & O_NONBLOCK ? " nonblocking" : "");
    else
        snprintf(ret_text, size, "none");
    if (are_left || (!is_taken && ret_fd != -2))
        snprintf(ret_text, size, "the variables or the result were left behind");
}

static const struct {
    enum third third;
    const char *pid, *count, *names;
    const char *wanted; /* the beginning; of an error any part behind its kind */
} cases[] = {
    {LISTENING, "%", "1", "http", "fd 3 cloexec nonblocking"},
    {LISTENING_V6, "%", "1", "http", "fd 3 cloexec nonblocking"},
    {LISTENING, "%", "1", NULL, "fd 3 cloexec nonblocking"},
    {LISTENING, "%", "1", "issuing-api.socket", "fd 3 cloexec nonblocking"},
    {LISTENING, "%", "1", "unknown", "fd 3 cloexec nonblocking"},
    {LISTENING, NULL, NULL, NULL, "none"},
    {LISTENING, "%", NULL, "http", "none"},
    {LISTENING, NULL, "1", "http", "none"},
    {LISTENING, "1", "1", "http", "none"}, /* another process's */
    {LISTENING, "1", "garbage", "http", "none"},
    {LISTENING, "%", "0", "", "none"},
    {LISTENING, "", "1", "http", "LISTEN_PID is not a process id"},
    {LISTENING, "0", "1", "http", "LISTEN_PID is not a process id"},
    {LISTENING, "-1", "1", "http", "LISTEN_PID is not a process id"},
    {LISTENING, "12x", "1", "http", "LISTEN_PID is not a process id"},
    {LISTENING, "99999999999999999999", "1", "http", "LISTEN_PID is not a process id"},
    {LISTENING, "%", "", "http", "LISTEN_FDS is not a number"},
    {LISTENING, "%", "-1", "http", "LISTEN_FDS is not a number"},
    {LISTENING, "%", "1 ", "http", "LISTEN_FDS is not a number"},
    {LISTENING, "%", "4294967297", "http", "LISTEN_FDS is not a number"},
    {LISTENING, "%", "2", "http:http", "systemd passed 2 sockets; only one is supported"},
    {LISTENING, "%", "2147483647", "http", "systemd passed 2147483647 sockets"},
    {LISTENING, "%", "1", "admin", "a socket with the name \"admin\" was passed"},
    {LISTENING, "%", "1", "", "a socket with the name \"\" was passed"},
    {LISTENING, "%", "1", "http:http", "a socket with the name \"http:http\" was passed"},
    {NOTHING, "%", "1", "http", "file descriptor 3 is open, and it is not"},
    {NO_SOCKET, "%", "1", "http", "3 that was passed is not a socket"},
    {DATAGRAM, "%", "1", "http", "is not a TCP socket"},
    {LOCAL, "%", "1", "http", "is not a TCP socket"},
    {NOT_LISTENING, "%", "1", "http", "does not listen"},
};

static void run_apart(enum third third, const char *pid, const char *count, const char *names, char *ret_text,
                      size_t size)
{
    int ends[2], status = 0;
    ck_assert_int_eq(pipe(ends), 0);
    int out = fcntl(ends[1], F_DUPFD, 20); /* away from 3 */
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        char text[512] = "";
        take(third, pid, count, names, text, sizeof(text));
        ssize_t written = write(out, text, strlen(text));
        _exit(written < 0);
    }
    close(ends[1]);
    close(out);
    ssize_t length = read(ends[0], ret_text, size - 1);
    ck_assert_int_ge(length, 0);
    ret_text[length] = '\0';
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}

START_TEST(the_socket_is_taken_or_the_reason_is_told)
{
    char text[512], kind[8];
    bool is_error = strncmp(cases[_i].wanted, "fd ", 3) != 0 && strcmp(cases[_i].wanted, "none") != 0;
    run_apart(cases[_i].third, cases[_i].pid, cases[_i].count, cases[_i].names, text, sizeof(text));
    snprintf(kind, sizeof(kind), "%d: ", (int)ERR_CONFIG);
    if (is_error)
        ck_assert_msg(strncmp(text, kind, strlen(kind)) == 0 && strstr(text, cases[_i].wanted), "%d: %s", _i, text);
    else
        ck_assert_msg(strcmp(text, cases[_i].wanted) == 0, "%d: %s", _i, text);
}

TEST(a_value_of_any_length_is_survived)
{
    static char names[100000];
    char text[512];
    memset(names, ':', sizeof(names) - 1);
    run_apart(LISTENING, "%", "1", names, text, sizeof(text));
    ck_assert_msg(strstr(text, "too long") != NULL, "%s", text);
    run_apart(LISTENING, "%", names, "http", text, sizeof(text));
    ck_assert_msg(strstr(text, "too long") != NULL, "%s", text);
}

SUITE(listen_fds)
{
    TCase *tests = tcase_create("listen_fds");
    tcase_set_tags(tests, "no_valgrind");
    tcase_add_loop_test(tests, the_socket_is_taken_or_the_reason_is_told, 0, ARRAY_SIZE(cases));
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
}
