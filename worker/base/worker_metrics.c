/* See worker_metrics.h. */
#include "worker/base/worker_metrics.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const double metric_buckets_long[] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5,  1,     2.5, 5,
                                             10,   30,    60,   300, 1800, 7200, 86400, 0};
static const double metric_buckets_calls[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                              0.5,   1,      2.5,   5,    10,    30,   0};

static const struct metric_family families[] = {WORKER_METRICS(METRIC_FAMILY)};

/* ---- reasons ---- */

/* Answers that a peer usually gives, and the classes of the others. */
#define ANSWERS(peer)                                                                                               \
    peer "_http_3xx", peer "_http_401", peer "_http_403", peer "_http_404", peer "_http_405", peer "_http_408",     \
        peer "_http_409", peer "_http_425", peer "_http_429", peer "_http_4xx", peer "_http_500", peer "_http_502", \
        peer "_http_503", peer "_http_504", peer "_http_5xx"
static const char *const answers[] = {ANSWERS("issuer"), ANSWERS("core"), ANSWERS("route")};

static const char *const causes[] = {
#define X(name, word, text) #word,
    OUTBOX_CAUSES(X)
#undef X
};

static const char *const reasons[] = {
#define X(word, user_text, text) #word,
    OUTBOX_REASONS(X)
#undef X
};

static const char *find(const char *const words[], size_t count, const char *code)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], code) == 0)
            return words[i];
    return NULL;
}

/* issuer_http_418 is issuer_http_4xx. */
static const char *class_of(const char *code)
{
    char class[16];
    const char *number = strstr(code, "_http_");
    if (!number || strlen(number) != strlen("_http_999"))
        return NULL;
    snprintf(class, sizeof(class), "%.*s_http_%cxx", (int)(number - code), code, number[strlen("_http_")]);
    return find(answers, ARRAY_SIZE(answers), class);
}

const char *worker_metrics_reason(const char *code)
{
    const char *label = find(causes, ARRAY_SIZE(causes), code);
    if (!label)
        label = find(reasons, ARRAY_SIZE(reasons), code);
    if (!label)
        label = find(answers, ARRAY_SIZE(answers), code);
    if (!label)
        label = class_of(code);
    return label ? label : "other";
}

/* ---- the series that exist from the start ---- */

static struct metric_series *ended(struct metrics *metrics, const char *type, enum outbox_status status,
                                   const char *reason)
{
    const char *const values[METRIC_LABELS_MAX] = {type, outbox_status_name(status), reason};
    return metrics_series_of(metrics, WORKER_METRIC_ENDED, values);
}

static void start_ends(struct metrics *metrics)
{
    (void)ended(metrics, OUTBOX_EVENT_TYPE, OUTBOX_COMPLETED, "");
    for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
        (void)ended(metrics, OUTBOX_EVENT_TYPE, OUTBOX_REJECTED, reasons[i]);
        (void)ended(metrics, OUTBOX_EVENT_TYPE, OUTBOX_FAILED, reasons[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++)
        (void)ended(metrics, OUTBOX_EVENT_TYPE, OUTBOX_FAILED, answers[i]);
    (void)ended(metrics, OUTBOX_EVENT_TYPE, OUTBOX_REJECTED, "other");
    (void)ended(metrics, OUTBOX_EVENT_TYPE, OUTBOX_FAILED, "other");
}

static void start_transitions(struct metrics *metrics, const char *target)
{
    static const char *const states[] = {"closed", "half_open", "open"};
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        (void)metrics_series(metrics, WORKER_METRIC_BREAKER_TRANSITIONS, target, states[i]);
}

/* Few, since there may be many routes: what has no series begins with its first count. */
void worker_metrics_start_route(struct metrics *metrics, const char *type)
{
    static const char *const failures[] = {"attempts_exhausted", "route_key_expired", "worker_lost", "payload_invalid"};
    start_transitions(metrics, type);
    (void)ended(metrics, type, OUTBOX_COMPLETED, "");
    (void)ended(metrics, type, OUTBOX_REJECTED, "route_refused");
    (void)ended(metrics, type, OUTBOX_REJECTED, "other");
    for (size_t i = 0; i < ARRAY_SIZE(failures); i++)
        (void)ended(metrics, type, OUTBOX_FAILED, failures[i]);
}

static void start_causes(struct metrics *metrics, enum worker_metric metric)
{
    for (size_t i = 0; i < ARRAY_SIZE(causes); i++)
        (void)metrics_series(metrics, metric, causes[i], NULL);
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++)
        (void)metrics_series(metrics, metric, answers[i], NULL);
    (void)metrics_series(metrics, metric, "other", NULL);
}

