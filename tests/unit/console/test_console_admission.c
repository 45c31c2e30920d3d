/* The story: the console may do what its operator may do. A page of another origin, a name that resolves to 127.0.0.1,
 * another program on this machine, or a guess must not get in. */
#include <check.h>
#include <stdio.h>

#include "ctl/console/admission.h"
#include "tests/support/suite.h"

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

TEST(only_the_loopback_is_the_loopback)
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

/* Any page of another port of 127.0.0.1 took the session: cookies know no port. */
TEST(the_host_is_a_name_of_its_own_and_its_port)
{
    char host[160];
    const char *own = admission.host;
    ck_assert_uint_eq(strspn(own, "0123456789abcdef"), 32);
    ck_assert_str_eq(own + 32, ".localhost");
    static const struct {
        const char *format;
        bool is_ours;
    } rows[] = {{"%s:8095", true},    {"%s", false},        {"%s:809", false},       {"%s:80955", false},
                {"%s:08095", false},  {"%s:", false},       {"%s.:8095", false},     {"%s.example:8095", false},
                {"x%s:8095", false},  {"x.%s:8095", false}, {"%s:8095:8095", false}, {" %s:8095", false},
                {"[%s]:8095", false}, {"%s:+8095", false},  {"x@%s:8095", false}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        snprintf(host, sizeof(host), rows[i].format, own);
        ck_assert_msg(is_host(host) == rows[i].is_ours, "%s", host);
    }
    snprintf(host, sizeof(host), "%.32s.LocalHost:8095", own);
    ck_assert(is_host(host));
    static const char *const others[] = {"127.0.0.1:8095",
                                         "localhost:8095",
                                         "[::1]:8095",
                                         ".localhost:8095",
                                         "",
                                         ":8095",
                                         "8095",
                                         "evil.example:8095",
                                         "00000000000000000000000000000000.localhost:8095"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        ck_assert_msg(!is_host(others[i]), "%s", others[i]);
    ck_assert(admission_init(&admission, "127.0.0.1:80", 80, &err));
    ck_assert(is_host(admission.host) && !is_host("127.0.0.1") && !is_host("evil.example"));
}

TEST(behind_a_socket_of_the_file_system_any_port_leads_to_it)
{
    char host[160];
    ck_assert(admission_init(&admission, NULL, 0, &err));
    static const char *const ours[] = {"%s", "%s:1", "%s:8095", "%s:65535"};
    static const char *const others[] = {"%s:", "%s:x", "%s:80 95", "localhost:8095", "127.0.0.1", "%s.example", ":80"};
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
        snprintf(host, sizeof(host), ours[i], admission.host);
        ck_assert_msg(is_host(host), "%s", host);
    }
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        snprintf(host, sizeof(host), others[i], admission.host);
        ck_assert_msg(!is_host(host), "%s", host);
    }
}

TEST(a_console_that_is_exposed_has_its_address_as_host)
{
    ck_assert(admission_init(&admission, "10.0.0.1:8095", 8095, &err));
    ck_assert(is_host("10.0.0.1:8095") && !is_host("10.0.0.2:8095") && !is_host("localhost:8095"));
    ck_assert(admission_init(&admission, "0.0.0.0:8095", 8095, &err));
    ck_assert(is_host("10.0.0.1:8095") && is_host("[2001:db8::1]:8095")); /* no name can be rebound to an address */
    ck_assert(!is_host("evil.example:8095") && !is_host("10.0.0.1:80") && !is_host("localhost:8095"));
}

/* ---- tokens and sessions ---- */

static char text[200];

static bool has_token(const char *token, int64_t now_ms)
{
    snprintf(text, sizeof(text), "token=%s", token);
    request.query = (struct slice){text, strlen(text)};
    return admission_has_token(&admission, &request, now_ms);
}

static struct session *begin(struct session *old, int64_t now_ms)
{
    struct session *session = NULL;
    ck_assert(admission_new_token(&admission, now_ms, &err));
    ck_assert(admission_begin(&admission, old, now_ms, &session, &err));
    return session;
}

static struct session *session_of(const char *format, const char *cookie, int64_t now_ms)
{
    snprintf(text, sizeof(text), format, cookie);
    request.header_count = 0;
    add("Cookie", text);
    return admission_session(&admission, &request, now_ms);
}

#define COOKIE "issuing_console_8095=%s"

