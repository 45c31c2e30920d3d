/* Outgoing HTTP: one call, one fate. Here calls are looked at, given to the way that their scheme has, and ended;
 * http_transfer.c (https) and http_plain.c (clear text) are the ways.
 *
 * A URL is split into its origin, parsed once for many calls, and the rest, the request's target.
 *
 * Invariants: a call is in exactly one place: its way's, the list of unstarted ones, or its owner's hands; it ends once,
 * in end_call(), never below http_client_start(). HTTP_NOT_SENT is said only when may_be_sent was false during the whole
 * call: when a kept connection turned out dead and the second try was refused, the first may have been read, so that is
 * HTTP_LOST.
 *
 * Left out: redirects, cookies, proxies, files, decoding of Content-Encoding, a limit on parallel calls (the callers
 * have theirs). */
#include "common/http_client.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/clock.h"
#include "common/http_client_internal.h"

/* ---- the end of a call ---- */

static void on_ender(uv_timer_t *timer);

static void forget(struct buf *buf)
{
    buf_wipe(buf);
    buf_done(buf);
}

static void end_call(struct http_call *call)
{
    forget(&call->lines);
    forget(&call->body);
    call->took_us = clock_mono_us() - call->took_us;
    call->client = NULL;
    if (call->origin)
        call->origin->calls--;
    call->origin = NULL;
    call->on_done(call); /* may free the call or start it again */
}

void http_call_leaves(struct http_call *call)
{
    call->was_resent = call->may_be_sent;
    call->may_be_sent = true;
}

void http_call_answered(struct http_call *call)
{
    call->fate = HTTP_ANSWERED;
    end_call(call);
}

