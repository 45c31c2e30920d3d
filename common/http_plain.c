/* Calls in clear text: HTTP/1.1 on kept connections.
 *
 * Why not by libcurl's transfers, as https is: a worker spends most of its time in them. A call costs it one send and
 * one receive here, instead of these, two polls and about 13 KB for as long as it lasts (docs/performance.md). And
 * what the worker must know, whether a byte of the request was handed to the kernel, is seen here and not guessed.
 *
 * A call takes an idle connection, the last used first: the kernel knows best whether that one still lives. Without one
 * it waits for whatever comes first: a connection that a call has ended on, or a new one. A connection serves one call
 * at a time and is kept only if the answer said so, nothing came behind it, and the whole request had left.
 *
 * A kept connection that ends without a byte of an answer was closed by the peer while we were sending: the call goes
 * once more, on a new connection. If a byte of the first sending had left, may_be_sent says so for ever, and
 * was_resent.
 *
 * Invariants: a call is in one list of its origin, and in `sent` exactly while it has a connection; nothing ends a call
 * below http_plain_start(); a connection that is idle says nothing, so whatever it says ends it.
 * Left out: pipelining, a limit on connections (the callers limit their calls). */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/http_answer.h"
#include "common/http_client_internal.h"
#include "common/secret.h"

#define CONNECTS_MAX 64    /* at a time, of one origin */
#define IDLE_MAX_MS 118000 /* what middle boxes forget; libcurl's limit, too */
#define REAP_MS 15000
#define DEADLINE_LEAST_MS 10 /* deadlines are kept to this; it bounds how often all calls are looked through */
#define REQUEST_MAX (2 * HTTP_CALL_TEXT_MAX + 72 * 1024) /* a credential may have 64 KiB */

/* A connection. */
struct http_kept {
    uv_poll_t poll;
    int fd;
    struct http_origin *origin;
    struct http_call *call;            /* NULL = idle */
    struct http_kept *next, *previous; /* while idle */
    int64_t idle_ms;                   /* since when */
    bool was_kept;                     /* it was idle, or served another call before this one */
    bool has_left;                     /* a byte of the request did */
    bool is_writing;                   /* `left` waits for room in the kernel */
    bool is_broken;                    /* the loop watches it no longer */
    struct buf left;                   /* of the request */
    struct http_answer answer;
};

static void serve(struct http_origin *origin, struct http_kept *kept);
static bool connect_more(struct http_origin *origin);

/* ---- lists of calls ---- */

static void put(struct http_calls *calls, struct http_call *call)
{
    call->list = calls;
    call->next = NULL;
    call->previous = calls->last;
    if (calls->last)
        calls->last->next = call;
    else
        calls->first = call;
    calls->last = call;
    calls->count++;
}

static void take_out(struct http_call *call)
{
    struct http_calls *calls = call->list;
    if (call->previous)
        call->previous->next = call->next;
    else
        calls->first = call->next;
    if (call->next)
        call->next->previous = call->previous;
    else
        calls->last = call->previous;
    calls->count--;
    call->list = NULL;
}

/* ---- connections ---- */

static void on_deadline(uv_timer_t *timer);

/* At the next turn of the loop. */
static void wake_deadline(struct http_client *client)
{
    client->due_ms = clock_mono_ms();
    uv_timer_start(&client->deadline, on_deadline, 0, 0);
}

static void on_poll(uv_poll_t *poll, int status, int events);

static void on_poll_closed(uv_handle_t *handle)
{
    struct http_kept *kept = container_of((uv_poll_t *)handle, struct http_kept, poll);
    struct http_client *client = kept->origin->client;
    free(kept);
    http_client_part_closed(client);
}

static void drop_kept(struct http_kept *kept)
{
    buf_wipe(&kept->left);
    buf_done(&kept->left);
    uv_close((uv_handle_t *)&kept->poll,
             on_poll_closed); /* first: it must leave epoll before its number is another's */
    close(kept->fd);
}

