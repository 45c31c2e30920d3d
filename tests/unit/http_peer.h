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

#define HTTP_PEER_REQUEST_MAX 80000
/* In the answers to /card, /card-cut ...; always by this name, so that it is in no memory that is written to. */
#define HTTP_PEER_CARD_NUMBER "4000001234562345"

enum http_peer_kind {
    HTTP_PEER_CLEAR,
    HTTP_PEER_TLS,       /* 1.3 */
    HTTP_PEER_FORCING,   /* as before, but chooses HTTP/2, which no client offers */
    HTTP_PEER_TLS_1_2,   /* nothing newer */
    HTTP_PEER_OLD_TLS,   /* nothing newer than 1.1 */
    HTTP_PEER_PROTESTING /* clear text; answers 400 to what is not a request */
};

enum http_peer_end {
    HTTP_PEER_GOES_ON,
    HTTP_PEER_CLOSES, /* with TLS's close_notify */
    HTTP_PEER_DROPS,  /* without */
    HTTP_PEER_RESETS,
};

struct http_peer_connection {
    int fd;
    int number; /* counts accepted connections from 1 */
    SSL *ssl;   /* NULL in clear text */
    bool is_shaken;
    size_t length;
    char request[HTTP_PEER_REQUEST_MAX + 1];
};

extern struct http_peer {
    int port;
    atomic_bool stop;
    atomic_int release;        /* set by the test, an enum http_peer_end: how all that are open end, once */
    atomic_int accepted, open; /* connections */
    atomic_int requests;       /* whole ones */
    atomic_int resumed;        /* handshakes that took up a session */
    char client[64];           /* the common name of who sent the last request; "" = no certificate */
    atomic_int pieces;         /* of floods, sent */
    char answer_header[1024];  /* for /header */
    char last_request[HTTP_PEER_REQUEST_MAX + 1];
    SSL_CTX *tls; /* set up by http_peer_start() */
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

#endif