static void start_words(struct metrics *metrics)
{
    static const char *const results[] = {
        "ok",        "frozen",           "found",       "not_found", "cancelled_at_issuer", "missing",
        "duplicate", "orphan_cancelled", "orphan_left", "executed",  "not_executed"};
    for (size_t i = 0; i < ARRAY_SIZE(results); i++)
        (void)metrics_series(metrics, WORKER_METRIC_CHECKS, results[i], NULL);
    start_transitions(metrics, "issuer");
    start_transitions(metrics, "core");
    for (int i = OUTBOX_ATTEMPT_COMPLETED; i < OUTBOX_ATTEMPT_LOST; i++)
        (void)metrics_series(metrics, WORKER_METRIC_ATTEMPTS, outbox_attempt_name((enum outbox_attempt)i), NULL);
    (void)metrics_series(metrics, WORKER_METRIC_HOUSEKEEPING_FAILURES, "all", NULL);
}

struct metrics *worker_metrics_new(void)
{
    struct metrics *metrics = metrics_new(families, ARRAY_SIZE(families));
    if (!metrics)
        return NULL;
    start_ends(metrics);
    start_causes(metrics, WORKER_METRIC_RETRIES);
    /* guard: the first deferral of a kind is an increase */
    start_causes(metrics, WORKER_METRIC_DEFERRALS);
    start_words(metrics);
    return metrics;
}

void worker_metrics_count(struct metrics *metrics, enum worker_metric metric, const char *label1, const char *label2)
{
    metric_add(metrics_series(metrics, metric, label1, label2), 1);
}

/* ---- counting ---- */

void worker_series_open(struct worker_series *series, struct metrics *metrics)
{
    *series = (struct worker_series){
        .metrics = metrics,
        .request_seconds = metrics_series(metrics, WORKER_METRIC_REQUEST_SECONDS, NULL, NULL),
        .lease_lost = metrics_series(metrics, WORKER_METRIC_LEASE_LOST, NULL, NULL),
        .claim_seconds = metrics_series(metrics, WORKER_METRIC_CLAIM_SECONDS, NULL, NULL),
        .claim_batch_size = metrics_series(metrics, WORKER_METRIC_CLAIM_BATCH_SIZE, NULL, NULL),
    };
}

void worker_series_count_step(struct worker_series *series, int step, const char *step_word, int outcome,
                              const char *outcome_word, int64_t took_us)
{
    assert(step >= 0 && step < WORKER_STEPS_MAX && outcome >= 0 && outcome < WORKER_OUTCOMES);
    if (!series->step_seconds[step])
        series->step_seconds[step] = metrics_series(series->metrics, WORKER_METRIC_STEP_SECONDS, step_word, NULL);
    if (!series->steps[step][outcome])
        series->steps[step][outcome] =
            metrics_series(series->metrics, WORKER_METRIC_STEP_TOTAL, step_word, outcome_word);
    metric_observe(series->step_seconds[step], (double)took_us / 1e6);
    metric_add(series->steps[step][outcome], 1);
}

void worker_series_count_end(struct worker_series *series, const char *type, enum outbox_status status,
                             const char *reason, int64_t age_ms)
{
    metric_add(ended(series->metrics, type, status, reason[0] ? worker_metrics_reason(reason) : ""), 1);
    if (age_ms >= 0 && strcmp(type, OUTBOX_EVENT_TYPE) == 0)
        metric_observe(series->request_seconds, (double)age_ms / 1e3);
}

/* ---- calls ---- */

/* Answers that are usual in either sense; every other one is its class. After them: the classes 1xx to 5xx, an answer
 * that is none of these, no answer, not sent. */
static const int call_statuses[] = {200, 201, 204, 400, 401, 403, 404, 405, 408,
                                    409, 410, 422, 425, 429, 500, 502, 503, 504};
static const char *const call_words[] = {"1xx", "2xx", "3xx", "4xx", "5xx", "other", "no_answer", "not_sent"};
enum { CALL_OTHER = 5, CALL_NO_ANSWER, CALL_NOT_SENT };
static_assert(ARRAY_SIZE(call_statuses) + ARRAY_SIZE(call_words) <= WORKER_CALL_CODES, "more codes than series");

static size_t code_of(const struct http_call *call)
{
    const size_t words = ARRAY_SIZE(call_statuses);
    switch (call->result) {
    case HTTP_NOT_SENT:
        return words + CALL_NOT_SENT;
    case HTTP_LOST:
        return words + CALL_NO_ANSWER;
    case HTTP_ANSWERED:
        break;
    }
    for (size_t i = 0; i < words; i++)
        if (call_statuses[i] == call->status)
            return i;
    return words + (call->status >= 100 && call->status < 600 ? (size_t)(call->status / 100 - 1) : CALL_OTHER);
}

void call_series_count(struct call_series *series, struct metrics *metrics, const char *target,
                       const struct http_call *call)
{
    size_t code = code_of(call);
    if (!series->codes[code]) {
        char status[16];
        snprintf(status, sizeof(status), "%d", call->status);
        bool is_status = code < ARRAY_SIZE(call_statuses);
        series->codes[code] = metrics_series(metrics, WORKER_METRIC_CALL_SECONDS, target,
                                             is_status ? status : call_words[code - ARRAY_SIZE(call_statuses)]);
    }
    metric_observe(series->codes[code], (double)call->took_us / 1e6);
}
