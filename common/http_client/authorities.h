/* The certificate authorities that TLS trusts: a PEM file that is read and checked as a whole, so that a file that is
 * half written or gone never replaces a good one. They are parsed once and shared by all connections: a connection of
 * its own copy costs megabytes and milliseconds with the usual bundle of 140 authorities. Reference-counted, because
 * calls that are under way go on with those that they began with. */
#ifndef ISSUING_AUTHORITIES_H
#define ISSUING_AUTHORITIES_H

#include "common/base/base.h"
#include "common/base/err.h"

#define AUTHORITIES_FILE_MAX (4 * 1024 * 1024)

struct x509_store_st;

struct authorities {
    int uses;
    struct x509_store_st *store; /* owned */
    /* The value of CURLOPT_CAPATH: a folder that does not exist, with another name for each load. libcurl compares it
     * before it uses a connection or a TLS session again, so none is used with other authorities than its own. */
    char marker[48];
    size_t length;
    char bytes[]; /* as in the file; NUL-terminated */
};

/* One use. ERR_CONFIG: not a regular file, too large, no certificate in it, or one that cannot be read. */
must_check bool authorities_load(const char *path, struct authorities **ret_authorities, struct err *err);
struct authorities *authorities_hold(struct authorities *authorities); /* NULL = NULL */
void authorities_release(struct authorities *authorities);             /* accepts NULL */

#endif
