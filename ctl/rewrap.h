/* Sealing card numbers again with the active key: issuing-ctl keys rewrap. */
#ifndef ISSUING_CTL_REWRAP_H
#define ISSUING_CTL_REWRAP_H

#include "common/base.h"
#include "common/err.h"
#include "common/keyring.h"
#include "ctl/ctl.h"

struct rewrap_result {
    int64_t done;       /* stored again */
    int64_t unreadable; /* cannot be opened with these keys; named on standard error */
    int64_t left;       /* sealed with other keys at the end, the unreadable ones among them */
    bool is_stopped;    /* by SIGINT or SIGTERM; the same command goes on with the rest */
};

/* Wants a connection as the owner of the tables. rate: at most so many a second; 0 = as fast as it goes. keyring is
 * borrowed. ret_result is filled in any case; after a failure what was stored stays stored. */
must_check bool rewrap_run(struct ctl *ctl, struct keyring *keyring, int64_t rate, struct rewrap_result *ret_result,
                           struct err *err);
/* Rows of (key id or null, records). */
must_check bool rewrap_count(struct ctl *ctl, struct pg_rows **ret_rows, struct err *err);

#endif
