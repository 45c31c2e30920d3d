/* The story: an API of somebody else wants its key in a header of its own name. The file is taken as a whole or not at
 * all, nothing in it can change what the worker says of the event, and no value gets out. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/route/route.h"
#include "tests/support/suite.h"

static char path[64];
static struct header_file *headers;
static struct err err;

static void set_up(void)
{
    snprintf(path, sizeof(path), "/tmp/test_header_file.%ld", (long)getpid());
    err = (struct err){0};
    headers = NULL;
}

static void tear_down(void)
{
    header_file_free(headers);
    (void)unlink(path);
}

static bool load(const char *text, bool has_credential)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
    return header_file_load(path, has_credential, &headers, &err);
}

TEST(each_line_is_a_header_of_the_call)
{
    struct http_call call;
    ck_assert_msg(load("X-Api-Key: s3cr3t-key \r\n\nAuthorization:Basic dTpw\n", false), "%s", err.message);
    http_call_init(&call, HTTP_CALL_TEXT_MAX);
    http_call_make(&call, "POST", "https://a/");
    header_file_put(headers, &call);
    const char *line = http_call_next_line(&call, call.lines.bytes);
    ck_assert_str_eq(line, "X-Api-Key: s3cr3t-key");
    line = http_call_next_line(&call, line);
    ck_assert_str_eq(line, "Authorization: Basic dTpw");
    ck_assert_ptr_null(http_call_next_line(&call, line));
    http_call_done(&call);
}

TEST(no_value_gets_out)
{
    char text[] = "the key s3cr3t-key is wrong";
    ck_assert(load("X-Api-Key: s3cr3t-key\nX-Version: 1", false));
    ck_assert(header_file_has_value_in(headers, (struct slice){.bytes = text, .length = strlen(text)}));
    route_headers_hide(headers, text);
    ck_assert_str_eq(text, "the key ********** is wrong");
    ck_assert(!header_file_has_value_in(headers, (struct slice){.bytes = "a 1", .length = 3})); /* names nobody */
    header_file_put(NULL, NULL);
    route_headers_hide(NULL, text);
    ck_assert(!header_file_has_value_in(NULL, (struct slice){.bytes = text, .length = strlen(text)}));
}

static const struct {
    const char *text, *why;
} bad[] = {
    {"X-Api-Key s3cr3t-key\n", "line 1 is not"},
    {"X: 1\n: s3cr3t-key\n", "line 2 is not"},
    {"X-Empty: \n", "line 1 is not"},
    {"X Y: s3cr3t-key\n", "line 1 is not"},
    {"X: s3cr3t-key\001\n", "line 1 is not"},
    {"X: s3cr3t-key\r\rEvil: 1\n", "line 1 is not"},
    {"\nhost: s3cr3t-key\n", "line 2: host is set by the program itself"},
    {"Content-Length: 1\n", "is set by the program itself"},
    {"IDEMPOTENCY-KEY: s3cr3t-key\n", "is set by the program itself"},
    {"Webhook-Signature: s3cr3t-key\n", "is set by the program itself"},
    {"ce-type: s3cr3t-key\n", "is set by the program itself"},
    {"Authorization: s3cr3t-key\n", "is set by the program itself"},
    {"A: 1\nA: 1\nA: 1\nA: 1\nA: 1\nA: 1\nA: 1\nA: 1\nA: 1\nA: 1\nA: 1\nA: 1\nA: 1\nA: 1\nA: 1\nA: 1\nA: 1\n",
     "more than 16"},
};

START_TEST(a_file_that_is_not_wholly_right_is_refused_with_its_line)
{
    ck_assert(!load(bad[_i].text, true));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_msg(strstr(err.message, bad[_i].why), "%s", err.message);
    ck_assert_ptr_null(strstr(err.message, "s3cr3t"));
    ck_assert_ptr_null(headers);
}

SUITE(header_file)
{
    TCase *tcase = tcase_create("header_file");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, a_file_that_is_not_wholly_right_is_refused_with_its_line, 0, ARRAY_SIZE(bad));
    suite_add_tcase(suite, tcase);
}
