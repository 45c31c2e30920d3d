/* The certificate authorities that TLS trusts: a PEM file that is read and checked as a whole, so that a file that is
 * half written or gone never replaces a good one. They are parsed once and shared by all connections: a copy for each
 * connection would cost megabytes and milliseconds with the usual bundle of 140 authorities. Reference-counted, because
 * calls that are under way go on with those that they began with. */
#ifndef ISSUING_AUTHORITIES_H
#define ISSUING_AUTHORITIES_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

#define AUTHORITIES_FILE_MAX (4 * 1024 * 1024)

struct stack_st_X509;
struct x509_store_st;

struct authorities {
    int uses;
    struct x509_store_st *store; /* owned; asks the CRLs of the file, if there is one in it */
    int64_t crls_end_s;          /* the next update of the first of them, since 1970; INT64_MAX = there is none */
    struct stack_st_X509 *certificates; /* owned: those of the file, in its order; NULL = the system's */
};

/* One use. path NULL = those of the system, which OpenSSL looks up when it needs them; that fails for lack of memory
 * only. ERR_CONFIG: not a regular file, too large, no certificate in it, or one that cannot be read. */
must_check bool authorities_load(const char *path, struct authorities **ret_authorities, struct err *err);
/* Why peers may be refused that these authorities vouch for, or NULL: a CRL whose next update is past. */
const char *authorities_doubt(const struct authorities *authorities);
struct authorities *authorities_hold(struct authorities *authorities); /* NULL = NULL */
void authorities_release(struct authorities *authorities);             /* accepts NULL */

#endif
