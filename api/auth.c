/* Reads "Authorization: Bearer <JWT>" and returns the user's id or the reason for a refusal.
 *
 * Invariants: the times of a token are checked at every call, also when its signature is remembered; no message has a
 * byte of a token.
 *
 * The cache of verified tokens is direct-mapped by the SHA-256 of the whole token: a hit saves the parsing and the
 * signature check. Only tokens that passed every check get in, and `exp` is checked on a hit too.
 *
 * Of refused tokens, only those whose signature fitted no key are remembered, in a table of their own: only that check
 * is expensive, and its result depends on nothing but the token and the keys, so the table is emptied when the keys are
 * read again. Every other reason for a refusal is cheap to find again, or passes with time (`nbf`).
 *
 * Left out: one token without a cache (auth_token.c), revocation, fetching key sets, what a user may do. */
#include "api/auth.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/auth_token.h"
#include "common/core/token.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/hmac.h"
#include "common/lib/base/secret.h"

#define SECRET_DIFFERENT_MIN 8 /* different bytes: any 32 random bytes have more, and padding has fewer */
#define CACHE_SIZE 4096        /* a power of two */
#define REFUSED_SIZE 1024      /* a power of two */
#define REFUSED_MS 1000

struct cache_entry {
    unsigned char digest[DIGEST_SIZE];
    struct auth_claims claims; /* the user is "" while the entry is empty */
};

struct refused_entry {
    unsigned char digest[DIGEST_SIZE];
    int64_t refused_ms; /* monotonic */
    bool is_set;
};

struct auth {
    struct auth_verifier verifier;
    EVP_MD *sha256;
    EVP_MD_CTX *digest;
    struct cache_entry *cache;
    struct refused_entry *refused;
};

static const struct {
    const char *word, *text;
} refusals[] = {
#define X(id, word_, text_) [AUTH_REFUSED_##id] = {.word = (word_), .text = (text_)},
    AUTH_REFUSALS(X)
#undef X
};

const char *auth_refusal_word(enum auth_refusal refusal)
{
    return refusals[refusal].word;
}

const char *auth_refusal_text(enum auth_refusal refusal)
{
    return refusals[refusal].text;
}

/* ---- the caches ---- */

static bool digest_token(struct auth *auth, struct slice token, unsigned char ret_digest[DIGEST_SIZE])
{
    unsigned int length = 0;
    return EVP_DigestInit_ex2(auth->digest, auth->sha256, NULL) == 1 &&
           EVP_DigestUpdate(auth->digest, token.bytes, token.length) == 1 &&
           EVP_DigestFinal_ex(auth->digest, ret_digest, &length) == 1 && length == DIGEST_SIZE;
}

/* The bytes of a digest are as good as random, so any of them make an index. */
static struct cache_entry *cache_slot(struct auth *auth, const unsigned char digest[DIGEST_SIZE])
{
    return &auth->cache[(digest[0] << 8 | digest[1]) & (CACHE_SIZE - 1)];
}

static struct refused_entry *refused_slot(struct auth *auth, const unsigned char digest[DIGEST_SIZE])
{
    return &auth->refused[(digest[0] << 8 | digest[1]) & (REFUSED_SIZE - 1)];
}

static bool was_refused(struct auth *auth, const unsigned char digest[DIGEST_SIZE])
{
    const struct refused_entry *entry = refused_slot(auth, digest);
    /* guard: a bad token that comes again costs no signature check */
    return entry->is_set && clock_mono_ms() - entry->refused_ms < REFUSED_MS &&
           memcmp(entry->digest, digest, sizeof(entry->digest)) == 0;
}

static void remember_refused(struct auth *auth, const unsigned char digest[DIGEST_SIZE])
{
    struct refused_entry *entry = refused_slot(auth, digest);
    *entry = (struct refused_entry){.refused_ms = clock_mono_ms(), .is_set = true};
    memcpy(entry->digest, digest, sizeof(entry->digest));
}

/* ---- one check ---- */

