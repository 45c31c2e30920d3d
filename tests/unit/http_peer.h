/* The other side of outgoing HTTP in tests: answers by the path, well or badly, in clear text or TLS.
 *
 * One thread with a poll loop, one peer at a time. Counters may be read at any time; last_request only when no call is
 * in flight; what the test sets is set before the call that it is for. */
#ifndef ISSUING_TEST_HTTP_PEER_H
#define ISSUING_TEST_HTTP_PEER_H

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/unit/certificate.h"

#define HTTP_PEER_REQUEST_MAX 80000 /* also of a frame of HTTP/2 */
#define HTTP2_ACTS_MAX 64
/* In the answers to /card, /card-cut ...; always by this name, so that it is in no memory that is written to. */
#define HTTP_PEER_CARD_NUMBER "4000001234562345"

enum http_peer_kind {
    HTTP_PEER_CLEAR,
    HTTP_PEER_TLS,       /* 1.3, HTTP/1.1 */
    HTTP_PEER_HTTP2,     /* as before, with HTTP/2 for whom offers it */
    HTTP_PEER_FORCING,   /* as before, but chooses HTTP/2 also when the client does not offer it */
    HTTP_PEER_TLS_1_2,   /* nothing newer, HTTP/1.1 */
    HTTP_PEER_OLD_TLS,   /* nothing newer than 1.1 */
    HTTP_PEER_PROTESTING /* clear text; answers 400 to what is not a request */
};

enum http_peer_end {
    HTTP_PEER_GOES_ON,
    HTTP_PEER_LEAVES, /* with HTTP/2's GOAWAY and TLS's close_notify */
    HTTP_PEER_CLOSES, /* with the latter */
    HTTP_PEER_DROPS,  /* with neither */
    HTTP_PEER_RESETS,
};

/* What becomes of a request over HTTP/2. */
enum http2_act {
    HTTP2_ANSWERS,     /* 200, "connection 00001" */
    HTTP2_ANSWERS_ALL, /* this one and those that hang */
    HTTP2_HANGS,
    HTTP2_REFUSES,         /* REFUSED_STREAM */
    HTTP2_INTERIM_REFUSES, /* the same after a 103 */
    HTTP2_FAILS,           /* INTERNAL_ERROR */
    HTTP2_WANTS_1_1,       /* HTTP_1_1_REQUIRED */
    HTTP2_GOES_AWAY,       /* GOAWAY that leaves this one out and answers those that hang */
    HTTP2_LEAVES,          /* GOAWAY that leaves all out, then the close */
    HTTP2_CLOSES,
    HTTP2_DROPS,
    HTTP2_RESETS,
    HTTP2_HALF_CLOSES, /* a header, half a body, then the close */
    HTTP2_HALF_RESETS,
    HTTP2_HALF_FAILS,
    HTTP2_HALF_STOPS,   /* RST_STREAM with NO_ERROR */
    HTTP2_HALF_ENDS,    /* END_STREAM, as if that were all */
    HTTP2_HALF_BABBLES, /* what is no frame */
};

struct http_peer_connection {
    int fd;
    int number; /* counts accepted connections from 1 */
    SSL *ssl;   /* NULL in clear text */
    bool is_shaken, is_http2;
    size_t length;
    char request[HTTP_PEER_REQUEST_MAX + 1];
    /* HTTP/2 */
    bool is_greeted;
    uint32_t last_stream;
    uint32_t hanging[1024]; /* streams */
    int hanging_count;
};

extern struct http_peer {
    int port;
    atomic_bool stop;
    atomic_int release;                  /* set by the test, an enum http_peer_end: how all that are open end, once */
    atomic_int accepted, open;           /* connections */
    atomic_int requests;                 /* whole ones, those over HTTP/2 included */
    atomic_int http2_requests;           /* those */
    char client[64];                     /* the common name of who sent the last request; "" = no certificate */
    atomic_int pieces;                   /* of floods, sent */
    char answer_header[1024];            /* for /header */
    enum http2_act acts[HTTP2_ACTS_MAX]; /* for the first requests over HTTP/2; all others are answered */
    int acts_count;
    bool hides_length;                            /* no Content-Length with half an answer over HTTP/2 */
    char last_request[HTTP_PEER_REQUEST_MAX + 1]; /* over HTTP/1.1 */
    SSL_CTX *tls;                                 /* set up by http_peer_start() */
    /* private */
    enum http_peer_kind kind;
    pthread_t thread;
    int listener;
    struct http_peer_connection **connections;
    int count;
    bool has_closed_once;
} peer;

/* Before a peer is started: it requires a certificate of this authority, and refuses a client without one. NULL =
 * not. */
void http_peer_require_certificate(const struct certificate *authority);
/* certificate NULL = in clear text; else it is needed for the time of the call only. */
void http_peer_start(enum http_peer_kind kind, const struct certificate *certificate);
void http_peer_stop(void);
/* Connections are refused from now on; those that are open go on. */
void http_peer_stop_listening(void);
/* A socket that listens on a port of its own, on 127.0.0.1. */
int http_peer_listen(int *ret_port);

/* For http2_peer.c. false: the client is gone. */
bool http_peer_send(struct http_peer_connection *connection, const void *bytes, size_t length);
/* Sends GOAWAY. */
void http2_peer_leave(struct http_peer_connection *connection);
/* Takes what has come in off the connection's buffer. */
enum http_peer_end http2_peer_take(struct http_peer_connection *connection);

#endif
