/* See scripted_peer.h. SIGPIPE is as it was: a client that needs it ignored ends the test. */
#include "tests/unit/scripted_peer.h"

#include <arpa/inet.h>
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "tests/unit/fault_injection.h"

struct scripted_peer scripted;
static bool inside_start;
static int fillers[2] = {-1, -1};

#define DESCRIPTORS 4096
static SSL *streams[DESCRIPTORS]; /* by descriptor; NULL = in clear text */

int scripted_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(folder);
    int count = -1; /* its own */
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void make_address(struct sockaddr_in *address)
{
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)scripted.port)};
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

void scripted_trust(void)
{
    char path[64];
    struct authorities *authorities = NULL;
    if (!scripted.tls)
        return;
    int fd = certificate_file(&scripted.authority, path, sizeof(path));
    ck_assert(authorities_load(path, &authorities, NULL));
    http_client_trust(scripted.client, authorities);
    authorities_release(authorities);
    close(fd);
}

void scripted_open(int connections_max)
{
    struct http_client_options options = {.connections_max = connections_max, .answer_max = SCRIPTED_ANSWER_MAX};
    ck_assert(http_client_open(&scripted.loop, &options, &scripted.client, NULL));
    scripted_trust();
    scripted.is_closed = false;
}

static void on_anchor(uv_timer_t *timer)
{
    (void)timer;
}

void scripted_set_up(void)
{
    struct rlimit files = {.rlim_cur = 0};
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < 2048 && files.rlim_max >= 2048) {
        files.rlim_cur = 2048;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    memset(&scripted, 0, sizeof(scripted));
    uv_loop_t first; /* what libuv opens once for a process stays */
    ck_assert_int_eq(uv_loop_init(&first), 0);
    ck_assert_int_eq(uv_loop_close(&first), 0);
    scripted.descriptors = scripted_descriptors();
    struct sockaddr_in address;
    make_address(&address);
    socklen_t length = sizeof(address);
    scripted.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(scripted.listener, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(scripted.listener, 1024), 0);
    ck_assert_int_eq(getsockname(scripted.listener, (struct sockaddr *)&address, &length), 0);
    scripted.port = ntohs(address.sin_port);
    ck_assert_int_eq(uv_loop_init(&scripted.loop), 0);
    uv_timer_init(&scripted.loop, &scripted.anchor);
    uv_timer_start(&scripted.anchor, on_anchor, 3600000, 3600000);
    scripted_open(64);
}

