/* See tls_record.h; RFC 8446, sections 5.2, 5.3 and 7.3. */
#include "tests/unit/tls_record.h"

#include <check.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/base.h"

#define IV_SIZE 12

static struct {
    const SSL *ssl;
    unsigned char secret[EVP_MAX_MD_SIZE];
    size_t secret_length;
    uint64_t number; /* of the next record under this secret */
} sent;

static void on_secret(const SSL *ssl, const char *line)
{
    static const char label[] = "SERVER_TRAFFIC_SECRET_0 ";
    if (strncmp(line, label, sizeof(label) - 1) != 0)
        return;
    const char *hex = strrchr(line, ' ') + 1;
    sent.secret_length = strlen(hex) / 2;
    sent.ssl = ssl;
    sent.number = 0;
    ck_assert_uint_le(sent.secret_length, sizeof(sent.secret));
    for (size_t i = 0; i < sent.secret_length; i++)
        ck_assert_int_eq(sscanf(hex + 2 * i, "%2hhx", &sent.secret[i]), 1);
}

static void on_message(int is_sent, int version, int type, const void *bytes, size_t length, SSL *ssl, void *unused)
{
    (void)version, (void)bytes, (void)length, (void)unused;
    sent.number += ssl == sent.ssl && is_sent && type == SSL3_RT_HEADER;
}

void tls_record_watch(SSL_CTX *tls)
{
    SSL_CTX_set_keylog_callback(tls, on_secret);
    SSL_CTX_set_msg_callback(tls, on_message);
}

/* HKDF-Expand-Label of the secret, with an empty context; length: at most one block of the hash. */
static void expand(const EVP_MD *hash, const char *label, unsigned char *ret_bytes, size_t length)
{
    unsigned char info[64], block[EVP_MAX_MD_SIZE];
    int count = snprintf((char *)info, sizeof(info), "%c%c%ctls13 %s%c\x01", 0, (int)length, (int)(6 + strlen(label)),
                         label, 0);
    ck_assert_ptr_nonnull(HMAC(hash, sent.secret, (int)sent.secret_length, info, (size_t)count, block, NULL));
    memcpy(ret_bytes, block, length);
}

void tls_record_make_empty(unsigned char ret_record[TLS_RECORD_EMPTY_SIZE])
{
    static const unsigned char header[5] = {SSL3_RT_APPLICATION_DATA, 3, 3, 0, TLS_RECORD_EMPTY_SIZE - 5};
    static const unsigned char type = SSL3_RT_APPLICATION_DATA;
    const SSL_CIPHER *suite = SSL_get_current_cipher(sent.ssl);
    const EVP_MD *hash = SSL_CIPHER_get_handshake_digest(suite);
    const EVP_CIPHER *cipher = EVP_get_cipherbynid(SSL_CIPHER_get_cipher_nid(suite));
    unsigned char key[EVP_MAX_KEY_LENGTH], iv[IV_SIZE], *body = ret_record + sizeof(header);
    int length;
    expand(hash, "key", key, (size_t)EVP_CIPHER_get_key_length(cipher));
    expand(hash, "iv", iv, sizeof(iv));
    for (size_t i = 0; i < sizeof(sent.number); i++)
        iv[IV_SIZE - 1 - i] ^= (unsigned char)(sent.number >> (8 * i));
    sent.number++;
    memcpy(ret_record, header, sizeof(header));
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    ck_assert_int_eq(EVP_EncryptInit_ex(context, cipher, NULL, key, iv), 1);
    ck_assert_int_eq(EVP_EncryptUpdate(context, NULL, &length, header, sizeof(header)), 1);
    ck_assert_int_eq(EVP_EncryptUpdate(context, body, &length, &type, 1), 1);
    ck_assert_int_eq(EVP_EncryptFinal_ex(context, body + 1, &length), 1);
    ck_assert_int_eq(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, body + 1), 1);
    EVP_CIPHER_CTX_free(context);
}
