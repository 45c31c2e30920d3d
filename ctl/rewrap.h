/* Seals stored card numbers again with the active key: issuing-ctl keys rewrap. */
#ifndef ISSUING_CTL_REWRAP_H
#define ISSUING_CTL_REWRAP_H

#include "common/core/keyring.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "ctl/ctl.h"

struct rewrap_result {
    int64_t done;       /* stored again */
    int64_t unreadable; /* cannot be opened with these keys; named on standard error */
    int64_t left;       /* sealed with other keys at the end, the unreadable ones among them */
    bool is_stopped;    /* by SIGINT or SIGTERM; the same command does the rest */
};

/* Precondition: ctl->db is connected as the owner of the tables. rate: card numbers a second at most; 0 = no limit.
 * keyring is borrowed. *ret_result is filled in any case; after a failure what was stored stays stored. */
must_check bool rewrap_run(struct ctl *ctl, struct keyring *keyring, int64_t rate, struct rewrap_result *ret_result,
                           struct err *err);
/* Rows of (key id or null, records). */
must_check bool rewrap_count(struct ctl *ctl, struct pg_rows **ret_rows, struct err *err);

#endif
