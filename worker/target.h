/* One peer that the worker calls (issuer, core): its breaker, its concurrency limit, and the calls that wait for room.
 *
 * A call enters, makes its HTTP request when it is let in, and leaves with what it learnt. While the breaker is open
 * nobody waits: whoever enters,
 * and whoever was waiting when it opened, is told so at once and becomes a deferral. */
#ifndef ISSUING_TARGET_H
#define ISSUING_TARGET_H

#include "worker/breaker.h"

enum target_entry {
    TARGET_GO,   /* go now; target_leave() is owed */
    TARGET_WAIT, /* on_turn will say */
    TARGET_SHUT, /* the breaker is open; nothing is owed */
};

struct target_ticket {
    struct target_ticket *next;
    bool is_waiting;
    uint32_t epoch;
    void (*on_turn)(struct target_ticket *ticket, enum target_entry entry); /* TARGET_GO or TARGET_SHUT */
};

struct target {
    const char *name; /* "issuer", "core" */
    struct breaker breaker;
    struct target_ticket *first, *last; /* waiting, FIFO */
    bool is_calling;                    /* on_turn callbacks run: whoever leaves meanwhile need not call the next */
    void (*on_change)(struct target *target); /* the breaker's state changed, or room appeared: claims may go on */
};

void target_init(struct target *target, const char *name, int failures_max, int64_t probe_interval_ms,
                 int concurrency_max, void (*on_change)(struct target *target));
enum target_entry target_enter(struct target *target, struct target_ticket *ticket);
void target_leave(struct target *target, struct target_ticket *ticket, enum breaker_result result);

#endif
