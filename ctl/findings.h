/* All that `status` says of one place. */
#ifndef ISSUING_CTL_FINDINGS_H
#define ISSUING_CTL_FINDINGS_H

#include "ctl/cluster.h"
#include "ctl/counts.h"
#include "ctl/verdict.h"

/* All zeros is an empty one. */
struct findings {
    struct counts counts;
    struct cluster cluster;
    struct pg_rows *rejected, *pattern, *pace; /* owned */
    struct verdict_facts facts;
    struct verdict verdict;
};

/* exact: counts all events. ERR_REFUSED: somebody has locked a table. After an error too, findings_done. */
must_check bool findings_read(struct ctl *ctl, bool exact, struct findings *found, struct err *err);
void findings_done(struct findings *found);

#endif
