/* A client and its peer in one thread, the peer played by hand: between two turns of the loop the test accepts, reads,
 * says, closes or resets. So every order of events is chosen, and none happens by chance. */
#ifndef ISSUING_TEST_HTTP_HAND_H
#define ISSUING_TEST_HTTP_HAND_H

#include "common/http_client.h"

#define HAND_ANSWER_MAX 65536
#define HAND_REQUEST_SIZE 32768

struct hand_call {
    struct http_call call;
    int ends;  /* how often on_done was called */
    int order; /* the how manieth of all calls it was to end */
    void (*then)(struct hand_call *hand_call);
};

struct hand {
    uv_loop_t loop;
    uv_timer_t anchor; /* a loop turns only while something holds it, and idle connections do not */
    struct http_client *client;
    int listener, port;
    int ended;
    bool is_closed;
    int descriptors; /* that were open before */
};

extern struct hand hand;

void hand_set_up(void);
/* With a client that keeps so many connections. */
void hand_open(int connections_max);
/* Closes the client if it is not, and wants the loop empty and every descriptor back. */
void hand_tear_down(void);
void hand_close_client(void);
/* One that listens with no room: whoever connects waits. hand_make_room() ends that. */
void hand_have_no_room(void);
void hand_make_room(void);
void hand_stop_listening(void);

/* ---- the calls ---- */

void hand_prepare(struct hand_call *call, const char *method, const char *path);
/* Made again, with everything else as it was. */
void hand_make(struct hand_call *call, const char *method, const char *path);
void hand_start(struct hand_call *call);
/* prepare and start, POST. */
void hand_call(struct hand_call *call, const char *path);
void hand_turn(void);
/* Turns until the condition holds. */
#define HAND_UNTIL(condition)                                                    \
    do {                                                                         \
        for (int hand_turns = 0; !(condition); hand_turns++) {                   \
            ck_assert_msg(hand_turns < 10000, "waited in vain: %s", #condition); \
            if (hand_turns > 50)                                                 \
                uv_sleep(1);                                                     \
            hand_turn();                                                         \
        }                                                                        \
    } while (0)
/* For its first end. */
void hand_wait(struct hand_call *call);
/* As often as it takes for everything that has happened to be noticed. */
void hand_settle(void);

/* ---- the peer ---- */

int hand_accept(void);
bool hand_has_connection(void); /* that waits to be accepted */
/* Turns until a whole request has come; text has HAND_REQUEST_SIZE bytes. */
void hand_hear(int fd, char *text);
/* The same, and nobody asks what it said. */
void hand_take(int fd);
/* What has come of a request so far, without waiting. */
size_t hand_peek(int fd, char *text);
void hand_say(int fd, const char *text);
void hand_say_bytes(int fd, const char *bytes, size_t length);
/* 200 with this body. */
void hand_answer(int fd, const char *body);
void hand_close(int fd);
void hand_reset(int fd);
/* The client has closed its end. */
bool hand_is_left(int fd);

int hand_descriptors(void);

#endif
