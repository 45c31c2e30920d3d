/* See http_pool.h.
 *
 * A call takes an idle connection, the last used first, because that one is most likely still alive. Without one it
 * waits for whatever comes first: a connection whose call has ended, or a new one. A connection serves one call at a
 * time, and goes back to the pool only if the answer allowed it and named no other request, nothing followed the
 * answer, and the whole request had left.
 *
 * A pooled connection that ends without a byte of an answer was closed by the peer while the request was sent: the call
 * is sent once more, on a new connection. If a byte of the first sending had left, may_be_sent stays set, and so does
 * was_resent.
 *
 * Invariants: a call is in one list of its origin, and in `sent` exactly while it has a connection; no call ends inside
 * http_pool_start(); a peer has nothing to say on an idle connection, so whatever arrives there ends the connection.
 * Left out: how connections are made (http_growth.c), pipelining. */
#include "common/lib/http_client/http_pool.h"

#include "common/lib/base/backoff.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/secret.h"
#include "common/lib/http_client/http_growth.h"
#include "common/lib/http_client/http_pooled_conn.h"
#include "common/lib/http_client/http_url_origin.h"

#define IDLE_MAX_MS 118000 /* what middle boxes forget; libcurl's limit, too */
#define IDLE_CHECK_MS 15000
#define DEADLINE_LEAST_MS 10 /* the precision of deadlines; it bounds how often all calls are looked through */

/* ---- deadlines ---- */

static void on_deadline(uv_timer_t *timer);

/* At the next iteration of the loop, which there is. */
void http_pool_wake(struct http_pool *pool)
{
    pool->due_ms = clock_mono_ms();
    uv_ref((uv_handle_t *)&pool->deadline);
    uv_timer_start(&pool->deadline, on_deadline, 0, 0);
}

/* ---- sending ---- */

static void put_header(struct buf *request, const char *header)
{
    buf_put_text(request, header);
    buf_put(request, "\r\n", 2);
}

static bool write_request(struct buf *request, const struct http_pool_origin *origin, const struct http_call *call)
{
    buf_reset(request);
    buf_put_text(request, call->method);
    buf_put_byte(request, ' ');
    buf_put_text(request, call->lines.bytes + origin->origin->text_length);
    buf_put_text(request, " HTTP/1.1\r\nHost: ");
    put_header(request, origin->origin->host);
    buf_put_text(request, "User-Agent: issuing\r\nAccept: */*\r\n");
    const char *line = call->lines.bytes;
    while ((line = http_call_next_line(call, line)))
        put_header(request, line);
    if (call->secret_header)
        put_header(request, call->secret_header);
    if (http_call_has_body(call)) {
        buf_put_text(request, "Content-Length: ");
        buf_put_integer(request, (int64_t)call->body.length);
        buf_put(request, "\r\n", 2);
    }
    buf_put(request, "\r\n", 2);
    if (http_call_has_body(call))
        buf_put(request, call->body.bytes, call->body.length);
    return !request->failed;
}

/* Connections that were made at one time do not all end at one time. */
static int64_t end_of(const struct http_call *call)
{
    int64_t age_ms = call->connection_age_ms;
    return age_ms == 0 ? INT64_MAX
                       : clock_mono_ms() + age_ms - (int64_t)(backoff_random() % (uint64_t)(age_ms / 5 + 1));
}

/* The peer's name may have another address by now. */
static bool is_old(const struct http_pooled_conn *conn)
{
    return conn->ends_ms != 0 && clock_mono_ms() >= conn->ends_ms;
}

/* Takes the call, which is in no list. false: the connection is broken; it also counts as broken when there is no
 * memory for the request. */
static bool send_call(struct http_pooled_conn *conn, struct http_call *call)
{
    struct http_pool *pool = conn->origin->pool;
    conn->call = call;
    conn->sent_ms = clock_mono_ms();
    if (conn->ends_ms == 0)
        conn->ends_ms = end_of(call);
    if (conn->stream.ssl) {
        call->handshake = conn->handshake;
        call->certificate_ends_s = http_tls_ends_s(conn->stream.tls);
        conn->handshake = HTTP_HANDSHAKE_NONE;
    }
    http_stream_begin(&conn->stream, HTTP_CALL_BYTES(pool->answer_max));
    call->conn = conn;
    http_calls_add(&conn->origin->sent, call);
    http_answer_begin(&conn->answer, call, pool->answer_max);
    bool is_sent = (!conn->is_reused || http_stream_is_silent(&conn->stream, true)) &&
                   write_request(&pool->request, conn->origin, call) &&
                   http_pooled_conn_write_first(conn, &pool->request);
    if (pool->request.length > 0)
        /* guard: a request that was written is wiped */
        secret_wipe(pool->request.bytes, pool->request.length);
    return is_sent;
}

