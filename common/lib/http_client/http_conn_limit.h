/* How many connections an origin may have: as many as make its peer answer more calls a second. A peer that works on
 * one call after the other answers no faster over a hundred connections than over four, and each of them costs both
 * sides a handshake and memory; one that takes its time for each call answers twice as many over twice as many.
 *
 * Calls wait for a connection only while there are as many as allowed. Then the rate of answers is measured over a
 * window, some more connections are allowed, and the rate is measured again: what does not pay is taken back, and tried
 * again later. A peer whose calls take SLOW_MS is not measured but given all, twice as many at each look. Pure. Private
 * to the HTTP client. */
#ifndef ISSUING_HTTP_CONN_LIMIT_H
#define ISSUING_HTTP_CONN_LIMIT_H

#include "common/lib/base/base.h"

#define HTTP_CONN_LIMIT_LEAST 4
#define HTTP_CONN_LIMIT_SLOW_MS 50 /* a call of a slow peer takes at least this long */

struct http_conn_limit {
    int allowed;
    int proven;                 /* of these, those that paid */
    int answers;                /* in this window */
    double rate;                /* answers in a microsecond with the proven ones */
    bool is_trying;             /* more than the proven ones */
    int64_t since_us;           /* when the window began; -1 = it has not */
    int64_t pause_us, again_us; /* between two tries; when the next one is due */
};

void http_conn_limit_init(struct http_conn_limit *limit);
/* A call was answered. is_full: others wait, all connections that are allowed are made, and none of them is idle. */
void http_conn_limit_answered(struct http_conn_limit *limit, bool is_full, int64_t now_us);
/* The peer is slow, and calls wait. */
void http_conn_limit_slow(struct http_conn_limit *limit);

#endif
