/* Runs texts of migrations/ in a database: once, in each place, or for what stands over all places. */
#ifndef ISSUING_CTL_SCHEMA_RUN_H
#define ISSUING_CTL_SCHEMA_RUN_H

#include "ctl/ctl.h"

/* Over how many places the users are divided, and which of them this database does not have any more (place drop). */
struct schema_places {
    int count;
    uint64_t gone; /* bit N: place N */
};

must_check bool schema_read_places(struct ctl *ctl, struct schema_places *ret_places, struct err *err);
/* file: for the message of an error. */
must_check bool schema_run_text(struct ctl *ctl, const char *file, const char *text, struct err *err);
/* A text about places (common/lib/pg/pg_place.h), in one of them. */
must_check bool schema_run_in_place(struct ctl *ctl, const char *file, const char *marked, int place, int places,
                                    struct err *err);
/* In all that the database has. */
must_check bool schema_run_in_places(struct ctl *ctl, const char *file, const char *marked,
                                     const struct schema_places *places, struct err *err);
/* What stands over the places that are served here, where there are several, and the rights of everything. */
must_check bool schema_join_places(struct ctl *ctl, const struct schema_places *places, struct err *err);
/* On a Citus cluster, after everything else. */
must_check bool schema_run_citus(struct ctl *ctl, const struct schema_places *places, struct err *err);

#endif
