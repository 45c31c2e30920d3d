/* systemd starts the daemon, waits for "ready", and restarts it when the watchdog falls silent. Outside systemd the
 * same calls must do nothing at all. A socket of our own plays systemd. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/lib/base/sd.h"
#include "tests/support/suite.h"

static int listener = -1;
static char folder[64], path[96];

static void listen_at(const char *name, size_t name_length)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, name, name_length);
    listener = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(listener, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + name_length);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, length), 0);
}

static void start(void)
{
    snprintf(folder, sizeof(folder), "/proc/self/cwd/test_sd_XXXXXX"); /* absolute, and short wherever this runs */
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/notify", folder);
    listen_at(path, strlen(path));
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

static void stop(void)
{
    close(listener);
    unlink(path);
    rmdir(folder);
}

static void expect_datagram(const char *wanted)
{
    char text[512];
    ssize_t length = recv(listener, text, sizeof(text) - 1, 0);
    ck_assert_int_ge(length, 0);
    text[length] = '\0';
    ck_assert_str_eq(text, wanted);
}

static void expect_silence(void)
{
    char byte;
    ck_assert_int_eq(recv(listener, &byte, 1, 0), -1);
}

TEST(systemd_hears_every_word)
{
    setenv("NOTIFY_SOCKET", path, 1);
    sd_ready();
    expect_datagram("READY=1");
    sd_status("%d in flight", 3);
    expect_datagram("STATUS=3 in flight");
    sd_watchdog();
    expect_datagram("WATCHDOG=1");
    sd_extend_timeout(12500);
    expect_datagram("EXTEND_TIMEOUT_USEC=12500000");
    sd_extend_timeout(0);
    sd_extend_timeout(-1);
    expect_silence();
    sd_stopping();
    expect_datagram("STOPPING=1");
    expect_silence();
}

TEST(a_socket_without_a_file_is_found)
{
    char name[64];
    stop();
    int length = snprintf(name, sizeof(name), "@issuing-test-sd-%d", (int)getpid());
    setenv("NOTIFY_SOCKET", name, 1);
    name[0] = '\0';
    listen_at(name, (size_t)length);
    sd_ready();
    expect_datagram("READY=1");
}

TEST(outside_systemd_nothing_happens)
{
    static const char *const useless[] = {"", "relative", "/", "@", "/nowhere/at/all"};
    sd_ready();
    expect_silence();
    for (size_t i = 0; i < ARRAY_SIZE(useless); i++) {
        setenv("NOTIFY_SOCKET", useless[i], 1);
        sd_ready();
        sd_status("x");
        expect_silence();
    }
    char too_long[300];
    memset(too_long, '/', sizeof(too_long) - 1);
    too_long[sizeof(too_long) - 1] = '\0';
    setenv("NOTIFY_SOCKET", too_long, 1);
    sd_ready();
    expect_silence();
}

TEST(a_status_cannot_smuggle_another_assignment)
{
    setenv("NOTIFY_SOCKET", path, 1);
    sd_status("one\nSTOPPING=1\r\n%s", "two");
    expect_datagram("STATUS=one STOPPING=1  two");
    sd_status("%0500d", 1);
    char text[512];
    ck_assert_int_eq(recv(listener, text, sizeof(text), 0), 255);
}

TEST(a_full_socket_does_not_hold_the_loop)
{
    setenv("NOTIFY_SOCKET", path, 1);
    int sent = 0;
    for (; sent < 5000; sent++)
        sd_watchdog();
    int heard = 0;
    char text[64];
    while (recv(listener, text, sizeof(text), 0) > 0)
        heard++;
    ck_assert_int_gt(heard, 0);
    ck_assert_int_lt(heard, sent);
}

TESTS_BETWEEN(sd, start, stop)
