/* The metrics of one program, and their Prometheus text (exposition format 0.0.4).
 *
 * Invariants: a family is always rendered with HELP and TYPE, a series from the moment it was first requested; series
 * keep the order in which they were made; a family never has more than SERIES_MAX; updating allocates nothing and
 * cannot fail. Buckets are counted separately and summed when rendered, so that an observation touches only one of
 * them.
 * Left out: threads, exemplars, summaries, and removing a series. */
#include "common/lib/base/metrics.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERIES_MAX 400

struct metric_series {
    struct metric_series *next;
    const struct metric_family *family; /* NULL: the overflow series, whose updates go nowhere */
    char *values[METRIC_LABELS_MAX];    /* owned; NULL where the family has no label */
    double value;                       /* of a counter or gauge; the sum of a histogram */
    uint64_t count;
    uint64_t *buckets; /* histogram: one for each upper bound, and the last for what is above all of them */
};

struct series_list {
    struct metric_series *first, **end;
    size_t count;
};

struct metrics {
    const struct metric_family *families;
    size_t count;
    struct metric_series overflow;
    struct series_list lists[]; /* one for each family */
};

const double metric_buckets_seconds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                         0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30,    0};
const double metric_buckets_size[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 0};

static size_t bucket_count(const struct metric_family *family)
{
    size_t count = 0;
    while (family->buckets[count] > 0)
        count++;
    assert(count <= METRIC_BUCKETS_MAX);
    return count;
}

static void series_free(struct metric_series *series)
{
    if (!series)
        return;
    for (size_t i = 0; i < METRIC_LABELS_MAX; i++)
        free(series->values[i]);
    free(series->buckets);
    free(series);
}

void metrics_free(struct metrics *metrics)
{
    if (!metrics)
        return;
    for (size_t i = 0; i < metrics->count; i++) {
        struct metric_series *series = metrics->lists[i].first;
        while (series) {
            struct metric_series *next = series->next;
            series_free(series);
            series = next;
        }
    }
    free(metrics);
}

static struct metric_series *series_new(const struct metric_family *family, const char *const values[METRIC_LABELS_MAX])
{
    struct metric_series *series = calloc(1, sizeof(*series));
    if (!series)
        return NULL;
    series->family = family;
    bool complete = true;
    for (size_t i = 0; i < METRIC_LABELS_MAX; i++) {
        if (!family->labels[i])
            continue;
        series->values[i] = strdup(values[i] ? values[i] : "");
        complete = complete && series->values[i];
    }
    if (family->type == METRIC_HISTOGRAM) {
        series->buckets = calloc(bucket_count(family) + 1, sizeof(series->buckets[0]));
        complete = complete && series->buckets;
    }
    if (complete)
        return series;
    series_free(series);
    return NULL;
}

static bool series_has(const struct metric_series *series, const char *const values[METRIC_LABELS_MAX])
{
    for (size_t i = 0; i < METRIC_LABELS_MAX; i++)
        if (series->values[i] && strcmp(series->values[i], values[i] ? values[i] : "") != 0)
            return false;
    return true;
}

struct metric_series *metrics_series_of(struct metrics *metrics, size_t family_index,
                                        const char *const values[METRIC_LABELS_MAX])
{
    assert(family_index < metrics->count);
    struct series_list *list = &metrics->lists[family_index];
    for (struct metric_series *series = list->first; series; series = series->next)
        if (series_has(series, values))
            return series;
    struct metric_series *series = NULL;
    if (list->count < SERIES_MAX)
        series = series_new(&metrics->families[family_index], values);
    if (!series)
        return &metrics->overflow;
    *list->end = series;
    list->end = &series->next;
    list->count++;
    return series;
}

struct metric_series *metrics_series(struct metrics *metrics, size_t family_index, const char *label1,
                                     const char *label2)
{
    const char *const values[METRIC_LABELS_MAX] = {label1, label2};
    return metrics_series_of(metrics, family_index, values);
}

struct metrics *metrics_new(const struct metric_family *families, size_t count)
{
    struct metrics *metrics = calloc(1, sizeof(*metrics) + count * sizeof(metrics->lists[0]));
    if (!metrics)
        return NULL;
    metrics->families = families;
    metrics->count = count;
    for (size_t i = 0; i < count; i++) {
        assert((families[i].type == METRIC_HISTOGRAM) == (families[i].buckets != NULL));
        metrics->lists[i].end = &metrics->lists[i].first;
        if (!families[i].labels[0] && families[i].type != METRIC_GAUGE)
            (void)metrics_series(metrics, i, NULL, NULL);
    }
    return metrics;
}

