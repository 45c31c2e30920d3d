/* Sets of public keys: what is taken is of a kind that we verify with, and verifies no signature that it did not
 * make. */
#include "api/auth_key.h"
#include "tests/fuzz/fuzz.h"

FUZZ(jwks)
{
    static const unsigned char signature[512] = {1};
    struct auth_keys keys = {.count = 0};
    struct err err = {.kind = ERR_NONE};
    if (!auth_jwks_parse((struct slice){in->bytes, in->length}, &keys, &err)) {
        fuzz_expect_err(&err, ERR_CONFIG, ERR_CONFIG);
        return;
    }
    fuzz_expect(keys.count >= 1 && keys.count <= AUTH_KEYS_MAX);
    for (size_t i = 0; i < keys.count; i++) {
        const struct auth_key *key = &keys.keys[i];
        fuzz_expect(key->pkey && key->algorithm != AUTH_HS256 && strlen(key->kid) < AUTH_KID_SIZE);
        for (size_t other = 0; key->has_kid && other < i; other++)
            fuzz_expect(!keys.keys[other].has_kid || strcmp(keys.keys[other].kid, key->kid) != 0);
        fuzz_expect(!auth_key_verify(key, SLICE("a.b"), signature, key->algorithm == AUTH_RS256 ? 256 : 64));
    }
    auth_keys_done(&keys);
}
