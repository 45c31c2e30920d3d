/* The story: the console may do what its operator may do. A page of another origin, a name that resolves to 127.0.0.1,
 * another program on this machine, or a guess must not get in. */
#include <check.h>
#include <stdio.h>

#include "ctl/console/admission.h"
#include "tests/unit/suite.h"

static struct admission admission;
static struct http_request request;
static struct err err;

static void set_up(void)
{
    request = (struct http_request){.method = HTTP_GET};
    ck_assert(admission_init(&admission, "127.0.0.1:8095", 8095, &err));
}

static void add(const char *name, const char *value)
{
    request.headers[request.header_count].name = (struct slice){name, strlen(name)};
    request.headers[request.header_count++].value = (struct slice){value, strlen(value)};
}

static bool is_host(const char *host)
{
    return admission_is_our_host(&admission, (struct slice){host, strlen(host)});
}

START_TEST(only_the_loopback_is_the_loopback)
{
    static const char *const near[] = {"127.0.0.1:8095", "127.8.8.8:0", "localhost:80", "LOCALHOST:1", "[::1]:8095"};
    static const char *const far[] = {
        "0.0.0.0:1",           "*:1", "[::]:1", "10.0.0.1:1",          "127.0.0.1",  "127.0.0.1.example:1",
        "localhost.example:1", "",    ":1",     "[::ffff:10.0.0.1]:1", "128.0.0.1:1"};
    for (size_t i = 0; i < ARRAY_SIZE(near); i++)
        ck_assert_msg(admission_is_loopback(near[i]), "%s", near[i]);
    for (size_t i = 0; i < ARRAY_SIZE(far); i++)
        ck_assert_msg(!admission_is_loopback(far[i]), "%s", far[i]);
}
END_TEST

START_TEST(a_host_is_ours_by_its_name_and_its_port)
{
    static const char *const ours[] = {"127.0.0.1:8095", "localhost:8095", "LocalHost:8095", "[::1]:8095"};
    static const char *const others[] = {"127.0.0.1",
                                         "127.0.0.1:809",
                                         "127.0.0.1:80955",
                                         "127.0.0.1:08095",
                                         "127.0.0.1:",
                                         "evil.example:8095",
                                         "127.0.0.1.evil.example:8095",
                                         "evil.127.0.0.1:8095",
                                         "[::1]",
                                         "::1:8095",
                                         "10.0.0.1:8095",
                                         "0.0.0.0:8095",
                                         "",
                                         ":8095",
                                         "8095",
                                         "127.0.0.1:8095:8095",
                                         " 127.0.0.1:8095"};
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        ck_assert_msg(is_host(ours[i]), "%s", ours[i]);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        ck_assert_msg(!is_host(others[i]), "%s", others[i]);
    ck_assert(admission_init(&admission, "0.0.0.0:8095", 8095, &err));
    ck_assert(is_host("10.0.0.1:8095") && is_host("[2001:db8::1]:8095")); /* no name can be rebound to an address */
    ck_assert(!is_host("evil.example:8095") && !is_host("10.0.0.1:80"));
    ck_assert(admission_init(&admission, "127.0.0.1:80", 80, &err));
    ck_assert(is_host("127.0.0.1") && is_host("localhost:80") && !is_host("evil.example"));
}
END_TEST

START_TEST(secrets_are_random_and_whole)
{
    struct admission other;
    char query[100];
    ck_assert(admission_init(&other, "127.0.0.1:8095", 8095, &err));
    ck_assert_uint_eq(strlen(admission.token), 2 * ADMISSION_BYTES);
    ck_assert_str_ne(admission.token, other.token);
    ck_assert_str_ne(admission.token, admission.cookie);
    ck_assert_str_ne(admission.cookie, admission.form_secret);
    const char *tokens[] = {admission.token, other.token, "", "0"};
    for (size_t i = 0; i < ARRAY_SIZE(tokens); i++) {
        snprintf(query, sizeof(query), "token=%s", tokens[i]);
        request.query = (struct slice){query, strlen(query)};
        ck_assert_int_eq(admission_has_token(&admission, &request), i == 0);
    }
    snprintf(query, sizeof(query), "token=%s", admission.token);
    ck_assert(admission_next_token(&admission, &err));
    ck_assert(!admission_has_token(&admission, &request));
    request.query = (struct slice){query, strlen(query) - 1};
    ck_assert(!admission_has_token(&admission, &request));
    ck_assert(admission_has_form_secret(&admission, admission.form_secret));
    ck_assert(!admission_has_form_secret(&admission, NULL) && !admission_has_form_secret(&admission, "") &&
              !admission_has_form_secret(&admission, admission.cookie));
}
END_TEST

