/* All places together, for `status` and the console: the sums, and which place needs an operator. */
#ifndef ISSUING_CTL_TOTALS_H
#define ISSUING_CTL_TOTALS_H

#include "common/core/config/config.h"
#include "ctl/counts.h"
#include "ctl/place_servers.h"
#include "ctl/verdict.h"

struct totals_place {
    int place;
    bool is_away; /* it could not be read, because of err; all but `what` is 0 then */
    struct err err;
    char home[PLACE_NAME_SIZE];   /* and the name of the server that was asked, which serves it */
    char where[PLACE_WHERE_SIZE]; /* that server: "host:port" */
    int64_t workers;              /* that are alive */
    int64_t pending, processing, unknown, failed;
    int64_t age_us; /* of the oldest open event; 0 = there is none */
    bool is_bad, is_grave;
    char what[VERDICT_SENTENCE_SIZE]; /* the first sentence of its verdict */
    char todo[VERDICT_TODO_SIZE];
};

struct totals {
    struct counts counts;            /* sums, the oldest of all; `open` and `failed` are not used */
    int oldest_place;                /* of counts.oldest_pending_s */
    int64_t workers;                 /* that are alive */
    int away, unworked;              /* places: those that could not be read, and those without a worker */
    int bad;                         /* places that are away or whose verdict is bad */
    const struct totals_place *most; /* of the places with open events, that with the most; NULL = there is none */
    int count;
    struct totals_place places[CONFIG_PLACES_MAX]; /* the worst first */
};

/* Reads each place, one after the other, over connections of its own. limit_ms: a place that is not read within it,
 * since the first one was begun, counts as away; 0 = each is waited for. *ret_totals is freed by the caller, with
 * free(). False: out of memory. */
must_check bool totals_read(const struct ctl *ctl, bool exact, int64_t limit_ms, struct totals **ret_totals,
                            struct err *err);

#endif
