/* HTTP/2 of the peer: frames, and the test's script for each request.
 *
 * The content of a request is not read (that would need HPACK): the script goes by the order in which requests become
 * whole. Answers need no table either: `:status: 200` is a byte of HPACK's static one.
 * Left out: flow control (nothing here is larger than a window), priorities, padding in answers. */
#include "tests/unit/http_peer.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/base/base.h"

enum frame_type { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, PING = 6, GOAWAY = 7 };
enum { END_STREAM = 0x1, ACK = 0x1, END_HEADERS = 0x4 };
enum { NO_ERROR = 0, INTERNAL_ERROR = 2, REFUSED_STREAM = 7, HTTP_1_1_REQUIRED = 13 };

#define FRAME_HEADER 9
#define GREETING "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define GREETING_LENGTH (sizeof(GREETING) - 1)
/* Indexed; then literals that are not to be: the names at 8 and 28 in the static table. */
#define STATUS_200 "\x88"
#define STATUS_103 "\x08\x03\x31\x30\x33"
#define CONTENT_LENGTH "\x0f\x0d\x02" /* two digits follow */

static void send_frame(struct http_peer_connection *connection, enum frame_type type, unsigned char flags,
                       uint32_t stream, const void *payload, size_t length)
{
    unsigned char bytes[FRAME_HEADER + 256] = {0, (unsigned char)(length >> 8), (unsigned char)length,
                                               (unsigned char)type, flags};
    ck_assert_uint_le(length, 256);
    uint32_t wire = htonl(stream);
    memcpy(bytes + 5, &wire, 4);
    memcpy(bytes + FRAME_HEADER, payload, length);
    http_peer_send(connection, bytes, FRAME_HEADER + length);
}

static void reset(struct http_peer_connection *connection, uint32_t stream, uint32_t error)
{
    uint32_t wire = htonl(error);
    send_frame(connection, RST_STREAM, 0, stream, &wire, sizeof(wire));
}

static void go_away(struct http_peer_connection *connection, uint32_t last_stream)
{
    uint32_t wire[2] = {htonl(last_stream), htonl(NO_ERROR)};
    send_frame(connection, GOAWAY, 0, 0, wire, sizeof(wire));
}

/* The stream before this one. */
static uint32_t before(uint32_t stream)
{
    return stream > 2 ? stream - 2 : 0;
}

static void send_headers(struct http_peer_connection *connection, uint32_t stream, const char *block)
{
    send_frame(connection, HEADERS, END_HEADERS, stream, block, strlen(block));
}

static void send_answer(struct http_peer_connection *connection, uint32_t stream)
{
    char body[32];
    snprintf(body, sizeof(body), "connection %05d", connection->number);
    send_headers(connection, stream, STATUS_200 CONTENT_LENGTH "16");
    send_frame(connection, DATA, END_STREAM, stream, body, strlen(body));
}

static void send_half(struct http_peer_connection *connection, uint32_t stream)
{
    send_headers(connection, stream, peer.hides_length ? STATUS_200 : STATUS_200 CONTENT_LENGTH "16");
    send_frame(connection, DATA, 0, stream, "{\"pan\":", 7);
}

static void answer_those_that_hang(struct http_peer_connection *connection)
{
    for (int i = 0; i < connection->hanging_count; i++)
        send_answer(connection, connection->hanging[i]);
    connection->hanging_count = 0;
}

