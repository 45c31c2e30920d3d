/* Counters, gauges and histograms, and the Prometheus text of them (exposition format 0.0.4).
 *
 * A program declares its families in one static table; a series is found once by its label values and then updated
 * through a pointer, so the hot path does no look-up. Label values come from closed sets (routes, codes, steps); never
 * a user, a key or an id. One thread only. */
#ifndef ISSUING_METRICS_H
#define ISSUING_METRICS_H

#include "common/base/base.h"
#include "common/base/buf.h"

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

#define METRIC_LABELS_MAX 2
#define METRIC_BUCKETS_MAX 20

struct metric_family {
    const char *name;
    enum metric_type type;
    const char *help;
    const char *labels[METRIC_LABELS_MAX]; /* names; NULL where unused */
    const double *buckets; /* histogram: upper bounds, rising, ended by 0; seconds unless the name has another unit */
};

struct metric_series; /* one combination of label values */
struct metrics;       /* a registry */

extern const double metric_buckets_seconds[]; /* 100 us .. 30 s */
extern const double metric_buckets_size[];    /* 1 .. 512 */

/* families: count rows, must outlive the registry. NULL when memory is out. */
struct metrics *metrics_new(const struct metric_family *families, size_t count);
void metrics_free(struct metrics *metrics);
/* Finds or creates; family_index is the row in the table. Never NULL: when memory or the cap of 200 series a family is
 * reached, a shared overflow series is returned, so a metric can never break the work it counts. */
struct metric_series *metrics_series(struct metrics *metrics, size_t family_index, const char *label1,
                                     const char *label2);
void metric_add(struct metric_series *series, double by);        /* counters and gauges */
void metric_set(struct metric_series *series, double value);     /* gauges */
void metric_observe(struct metric_series *series, double value); /* histograms */
double metric_value(const struct metric_series *series);         /* counters and gauges: for tests */
void metrics_render(const struct metrics *metrics, struct buf *out);

#endif
