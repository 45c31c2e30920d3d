/* One HTTP server of the sandbox, which can be taken down, so that connections are refused, and opened again on the
 * same port. */
#ifndef ISSUING_SANDBOX_LISTENER_H
#define ISSUING_SANDBOX_LISTENER_H

#include <uv.h>

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/http_server/http_server.h"

struct listener;

struct listener_options {
    const char *name;   /* static */
    const char *listen; /* "127.0.0.1:8070"; port 0 = any free one, the same one from then on */
    size_t body_max;
    void (*on_request)(void *context, struct http_request *request);
    void *context;
};

must_check bool listener_open(uv_loop_t *loop, const struct listener_options *options, struct listener **ret_listener,
                              struct err *err);
int listener_port(const struct listener *listener);
const char *listener_name(const struct listener *listener);
const char *listener_address(const struct listener *listener); /* with the true port */
bool listener_is_up(const struct listener *listener);
/* Closes the listener and every connection; on_down (may be NULL) is called from the loop once both are closed. False:
 * it is down or being closed already. */
must_check bool listener_down(struct listener *listener, void (*on_down)(void *context), void *context);
/* Opens it again. Nothing happens if it is up. */
must_check bool listener_up(struct listener *listener, struct err *err);
/* Only once it is down, and the loop has seen that. Accepts NULL. */
void listener_free(struct listener *listener);

#endif
