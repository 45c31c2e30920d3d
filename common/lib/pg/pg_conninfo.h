/* Checks a conninfo before anything connects. */
#ifndef ISSUING_PG_CONNINFO_H
#define ISSUING_PG_CONNINFO_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

#define PG_EXPOSED_SIZE 200

/* ERR_CONFIG when no attempt with it, its service and libpq's variables could ever connect: it cannot be read, or has a
 * value that libpq does not know. The message quotes no value: a password may be where another value belongs. NULL and
 * "" are libpq's own environment. */
must_check bool pg_conninfo_check(const char *conninfo, struct err *err);
/* Whether a host is another machine, and nothing proves that it is the one that was meant: ret_text says so. false:
 * there is none, and ret_text is untouched. */
bool pg_conninfo_is_exposed(const char *conninfo, char ret_text[PG_EXPOSED_SIZE]);
/* ERR_CONFIG when it is exposed and may not be. */
must_check bool pg_conninfo_prove(const char *conninfo, bool may_be_exposed, struct err *err);
/* What was wrong with a failed attempt, if it lasts until somebody repairs it, and how to; NULL = it may end by itself.
 * `said` is libpq's own message, which is English, since no program sets a locale. */
const char *pg_remedy(const char *said);

#endif