void metric_add(struct metric_series *series, double by)
{
    assert(!series->family || series->family->type != METRIC_HISTOGRAM);
    assert(!series->family || series->family->type != METRIC_COUNTER || by >= 0);
    if (series->family)
        series->value += by;
}

void metric_set(struct metric_series *series, double value)
{
    assert(!series->family || series->family->type == METRIC_GAUGE);
    if (series->family)
        series->value = value;
}

void metrics_set_all(struct metrics *metrics, size_t family_index, double value)
{
    assert(family_index < metrics->count);
    for (struct metric_series *series = metrics->lists[family_index].first; series; series = series->next)
        metric_set(series, value);
}

void metric_observe(struct metric_series *series, double value)
{
    assert(!series->family || series->family->type == METRIC_HISTOGRAM);
    if (!series->family || isnan(value))
        return;
    const double *bounds = series->family->buckets;
    size_t i = 0;
    while (bounds[i] > 0 && value > bounds[i])
        i++;
    series->buckets[i]++;
    series->count++;
    series->value += value;
}

double metric_value(const struct metric_series *series)
{
    return series->value;
}

static void put_number(struct buf *out, double number)
{
    char text[32];
    if (isnan(number)) {
        buf_put_text(out, "NaN");
    } else if (isinf(number)) {
        buf_put_text(out, number > 0 ? "+Inf" : "-Inf");
    } else {
        /* The shorter form wherever it means the same number: 0.1 and not 0.10000000000000001. */
        snprintf(text, sizeof(text), "%.15g", number);
        if (strtod(text, NULL) < number || strtod(text, NULL) > number)
            snprintf(text, sizeof(text), "%.17g", number);
        buf_put_text(out, text);
    }
}

static void put_escaped(struct buf *out, const char *text, bool in_quotes)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\')
            buf_put_text(out, "\\\\");
        else if (*text == '\n')
            buf_put_text(out, "\\n");
        else if (in_quotes && *text == '"')
            buf_put_text(out, "\\\"");
        else
            buf_put_byte(out, *text);
    }
}

/* bound: the value of `le`, or NULL for none. */
static void put_labels(struct buf *out, const struct metric_series *series, const char *bound)
{
    char separator = '{';
    for (size_t i = 0; i < METRIC_LABELS_MAX; i++) {
        if (!series->values[i])
            continue;
        buf_put_format(out, "%c%s=\"", separator, series->family->labels[i]);
        put_escaped(out, series->values[i], true);
        buf_put_byte(out, '"');
        separator = ',';
    }
    if (bound) {
        buf_put_format(out, "%cle=\"%s\"", separator, bound);
        separator = ',';
    }
    if (separator == ',')
        buf_put_byte(out, '}');
    buf_put_byte(out, ' ');
}

static void put_histogram(struct buf *out, const struct metric_series *series)
{
    const struct metric_family *family = series->family;
    uint64_t below = 0;
    for (size_t i = 0; family->buckets[i] > 0; i++) {
        char bound[32];
        snprintf(bound, sizeof(bound), "%.15g", family->buckets[i]);
        below += series->buckets[i];
        buf_put_format(out, "%s_bucket", family->name);
        put_labels(out, series, bound);
        buf_put_format(out, "%llu\n", (unsigned long long)below);
    }
    buf_put_format(out, "%s_bucket", family->name);
    put_labels(out, series, "+Inf");
    buf_put_format(out, "%llu\n%s_sum", (unsigned long long)series->count, family->name);
    put_labels(out, series, NULL);
    put_number(out, series->value);
    buf_put_format(out, "\n%s_count", family->name);
    put_labels(out, series, NULL);
    buf_put_format(out, "%llu\n", (unsigned long long)series->count);
}

static const char *const type_names[] = {
    [METRIC_COUNTER] = "counter",
    [METRIC_GAUGE] = "gauge",
    [METRIC_HISTOGRAM] = "histogram",
};

void metrics_render(const struct metrics *metrics, struct buf *out)
{
    for (size_t i = 0; i < metrics->count; i++) {
        const struct metric_family *family = &metrics->families[i];
        buf_put_format(out, "# HELP %s ", family->name);
        put_escaped(out, family->help, false);
        buf_put_format(out, "\n# TYPE %s %s\n", family->name, type_names[family->type]);
        for (const struct metric_series *series = metrics->lists[i].first; series; series = series->next) {
            if (family->type == METRIC_HISTOGRAM) {
                put_histogram(out, series);
                continue;
            }
            buf_put_text(out, family->name);
            put_labels(out, series, NULL);
            put_number(out, series->value);
            buf_put_byte(out, '\n');
        }
    }
}
