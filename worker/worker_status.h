/* What `systemctl status` shows of a worker: "3 in flight, 12 pending (oldest 4 s), issuer open since 02:14". Pure. */
#ifndef ISSUING_WORKER_STATUS_H
#define ISSUING_WORKER_STATUS_H

#include "common/core/config/config.h"
#include "common/lib/base/base.h"

#define WORKER_STATUS_TARGETS (2 + CONFIG_ROUTES_MAX)

struct worker_status_target {
    const char *name;      /* NULL = there is no such target */
    int64_t open_since_us; /* wall clock; 0 = its breaker is closed */
};

struct worker_status {
    int in_flight;
    bool knows_backlog; /* else the next two are not there yet */
    int64_t pending, oldest_ms;
    struct worker_status_target targets[WORKER_STATUS_TARGETS];
};

/* Notes whether the breaker of a target is closed now. A probe (half-open) belongs to the time that it is open. */
void worker_status_note(struct worker_status_target *target, bool is_closed, int64_t now_us);
/* Times in the zone of the machine, as systemctl prints them; with the date when it is not today's. */
void worker_status_line(const struct worker_status *status, int64_t now_us, char *ret_text, size_t size);

#endif
