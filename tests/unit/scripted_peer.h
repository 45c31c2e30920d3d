/* A client and its peer in one thread: between two iterations of the loop the test plays the peer, which accepts,
 * reads, sends, closes or resets. So every order of events is chosen by the test, and none happens by chance. */
#ifndef ISSUING_TEST_SCRIPTED_PEER_H
#define ISSUING_TEST_SCRIPTED_PEER_H

#include <openssl/ssl.h>

#include "common/lib/http_client/http_client.h"
#include "tests/support/stuck.h"
#include "tests/unit/certificate.h"

#define SCRIPTED_ANSWER_MAX 65536
#define SCRIPTED_REQUEST_SIZE 32768

struct scripted_call {
    struct http_call call;
    int ends;  /* number of times that on_done was called */
    int order; /* its number in the order in which the calls ended, from 1 */
    void (*then)(struct scripted_call *scripted_call);
};

struct scripted_peer {
    uv_loop_t loop;
    uv_timer_t anchor; /* keeps the loop running, which idle connections do not */
    struct http_client *client;
    int listener, port;
    int ended;
    bool is_closed;
    int descriptors; /* open before the test */
    SSL_CTX *tls;    /* NULL = in clear text */
    struct certificate authority;
};

extern struct scripted_peer scripted;

void scripted_set_up(void);
/* The same over TLS: everything below is what TLS carries, except where it says otherwise. */
void scripted_set_up_tls(void);
/* Opens a client that pools this number of connections. */
void scripted_open(int connections_max);
/* Over TLS: makes scripted.client trust the peer, as scripted_open() does. */
void scripted_trust(void);
/* Closes the client if it is open, and checks that the loop is empty and every descriptor closed. */
void scripted_tear_down(void);
void scripted_close_client(void);
/* Makes new connections wait, because the backlog of the listener is full; scripted_empty_backlog() ends that. */
void scripted_fill_backlog(void);
void scripted_empty_backlog(void);
void scripted_stop_listening(void);

/* ---- the calls ---- */

void scripted_prepare(struct scripted_call *call, const char *method, const char *path);
/* Makes the request again; everything else stays. */
void scripted_make(struct scripted_call *call, const char *method, const char *path);
void scripted_start(struct scripted_call *call);
/* prepare and start, POST. */
void scripted_call(struct scripted_call *call, const char *path);
void scripted_run_once(void);
/* Of a clock that no test sets. */
int64_t scripted_now_ms(void);
/* Turns until the condition holds. */
#define SCRIPTED_UNTIL(condition)                                                                                      \
    do {                                                                                                               \
        int64_t scripted_begun_ms = scripted_now_ms();                                                                 \
        for (int scripted_iterations = 0; !(condition); scripted_iterations++) {                                       \
            ck_assert_msg(scripted_now_ms() - scripted_begun_ms < stuck_after_ms(), "still not true: %s", #condition); \
            if (scripted_iterations > 50)                                                                              \
                uv_sleep(1);                                                                                           \
            scripted_run_once();                                                                                       \
        }                                                                                                              \
    } while (0)
/* Until the call ends, the first time. */
void scripted_wait(struct scripted_call *call);
/* Turns the loop until everything that has happened is noticed. */
void scripted_settle(void);

/* ---- the peer ---- */

int scripted_accept(void);
/* Its two parts: over TLS the second one ends when the client has shaken hands, or has left. */
int scripted_accept_only(void);
void scripted_shake(int fd);
bool scripted_has_connection(void); /* that waits to be accepted */
/* Turns until a whole request has come; text has SCRIPTED_REQUEST_SIZE bytes. */
void scripted_receive(int fd, char *text);
/* The same; the request is discarded. */
void scripted_receive_any(int fd);
/* The part of a request that has arrived, without waiting; over TLS its records. */
size_t scripted_peek(int fd, char *text);
/* The same through TLS: the first record that is whole. */
size_t scripted_hear(int fd, char *text);
bool scripted_is_asked(int fd);
void scripted_send(int fd, const char *text);
/* Over TLS: a session ticket, as a peer may send at any time. */
void scripted_send_ticket(int fd);
void scripted_send_bytes(int fd, const char *bytes, size_t length);
/* 200 with this body. */
void scripted_answer(int fd, const char *body);
/* Sends nothing more; over TLS with its close_notify. */
void scripted_end(int fd);
/* In order: over TLS with its close_notify. */
void scripted_close(int fd);
void scripted_reset(int fd);
/* The client has closed its end. Nothing can be received after it. */
bool scripted_is_closed(int fd);

int scripted_descriptors(void);

#endif
