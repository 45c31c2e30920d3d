/* The story of one event, as `explain` and the console tell it: the event, its attempts, what operators did, and what
 * happens next. */
#ifndef ISSUING_CTL_STORY_H
#define ISSUING_CTL_STORY_H

#include "common/lib/base/base.h"
#include "common/lib/pg/pg_sync.h"
#include "ctl/cluster.h"
#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/explain/outlook.h"

#define STORY_ATTEMPTS_MAX 10000
#define STORY_WORDS_SIZE 160

/* Columns of operator_attempts and operator_actions_of. */
enum story_attempt { ATTEMPT, WORKER, STARTED_AT, ENDED_AT, STEP, OUTCOME, CODE, DETAIL, UNKNOWN };
enum story_action { AT, ACTOR, ACTION, REASON, BEFORE, AFTER, DB_ROLE, OS_USER, SUDO_USER };

struct story {
    struct event event;
    struct pg_rows *event_rows, *prospect, *attempts, *actions; /* owned; attempts newest first */
    struct cluster cluster;
    struct outlook outlook;
};

/* ret_story is all zeros before; story_done() is to be called also after a failure. ERR_NOT_FOUND. */
must_check bool story_read(struct ctl *ctl, const struct uuid *id, struct story *ret_story, struct err *err);
void story_done(struct story *story);

/* How an attempt ended: "stopped at issue after 3 ms, to be tried again". */
void story_outcome(const struct pg_rows *attempts, int row, char ret_words[STORY_WORDS_SIZE]);
/* From this attempt on the issuer may have made a card that we do not hold. */
bool story_becomes_unknown(const struct pg_rows *attempts, int row);
/* What that means: "the issuer may have made a card that we do not hold". */
const char *story_unknown_words(const struct event *event);
/* How many attempts after attempt `row` ended in the same way, in a row and before until_us. Rows are newest first, so
 * the next in time is row - 1. */
int story_like_this(const struct pg_rows *attempts, int row, int64_t until_us);
/* "replayed by"; NULL: the action is not known here. */
const char *story_action_words(const char *action);

#endif
