/* The story: a platform sets OpenTelemetry's variables for all its programs, and this one obeys them as every other
 * does; an option of ours counts more. A variable that cannot be used stops the start and is named, without its
 * value. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/trace_settings.h"
#include "tests/support/suite.h"

static struct config config;
static struct trace_settings settings;
static struct err err;
static struct http_call call;
static char path[64];

static void setup(void)
{
    static const char *const names[] = {"OTEL_SDK_DISABLED",          "OTEL_EXPORTER_OTLP_ENDPOINT",
                                        "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                                        "OTEL_SERVICE_NAME",          "OTEL_RESOURCE_ATTRIBUTES"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        unsetenv(names[i]);
    snprintf(path, sizeof(path), "/tmp/test_trace_settings.%ld", (long)getpid());
    config = (struct config){0};
    settings = (struct trace_settings){0};
    err = (struct err){0};
    http_call_init(&call, 0);
}

static void teardown(void)
{
    trace_settings_done(&settings);
    http_call_done(&call);
    unlink(path);
}

static bool read_settings(void)
{
    return trace_settings_read(&config, "issuing-api", &settings, &err);
}

static void check_headers(const char *expected)
{
    http_call_make(&call, "POST", "u");
    header_file_put(settings.headers, &call);
    ck_assert(http_call_is_made(&call));
    for (size_t i = 0; i < call.lines.length; i++)
        if (!call.lines.bytes[i])
            call.lines.bytes[i] = '|';
    ck_assert_str_eq(call.lines.bytes, expected);
}

static void check_refused(const char *why)
{
    ck_assert(!read_settings());
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_msg(strstr(err.message, why), "%s", err.message);
    ck_assert_ptr_null(strstr(err.message, "s3cr3t"));
    ck_assert_ptr_null(settings.url);
}

TEST(without_an_endpoint_nobody_wants_spans)
{
    setenv("OTEL_EXPORTER_OTLP_HEADERS", "no list", 1);
    setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "", 1); /* as if it were unset */
    ck_assert(read_settings());
    ck_assert_ptr_null(settings.url);
}

static const struct {
    const char *option, *traces, *all, *url;
} endpoints[] = {
    {NULL, NULL, "http://collector:4318", "http://collector:4318/v1/traces"},
    {NULL, NULL, "http://collector:4318/", "http://collector:4318/v1/traces"},
    {NULL, NULL, "https://otlp.example/otlp", "https://otlp.example/otlp/v1/traces"},
    {NULL, "http://collector:4318/in/", "http://other", "http://collector:4318/in/"}, /* as it is */
    {NULL, "http://collector:4318", NULL, "http://collector:4318/"},
    {"https://own.example", "http://collector/x", "http://other", "https://own.example/v1/traces"},
};

START_TEST(the_endpoint_of_an_option_counts_most_then_that_of_traces)
{
    config.trace.endpoint = (char *)(uintptr_t)endpoints[_i].option;
    if (endpoints[_i].traces)
        setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoints[_i].traces, 1);
    if (endpoints[_i].all)
        setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoints[_i].all, 1);
    ck_assert(read_settings());
    ck_assert_str_eq(settings.url, endpoints[_i].url);
}

TEST(a_disabled_sdk_sends_nothing)
{
    config.trace.endpoint = (char *)(uintptr_t) "http://collector:4318";
    setenv("OTEL_SDK_DISABLED", "no", 1); /* anything but true is false */
    ck_assert(read_settings());
    ck_assert_ptr_nonnull(settings.url);
    trace_settings_done(&settings);
    setenv("OTEL_SDK_DISABLED", "TRUE", 1);
    ck_assert(read_settings());
    ck_assert_ptr_null(settings.url);
}

TEST(an_endpoint_that_is_none_is_named)
{
    setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", 1);
    check_refused("OTEL_EXPORTER_OTLP_ENDPOINT: a URL must begin with");
    setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://user:s3cr3t@collector", 1);
    check_refused("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: a URL with credentials");
}

