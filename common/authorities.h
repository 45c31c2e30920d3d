/* Whom TLS trusts: the certificates of a PEM file, read and checked as a whole, so that a file that is half written or gone
 * never takes the place of a good one. Shared by whoever still uses an older one. */
#ifndef ISSUING_AUTHORITIES_H
#define ISSUING_AUTHORITIES_H

#include "common/base.h"
#include "common/err.h"

#define AUTHORITIES_FILE_MAX (4 * 1024 * 1024)

struct authorities {
    int uses;
    size_t length;
    char bytes[]; /* as in the file; NUL-terminated */
};

/* One use. ERR_CONFIG: no regular file, too large, or not at least one certificate in it and none that cannot be read. */
must_check bool authorities_load(const char *path, struct authorities **ret_authorities, struct err *err);
struct authorities *authorities_hold(struct authorities *authorities); /* NULL = NULL */
void authorities_release(struct authorities *authorities);             /* accepts NULL */

#endif
