/* Public keys, and the signatures that they verify. Private to api/auth*.c. */
#ifndef ISSUING_AUTH_KEY_H
#define ISSUING_AUTH_KEY_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

#define AUTH_KEYS_MAX 32
#define AUTH_KID_SIZE 257

/* JOSE name, JWK key type */
#define AUTH_ALGORITHMS(X)   \
    X(HS256, "HS256", "oct") \
    X(RS256, "RS256", "RSA") \
    X(ES256, "ES256", "EC")  \
    X(EDDSA, "EdDSA", "OKP")

enum auth_algorithm {
#define X(id, name, kty) AUTH_##id,
    AUTH_ALGORITHMS(X)
#undef X
};

struct auth_key {
    enum auth_algorithm algorithm; /* the only one this key is ever used with */
    char kid[AUTH_KID_SIZE];
    bool has_kid;
    void *pkey; /* EVP_PKEY, owned; public */
};

struct auth_keys {
    struct auth_key keys[AUTH_KEYS_MAX];
    size_t count;
    size_t unused_count; /* keys of the set that are for other types, curves, algorithms or uses */
};

/* NULL-terminated name; false for all others, "none" included. Exact: "hs256" is not an algorithm. */
must_check bool auth_algorithm_parse(const char *name, enum auth_algorithm *ret_algorithm);
const char *auth_algorithm_kty(enum auth_algorithm algorithm);
/* RFC 7515, 2: no padding, no white space, no bits left over. */
must_check bool auth_base64url(struct slice text, unsigned char *out, size_t out_size, size_t *ret_length);
/* Not for HS256, whose key never is an auth_key. signature: as in the token. Out of memory counts as false. */
must_check bool auth_key_verify(const struct auth_key *key, struct slice text, const unsigned char *signature,
                                size_t length);
void auth_keys_done(struct auth_keys *keys);

/* auth_jwks.c: public keys from the text of a JWK set (RFC 7517). The message of ERR_CONFIG names the key and the
 * fault. Keys for other uses, of other types, curves or algorithms are skipped and counted; a set without any other key
 * is an error. A file that users other than its owner may write is refused (secret_check_writers). */
#define AUTH_JWKS_MAX (256 * 1024)
must_check bool auth_jwks_parse(struct slice text, struct auth_keys *ret_keys, struct err *err);
must_check bool auth_jwks_load(const char *path, struct auth_keys *ret_keys, struct err *err);

#endif
