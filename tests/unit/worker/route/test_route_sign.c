/* The story: a receiver believes a delivery because of its signature, with the library of its own language. So ours is
 * what the standard publishes, to the byte; two secrets both sign while receivers change theirs; a file that is not
 * wholly right is refused with its line; and no part of a secret gets out. */
#include <check.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/lib/base/secret.h"
#include "worker/route/route_sign.h"
#include "tests/support/suite.h"

/* The vector that Standard Webhooks publishes with its libraries. */
#define SECRET "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define SIGNATURE "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
#define ID "msg_p5jXN8AQM9LWM0D4loKWxJek"
#define TIMESTAMP 1614265330
#define BODY "{\"test\": 2432232314}"

#define OTHER "AAECAwQFBgcICQoLDA0ODxAREhMUFRYX" /* 0 to 23 */
#define LONGEST \
    "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==" /* 64 bytes */

static char path[64];
static struct route_signer *signer;
static struct err err;

static void set_up(void)
{
    snprintf(path, sizeof(path), "/tmp/test_route_sign.%ld", (long)getpid());
    memset(&err, 0, sizeof(err));
    signer = NULL;
}

static void tear_down(void)
{
    route_signer_free(signer);
    (void)unlink(path);
}

static bool load_bytes(const void *bytes, size_t length)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
    return route_signer_load(path, &signer, &err);
}

static void load(const char *text)
{
    ck_assert_msg(load_bytes(text, strlen(text)), "%s: %s", text, err.message);
}

static void expect_signature(const char *expected)
{
    char signature[ROUTE_SIGNATURE_SIZE];
    ck_assert(route_sign(signer, ID, TIMESTAMP, SLICE(BODY), signature));
    ck_assert_str_eq(signature, expected);
}

TEST(the_published_vector_is_signed_as_published)
{
    load("whsec_" SECRET "\n");
    expect_signature(SIGNATURE);
    expect_signature(SIGNATURE); /* the first one has changed nothing */
}

TEST(the_end_of_the_file_does_not_matter)
{
    static const char *const ends[] = {"", "\n", "\r\n"};
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        char text[256];
        snprintf(text, sizeof(text), "whsec_%s%s", SECRET, ends[i]);
        load(text);
        expect_signature(SIGNATURE);
        route_signer_free(signer);
        snprintf(text, sizeof(text), "whsec_%s%swhsec_%s%s", OTHER, i == 2 ? "\r\n" : "\n", SECRET, ends[i]);
        load(text);
        char signature[ROUTE_SIGNATURE_SIZE];
        ck_assert(route_sign(signer, ID, TIMESTAMP, SLICE(BODY), signature));
        ck_assert_str_eq(strchr(signature, ' ') + 1, SIGNATURE);
        route_signer_free(signer);
    }
    signer = NULL;
}

TEST(two_secrets_both_sign_in_their_order)
{
    char first[ROUTE_SIGNATURE_SIZE], both[2 * ROUTE_SIGNATURE_SIZE];
    load("whsec_" OTHER);
    ck_assert(route_sign(signer, ID, TIMESTAMP, SLICE(BODY), first));
    ck_assert_str_ne(first, SIGNATURE);
    route_signer_free(signer);
    load("whsec_" OTHER "\nwhsec_" SECRET "\n");
    snprintf(both, sizeof(both), "%s %s", first, SIGNATURE);
    ck_assert_uint_lt(strlen(both), ROUTE_SIGNATURE_SIZE);
    expect_signature(both);
}

/* HMAC of the whole message at once, which is another way through OpenSSL. */
TEST(any_key_and_any_body_is_signed_as_one_message)
{
    static char body[64 * 1024];
    static const size_t lengths[] = {0, 1, 55, 56, 63, 64, 65, 127, 128, 4096, sizeof(body)};
    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = (char)(i * 7 + i / 256); /* NULs too */
    for (size_t key_length = 24; key_length <= 64; key_length++) {
        unsigned char key[64], mac[EVP_MAX_MD_SIZE];
        char text[128] = "whsec_", expected[64] = "v1,", signature[ROUTE_SIGNATURE_SIZE];
        static char message[sizeof(body) + 64];
        unsigned int mac_length = 0;
        for (size_t i = 0; i < key_length; i++)
            key[i] = (unsigned char)(i * 31 + key_length);
        secret_base64(key, key_length, text + strlen(text));
        load(text);
        size_t body_length = lengths[key_length % ARRAY_SIZE(lengths)];
        int head = snprintf(message, sizeof(message), "%s.%d.", ID, TIMESTAMP);
        memcpy(message + head, body, body_length);
        ck_assert_ptr_nonnull(HMAC(EVP_sha256(), key, (int)key_length, (const unsigned char *)message,
                                   (size_t)head + body_length, mac, &mac_length));
        secret_base64(mac, mac_length, expected + 3);
        ck_assert(route_sign(signer, ID, TIMESTAMP, (struct slice){.bytes = body, .length = body_length}, signature));
        ck_assert_str_eq(signature, expected);
        route_signer_free(signer);
    }
    signer = NULL;
}

