/* The story: an operator moves to another issuer, which wants its credential in another form. The header must be what
 * that issuer's documentation shows, to the byte; a file that cannot be meant so must be refused with a reason; and no
 * reason may hold the credential. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/peers/credential.h"
#include "tests/support/suite.h"

#define SECRET "sk_never_shown"

static const struct credential_form bare = {.prefix = "Authorization: "}, api_key = {.prefix = "X-API-Key: "},
                                    basic = {.prefix = "Authorization: Basic ", .is_base64 = true};
static char path[64];

static void set_up(void)
{
    snprintf(path, sizeof(path), "/tmp/test_credential.%ld", (long)getpid());
}

static void tear_down(void)
{
    (void)unlink(path); /* ignoring: not every test has made it */
}

static void write_file(const void *bytes, size_t length)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

static void expect_header(const struct credential_form *form, const char *text, const char *header)
{
    struct credential *credential = NULL;
    struct err err = {0};
    write_file(text, strlen(text));
    ck_assert_msg(credential_load(path, form, &credential, &err), "%s: %s", text, err.message);
    ck_assert_str_eq(credential_header(credential), header);
    credential_release(credential);
}

static void expect_refused(const struct credential_form *form, const void *bytes, size_t length, const char *why)
{
    struct credential *credential = NULL;
    struct err err = {0};
    write_file(bytes, length);
    ck_assert(!credential_load(path, form, &credential, &err));
    ck_assert_ptr_null(credential);
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_msg(strstr(err.message, why), "%s", err.message);
    ck_assert_msg(strstr(err.message, path), "%s", err.message);
    ck_assert_msg(!strstr(err.message, SECRET), "%s", err.message);
}

TEST(each_form_is_written_as_its_issuer_documents_it)
{
    expect_header(&credential_bearer, SECRET "\n", "Authorization: Bearer " SECRET);
    expect_header(&bare, SECRET "\r\n", "Authorization: " SECRET);
    expect_header(&api_key, SECRET, "X-API-Key: " SECRET);
    /* RFC 7617, 2 and 2.1, and 4648, 10 */
    expect_header(&basic, "Aladdin:open sesame\n", "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    expect_header(&basic, "test:123\xc2\xa3", "Authorization: Basic dGVzdDoxMjPCow==");
    expect_header(&basic, "a:b", "Authorization: Basic YTpi");
    expect_header(&basic, "a:b:c", "Authorization: Basic YTpiOmM=");
    expect_header(&basic, "key:", "Authorization: Basic a2V5Og==");
    expect_header(&basic, ":", "Authorization: Basic Og==");
}

TEST(a_file_that_is_not_one_line_is_refused_in_every_form)
{
    static const struct credential_form *const forms[] = {&credential_bearer, &bare, &api_key, &basic};
    static char large[4097 + 1];
    memset(large, 'x', sizeof(large) - 1);
    large[1] = ':';
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        expect_refused(forms[i], SECRET ":\nx", strlen(SECRET) + 3, "one line");
        expect_refused(forms[i], SECRET ":\n\n", strlen(SECRET) + 3, "one line");
        expect_refused(forms[i], "\n" SECRET ":", strlen(SECRET) + 2, "one line");
        expect_refused(forms[i], SECRET ":\rx", strlen(SECRET) + 3, "one line");
        expect_refused(forms[i], SECRET ":\0x", strlen(SECRET) + 3, "one line");
        expect_refused(forms[i], large, 4097, "one line of at most 4096 bytes");
        expect_refused(forms[i], "", 0, "empty");
    }
}

TEST(basic_needs_a_name_and_a_password_with_a_colon_between)
{
    expect_refused(&basic, SECRET, strlen(SECRET), "name:password");
    expect_refused(&basic, "QWxhZGRpbjpvcGVuIHNlc2FtZQ==", 28, "name:password"); /* encoded already */
}

TEST(the_largest_credential_has_room_in_every_form)
{
    static const struct credential_form *const forms[] = {&credential_bearer, &bare, &api_key, &basic};
    static char large[4096 + 1];
    memset(large, 'x', sizeof(large) - 1);
    large[1] = ':';
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        struct credential *credential = NULL;
        write_file(large, 4096);
        ck_assert(credential_load(path, forms[i], &credential, NULL));
        size_t expected = forms[i]->is_base64 ? 5464 : 4096;
        ck_assert_uint_eq(strlen(credential_header(credential)), strlen(forms[i]->prefix) + expected);
        credential_release(credential);
    }
}

TEST(a_credential_lives_as_long_as_its_last_user)
{
    struct credential *credential = NULL;
    write_file("a:b", 3);
    ck_assert(credential_load(path, &basic, &credential, NULL));
    ck_assert_ptr_eq(credential_hold(credential), credential);
    credential_release(credential);
    ck_assert_str_eq(credential_header(credential), "Authorization: Basic YTpi");
    credential_release(credential);
    ck_assert_ptr_null(credential_hold(NULL));
    ck_assert_ptr_null(credential_header(NULL));
    credential_release(NULL);
}

static void expect_hidden(const struct credential_form *form, const char *file, const char *words, const char *wanted)
{
    struct credential *credential = NULL;
    struct err err = {0};
    char text[200];
    write_file(file, strlen(file));
    ck_assert_msg(credential_load(path, form, &credential, &err), "%s", err.message);
    snprintf(text, sizeof(text), "%s", words);
    credential_hide(credential, text);
    ck_assert_str_eq(text, wanted);
    credential_release(credential);
}

TEST(a_peers_words_do_not_repeat_it)
{
    expect_hidden(&bare, SECRET, "no such key: " SECRET "!", "no such key: **************!");
    expect_hidden(&api_key, SECRET, "cut: sk_never_s", "cut: **********");
    expect_hidden(&bare, "key_123456789012", "its digits went: key_************", "its digits went: ****************");
    expect_hidden(&basic, "user:pass-word", "dXNlcjpwYXNzLXdvcmQ= is user:pass-word, pass-word",
                  "******************** is **************, *********");
    expect_hidden(&bare, SECRET, "sk_ne", "sk_ne");
    credential_hide(NULL, (char[]){"nothing"});
}

TESTS_BETWEEN(credential, set_up, tear_down)
