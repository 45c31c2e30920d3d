/* The story: an alert on an increase does not see the first event of a kind unless the counter was there as zero
 * before. And whatever words a peer sends, the number of series stays bounded. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/suite.h"
#include "worker/base/worker_metrics.h"

static struct metrics *metrics;
static struct worker_series series;
static struct buf page;

static void start(void)
{
    metrics = worker_metrics_new();
    ck_assert_ptr_nonnull(metrics);
    worker_series_open(&series, metrics);
    buf_init(&page, 1 << 20);
}

static void stop(void)
{
    metrics_free(metrics);
    buf_done(&page);
}

static bool shows(const char *line)
{
    char whole[256];
    buf_reset(&page);
    metrics_render(metrics, &page);
    snprintf(whole, sizeof(whole), "\n%s\n", line);
    return strstr(page.bytes, whole) != NULL;
}

static size_t lines(void)
{
    size_t count = 0;
    buf_reset(&page);
    metrics_render(metrics, &page);
    for (size_t i = 0; i < page.length; i++)
        count += page.bytes[i] == '\n';
    return count;
}

TEST(counters_of_every_known_reason_are_zero_at_the_start)
{
    static const char *const wanted[] = {
        "issuing_events_ended_total{type=\"CARD_ISSUE\",status=\"COMPLETED\",reason=\"\"} 0",
        "issuing_events_ended_total{type=\"CARD_ISSUE\",status=\"FAILED\",reason=\"issuer_key_expired\"} 0",
        "issuing_events_ended_total{type=\"CARD_ISSUE\",status=\"FAILED\",reason=\"issuer_http_4xx\"} 0",
        "issuing_events_ended_total{type=\"CARD_ISSUE\",status=\"REJECTED\",reason=\"other\"} 0",
        "issuing_deferrals_total{reason=\"issuer_http_401\"} 0",
        "issuing_deferrals_total{reason=\"breaker_open\"} 0",
        "issuing_retries_total{reason=\"issuer_no_answer\"} 0",
        "issuing_retries_total{reason=\"other\"} 0",
        "issuing_breaker_transitions_total{target=\"core\",state=\"open\"} 0",
        "issuing_checks_total{result=\"duplicate\"} 0",
        "issuing_attempts_total{outcome=\"failed\"} 0",
        "issuing_lease_lost_total 0",
        "issuing_request_seconds_count 0",
    };
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        ck_assert_msg(shows(wanted[i]), "no %s", wanted[i]);
}

TEST(a_reason_has_a_bounded_label)
{
    static const struct {
        const char *code, *label;
    } cases[] = {
        {"issuer_key_expired", "issuer_key_expired"},
        {"write_failed", "write_failed"},
        {"issuer_http_503", "issuer_http_503"},
        {"core_http_401", "core_http_401"},
        {"issuer_http_418", "issuer_http_4xx"},
        {"core_http_507", "core_http_5xx"},
        {"issuer_http_302", "issuer_http_3xx"},
        {"issuer_http_99", "other"},
        {"issuer_http_4180", "other"},
        {"issuer_http_999", "other"},
        {"mallory_http_418", "other"},
        {"_http_418", "other"},
        {"a_very_long_word_that_a_peer_may_send_in_its_answer_http_418", "other"},
        {"insufficient_funds", "other"},
        {"", "other"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        ck_assert_str_eq(worker_metrics_reason(cases[i].code), cases[i].label);
}

TEST(words_of_a_peer_make_no_series)
{
    size_t before = lines();
    for (int i = 0; i < 1000; i++) {
        char code[32];
        snprintf(code, sizeof(code), "word_%d", i);
        worker_series_count_end(&series, OUTBOX_EVENT_TYPE, OUTBOX_REJECTED, code, -1);
        worker_metrics_count(metrics, WORKER_METRIC_RETRIES, worker_metrics_reason(code), NULL);
    }
    ck_assert_uint_eq(lines(), before);
    ck_assert(shows("issuing_events_ended_total{type=\"CARD_ISSUE\",status=\"REJECTED\",reason=\"other\"} 1000"));
    ck_assert(shows("issuing_retries_total{reason=\"other\"} 1000"));
    ck_assert(shows("issuing_request_seconds_count 0"));
}

TEST(an_end_counts_its_time_since_the_acceptance)
{
    worker_series_count_end(&series, OUTBOX_EVENT_TYPE, OUTBOX_COMPLETED, "", 40);
    worker_series_count_end(&series, OUTBOX_EVENT_TYPE, OUTBOX_FAILED, "issuer_http_418", 90000);
    ck_assert(shows("issuing_events_ended_total{type=\"CARD_ISSUE\",status=\"COMPLETED\",reason=\"\"} 1"));
    ck_assert(shows("issuing_events_ended_total{type=\"CARD_ISSUE\",status=\"FAILED\",reason=\"issuer_http_4xx\"} 1"));
    ck_assert(shows("issuing_request_seconds_bucket{le=\"0.05\"} 1"));
    ck_assert(shows("issuing_request_seconds_bucket{le=\"60\"} 1"));
    ck_assert(shows("issuing_request_seconds_bucket{le=\"300\"} 2"));
}

TEST(calls_are_counted_by_code_and_the_codes_are_bounded)
{
    struct call_series calls = {0};
    struct http_call call = {.result = HTTP_ANSWERED, .took_us = 2000};
    for (int status = -5; status < 1100; status++) {
        call.status = status;
        call_series_count(&calls, metrics, "issuer", &call);
    }
    call.result = HTTP_LOST;
    call_series_count(&calls, metrics, "issuer", &call);
    call.result = HTTP_NOT_SENT;
    call_series_count(&calls, metrics, "issuer", &call);
    ck_assert(shows("issuing_call_seconds_count{target=\"issuer\",code=\"201\"} 1"));
    ck_assert(shows("issuing_call_seconds_count{target=\"issuer\",code=\"503\"} 1"));
    ck_assert(shows("issuing_call_seconds_count{target=\"issuer\",code=\"no_answer\"} 1"));
    ck_assert(shows("issuing_call_seconds_count{target=\"issuer\",code=\"not_sent\"} 1"));
    ck_assert(shows("issuing_call_seconds_count{target=\"issuer\",code=\"3xx\"} 100"));
    ck_assert(shows("issuing_call_seconds_count{target=\"issuer\",code=\"4xx\"} 89"));
    ck_assert(shows("issuing_call_seconds_count{target=\"issuer\",code=\"other\"} 605"));
    ck_assert(shows("issuing_call_seconds_bucket{target=\"issuer\",code=\"201\",le=\"0.0025\"} 1"));
}

TESTS_BETWEEN(worker_metrics, start, stop)
