/* The story: somebody configures a route, asks whether it works, and gets an answer to act on before the first event
 * waits. It says what that answer would make of an event, where the wrong setting is, and holds no secret. */
#include "worker/route/route_findings.h"

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/lib/json/json_strict.h"
#include "tests/support/suite.h"

#define SECRET "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

static char url[] = "https://hooks.example/mail?code=in-the-query", secret_file[] = "/etc/hooks.secret";
static char credential_file[] = "/etc/hooks.credential";
static struct config_route config;
static struct route route;
static struct http_call call;
static struct findings findings;

static void sign(void)
{
    char path[64];
    struct err err = {0};
    snprintf(path, sizeof(path), "/tmp/test_route_findings.%ld", (long)getpid());
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs("whsec_" SECRET, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert_msg(route_signer_load(path, &route.signer, &err), "%s", err.message);
    ck_assert_int_eq(unlink(path), 0);
    config.sign_secret_file = secret_file;
    config.on_refused = ON_REFUSED_QUESTION;
}

static void set_up(void)
{
    config = (struct config_route){.type = "MAIL", .url = url, .credential_file = credential_file};
    route = (struct route){.config = &config};
    route.peer.url = url;
    peer_origin(url, route.peer.origin);
    http_call_init(&call, 64 * 1024);
    findings_init(&findings);
}

static void tear_down(void)
{
    http_call_done(&call);
    findings_done(&findings);
    route_signer_free(route.signer);
}

static const char *said(void)
{
    ck_assert(findings_end(&findings));
    ck_assert_msg(json_strict_check(findings.text.bytes, findings.text.length, NULL), "%s", findings.text.bytes);
    ck_assert_msg(!strstr(findings.text.bytes, "in-the-query"), "%s", findings.text.bytes);
    return findings.text.bytes;
}

static const char *answer(int status, const char *text)
{
    call.result = HTTP_ANSWERED;
    call.status = status;
    call.retry_after_ms = -1;
    buf_reset(&call.answer);
    ck_assert(buf_put_text(&call.answer, text));
    route_findings_begin(&findings, &route, "host:17");
    route_findings_add_answer(&findings, &route, &call, NULL);
    return said();
}

static void expect(const char *text, const char *words)
{
    ck_assert_msg(strstr(text, words), "no %s in %s", words, text);
}

TEST(a_receiver_that_takes_it_is_right_and_what_was_not_seen_is_said)
{
    const char *text = answer(204, "");
    expect(text, "MAIL to https://hooks.example:443, not signed. Sent by worker host:17");
    expect(text, "\"check\":\"receiver\",\"level\":\"ok\"");
    expect(text, "an event would be COMPLETED");
    expect(text, "\"check\":\"not checked\",\"level\":\"note\"");
    ck_assert(!findings.has_failure);
}

TEST(each_answer_says_what_an_event_would_be)
{
    static const struct {
        int status;
        const char *words;
        bool is_failure;
    } rows[] = {
        {400, "an event would be REJECTED", false},
        {422, "an event would be REJECTED", false},
        {429, "an event would wait", false},
        {409, "an event would wait", false},
        {404, "route.MAIL.url must be the final address", true},
        {301, "route.MAIL.url must be the final address", true},
        {401, "route.MAIL.credential_file (/etc/hooks.credential; then SIGHUP", true},
        {410, "the route would be paused", true},
        {418, "an event would be FAILED", true},
        {503, "sent again with the same key", true},
        {408, "sent again with the same key", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        expect(answer(rows[i].status, "{}"), rows[i].words);
        ck_assert_msg(findings.has_failure == rows[i].is_failure, "%d", rows[i].status);
    }
}

TEST(a_refused_signature_names_the_secret_and_the_clocks)
{
    sign();
    for (int status = 400; status <= 401; status++) {
        const char *text = answer(status, "{\"code\": \"bad_signature\"}");
        expect(text, "route.MAIL.sign_secret_file (/etc/hooks.secret; then SIGHUP");
        expect(text, "do both clocks agree");
        expect(text, status == 400 ? "an event would be FAILED, a question" : "the breaker open");
    }
}

TEST(no_finding_has_a_secret_that_the_receiver_repeats)
{
    sign();
    const char *text = answer(400, "{\"detail\": \"your secret is " SECRET "\"}");
    expect(text, "your secret is *");
    ck_assert_ptr_null(strstr(text, SECRET));
}

TEST(a_receiver_that_is_not_there_is_named_by_its_origin_only)
{
    call.result = HTTP_NOT_SENT;
    snprintf(call.error, sizeof(call.error), "Could not resolve host");
    route_findings_begin(&findings, &route, "host:17");
    route_findings_add_answer(&findings, &route, &call, NULL);
    const char *text = said();
    expect(text, "correct the host in route.MAIL.url");
    expect(text, "https://hooks.example:443: Could not resolve host");
    ck_assert(findings.has_failure);
}

TESTS_BETWEEN(route_findings, set_up, tear_down)
