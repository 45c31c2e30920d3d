/* The story: somebody wants to be called when an acceptance takes longer than a second. Clients that wait thirty
 * seconds for their card, because they asked for it, and lists that others read, must not be in that figure. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "api/api_metrics.h"
#include "common/lib/base/clock.h"
#include "tests/support/suite.h"

static struct metrics *metrics;
static struct api_series series;
static struct buf page;

static void start(void)
{
    metrics = api_metrics_new();
    ck_assert_ptr_nonnull(metrics);
    api_series_open(&series, metrics);
    buf_init(&page, 1 << 20);
}

static void stop(void)
{
    metrics_free(metrics);
    buf_done(&page);
}

static void expect(const char *line)
{
    char whole[256];
    buf_reset(&page);
    metrics_render(metrics, &page);
    snprintf(whole, sizeof(whole), "\n%s\n", line);
    ck_assert_msg(strstr(page.bytes, whole) != NULL, "no line %s", line);
}

TEST(every_answer_that_a_route_gives_is_zero_at_the_start)
{
    expect("issuing_http_requests_total{route=\"/v1/card-requests\",method=\"POST\",code=\"202\"} 0");
    expect("issuing_http_requests_total{route=\"/v1/card-requests\",method=\"POST\",code=\"503\"} 0");
    expect("issuing_http_requests_total{route=\"/v1/card-requests, waiting\",method=\"POST\",code=\"201\"} 0");
    expect("issuing_http_requests_total{route=\"/v1/card-requests\",method=\"GET\",code=\"200\"} 0");
    expect("issuing_http_requests_total{route=\"/v1/cards/{id}/number\",method=\"GET\",code=\"429\"} 0");
    expect("issuing_http_requests_total{route=\"unknown\",method=\"other\",code=\"404\"} 0");
    expect("issuing_http_requests_total{route=\"refused\",method=\"other\",code=\"503\"} 0");
    expect("issuing_http_request_seconds_count{route=\"/v1/card-requests\",method=\"POST\"} 0");
    expect("issuing_idempotency_replays_total 0");
    expect("issuing_reads_refused_total 0");
}

TEST(calls_that_waited_and_other_methods_are_apart)
{
    int64_t now_us = clock_mono_us();
    api_series_count_answer(&series, ROUTE_CARD_REQUESTS_POST, false, 202, now_us);
    api_series_count_answer(&series, ROUTE_CARD_REQUESTS_POST, true, 201, now_us - 29000000);
    api_series_count_answer(&series, ROUTE_CARD_REQUESTS_LIST, false, 200, now_us - 2000000);
    expect("issuing_http_requests_total{route=\"/v1/card-requests\",method=\"POST\",code=\"202\"} 1");
    expect("issuing_http_requests_total{route=\"/v1/card-requests, waiting\",method=\"POST\",code=\"201\"} 1");
    expect("issuing_http_requests_total{route=\"/v1/card-requests\",method=\"GET\",code=\"200\"} 1");
    expect("issuing_http_request_seconds_bucket{route=\"/v1/card-requests\",method=\"POST\",le=\"1\"} 1");
    expect("issuing_http_request_seconds_count{route=\"/v1/card-requests\",method=\"POST\"} 1");
    expect("issuing_http_request_seconds_bucket{route=\"/v1/card-requests, waiting\",method=\"POST\",le=\"10\"} 0");
    expect("issuing_http_request_seconds_count{route=\"/v1/card-requests, waiting\",method=\"POST\"} 1");
}

TEST(an_unforeseen_answer_is_counted_all_the_same)
{
    api_series_count_answer(&series, ROUTE_CARDS_GET, false, 422, clock_mono_us());
    api_series_count_answer(&series, ROUTE_CARDS_GET, false, 599, clock_mono_us());
    api_series_count_answer(&series, ROUTE_UNKNOWN, true, 404, clock_mono_us());
    api_series_count_refused(&series, 418);
    expect("issuing_http_requests_total{route=\"/v1/cards/{id}\",method=\"GET\",code=\"422\"} 1");
    expect("issuing_http_requests_total{route=\"/v1/cards/{id}\",method=\"GET\",code=\"other\"} 1");
    expect("issuing_http_requests_total{route=\"unknown, waiting\",method=\"other\",code=\"404\"} 1");
    expect("issuing_http_requests_total{route=\"refused\",method=\"other\",code=\"other\"} 1");
}

TESTS_BETWEEN(api_metrics, start, stop)
