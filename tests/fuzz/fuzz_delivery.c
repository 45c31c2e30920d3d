/* What leaves as a delivery: whatever user and payload are, its lines are lines, and its signature is that of Standard
 * Webhooks over id, time and body, as OpenSSL computes it. */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "worker/peers/core_api.h"
#include "worker/route/route_call.h"

#define EVENT "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5b"
#define SECRET "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define NOW_MS INT64_C(1700000060999)
#define NOW_S "1700000060"

static void check_signature(const struct http_call *call)
{
    unsigned char key[32], mac[EVP_MAX_MD_SIZE];
    char expected[80] = "webhook-signature: v1,";
    unsigned mac_length = 0;
    static const char start[] = EVENT "." NOW_S ".";
    size_t length = sizeof(start) - 1 + call->body.length;
    char *text = malloc(length);
    fuzz_expect(text);
    memcpy(text, start, sizeof(start) - 1);
    if (call->body.length > 0)
        memcpy(text + sizeof(start) - 1, call->body.bytes, call->body.length);
    EVP_DecodeBlock(key, (const unsigned char *)SECRET, sizeof(SECRET) - 1);
    HMAC(EVP_sha256(), key, (int)(sizeof(SECRET) - 1) * 3 / 4, (const unsigned char *)text, length, mac, &mac_length);
    EVP_EncodeBlock((unsigned char *)expected + strlen(expected), mac, (int)mac_length);
    free(text);
    bool is_there = false;
    for (const char *line = http_call_next_line(call, call->lines.bytes); line; line = http_call_next_line(call, line))
        is_there |= strcmp(line, expected) == 0;
    fuzz_expect(is_there);
}

static void check_call(const struct http_call *call, bool is_made)
{
    if (!is_made)
        return;
    fuzz_expect(!http_call_check(call));
    for (const char *line = http_call_next_line(call, call->lines.bytes); line; line = http_call_next_line(call, line))
        fuzz_expect(strchr(line, ':') && !strpbrk(line, "\r\n"));
}

static bool open_signer(struct route *route)
{
    struct fuzz_file file = fuzz_file(SLICE("whsec_" SECRET));
    struct err err = {.kind = ERR_NONE};
    bool is_open = route_signer_load(file.path, &route->signer, &err);
    fuzz_file_done(&file);
    fuzz_expect(is_open || fuzz_memory_is_short);
    return is_open;
}

FUZZ(delivery)
{
    struct config_route config = {.type = "PAYMENT",
                                  .url = (char *)(uintptr_t) "https://pay.example/{id}/x",
                                  .lookup_url = (char *)(uintptr_t) "https://pay.example/{id}",
                                  .method = (char *)(uintptr_t) "PUT",
                                  .sign_secret_file = (char *)(uintptr_t) "/etc/secret"};
    struct route route = {.config = &config};
    struct route_event event = {.is_resent = fuzz_choose(in, 2)};
    struct http_call call;
    struct slice user = fuzz_take(in, '\n');
    char *user_id = fuzz_text(user);
    event.user_id = user_id;
    event.payload = (struct slice){in->bytes, in->length};
    event.created_ms = user.length > 8 ? INT64_MAX - (int64_t)user.length : NOW_MS;
    if (!uuid_parse(EVENT, sizeof(EVENT) - 1, &event.event_id))
        abort();
    if (open_signer(&route)) {
        http_call_init(&call, 1024);
        bool is_made = route_build_deliver(&route, &event, NOW_MS, &call);
        check_call(&call, is_made);
        if (is_made && !fuzz_memory_is_short)
            check_signature(&call);
        check_call(&call, route_build_lookup(&route, &event, &call));
        check_call(&call, core_build_check(&call, "https://core.example", user_id, true));
        http_call_done(&call);
        route_signer_free(route.signer);
    }
    free(user_id);
}
