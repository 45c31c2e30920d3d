/* The HTTP server's listener: which connections to accept, the sweep for deadlines, drain and close.
 *
 * The listening socket is our own on a uv_poll_t: libuv's accept loop cannot be paused, and when descriptors run out it
 * either drops the waiting connections or spins. Here accepting pauses for a moment, and the kernel holds the
 * connections. Deadlines are numbers in the connections, compared a few times a second: setting one costs nothing, and
 * looking at ten thousand is cheap.
 *
 * Invariants: every handle is closed before on_closed is called, from the loop; a server without connections wakes up
 * for new ones only.
 * Left out: TLS (a proxy in front), which client a connection belongs to (http_origin.c). */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_server/http_server_internal.h"

#define BACKLOG 1024
#define ACCEPT_BATCH 64 /* so that a flood of connections leaves time for those that exist */
#define ACCEPT_PAUSE_MS 100
/* Of each connection, doubled by the kernel, which otherwise lets it grow to 4 MiB for a client that does not read.
 * With less a single packet of the loopback interface fills it, and each waits for a delayed acknowledgement. */
#define SEND_BUFFER (64 * 1024)
#define SWEEP_MS 250
#define OUTPUT_MAX ((size_t)16 * 1024 * 1024)
#define HOST_MAX 256

struct address {
    char host[HOST_MAX]; /* "" = any */
    char port[6];
};

void http_server_defaults(struct http_server_options *ret_options)
{
    *ret_options = (struct http_server_options){
        .listen_fd = -1,
        .max_connections = 10000,
        .young_ms = 1000,
        .surplus_max = 256,
        .body_max = (size_t)64 * 1024,
        .target_max = (size_t)4 * 1024,
        .header_max = (size_t)16 * 1024,
        .header_timeout_ms = 5000,
        .body_timeout_ms = 10000,
        .idle_timeout_ms = 60000,
        .write_timeout_ms = 10000,
        .memory_max = (size_t)64 * 1024 * 1024,
    };
}

/* ---- connections ---- */

static void free_server(struct http_server *server)
{
    while (server->free_slots) {
        struct http_slot *slot = server->free_slots;
        server->free_slots = slot->next_free;
        http_slot_free(slot);
    }
    buf_done(&server->gathered);
    buf_done(&server->scratch);
    address_caps_free(server->caps);
    free(server->server_name);
    free(server);
}

static void release(void *module)
{
    struct http_server *server = module;
    void (*on_closed)(void *context) = server->on_closed;
    void *context = server->closed_context;
    free_server(server);
    if (on_closed)
        on_closed(context);
}

static void on_sweep(uv_timer_t *timer)
{
    struct http_server *server = container_of(timer, struct http_server, sweep);
    int64_t now_ms = clock_mono_ms();
    struct http_conn *conn;
    server->lingered_now = 0;
    /* Nothing is freed during this loop: that happens in close callbacks. */
    LIST_FOREACH(conn, &server->conns, all)
    http_conn_expire(conn, now_ms);
    http_pressure_sweep(server);
    if (server->connections == 0)
        uv_timer_stop(timer);
}

/* ---- accepting ---- */

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_pause_over(uv_timer_t *timer)
{
    struct http_server *server = container_of(timer, struct http_server, accept_pause);
    if (server->listen_fd >= 0 && !server->is_draining)
        uv_poll_start(&server->listener, UV_READABLE, on_connection);
}

static void pause_accepting(struct http_server *server, int error)
{
    server->counts.accept_pauses++;
    if (server->options.on_accept_pauses)
        server->options.on_accept_pauses(server->options.context, error);
    uv_poll_stop(&server->listener);
    uv_timer_start(&server->accept_pause, on_pause_over, ACCEPT_PAUSE_MS, 0);
}

static void take(struct http_server *server, int fd)
{
    if (server->options.admits && !server->options.admits(server->options.context, fd)) {
        close(fd);
        return;
    }
    int open = server->connections - server->surplus - server->closing_count;
    /* guard: at the limit the connection idle longest gives way */
    bool is_surplus = open >= server->options.max_connections && !http_pressure_close_one(server);
    if (is_surplus && server->surplus >= server->options.surplus_max) {
        close(fd);
        return;
    }
    if (server->connections == 0)
        uv_timer_start(&server->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    http_conn_open(server, fd, is_surplus);
}

/* accept(2): these are errors of the connection, not of the listener. */
static bool is_of_one_connection(int error)
{
    return error == ECONNABORTED || error == EINTR || error == EPROTO || error == ENETDOWN || error == ENOPROTOOPT ||
           error == EHOSTDOWN || error == ENONET || error == EHOSTUNREACH || error == EOPNOTSUPP ||
           error == ENETUNREACH || error == EPERM || error == ETIMEDOUT;
}

static void accept_some(struct http_server *server, int most)
{
    for (int i = 0; i < most && server->listen_fd >= 0; i++) {
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take(server, fd);
        } else if (errno == EAGAIN) {
            return;
        } else if (!is_of_one_connection(errno)) {
            int error = errno;
            /* guard: without a file an idle connection gives way */
            if (error == EMFILE && http_pressure_close_one(server))
                continue;
            pause_accepting(server, error);
            return;
        }
    }
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    (void)events;
    struct http_server *server = container_of(poll, struct http_server, listener);
    if (status < 0)
        pause_accepting(server, -status);
    else
        accept_some(server, ACCEPT_BATCH);
}

