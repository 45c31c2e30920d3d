/* `issuing-ctl console`: pages for operators, over HTTP, on the loopback. README.md in this folder describes it. */
#ifndef ISSUING_CONSOLE_H
#define ISSUING_CONSOLE_H

#include <uv.h>

#include "common/lib/http_server/http_server.h"
#include "ctl/console/door.h"
#include "ctl/console/job.h"
#include "ctl/console/status.h"
#include "ctl/ctl.h"

#define CONSOLE_LISTEN_DEFAULT "127.0.0.1:8095"
#define CONSOLE_ANSWER_MS 8000 /* a server that does not answer within it is away */

struct console {
    struct ctl *ctl; /* borrowed; its connection comes and goes */
    uv_loop_t loop;
    uv_signal_t interrupt, terminate;
    struct door door;
    uv_timer_t step; /* of the running job */
    struct http_server *server;
    struct jobs jobs;
    struct status status;
    bool is_read_only; /* by the command line */
    bool is_ending;
    /* of the session with the database */
    char role[64], database[64];
    bool may_act, may_control; /* the role has the right, and the console is not read-only */
    struct buf main, document; /* of the request at hand */
};

struct console_options {
    const char *listen;
    const char *socket; /* the path of a socket of the file system, instead of `listen`; NULL = none */
    bool is_read_only;
};

/* Serves until SIGINT or SIGTERM. */
must_check bool console_run(struct ctl *ctl, const struct console_options *options, struct err *err);

/* The session with the database, opened when there is none. */
must_check bool console_connect(struct console *console, struct err *err);
/* ERR_AWAY came: the next console_connect opens another one. */
void console_disconnect(struct console *console);
/* A job was started: its first step follows. */
void console_wake(struct console *console);
/* Answers one request (router.c); for http_server_options. */
void console_route(void *context, struct http_request *request);
/* Adds the headers that every answer has; returns how many they are (router.c). */
int console_put_headers(struct http_reply *reply);

#endif
