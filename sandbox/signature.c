/* See signature.h. */
#include "sandbox/signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>

#include "common/lib/base/buf.h"

#define PREFIX "whsec_"
#define TOLERANCE_S 300
#define KEY_MAX 192 /* bytes of the base64 */
#define SIGNED_MAX ((size_t)256 * 1024)
#define DIGITS_MAX 12

bool signature_load(const char *path, struct secret *ret_key, struct err *err)
{
    struct secret file = {0};
    unsigned char key[KEY_MAX];
    const size_t prefix = sizeof(PREFIX) - 1;
    if (!secret_load(&file, path, err))
        return false;
    const char *text = (const char *)file.bytes;
    size_t length = strcspn(text, "\r\n"), padding = 0;
    bool is_good = length > prefix && length - prefix <= KEY_MAX && memcmp(text, PREFIX, prefix) == 0;
    int decoded = is_good ? EVP_DecodeBlock(key, (const unsigned char *)text + prefix, (int)(length - prefix)) : -1;
    while (decoded > 0 && padding < 2 && text[length - 1 - padding] == '=')
        padding++;
    is_good = decoded > (int)padding ? secret_copy(ret_key, key, (size_t)decoded - padding, err)
                                     : err_set(err, ERR_CONFIG, "the first line is not whsec_ and base64");
    secret_wipe(key, sizeof(key));
    secret_done(&file);
    return is_good;
}

/* The seconds, -1 = it is not a number. */
static int64_t read_time(struct slice text)
{
    int64_t seconds = 0;
    if (text.length == 0 || text.length > DIGITS_MAX)
        return -1;
    for (size_t i = 0; i < text.length; i++) {
        if (text.bytes[i] < '0' || text.bytes[i] > '9')
            return -1;
        seconds = seconds * 10 + (text.bytes[i] - '0');
    }
    return seconds;
}

static bool sign(const struct secret *key, struct slice id, struct slice time, struct slice body,
                 char ret_text[SECRET_BASE64_SIZE(EVP_MAX_MD_SIZE)])
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    struct buf words;
    buf_init(&words, SIGNED_MAX);
    bool is_made = buf_put_format(&words, "%.*s.%.*s.", (int)id.length, id.bytes, (int)time.length, time.bytes) &&
                   buf_put(&words, body.bytes, body.length) &&
                   HMAC(EVP_sha256(), key->bytes, (int)key->length, (const unsigned char *)words.bytes, words.length,
                        mac, &length);
    buf_done(&words);
    if (is_made)
        secret_base64(mac, length, ret_text);
    return is_made;
}

/* One of "v1,<base64> v1,<base64>" is this one. */
static bool has(struct slice signatures, const char *wanted)
{
    for (size_t from = 0; from < signatures.length;) {
        const char *at = signatures.bytes + from, *blank = memchr(at, ' ', signatures.length - from);
        size_t length = blank ? (size_t)(blank - at) : signatures.length - from;
        if (length > 3 && memcmp(at, "v1,", 3) == 0 && secret_equal(at + 3, length - 3, wanted, strlen(wanted)))
            return true;
        from += length + 1;
    }
    return false;
}

const char *signature_check(const struct secret *key, const struct http_request *request, int64_t now_s)
{
    char wanted[SECRET_BASE64_SIZE(EVP_MAX_MD_SIZE)];
    struct slice id = http_header(request, "webhook-id", NULL), time = http_header(request, "webhook-timestamp", NULL);
    struct slice signatures = http_header(request, "webhook-signature", NULL);
    int64_t signed_s = read_time(time);
    if (id.length == 0 || time.length == 0 || signatures.length == 0)
        return "no_signature";
    if (!sign(key, id, time, request->body, wanted) || !has(signatures, wanted))
        return "bad_signature";
    if (signed_s < 0 || signed_s < now_s - TOLERANCE_S || signed_s > now_s + TOLERANCE_S)
        return "bad_timestamp";
    return NULL;
}
