/* A JSON Web Token signed with HMAC-SHA-256 (RFC 7515, appendix A.1; RFC 7519).
 *
 * Invariants: every copy of the claims is wiped, for a token is as good as a password until it expires.
 * Left out: other algorithms, and reading (api/auth.c). */
#include "common/token.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "common/clock.h"
#include "common/json_value.h"

#define KEY_MIN 32
#define CLAIMS_MAX 8192
#define MAC_SIZE 32

/* {"alg":"HS256","typ":"JWT"} */
static const char header[] = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.";

static void put_base64url(struct buf *out, const unsigned char *bytes, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for (size_t i = 0; i < length; i += 3) {
        size_t count = length - i < 3 ? length - i : 3;
        uint32_t group = (uint32_t)bytes[i] << 16;
        group |= count > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        group |= count > 2 ? bytes[i + 2] : 0;
        for (size_t digit = 0; digit <= count; digit++)
            buf_put_byte(out, digits[group >> (18 - 6 * digit) & 63]);
    }
}

static void put_member(struct buf *claims, const char *name, const char *value)
{
    buf_put_format(claims, ",\"%s\":", name);
    json_put_string(claims, value, strlen(value));
}

bool token_mint_hs256(const struct secret *key, const char *user, int64_t expires_at_s, const char *issuer,
                      const char *audience, struct buf *out, struct err *err)
{
    if (key->length < KEY_MIN)
        return err_set(err, ERR_CONFIG, "a key for HS256 must have %d bytes or more", KEY_MIN);
    struct buf claims, token;
    buf_init(&claims, CLAIMS_MAX);
    buf_init(&token, 2 * CLAIMS_MAX);
    buf_put_format(&claims, "{\"exp\":%" PRId64 ",\"iat\":%" PRId64, expires_at_s, clock_wall_us() / 1000000);
    put_member(&claims, "sub", user);
    if (issuer)
        put_member(&claims, "iss", issuer);
    if (audience)
        put_member(&claims, "aud", audience);
    buf_put_byte(&claims, '}');
    buf_put_text(&token, header);
    put_base64url(&token, (const unsigned char *)claims.bytes, claims.failed ? 0 : claims.length);
    unsigned char mac[MAC_SIZE];
    unsigned int mac_length = sizeof(mac);
    bool done = !claims.failed && !token.failed && key->length <= SECRET_FILE_MAX &&
                HMAC(EVP_sha256(), key->bytes, (int)key->length, (const unsigned char *)token.bytes, token.length, mac,
                     &mac_length);
    if (done) {
        buf_put_byte(&token, '.');
        put_base64url(&token, mac, mac_length);
        done = !token.failed && buf_put(out, token.bytes, token.length);
    }
    buf_wipe(&claims);
    buf_done(&claims);
    buf_wipe(&token);
    buf_done(&token);
    return done || err_set(err, ERR_MEMORY, "out of memory or room for a token");
}