TEST(each_part_of_the_message_counts)
{
    char signature[ROUTE_SIGNATURE_SIZE];
    load("whsec_" SECRET);
    ck_assert(route_sign(signer, ID "x", TIMESTAMP, SLICE(BODY), signature));
    ck_assert_str_ne(signature, SIGNATURE);
    ck_assert(route_sign(signer, ID, TIMESTAMP + 1, SLICE(BODY), signature));
    ck_assert_str_ne(signature, SIGNATURE);
    ck_assert(route_sign(signer, ID, TIMESTAMP, SLICE(BODY " "), signature));
    ck_assert_str_ne(signature, SIGNATURE);
    char longest[200];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    strcpy(signature, "untouched");
    ck_assert(!route_sign(signer, longest, TIMESTAMP, SLICE(BODY), signature));
    ck_assert_str_eq(signature, "untouched");
}

TEST(the_shortest_and_the_longest_secret_are_accepted)
{
    load("whsec_" OTHER);
    route_signer_free(signer);
    load("whsec_" LONGEST);
}

TEST(a_file_that_is_not_wholly_right_is_refused_with_its_line_and_without_its_bytes)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {SECRET, "line 1 is not whsec_"},
        {"whsec_", "line 1"},
        {"whsec_\n", "line 1"},
        {"WHSEC_" SECRET, "line 1"},
        {" whsec_" SECRET, "line 1"},
        {"whsec_" SECRET " ", "line 1"},
        {"whsec_ " SECRET, "line 1"},
        {"whsec_" SECRET "\n\n", "line 2"},
        {"\nwhsec_" SECRET, "line 1"},
        {"whsec_" SECRET "\nwhsec_short", "line 2"},
        {"whsec_" SECRET "\nwhsec_" OTHER "\nwhsec_" LONGEST, "there are more than 2 lines"},
        {"whsec_" SECRET "\nwhsec_" OTHER "\n\n", "there are more than 2 lines"},
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa==", "line 1"},     /* 22 bytes */
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaQ=", "line 1"},     /* 23 bytes */
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "line 1"},      /* cut */
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwA===", "line 1"}, /* three of them */
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwAB==", "line 1"}, /* bits behind the last byte */
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS-_w==", "line 1"}, /* base64url */
        {"whsec_MfKQ9r8GKYqrTwjU=D8ILPZIo2LaLaSw", "line 1"},
        {"whsec_" LONGEST "AAAA", "line 1"},
        {"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A=", "line 1"},
        {"whsk_" SECRET, "line 1"},
        {"", "the file is empty"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert_msg(!load_bytes(rows[i].text, strlen(rows[i].text)), "%s", rows[i].text);
        ck_assert_ptr_null(signer);
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        ck_assert_msg(strstr(err.message, rows[i].why), "%s: %s", rows[i].text, err.message);
        ck_assert_msg(strstr(err.message, path), "%s", err.message);
        ck_assert_msg(!strstr(err.message, "MfKQ"), "%s", err.message);
    }
    static const char nul[] = "whsec_" SECRET "\0";
    ck_assert(!load_bytes(nul, sizeof(nul)));
    load("whsec_" SECRET);
    ck_assert_int_eq(chmod(path, 0604), 0);
    struct route_signer *other = NULL;
    ck_assert(!route_signer_load(path, &other, &err));
    ck_assert_ptr_null(other);
}

TEST(a_secret_that_a_peer_repeats_is_hidden)
{
    char text[] = "expected whsec_" OTHER " or " SECRET ", not abc";
    load("whsec_" OTHER "\nwhsec_" SECRET);
    ck_assert(route_signer_is_in(signer, SLICE("{\"x\":\"whsec_" SECRET "\"}")));
    ck_assert(route_signer_is_in(signer, SLICE(OTHER)));
    ck_assert(!route_signer_is_in(signer, SLICE("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS")));
    ck_assert(!route_signer_is_in(signer, (struct slice){.bytes = NULL, .length = 0}));
    ck_assert(!route_signer_is_in(NULL, SLICE(SECRET)));
    route_signer_hide(signer, text);
    ck_assert_ptr_null(strstr(text, OTHER));
    ck_assert_ptr_null(strstr(text, SECRET));
    ck_assert_ptr_nonnull(strstr(text, ", not abc"));
    route_signer_hide(NULL, text);
}

TESTS_BETWEEN(route_sign, set_up, tear_down)
