/* What the worker shows to a peer: a header with a secret in it. It is replaced while calls are on their way with the old
 * one, so each call holds the one that it left with. */
#ifndef ISSUING_CREDENTIAL_H
#define ISSUING_CREDENTIAL_H

#include "common/base.h"
#include "common/err.h"

struct credential;

/* One line of at most 4096 bytes. One use. */
must_check bool credential_load(const char *path, struct credential **ret_credential, struct err *err);
struct credential *credential_hold(struct credential *credential); /* NULL = NULL */
/* Wiped with the last use; accepts NULL. */
void credential_release(struct credential *credential);
/* "Authorization: Bearer ..."; NULL for NULL. */
const char *credential_header(const struct credential *credential);

#endif
