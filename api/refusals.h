/* Refused tokens: counted by reason in a metric, and logged, at most one line a reason and second. */
#ifndef ISSUING_REFUSALS_H
#define ISSUING_REFUSALS_H

#include <uv.h>

#include "api/auth.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/metrics.h"

struct refusals {
    uv_timer_t timer; /* runs while refusals are unlogged */
    struct metric_series *series[AUTH_REFUSAL_COUNT];
    struct {
        int64_t logged_ms; /* monotonic, of the last line; valid once has_logged */
        bool has_logged;
        int64_t unlogged; /* since that line */
    } reasons[AUTH_REFUSAL_COUNT];
};

/* family: of issuing_auth_failures_total in metrics; all its series exist from now on. */
void refusals_open(struct refusals *refusals, uv_loop_t *loop, struct metrics *metrics, size_t family);
/* Counts a refusal and writes a line, or counts it for the next line of this reason, which a timer writes. client: its
 * address; trace_id: of its trace; both "" = not known. */
void refusals_note(struct refusals *refusals, enum auth_refusal refusal, const char *client, const char *trace_id);
/* Writes a line for what is unlogged. Its handle is a part of `closing`. */
void refusals_close(struct refusals *refusals, struct closing *closing);

#endif
