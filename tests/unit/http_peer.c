/* HTTP/1.1 with every mistake that a test needs, over sockets and TLS.
 *
 * Invariants: the thread never waits for one connection while another has input, except until the kernel takes more
 * output; it raises no SIGPIPE. That signal is blocked in this thread only, so a SIGPIPE of the client is still
 * noticed.
 * Left out: pipelining, and bodies in chunks from the client. */
#include "tests/unit/http_peer.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/base.h"

#define CONNECTIONS_MAX 600

struct http_peer peer;

/* ---- bytes ---- */

/* Returns whether to try again. */
static bool wait_for_space(int fd)
{
    struct pollfd space = {.fd = fd, .events = POLLOUT};
    poll(&space, 1, 10);
    return !peer.stop;
}

static bool transmit(struct http_peer_connection *connection, const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length > 0) {
        ERR_clear_error();
        ssize_t sent = connection->ssl ? SSL_write(connection->ssl, at, (int)length)
                                       : send(connection->fd, at, length, MSG_NOSIGNAL);
        bool is_full = sent <= 0 && (connection->ssl ? SSL_get_error(connection->ssl, (int)sent) == SSL_ERROR_WANT_WRITE
                                                     : errno == EAGAIN || errno == EINTR);
        if (is_full && wait_for_space(connection->fd))
            continue;
        if (sent <= 0)
            return false; /* the client had enough */
        at += sent;
        length -= (size_t)sent;
    }
    return true;
}

/* Returns the number of bytes that arrived, 0 = none now, -1 = the client is gone. */
static int receive(struct http_peer_connection *connection, char *bytes, size_t size)
{
    if (!connection->ssl) {
        ssize_t count = recv(connection->fd, bytes, size, 0);
        return count > 0 ? (int)count : count < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    }
    ERR_clear_error();
    int count = SSL_read(connection->ssl, bytes, (int)size);
    return count > 0 ? count : SSL_get_error(connection->ssl, count) == SSL_ERROR_WANT_READ ? 0 : -1;
}

static void say(struct http_peer_connection *connection, const char *text)
{
    transmit(connection, text, strlen(text));
}

static void say_many(struct http_peer_connection *connection, size_t length)
{
    char *bytes = malloc(length);
    memset(bytes, 'x', length);
    transmit(connection, bytes, length);
    free(bytes);
}

static void say_cards(struct http_peer_connection *connection, int count)
{
    char head[64];
    snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", count * 16);
    say(connection, head);
    for (int i = 0; i < count; i++)
        say(connection, HTTP_PEER_CARD_NUMBER);
}

/* ---- HTTP/1.1 ---- */

static void say_ok(struct http_peer_connection *connection)
{
    char text[128];
    snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\nconnection %05d", connection->number);
    say(connection, text);
}

static void say_large_header(struct http_peer_connection *connection)
{
    say(connection, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 100; i++) {
        say(connection, "X-Large: ");
        say_many(connection, 1000);
        say(connection, "\r\n");
    }
    say(connection, "Content-Length: 0\r\n\r\n");
}

static void say_endless(struct http_peer_connection *connection)
{
    say(connection, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 64; i++) {
        say(connection, "400\r\n");
        say_many(connection, 0x400);
        say(connection, "\r\n");
    }
}

static int change_keys(SSL *ssl)
{
    return SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
}

static int change_all_keys(SSL *ssl)
{
    return SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
}

/* What is sent again and again until the client has had enough; each piece is a record of TLS. */
static const struct flood {
    const char *path, *begin, *piece;
    int (*before)(SSL *ssl); /* each piece; an empty piece sends what that makes, and nothing else */
} floods[] = {
#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    {"/flood-headers", "HTTP/1.1 200 OK\r\n", "X-Flood: abcdefghijklmnopqrstuvwxyz\r\n", NULL},
    {"/flood-interim", "", "HTTP/1.1 102 Processing\r\n\r\n", NULL},
    {"/flood-chunks", CHUNKED, "1\r\nx\r\n", NULL},
    {"/flood-extension", CHUNKED "1;x=", "abcdefghijklmnopqrstuvwxyz", NULL},
    {"/flood-quoted-extension", CHUNKED "1;x=\"", "abcdefghijklmnopqrstuvwxyz", NULL},
    {"/flood-zeros", CHUNKED, "00000000000000000000000000000000", NULL},
    {"/flood-trailers", CHUNKED "0\r\n", "X-Flood: abcdefghijklmnopqrstuvwxyz\r\n", NULL},
    {"/flood-bytes", CHUNKED "1;x=", "x", NULL},
    {"/flood-keys", "", "", change_keys},
    {"/flood-all-keys", "", "", change_all_keys},
    {"/flood-tickets", "", "", SSL_new_session_ticket},
#undef CHUNKED
};