static void say_problem(struct http_call *call, const char *text)
{
    snprintf(call->error, sizeof(call->error), "%.*s", (int)sizeof(call->error) - 1, text);
    for (char *c = call->error; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
}

static void set_failed(struct http_call *call, const char *why)
{
    call->fate = call->may_be_sent ? HTTP_LOST : HTTP_NOT_SENT;
    call->status = 0;
    forget(&call->answer);
    call->answer_is_json = false;
    call->retry_after_ms = -1;
    say_problem(call, why);
}

void http_call_failed(struct http_call *call, const char *why)
{
    set_failed(call, why);
    end_call(call);
}

static void end_unstarted(struct http_client *client, struct http_call *call, const char *why)
{
    set_failed(call, why);
    *client->unstarted_tail = call;
    client->unstarted_tail = &call->next;
    uv_timer_start(&client->ender, on_ender, 0, 0);
}

/* ---- origins ---- */

/* Where the scheme, host and port of a URL end; 0 = it is none of ours. */
static size_t origin_length(const char *url, bool *ret_is_https)
{
    *ret_is_https = strncasecmp(url, "https://", 8) == 0;
    if (!*ret_is_https && strncasecmp(url, "http://", 7) != 0)
        return 0;
    size_t scheme = *ret_is_https ? 8 : 7, host = strcspn(url + scheme, "/?#");
    return host > 0 && url[scheme + host] == '/' ? scheme + host : 0;
}

static void leave_origin(struct http_origin *origin)
{
    assert(origin->calls == 0);
    if (!origin->text)
        return;
    http_plain_leave(origin);
    curl_url_cleanup(origin->address);
    free(origin->text);
    free(origin->host);
    origin->address = NULL;
    origin->text = origin->host = NULL;
}

/* As the Host header says it. NULL: out of memory, or no plain address. */
static char *host_of(CURLU *address)
{
    char *host = NULL, *port = NULL, *user = NULL, *both = NULL;
    size_t size = 0;
    (void)curl_url_get(address, CURLUPART_USER, &user, 0);
    if (!user && curl_url_get(address, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
        (void)curl_url_get(address, CURLUPART_PORT, &port, CURLU_NO_DEFAULT_PORT);
        size = strlen(host) + (port ? strlen(port) + 1 : 0) + 1;
        both = malloc(size);
    }
    if (both)
        snprintf(both, size, port ? "%s:%s" : "%s", host, port);
    curl_free(user);
    curl_free(host);
    curl_free(port);
    return both;
}

static const char *enter_origin(struct http_origin *origin, const char *url, size_t length, bool is_https)
{
    origin->text = strndup(url, length);
    origin->text_length = length;
    origin->is_https = is_https;
    origin->address = curl_url();
    if (!origin->text || !origin->address) {
        leave_origin(origin);
        return "out of memory";
    }
    if (curl_url_set(origin->address, CURLUPART_URL, origin->text, 0) == CURLUE_OK)
        origin->host = host_of(origin->address);
    if (!origin->host) {
        leave_origin(origin);
        return "not an address of HTTP";
    }
    return NULL;
}

/* Returns why there is none, or NULL. */
static const char *find_origin(struct http_client *client, const char *url, struct http_origin **ret_origin)
{
    bool is_https;
    size_t length = origin_length(url, &is_https);
    if (length == 0)
        return "not an address of HTTP";
    struct http_origin *unused = NULL;
    for (struct http_origin *origin = client->origins; origin < client->origins + HTTP_ORIGINS_MAX; origin++) {
        if (origin->text && origin->text_length == length && memcmp(origin->text, url, length) == 0) {
            *ret_origin = origin;
            return NULL;
        }
        if (origin->calls == 0 && (!unused || (unused->text && !origin->text)))
            unused = origin;
    }
    if (!unused)
        return "too many addresses at once";
    leave_origin(unused);
    *ret_origin = unused;
    return enter_origin(unused, url, length, is_https);
}

/* ---- what is asked for ---- */

/* It goes into the request line as it is. */
static bool is_target(const char *target)
{
    for (const char *byte = target; *byte; byte++)
        if (*byte <= 0x20 || *byte >= 0x7f || *byte == '#')
            return false;
    return *target == '/';
}

/* It would be written as it is. */
static bool has_break(const char *text, size_t length)
{
    return memchr(text, '\n', length) || memchr(text, '\r', length);
}

/* Returns what is wrong with the lines, or NULL. */
static const char *check_lines(const struct http_call *call)
{
    const struct buf *lines = &call->lines;
    if (!http_call_is_made(call))
        return "out of memory";
    if (lines->length == 0 || lines->bytes[lines->length - 1] != '\0')
        return "not an address of HTTP";
    int count = -1; /* the first is the URL */
    for (const char *line = lines->bytes; line < lines->bytes + lines->length; line = strchr(line, '\0') + 1)
        count++;
    if (count > HTTP_CALL_HEADERS_MAX)
        return "too many headers";
    bool breaks = has_break(lines->bytes, lines->length) ||
                  (call->secret_header && has_break(call->secret_header, strlen(call->secret_header)));
    return breaks ? "a header with a line break" : NULL;
}

/* ---- the room's own calls ---- */

void http_call_init(struct http_call *call, size_t answer_max)
{
    memset(call, 0, sizeof(*call));
    buf_init(&call->lines, HTTP_CALL_TEXT_MAX);
    buf_init(&call->body, HTTP_CALL_TEXT_MAX);
    buf_init(&call->answer, answer_max);
    call->retry_after_ms = -1;
}

void http_call_done(struct http_call *call)
{
    assert(!call->client);
    forget(&call->lines);
    forget(&call->body);
    forget(&call->answer);
}

void http_call_make(struct http_call *call, const char *method)
{
    assert(!call->client);
    call->method = method;
    buf_reset(&call->lines);
    buf_reset(&call->body);
}

void http_call_end_line(struct http_call *call)
{
    buf_put_byte(&call->lines, '\0');
}

bool http_call_is_made(const struct http_call *call)
{
    return !call->lines.failed && !call->body.failed;
}

void http_call_forget(struct http_call *call)
{
    forget(&call->answer);
}

/* Returns why it did not start, or NULL. */
static const char *start_call(struct http_client *client, struct http_call *call)
{
    if (client->is_closing)
        return "the client is closing";
    struct http_origin *origin = NULL;
    const char *why = check_lines(call);
    if (!why)
        why = find_origin(client, call->lines.bytes, &origin);
    if (!why && !is_target(call->lines.bytes + origin->text_length))
        why = "not an address of HTTP";
    if (why)
        return why;
    call->origin = origin;
    origin->calls++;
    return origin->is_https ? http_transfer_start(client, call) : http_plain_start(client, call);
}

void http_client_start(struct http_client *client, struct http_call *call)
{
    assert(!call->client && call->on_done);
    assert(strcmp(call->method, "GET") == 0 || strcmp(call->method, "POST") == 0 ||
           strcmp(call->method, "DELETE") == 0);
    forget(&call->answer);
    call->client = client;
    call->origin = NULL;
    call->next = NULL;
    call->kept = NULL;
    call->may_be_sent = false;
    call->status = 0;
    call->retry_after_ms = -1;
    call->answer_is_json = false;
    call->was_resent = false;
    call->error[0] = '\0';
    call->took_us = clock_mono_us(); /* until the end: when it started */
    if (call->timeout_ms < 1)
        call->timeout_ms = 1;
    call->deadline_ms = call->took_us / 1000 + call->timeout_ms;
    const char *why = start_call(client, call);
    if (why)
        end_unstarted(client, call, why);
}

static void on_loop_closed(struct http_loop *loop)
{
    http_client_part_closed(container_of(loop, struct http_client, loop));
}

void http_client_part_closed(struct http_client *client)
{
    if (--client->open_parts > 0)
        return;
    void (*on_closed)(void *context) = client->on_closed;
    void *context = client->closed_context;
    free(client);
    on_closed(context);
}

static void on_ender_closed(uv_handle_t *handle)
{
    http_client_part_closed(container_of((uv_timer_t *)handle, struct http_client, ender));
}

static void close_parts(struct http_client *client)
{
    for (struct http_origin *origin = client->origins; origin < client->origins + HTTP_ORIGINS_MAX; origin++)
        leave_origin(origin);
    http_transfer_done(client);
    http_plain_close(client);
    http_loop_close(&client->loop, on_loop_closed);
    uv_close((uv_handle_t *)&client->ender, on_ender_closed);
}

static void on_ender(uv_timer_t *timer)
{
    struct http_client *client = container_of(timer, struct http_client, ender);
    struct http_call *call = client->unstarted, *next;
    client->unstarted = NULL;
    client->unstarted_tail = &client->unstarted;
    for (; call; call = next) {
        next = call->next;
        end_call(call);
    }
    if (!client->is_closing) /* asked after the calls ended: one of them may have closed the client */
        return;
    http_transfer_stop_all(client, "the client is closing");
    http_plain_stop_all(client, "the client is closing");
    if (!client->unstarted) /* else the timer runs again */
        close_parts(client);
}

void http_client_close(struct http_client *client, void (*on_closed)(void *context), void *context)
{
    assert(!client->is_closing);
    client->is_closing = true;
    client->on_closed = on_closed;
    client->closed_context = context;
    uv_timer_start(&client->ender, on_ender, 0, 0);
}

bool http_client_open(uv_loop_t *loop, const struct http_client_options *options, struct http_client **ret_client,
                      struct err *err)
{
    struct http_client *client = calloc(1, sizeof(*client));
    if (!client)
        return err_set(err, ERR_MEMORY, "out of memory for the HTTP client");
    if (!http_loop_open(&client->loop, loop, err)) {
        free(client);
        return false;
    }
    client->uv = loop;
    client->options = *options;
    client->unstarted_tail = &client->unstarted;
    for (struct http_origin *origin = client->origins; origin < client->origins + HTTP_ORIGINS_MAX; origin++)
        origin->client = client;
    uv_timer_init(loop, &client->ender);
    client->open_parts = 2; /* the loop of libcurl, and the timer */
    http_plain_open(client);
    *ret_client = client;
    return true;
}