static bool write_more(struct http_pooled_conn *conn)
{
    /* guard: no rest of a request is sent after its time */
    if (http_call_is_late(conn->call)) { /* the rest must not be sent any more */
        http_pool_wake(conn->origin->pool);
        return false;
    }
    return http_pooled_conn_write_more(conn);
}

/* ---- the end of a call ---- */

/* Separates the connection and its call; the caller decides what happens to both. */
static struct http_call *detach(struct http_pooled_conn *conn)
{
    struct http_call *call = conn->call;
    http_calls_remove(call);
    call->conn = NULL;
    conn->call = NULL;
    /* guard: an idle connection has forgotten the last header */
    http_answer_forget(&conn->answer);
    return call;
}

/* The connection ended while its call was under way. */
static void conn_lost(struct http_pooled_conn *conn, const char *why)
{
    struct http_pool_origin *origin = conn->origin;
    /* guard: a byte of an answer forbids to send again */
    bool is_retry = conn->is_reused && !conn->answer.has_begun;
    struct http_call *call = detach(conn);
    http_pooled_conn_drop(conn);
    /* guard: what must not be sent twice is not */
    if (is_retry && http_call_may_resend(call))
        http_calls_add(&origin->retry_on_new_conn, call);
    else
        http_call_failed(call, why);
    http_growth_more(origin);
}

/* Skips those whose time is over: they end by the deadline timer, so that no callback is called from here. */
static struct http_call *first_in_time(struct http_pool_origin *origin, const struct http_calls *calls)
{
    struct http_call *call = calls->first;
    if (call && http_call_is_late(call))
        http_pool_wake(origin->pool);
    /* guard: nothing is sent after its time */
    while (call && http_call_is_late(call))
        call = call->next;
    return call;
}

/* Gives a connection without a call to the call that waits longest, else to the pool. */
void http_pool_assign(struct http_pool_origin *origin, struct http_pooled_conn *conn)
{
    /* guard: the second sending goes on a new connection */
    struct http_call *call = conn->is_reused ? NULL : first_in_time(origin, &origin->retry_on_new_conn);
    if (!call)
        call = first_in_time(origin, &origin->waiting);
    /* It does not pay, see http_conn_limit.h. */
    if (call && conn->is_reused && origin->open_count > origin->limit.allowed) {
        http_pooled_conn_drop(conn);
        return;
    }
    if (call) {
        http_calls_remove(call);
        if (!send_call(conn, call))
            conn_lost(conn, "the connection broke while the request was sent");
        return;
    }
    conn->is_reused = true;
    if (origin->idle_count < origin->pool->idle_max)
        http_pooled_conn_add_idle(conn);
    else
        http_pooled_conn_drop(conn);
}

static void finish(struct http_pooled_conn *conn, bool may_keep)
{
    struct http_pool_origin *origin = conn->origin;
    struct http_call *call = detach(conn);
    http_conn_limit_answered(&origin->limit,
                             origin->waiting.count > 0 && origin->connecting == 0 && http_growth_is_full(origin),
                             clock_mono_us());
    call->is_anothers = call->names_other && call->names_other(call);
    /* guard: a connection whose answers are others' is not pooled */
    may_keep = may_keep && !call->is_anothers;
    /* guard: a busy connection becomes no older than its peer's age */
    may_keep = may_keep && !is_old(conn);
    /* guard: a connection is not pooled before the whole request left */
    /* guard: a connection that the loop watches no longer is not pooled */
    if (may_keep && !conn->is_writing && !conn->is_broken) {
        conn->is_reused = true;
        http_pool_assign(origin, conn);
    } else {
        http_pooled_conn_drop(conn);
        http_growth_more(origin);
    }
    http_call_answered(call);
}

/* ---- reading ---- */

enum reading { READ_SOMETHING, READ_NOTHING, READ_OVER /* the call ended, perhaps the connection too */ };

static enum reading read_some(struct http_pooled_conn *conn)
{
    char *input = conn->origin->pool->input;
    ssize_t count = http_stream_read(&conn->stream, input, HTTP_INPUT_SIZE);
    if (count == HTTP_STREAM_AGAIN)
        return READ_NOTHING;
    size_t used = 0, length = count > 0 ? (size_t)count : 0;
    enum http_answer_state state = HTTP_ANSWER_BROKEN;
    const char *why = count < 0 ? conn->stream.why : "the peer spoke before it was asked";
    /* guard: what came before a byte of the request left is not an answer to it */
    if (count > 0 && conn->stream.has_sent)
        state = http_answer_take(&conn->answer, input, length, &used);
    /* guard: a reset is not the end of a body */
    else if (count == 0)
        state = http_answer_close(&conn->answer);
    /* guard: what was read is wiped */
    secret_wipe(input, length);
    switch (state) {
    case HTTP_ANSWER_GOES_ON:
        return READ_SOMETHING;
    case HTTP_ANSWER_WHOLE:
        /* guard: a connection is not pooled with bytes behind the answer */
        /* guard: a connection is pooled only if the answer allows it */
        finish(conn, conn->answer.may_keep && used == length && http_stream_is_silent(&conn->stream, false));
        break;
    case HTTP_ANSWER_BROKEN:
        conn_lost(conn, conn->answer.objection ? conn->answer.objection : why);
        break;
    }
    return READ_OVER;
}

