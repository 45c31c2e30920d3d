/* Alerts are written against these names and numbers. A text that the scraper refuses blinds the operators at the worst
 * moment, and a metric that reaches its limit or gets no memory must never harm the request that it counts. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/metrics.h"
#include "tests/support/suite.h"

enum { REQUESTS, IN_FLIGHT, SECONDS, STEPS, FAMILY_COUNT };

static const double few_buckets[] = {0.1, 1, 0};
static const struct metric_family families[FAMILY_COUNT] = {
    [REQUESTS] = {.name = "t_requests_total",
                  .type = METRIC_COUNTER,
                  .help = "Requests\nby \\ route.",
                  .labels = {"route", "code"}},
    [IN_FLIGHT] = {.name = "t_in_flight", .type = METRIC_GAUGE, .help = "Now."},
    [SECONDS] = {.name = "t_seconds", .type = METRIC_HISTOGRAM, .help = "Time.", .buckets = few_buckets},
    [STEPS] = {.name = "t_step_seconds",
               .type = METRIC_HISTOGRAM,
               .help = "Time.",
               .labels = {"step"},
               .buckets = few_buckets},
};

static struct metrics *metrics;
static struct buf out;

static void start(void)
{
    metrics = metrics_new(families, FAMILY_COUNT);
    ck_assert_ptr_nonnull(metrics);
    buf_init(&out, 1 << 20);
}

static void stop(void)
{
    metrics_free(metrics);
    buf_done(&out);
}

static const char *rendered(void)
{
    buf_reset(&out);
    metrics_render(metrics, &out);
    ck_assert(!out.failed);
    return out.bytes;
}

static void expect_line(const char *wanted)
{
    char with_newlines[512];
    snprintf(with_newlines, sizeof(with_newlines), "\n%s\n", wanted);
    ck_assert_msg(strstr(rendered(), with_newlines) != NULL, "no line %s in\n%s", wanted, out.bytes);
}

TEST(what_has_no_labels_is_zero_at_the_start_and_every_family_has_help_and_type)
{
    ck_assert_str_eq(rendered(), "# HELP t_requests_total Requests\\nby \\\\ route.\n# TYPE t_requests_total counter\n"
                                 "# HELP t_in_flight Now.\n# TYPE t_in_flight gauge\n"
                                 "# HELP t_seconds Time.\n# TYPE t_seconds histogram\n"
                                 "t_seconds_bucket{le=\"0.1\"} 0\nt_seconds_bucket{le=\"1\"} 0\n"
                                 "t_seconds_bucket{le=\"+Inf\"} 0\nt_seconds_sum 0\nt_seconds_count 0\n"
                                 "# HELP t_step_seconds Time.\n# TYPE t_step_seconds histogram\n");
}

TEST(a_series_is_shown_as_zero_from_the_moment_it_exists)
{
    metrics_series(metrics, IN_FLIGHT, NULL, NULL);
    metrics_series(metrics, REQUESTS, "/v1/cards", "200");
    expect_line("t_in_flight 0");
    expect_line("t_requests_total{route=\"/v1/cards\",code=\"200\"} 0");
}

TEST(the_same_labels_are_the_same_series)
{
    struct metric_series *series = metrics_series(metrics, REQUESTS, "a", "b");
    ck_assert_ptr_eq(metrics_series(metrics, REQUESTS, "a", "b"), series);
    ck_assert_ptr_ne(metrics_series(metrics, REQUESTS, "a", "c"), series);
    ck_assert_ptr_ne(metrics_series(metrics, REQUESTS, "b", "a"), series);
    ck_assert_ptr_eq(metrics_series(metrics, IN_FLIGHT, "ignored", NULL),
                     metrics_series(metrics, IN_FLIGHT, NULL, NULL));
    metric_add(series, 1);
    metric_add(series, 2);
    ck_assert_double_eq(metric_value(series), 3);
    expect_line("t_requests_total{route=\"a\",code=\"b\"} 3");
    expect_line("t_requests_total{route=\"a\",code=\"c\"} 0");
}

TEST(a_series_keeps_its_own_copy_of_its_labels)
{
    char route[] = "before";
    metrics_series(metrics, REQUESTS, route, "1");
    memcpy(route, "after!", 6);
    expect_line("t_requests_total{route=\"before\",code=\"1\"} 0");
}

TEST(a_family_may_have_three_labels)
{
    static const struct metric_family family = {
        .name = "t_total", .type = METRIC_COUNTER, .help = "h", .labels = {"a", "b", "c"}};
    static const char *const first[METRIC_LABELS_MAX] = {"1", "2", "3"}, *const second[METRIC_LABELS_MAX] = {"1", "2"};
    struct metrics *other = metrics_new(&family, 1);
    metric_add(metrics_series_of(other, 0, first), 7);
    metric_add(metrics_series_of(other, 0, second), 2);
    metric_add(metrics_series(other, 0, "1", "2"), 3);
    buf_reset(&out);
    metrics_render(other, &out);
    ck_assert_ptr_nonnull(strstr(out.bytes, "\nt_total{a=\"1\",b=\"2\",c=\"3\"} 7\n"));
    ck_assert_ptr_nonnull(strstr(out.bytes, "\nt_total{a=\"1\",b=\"2\",c=\"\"} 5\n"));
    metrics_free(other);
}

TEST(label_values_are_escaped)
{
    metrics_series(metrics, REQUESTS, "a\"b\\c\nd", NULL);
    expect_line("t_requests_total{route=\"a\\\"b\\\\c\\nd\",code=\"\"} 0");
}

TEST(numbers_are_short_and_exact)
{
    static const struct {
        double value;
        const char *line;
    } cases[] = {
        {0.1, "t_in_flight 0.1"},
        {-2.5, "t_in_flight -2.5"},
        {123456789012345.0, "t_in_flight 123456789012345"},
        {9007199254740991.0, "t_in_flight 9007199254740991"},
        {1.0 / 3, "t_in_flight 0.33333333333333331"},
        {INFINITY, "t_in_flight +Inf"},
        {-INFINITY, "t_in_flight -Inf"},
        {NAN, "t_in_flight NaN"},
    };
    struct metric_series *series = metrics_series(metrics, IN_FLIGHT, NULL, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        metric_set(series, cases[i].value);
        expect_line(cases[i].line);
    }
}

TEST(a_histogram_counts_each_value_in_every_bucket_above_it)
{
    struct metric_series *series = metrics_series(metrics, SECONDS, NULL, NULL);
    static const double values[] = {0, 0.1, 0.5, 1, 1.5, 100, NAN};
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        metric_observe(series, values[i]);
    ck_assert_ptr_nonnull(strstr(rendered(), "# TYPE t_seconds histogram\n"
                                             "t_seconds_bucket{le=\"0.1\"} 2\n"
                                             "t_seconds_bucket{le=\"1\"} 4\n"
                                             "t_seconds_bucket{le=\"+Inf\"} 6\n"
                                             "t_seconds_sum 103.1\n"
                                             "t_seconds_count 6\n"));
}

TEST(a_labelled_histogram_puts_its_label_before_the_bound)
{
    metric_observe(metrics_series(metrics, STEPS, "issue", NULL), 0.05);
    ck_assert_ptr_nonnull(strstr(rendered(), "t_step_seconds_bucket{step=\"issue\",le=\"0.1\"} 1\n"
                                             "t_step_seconds_bucket{step=\"issue\",le=\"1\"} 1\n"
                                             "t_step_seconds_bucket{step=\"issue\",le=\"+Inf\"} 1\n"
                                             "t_step_seconds_sum{step=\"issue\"} 0.05\n"
                                             "t_step_seconds_count{step=\"issue\"} 1\n"));
}

TEST(past_the_cap_updates_go_nowhere_and_harm_nothing)
{
    char label[16];
    for (int i = 0; i < 400; i++) {
        snprintf(label, sizeof(label), "%d", i);
        metric_add(metrics_series(metrics, REQUESTS, label, NULL), 1);
        metric_observe(metrics_series(metrics, STEPS, label, NULL), 1);
    }
    struct metric_series *overflow = metrics_series(metrics, REQUESTS, "one too many", NULL);
    ck_assert_ptr_eq(metrics_series(metrics, STEPS, "one too many", NULL), overflow);
    metric_add(overflow, 5);
    metric_set(overflow, 5);
    metric_observe(overflow, 5);
    ck_assert_double_eq(metric_value(overflow), 0);
    ck_assert_ptr_null(strstr(rendered(), "one too many"));
    expect_line("t_requests_total{route=\"399\",code=\"\"} 1");
    ck_assert_ptr_ne(metrics_series(metrics, REQUESTS, "0", NULL), overflow);
}

TEST(the_shared_buckets_rise_and_end)
{
    static const double *const tables[] = {metric_buckets_seconds, metric_buckets_size};
    for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
        size_t count = 0;
        for (; tables[t][count] > 0; count++)
            ck_assert(count == 0 || tables[t][count] > tables[t][count - 1]);
        ck_assert_uint_le(count, METRIC_BUCKETS_MAX);
    }
    ck_assert_double_eq(metric_buckets_seconds[0], 0.0001);
    ck_assert_double_eq(metric_buckets_size[9], 512);
    static const struct metric_family family = {
        .name = "s", .type = METRIC_HISTOGRAM, .help = "h", .buckets = metric_buckets_seconds};
    struct metrics *other = metrics_new(&family, 1);
    metrics_series(other, 0, NULL, NULL);
    buf_reset(&out);
    metrics_render(other, &out);
    ck_assert_ptr_nonnull(strstr(out.bytes, "s_bucket{le=\"0.0001\"} 0\ns_bucket{le=\"0.00025\"} 0\n"));
    ck_assert_ptr_nonnull(strstr(out.bytes, "s_bucket{le=\"30\"} 0\ns_bucket{le=\"+Inf\"} 0\ns_sum 0\ns_count 0\n"));
    metrics_free(other);
}

TEST(a_page_that_does_not_fit_is_marked_failed)
{
    buf_done(&out);
    buf_init(&out, 50);
    metrics_render(metrics, &out);
    ck_assert(out.failed);
}

TESTS_BETWEEN(metrics, start, stop)
