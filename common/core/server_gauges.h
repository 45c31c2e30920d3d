/* The gauges of what is around the events: the workers of the database and their targets, the lag of the statistics,
 * the last proof and list, and what holds vacuum back at the server. A part of outbox_gauges.h with a pace of its own,
 * so that a slow count of events does not delay it. */
#ifndef ISSUING_SERVER_GAUGES_H
#define ISSUING_SERVER_GAUGES_H

#include "common/core/gauge_question.h"

#define SERVER_TARGETS_MAX 65
#define SERVER_TARGET_SIZE 65
#define SERVER_FIGURES 10

/* A target, as the workers of one place and its operators report it. */
struct server_target {
    char name[SERVER_TARGET_SIZE];
    bool is_paused;
    double state; /* of the breaker; NAN = no living worker calls it */
};

struct server_gauges {
    struct gauge_question question;
    struct server_gauges *first, *next; /* of several places, in their order */
    double figures[SERVER_FIGURES];     /* by enum figure; NAN = not known yet */
    struct server_target targets[SERVER_TARGETS_MAX];
    int target_count;
};

/* first: those of the first place, which show all; NULL = these are the first. Stopped by gauge_question_stop(); the
 * timer of the question is closed by the owner. */
void server_gauges_open(struct server_gauges *gauges, const struct gauges_options *options,
                        struct server_gauges *first);

#endif
