/* Marks that workers act on (reconcile, reissue): left here, waited for here. */
#ifndef ISSUING_CTL_MARKS_H
#define ISSUING_CTL_MARKS_H

#include "common/base.h"
#include "common/err.h"
#include "common/pg_sync.h"
#include "common/uuid7.h"
#include "ctl/ctl.h"

#define MARKS_MAX 200 /* at a time: so many are left when the command is killed */
#define MARKS_TIMEOUT_DEFAULT "60s"
#define MARKS_HELP "  --timeout D    how long to wait for workers, 60s by default\n"

/* Columns of operator_checks. */
enum { MARK_ID, MARK_EVENT, MARK_IS_FINISHED, MARK_RESULT, MARK_DETAIL, MARK_NEW_ID, MARK_STATUS };

/* "--timeout" as given, NULL = the default; at most a day. ERR_USAGE. */
must_check bool marks_timeout(const char *text, int64_t *ret_ms, struct err *err);
/* The marks as they are now. */
must_check bool marks_look(struct ctl *ctl, const struct uuid *ids, int count, struct pg_rows **ret_rows,
                           struct err *err);
/* Between two looks; longer with each, a signal ends it. */
void marks_pause(int64_t *pause_ms);
/* A result, or why a mark was refused, in words for an operator; "" = it says itself. detail may be NULL. */
const char *marks_words(const char *result, const char *detail);

#endif
