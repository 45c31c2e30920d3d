/* See listener.h. Invariant: `server` is NULL exactly when connections are refused and no connection is left. */
#include "sandbox/listener.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LISTEN_MAX 280

struct listener {
    uv_loop_t *loop;
    struct http_server *server; /* owned */
    struct http_server_options options;
    const char *name;
    char address[LISTEN_MAX];
    bool closing;
    void (*on_down)(void *context);
    void *on_down_context;
};

/* Requests that the HTTP server itself refuses get the error form of the others. */
static void on_refused(void *context, const struct http_request *request, int status, const char *detail,
                       struct http_reply *ret_reply)
{
    (void)context, (void)request, (void)status, (void)detail;
    static const char body[] = "{\"code\":\"bad_http\",\"detail\":\"the request was not understood\"}";
    ret_reply->content_type = "application/json";
    ret_reply->body = body;
    ret_reply->body_length = sizeof(body) - 1;
}

/* Port 0 becomes the port that the kernel chose. */
static void store_port(struct listener *listener)
{
    char *colon = strrchr(listener->address, ':');
    size_t head = colon ? (size_t)(colon - listener->address) : strlen(listener->address);
    snprintf(listener->address + head, sizeof(listener->address) - head, ":%d", http_server_port(listener->server));
}

bool listener_open(uv_loop_t *loop, const struct listener_options *options, struct listener **ret_listener,
                   struct err *err)
{
    if (strlen(options->listen) > LISTEN_MAX - 8)
        return err_set(err, ERR_USAGE, "the address of %s is too long", options->name);
    struct listener *listener = calloc(1, sizeof(*listener));
    if (!listener)
        return err_set(err, ERR_MEMORY, "out of memory");
    listener->loop = loop;
    listener->name = options->name;
    memcpy(listener->address, options->listen, strlen(options->listen) + 1);
    http_server_defaults(&listener->options);
    listener->options.listen = listener->address;
    listener->options.body_max = options->body_max;
    listener->options.server_name = "issuing-sandbox";
    listener->options.on_request = options->on_request;
    listener->options.on_refused = on_refused;
    listener->options.context = options->context;
    if (!listener_up(listener, err)) {
        listener_free(listener);
        return false;
    }
    *ret_listener = listener;
    return true;
}

int listener_port(const struct listener *listener)
{
    return (int)strtol(strrchr(listener->address, ':') + 1, NULL, 10);
}

const char *listener_name(const struct listener *listener)
{
    return listener->name;
}

const char *listener_address(const struct listener *listener)
{
    return listener->address;
}

bool listener_is_up(const struct listener *listener)
{
    return listener->server && !listener->closing;
}

static void on_server_closed(void *context)
{
    struct listener *listener = context;
    listener->server = NULL;
    listener->closing = false;
    if (listener->on_down)
        listener->on_down(listener->on_down_context);
}

bool listener_down(struct listener *listener, void (*on_down)(void *context), void *context)
{
    if (!listener_is_up(listener))
        return false;
    listener->closing = true;
    listener->on_down = on_down;
    listener->on_down_context = context;
    http_server_close(listener->server, on_server_closed, listener);
    return true;
}

bool listener_up(struct listener *listener, struct err *err)
{
    if (listener_is_up(listener))
        return true;
    if (listener->closing)
        return err_set(err, ERR_REFUSED, "%s is still being closed", listener->name);
    if (!http_server_open(listener->loop, &listener->options, &listener->server, err))
        return err_prefix(err, "%s", listener->name);
    store_port(listener);
    return true;
}

void listener_free(struct listener *listener)
{
    assert(!listener || !listener->server);
    free(listener);
}
