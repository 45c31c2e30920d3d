/* What `systemctl status` shows of the api: "20 connections, 40 requests/s, 0 waiting for the database". Pure. */
#ifndef ISSUING_API_STATUS_H
#define ISSUING_API_STATUS_H

#include "common/lib/base/base.h"

/* All zero at first. */
struct api_status {
    int64_t since_ms;      /* when `replies` was noted; 0 = never */
    uint64_t replies;      /* of the server, until then */
    double replies_second; /* in the span before */
};

struct api_status_now {
    int connections;
    uint64_t replies; /* answered since the start */
    int waiting;      /* requests that the database has not answered yet */
    int64_t now_ms;
};

/* To be called every second or more often: the rate is that of the last whole span of three seconds. */
void api_status_line(struct api_status *status, const struct api_status_now *now, char *ret_text, size_t size);

#endif
