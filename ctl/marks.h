/* Marks that workers act on (reconcile, reissue): how a command reads them and waits for their results. */
#ifndef ISSUING_CTL_MARKS_H
#define ISSUING_CTL_MARKS_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/pg/pg_sync.h"
#include "ctl/ctl.h"

#define MARKS_MAX 200 /* at a time; a command that is killed leaves as many */
#define MARKS_TIMEOUT_DEFAULT "60s"
#define MARKS_HELP "  --timeout D    how long to wait for workers, 60s by default\n"

/* Columns of operator_marks. */
enum { MARK_ID, MARK_EVENT, MARK_IS_FINISHED, MARK_RESULT, MARK_DETAIL, MARK_NEW_ID, MARK_STATUS };

/* "--timeout" as given, NULL = the default; at most a day. ERR_USAGE. */
must_check bool marks_timeout(const char *text, int64_t *ret_ms, struct err *err);
/* The marks as they are now. */
must_check bool marks_read(struct ctl *ctl, const struct uuid *ids, int count, struct pg_rows **ret_rows,
                           struct err *err);
/* Between two looks; longer with each, a signal ends it. */
void marks_pause(int64_t *pause_ms);
/* What a result, or the refusal of a mark, means to an operator; "" = the word is clear by itself. detail may be
 * NULL. */
const char *marks_text(const char *result, const char *detail);

#endif