void scripted_set_up_tls(void)
{
    struct certificate authority, certificate;
    certificate_make_authority(&authority, "test authority");
    certificate_make(&certificate, &authority, "IP:127.0.0.1", 86400);
    scripted_set_up();
    scripted_close_client();
    SCRIPTED_UNTIL(scripted.is_closed);
    scripted.authority = authority;
    scripted.tls = SSL_CTX_new(TLS_server_method());
    ck_assert_int_eq(SSL_CTX_use_certificate(scripted.tls, certificate.x509), 1);
    ck_assert_int_eq(SSL_CTX_use_PrivateKey(scripted.tls, certificate.key), 1);
    SSL_CTX_set_mode(scripted.tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    certificate_done(&certificate);
    spares_handshakes = true;
    scripted_open(64);
}

static void on_closed(void *context)
{
    bool was_paused = allocations_pause(true);
    ck_assert_ptr_eq(context, &scripted);
    ck_assert(!scripted.is_closed);
    allocations_pause(was_paused);
    scripted.is_closed = true;
    scripted.client = NULL;
}

void scripted_close_client(void)
{
    http_client_close(scripted.client, on_closed, &scripted);
}

void scripted_stop_listening(void)
{
    if (scripted.listener >= 0)
        close(scripted.listener);
    scripted.listener = -1;
}

void scripted_tear_down(void)
{
    if (scripted.client) {
        scripted_close_client();
        ck_assert(!scripted.is_closed);
    }
    uv_close((uv_handle_t *)&scripted.anchor, NULL);
    uv_run(&scripted.loop, UV_RUN_DEFAULT);
    ck_assert(scripted.is_closed);
    ck_assert_int_eq(uv_loop_close(&scripted.loop), 0);
    scripted_stop_listening();
    ck_assert_int_eq(scripted_descriptors(), scripted.descriptors);
    clock_release();
    spares_handshakes = false;
    SSL_CTX_free(scripted.tls);
    if (scripted.tls)
        certificate_done(&scripted.authority);
    scripted.tls = NULL;
}

void scripted_fill_backlog(void)
{
    struct sockaddr_in address;
    make_address(&address);
    ck_assert_int_eq(listen(scripted.listener, 0), 0);
    for (size_t i = 0; i < ARRAY_SIZE(fillers); i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(fillers[i], (struct sockaddr *)&address, sizeof(address));
    }
}

void scripted_empty_backlog(void)
{
    ck_assert_int_eq(listen(scripted.listener, 1024), 0);
    for (size_t i = 0; i < ARRAY_SIZE(fillers); i++)
        close(fillers[i]);
    int fd = accept4(scripted.listener, NULL, NULL, SOCK_CLOEXEC); /* a filler's */
    ck_assert_int_ge(fd, 0);
    close(fd);
}

/* ---- the calls ---- */

static void on_done(struct http_call *call)
{
    bool was_paused = allocations_pause(true);
    struct scripted_call *own = container_of(call, struct scripted_call, call);
    ck_assert(!inside_start);
    ck_assert_ptr_null(call->client);
    own->ends++;
    own->order = ++scripted.ended;
    if (own->then)
        own->then(own);
    allocations_pause(was_paused);
}

void scripted_make(struct scripted_call *call, const char *method, const char *path)
{
    char base[32] = "";
    if (path[0] == '/')
        snprintf(base, sizeof(base), "%s://127.0.0.1:%d", scripted.tls ? "https" : "http", scripted.port);
    http_call_make(&call->call, method, base);
    http_call_url(&call->call, path);
    if (method[0] == 'P')
        buf_put_text(&call->call.body, "{\"body\":\"of the request\"}");
}

void scripted_prepare(struct scripted_call *call, const char *method, const char *path)
{
    memset(call, 0, sizeof(*call));
    http_call_init(&call->call, SCRIPTED_ANSWER_MAX);
    scripted_make(call, method, path);
    call->call.timeout_ms = 60000;
    call->call.on_done = on_done;
}

void scripted_start(struct scripted_call *call)
{
    inside_start = true;
    http_client_start(scripted.client, &call->call);
    inside_start = false;
}

void scripted_call(struct scripted_call *call, const char *path)
{
    scripted_prepare(call, "POST", path);
    scripted_start(call);
}

int64_t scripted_now_ms(void)
{
    return (int64_t)(uv_hrtime() / 1000000);
}

void scripted_run_once(void)
{
    uv_run(&scripted.loop, UV_RUN_NOWAIT);
}

void scripted_wait(struct scripted_call *call)
{
    SCRIPTED_UNTIL(call->ends > 0);
    ck_assert_int_eq(call->ends, 1);
}

void scripted_settle(void)
{
    for (int i = 0; i < 10; i++)
        scripted_run_once();
}

/* ---- the peer ---- */

bool scripted_has_connection(void)
{
    struct pollfd poller = {.fd = scripted.listener, .events = POLLIN};
    return poll(&poller, 1, 0) > 0;
}

enum act { ACCEPT, READ, PEEK, WRITE, TICKET, LEAVE };

static int act_on(SSL *ssl, enum act act, void *bytes, int length)
{
    switch (act) {
    case ACCEPT:
        return SSL_accept(ssl);
    case READ:
        return SSL_read(ssl, bytes, length);
    case PEEK:
        return SSL_peek(ssl, bytes, length);
    case WRITE:
        return SSL_write(ssl, bytes, length);
    case TICKET:
        return SSL_new_session_ticket(ssl) == 1 ? SSL_do_handshake(ssl) : 0;
    case LEAVE:
        return SSL_shutdown(ssl);
    }
    return -1;
}

/* OpenSSL writes without MSG_NOSIGNAL, and any of this may write. errno: EAGAIN = not yet. */
static int over_tls(SSL *ssl, enum act act, void *bytes, size_t length)
{
    sigset_t pipe, before;
    struct timespec now = {0};
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    ERR_clear_error();
    int done = act_on(ssl, act, bytes, (int)length), error = done > 0 ? 0 : SSL_get_error(ssl, done);
    while (sigtimedwait(&pipe, NULL, &now) == SIGPIPE)
        continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return done > 0 ? done : -1;
}

void scripted_shake(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    SSL *ssl = scripted.tls ? SSL_new(scripted.tls) : NULL;
    if (!scripted.tls)
        return;
    ck_assert(ssl && fd < DESCRIPTORS);
    SSL_set_fd(ssl, fd);
    while (over_tls(ssl, ACCEPT, NULL, 0) != 1) {
        if (errno != EAGAIN) {
            SSL_free(ssl);
            ERR_clear_error();
            return;
        }
        bool was_paused = allocations_pause(false); /* while the client runs they may fail */
        SCRIPTED_UNTIL(poll(&poller, 1, 0) > 0);
        allocations_pause(was_paused);
    }
    streams[fd] = ssl;
}

int scripted_accept_only(void)
{
    SCRIPTED_UNTIL(scripted_has_connection());
    int fd = accept4(scripted.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), yes = 1;
    ck_assert_int_ge(fd, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)); /* every send leaves at once */
    return fd;
}

