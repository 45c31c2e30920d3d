/* See daemon_status.h. */
#include "common/core/daemon_status.h"

#include <stdio.h>
#include <string.h>

#define SEND_EVERY_MS 3000
#define WHY_MAX 80 /* of the reason: the numbers behind it matter as well */

static void write_line(char line[DAEMON_STATUS_SIZE], enum daemon_state state, const char *why, const char *text)
{
    const char *separator = *text != '\0' ? "; " : "";
    switch (state) {
    case DAEMON_WORKING:
        snprintf(line, DAEMON_STATUS_SIZE, "%s", *text != '\0' ? text : "working");
        return;
    case DAEMON_WAITING:
        snprintf(line, DAEMON_STATUS_SIZE, "waiting for the database (%.*s)%s%s", WHY_MAX, why, separator, text);
        return;
    case DAEMON_DRAINING:
        snprintf(line, DAEMON_STATUS_SIZE, "draining%s%s", separator, text);
        return;
    }
}

const char *daemon_status_line(struct daemon_status *status, enum daemon_state state, const char *why, const char *text,
                               int64_t now_ms)
{
    char line[DAEMON_STATUS_SIZE];
    bool is_first = status->sent_ms == 0;
    if (!is_first && state == status->state && now_ms - status->sent_ms < SEND_EVERY_MS)
        return NULL;
    write_line(line, state, why, text);
    if (!is_first && strcmp(line, status->line) == 0)
        return NULL;
    status->state = state;
    status->sent_ms = now_ms;
    memcpy(status->line, line, sizeof(line));
    return status->line;
}
