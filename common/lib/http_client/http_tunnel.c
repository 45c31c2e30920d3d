/* See http_tunnel.h. A proxy is a peer like any other: it may answer anything, late, without end.
 *
 * Invariants: of an answer the head is read and nothing else, interim answers included (HTTP_HEADER_MAX); a proxy that
 * says more than its head has no part in what follows, so its connection is refused.
 * Left out: TLS to a proxy, credentials. libcurl has both, but reads the body of a 407 as long as there is one, inside
 * one call. */
#include "common/lib/http_client/http_tunnel.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/lib/base/secret.h"
#include "common/lib/http_client/http_answer.h"

struct http_tunnel {
    struct buf request; /* what is left of it */
    struct http_answer answer;
    struct http_call call; /* gets the status */
};

struct http_tunnel *http_tunnel_new(const char *authority)
{
    struct http_tunnel *tunnel = calloc(1, sizeof(*tunnel));
    if (!tunnel)
        return NULL;
    buf_init(&tunnel->request, HTTP_CALL_TEXT_MAX);
    buf_put_format(&tunnel->request, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority);
    http_call_init(&tunnel->call, 0);
    http_answer_begin(&tunnel->answer, &tunnel->call, 0);
    /* guard: the body of a proxy's answer is not read */
    tunnel->answer.ends_at_head = true;
    if (!tunnel->request.failed)
        return tunnel;
    http_tunnel_free(tunnel);
    return NULL;
}

void http_tunnel_free(struct http_tunnel *tunnel)
{
    if (tunnel)
        buf_done(&tunnel->request);
    free(tunnel);
}

static enum http_stream_shaking refuse(char ret_why[HTTP_TLS_WHY_SIZE], const char *why)
{
    snprintf(ret_why, HTTP_TLS_WHY_SIZE, "the proxy: %s", why);
    return HTTP_STREAM_REFUSED;
}

static enum http_stream_shaking judge(int status, bool is_all, char ret_why[HTTP_TLS_WHY_SIZE])
{
    if (status == 407)
        return refuse(ret_why, "it wants credentials (407)");
    if (status < 200 || status > 299) {
        snprintf(ret_why, HTTP_TLS_WHY_SIZE, "the proxy answered %d to CONNECT", status);
        return HTTP_STREAM_REFUSED;
    }
    /* guard: what a proxy says behind its answer is not the peer's */
    return is_all ? HTTP_STREAM_SHAKEN : refuse(ret_why, "bytes behind its answer to CONNECT");
}

static enum http_stream_shaking read_some(struct http_tunnel *tunnel, struct http_stream *stream, char *input,
                                          size_t size, char ret_why[HTTP_TLS_WHY_SIZE])
{
    struct http_answer *answer = &tunnel->answer;
    ssize_t count = http_stream_read(stream, input, size);
    if (count == HTTP_STREAM_AGAIN)
        return HTTP_STREAM_READS;
    size_t used = 0;
    enum http_answer_state state = HTTP_ANSWER_BROKEN;
    if (count > 0) {
        state = http_answer_take(answer, input, (size_t)count, &used);
        secret_wipe(input, (size_t)count);
    } else if (count == 0) {
        state = http_answer_close(answer);
    }
    switch (state) {
    case HTTP_ANSWER_GOES_ON:
        return HTTP_STREAM_READS;
    case HTTP_ANSWER_WHOLE:
        return judge(tunnel->call.status, (ssize_t)used == count, ret_why);
    case HTTP_ANSWER_BROKEN:
        break;
    }
    return refuse(ret_why, answer->objection ? answer->objection : stream->why);
}

enum http_stream_shaking http_tunnel_shake(struct http_tunnel *tunnel, struct http_stream *stream, char *input,
                                           size_t size, char ret_why[HTTP_TLS_WHY_SIZE])
{
    struct buf *request = &tunnel->request;
    if (request->length > 0) {
        ssize_t count = http_stream_write(stream, request->bytes, request->length);
        if (count < 0)
            return refuse(ret_why, stream->why);
        buf_consume(request, (size_t)count);
        if (request->length > 0)
            return HTTP_STREAM_WRITES;
    }
    return read_some(tunnel, stream, input, size, ret_why);
}
