/* Files of secrets and certificates: key rings, credentials, headers and signing secrets of routes, PEM. No message has
 * a byte of a secret that is long enough to be one. */
#include <stdlib.h>

#include "common/core/keyring.h"
#include "common/lib/http_client/authorities.h"
#include "common/lib/http_client/client_certificate.h"
#include "common/lib/http_client/http_call.h"
#include "tests/fuzz/fuzz.h"
#include "worker/peers/credential.h"
#include "worker/route/route.h"
#include "worker/route/route_sign.h"

/* No 32 bytes of the file in a row. */
static void check_message(const struct err *err, struct slice bytes)
{
    fuzz_expect_err(err, ERR_CONFIG, ERR_CONFIG);
    for (size_t at = 0; at + 32 <= bytes.length; at++)
        fuzz_expect(!memmem(err->message, strlen(err->message), bytes.bytes + at, 32));
}

static void load_keyring(const char *path, struct slice bytes)
{
    struct keyring *keyring = NULL;
    struct err err = {.kind = ERR_NONE};
    if (!keyring_load(path, &keyring, &err)) {
        check_message(&err, bytes);
        return;
    }
    fuzz_expect(keyring_count(keyring) >= 1 && keyring_count(keyring) <= KEYRING_KEYS_MAX);
    size_t active = 0;
    for (size_t i = 0; i < keyring_count(keyring); i++) {
        struct keyring_entry entry = keyring_entry(keyring, i);
        active += entry.state == KEYRING_ACTIVE && entry.id == keyring_active_id(keyring);
        fuzz_expect(keyring_can_open(keyring, entry.id) == (entry.state != KEYRING_RETIRED));
        fuzz_expect(fuzz_is_plain(entry.made_at) && fuzz_is_plain(keyring_state_name(entry.state)));
    }
    fuzz_expect(active == 1);
    if (!keyring_load_over(path, &keyring, &err)) /* the same file again */
        fuzz_expect(fuzz_memory_is_short);
    keyring_free(keyring);
}

static void load_credential(const char *path, bool is_basic, struct slice bytes)
{
    static const struct credential_form basic = {.prefix = "Authorization: Basic ", .is_base64 = true};
    struct credential *credential = NULL;
    struct err err = {.kind = ERR_NONE};
    if (!credential_load(path, is_basic ? &basic : &credential_bearer, &credential, &err)) {
        check_message(&err, bytes);
        return;
    }
    fuzz_expect(!strpbrk(credential_header(credential), "\r\n"));
    char *text = fuzz_text(bytes);
    credential_hide(credential, text);
    free(text);
    credential_release(credential);
}

static void load_headers(const char *path, struct slice bytes)
{
    struct header_file *headers = NULL;
    struct err err = {.kind = ERR_NONE};
    struct http_call call;
    if (!header_file_load(path, true, &headers, &err)) {
        fuzz_expect_err(&err, ERR_CONFIG, ERR_CONFIG);
        return;
    }
    http_call_init(&call, 1024);
    http_call_make(&call, "GET", "https://hooks.example/");
    header_file_put(headers, &call);
    if (http_call_is_made(&call))
        fuzz_expect(!http_call_check(&call));
    http_call_done(&call);
    char *text = fuzz_text(bytes);
    route_headers_hide(headers, text);
    fuzz_expect(!header_file_has_value_in(headers, (struct slice){text, strlen(text)}));
    free(text);
    header_file_free(headers);
}

static void load_signer(const char *path, struct slice bytes)
{
    struct route_signer *signer = NULL;
    struct err err = {.kind = ERR_NONE};
    char signature[ROUTE_SIGNATURE_SIZE];
    if (!route_signer_load(path, &signer, &err)) {
        check_message(&err, bytes);
        return;
    }
    if (route_sign(signer, "0199a4b1", 1700000000, bytes, signature))
        fuzz_expect(fuzz_is_plain(signature) && strncmp(signature, "v1,", 3) == 0);
    else
        fuzz_expect(fuzz_memory_is_short);
    char *text = fuzz_text(bytes);
    route_signer_hide(signer, text);
    fuzz_expect(!route_signer_is_in(signer, (struct slice){text, strlen(text)}));
    free(text);
    route_signer_free(signer);
}

static void load_certificate(const char *path, struct slice bytes)
{
    struct authorities *authorities = NULL;
    struct client_certificate *certificate = NULL;
    struct err err = {.kind = ERR_NONE};
    if (authorities_load(path, &authorities, &err))
        authorities_release(authorities);
    else
        check_message(&err, bytes);
    if (client_certificate_load(path, path, &certificate, &err)) {
        (void)client_certificate_doubt(certificate);
        client_certificate_release(certificate);
    } else {
        check_message(&err, bytes);
    }
}

FUZZ(secret)
{
    unsigned which = fuzz_choose(in, 6);
    struct slice bytes = {in->bytes, in->length};
    struct fuzz_file file = fuzz_file(bytes);
    if (which == 0)
        load_keyring(file.path, bytes);
    else if (which <= 2)
        load_credential(file.path, which == 2, bytes);
    else if (which == 3)
        load_headers(file.path, bytes);
    else if (which == 4)
        load_signer(file.path, bytes);
    else
        load_certificate(file.path, bytes);
    fuzz_file_done(&file);
}
