/* What will happen to an event next, when, and why; and what a code means. Pure: the worker's rules (ARCHITECTURE.md)
 * as an operator needs them, and the workers and targets as they are now. */
#ifndef ISSUING_CTL_OUTLOOK_H
#define ISSUING_CTL_OUTLOOK_H

#include "common/base/base.h"
#include "common/config/config.h"
#include "common/outbox.h"
#include "ctl/cluster.h"
#include "ctl/event.h"

/* For programs, for people. */
#define OUTLOOK_ACTIONS(X)                                          \
    X(ATTEMPT, attempt, "A worker makes an attempt")                \
    X(LINK, link, "A worker links the card")                        \
    X(LOOK_UP, look_up, "A worker looks the card up at the issuer") \
    X(CANCEL, cancel, "A worker cancels the card")                  \
    X(DELIVER, deliver, "A worker delivers it")                     \
    X(ASK, ask, "A worker asks the receiver about it")              \
    X(END, end, "A worker ends it")                                 \
    X(WAIT, wait, "A worker is working on it")                      \
    X(TAKE_OVER, take_over, "Another worker takes over")            \
    X(OPERATOR, operator, "An operator decides")                    \
    X(NONE, none, "Nothing")

enum outlook_action {
#define X(name, word, text) OUTLOOK_##name,
    OUTLOOK_ACTIONS(X)
#undef X
};

#define OUTLOOK_CODE_SIZE 240
#define OUTLOOK_CLAUSE_SIZE 440

/* What keeps every worker from the event: for programs. */
#define OUTLOOK_WAITS(X) \
    X(NOTHING, nothing)  \
    X(WORKER, worker)    \
    X(ROUTE, route)      \
    X(EVENT, event)      \
    X(PAUSE, pause)      \
    X(BREAKER, breaker)  \
    X(REST, rest)

enum outlook_wait {
#define X(name, word) OUTLOOK_WAIT_FOR_##name,
    OUTLOOK_WAITS(X)
#undef X
};

struct outlook {
    enum outlook_action action;
    /* Of a PENDING event: what must end before an attempt can begin. EVENT: event->held_behind_text; ROUTE: nobody
     * delivers its type. */
    enum outlook_wait wait;
    const struct cluster_target *target; /* of a pause, breaker or rest; borrowed from the cluster */
    int64_t at_us;                       /* 0 = no time is set */
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
const char *outlook_wait_name(enum outlook_wait wait);
const char *outlook_action_name(enum outlook_action action);
const char *outlook_action_text(enum outlook_action action);
/* What a replay of this event would lead to, as a clause. */
void outlook_replay(const struct event *event, const struct cluster *cluster, const struct config *config,
                    char *ret_text, size_t size);
/* A code of an attempt of this event, or its reason, in words for an operator. */
void outlook_code(const struct event *event, const char *code, char ret_text[OUTLOOK_CODE_SIZE]);

#endif