START_TEST(the_cookie_is_found_among_others)
{
    static const struct {
        const char *format;
        bool is_it;
    } rows[] = {{"issuing_console_8095=%s", true},
                {"a=b; issuing_console_8095=%s; c=d", true},
                {"issuing_console_8095=0; issuing_console_8095=%s", true},
                {"issuing_console_8095=%s0", false},
                {"issuing_console_8096=%s", false},
                {"xissuing_console_8095=%s", false},
                {"issuing_console_8095%s", false},
                {"issuing_console_8095=", false},
                {"", false}};
    char value[200];
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        snprintf(value, sizeof(value), rows[i].format, admission.cookie);
        request.header_count = 0;
        add("Cookie", value);
        ck_assert_msg(admission_has_cookie(&admission, &request) == rows[i].is_it, "%s", rows[i].format);
    }
    request.header_count = 0;
    ck_assert(!admission_has_cookie(&admission, &request));
}
END_TEST

START_TEST(a_post_comes_from_a_page_of_this_host)
{
    static const struct {
        const char *origin, *site, *type;
        bool is_taken;
    } rows[] = {
        {NULL, NULL, "application/x-www-form-urlencoded", true}, /* no browser: then the secrets decide */
        {"http://127.0.0.1:8095", "same-origin", "application/x-www-form-urlencoded;charset=UTF-8", true},
        {"null", "same-origin", "application/x-www-form-urlencoded", true},
        {"null", NULL, "application/x-www-form-urlencoded", false},
        {"http://localhost:8095", NULL, "application/x-www-form-urlencoded", false},
        {"http://127.0.0.1:80955", NULL, "application/x-www-form-urlencoded", false},
        {"https://127.0.0.1:8095", NULL, "application/x-www-form-urlencoded", false},
        {"http://evil.example", "same-origin", "application/x-www-form-urlencoded", false},
        {"", NULL, "application/x-www-form-urlencoded", false},
        {NULL, "cross-site", "application/x-www-form-urlencoded", false},
        {NULL, "same-site", "application/x-www-form-urlencoded", false},
        {NULL, "none", "application/x-www-form-urlencoded", false},
        {NULL, NULL, "text/plain", false},
        {NULL, NULL, "multipart/form-data; boundary=x", false},
        {NULL, NULL, NULL, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        request.header_count = 0;
        add("Host", "127.0.0.1:8095");
        if (rows[i].origin)
            add("Origin", rows[i].origin);
        if (rows[i].site)
            add("Sec-Fetch-Site", rows[i].site);
        if (rows[i].type)
            add("Content-Type", rows[i].type);
        ck_assert_msg(!admission_judge_post(&request) == rows[i].is_taken, "row %zu", i);
    }
    add("Content-Type", "application/x-www-form-urlencoded");
    add("Origin", "http://127.0.0.1:8095");
    add("Origin", "http://127.0.0.1:8095");
    ck_assert_ptr_nonnull(admission_judge_post(&request)); /* two of them */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("console_admission");
    TCase *admitting = tcase_create("admission");
    tcase_add_checked_fixture(admitting, set_up, NULL);
    tcase_add_test(admitting, only_the_loopback_is_the_loopback);
    tcase_add_test(admitting, a_host_is_ours_by_its_name_and_its_port);
    tcase_add_test(admitting, secrets_are_random_and_whole);
    tcase_add_test(admitting, the_cookie_is_found_among_others);
    tcase_add_test(admitting, a_post_comes_from_a_page_of_this_host);
    suite_add_tcase(suite, admitting);
    return suite_run(suite);
}
