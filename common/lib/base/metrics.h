/* Counters, gauges and histograms, and the Prometheus text of them (exposition format 0.0.4).
 *
 * A program declares its families in one static table; a series is found once by its label values and then updated
 * through a pointer, so the hot path does no look-up. Label values come from closed sets (routes, codes, steps); never
 * a user, a key or an id. One thread only. */
#ifndef ISSUING_METRICS_H
#define ISSUING_METRICS_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

#define METRIC_LABELS_MAX 3
#define METRIC_BUCKETS_MAX 20

struct metric_family {
    const char *name;
    enum metric_type type;
    const char *help;
    const char *labels[METRIC_LABELS_MAX]; /* names; NULL where unused */
    const double *buckets; /* histogram: upper bounds, rising, ended by 0; seconds unless the name has another unit */
};

/* A row of a program's table of families as such a struct. The labels come last; NULL = none. */
#define METRIC_FAMILY(id, name, type, help, buckets, ...) {name, type, help, {__VA_ARGS__}, buckets},

struct metric_series; /* one combination of label values */
struct metrics;       /* a registry */

extern const double metric_buckets_seconds[]; /* 100 us .. 30 s */
extern const double metric_buckets_size[];    /* 1 .. 512 */

/* families: count rows, must outlive the registry. Counters and histograms without labels are there from the start, as
 * zero: an alert on an increase must see the first one. A gauge is there once it has a value. NULL when memory is
 * out. */
struct metrics *metrics_new(const struct metric_family *families, size_t count);
void metrics_free(struct metrics *metrics);
/* Finds or creates; family_index is the row in the table. Never NULL: when memory or the cap of 400 series a family is
 * reached, a shared overflow series is returned, so a metric can never break the work it counts. Label values that the
 * family does not have are ignored. */
struct metric_series *metrics_series(struct metrics *metrics, size_t family_index, const char *label1,
                                     const char *label2);
struct metric_series *metrics_series_of(struct metrics *metrics, size_t family_index,
                                        const char *const values[METRIC_LABELS_MAX]);
void metric_add(struct metric_series *series, double by);        /* counters and gauges */
void metric_set(struct metric_series *series, double value);     /* gauges */
void metric_observe(struct metric_series *series, double value); /* histograms */
/* All series of a family of gauges. */
void metrics_set_all(struct metrics *metrics, size_t family_index, double value);
double metric_value(const struct metric_series *series); /* of counters and gauges */
void metrics_render(const struct metrics *metrics, struct buf *out);

#endif
