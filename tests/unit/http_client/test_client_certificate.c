/* An operator replaces the worker's certificate and the worker reads the files when only one of them is new. What it
 * shows to the peer then must be the old pair: a certificate without its key ends every call, and so every card. */
#include "common/lib/http_client/client_certificate.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/certificate.h"
#include "tests/support/suite.h"

#define DAY_S 86400

static struct certificate authority, first, second;
static char first_cert[64], first_key[64], second_cert[64], second_key[64], locked_key[64];
static int fds[5];
static struct err err;

static void set_up(void)
{
    certificate_make_authority(&authority, "own authority");
    certificate_make_with(&first, &authority, "first", NULL, DAY_S);
    certificate_make_with(&second, &authority, "second", NULL, -60);
    fds[0] = certificate_file(&first, first_cert, sizeof(first_cert));
    fds[1] = certificate_key_file(&first, NULL, first_key, sizeof(first_key));
    fds[2] = certificate_file(&second, second_cert, sizeof(second_cert));
    fds[3] = certificate_key_file(&second, NULL, second_key, sizeof(second_key));
    fds[4] = certificate_key_file(&first, "passphrase", locked_key, sizeof(locked_key));
    err = (struct err){0};
}

static void tear_down(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    certificate_done(&first);
    certificate_done(&second);
    certificate_done(&authority);
}

static void expect_refused(const char *cert_path, const char *key_path, const char *why)
{
    struct client_certificate *untouched = (struct client_certificate *)(void *)&authority, *read = untouched;
    ck_assert(!client_certificate_load(cert_path, key_path, &read, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_ptr_eq(read, untouched);
    ck_assert_msg(strstr(err.message, why), "%s", err.message);
    ck_assert_ptr_null(strstr(err.message, "BEGIN"));
}

TEST(a_pair_is_read_and_shared)
{
    struct client_certificate *read = NULL;
    ck_assert_msg(client_certificate_load(first_cert, first_key, &read, &err), "%s", err.message);
    ck_assert_ptr_null(client_certificate_doubt(read));
    ck_assert_ptr_eq(client_certificate_hold(read), read);
    client_certificate_release(read);
    ck_assert_int_eq(EVP_PKEY_eq(read->key, first.key), 1);
    client_certificate_release(read);
    client_certificate_release(client_certificate_hold(NULL));
}

TEST(a_certificate_out_of_its_time_is_read_and_reported)
{
    struct client_certificate *read = NULL;
    ck_assert(client_certificate_load(second_cert, second_key, &read, &err));
    ck_assert_str_eq(client_certificate_doubt(read), "the certificate has expired");
    client_certificate_release(read);
}

TEST(what_is_no_pair_is_refused)
{
    expect_refused(first_cert, second_key, "does not belong to the key");
    expect_refused(second_cert, first_key, "does not belong to the key");
    expect_refused("/nonexistent/cert.pem", first_key, "No such file");
    expect_refused(first_cert, "/nonexistent/key.pem", "No such file");
    expect_refused(first_key, first_key, "no certificate in it");
    expect_refused(first_cert, first_cert, "mode");
    ck_assert_int_eq(fchmod(fds[0], 0600), 0);
    expect_refused(first_cert, first_cert, "no private key in it");
    expect_refused(first_cert, "/dev/null", "not a regular file");
    expect_refused("/", first_key, "not a regular file");
}

TEST(a_key_with_a_passphrase_is_refused_without_a_prompt)
{
    expect_refused(first_cert, locked_key, "has a passphrase");
}

TEST(a_key_that_everybody_may_read_is_refused)
{
    ck_assert_int_eq(fchmod(fds[1], 0644), 0);
    expect_refused(first_cert, first_key, "mode 0644");
}

TESTS_BETWEEN(client_certificate, set_up, tear_down)