static void put_idle(struct http_kept *kept)
{
    struct http_origin *origin = kept->origin;
    kept->idle_ms = clock_mono_ms();
    kept->previous = NULL;
    kept->next = origin->idle;
    if (origin->idle)
        origin->idle->previous = kept;
    origin->idle = kept;
    origin->idle_count++;
    uv_unref((uv_handle_t *)&kept->poll);
}

static void take_idle(struct http_kept *kept)
{
    struct http_origin *origin = kept->origin;
    if (kept->previous)
        kept->previous->next = kept->next;
    else
        origin->idle = kept->next;
    if (kept->next)
        kept->next->previous = kept->previous;
    origin->idle_count--;
    uv_ref((uv_handle_t *)&kept->poll);
}

/* Takes the descriptor over. NULL: out of memory. */
static struct http_kept *new_kept(struct http_origin *origin, int fd)
{
    struct http_kept *kept = calloc(1, sizeof(*kept));
    if (!kept || uv_poll_init(origin->client->uv, &kept->poll, fd) != 0) {
        free(kept);
        close(fd);
        return NULL;
    }
    origin->client->open_parts++;
    kept->fd = fd;
    kept->origin = origin;
    buf_init(&kept->left, REQUEST_MAX);
    if (uv_poll_start(&kept->poll, UV_READABLE, on_poll) != 0) {
        drop_kept(kept);
        return NULL;
    }
    return kept;
}

static void on_connected(struct http_origin *origin, int fd, const char *why)
{
    origin->connecting--;
    struct http_kept *kept = fd >= 0 ? new_kept(origin, fd) : NULL;
    if (kept) {
        serve(origin, kept);
        connect_more(origin);
        return;
    }
    struct http_call *call = origin->fresh.first ? origin->fresh.first : origin->waiting.first;
    if (call && why) {
        take_out(call);
        http_call_failed(call, fd >= 0 ? "out of memory for a connection" : why);
    }
    connect_more(origin);
}

/* A connection is nobody's until it is made, so it has the time of whoever came last. One whose time is over ends no
 * call: each has a deadline of its own. */
static int64_t connect_time_ms(const struct http_origin *origin)
{
    const struct http_call *waiting = origin->waiting.last, *fresh = origin->fresh.last;
    int64_t waiting_ms = waiting ? waiting->deadline_ms : 0, fresh_ms = fresh ? fresh->deadline_ms : 0;
    int64_t left_ms = (waiting_ms > fresh_ms ? waiting_ms : fresh_ms) - clock_mono_ms();
    return left_ms < 1 ? 1 : left_ms;
}

/* As many as there are calls without one. false: not even one is on its way. */
static bool connect_more(struct http_origin *origin)
{
    while (origin->connecting < CONNECTS_MAX && origin->connecting < origin->waiting.count + origin->fresh.count) {
        if (!http_connect_start(origin, connect_time_ms(origin), on_connected))
            break;
        origin->connecting++;
    }
    return origin->connecting > 0;
}

/* ---- sending ---- */

static void put_header(struct buf *request, const char *header)
{
    buf_put_text(request, header);
    buf_put(request, "\r\n", 2);
}

static bool write_request(struct buf *request, const struct http_origin *origin, const struct http_call *call)
{
    const char *end = call->lines.bytes + call->lines.length;
    buf_reset(request);
    buf_put_text(request, call->method);
    buf_put_byte(request, ' ');
    buf_put_text(request, call->lines.bytes + origin->text_length);
    buf_put_text(request, " HTTP/1.1\r\nHost: ");
    put_header(request, origin->host);
    buf_put_text(request, "User-Agent: issuing\r\nAccept: */*\r\n");
    for (const char *line = strchr(call->lines.bytes, '\0') + 1; line < end; line = strchr(line, '\0') + 1)
        put_header(request, line);
    if (call->secret_header)
        put_header(request, call->secret_header);
    if (call->method[0] == 'P')
        buf_put_format(request, "Content-Length: %zu\r\n", call->body.length);
    buf_put(request, "\r\n", 2);
    if (call->method[0] == 'P')
        buf_put(request, call->body.bytes, call->body.length);
    return !request->failed;
}

