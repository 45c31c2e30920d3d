/* Signatures of tokens: RS256, ES256 and EdDSA by OpenSSL (RFC 7518, 3.3 and 3.4; RFC 8037).
 *
 * Invariants: the algorithm is a property of the key; nothing here looks at a token's header. A signature has exactly
 * one accepted form.
 * Left out: where keys come from (auth_jwks.c), HMAC and claims (auth.c). */
#include "api/auth_key.h"

#include <assert.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <string.h>

#define ES256_HALF 32
#define ES256_DER_MAX 72
#define ED25519_SIGNATURE 64

static const struct {
    const char *name, *kty;
} algorithms[] = {
#define X(id, text, type) [AUTH_##id] = {.name = (text), .kty = (type)},
    AUTH_ALGORITHMS(X)
#undef X
};

bool auth_algorithm_parse(const char *name, enum auth_algorithm *ret_algorithm)
{
    if (strcmp(name, "Ed25519") == 0) /* RFC 9864: what EdDSA was with this curve */
        name = "EdDSA";
    for (size_t i = 0; i < ARRAY_SIZE(algorithms); i++) {
        if (strcmp(name, algorithms[i].name) == 0) {
            *ret_algorithm = (enum auth_algorithm)i;
            return true;
        }
    }
    return false;
}

const char *auth_algorithm_kty(enum auth_algorithm algorithm)
{
    return algorithms[algorithm].kty;
}

/* One more than the value of the digit; 0 = no digit. */
static const unsigned char digits[256] = {
    ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,
    ['I'] = 9,  ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
    ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
    ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
    ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
    ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
    ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['-'] = 63, ['_'] = 64,
};

bool auth_base64url(struct slice text, unsigned char *out, size_t out_size, size_t *ret_length)
{
    size_t length = text.length / 4 * 3 + (text.length % 4 ? text.length % 4 - 1 : 0), written = 0;
    if (text.length % 4 == 1 || length > out_size)
        return false;
    uint32_t bits = 0;
    int count = 0;
    for (size_t i = 0; i < text.length; i++) {
        unsigned char digit = digits[(unsigned char)text.bytes[i]];
        if (digit == 0)
            return false;
        bits = (bits << 6 | (digit - 1u)) & 0xffff;
        count += 6;
        if (count >= 8) {
            count -= 8;
            out[written++] = (unsigned char)(bits >> count);
        }
    }
    if (bits & ((1u << count) - 1)) /* a second spelling of the same bytes */
        return false;
    *ret_length = length;
    return true;
}

static bool verify(EVP_PKEY *pkey, const EVP_MD *digest, struct slice text, const unsigned char *signature,
                   size_t length)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool fits = context && EVP_DigestVerifyInit(context, NULL, digest, NULL, pkey) == 1 &&
                EVP_DigestVerify(context, signature, length, (const unsigned char *)text.bytes, text.length) == 1;
    EVP_MD_CTX_free(context);
    return fits;
}

/* JOSE has r and s side by side, OpenSSL wants them in DER and checks that both are from 1 to n - 1. */
static bool verify_es256(EVP_PKEY *pkey, struct slice text, const unsigned char *signature, size_t length)
{
    if (length != 2 * ES256_HALF)
        return false;
    BIGNUM *r = BN_bin2bn(signature, ES256_HALF, NULL), *s = BN_bin2bn(signature + ES256_HALF, ES256_HALF, NULL);
    ECDSA_SIG *pair = ECDSA_SIG_new();
    if (!r || !s || !pair || ECDSA_SIG_set0(pair, r, s) != 1) {
        BN_free(r);
        BN_free(s);
        ECDSA_SIG_free(pair);
        return false;
    }
    unsigned char der[ES256_DER_MAX], *end = der;
    int der_length = i2d_ECDSA_SIG(pair, NULL);
    bool fits = der_length > 0 && der_length <= ES256_DER_MAX && i2d_ECDSA_SIG(pair, &end) == der_length &&
                verify(pkey, EVP_sha256(), text, der, (size_t)der_length);
    ECDSA_SIG_free(pair);
    return fits;
}

bool auth_key_verify(const struct auth_key *key, struct slice text, const unsigned char *signature, size_t length)
{
    switch (key->algorithm) {
    case AUTH_RS256:
        return length == (size_t)EVP_PKEY_get_size(key->pkey) &&
               verify(key->pkey, EVP_sha256(), text, signature, length);
    case AUTH_ES256:
        return verify_es256(key->pkey, text, signature, length);
    case AUTH_EDDSA:
        return length == ED25519_SIGNATURE && verify(key->pkey, NULL, text, signature, length);
    case AUTH_HS256:
        break;
    }
    assert(!"an HS256 key among the public ones");
    return false;
}

void auth_keys_done(struct auth_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++)
        EVP_PKEY_free(keys->keys[i].pkey);
    keys->count = 0;
}
