/* What one answer to the coming call would lead to: `explain --what-if ANSWER`. The answer is read and judged by the
 * worker's own functions (common/core/issuer, common/core/decide). Pure. */
#ifndef ISSUING_CTL_WHAT_IF_H
#define ISSUING_CTL_WHAT_IF_H

#include "common/core/config/config.h"
#include "common/core/decide/decide.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "ctl/cluster.h"
#include "ctl/event.h"

#define WHAT_IF_TEXT_SIZE 320

/* What follows. */
struct what_if_case {
    bool others_are_answered; /* while the peer answers other events well; false: while it answers none */
    enum flow_verdict_kind kind;
    enum flow_step step; /* GO: what comes next */
    /* COMPLETE, REJECT, FAIL: the reason, RETRY, DEFER: the cause; "" = none */
    char code[OUTBOX_REASON_CODE_SIZE];
    int64_t least_ms, most_ms; /* RETRY, DEFER: how long until the next attempt may begin */
    char text[WHAT_IF_TEXT_SIZE];
};

struct what_if {
    enum flow_step step; /* whose call is answered */
    struct outcome outcome;
    int case_count; /* 2 where it depends on how the peer answers other events */
    struct what_if_case cases[2];
};

/* The answers that may be given, for a help text. */
#define WHAT_IF_ANSWERS                                                                                          \
    "ANSWER is a status, with the code of an error answer if wanted (404, 422:card_limit); timeout (sent, and\n" \
    "no answer); unreachable (not sent); executed; or, for a look-up, found, none, several or cancelled.\n"

/* event: event_read_prospect() has read it. route: NULL = a card request. A FAILED event is taken as it is after a
 * replay. ERR_USAGE: no such answer, or not one to that call; ERR_REFUSED: no call follows. */
must_check bool what_if_find(const struct event *event, const struct cluster_route *route, const struct config *config,
                             const char *answer, struct what_if *ret_what_if, struct err *err);
const char *what_if_kind_name(enum flow_verdict_kind kind);

#endif