/* Returns how many bytes left, -1 = the connection is broken. */
static ssize_t write_some(struct http_kept *kept, const char *bytes, size_t length)
{
    ssize_t count = send(kept->fd, bytes, length, MSG_NOSIGNAL);
    if (count < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
    if (count > 0 && !kept->has_left)
        http_call_leaves(kept->call);
    kept->has_left |= count > 0;
    return count;
}

static bool watch(struct http_kept *kept, bool for_writing)
{
    kept->is_writing = for_writing;
    return uv_poll_start(&kept->poll, for_writing ? UV_READABLE | UV_WRITABLE : UV_READABLE, on_poll) == 0;
}

/* What the kernel has no room for goes later. */
static bool write_first(struct http_kept *kept, const struct buf *request)
{
    ssize_t count = write_some(kept, request->bytes, request->length);
    if (count < 0 || (size_t)count == request->length)
        return count >= 0;
    return buf_put(&kept->left, request->bytes + count, request->length - (size_t)count) && watch(kept, true);
}

static bool write_more(struct http_kept *kept)
{
    if (http_call_is_late(kept->call)) { /* the rest shall not leave any more */
        wake_deadline(kept->origin->client);
        return false;
    }
    ssize_t count = write_some(kept, kept->left.bytes, kept->left.length);
    if (count < 0)
        return false;
    buf_consume(&kept->left, (size_t)count);
    if (kept->left.length > 0)
        return true;
    buf_wipe(&kept->left);
    return watch(kept, false);
}

/* What a kept connection has said before the request left is no answer to it. The loop may not have seen it yet. */
static bool is_silent(const struct http_kept *kept)
{
    struct pollfd poller = {.fd = kept->fd, .events = POLLIN};
    return poll(&poller, 1, 0) == 0;
}

/* Takes the call, which is in no list; false: the connection is broken. A request for which there is no memory breaks
 * its connection like one that could not be written. */
static bool send_call(struct http_kept *kept, struct http_call *call)
{
    struct http_client *client = kept->origin->client;
    kept->call = call;
    kept->has_left = false;
    call->kept = kept;
    put(&kept->origin->sent, call);
    http_answer_begin(&kept->answer, call, client->options.answer_max);
    bool is_sent = (!kept->was_kept || is_silent(kept)) && write_request(&client->request, kept->origin, call) &&
                   write_first(kept, &client->request);
    if (client->request.length > 0)
        secret_wipe(client->request.bytes, client->request.length);
    return is_sent;
}

/* ---- the end of a call ---- */

/* The connection's call is its own again; what becomes of the connection is the caller's business. */
static struct http_call *detach(struct http_kept *kept)
{
    struct http_call *call = kept->call;
    take_out(call);
    call->kept = NULL;
    kept->call = NULL;
    return call;
}

/* The connection ended under its call. */
static void lose(struct http_kept *kept, const char *why)
{
    struct http_origin *origin = kept->origin;
    bool is_again = kept->was_kept && !kept->answer.has_begun;
    struct http_call *call = detach(kept);
    drop_kept(kept);
    if (is_again)
        put(&origin->fresh, call);
    else
        http_call_failed(call, why);
    connect_more(origin);
}

/* Those whose time is over are left to the deadline, so that no callback comes from here. */
static struct http_call *first_in_time(struct http_origin *origin, const struct http_calls *calls)
{
    struct http_call *call = calls->first;
    if (call && http_call_is_late(call))
        wake_deadline(origin->client);
    while (call && http_call_is_late(call))
        call = call->next;
    return call;
}

/* A connection has nobody to serve: whoever waits longest gets it. */
static void serve(struct http_origin *origin, struct http_kept *kept)
{
    struct http_call *call = kept->was_kept ? NULL : first_in_time(origin, &origin->fresh);
    if (!call)
        call = first_in_time(origin, &origin->waiting);
    if (call) {
        take_out(call);
        if (!send_call(kept, call))
            lose(kept, "the connection broke while the request was sent");
        return;
    }
    kept->was_kept = true;
    if (origin->idle_count < origin->client->options.connections_max)
        put_idle(kept);
    else
        drop_kept(kept);
}

static void finish(struct http_kept *kept, bool may_keep)
{
    struct http_origin *origin = kept->origin;
    struct http_call *call = detach(kept);
    if (may_keep && !kept->is_writing && !kept->is_broken) {
        kept->was_kept = true;
        serve(origin, kept);
    } else {
        drop_kept(kept);
        connect_more(origin);
    }
    http_call_answered(call);
}

/* ---- reading ---- */

enum reading { READ_SOMETHING, READ_NOTHING, READ_OVER /* the call is; perhaps the connection, too */ };

static enum reading read_some(struct http_kept *kept)
{
    char *input = kept->origin->client->input;
    ssize_t count = recv(kept->fd, input, HTTP_INPUT_SIZE, 0);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return READ_NOTHING;
    size_t used = 0, length = count > 0 ? (size_t)count : 0;
    enum http_answer_state state = HTTP_ANSWER_BROKEN;
    const char *why = count < 0 ? "the connection was reset" : "the peer spoke before it was asked";
    if (count > 0 && kept->has_left)
        state = http_answer_take(&kept->answer, input, length, &used);
    else if (count == 0)
        state = http_answer_close(&kept->answer);
    secret_wipe(input, length);
    switch (state) {
    case HTTP_ANSWER_GOES_ON:
        return READ_SOMETHING;
    case HTTP_ANSWER_WHOLE:
        finish(kept, kept->answer.may_keep && used == length);
        break;
    case HTTP_ANSWER_BROKEN:
        lose(kept, kept->answer.objection ? kept->answer.objection : why);
        break;
    }
    return READ_OVER;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct http_kept *kept = container_of(poll, struct http_kept, poll);
    if (!kept->call) { /* closed by the peer, or words that nobody asked for */
        take_idle(kept);
        drop_kept(kept);
        return;
    }
    if (status >= 0) {
        /* A peer that reads no further may have answered already. */
        if (kept->is_writing && (events & UV_WRITABLE) && !write_more(kept))
            uv_poll_start(poll, UV_READABLE, on_poll);
        if (events & UV_READABLE)
            (void)read_some(kept);
        return;
    }
    /* Broken, and no longer watched; what had arrived before counts. */
    kept->is_broken = true;
    enum reading reading;
    do
        reading = read_some(kept);
    while (reading == READ_SOMETHING);
    if (reading == READ_NOTHING)
        lose(kept, "the connection broke");
}

/* ---- deadlines, and connections that nobody needs ---- */

static void arm(struct http_client *client, int64_t deadline_ms, int64_t least_ms)
{
    int64_t left_ms = deadline_ms - clock_mono_ms();
    if (left_ms < least_ms)
        left_ms = least_ms;
    client->due_ms = deadline_ms;
    uv_timer_start(&client->deadline, on_deadline, (uint64_t)left_ms, 0);
}

/* Moves those whose time is over; returns the next deadline. */
static int64_t take_late(struct http_calls *calls, int64_t now_ms, struct http_calls *late)
{
    int64_t next_ms = INT64_MAX;
    for (struct http_call *call = calls->first, *next; call; call = next) {
        next = call->next;
        if (call->deadline_ms > now_ms) {
            next_ms = call->deadline_ms < next_ms ? call->deadline_ms : next_ms;
            continue;
        }
        if (call->kept) {
            struct http_kept *kept = call->kept;
            detach(kept);
            drop_kept(kept);
        } else {
            take_out(call);
        }
        put(late, call);
    }
    return next_ms;
}

static void fail_all(struct http_calls *calls, const char *why, const char *why_unsent)
{
    while (calls->first) {
        struct http_call *call = calls->first;
        take_out(call);
        http_call_failed(call, call->may_be_sent ? why : why_unsent);
    }
}

static void on_deadline(uv_timer_t *timer)
{
    struct http_client *client = container_of(timer, struct http_client, deadline);
    int64_t now_ms = clock_mono_ms(), next_ms = INT64_MAX;
    struct http_calls late = {0};
    for (struct http_origin *origin = client->origins; origin < client->origins + HTTP_ORIGINS_MAX; origin++) {
        struct http_calls *lists[] = {&origin->waiting, &origin->fresh, &origin->sent};
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
            int64_t due_ms = take_late(lists[i], now_ms, &late);
            next_ms = due_ms < next_ms ? due_ms : next_ms;
        }
        connect_more(origin); /* for those that waited for one of the connections that are gone now */
    }
    if (next_ms < INT64_MAX)
        arm(client, next_ms, DEADLINE_LEAST_MS);
    fail_all(&late, "no answer in time", "no connection in time");
}

