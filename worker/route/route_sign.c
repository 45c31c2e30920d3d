/* See route_sign.h.
 *
 * Invariants: a file is used as a whole or not at all; no message contains a byte of it; what was read is overwritten.
 * Left out: asymmetric signatures (v1a), and checking signatures: receivers do that. */
#include "worker/route/route_sign.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/decide/outcome.h"
#include "common/lib/base/hmac.h"
#include "common/lib/base/secret.h"

#define SIGNATURE_PREFIX "v1,"

struct route_signer {
    struct hmac *hmacs[ROUTE_SECRETS_MAX];
    struct secret texts[ROUTE_SECRETS_MAX]; /* in base64, without the prefix */
    int count;
};

/* ---- reading the file ---- */

static bool add_secret(void *context, struct slice line, struct err *err)
{
    struct route_signer *signer = context;
    unsigned char key[WHSEC_KEY_MAX + 2];
    size_t length = hmac_read_whsec(line, key);
    if (length == 0)
        return err_set(err, ERR_CONFIG, "line %d is not whsec_ and the base64 of %d to %d bytes", signer->count + 1,
                       WHSEC_KEY_MIN, WHSEC_KEY_MAX);
    struct hmac *hmac = hmac_new(key, length, err);
    secret_wipe(key, sizeof(key));
    if (!hmac)
        return false;
    signer->hmacs[signer->count] = hmac;
    const size_t prefix = sizeof(WHSEC_PREFIX) - 1;
    return secret_copy(&signer->texts[signer->count++], line.bytes + prefix, line.length - prefix, err);
}

bool route_signer_load(const char *path, struct route_signer **ret_signer, struct err *err)
{
    struct secret file = {0};
    if (!secret_load(&file, path, err))
        return false;
    struct route_signer *signer = calloc(1, sizeof(*signer));
    bool done = signer
                    ? secret_each_line(&file, ROUTE_SECRETS_MAX, add_secret, signer, err) || err_prefix(err, "%s", path)
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
        hmac_free(signer->hmacs[i]);
        secret_done(&signer->texts[i]);
    }
    free(signer);
}

/* ---- signing ---- */

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
        if (!hmac_digest(signer->hmacs[i], (struct slice){.bytes = head, .length = (size_t)head_length}, body, mac))
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
