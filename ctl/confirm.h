/* Before an action on many events: how many are they, and does the person at the terminal mean it? */
#ifndef ISSUING_CTL_CONFIRM_H
#define ISSUING_CTL_CONFIRM_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/pg/pg_sync.h"
#include "ctl/ctl.h"
#include "ctl/filter.h"

/* Counts the events that match, up to `most` (0 = all); a signal ends it early (stop.h). *ret_horizon_us: the time of
 * the database when it began, or the time of the last change of a counted event where a clock stepped back. An action
 * leaves alone what changes behind the horizon. */
must_check bool confirm_count(struct pg_sync *db, const struct filter *filter, int64_t most, int64_t *ret_count,
                              int64_t *ret_horizon_us, struct err *err);
/* Asks "<question> [y/N]" on standard error, where standard input and standard error are a terminal; nothing is asked
 * elsewhere, and the answer is yes. False: anything but y or yes, the end of input, or a signal. */
must_check bool confirm_ask(const char *question);

enum confirm_answer {
    CONFIRM_YES,
    CONFIRM_NO,
    CONFIRM_LATER, /* --cell all: asked when all cells have counted; the command ends without a word */
};

/* Asks "<verb> <count> <status> events<behind>?", with --cell all once for all cells (each_cell.h). */
must_check enum confirm_answer confirm_many(const struct ctl *ctl, const char *verb, int64_t count, const char *status,
                                            const char *behind, int64_t horizon_us);

#endif