TEST(headers_are_percent_decoded)
{
    setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318", 1);
    setenv("OTEL_EXPORTER_OTLP_HEADERS", " x-key = a%20b%2C=c ,, Authorization=Basic%20eDp5,", 1);
    ck_assert(read_settings());
    check_headers("u|x-key: a b,=c|Authorization: Basic eDp5");
}

static const char *const bad_headers[] = {"s3cr3t",  "x=s3cr3t%", "x=s3cr3t%2",  "x=s3cr3t%zz", "x=s3cr3t%0d%0aHost: a",
                                          "=s3cr3t", "x=a,y",     "host=s3cr3t", "a b=s3cr3t",  "x=s3cr3t%ff"};

START_TEST(headers_that_are_none_are_refused)
{
    setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318", 1);
    setenv("OTEL_EXPORTER_OTLP_HEADERS", bad_headers[_i], 1);
    check_refused("OTEL_EXPORTER_OTLP_HEADERS: ");
}

TEST(the_file_of_headers_counts_more)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("DD-API-KEY: s3cr3t\nx-scope-orgid: 7\n", file);
    fclose(file);
    chmod(path, 0600);
    config.trace.endpoint = (char *)(uintptr_t) "http://collector:4318";
    config.trace.headers_file = path;
    setenv("OTEL_EXPORTER_OTLP_HEADERS", "s3cr3t", 1);
    ck_assert(read_settings());
    check_headers("u|DD-API-KEY: s3cr3t|x-scope-orgid: 7");
    trace_settings_done(&settings);
    file = fopen(path, "a");
    ck_assert_ptr_nonnull(file);
    fputs("s3cr3t\n", file);
    fclose(file);
    check_refused("trace.headers_file: /tmp/test_trace_settings");
    ck_assert(strstr(err.message, "line 3 is not \"Name: value\""));
}

#define TEXT(key, value) "{\"key\":\"" key "\",\"value\":{\"stringValue\":\"" value "\"}}"
#define NAMED(name) TEXT("service.name", name)

static const struct {
    const char *name, *attributes, *resource; /* its beginning */
} resources[] = {
    {NULL, NULL, NAMED("issuing-api") ",{\"key\":\"service.instance.id\","},
    {"cards", NULL, NAMED("cards")},
    {NULL, "service.name=a%20b,deployment.environment.name=prod",
     TEXT("deployment.environment.name", "prod") "," NAMED("a b") ",{"},
    {"cards", "service.name=other,%22=%22%5c", TEXT("\\\"", "\\\"\\\\") "," NAMED("cards")},
    {NULL, "service.instance.id=7", TEXT("service.instance.id", "7") "," NAMED("issuing-api")},
    {NULL, "service.name=other,x=y,broken", NAMED("issuing-api") ",{"}, /* discarded as a whole */
    {NULL, "x=y,service.name=other,a=%4", NAMED("issuing-api") ",{"},
    {NULL, "x=y,=z", NAMED("issuing-api") ",{"},
};

START_TEST(the_resource_is_named_as_the_specification_says)
{
    setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318", 1);
    if (resources[_i].name)
        setenv("OTEL_SERVICE_NAME", resources[_i].name, 1);
    if (resources[_i].attributes)
        setenv("OTEL_RESOURCE_ATTRIBUTES", resources[_i].attributes, 1);
    ck_assert(read_settings());
    const char *text = settings.resource.bytes, *expected = resources[_i].resource;
    ck_assert_msg(strncmp(text, expected, strlen(expected)) == 0, "%s", text);
    ck_assert_ptr_null(strstr(strstr(text, "\"service.instance.id\"") + 1, "\"service.instance.id\"")); /* once */
}

SUITE(trace_settings)
{
    TCase *tcase = tcase_create("trace_settings");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, the_endpoint_of_an_option_counts_most_then_that_of_traces, 0, ARRAY_SIZE(endpoints));
    tcase_add_loop_test(tcase, headers_that_are_none_are_refused, 0, ARRAY_SIZE(bad_headers));
    tcase_add_loop_test(tcase, the_resource_is_named_as_the_specification_says, 0, ARRAY_SIZE(resources));
    suite_add_tcase(suite, tcase);
}