static enum http_peer_end act(struct http_peer_connection *connection, uint32_t stream, enum http2_act what)
{
    switch (what) {
    case HTTP2_ANSWERS:
        send_answer(connection, stream);
        return HTTP_PEER_GOES_ON;
    case HTTP2_ANSWERS_ALL:
        send_answer(connection, stream);
        answer_those_that_hang(connection);
        return HTTP_PEER_GOES_ON;
    case HTTP2_HANGS:
        ck_assert_int_lt(connection->hanging_count, (int)ARRAY_SIZE(connection->hanging));
        connection->hanging[connection->hanging_count++] = stream;
        return HTTP_PEER_GOES_ON;
    case HTTP2_INTERIM_REFUSES:
        send_headers(connection, stream, STATUS_103);
        reset(connection, stream, REFUSED_STREAM);
        return HTTP_PEER_GOES_ON;
    case HTTP2_REFUSES:
        reset(connection, stream, REFUSED_STREAM);
        return HTTP_PEER_GOES_ON;
    case HTTP2_FAILS:
        reset(connection, stream, INTERNAL_ERROR);
        return HTTP_PEER_GOES_ON;
    case HTTP2_WANTS_1_1:
        reset(connection, stream, HTTP_1_1_REQUIRED);
        return HTTP_PEER_GOES_ON;
    case HTTP2_GOES_AWAY:
        go_away(connection, before(stream));
        answer_those_that_hang(connection);
        return HTTP_PEER_GOES_ON;
    case HTTP2_LEAVES:
        go_away(connection, 0);
        return HTTP_PEER_CLOSES;
    case HTTP2_CLOSES:
        return HTTP_PEER_CLOSES;
    case HTTP2_DROPS:
        return HTTP_PEER_DROPS;
    case HTTP2_RESETS:
        return HTTP_PEER_RESETS;
    case HTTP2_HALF_CLOSES:
        send_half(connection, stream);
        return HTTP_PEER_CLOSES;
    case HTTP2_HALF_RESETS:
        send_half(connection, stream);
        return HTTP_PEER_RESETS;
    case HTTP2_HALF_FAILS:
        send_half(connection, stream);
        reset(connection, stream, INTERNAL_ERROR);
        return HTTP_PEER_GOES_ON;
    case HTTP2_HALF_STOPS:
        send_half(connection, stream);
        reset(connection, stream, NO_ERROR);
        return HTTP_PEER_GOES_ON;
    case HTTP2_HALF_ENDS:
        send_half(connection, stream);
        send_frame(connection, DATA, END_STREAM, stream, "", 0);
        return HTTP_PEER_GOES_ON;
    case HTTP2_HALF_BABBLES:
        send_half(connection, stream);
        http_peer_send(connection, "HTTP/1.1 200 OK\r\n\r\n", 19);
        return HTTP_PEER_GOES_ON;
    }
    return HTTP_PEER_CLOSES;
}

static enum http_peer_end take_frame(struct http_peer_connection *connection, const unsigned char *frame, size_t length)
{
    uint32_t stream;
    memcpy(&stream, frame + 5, 4);
    stream = ntohl(stream);
    unsigned char type = frame[3], flags = frame[4];
    if (type == SETTINGS && !(flags & ACK))
        send_frame(connection, SETTINGS, ACK, 0, "", 0);
    if (type == PING && !(flags & ACK))
        send_frame(connection, PING, ACK, 0, frame + FRAME_HEADER, length);
    if ((type != DATA && type != HEADERS) || !(flags & END_STREAM))
        return HTTP_PEER_GOES_ON;
    if (stream > connection->last_stream)
        connection->last_stream = stream;
    peer.requests++;
    int number = peer.http2_requests++;
    return act(connection, stream, number < peer.acts_count ? peer.acts[number] : HTTP2_ANSWERS);
}

void http2_peer_leave(struct http_peer_connection *connection)
{
    go_away(connection, connection->last_stream);
}

enum http_peer_end http2_peer_take(struct http_peer_connection *connection)
{
    const unsigned char *bytes = (const unsigned char *)connection->request;
    size_t at = 0;
    if (!connection->is_greeted) {
        if (connection->length < GREETING_LENGTH)
            return HTTP_PEER_GOES_ON;
        if (memcmp(bytes, GREETING, GREETING_LENGTH) != 0)
            return HTTP_PEER_CLOSES;
        connection->is_greeted = true;
        at = GREETING_LENGTH;
        send_frame(connection, SETTINGS, 0, 0, "", 0);
    }
    enum http_peer_end end = HTTP_PEER_GOES_ON;
    while (end == HTTP_PEER_GOES_ON && connection->length - at >= FRAME_HEADER) {
        size_t length = (size_t)bytes[at] << 16 | (size_t)bytes[at + 1] << 8 | bytes[at + 2];
        if (connection->length - at < FRAME_HEADER + length)
            break;
        end = take_frame(connection, bytes + at, length);
        at += FRAME_HEADER + length;
    }
    memmove(connection->request, connection->request + at, connection->length - at);
    connection->length -= at;
    return end;
}
