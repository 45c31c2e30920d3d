/* See http_client.h. This file checks a call, finds its origin and hands it to the pool.
 *
 * Invariants: a call is in exactly one of these: the pool, the list of failed starts, or its owner's hands; it never
 * ends inside http_client_start().
 * Left out: redirects, cookies, files, decoding of Content-Encoding, a limit on parallel calls (the callers have
 * theirs). */
#include "common/lib/http_client/http_client.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/closing.h"
#include "common/lib/http_client/http_pool.h"
#include "common/lib/http_client/http_url_origin.h"

#define ORIGINS_MAX 72 /* issuer, core-api, 32 routes with a look-up each, and some in reserve */

/* An origin without calls is given up when another one is needed. */
struct origin_slot {
    struct http_url_origin origin;
    struct http_pool_origin pooled;
};

struct http_client {
    struct http_pool pool;
    struct authorities *authorities; /* NULL = nobody was named, and none was needed */
    struct origin_slot slots[ORIGINS_MAX];
    struct http_calls failed_starts;
    uv_timer_t
        close_timer; /* ends the calls that could not be started, and closes; in the next iteration of the loop */
    bool is_closing;
    void (*on_closed)(void *context);
    void *closed_context;
    struct closing closing;
};

/* ---- origins ---- */

static void leave_origin(struct origin_slot *slot)
{
    if (!slot->origin.text)
        return;
    http_pool_leave(&slot->pooled);
    http_url_origin_close(&slot->origin);
}

/* Returns why there is none, or NULL. */
static const char *find_slot(struct http_client *client, const struct http_url_way *way, struct origin_slot **ret_slot)
{
    struct origin_slot *unused = NULL;
    for (struct origin_slot *slot = client->slots; slot < client->slots + ORIGINS_MAX; slot++) {
        if (http_url_origin_is(&slot->origin, way)) {
            *ret_slot = slot;
            return NULL;
        }
        if (slot->origin.calls == 0 && (!unused || (unused->origin.text && !slot->origin.text)))
            unused = slot;
    }
    if (!unused)
        return "too many addresses at once";
    leave_origin(unused);
    *ret_slot = unused;
    return http_url_origin_open(&unused->origin, way);
}

static const char *find_origin(struct http_client *client, const struct http_call *call, struct origin_slot **ret_slot)
{
    bool is_https;
    struct http_url_way way = {.url = call->lines.bytes, .proxy = call->proxy};
    way.length = http_url_origin_length(way.url, &is_https);
    if (way.length == 0)
        return "not an address of HTTP";
    if (is_https && !client->authorities && !authorities_load(NULL, &client->authorities, NULL))
        return "out of memory for the system's authorities";
    if (is_https) {
        way.authorities = client->authorities;
        way.certificate = call->certificate;
    }
    return find_slot(client, &way, ret_slot);
}

void http_client_count(const struct http_client *client, const char *url, int *ret_open, int *ret_idle)
{
    *ret_open = *ret_idle = 0;
    for (const struct origin_slot *slot = client->slots; slot < client->slots + ORIGINS_MAX; slot++) {
        size_t length = slot->origin.text_length;
        if (slot->origin.text && strncmp(url, slot->origin.text, length) == 0 && strchr("/", url[length])) {
            *ret_open += slot->pooled.open_count;
            *ret_idle += slot->pooled.idle_count;
        }
    }
}

/* ---- starting a call ---- */

/* It is written into the request line verbatim, so it must not contain blanks or line breaks. */
static bool is_target(const char *target)
{
    for (const char *byte = target; *byte; byte++)
        if (*byte <= 0x20 || *byte >= 0x7f || *byte == '#')
            return false;
    return *target == '/';
}