static void on_reap(uv_timer_t *timer)
{
    struct http_client *client = container_of(timer, struct http_client, reaper);
    int64_t now_ms = clock_mono_ms();
    for (struct http_origin *origin = client->origins; origin < client->origins + HTTP_ORIGINS_MAX; origin++)
        for (struct http_kept *kept = origin->idle, *next; kept; kept = next) {
            next = kept->next;
            if (now_ms - kept->idle_ms < IDLE_MAX_MS)
                continue;
            take_idle(kept);
            drop_kept(kept);
        }
}

/* ---- for http_client.c ---- */

const char *http_plain_start(struct http_client *client, struct http_call *call)
{
    struct http_origin *origin = call->origin;
    struct http_kept *kept = origin->idle;
    if (kept)
        take_idle(kept);
    if (kept && !send_call(kept, call)) {
        detach(kept);
        drop_kept(kept);
        put(&origin->fresh, call);
    } else if (!kept) {
        put(&origin->waiting, call);
    }
    if (!call->kept && !connect_more(origin)) {
        take_out(call);
        return "out of memory";
    }
    if (!uv_is_active((uv_handle_t *)&client->deadline) || call->deadline_ms < client->due_ms)
        arm(client, call->deadline_ms, 0);
    return NULL;
}

void http_plain_stop_all(struct http_client *client, const char *why)
{
    struct http_calls calls = {0};
    for (struct http_origin *origin = client->origins; origin < client->origins + HTTP_ORIGINS_MAX; origin++) {
        take_late(&origin->waiting, INT64_MAX, &calls);
        take_late(&origin->fresh, INT64_MAX, &calls);
        take_late(&origin->sent, INT64_MAX, &calls);
        http_plain_leave(origin);
    }
    fail_all(&calls, why, why);
}

