/* See http_growth.h. */
#include "common/lib/http_client/http_growth.h"

#include "common/lib/base/clock.h"
#include "common/lib/http_client/http_url_origin.h"

#define CONNECTS_MAX 64  /* at a time, of one origin */
#define OVERDUE_MS 10000 /* of a handshake, after the last deadline of a call that it began for */

static void on_slow_timer(uv_timer_t *timer);

/* ---- making one ---- */

/* No connection came of it: that ends the call that waits longest, unless only the connection's time was over. */
static void connect_failed(struct http_pool_origin *origin, const char *why)
{
    struct http_call *call = origin->retry_on_new_conn.first ? origin->retry_on_new_conn.first : origin->waiting.first;
    if (call && why) {
        http_calls_remove(call);
        http_call_failed(call, why);
    }
    http_growth_more(origin);
}

/* It is made, or it will not be. */
static void forget_making(struct http_pooled_conn *conn)
{
    if (conn->is_overdue)
        conn->origin->overdue--;
    else
        conn->origin->connecting--;
}

void http_growth_shake(struct http_pooled_conn *conn)
{
    struct http_pool_origin *origin = conn->origin;
    char why[HTTP_TLS_WHY_SIZE];
    switch (http_pooled_conn_shake(conn, why)) {
    case HTTP_STREAM_SHAKEN:
        forget_making(conn);
        http_pool_assign(origin, conn);
        break;
    case HTTP_STREAM_REFUSED:
        forget_making(conn);
        http_pooled_conn_drop(conn);
        connect_failed(origin, why);
        break;
    case HTTP_STREAM_READS:
    case HTTP_STREAM_WRITES:
        break;
    }
}

static void on_connected(void *context, int fd, int64_t deadline_ms, const char *why)
{
    struct http_pool_origin *origin = context;
    struct http_pool *pool = origin->pool;
    struct http_pooled_conn *conn = fd >= 0 ? http_pooled_conn_new(origin, fd, deadline_ms, http_pool_on_poll) : NULL;
    if (!conn) {
        origin->connecting--;
        connect_failed(origin, fd >= 0 ? "out of memory for a connection" : why);
        return;
    }
    http_pool_due(pool, deadline_ms);
    http_growth_shake(conn);
}

/* A connection belongs to no call until it is made, so its deadline is that of the newest call. When it passes, no call
 * ends: each has its own deadline. */
static int64_t connect_deadline_ms(const struct http_pool_origin *origin)
{
    const struct http_call *waiting = origin->waiting.last, *retry = origin->retry_on_new_conn.last;
    int64_t waiting_ms = waiting ? waiting->deadline_ms : 0, retry_ms = retry ? retry->deadline_ms : 0;
    return waiting_ms > retry_ms ? waiting_ms : retry_ms;
}

bool http_growth_is_full(const struct http_pool_origin *origin)
{
    return origin->open_count + origin->connecting >= origin->limit.allowed;
}

/* Connections that are being made, for all calls that cannot take one that is there. */
static int wanted(const struct http_pool_origin *origin)
{
    int more = origin->limit.allowed - origin->open_count;
    more = more < 0 ? 0 : more;
    /* guard: a fast peer gets few connections */
    return origin->retry_on_new_conn.count + (origin->waiting.count < more ? origin->waiting.count : more);
}

bool http_growth_more(struct http_pool_origin *origin)
{
    struct http_pool *pool = origin->pool;
    if (origin->waiting.count > 0 && !uv_is_active((uv_handle_t *)&pool->slow_timer))
        uv_timer_start(&pool->slow_timer, on_slow_timer, HTTP_CONN_LIMIT_SLOW_MS / 2, 0);
    while (origin->connecting < CONNECTS_MAX && origin->connecting < wanted(origin)) {
        int64_t deadline_ms = connect_deadline_ms(origin);
        if (deadline_ms <= clock_mono_ms()) {
            http_pool_wake(pool);
            return true;
        }
        if (!http_connector_start(&pool->connector, &origin->connects, origin->origin->address, deadline_ms,
                                  on_connected, origin))
            break;
        origin->connecting++;
    }
    return origin->connecting > 0 || origin->sent.count > 0;
}

/* ---- over time ---- */

/* A peer that is too slow for the calls of now is not made to begin all over again for the next ones: a handshake has
 * more time than they, and is not a reason against another. Returns the next deadline. */
int64_t http_growth_look(struct http_pool_origin *origin, int64_t now_ms)
{
    int64_t next_ms = INT64_MAX;
    for (struct http_pooled_conn *conn = LIST_FIRST(&origin->shaking), *next; conn; conn = next) {
        next = LIST_NEXT(conn, entry);
        if (conn->deadline_ms <= now_ms && (conn->is_overdue || origin->overdue == CONNECTS_MAX)) {
            forget_making(conn);
            http_pooled_conn_drop(conn);
            continue;
        }
        if (conn->deadline_ms <= now_ms) {
            conn->is_overdue = true;
            conn->deadline_ms = now_ms + OVERDUE_MS;
            origin->connecting--;
            origin->overdue++;
        }
        next_ms = conn->deadline_ms < next_ms ? conn->deadline_ms : next_ms;
    }
    return next_ms;
}

/* Half of the calls that were sent have taken long already. */
static bool is_slow(const struct http_pool_origin *origin, int64_t now_ms)
{
    int count = 0;
    for (const struct http_call *call = origin->sent.first; call; call = call->next)
        count += now_ms - call->conn->sent_ms >= HTTP_CONN_LIMIT_SLOW_MS;
    return 2 * count >= origin->sent.count;
}

static void on_slow_timer(uv_timer_t *timer)
{
    struct http_pool *pool = container_of(timer, struct http_pool, slow_timer);
    int64_t now_ms = clock_mono_ms();
    for (struct http_pool_origin *origin = pool->origins; origin; origin = origin->next) {
        if (origin->waiting.count == 0)
            continue;
        /* guard: a slow peer gets all connections that the calls want */
        if (http_growth_is_full(origin) && origin->connecting == 0 && is_slow(origin, now_ms))
            http_conn_limit_slow(&origin->limit);
        http_growth_more(origin); /* also starts the timer again */
    }
}

void http_growth_open(struct http_pool *pool)
{
    uv_timer_init(pool->uv, &pool->slow_timer);
    uv_unref((uv_handle_t *)&pool->slow_timer);
}

void http_growth_stop(struct http_pool_origin *origin)
{
    http_connector_stop(&origin->connects);
    while (!LIST_EMPTY(&origin->shaking))
        http_pooled_conn_drop(LIST_FIRST(&origin->shaking));
    origin->connecting = origin->overdue = 0;
    http_conn_limit_init(&origin->limit);
}
