/* What is wrong, in sentences: the head of `status` and of the console's first page. */
#ifndef ISSUING_CTL_VERDICT_H
#define ISSUING_CTL_VERDICT_H

#include "common/core/config/config.h"
#include "common/lib/pg/pg_sync.h"
#include "ctl/backlog.h"
#include "ctl/cluster.h"

#define VERDICT_SIZE 2000
#define VERDICT_SENTENCE_SIZE 400
#define VERDICT_TODO_SIZE 200
#define VERDICT_EVENTS_MAX BACKLOG_MAX /* counted at most */

#define VERDICT_NEWEST 5000    /* events that operator_pattern looks at */
#define VERDICT_MADE_MAX 10000 /* and operator_pace */

/* Of operator_open and operator_failed; VERDICT_EVENTS_MAX stands for "or more". All zeros: nothing. */
struct verdict_facts {
    int64_t pending, processing;
    int64_t overdue;    /* PENDING of delivered types, due for more than a minute */
    int64_t overdue_us; /* when the first of these was due; 0 = there is none */
    int64_t failed;
    int64_t scheduled; /* of pending: not to run yet */
    int64_t unknown;   /* PENDING and FAILED ones whose outcome is unknown, as issuing_outcome_unknown */
    /* When the oldest open event was made or to run, 0 = there is none; the database's clock. */
    int64_t oldest_us, now_us;
    int64_t key_ends_us; /* the first one of an unknown outcome that has not ended; 0 = there is none */
    int64_t key_lifetime_ms;
    int unit; /* the number of the unit that is a worker here: of several places, that of the place */
    /* Of operator_status_rejected, operator_pattern and operator_pace; borrowed. */
    const struct pg_rows *rejected, *pattern, *pace;
    const struct pg_rows *open; /* of operator_open; borrowed */
};

/* Columns of operator_status_rejected. */
enum verdict_rejected_column {
    VERDICT_CODE,
    VERDICT_TYPE,
    VERDICT_EVENTS,
    VERDICT_REJECTED,
    VERDICT_ENDED,
    VERDICT_SINCE
};

struct verdict {
    bool is_bad;   /* an operator should look */
    bool is_grave; /* and soon: cards or deliveries fail or are late */
    char text[VERDICT_SIZE];
    int first;                    /* the length of its first sentence */
    char todo[VERDICT_TODO_SIZE]; /* about the first sentence; "" = nothing */
};

/* Of rows of operator_open and operator_failed in that place; the others of ret_facts are set by the caller. */
void verdict_facts_of(const struct config *config, int place, const struct pg_rows *open, const struct pg_rows *failed,
                      struct verdict_facts *ret_facts);
/* "25 of 26 events that ended since ... are REJECTED, ..." where they are too many; else false. Rows of
 * operator_status_rejected. */
bool verdict_find_rejected(const struct pg_rows *rejected, char ret_text[VERDICT_SENTENCE_SIZE]);
/* Present troubles come first, the worst in front; then the events that wait for an operator. */
void verdict_of(const struct cluster *cluster, const struct verdict_facts *facts, struct verdict *ret_verdict);

#endif