/* No call: the peer closed it, said something for itself over TLS, or something without a request. */
static void on_idle_poll(struct http_pooled_conn *conn, int status)
{
    if (status >= 0 && conn->stream.ssl && http_stream_is_silent(&conn->stream, true))
        return;
    /* guard: an idle connection that speaks is dropped */
    http_pooled_conn_remove_idle(conn);
    http_pooled_conn_drop(conn);
}

void http_pool_on_poll(uv_poll_t *poll, int status, int events)
{
    struct http_pooled_conn *conn = container_of(poll, struct http_pooled_conn, poll);
    enum reading reading = READ_NOTHING;
    http_stream_begin_iteration(&conn->stream);
    if (conn->is_shaking) {
        http_growth_shake(conn);
        return;
    }
    if (!conn->call) {
        on_idle_poll(conn, status);
        return;
    }
    bool is_broken = status < 0; /* and no longer watched; what had arrived before counts */
    conn->is_broken = is_broken;
    /* A peer that does not read the rest may have answered already. */
    if (conn->is_writing && (events & UV_WRITABLE) && !is_broken && !write_more(conn))
        uv_poll_start(poll, UV_READABLE, http_pool_on_poll);
    if (!is_broken && !(events & UV_READABLE))
        return;
    do {
        if (is_broken) /* there is no next iteration */
            http_stream_begin_iteration(&conn->stream);
        reading = read_some(conn);
    } while (reading == READ_SOMETHING && (is_broken || http_stream_has_more(&conn->stream)));
    if (reading == READ_NOTHING && is_broken)
        conn_lost(conn, "the connection broke");
}

/* ---- deadlines, and connections that were idle for long ---- */

static void arm_deadline(struct http_pool *pool, int64_t deadline_ms, int64_t least_ms)
{
    int64_t left_ms = deadline_ms - clock_mono_ms();
    if (left_ms < least_ms)
        left_ms = least_ms;
    pool->due_ms = deadline_ms;
    uv_timer_start(&pool->deadline, on_deadline, (uint64_t)left_ms, 0);
}

void http_pool_due(struct http_pool *pool, int64_t deadline_ms)
{
    if (!uv_is_active((uv_handle_t *)&pool->deadline) || deadline_ms < pool->due_ms)
        arm_deadline(pool, deadline_ms, 0);
}

/* Moves the calls whose time is over to `late`; returns the next deadline of the others. */
static int64_t take_late(struct http_calls *calls, int64_t now_ms, struct http_calls *late)
{
    int64_t next_ms = INT64_MAX;
    for (struct http_call *call = calls->first, *next; call; call = next) {
        next = call->next;
        if (call->deadline_ms > now_ms) {
            next_ms = call->deadline_ms < next_ms ? call->deadline_ms : next_ms;
            continue;
        }
        if (call->conn) {
            struct http_pooled_conn *conn = call->conn;
            detach(conn);
            http_pooled_conn_drop(conn);
        } else {
            http_calls_remove(call);
        }
        http_calls_add(late, call);
    }
    return next_ms;
}

static void fail_all(struct http_calls *calls, const char *why, const char *why_unsent)
{
    while (calls->first) {
        struct http_call *call = calls->first;
        http_calls_remove(call);
        http_call_failed(call, call->may_be_sent ? why : why_unsent);
    }
}

static void on_deadline(uv_timer_t *timer)
{
    struct http_pool *pool = container_of(timer, struct http_pool, deadline);
    int64_t now_ms = clock_mono_ms(), next_ms = INT64_MAX;
    struct http_calls late = {0};
    uv_unref((uv_handle_t *)timer);
    for (struct http_pool_origin *origin = pool->origins; origin; origin = origin->next) {
        struct http_calls *lists[] = {&origin->waiting, &origin->retry_on_new_conn, &origin->sent};
        for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
            int64_t due_ms = take_late(lists[i], now_ms, &late);
            next_ms = due_ms < next_ms ? due_ms : next_ms;
        }
        int64_t due_ms = http_growth_look(origin, now_ms);
        next_ms = due_ms < next_ms ? due_ms : next_ms;
        http_growth_more(origin); /* calls may have waited for a connection that is gone now */
    }
    if (next_ms < INT64_MAX)
        arm_deadline(pool, next_ms, DEADLINE_LEAST_MS);
    fail_all(&late, "no answer in time", "no connection in time");
}

