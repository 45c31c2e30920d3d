/* The audit trail for a second system: lines of audit_chain.h in the order of the rows' numbers.
 *
 * A row may commit late, with a lower number than others that are there. So lines end where the trail is decided
 * (issuing.audit_settled): no row is left out, and none comes between two lines that are out already. */
#ifndef ISSUING_CTL_AUDIT_EXPORT_H
#define ISSUING_CTL_AUDIT_EXPORT_H

#include "ctl/audit/audit_chain.h"
#include "ctl/ctl.h"

struct audit_export {
    struct ctl *ctl;
    const struct audit_filter *filter; /* since: where a new chain begins */
    const char *after;                 /* the file whose last whole line goes before; "-" = standard input; or NULL */
    const char *append;                /* the file that is continued; NULL = standard output */
    const char *verify;                /* the file that is compared, and nothing is exported; or NULL */
    /* What the database says. */
    int64_t now_us;
    int64_t settled;               /* up to this number the trail is decided, */
    char held[200];                /* but for the rows of these transactions; "" = there are none */
    char kept_from[AUDIT_AT_SIZE]; /* older rows may be deleted already */
};

/* ---- audit_reader.c ---- */

/* Fills in what the database says. */
must_check bool audit_ask_settled(struct audit_export *export, struct err *err);

/* The rows of the trail, up to `settled`, by their numbers. */
struct audit_reader {
    const struct audit_export *export;
    int64_t behind;       /* the number behind which the next row is */
    struct pg_rows *rows; /* owned; those that come next, */
    int row;              /* from this one on */
    bool is_last;         /* no more come behind them */
};

/* The next row, unless its number is above `most`; its texts live until the next call. False with ERR_NONE: there is
 * none. */
must_check bool audit_reader_next(struct audit_reader *reader, int64_t most, struct audit_row *ret_row,
                                  struct err *err);
/* ---- audit_export.c, audit_verify.c ---- */

/* What `audit --export`, `--append` and `--verify` do. Sets ctl->code. */
must_check bool audit_export_run(struct audit_export *export, struct err *err);
/* Compares a file with itself and with the database, and prints what differs. */
must_check bool audit_verify(const struct audit_export *export, bool *ret_is_same, struct err *err);

#endif