TEST(a_token_is_good_once_for_two_minutes_and_only_the_newest)
{
    char first[ADMISSION_TEXT_SIZE];
    struct session *session;
    ck_assert(!has_token("", 0) && !has_token("0", 0)); /* there is none */
    ck_assert(admission_new_token(&admission, 1000, &err));
    ck_assert_uint_eq(strlen(admission.token), 2 * ADMISSION_BYTES);
    strcpy(first, admission.token);
    ck_assert(has_token(first, 1000) && has_token(first, 120999) && !has_token(first, 121000));
    snprintf(text, sizeof(text), "token=%s", first);
    request.query = (struct slice){text, strlen(text) - 1};
    ck_assert(!admission_has_token(&admission, &request, 1000));
    ck_assert(admission_new_token(&admission, 2000, &err));
    ck_assert_str_ne(first, admission.token);
    ck_assert(!has_token(first, 2000));
    strcpy(first, admission.token);
    ck_assert(has_token(first, 2000));
    ck_assert(admission_begin(&admission, NULL, 2000, &session, &err));
    ck_assert(!has_token(first, 2000) && !has_token("", 2000)); /* used, and nothing in its place */
}

TEST(each_browser_has_a_session_of_its_own)
{
    struct session *one = begin(NULL, 0), *two = begin(NULL, 0);
    ck_assert_ptr_ne(one, two);
    ck_assert_str_ne(one->cookie, two->cookie);
    ck_assert_str_ne(one->form_secret, two->form_secret);
    ck_assert_str_ne(one->cookie, one->form_secret);
    ck_assert(admission_has_form_secret(one, one->form_secret) && !admission_has_form_secret(one, two->form_secret));
    ck_assert(!admission_has_form_secret(one, NULL) && !admission_has_form_secret(one, "") &&
              !admission_has_form_secret(one, one->cookie));
    ck_assert_ptr_eq(session_of(COOKIE, two->cookie, 0), two);
    char cookie[ADMISSION_TEXT_SIZE];
    strcpy(cookie, one->cookie);
    admission_end(one);
    ck_assert(!session_of(COOKIE, cookie, 0) && !session_of(COOKIE, "", 0));
    ck_assert(!admission_has_form_secret(one, ""));
    ck_assert_ptr_eq(session_of(COOKIE, two->cookie, 0), two); /* the other one goes on */
    strcpy(cookie, two->cookie);
    ck_assert_ptr_eq(begin(two, 5), two); /* the same browser again */
    ck_assert(!session_of(COOKIE, cookie, 5));
}

TEST(a_session_ends_when_it_is_idle_or_old)
{
    struct session *session = begin(NULL, 0);
    char cookie[ADMISSION_TEXT_SIZE];
    strcpy(cookie, session->cookie);
    ck_assert_ptr_eq(session_of(COOKIE, cookie, ADMISSION_IDLE_MS - 1), session);
    ck_assert_ptr_null(session_of(COOKIE, cookie, ADMISSION_IDLE_MS));
    ck_assert_str_eq(session->cookie, ""); /* wiped, and it stays over */
    ck_assert_ptr_null(session_of(COOKIE, cookie, 1));
    session = begin(NULL, 0);
    strcpy(cookie, session->cookie);
    for (int64_t now_ms = 0; now_ms < ADMISSION_LONGEST_MS; now_ms += ADMISSION_IDLE_MS / 2) {
        ck_assert_ptr_eq(session_of(COOKIE, cookie, now_ms), session);
        session->used_ms = now_ms;
    }
    ck_assert_ptr_null(session_of(COOKIE, cookie, ADMISSION_LONGEST_MS));
}

TEST(of_too_many_sessions_the_one_that_is_idle_longest_ends)
{
    struct session *sessions[ADMISSION_SESSIONS];
    char cookie[ADMISSION_TEXT_SIZE];
    for (int i = 0; i < ADMISSION_SESSIONS; i++)
        sessions[i] = begin(NULL, 100 + i);
    sessions[0]->used_ms = 500;
    strcpy(cookie, sessions[1]->cookie);
    ck_assert_ptr_eq(begin(NULL, 600), sessions[1]);
    ck_assert_ptr_null(session_of(COOKIE, cookie, 600));
    ck_assert_ptr_eq(session_of(COOKIE, sessions[0]->cookie, 600), sessions[0]);
}

TEST(the_cookie_is_found_among_others)
{
    static const struct {
        const char *format;
        bool is_it;
    } rows[] = {{"issuing_console_8095=%s", true},
                {"a=b; issuing_console_8095=%s; c=d", true},
                {"issuing_console_8095=0; issuing_console_8095=%s", true},
                {"issuing_console_8095=%s; issuing_console_8095=0", true},
                {"issuing_console_8095=%s0", false},
                {"issuing_console_8096=%s", false},
                {"xissuing_console_8095=%s", false},
                {"issuing_console_8095%s", false},
                {"issuing_console_8095=", false},
                {"", false}};
    const struct session *session = begin(NULL, 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        ck_assert_msg((session_of(rows[i].format, session->cookie, 0) == session) == rows[i].is_it, "%s",
                      rows[i].format);
    request.header_count = 0;
    ck_assert_ptr_null(admission_session(&admission, &request, 0));
}

TEST(a_post_comes_from_a_page_of_this_host)
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

TESTS_BETWEEN(console_admission, set_up, NULL)
