/* See http_conn_limit.h. */
#include "common/lib/http_client/http_conn_limit.h"

#define ALLOWED_MAX (1 << 20)
#define WINDOW_LEAST 16 /* answers */
#define PAUSE_US INT64_C(200000)
#define PAUSE_MAX_US INT64_C(30000000)

void http_conn_limit_init(struct http_conn_limit *limit)
{
    *limit = (struct http_conn_limit){
        .allowed = HTTP_CONN_LIMIT_LEAST, .proven = HTTP_CONN_LIMIT_LEAST, .since_us = -1, .pause_us = PAUSE_US};
}

static void try_more(struct http_conn_limit *limit, double rate, int more)
{
    limit->rate = rate;
    limit->allowed = limit->proven + more < ALLOWED_MAX ? limit->proven + more : ALLOWED_MAX;
    limit->is_trying = true;
}

static void look_back(struct http_conn_limit *limit, double rate, int64_t now_us)
{
    double gain = rate / limit->rate, wanted = 1 + 0.5 * (limit->allowed - limit->proven) / limit->proven;
    if (gain >= wanted) { /* half of what it could be */
        limit->proven = limit->allowed;
        limit->pause_us = PAUSE_US;
        try_more(limit, rate, limit->proven);
        return;
    }
    limit->allowed = limit->proven;
    limit->is_trying = false;
    limit->again_us = now_us + limit->pause_us;
    limit->pause_us = 2 * limit->pause_us < PAUSE_MAX_US ? 2 * limit->pause_us : PAUSE_MAX_US;
}

void http_conn_limit_answered(struct http_conn_limit *limit, bool is_full, int64_t now_us)
{
    if (!is_full || limit->since_us < 0) {
        limit->since_us = is_full ? now_us : -1;
        limit->answers = 0;
        return;
    }
    int window = 2 * limit->allowed > WINDOW_LEAST ? 2 * limit->allowed : WINDOW_LEAST;
    if (++limit->answers < window || now_us <= limit->since_us)
        return;
    double rate = limit->answers / (double)(now_us - limit->since_us);
    limit->since_us = -1;
    if (limit->is_trying)
        look_back(limit, rate, now_us);
    else if (now_us >= limit->again_us)
        try_more(limit, rate, limit->proven / 2);
}

void http_conn_limit_slow(struct http_conn_limit *limit)
{
    limit->proven = limit->allowed = 2 * limit->allowed < ALLOWED_MAX ? 2 * limit->allowed : ALLOWED_MAX;
    limit->is_trying = false;
    limit->since_us = -1;
}