static void on_idle_timer(uv_timer_t *timer)
{
    struct http_pool *pool = container_of(timer, struct http_pool, idle_timer);
    int64_t now_ms = clock_mono_ms();
    for (struct http_pool_origin *origin = pool->origins; origin; origin = origin->next) {
        for (struct http_pooled_conn *conn = LIST_FIRST(&origin->idle), *next; conn; conn = next) {
            next = LIST_NEXT(conn, entry);
            if (now_ms - conn->idle_ms < IDLE_MAX_MS && !is_old(conn))
                continue;
            http_pooled_conn_remove_idle(conn);
            http_pooled_conn_drop(conn);
        }
        if (origin->open_count == 0)
            http_conn_limit_init(&origin->limit);
    }
}

/* ---- for http_client.c ---- */

static struct http_pooled_conn *take_idle(struct http_pool_origin *origin)
{
    struct http_pooled_conn *conn;
    while ((conn = LIST_FIRST(&origin->idle)) != NULL) {
        http_pooled_conn_remove_idle(conn);
        /* guard: an idle connection that is too old is not used */
        if (!is_old(conn))
            break;
        http_pooled_conn_drop(conn);
    }
    return conn;
}

const char *http_pool_start(struct http_pool_origin *origin, struct http_call *call)
{
    struct http_pool *pool = origin->pool;
    struct http_pooled_conn *conn = take_idle(origin);
    if (conn && !send_call(conn, call)) {
        detach(conn);
        http_pooled_conn_drop(conn);
        if (!http_call_may_resend(call))
            return "the connection broke while the request was sent";
        http_calls_add(&origin->retry_on_new_conn, call);
    } else if (!conn) {
        http_calls_add(&origin->waiting, call);
    }
    if (!call->conn && !http_growth_more(origin)) {
        http_calls_remove(call);
        return "out of memory";
    }
    http_pool_due(pool, call->deadline_ms);
    return NULL;
}

void http_pool_stop_all(struct http_pool *pool, const char *why)
{
    struct http_calls calls = {0};
    for (struct http_pool_origin *origin = pool->origins; origin; origin = origin->next) {
        take_late(&origin->waiting, INT64_MAX, &calls);
        take_late(&origin->retry_on_new_conn, INT64_MAX, &calls);
        take_late(&origin->sent, INT64_MAX, &calls);
        http_pool_leave(origin);
    }
    fail_all(&calls, why, why);
}

void http_pool_leave(struct http_pool_origin *origin)
{
    http_growth_stop(origin);
    while (!LIST_EMPTY(&origin->idle)) {
        struct http_pooled_conn *conn = LIST_FIRST(&origin->idle);
        http_pooled_conn_remove_idle(conn);
        http_pooled_conn_drop(conn);
    }
}

bool http_pool_open(struct http_pool *pool, uv_loop_t *uv, int idle_max, size_t answer_max, struct err *err)
{
    if (!http_connector_open(&pool->connector, uv, err))
        return false;
    pool->uv = uv;
    pool->idle_max = idle_max;
    pool->answer_max = answer_max;
    buf_init(&pool->request, HTTP_REQUEST_MAX);
    uv_timer_init(uv, &pool->deadline);
    uv_timer_init(uv, &pool->idle_timer);
    uv_timer_start(&pool->idle_timer, on_idle_timer, IDLE_CHECK_MS, IDLE_CHECK_MS);
    /* A call under way holds the loop by its connection; these timers must not. */
    uv_unref((uv_handle_t *)&pool->deadline);
    uv_unref((uv_handle_t *)&pool->idle_timer);
    http_growth_open(pool);
    return true;
}

void http_pool_origin_init(struct http_pool_origin *pool_origin, struct http_pool *pool,
                           const struct http_url_origin *origin)
{
    *pool_origin = (struct http_pool_origin){.pool = pool, .next = pool->origins, .origin = origin};
    http_conn_limit_init(&pool_origin->limit);
    pool->origins = pool_origin;
}

void http_pool_close(struct http_pool *pool, void (*on_closed)(void *context), void *context)
{
    buf_done(&pool->request);
    pool->is_closing = true;
    closing_start(&pool->closing, NULL, NULL, on_closed, context);
    for (int i = 0; i < pool->conns_open; i++)
        closing_part(&pool->closing);
    http_connector_close(&pool->connector, closing_part_closed, closing_part(&pool->closing));
    closing_handle(&pool->closing, &pool->deadline);
    closing_handle(&pool->closing, &pool->idle_timer);
    closing_handle(&pool->closing, &pool->slow_timer);
    closing_end(&pool->closing);
}