/* ---- opening ---- */

static bool bad_address(const char *text, struct err *err)
{
    return err_set(err, ERR_CONFIG, "\"%s\" is not an address to listen on, expected host:port, [ipv6]:port or *:port",
                   text);
}

static bool split_address(const char *text, struct address *ret_address, struct err *err)
{
    const char *colon = text ? strrchr(text, ':') : NULL;
    if (!colon)
        return bad_address(text ? text : "", err);
    const char *host = text;
    size_t host_length = (size_t)(colon - text), port_length = strlen(colon + 1);
    bool is_bracketed = host_length >= 2 && host[0] == '[' && host[host_length - 1] == ']';
    if (is_bracketed) {
        host++;
        host_length -= 2;
    }
    bool is_any = host_length == 1 && host[0] == '*';
    if (host_length == 0 || host_length >= HOST_MAX || (!is_bracketed && memchr(host, ':', host_length)))
        return bad_address(text, err);
    if (port_length == 0 || port_length > 5 || strspn(colon + 1, "0123456789") != port_length ||
        strtol(colon + 1, NULL, 10) > 65535)
        return bad_address(text, err);
    struct address address = {0};
    memcpy(address.host, host, is_any ? 0 : host_length);
    memcpy(address.port, colon + 1, port_length);
    *ret_address = address;
    return true;
}

static bool set_flag(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

/* These are inherited by accepted sockets. */
static bool set_flags(int fd)
{
    int domain = AF_UNSPEC;
    socklen_t length = sizeof(domain);
    bool is_file = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
    return (is_file || set_flag(fd, IPPROTO_TCP, TCP_NODELAY, 1)) && set_flag(fd, SOL_SOCKET, SO_SNDBUF, SEND_BUFFER);
}

/* Returns a descriptor, or -1 with errno set. */
static int listen_at(const struct addrinfo *at)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    /* No SO_REUSEPORT: a second server on the same port is a mistake that must be seen. */
    bool is_set = set_flag(fd, SOL_SOCKET, SO_REUSEADDR, 1) && set_flags(fd) &&
                  (at->ai_family != AF_INET6 || set_flag(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0));
    if (is_set && bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static bool open_listener(const char *text, int *ret_fd, struct err *err)
{
    struct address address = {0};
    if (!split_address(text, &address, err))
        return false;
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    int result = getaddrinfo(address.host[0] != '\0' ? address.host : NULL, address.port, &hints, &found);
    if (result != 0)
        return err_set(err, ERR_SYSTEM, "can't listen on %s: %s", text,
                       result == EAI_SYSTEM ? strerror(errno) : gai_strerror(result));
    bool is_any = address.host[0] == '\0';
    int fd = -1, error = EADDRNOTAVAIL;
    /* For any address the IPv6 socket is tried first, as it takes IPv4 as well. */
    for (int round = 0; round < 2 && fd < 0; round++) {
        for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
            bool is_first = !is_any || at->ai_family == AF_INET6;
            if (is_first != (round == 0) || (fd = listen_at(at)) >= 0)
                continue;
            error = errno;
        }
        if (error == EADDRINUSE)
            break;
    }
    freeaddrinfo(found);
    if (fd < 0)
        return err_set(err, ERR_SYSTEM, "can't listen on %s: %s", text, strerror(error));
    *ret_fd = fd;
    return true;
}

static bool get_listener(const struct http_server_options *options, int *ret_fd, struct err *err)
{
    if (options->listen_fd < 0)
        return open_listener(options->listen, ret_fd, err);
    if (!set_flags(options->listen_fd)) {
        err_set(err, ERR_SYSTEM, "can't use the socket that was passed: %s", strerror(errno));
        close(options->listen_fd);
        return false;
    }
    *ret_fd = options->listen_fd;
    return true;
}

static int port_of(const struct sockaddr_storage *address)
{
    in_port_t port;
    /* In both families the port is behind the family. */
    _Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port), "ports");
    memcpy(&port, (const char *)address + offsetof(struct sockaddr_in, sin_port), sizeof(port));
    return ntohs(port);
}