/* Returns why it did not start, or NULL. */
static const char *start_call(struct http_client *client, struct http_call *call)
{
    if (client->is_closing)
        return "the client is closing";
    struct origin_slot *slot = NULL;
    const char *why = http_call_check(call);
    if (!why)
        why = find_origin(client, call, &slot);
    if (!why && !is_target(call->lines.bytes + slot->origin.text_length))
        why = "not an address of HTTP";
    if (why)
        return why;
    call->origin = &slot->origin;
    slot->origin.calls++;
    return http_pool_start(&slot->pooled, call);
}

static void on_close_timer(uv_timer_t *timer);

static bool is_known(const char *method)
{
    static const char *const methods[] = {"GET", "POST", "PUT", "PATCH", "DELETE"};
    size_t i = 0;
    while (i < ARRAY_SIZE(methods) && strcmp(method, methods[i]) != 0)
        i++;
    return i < ARRAY_SIZE(methods);
}

static bool are_notable(const char *const *names)
{
    int count = 0;
    while (names && names[count] && count < HTTP_NOTED_MAX && strlen(names[count]) <= HTTP_NOTED_NAME_MAX)
        count++;
    return !names || !names[count];
}

void http_client_start(struct http_client *client, struct http_call *call)
{
    assert(!call->client && call->on_done);
    assert(is_known(call->method) && (http_call_has_body(call) || call->body.length == 0));
    assert(are_notable(call->noted_headers));
    http_call_begin(call, client);
    const char *why = start_call(client, call);
    if (!why)
        return;
    http_call_set_failed(call, why);
    http_calls_add(&client->failed_starts, call);
    uv_timer_start(&client->close_timer, on_close_timer, 0, 0);
}

/* ---- opening and closing ---- */

static void close_parts(struct http_client *client)
{
    for (struct origin_slot *slot = client->slots; slot < client->slots + ORIGINS_MAX; slot++)
        leave_origin(slot);
    authorities_release(client->authorities);
    closing_start(&client->closing, free, client, client->on_closed, client->closed_context);
    http_pool_close(&client->pool, closing_part_closed, closing_part(&client->closing));
    closing_handle(&client->closing, &client->close_timer);
    closing_end(&client->closing);
}

static void on_close_timer(uv_timer_t *timer)
{
    struct http_client *client = container_of(timer, struct http_client, close_timer);
    /* What fails again in on_done is for the next iteration. */
    for (int count = client->failed_starts.count; count > 0; count--) {
        struct http_call *call = client->failed_starts.first;
        http_calls_remove(call);
        http_call_end(call);
    }
    if (!client->is_closing) /* checked after the calls ended: one of them may have closed the client */
        return;
    http_pool_stop_all(&client->pool, "the client is closing");
    if (!client->failed_starts.first) /* else the timer runs again */
        close_parts(client);
}

void http_client_close(struct http_client *client, void (*on_closed)(void *context), void *context)
{
    assert(!client->is_closing);
    client->is_closing = true;
    client->on_closed = on_closed;
    client->closed_context = context;
    uv_timer_start(&client->close_timer, on_close_timer, 0, 0);
}

void http_client_trust(struct http_client *client, struct authorities *authorities)
{
    authorities_release(client->authorities);
    client->authorities = authorities_hold(authorities);
    /* guard: with other authorities no session and no idle connection goes on */
    for (struct origin_slot *slot = client->slots; slot < client->slots + ORIGINS_MAX; slot++)
        if (slot->origin.tls && slot->origin.calls == 0)
            leave_origin(slot);
}

bool http_client_open(uv_loop_t *loop, const struct http_client_options *options, struct http_client **ret_client,
                      struct err *err)
{
    struct http_client *client = calloc(1, sizeof(*client));
    if (!client)
        return err_set(err, ERR_MEMORY, "out of memory for the HTTP client");
    if (!http_pool_open(&client->pool, loop, options->connections_max, options->answer_max, err)) {
        free(client);
        return false;
    }
    uv_timer_init(loop, &client->close_timer);
    for (struct origin_slot *slot = client->slots; slot < client->slots + ORIGINS_MAX; slot++)
        http_pool_origin_init(&slot->pooled, &client->pool, &slot->origin);
    *ret_client = client;
    return true;
}
