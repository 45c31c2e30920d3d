/* The header with our credential for a peer, counted by its users: the worker may read the file again while calls
 * with the old header are in flight, and each call holds the header that it was sent with. */
#ifndef ISSUING_CREDENTIAL_H
#define ISSUING_CREDENTIAL_H

#include "common/core/issuer/profile.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

struct credential;

extern const struct credential_form credential_bearer;

/* The file holds one line of at most 4096 bytes; with is_base64 there is a colon in it. The caller holds the one use;
 * credential_release() gives it back. */
must_check bool credential_load(const char *path, const struct credential_form *form,
                                struct credential **ret_credential, struct err *err);
struct credential *credential_hold(struct credential *credential); /* NULL = NULL */
/* The last release wipes and frees it. NULL is accepted. */
void credential_release(struct credential *credential);
/* The whole line, "Authorization: Bearer ...", borrowed; NULL for NULL. */
const char *credential_header(const struct credential *credential);
/* Overwrites with '*' what a peer's words repeat of the credential. NULL is accepted. */
void credential_hide(const struct credential *credential, char *text);
/* Whether the file's line is in the text. NULL is in none. */
bool credential_is_in(const struct credential *credential, struct slice text);

#endif