static bool check_token(struct auth *auth, struct slice token, char ret_user[AUTH_USER_SIZE],
                        enum auth_refusal *ret_refusal)
{
    unsigned char digest[DIGEST_SIZE];
    struct auth_claims claims = {.user = ""};
    if (!digest_token(auth, token, digest))
        return auth_refuse(AUTH_REFUSED_UNCHECKED, ret_refusal);
    struct cache_entry *entry = cache_slot(auth, digest);
    if (entry->claims.user[0] && memcmp(entry->digest, digest, sizeof(digest)) == 0) {
        if (!auth_token_check_times(&auth->verifier, &entry->claims, ret_refusal))
            return false;
        memcpy(ret_user, entry->claims.user, sizeof(entry->claims.user));
        return true;
    }
    if (was_refused(auth, digest))
        return auth_refuse(AUTH_REFUSED_SIGNATURE, ret_refusal);
    if (!auth_token_read(&auth->verifier, token, &claims, ret_refusal)) {
        /* guard: only a bad signature is remembered */
        if (*ret_refusal == AUTH_REFUSED_SIGNATURE)
            remember_refused(auth, digest);
        return false;
    }
    entry->claims = claims;
    memcpy(entry->digest, digest, sizeof(digest));
    memcpy(ret_user, claims.user, sizeof(claims.user));
    return true;
}

bool auth_check(struct auth *auth, struct slice authorization, char ret_user[AUTH_USER_SIZE],
                enum auth_refusal *ret_refusal)
{
    static const char scheme[] = "Bearer ";
    struct slice token = {.bytes = authorization.bytes, .length = authorization.length};
    if (!token.bytes || token.length == 0)
        return auth_refuse(AUTH_REFUSED_MISSING, ret_refusal);
    if (token.length < sizeof(scheme) - 1 || strncasecmp(token.bytes, scheme, sizeof(scheme) - 1) != 0)
        return auth_refuse(AUTH_REFUSED_SCHEME, ret_refusal);
    size_t start = sizeof(scheme) - 1;
    while (start < token.length && token.bytes[start] == ' ')
        start++;
    token = (struct slice){.bytes = token.bytes + start, .length = token.length - start};
    if (token.length > AUTH_TOKEN_MAX)
        return auth_refuse(AUTH_REFUSED_TOO_LONG, ret_refusal);
    return check_token(auth, token, ret_user, ret_refusal);
}

size_t auth_unused_keys(const struct auth *auth)
{
    return auth->verifier.keys.unused_count;
}

uint64_t auth_signatures_checked(const struct auth *auth)
{
    return auth->verifier.signatures_checked;
}

/* ---- open and close ---- */

/* Whether the secret is zeros, blanks or one word repeated, as a template or a failed command leaves it. */
static bool has_few_bytes(const struct secret *secret)
{
    bool seen[256] = {false};
    size_t different = 0;
    for (size_t i = 0; i < secret->length; i++) {
        different += !seen[secret->bytes[i]];
        seen[secret->bytes[i]] = true;
    }
    secret_wipe(seen, sizeof(seen));
    /* guard: a secret without entropy is refused */
    return different < SECRET_DIFFERENT_MIN;
}

static bool load_secret(struct auth *auth, const char *path, struct err *err)
{
    struct secret secret = {.bytes = NULL};
    if (!secret_load(&secret, path, err))
        return err_prefix(err, "auth.hs256_secret_file");
    if (secret.length < TOKEN_SECRET_MIN) {
        secret_done(&secret);
        return err_set(err, ERR_CONFIG, "auth.hs256_secret_file: %s: a secret must have %d bytes or more", path,
                       TOKEN_SECRET_MIN);
    }
    if (has_few_bytes(&secret)) {
        secret_done(&secret);
        return err_set(err, ERR_CONFIG,
                       "auth.hs256_secret_file: %s: a secret with fewer than %d different bytes is not a secret", path,
                       SECRET_DIFFERENT_MIN);
    }
    struct hmac *hmac = hmac_new(secret.bytes, secret.length, err);
    secret_done(&secret);
    if (!hmac)
        return err_prefix(err, "auth.hs256_secret_file");
    hmac_free(auth->verifier.hmac);
    auth->verifier.hmac = hmac;
    return true;
}

