/* A point in time as an operator writes it: how long ago it was, or a date. Pure. */
#ifndef ISSUING_CTL_MOMENT_H
#define ISSUING_CTL_MOMENT_H

#include "common/lib/base/base.h"

/* For errors and help: what moment_parse takes. */
#define MOMENT_FORMS "a duration (90s, 15m, 12h, 7d, 4w) or a time (2026-11-20, 2026-11-20T10:39:57Z, ...T12:39+02:00)"

struct moment {
    bool is_ago;
    int64_t us; /* ago, or since 1970 in UTC */
};

/* "90s" to "4w": that long ago. Or RFC 3339: "2026-11-20T10:39:57.5Z"; the time, its seconds and its offset may be left
 * out, a blank may stand for the T. Without an offset it is UTC. False: neither, or there is no such time. */
must_check bool moment_parse(const char *text, struct moment *ret_moment);
/* As microseconds since 1970. now_us: of the database, since its clock wrote what is compared. */
int64_t moment_us(const struct moment *moment, int64_t now_us);

#endif
