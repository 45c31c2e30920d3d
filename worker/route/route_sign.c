/* See route_sign.h. A context of OpenSSL holds each secret with its key schedule; a signature works on a copy of it.
 *
 * Invariants: a file is used as a whole or not at all; no message contains a byte of it; what was read is overwritten.
 * Left out: asymmetric signatures (v1a), and checking signatures: receivers do that. */
#include "worker/route/route_sign.h"

#include <inttypes.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/digest.h"
#include "common/base/secret.h"
#include "common/decide/outcome.h"

#define PREFIX "whsec_"
#define SECRET_MIN 24 /* bytes, decoded */
#define SECRET_MAX 64
#define SECRET_TEXT_MAX (SECRET_BASE64_SIZE(SECRET_MAX) - 1)
#define SIGNATURE_PREFIX "v1,"

struct route_signer {
    EVP_MAC_CTX *macs[ROUTE_SECRETS_MAX];
    struct secret texts[ROUTE_SECRETS_MAX]; /* in base64, without the prefix */
    int count;
};

/* ---- reading the file ---- */

/* Base64 with padding, in its one form. Returns the number of bytes, 0 = it is not what a secret is. */
static size_t decode(struct slice text, unsigned char ret_bytes[SECRET_TEXT_MAX])
{
    char copy[SECRET_TEXT_MAX + 1], again[SECRET_TEXT_MAX + 1];
    size_t padding = 0, length = 0;
    if (text.length == 0 || text.length > SECRET_TEXT_MAX || text.length % 4 != 0)
        return 0;
    memcpy(copy, text.bytes, text.length);
    copy[text.length] = '\0';
    while (padding < 2 && copy[text.length - 1 - padding] == '=')
        padding++;
    int decoded = EVP_DecodeBlock(ret_bytes, (const unsigned char *)copy, (int)text.length);
    if (decoded > (int)padding)
        length = (size_t)decoded - padding;
    if (length >= SECRET_MIN && length <= SECRET_MAX) {
        secret_base64(ret_bytes, length, again); /* OpenSSL accepts more than that */
        length = secret_equal(again, strlen(again), copy, text.length) ? length : 0;
    } else {
        length = 0;
    }
    secret_wipe(copy, sizeof(copy));
    secret_wipe(again, sizeof(again));
    return length;
}

static EVP_MAC_CTX *make_mac(const unsigned char *key, size_t length)
{
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, "SHA256", 0),
        OSSL_PARAM_construct_end(),
    };
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *mac = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
    EVP_MAC_free(hmac); /* the context holds its own reference */
    if (mac && EVP_MAC_init(mac, key, length, parameters) == 1)
        return mac;
    EVP_MAC_CTX_free(mac);
    return NULL;
}

static bool add_secret(struct route_signer *signer, struct slice line, struct err *err)
{
    unsigned char key[SECRET_TEXT_MAX];
    const size_t prefix = sizeof(PREFIX) - 1;
    struct slice text = {.bytes = line.bytes, .length = 0};
    if (line.length > prefix && memcmp(line.bytes, PREFIX, prefix) == 0)
        text = (struct slice){.bytes = line.bytes + prefix, .length = line.length - prefix};
    size_t length = decode(text, key);
    if (length == 0)
        return err_set(err, ERR_CONFIG, "line %d is not whsec_ and the base64 of %d to %d bytes", signer->count + 1,
                       SECRET_MIN, SECRET_MAX);
    EVP_MAC_CTX *mac = make_mac(key, length);
    secret_wipe(key, sizeof(key));
    if (!mac)
        return err_set(err, ERR_SYSTEM, "OpenSSL has no HMAC with SHA-256");
    signer->macs[signer->count] = mac;
    return secret_copy(&signer->texts[signer->count++], text.bytes, text.length, err);
}

static bool read_lines(struct route_signer *signer, const struct secret *file, struct err *err)
{
    const char *at = (const char *)file->bytes, *end = at + file->length;
    while (at <= end) {
        const char *newline = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        struct slice line = {.bytes = at, .length = (size_t)((newline ? newline : end) - at)};
        if (line.length > 0 && line.bytes[line.length - 1] == '\r')
            line.length--;
        if (signer->count == ROUTE_SECRETS_MAX)
            return err_set(err, ERR_CONFIG, "there are more than %d lines in it", ROUTE_SECRETS_MAX);
        if (!add_secret(signer, line, err))
            return false;
        at = newline ? newline + 1 : end + 1;
    }
    return true;
}

bool route_signer_load(const char *path, struct route_signer **ret_signer, struct err *err)
{
    struct secret file = {0};
    if (!secret_load(&file, path, err))
        return false;
    struct route_signer *signer = calloc(1, sizeof(*signer));
    bool done = signer ? read_lines(signer, &file, err) || err_prefix(err, "%s", path)
                       : err_set(err, ERR_MEMORY, "no memory for the secrets of a route");
    secret_done(&file);
    if (!done) {
        route_signer_free(signer);
        return false;
    }
    *ret_signer = signer;
    return true;
}

void route_signer_free(struct route_signer *signer)
{
    for (int i = 0; signer && i < signer->count; i++) {
        EVP_MAC_CTX_free(signer->macs[i]); /* OpenSSL overwrites the key */
        secret_done(&signer->texts[i]);
    }
    free(signer);
}

/* ---- signing ---- */

static bool digest(const EVP_MAC_CTX *keyed, struct slice head, struct slice body,
                   unsigned char ret_digest[DIGEST_SIZE])
{
    size_t length = 0;
    EVP_MAC_CTX *mac = EVP_MAC_CTX_dup(keyed);
    bool done = mac && EVP_MAC_update(mac, (const unsigned char *)head.bytes, head.length) == 1 &&
                EVP_MAC_update(mac, (const unsigned char *)body.bytes, body.length) == 1 &&
                EVP_MAC_final(mac, ret_digest, &length, DIGEST_SIZE) == 1 && length == DIGEST_SIZE;
    EVP_MAC_CTX_free(mac);
    return done;
}

bool route_sign(const struct route_signer *signer, const char *id, int64_t timestamp_s, struct slice body,
                char ret_signature[ROUTE_SIGNATURE_SIZE])
{
    char head[128], text[ROUTE_SIGNATURE_SIZE];
    size_t length = 0;
    int head_length = snprintf(head, sizeof(head), "%s.%" PRId64 ".", id, timestamp_s);
    if (head_length < 0 || (size_t)head_length >= sizeof(head))
        return false;
    for (int i = 0; i < signer->count; i++) {
        unsigned char mac[DIGEST_SIZE];
        if (!digest(signer->macs[i], (struct slice){.bytes = head, .length = (size_t)head_length}, body, mac))
            return false;
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s" SIGNATURE_PREFIX, i > 0 ? " " : "");
        secret_base64(mac, sizeof(mac), text + length);
        length += strlen(text + length);
    }
    memcpy(ret_signature, text, length + 1);
    return true;
}

bool route_signer_is_in(const struct route_signer *signer, struct slice text)
{
    for (int i = 0; signer && text.length > 0 && i < signer->count; i++)
        if (memmem(text.bytes, text.length, signer->texts[i].bytes, signer->texts[i].length))
            return true;
    return false;
}

void route_signer_hide(const struct route_signer *signer, char *text)
{
    const char *values[ROUTE_SECRETS_MAX];
    for (int i = 0; signer && i < signer->count; i++)
        values[i] = (const char *)signer->texts[i].bytes;
    if (signer)
        outcome_hide((size_t)signer->count, values, text);
}