static void ignore_broken_pipes(void)
{
    struct sigaction action;
    if (sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
}

static struct http_server *new_server(uv_loop_t *loop, const struct http_server_options *options)
{
    struct http_server *server = calloc(1, sizeof(*server));
    if (!server)
        return NULL;
    server->loop = loop;
    server->options = *options;
    server->reader = &http_conn_reader;
    server->options.listen = NULL; /* the caller's, and not needed any more */
    server->options.server_name = NULL;
    buf_init(&server->gathered, OUTPUT_MAX);
    buf_init(&server->scratch, OUTPUT_MAX);
    LIST_INIT(&server->conns);
    TAILQ_INIT(&server->ready);
    TAILQ_INIT(&server->large);
    for (int i = 0; i < HTTP_WAIT_NONE; i++)
        TAILQ_INIT(&server->waiting[i]);
    if ((options->server_name && !(server->server_name = strdup(options->server_name))) ||
        (options->max_per_address > 0 && !(server->caps = address_caps_new(options->max_per_address)))) {
        free_server(server);
        return NULL;
    }
    return server;
}

bool http_server_open(uv_loop_t *loop, const struct http_server_options *options, struct http_server **ret_server,
                      struct err *err)
{
    assert(options->on_request && options->max_connections > 0);
    struct http_server *server = new_server(loop, options);
    if (!server) {
        if (options->listen_fd >= 0)
            close(options->listen_fd);
        return err_set(err, ERR_MEMORY, "out of memory for an HTTP server");
    }
    if (!get_listener(options, &server->listen_fd, err)) {
        free_server(server);
        return false;
    }
    int result = uv_poll_init(loop, &server->listener, server->listen_fd);
    if (result != 0) {
        close(server->listen_fd);
        free_server(server);
        return err_set(err, ERR_SYSTEM, "can't watch the listening socket: %s", uv_strerror(result));
    }
    ignore_broken_pipes();
    socklen_t length = sizeof(server->address);
    (void)getsockname(server->listen_fd, (struct sockaddr *)&server->address, &length); /* ignoring: for people */
    uv_timer_init(loop, &server->accept_pause);
    uv_timer_init(loop, &server->sweep);
    uv_idle_init(loop, &server->run_ready);
    closing_start(&server->closing, release, server, NULL, NULL); /* the listener may close before the server does */
    uv_poll_start(&server->listener, UV_READABLE, on_connection);
    *ret_server = server;
    return true;
}

int http_server_port(const struct http_server *server)
{
    return port_of(&server->address);
}

void http_server_address(const struct http_server *server, char ret_text[HTTP_SERVER_ADDRESS_SIZE])
{
    struct ip_address address = ip_address_of_socket(&server->address);
    char text[IP_ADDRESS_TEXT_SIZE];
    bool is_v4 = server->address.ss_family == AF_INET;
    ip_address_format(&address, text);
    snprintf(ret_text, HTTP_SERVER_ADDRESS_SIZE, is_v4 ? "%s:%d" : "[%s]:%d", text, http_server_port(server));
}

int http_server_connections(const struct http_server *server)
{
    return server->connections;
}

struct http_server_counts http_server_counts(const struct http_server *server)
{
    return server->counts;
}

/* ---- the end ---- */

static void stop_listening(struct http_server *server)
{
    if (server->listen_fd < 0)
        return;
    closing_handle(&server->closing, &server->listener); /* before its descriptor, which may be another's at once */
    uv_timer_stop(&server->accept_pause);
    close(server->listen_fd);
    server->listen_fd = -1;
}

void http_server_drain(struct http_server *server)
{
    if (server->is_draining || server->is_closing)
        return;
    /* guard: a draining api takes no connection from a passed socket */
    if (server->options.listen_fd >= 0) {
        uv_poll_stop(&server->listener);
    } else {
        accept_some(server, BACKLOG); /* closing the socket would reset them */
        stop_listening(server);
    }
    server->is_draining = true;
    struct http_conn *conn;
    LIST_FOREACH(conn, &server->conns, all)
    http_conn_drain(conn);
}

bool http_server_is_drained(const struct http_server *server)
{
    return server->connections == 0;
}

void http_server_close(struct http_server *server, void (*on_closed)(void *context), void *context)
{
    assert(!server->is_closing);
    server->on_closed = on_closed;
    server->closed_context = context;
    stop_listening(server);
    server->is_closing = true;
    closing_handle(&server->closing, &server->accept_pause);
    closing_handle(&server->closing, &server->sweep);
    closing_handle(&server->closing, &server->run_ready);
    struct http_conn *conn;
    LIST_FOREACH(conn, &server->conns, all)
    {
        (void)closing_part(&server->closing); /* until it is freed */
        http_conn_close(conn);
    }
    closing_end(&server->closing);
}