static bool say_piece(struct http_peer_connection *connection, const struct flood *flood)
{
    if (!flood->before)
        return transmit(connection, flood->piece, strlen(flood->piece));
    if (!flood->before(connection->ssl) && SSL_get_state(connection->ssl) == TLS_ST_OK)
        return false;
    for (;;) {
        ERR_clear_error();
        int done = SSL_do_handshake(connection->ssl);
        if (done == 1)
            return true;
        if (SSL_get_error(connection->ssl, done) != SSL_ERROR_WANT_WRITE || !wait_for_space(connection->fd))
            return false;
    }
}

/* OpenSSL does not mind a session ticket that could not be sent. */
static bool is_gone(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLRDHUP};
    return poll(&poller, 1, 0) > 0;
}

static enum http_peer_end say_flood(struct http_peer_connection *connection, const struct flood *flood)
{
    (void)transmit(connection, flood->begin, strlen(flood->begin));
    while (!peer.stop && !is_gone(connection->fd) && say_piece(connection, flood))
        peer.pieces++;
    return HTTP_PEER_DROPS;
}

static const struct answer {
    const char *path;
    const char *text;
    enum http_peer_end end;
} answers[] = {
    {"/close", "", HTTP_PEER_CLOSES},
    {"/drop", "", HTTP_PEER_DROPS},
    {"/reset", "", HTTP_PEER_RESETS},
    {"/partial",
     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nRetry-After: 7\r\nContent-Length: 100\r\n\r\n{\"pan\":",
     HTTP_PEER_CLOSES},
    {"/partial-header", "HTTP/1.1 200 OK\r\nContent-", HTTP_PEER_CLOSES},
    {"/partial-chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", HTTP_PEER_CLOSES},
    {"/partial-interim", "HTTP/1.1 103 Early Hints\r\n\r\n", HTTP_PEER_CLOSES},
    {"/until-close", "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}", HTTP_PEER_CLOSES},
    {"/partial-drop", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"pan\":", HTTP_PEER_DROPS},
    {"/partial-header-drop", "HTTP/1.1 200 OK\r\nContent-", HTTP_PEER_DROPS},
    {"/partial-chunk-drop", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", HTTP_PEER_DROPS},
    {"/garbage", "what do you want\r\n\r\n", HTTP_PEER_CLOSES},
    {"/headers", "HTTP/1.1 200 OK\r\nX-A: b\r\nX-B: cccccccccccccccccccccccccccc\r\nContent-Length: 2\r\n\r\nok",
     HTTP_PEER_GOES_ON},
    {"/folded-first",
     "HTTP/1.1 200 OK\r\n folded: x\r\n folded again and again and again\r\nContent-Length: 2\r\n\r\nok",
     HTTP_PEER_GOES_ON},
    {"/hang", "", HTTP_PEER_GOES_ON},
    {"/hang-in-body", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome", HTTP_PEER_GOES_ON},
    {"/chunked",
     "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nRetry-After: 9\r\n\r\n",
     HTTP_PEER_GOES_ON},
    {"/redirect", "HTTP/1.1 302 Found\r\nLocation: /ok\r\nContent-Length: 0\r\n\r\n", HTTP_PEER_GOES_ON},
    {"/interim",
     "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n"
     "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
     HTTP_PEER_GOES_ON},
    {"/noted-interim",
     "HTTP/1.1 103 Early Hints\r\nStripe-Should-Retry: false\r\n\r\n"
     "HTTP/1.1 500 No\r\nTransient-Error: true\r\nContent-Length: 2\r\n\r\nno",
     HTTP_PEER_GOES_ON},
    {"/noted-trailer",
     "HTTP/1.1 500 No\r\nTransient-Error: true\r\nTransfer-Encoding: chunked\r\n\r\n"
     "2\r\nno\r\n0\r\nStripe-Should-Retry: false\r\nTransient-Error: false\r\n\r\n",
     HTTP_PEER_GOES_ON},
    {"/noted-false-status",
     "HTTP/1.1 500 No\r\nTransient-Error: true\r\nTransfer-Encoding: chunked\r\n\r\n"
     "2\r\nno\r\n0\r\nHTTP/1.1 100 X: y\r\nStripe-Should-Retry: false\r\nTransient-Error: false\r\n\r\n",
     HTTP_PEER_GOES_ON},
    {"/noted-redirect", "HTTP/1.1 302 Found\r\nLocation: /noted-interim\r\nContent-Length: 0\r\n\r\n",
     HTTP_PEER_GOES_ON},
    {"/noted-folded",
     "HTTP/1.1 500 No\r\nTransient-Error: true\r\nStripe-Should-Retry: tr\r\n ue\r\nContent-Length: 0\r\n\r\n",
     HTTP_PEER_GOES_ON},
    {"/noted-cut", "HTTP/1.1 500 No\r\nTransient-Error: true\r\nContent-Length: 5\r\n\r\nno", HTTP_PEER_CLOSES},
#define CARD "{\"id\":\"card_1\",\"pan\":\"" HTTP_PEER_CARD_NUMBER "\"}" /* 39 bytes */
    {"/card", "HTTP/1.1 201 Created\r\nContent-Length: 39\r\n\r\n" CARD, HTTP_PEER_GOES_ON},
    {"/card-then-close", "HTTP/1.1 200 OK\r\nContent-Length: 39\r\n\r\n" CARD, HTTP_PEER_CLOSES},
    {"/card-until-close", "HTTP/1.0 200 OK\r\n\r\n" CARD, HTTP_PEER_CLOSES},
    {"/card-error", "HTTP/1.1 500 No\r\nContent-Length: 39\r\n\r\n" CARD, HTTP_PEER_GOES_ON},
    {"/card-chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n27\r\n" CARD "\r\n0\r\n\r\n",
     HTTP_PEER_GOES_ON},
    {"/card-cut", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" CARD, HTTP_PEER_CLOSES},
    {"/card-drop", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" CARD, HTTP_PEER_DROPS},
    {"/card-reset", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" CARD, HTTP_PEER_RESETS},
    {"/card-hang", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" CARD, HTTP_PEER_GOES_ON},
    {"/card-twice", "HTTP/1.1 200 OK\r\nContent-Length: 39\r\n\r\n" CARD CARD, HTTP_PEER_GOES_ON},
    {"/card-garbage", CARD "\r\n\r\n", HTTP_PEER_GOES_ON},
    {"/card-header",
     "HTTP/1.1 302 Found\r\nX-Card: " CARD "\r\nLocation: /" HTTP_PEER_CARD_NUMBER "\r\nContent-Length: 0\r\n\r\n",
     HTTP_PEER_GOES_ON},
    {"/card-half-header", "HTTP/1.1 200 OK\r\nX-Card: " CARD, HTTP_PEER_CLOSES},
    {"/card-trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Card: " CARD "\r\n\r\n",
     HTTP_PEER_GOES_ON},
#undef CARD
    {"/upgrade", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: tea\r\nConnection: upgrade\r\n\r\n", HTTP_PEER_CLOSES},
    {"/encoded", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08!",
     HTTP_PEER_GOES_ON},
};

/* What a path means. */
static enum http_peer_end answer(struct http_peer_connection *connection)
{
    const char *path = strchr(connection->request, ' ');
    path = path ? path + 1 : "";
    int length = (int)strcspn(path, " ");
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        if (strncmp(path, answers[i].path, (size_t)length) != 0 || answers[i].path[length])
            continue;
        say(connection, answers[i].text);
        return answers[i].end;
    }
    for (size_t i = 0; i < ARRAY_SIZE(floods); i++)
        if (strncmp(path, floods[i].path, (size_t)length) == 0 && !floods[i].path[length])
            return say_flood(connection, &floods[i]);
#define IS(text) (strncmp(path, text " ", sizeof(text)) == 0)
    if (IS("/close-once") && !peer.has_closed_once) {
        peer.has_closed_once = true;
        return HTTP_PEER_CLOSES;
    }
    if (IS("/ok") || IS("/close-once")) {
        say_ok(connection);
    } else if (IS("/ok-then-close")) {
        say_ok(connection);
        return HTTP_PEER_CLOSES;
    } else if (IS("/large")) {
        say(connection, "HTTP/1.1 200 OK\r\nContent-Length: 4097\r\n\r\n");
        say_many(connection, 4097);
    } else if (IS("/largest")) {
        say(connection, "HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n");
        say_many(connection, 4096);
    } else if (IS("/cards-largest")) {
        say_cards(connection, 256);
    } else if (IS("/cards-large")) {
        say_cards(connection, 2000);
    } else if (IS("/endless")) {
        say_endless(connection);
    } else if (IS("/large-header")) {
        say_large_header(connection);
    } else if (IS("/header")) {
        say(connection, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n");
        say(connection, peer.answer_header);
        say(connection, "\r\n\r\n");
    } else {
        say(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    }
#undef IS
    return HTTP_PEER_GOES_ON;
}

static bool is_whole(struct http_peer_connection *connection)
{
    connection->request[connection->length] = '\0';
    const char *end = strstr(connection->request, "\r\n\r\n");
    if (!end)
        return false;
    const char *length = strstr(connection->request, "Content-Length: ");
    size_t body_length = length && length < end ? strtoul(length + 16, NULL, 10) : 0;
    return connection->length >= (size_t)(end + 4 - connection->request) + body_length;
}

static void note_client(const SSL *ssl);

static enum http_peer_end take_request(struct http_peer_connection *connection)
{
    if (peer.kind == HTTP_PEER_PROTESTING && connection->request[0] == 0x16) { /* a handshake of TLS begins so */
        say(connection, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        return HTTP_PEER_CLOSES;
    }
    if (!is_whole(connection))
        return HTTP_PEER_GOES_ON;
    memcpy(peer.last_request, connection->request, connection->length + 1);
    if (connection->ssl)
        note_client(connection->ssl);
    peer.requests++;
    connection->length = 0;
    return answer(connection);
}

/* ---- connections ---- */

static int choose_protocol(SSL *ssl, const unsigned char **ret_chosen, unsigned char *ret_length,
                           const unsigned char *offered, unsigned int offered_length, void *unused)
{
    static const unsigned char wanted[] = "\x02h2\x08http/1.1";
    (void)ssl, (void)unused;
    unsigned char *chosen;
    if (peer.kind == HTTP_PEER_FORCING) {
        *ret_chosen = wanted + 1;
        *ret_length = 2;
        return SSL_TLSEXT_ERR_OK;
    }
    int found = SSL_select_next_proto(&chosen, ret_length, wanted + 3, sizeof(wanted) - 4, offered, offered_length);
    *ret_chosen = chosen;
    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

static const struct certificate *client_authority;

void http_peer_require_certificate(const struct certificate *authority)
{
    client_authority = authority;
}

static void note_client(const SSL *ssl)
{
    X509 *certificate = SSL_get0_peer_certificate(ssl);
    peer.client[0] = '\0';
    if (certificate)
        X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, peer.client, sizeof(peer.client));
}

/* Looks at the client's certificate, or sees that there is none, a moment after it has come: by then a client that need
 * not wait for that has sent its request. */
static void on_message(int is_sent, int version, int type, const void *bytes, size_t length, SSL *ssl, void *context)
{
    (void)version, (void)ssl, (void)context;
    if (!is_sent && type == SSL3_RT_HANDSHAKE && length > 0 && *(const unsigned char *)bytes == SSL3_MT_CERTIFICATE)
        (void)nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
}

static SSL_CTX *make_tls(const struct certificate *certificate)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    ck_assert_ptr_nonnull(tls);
    bool is_old = peer.kind == HTTP_PEER_OLD_TLS;
    if (is_old)
        SSL_CTX_set_security_level(tls, 0);
    int newest = is_old ? TLS1_1_VERSION : peer.kind == HTTP_PEER_TLS_1_2 ? TLS1_2_VERSION : TLS1_3_VERSION;
    ck_assert_int_eq(SSL_CTX_set_min_proto_version(tls, is_old ? TLS1_VERSION : newest), 1);
    ck_assert_int_eq(SSL_CTX_set_max_proto_version(tls, newest), 1);
    ck_assert_int_eq(SSL_CTX_use_certificate(tls, certificate->x509), 1);
    ck_assert_int_eq(SSL_CTX_use_PrivateKey(tls, certificate->key), 1);
    SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_alpn_select_cb(tls, choose_protocol, NULL);
    if (client_authority) {
        ck_assert_int_eq(X509_STORE_add_cert(SSL_CTX_get_cert_store(tls), client_authority->x509), 1);
        SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        SSL_CTX_set_session_id_context(tls, (const unsigned char *)"peer", 4);
        SSL_CTX_set_msg_callback(tls, on_message);
    }
    return tls;
}

static void accept_one(void)
{
    int fd = accept4(peer.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    struct http_peer_connection *connection = peer.count < CONNECTIONS_MAX ? calloc(1, sizeof(*connection)) : NULL;
    SSL *ssl = connection && peer.tls ? SSL_new(peer.tls) : NULL;
    if (!connection || (peer.tls && !ssl)) {
        free(connection);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (ssl)
        SSL_set_fd(ssl, fd);
    connection->fd = fd;
    connection->ssl = ssl;
    connection->number = ++peer.accepted;
    peer.open++;
    peer.connections[peer.count++] = connection;
}

static void end(struct http_peer_connection *connection, enum http_peer_end how)
{
    if (how == HTTP_PEER_RESETS) {
        struct linger linger = {.l_onoff = 1, .l_linger = 0};
        setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    }
    ERR_clear_error();
    if (connection->ssl && how == HTTP_PEER_CLOSES && connection->is_shaken)
        SSL_shutdown(connection->ssl);
    SSL_free(connection->ssl);
    close(connection->fd);
    free(connection);
    peer.open--;
}

static bool shake_hands(struct http_peer_connection *connection, enum http_peer_end *ret_end)
{
    ERR_clear_error();
    int done = SSL_accept(connection->ssl);
    connection->is_shaken = done == 1;
    *ret_end =
        done == 1 || SSL_get_error(connection->ssl, done) == SSL_ERROR_WANT_READ ? HTTP_PEER_GOES_ON : HTTP_PEER_CLOSES;
    peer.resumed += done == 1 && SSL_session_reused(connection->ssl);
    return done == 1;
}

static enum http_peer_end serve(struct http_peer_connection *connection)
{
    enum http_peer_end end = HTTP_PEER_GOES_ON;
    if (connection->ssl && !connection->is_shaken && !shake_hands(connection, &end))
        return end;
    while (end == HTTP_PEER_GOES_ON) {
        size_t capacity = HTTP_PEER_REQUEST_MAX - connection->length;
        if (capacity == 0)
            return HTTP_PEER_CLOSES;
        int count = receive(connection, connection->request + connection->length, capacity);
        if (count <= 0)
            return count == 0 ? HTTP_PEER_GOES_ON : HTTP_PEER_CLOSES;
        connection->length += (size_t)count;
        end = take_request(connection);
    }
    return end;
}

static void *run(void *unused)
{
    static struct pollfd polls[CONNECTIONS_MAX + 1];
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE); /* OpenSSL writes without MSG_NOSIGNAL */
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    while (!peer.stop) {
        polls[0] = (struct pollfd){.fd = peer.listener, .events = POLLIN};
        for (int i = 0; i < peer.count; i++)
            polls[i + 1] = (struct pollfd){.fd = peer.connections[i]->fd, .events = POLLIN};
        int count = peer.count;
        bool is_ready = poll(polls, (nfds_t)count + 1, 10) > 0;
        enum http_peer_end released = (enum http_peer_end)atomic_exchange(&peer.release, HTTP_PEER_GOES_ON);
        for (int i = count - 1; i >= 0; i--) {
            enum http_peer_end how = released;
            if (is_ready && polls[i + 1].revents && released == HTTP_PEER_GOES_ON)
                how = serve(peer.connections[i]);
            if (how == HTTP_PEER_GOES_ON)
                continue;
            end(peer.connections[i], how);
            peer.connections[i] = peer.connections[--peer.count];
        }
        if (is_ready && polls[0].revents)
            accept_one();
    }
    while (peer.count > 0)
        end(peer.connections[--peer.count], HTTP_PEER_CLOSES);
    return unused;
}

/* ---- for the tests ---- */

int http_peer_listen(int *ret_port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(fd, 1024), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

void http_peer_start(enum http_peer_kind kind, const struct certificate *certificate)
{
    memset(&peer, 0, sizeof(peer));
    peer.kind = kind;
    peer.listener = http_peer_listen(&peer.port);
    peer.connections = calloc(CONNECTIONS_MAX, sizeof(*peer.connections));
    ck_assert_ptr_nonnull(peer.connections);
    if (certificate)
        peer.tls = make_tls(certificate);
    ck_assert_int_eq(pthread_create(&peer.thread, NULL, run, NULL), 0);
}

void http_peer_stop_listening(void)
{
    shutdown(peer.listener, SHUT_RDWR);
}

void http_peer_stop(void)
{
    peer.stop = true;
    pthread_join(peer.thread, NULL);
    close(peer.listener);
    SSL_CTX_free(peer.tls);
    free(peer.connections);
}
