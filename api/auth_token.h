/* Reads one token: header, signature, claims, times. Knows no cache. Private to api/auth*.c. */
#ifndef ISSUING_AUTH_TOKEN_H
#define ISSUING_AUTH_TOKEN_H

#include "api/auth.h"
#include "api/auth_key.h"
#include "common/lib/base/hmac.h"

/* What a token is verified with. */
struct auth_verifier {
    char *issuer, *audience; /* owned; NULL = not checked */
    bool require_kid;
    int64_t max_lifetime_us; /* 0 = any */
    struct auth_keys keys;
    struct hmac *hmac; /* owned; of the HS256 secret; NULL = none */
    uint64_t signatures_checked;
};

struct auth_claims {
    char user[AUTH_USER_SIZE];
    int64_t expires_us;
    int64_t not_before_us; /* INT64_MIN = none */
};

/* Always false: "return auth_refuse(...)". */
static inline bool auth_refuse(enum auth_refusal refusal, enum auth_refusal *ret_refusal)
{
    *ret_refusal = refusal;
    return false;
}

/* Checks everything that auth.h requires of a token. ret_claims is undefined on failure. */
must_check bool auth_token_read(struct auth_verifier *verifier, struct slice token, struct auth_claims *ret_claims,
                                enum auth_refusal *ret_refusal);
/* Only `exp`, `nbf` and auth.max_lifetime, against the clock as it is now. */
must_check bool auth_token_check_times(const struct auth_verifier *verifier, const struct auth_claims *claims,
                                       enum auth_refusal *ret_refusal);

#endif