void http_plain_leave(struct http_origin *origin)
{
    http_connect_stop_all(origin);
    origin->connecting = 0;
    while (origin->idle) {
        struct http_kept *kept = origin->idle;
        take_idle(kept);
        drop_kept(kept);
    }
}

void http_plain_open(struct http_client *client)
{
    buf_init(&client->request, REQUEST_MAX);
    uv_timer_init(client->uv, &client->deadline);
    uv_timer_init(client->uv, &client->reaper);
    uv_timer_start(&client->reaper, on_reap, REAP_MS, REAP_MS);
    uv_unref((uv_handle_t *)&client->deadline); /* what a call waits for is watched anyway */
    uv_unref((uv_handle_t *)&client->reaper);
    client->open_parts += 2;
}

static void on_deadline_closed(uv_handle_t *handle)
{
    http_client_part_closed(container_of((uv_timer_t *)handle, struct http_client, deadline));
}

static void on_reaper_closed(uv_handle_t *handle)
{
    http_client_part_closed(container_of((uv_timer_t *)handle, struct http_client, reaper));
}

void http_plain_close(struct http_client *client)
{
    buf_done(&client->request);
    uv_close((uv_handle_t *)&client->deadline, on_deadline_closed);
    uv_close((uv_handle_t *)&client->reaper, on_reaper_closed);
}
