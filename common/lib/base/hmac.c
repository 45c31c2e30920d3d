/* See hmac.h. A context of OpenSSL holds the key with its schedule; a digest works on a copy of it. */
#include "common/lib/base/hmac.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <string.h>

#include "common/lib/base/secret.h"

#define TEXT_MAX (SECRET_BASE64_SIZE(WHSEC_KEY_MAX) - 1)

/* struct hmac is OpenSSL's own. */
static EVP_MAC_CTX *context_of(const struct hmac *hmac)
{
    return (EVP_MAC_CTX *)hmac;
}

struct hmac *hmac_new(const void *key, size_t length, struct err *err)
{
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, "SHA256", 0),
        OSSL_PARAM_construct_end(),
    };
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *context = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
    EVP_MAC_free(hmac); /* the context holds its own reference */
    if (context && EVP_MAC_init(context, key, length, parameters) == 1)
        return (struct hmac *)context;
    EVP_MAC_CTX_free(context);
    (void)err_set(err, ERR_SYSTEM, "OpenSSL has no HMAC with SHA-256"); /* ignoring: it is false always */
    return NULL;
}

void hmac_free(struct hmac *hmac)
{
    EVP_MAC_CTX_free(context_of(hmac)); /* OpenSSL overwrites the key */
}

bool hmac_digest(const struct hmac *hmac, struct slice head, struct slice body, unsigned char ret_digest[DIGEST_SIZE])
{
    size_t length = 0;
    EVP_MAC_CTX *mac = EVP_MAC_CTX_dup(context_of(hmac));
    bool done = mac && EVP_MAC_update(mac, (const unsigned char *)head.bytes, head.length) == 1 &&
                EVP_MAC_update(mac, (const unsigned char *)body.bytes, body.length) == 1 &&
                EVP_MAC_final(mac, ret_digest, &length, DIGEST_SIZE) == 1 && length == DIGEST_SIZE;
    EVP_MAC_CTX_free(mac);
    return done;
}

size_t hmac_read_whsec(struct slice text, unsigned char ret_key[WHSEC_KEY_MAX + 2])
{
    char copy[TEXT_MAX + 1], again[TEXT_MAX + 1];
    const size_t prefix = sizeof(WHSEC_PREFIX) - 1;
    size_t padding = 0, length = 0;
    if (text.length <= prefix || memcmp(text.bytes, WHSEC_PREFIX, prefix) != 0)
        return 0;
    text = (struct slice){.bytes = text.bytes + prefix, .length = text.length - prefix};
    if (text.length > TEXT_MAX || text.length % 4 != 0)
        return 0;
    memcpy(copy, text.bytes, text.length);
    copy[text.length] = '\0';
    while (padding < 2 && copy[text.length - 1 - padding] == '=')
        padding++;
    int decoded = EVP_DecodeBlock(ret_key, (const unsigned char *)copy, (int)text.length);
    if (decoded > (int)padding)
        length = (size_t)decoded - padding;
    if (length >= WHSEC_KEY_MIN && length <= WHSEC_KEY_MAX) {
        secret_base64(ret_key, length, again); /* OpenSSL accepts more than that */
        length = secret_equal(again, strlen(again), copy, text.length) ? length : 0;
    } else {
        length = 0;
    }
    secret_wipe(copy, sizeof(copy));
    secret_wipe(again, sizeof(again));
    return length;
}