int scripted_accept(void)
{
    int fd = scripted_accept_only();
    scripted_shake(fd);
    return fd;
}

static bool is_whole(const char *text, size_t length)
{
    const char *end = strstr(text, "\r\n\r\n");
    const char *field = strstr(text, "Content-Length: ");
    size_t body = field && end && field < end ? strtoul(field + 16, NULL, 10) : 0;
    return end && length >= (size_t)(end + 4 - text) + body;
}

static ssize_t receive(int fd, char *bytes, size_t size)
{
    return streams[fd] ? over_tls(streams[fd], READ, bytes, size) : read(fd, bytes, size);
}

void scripted_receive(int fd, char *text)
{
    size_t length = 0;
    text[0] = '\0';
    while (!is_whole(text, length)) {
        ssize_t count = receive(fd, text + length, SCRIPTED_REQUEST_SIZE - 1 - length);
        ck_assert_msg(count > 0 || (count < 0 && errno == EAGAIN), "the client left in its request: %s", text);
        if (count < 0) {
            struct pollfd poller = {.fd = fd, .events = POLLIN};
            SCRIPTED_UNTIL(poll(&poller, 1, 0) > 0);
        }
        length += count > 0 ? (size_t)count : 0;
        text[length] = '\0';
    }
}

void scripted_receive_any(int fd)
{
    static char text[SCRIPTED_REQUEST_SIZE];
    scripted_receive(fd, text);
    explicit_bzero(text, sizeof(text));
}

size_t scripted_peek(int fd, char *text)
{
    ssize_t count = real_recv(fd, text, SCRIPTED_REQUEST_SIZE - 1, MSG_PEEK | MSG_DONTWAIT);
    size_t length = count > 0 ? (size_t)count : 0;
    text[length] = '\0';
    return length;
}

static ssize_t transmit(int fd, const char *bytes, size_t length)
{
    return streams[fd] ? over_tls(streams[fd], WRITE, (char *)bytes, length)
                       : real_send(fd, bytes, length, MSG_NOSIGNAL);
}

void scripted_send_bytes(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t count = transmit(fd, bytes, length);
        if (count < 0 && errno == EAGAIN) {
            scripted_run_once();
            continue;
        }
        if (count <= 0)
            return; /* the client had enough */
        bytes += count;
        length -= (size_t)count;
    }
}

size_t scripted_hear(int fd, char *text)
{
    if (!streams[fd])
        return scripted_peek(fd, text);
    int count = over_tls(streams[fd], PEEK, text, SCRIPTED_REQUEST_SIZE - 1);
    size_t length = count > 0 ? (size_t)count : 0;
    text[length] = '\0';
    return length;
}

bool scripted_is_asked(int fd)
{
    static char text[SCRIPTED_REQUEST_SIZE];
    return scripted_hear(fd, text) > 0;
}

void scripted_send_ticket(int fd)
{
    ck_assert_int_eq(over_tls(streams[fd], TICKET, NULL, 0), 1);
}

void scripted_send(int fd, const char *text)
{
    scripted_send_bytes(fd, text, strlen(text));
}

void scripted_answer(int fd, const char *body)
{
    char text[512];
    int length = snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    ck_assert_int_lt(length, (int)sizeof(text));
    scripted_send_bytes(fd, text, (size_t)length);
}

static void free_stream(int fd)
{
    SSL_free(streams[fd]);
    streams[fd] = NULL;
    ERR_clear_error();
}

void scripted_end(int fd)
{
    if (streams[fd])
        (void)over_tls(streams[fd], LEAVE, NULL, 0);
    shutdown(fd, SHUT_WR);
}

void scripted_close(int fd)
{
    if (streams[fd])
        (void)over_tls(streams[fd], LEAVE, NULL, 0);
    free_stream(fd);
    close(fd);
}

void scripted_reset(int fd)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    free_stream(fd);
    close(fd);
}

bool scripted_is_closed(int fd)
{
    char bytes[4096];
    ssize_t count;
    do
        count = read(fd, bytes, sizeof(bytes));
    while (count > 0);
    return count == 0 || errno != EAGAIN;
}