static bool load_jwks(struct auth *auth, const char *path, struct err *err)
{
    struct auth_keys keys = {.count = 0};
    if (!auth_jwks_load(path, &keys, err))
        return err_prefix(err, "auth.jwks_file");
    auth_keys_done(&auth->verifier.keys);
    auth->verifier.keys = keys;
    return true;
}

bool auth_reload(struct auth *auth, const struct config *config, void (*on_error)(const char *why))
{
    struct err err = {0};
    bool good = true;
    if (config->auth.hs256_secret_file && !load_secret(auth, config->auth.hs256_secret_file, &err)) {
        on_error(err.message);
        good = false;
    }
    if (config->auth.jwks_file && !load_jwks(auth, config->auth.jwks_file, &err)) {
        on_error(err.message);
        good = false;
    }
    /* A token that was verified with a key that may be gone is verified again; one that fitted no key may fit a new
     * one. */
    /* guard: a refusal that was remembered does not outlive the keys */
    /* guard: under load a new key's tokens are good at once */
    secret_wipe(auth->refused, REFUSED_SIZE * sizeof(*auth->refused));
    /* guard: tokens that were remembered prove themselves again */
    /* guard: under load a key that was taken out ends its tokens at once */
    secret_wipe(auth->cache, CACHE_SIZE * sizeof(*auth->cache));
    return good;
}

static bool copy_text(const char *text, char **ret_copy, struct err *err)
{
    if (!text)
        return true;
    *ret_copy = strdup(text);
    return *ret_copy || err_set(err, ERR_MEMORY, "out of memory for auth");
}

static bool fill(struct auth *auth, const struct config *config, struct err *err)
{
    const char *secret_file = config->auth.hs256_secret_file, *jwks_file = config->auth.jwks_file;
    if (!secret_file && !jwks_file)
        return err_set(err, ERR_CONFIG, "no key for tokens: set auth.hs256_secret_file or auth.jwks_file");
    auth->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    auth->digest = EVP_MD_CTX_new();
    auth->cache = calloc(CACHE_SIZE, sizeof(*auth->cache));
    auth->refused = calloc(REFUSED_SIZE, sizeof(*auth->refused));
    auth->verifier.require_kid = config->auth.require_kid;
    auth->verifier.max_lifetime_us = config->auth.max_lifetime_ms * 1000;
    if (!auth->sha256 || !auth->digest || !auth->cache || !auth->refused)
        return err_set(err, ERR_MEMORY, "out of memory for auth");
    if (jwks_file && !load_jwks(auth, jwks_file, err))
        return false;
    return (!secret_file || load_secret(auth, secret_file, err)) &&
           copy_text(config->auth.issuer, &auth->verifier.issuer, err) &&
           copy_text(config->auth.audience, &auth->verifier.audience, err);
}

bool auth_open(const struct config *config, struct auth **ret_auth, struct err *err)
{
    struct auth *auth = calloc(1, sizeof(*auth));
    if (!auth)
        return err_set(err, ERR_MEMORY, "out of memory for auth");
    if (!fill(auth, config, err)) {
        auth_close(auth);
        return false;
    }
    *ret_auth = auth;
    return true;
}

void auth_close(struct auth *auth)
{
    if (!auth)
        return;
    auth_keys_done(&auth->verifier.keys);
    hmac_free(auth->verifier.hmac);
    EVP_MD_CTX_free(auth->digest);
    EVP_MD_free(auth->sha256);
    if (auth->cache)
        secret_wipe(auth->cache, CACHE_SIZE * sizeof(*auth->cache));
    free(auth->cache);
    if (auth->refused)
        secret_wipe(auth->refused, REFUSED_SIZE * sizeof(*auth->refused));
    free(auth->refused);
    free(auth->verifier.issuer);
    free(auth->verifier.audience);
    free(auth);
}
