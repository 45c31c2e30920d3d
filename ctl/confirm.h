/* Before an action on many events: how many are they, and does the person at the terminal mean it? */
#ifndef ISSUING_CTL_CONFIRM_H
#define ISSUING_CTL_CONFIRM_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/pg/pg_sync.h"
#include "ctl/ctl.h"
#include "ctl/filter.h"

/* Counts the events that match, up to `most` (0 = all), for about limit_ms (0 = as long as it takes); a signal ends it
 * early (stop.h). *ret_horizon_us: the time of the database when it began, or the time of the last change of a counted
 * event where a clock stepped back. An action leaves alone what changes after the horizon. *ret_has_more: not all
 * events were looked at. */
must_check bool confirm_count(struct pg_sync *db, const struct filter *filter, int64_t most, int64_t limit_ms,
                              int64_t *ret_count, int64_t *ret_horizon_us, bool *ret_has_more, struct err *err);
/* Asks "<verb> <count> <status> events<behind>? [y/N]" on standard error, where standard input and standard error are a
 * terminal; nothing is asked elsewhere, and the answer is yes. False: anything but y or yes, the end of input, or a
 * signal. */
must_check bool confirm_many(const char *verb, int64_t count, const char *status, const char *behind);

#endif
