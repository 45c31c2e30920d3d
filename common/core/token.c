/* A JSON Web Token signed with HMAC-SHA-256 (RFC 7515, appendix A.1; RFC 7519).
 *
 * Invariants: every copy of the claims and of the token is wiped, because a token is as good as a password until it
 * expires.
 * Left out: other algorithms, and reading tokens (api/auth.c). */
#include "common/core/token.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "common/lib/base/clock.h"
#include "common/lib/json/json_writer.h"

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

static void write_claims(struct buf *out, const char *user, int64_t expires_at_s, const char *issuer,
                         const char *audience)
{
    struct json_writer writer = json_writer_of(out);
    json_open_object(&writer, NULL);
    json_add_integer(&writer, "exp", expires_at_s);
    json_add_integer(&writer, "iat", clock_wall_us() / 1000000);
    json_add_text(&writer, "sub", user);
    if (issuer)
        json_add_text(&writer, "iss", issuer);
    if (audience)
        json_add_text(&writer, "aud", audience);
    json_close_object(&writer);
}

bool token_mint_hs256(const struct secret *key, const char *user, int64_t expires_at_s, const char *issuer,
                      const char *audience, struct buf *out, struct err *err)
{
    if (key->length < TOKEN_SECRET_MIN)
        return err_set(err, ERR_CONFIG, "a key for HS256 must have %d bytes or more", TOKEN_SECRET_MIN);
    struct buf claims, token;
    buf_init(&claims, CLAIMS_MAX);
    buf_init(&token, 2 * CLAIMS_MAX);
    write_claims(&claims, user, expires_at_s, issuer, audience);
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
    return done ||
           err_set(err, ERR_MEMORY, "out of memory for a token, or its claims are longer than %d bytes", CLAIMS_MAX);
}
