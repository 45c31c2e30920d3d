/* What will happen to an event next, when, and why, by the row and by the workers and targets as they are now. Pure. */
#ifndef ISSUING_CTL_OUTLOOK_H
#define ISSUING_CTL_OUTLOOK_H

#include "common/core/config/config.h"
#include "common/core/outbox.h"
#include "common/lib/base/base.h"
#include "ctl/cluster.h"
#include "ctl/event.h"
#include "ctl/explain/outlook_attempt.h"
#include "ctl/explain/outlook_wait.h"

#define OUTLOOK_CODE_SIZE 240

struct outlook {
    enum outlook_action action;
    struct outlook_wait wait; /* of a PENDING event: what must end before an attempt can begin */
    int64_t at_us;            /* 0 = no time is set */
    char why[1200];
};

/* The attempts on record. */
struct outlook_past {
    bool any; /* at least one */
    /* How the last one ended, and why. last_code NULL: there was none since the last replay, or it ended well. */
    enum outbox_attempt last;
    const char *last_code;
    const char *last_step; /* where it ended; NULL as last_code */
};

/* cluster must live as long as the outlook. */
void outlook_of(const struct event *event, const struct outlook_past *past, const struct cluster *cluster,
                const struct config *config, struct outlook *ret_outlook);
const char *outlook_action_name(enum outlook_action action);
const char *outlook_action_text(enum outlook_action action);
/* What a code means to an operator: of an attempt, or an event's reason. */
void outlook_code(const struct event *event, const char *code, char ret_text[OUTLOOK_CODE_SIZE]);
/* A FAILED event as a replay leaves it. */
struct event outlook_reopened(const struct event *event);
/* What a replay of this event would lead to, as a clause. */
void outlook_replay(const struct event *event, const struct cluster *cluster, const struct config *config,
                    char *ret_text, size_t size);

#endif
