/* See api_status.h. */
#include "api/api_status.h"

#include <stdio.h>

#define SPAN_MS 3000

static void note_rate(struct api_status *status, const struct api_status_now *now)
{
    int64_t span_ms = now->now_ms - status->since_ms;
    if (status->since_ms != 0 && span_ms < SPAN_MS)
        return;
    if (status->since_ms != 0)
        status->replies_second = (double)(now->replies - status->replies) * 1000 / (double)span_ms;
    status->since_ms = now->now_ms;
    status->replies = now->replies;
}

void api_status_line(struct api_status *status, const struct api_status_now *now, char *ret_text, size_t size)
{
    note_rate(status, now);
    /* One request in three seconds is not none. */
    bool is_slow = status->replies_second > 0 && status->replies_second < 9.95;
    snprintf(ret_text, size, "%d connection%s, %.*f requests/s, %d waiting for the database", now->connections,
             now->connections == 1 ? "" : "s", is_slow ? 1 : 0, status->replies_second, now->waiting);
}
