/* A server and its clients in one thread, for the tests of the HTTP server: a test sends bytes and runs the loop until
 * the reply is there. The state is in two globals, as each test runs in a process of its own.
 *
 * The handler answers by path: /short "short"; /later holds the request in world.held; /big and /static BIG bytes,
 * /kernel 40,000 of them; /nothing 204; /prefer prefers its connection; /bye ends it; /inject a header value with a
 * line break; /reset and /raw for the sandbox's faults; any other path with a description of the request. */
#ifndef ISSUING_TESTS_HTTP_SERVER_WORLD_H
#define ISSUING_TESTS_HTTP_SERVER_WORLD_H

#include <check.h>

#include "common/lib/http_server/http_server_internal.h"
#include "tests/support/stuck.h"

#define HEARD_MAX ((size_t)8 * 1024 * 1024)
#define HEAR_MAX ((size_t)16 * 1024) /* at a time */
#define REPLIES_MAX 512
#define HELD_MAX 128
#define BIG ((size_t)6 * 1024 * 1024)

struct reply {
    int status;
    struct slice head, body;
};

/* What one client got back. */
struct heard {
    char *bytes;
    size_t length;
    bool has_ended, was_reset;
    bool has_no_bodies; /* the requests are HEAD */
    bool is_opaque;     /* not to be taken apart */
    struct reply replies[REPLIES_MAX];
    int count;
};
extern struct heard heard;

struct world {
    uv_loop_t loop;
    struct http_server *server;
    struct http_request *held[HELD_MAX];
    int held_count;
    int handled, refused, gone, heads;
    bool is_closed, looks_for_canaries;
    char *big;
};
extern struct world world;

#define H "Host: a\r\n"
#define ROW(row_name, row_status, text)              \
    {                                                \
        row_name, row_status, text, sizeof(text) - 1 \
    }

/* Replies with a text. */
void reply_text(struct http_request *request, int status, const char *body);
bool is_path(const struct http_request *request, const char *path);
/* Replies with a description of the request. */
void describe(struct http_request *request);
/* For http_server_close() with &world. */
void on_server_closed(void *context);
/* The defaults, on any free port, with the handler described above. */
struct http_server_options options_for_tests(void);
/* Opens loop and server. */
void start(const struct http_server_options *options);
void start_with_defaults(void);
/* Fills world.big, the body of /big. */
void make_big(void);
/* Closes the server and waits for it. */
void close_server(void);
/* Closes the server, if it is open, and the loop; nothing may be left over. */
void stop(void);
/* A connected client socket. */
int dial(void);
/* One iteration of the loop, without waiting. */
void run_once(void);
void run_some(void);
/* Returns how much could be sent before the connection was ended or took no more. */
size_t send_some(int fd, const char *bytes, size_t length);
/* However long it takes; returns how much could be sent before the connection was ended. */
size_t send_all(int fd, const char *bytes, size_t length);
/* The whole text must be taken. */
void send_text(int fd, const char *text);
/* Reads what has arrived, or waits a moment for it. */
void hear(int fd);
void forget_heard(void);
/* Finds the complete replies in heard.bytes. */
void count_replies(void);
/* Reads until there are `count` replies, or the end; with count 0, until the end. */
void listen_for(int fd, int count);
bool head_has(int index, const char *text);
bool body_is(int index, const char *text);
/* One connection: sends all in pieces of `step` bytes, ends its side, reads to the end. */
void converse(const char *bytes, size_t length, size_t step);
/* Sends all and reads to the end, which the server has to bring about. */
void provoke(const char *bytes, size_t length);
/* The only reply is this refusal, and it ends the connection. */
void assert_refused(const char *name, int status);
/* `before`, `count` times the byte, `after`; free() it. */
char *repeat(const char *before, char byte, size_t count, const char *after);
/* An ordinary request on this connection is answered. */
void assert_served(int fd);

#endif
