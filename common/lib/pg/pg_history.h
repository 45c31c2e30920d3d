/* What a pool has seen acknowledged, so that a server which lacks it is not used: one that was restored from a backup,
 * or a standby that was behind when it was promoted. Private to common/lib/pg.
 *
 * A statement that writes may answer a column `acknowledged` (issuing.acknowledged): a position in the WAL before its
 * own commit. Once that is confirmed, a server that does not reach that far has lost it; each new session asks
 * (issuing.check_history). So a crash, a restart, or the promotion of a standby that has all commits is never taken for
 * a loss. Left out: a loss that is smaller than what was written since, and a memory outside of the process. */
#ifndef ISSUING_PG_HISTORY_H
#define ISSUING_PG_HISTORY_H

#include "common/lib/base/uuid7.h"
#include "common/lib/pg/pg_param.h"
#include "common/lib/pg/pg_result.h"

#define PG_SYSTEM_SIZE 64

struct pg_history {
    struct uuid id;
    char system[PG_SYSTEM_SIZE]; /* cluster, database and schema; "" = not known */
    int64_t timeline;
    int64_t position; /* 0 = nothing was acknowledged */
};

#define PG_HISTORY_PARAMS 4
/* Of sql_session_history; borrowed from `known`. */
void pg_history_params(const struct pg_history *known, struct pg_param params[PG_HISTORY_PARAMS]);
/* Reads the session's history from the row of sql_session_history. Returns why it cannot be used; NULL = it can. */
const char *pg_history_read(const struct pg_rows *rows, int64_t timeline, struct pg_history *ret_session);
/* A session there is taken into use. */
void pg_history_follow(struct pg_history *known, const struct pg_history *session);
/* A query was done in that session. */
void pg_history_note(struct pg_history *known, const struct pg_history *session, const struct pg_rows *rows);

#endif
