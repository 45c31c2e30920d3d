/* What pg_sync.c and pg_sync_copy.c share. Private to both. */
#ifndef ISSUING_PG_SYNC_INTERNAL_H
#define ISSUING_PG_SYNC_INTERNAL_H

#include "common/pg/pg_libpq.h"
#include "common/pg/pg_sync.h"

struct pg_sync {
    PGconn *connection;
    int64_t answer_ms;     /* the longest wait for an answer; 0 = for ever */
    bool is_late;          /* an answer did not come in time: the connection is of no use any more */
    struct pg_doubt doubt; /* about the commit of the current call */
};

/* Takes the result over when it is a success and wanted, else frees it. result NULL: the connection failed. */
bool pg_sync_take(struct pg_sync *db, PGresult *result, const char *name, struct pg_rows **ret_rows, struct err *err);

#endif
