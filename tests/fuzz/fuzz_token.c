/* Bearer tokens: whole header values, and claims that are signed here, so that what stands behind the signature is read
 * too. A token that is accepted has a usable user id and a time. */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/auth_token.h"
#include "common/core/outbox.h"
#include "common/lib/base/clock.h"
#include "tests/fuzz/fuzz.h"

#define NOW_S INT64_C(1795176000)
#define SECRET "0123456789abcdef0123456789abcdef"
#define TEXT_MAX ((size_t)2000)

/* The keys of RFC 8037, appendix A, and RFC 7515, appendix A.3. */
static const char keys[] =
    "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"d\","
    "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"},{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"e\","
    "\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\",\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}]}";

static size_t base64url(const void *bytes, size_t length, char *out)
{
    size_t count = (size_t)EVP_EncodeBlock((unsigned char *)out, bytes, (int)length);
    while (count > 0 && out[count - 1] == '=')
        count--;
    for (size_t i = 0; i < count; i++)
        out[i] = (char)(out[i] == '+' ? '-' : out[i] == '/' ? '_' : out[i]);
    out[count] = '\0';
    return count;
}

/* "Bearer <header>.<claims>.<signature>" by the secret; the signature's first byte is changed by `change`. */
static void sign(struct slice header, struct slice claims, unsigned char change, char *out)
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned mac_length = 0;
    char *at = out + sprintf(out, "Bearer ");
    const char *begin = at;
    at += base64url(header.bytes, header.length < TEXT_MAX ? header.length : TEXT_MAX, at);
    *at++ = '.';
    at += base64url(claims.bytes, claims.length < TEXT_MAX ? claims.length : TEXT_MAX, at);
    HMAC(EVP_sha256(), SECRET, sizeof(SECRET) - 1, (const unsigned char *)begin, (size_t)(at - begin), mac,
         &mac_length);
    *at++ = '.';
    mac[0] ^= change;
    base64url(mac, mac_length, at);
}

static struct auth *open_auth(unsigned way)
{
    /* Its caches are not state that shows; and to read the keys takes far longer than to read a token. */
    static struct auth *opened[8];
    if (opened[way] && !fuzz_memory_is_short)
        return opened[way];
    struct fuzz_file secret = fuzz_file(SLICE(SECRET)), jwks = fuzz_file(SLICE(keys));
    struct config config = {.auth = {.hs256_secret_file = secret.path, .jwks_file = jwks.path}};
    struct auth *auth = NULL;
    struct err err = {.kind = ERR_NONE};
    config.auth.issuer = way & 1 ? (char *)(uintptr_t) "https://login.example" : NULL;
    config.auth.audience = way & 2 ? (char *)(uintptr_t) "issuing" : NULL;
    config.auth.max_lifetime_ms = way & 4 ? 3600000 : 0;
    if (!auth_open(&config, &auth, &err))
        fuzz_expect(fuzz_memory_is_short && err.message[0]);
    fuzz_file_done(&secret);
    fuzz_file_done(&jwks);
    if (!fuzz_memory_is_short)
        opened[way] = auth;
    return auth;
}

static bool check(struct auth *auth, struct slice value)
{
    char user[AUTH_USER_SIZE] = "untouched";
    enum auth_refusal refusal = AUTH_REFUSAL_COUNT;
    bool is_accepted = auth_check(auth, value, user, &refusal);
    if (is_accepted)
        fuzz_expect(refusal == AUTH_REFUSAL_COUNT && outbox_user_id_is_valid(user, strlen(user)));
    else
        fuzz_expect(refusal < AUTH_REFUSAL_COUNT && strcmp(user, "untouched") == 0);
    return is_accepted;
}

/* A text of base64url has one form. */
static void decode(struct slice text)
{
    unsigned char bytes[TEXT_MAX];
    char again[2 * TEXT_MAX];
    size_t length;
    if (!auth_base64url(text, bytes, sizeof(bytes), &length))
        return;
    fuzz_expect(base64url(bytes, length, again) == text.length);
    fuzz_expect(text.length == 0 || memcmp(again, text.bytes, text.length) == 0);
}

FUZZ(token)
{
    static char text[4 * TEXT_MAX];
    unsigned which = fuzz_choose(in, 3), way = fuzz_choose(in, 8);
    if (which == 2) {
        decode((struct slice){in->bytes, in->length});
        return;
    }
    clock_freeze(NOW_S * 1000000, 0);
    struct auth *auth = open_auth(way);
    if (auth && which == 0) {
        (void)check(auth, (struct slice){in->bytes, in->length});
    } else if (auth) {
        struct slice header = fuzz_take(in, '\n'), claims = {in->bytes, in->length};
        sign(header, claims, 0, text);
        bool is_accepted = check(auth, (struct slice){text, strlen(text)});
        fuzz_expect(check(auth, (struct slice){text, strlen(text)}) == is_accepted || fuzz_memory_is_short);
        sign(header, claims, 1, text);
        fuzz_expect(!check(auth, (struct slice){text, strlen(text)}));
    }
    if (fuzz_memory_is_short)
        auth_close(auth);
    clock_release();
}
