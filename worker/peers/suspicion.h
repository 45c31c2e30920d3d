/* What refusals of one kind of call show (pure): 401, 403, 404, 405 and 3xx, which are the fault either of our
 * credentials or configuration, or of the event.
 *
 * TRUSTED: refusals count against their events. SUSPECTED: enough of them came in a row, from SUSPICION_EVENTS
 * different events, and no good answer of this kind was given within SUSPICION_GOOD_MS (or so many refusals came that
 * one no longer matters). Then calls of this kind are probes, one at a time. A good answer, also to a call that began
 * before, makes it TRUSTED.
 *
 * The probes have two schedules. A fresh event, which was not refused before, may show at once that only others are
 * refused: its pauses begin with a hundredth of the probe interval and double up to a quarter of it. A refused one may
 * show that its cause is gone: once a probe interval. Where a fresh probe has effects before this call (a card is made
 * before it is linked; is_dear), the pauses begin with a quarter of the interval and grow four times up to
 * SUSPICION_DEAR_PAUSE_MAX_MS; the link of a card that an earlier attempt made counts as a refused one.
 *
 * Wary: while it is suspected, and for SUSPICION_WARY_MS after each refusal that follows, fresh events are claimed
 * before refused ones, so that refused events do not make it suspected again at once. */
#ifndef ISSUING_SUSPICION_H
#define ISSUING_SUSPICION_H

#include "common/lib/base/uuid7.h"

#define SUSPICION_EVENTS 3
#define SUSPICION_GOOD_MS 1000
#define SUSPICION_FACTOR 10 /* times `failures` in a row: good answers within SUSPICION_GOOD_MS do not matter */
#define SUSPICION_WARY_MS 2000
#define SUSPICION_DEAR_PAUSE_MAX_MS (5 * 60 * 1000)
#define SUSPICION_CAUSE_SIZE 65

struct suspicion {
    int failures_max;
    int64_t probe_interval_ms;
    int in_a_row; /* since the last good answer */
    struct uuid events[SUSPICION_EVENTS];
    int event_count; /* different ones among them */
    int64_t good_ms; /* the last good answer; INT64_MIN = none */
    int64_t wary_until_ms;
    bool is_suspected;
    /* SUSPECTED: */
    bool is_dear;
    int probes; /* in flight */
    int64_t since_ms;
    char cause[SUSPICION_CAUSE_SIZE]; /* the code of the last refusal */
    int64_t pause_ms;                 /* after the next fresh probe */
    int64_t fresh_at_ms, again_at_ms;
};

/* A refusal. */
struct refusal {
    struct uuid event_id;
    bool is_repeated; /* the event had this answer the last time, too, or it cost nothing new */
    bool is_probe;    /* the call began as a probe */
    bool is_dear;     /* calls of this kind come after one that has effects */
    const char *cause;
};

void suspicion_init(struct suspicion *suspicion, int failures_max, int64_t probe_interval_ms);
/* Returns whether it was suspected until now. */
bool suspicion_note_good(struct suspicion *suspicion, int64_t now_ms);
/* Returns whether it is suspected from now on. */
bool suspicion_note_refused(struct suspicion *suspicion, const struct refusal *refusal, int64_t now_ms);
/* SUSPECTED: a probe with a fresh event, or with one that was refused before, may start. */
bool suspicion_fresh_is_due(const struct suspicion *suspicion, int64_t now_ms);
bool suspicion_again_is_due(const struct suspicion *suspicion, int64_t now_ms);
/* SUSPECTED: both are due now. */
void suspicion_hasten(struct suspicion *suspicion, int64_t now_ms);

#endif
