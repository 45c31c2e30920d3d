/* See worker_status.h. */
#include "worker/worker_status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define AGE_SIZE 32
#define TIME_SIZE 32

void worker_status_note(struct worker_status_target *target, bool is_closed, int64_t now_us)
{
    if (is_closed)
        target->open_since_us = 0;
    else if (target->open_since_us == 0)
        target->open_since_us = now_us;
}

/* In the largest unit of which there are two or more. */
static void write_age(int64_t age_ms, char text[AGE_SIZE])
{
    int64_t seconds = age_ms > 0 ? age_ms / 1000 : 0;
    if (seconds < 120)
        snprintf(text, AGE_SIZE, "%" PRId64 " s", seconds);
    else if (seconds < 120 * 60)
        snprintf(text, AGE_SIZE, "%" PRId64 " min", seconds / 60);
    else if (seconds < 48 * 3600)
        snprintf(text, AGE_SIZE, "%" PRId64 " h", seconds / 3600);
    else
        snprintf(text, AGE_SIZE, "%" PRId64 " d", seconds / 86400);
}

static void write_time(int64_t at_us, int64_t now_us, char text[TIME_SIZE])
{
    time_t at = (time_t)(at_us / 1000000), now = (time_t)(now_us / 1000000);
    struct tm then = {0}, today = {0};
    text[0] = '\0';
    if (!localtime_r(&at, &then) || !localtime_r(&now, &today))
        return;
    bool is_today = then.tm_year == today.tm_year && then.tm_yday == today.tm_yday;
    (void)strftime(text, TIME_SIZE, is_today ? "%H:%M" : "%Y-%m-%d %H:%M", &then); /* ignoring: it fits */
}

/* Appends, and cuts what does not fit. */
static void append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", more);
}

void worker_status_line(const struct worker_status *status, int64_t now_us, char *ret_text, size_t size)
{
    char part[96], age[AGE_SIZE], since[TIME_SIZE];
    snprintf(ret_text, size, "%d in flight", status->in_flight);
    if (status->knows_backlog) {
        snprintf(part, sizeof(part), ", %" PRId64 " pending", status->pending);
        append(ret_text, size, part);
    }
    if (status->knows_backlog && status->pending > 0) {
        write_age(status->oldest_ms, age);
        snprintf(part, sizeof(part), " (oldest %s)", age);
        append(ret_text, size, part);
    }
    for (size_t i = 0; i < ARRAY_SIZE(status->targets); i++) {
        const struct worker_status_target *target = &status->targets[i];
        if (target->open_since_us == 0)
            continue;
        write_time(target->open_since_us, now_us, since);
        snprintf(part, sizeof(part), ", %s open since %s", target->name, since);
        append(ret_text, size, part);
    }
}
