/* The line that `systemctl status` shows: what the daemon waits for, and what it holds. Pure.
 *
 *     20 connections, 40 requests/s, 0 waiting for the database
 *     draining; 3 in flight
 *     waiting for the database (connection refused); 3 in flight, issuer open since 02:14 */
#ifndef ISSUING_DAEMON_STATUS_H
#define ISSUING_DAEMON_STATUS_H

#include "common/lib/base/base.h"

#define DAEMON_STATUS_SIZE 240

enum daemon_state { DAEMON_WORKING, DAEMON_WAITING, DAEMON_DRAINING };

/* All zero at first. */
struct daemon_status {
    enum daemon_state state;
    int64_t sent_ms; /* when the last line was returned; 0 = none yet */
    char line[DAEMON_STATUS_SIZE];
};

/* Returns the line to send to systemd now, valid until the next call; NULL when the last one still holds, or is less
 * than three seconds old and the state is the same. why: what is amiss with the database, for WAITING. text: what the
 * program says of itself, may be "". */
const char *daemon_status_line(struct daemon_status *status, enum daemon_state state, const char *why, const char *text,
                               int64_t now_ms);

#endif
