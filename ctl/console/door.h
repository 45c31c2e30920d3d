/* How a person gets to the console: the socket that it listens on, who may connect there, and the URLs with tokens, one
 * at the start and each further one on request (Enter on the terminal, or SIGUSR1). */
#ifndef ISSUING_CONSOLE_DOOR_H
#define ISSUING_CONSOLE_DOOR_H

#include <uv.h>

#include "ctl/console/admission.h"
#include "ctl/console/visitor.h"

struct door {
    struct admission admission;
    struct visitors visitors;
    bool checks_visitors;       /* only users of `visitors` get in; not where other machines may connect */
    int64_t complained_ms;      /* when a refused connection was reported; 0 = never */
    const char *socket_path;    /* borrowed; made by us, and removed at the end. NULL = none */
    bool is_json, is_read_only; /* for what is printed */
    int terminal;               /* of its own, so that the shell's stays as it is; -1 = none */
    uv_signal_t request;
    uv_poll_t keys;
    uv_timer_t again; /* while another job has the terminal */
};

/* Listens; *ret_fd = -1: http_server is to listen at `listen` itself. */
must_check bool door_open(struct door *door, const char *listen, const char *socket_path, int *ret_fd, struct err *err);
/* For http_server_options. */
bool door_admits(void *context, int fd);
/* Called when the server listens: draws the random name of the console, prints the first URL, and waits for requests of
 * further ones. */
must_check bool door_start(struct door *door, uv_loop_t *loop, const char *listen, int port, struct err *err);
/* Closes its handles. */
void door_stop(struct door *door);
void door_done(struct door *door); /* wipes */

#endif
