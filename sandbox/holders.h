/* The holders that the issuer knows: cardholders, accounts, users, balance accounts, as the dialect calls them. The
 * stand-in core-api adds a user's holder when it is asked about the user; POST /holders adds any. */
#ifndef ISSUING_SANDBOX_HOLDERS_H
#define ISSUING_SANDBOX_HOLDERS_H

#include "common/lib/base/base.h"

#define HOLDER_SIZE 129

struct holders;

struct holders *holders_new(void);
void holders_free(struct holders *holders);
/* A known holder keeps its user. False: out of memory. */
must_check bool holders_put(struct holders *holders, struct slice holder, struct slice user_id);
/* NULL = unknown. Valid until holders_free(). */
const char *holders_user(const struct holders *holders, struct slice holder);

#endif
