/* The audit trail as lines for a second system, each with the hash of the one before it. Pure.
 *
 * A line is one JSON object without blanks between its members, in the order of audit_chain_write(). Its last member is
 * `hash`, SHA-256 of all bytes of the line before `,"hash":`, in hexadecimal; `previous` is the hash of the line
 * before, zeros in the first one; `sequence` counts the lines from 1. So a line is unchanged if its bytes are, and the
 * same rows from the same link on give the same bytes. docs/security.md says what that proves. Any other form gets
 * another number in `form`. */
#ifndef ISSUING_CTL_AUDIT_CHAIN_H
#define ISSUING_CTL_AUDIT_CHAIN_H

#include "common/lib/base/buf.h"
#include "common/lib/base/digest.h"
#include "ctl/audit/audit.h"

#define AUDIT_LINE_MAX ((size_t)1 << 20)
#define AUDIT_HASH_SIZE (2 * DIGEST_SIZE + 1)
#define AUDIT_AT_SIZE 40

/* What a line says of its position in the chain. */
struct audit_link {
    int64_t sequence, id;   /* id: of the row; 0 = before all */
    char at[AUDIT_AT_SIZE]; /* when the row was written */
    char previous[AUDIT_HASH_SIZE], hash[AUDIT_HASH_SIZE];
};

/* Where a chain begins: before the first row whose id is above this one. */
struct audit_link audit_chain_start(int64_t id);
/* Appends the line of `row` that follows `link`, with its line end, and moves link to it. A failure is buf's. */
void audit_chain_write(struct buf *out, const struct audit_row *row, struct audit_link *link);
/* Reads one line, without its line end. NULL: it is a line of a chain, and its hash fits. Else what is wrong;
 * link->sequence is 0 where nothing could be read. */
must_check const char *audit_chain_read(const char *line, size_t length, struct audit_link *link);
/* Whether the row gives the line that has this link. ret_line, a buffer of the caller's, has the line that it gives,
 * without its line end. */
bool audit_chain_fits(const struct audit_row *row, const struct audit_link *link, struct buf *ret_line);

#endif
