/* See exporter.h. Batches stand in a ring: the oldest is sent, the youngest is filled. A batch is the body of its
 * request, but for the brackets at the end.
 *
 * Invariants: a batch that is being sent is not filled; a batch leaves the ring when it was delivered or given up, and
 * its spans are counted then. */
#include "common/core/exporter.h"

#include <stdlib.h>
#include <string.h>

#include "common/core/daemon_metrics.h"
#include "common/core/trace_settings.h"
#include "common/lib/base/backoff.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/log.h"
#include "common/lib/http_client/http_client.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"

#define BATCHES 8
#define BATCH_SPANS 512
#define BATCH_BYTES (1024 * 1024)
#define SUFFIX "]}]}]}"
#define EVERY_MS 1000 /* a span waits so long for others */
#define TIMEOUT_MS 10000
#define CONNECTION_AGE_MS (5 * 60 * 1000)
#define TRIES 5
#define BACKOFF_BASE_MS 1000
#define BACKOFF_CAP_MS 30000
#define DRAIN_MS 2000
#define ANSWER_MAX (16 * 1024)

struct batch {
    struct buf body;
    int spans, tries;
};

struct exporter {
    struct exporter_options options;
    struct trace_settings settings;
    struct http_client *http;
    struct http_call call;
    uv_timer_t timer;
    struct batch batches[BATCHES];
    int first, count; /* of those in use */
    struct buf scratch;
    bool is_sending, is_failing, is_closing;
    int64_t not_before_ms;  /* of the next try */
    int64_t drain_until_ms; /* 0 = it does not drain */
    struct closing closing;
};

static struct batch *batch_at(struct exporter *exporter, int index)
{
    return &exporter->batches[(exporter->first + index) % BATCHES];
}

static void count_dropped(struct exporter *exporter, const char *reason, int64_t spans)
{
    metric_add(metrics_series(exporter->options.metrics, DAEMON_METRIC_SPANS_DROPPED, reason, NULL), (double)spans);
}

/* ---- sending ---- */

static void send_first(struct exporter *exporter);

/* is_due: also a batch that is not full. */
static void go_on(struct exporter *exporter, bool is_due)
{
    /* guard: one export of spans is under way */
    if (exporter->is_sending || exporter->is_closing || exporter->count == 0 ||
        clock_mono_ms() < exporter->not_before_ms)
        return;
    if (is_due || exporter->count > 1 || batch_at(exporter, 0)->spans == BATCH_SPANS)
        send_first(exporter);
}

/* Of the spans of a batch that was taken: those that the receiver has rejected all the same. */
static int64_t rejected_of(const struct http_call *call, int64_t spans)
{
    char text[24];
    int64_t rejected = 0;
    if (!json_grammar_check(call->answer.bytes, call->answer.length, NULL))
        return 0;
    struct json_value value = json_member(
        json_member(json_value_of(call->answer.bytes, call->answer.length), "partialSuccess"), "rejectedSpans");
    if (json_string(value, text, sizeof(text), NULL)) /* as the protocol's JSON writes numbers of 64 bits */
        rejected = strtoll(text, NULL, 10);
    else if (!json_integer(value, 0, spans, &rejected))
        return 0;
    return rejected < 0 ? 0 : rejected > spans ? spans : rejected;
}

/* The batch has left, or was given up: reason NULL = it was delivered. */
static void remove_first(struct exporter *exporter, const char *reason)
{
    struct batch *batch = batch_at(exporter, 0);
    int64_t dropped = reason ? batch->spans : rejected_of(&exporter->call, batch->spans);
    if (dropped > 0)
        count_dropped(exporter, reason ? reason : "rejected", dropped);
    metric_add(metrics_series(exporter->options.metrics, DAEMON_METRIC_SPANS_EXPORTED, NULL, NULL),
               (double)(batch->spans - dropped));
    buf_done(&batch->body);
    exporter->first = (exporter->first + 1) % BATCHES;
    exporter->count--;
}

static void on_sent(struct http_call *call)
{
    struct exporter *exporter = container_of(call, struct exporter, call);
    struct batch *batch = batch_at(exporter, 0);
    bool is_answered = call->result == HTTP_ANSWERED;
    bool is_taken = is_answered && call->status >= 200 && call->status <= 299;
    /* guard: spans that were refused are not sent again */
    bool may_repeat = !is_answered || call->status == 429 || (call->status >= 502 && call->status <= 504);
    if (!is_taken && !exporter->is_failing)
        log_warning("spans cannot be delivered", LOG_NUMBER("status", call->status), LOG_TEXT("why", call->error));
    else if (is_taken && exporter->is_failing)
        log_info("spans are delivered again");
    exporter->is_failing = !is_taken;
    exporter->is_sending = false;
    if (is_taken || !may_repeat || batch->tries == TRIES || exporter->drain_until_ms != 0 || exporter->is_closing)
        remove_first(exporter, is_taken ? NULL : is_answered ? "refused" : "unreachable");
    else
        exporter->not_before_ms =
            clock_mono_ms() + (call->retry_after_ms >= 0
                                   ? call->retry_after_ms
                                   : BACKOFF_BASE_MS / 2 + backoff_delay_ms(batch->tries, BACKOFF_BASE_MS,
                                                                            BACKOFF_CAP_MS, backoff_random()));
    http_call_forget(call);
    go_on(exporter, exporter->drain_until_ms != 0);
}

static void send_first(struct exporter *exporter)
{
    struct http_call *call = &exporter->call;
    struct batch *batch = batch_at(exporter, 0);
    int64_t left_ms = exporter->drain_until_ms - clock_mono_ms();
    batch->tries++;
    exporter->is_sending = true;
    http_call_make(call, "POST", exporter->settings.url);
    http_call_allow_body(call, HTTP_CALL_BODY_MAX);
    http_call_header(call, "Content-Type", "application/json");
    header_file_put(exporter->settings.headers, call);
    buf_put(&call->body, batch->body.bytes, batch->body.length);
    buf_put_text(&call->body, SUFFIX);
    call->status_is_enough = true;
    call->timeout_ms = exporter->drain_until_ms != 0 && left_ms < TIMEOUT_MS ? left_ms : TIMEOUT_MS;
    call->connection_age_ms = CONNECTION_AGE_MS;
    call->on_done = on_sent;
    http_client_start(exporter->http, call); /* a failed allocation ends it as not sent */
}

static void on_timer(uv_timer_t *timer)
{
    struct exporter *exporter = container_of(timer, struct exporter, timer);
    go_on(exporter, true);
    if (exporter->count == 0)
        uv_timer_stop(timer);
}

/* ---- spans ---- */

bool exporter_wants(const struct exporter *exporter, struct trace *trace, char ret_parent[SPAN_ID_SIZE])
{
    char *flags = &trace->parent[TRACE_LENGTH - 1]; /* the last digit of them: its first bit */
    ret_parent[0] = '\0';
    if (!trace->parent[0])
        return false;
    if (trace->is_ours && span_is_sampled(trace->id, exporter->options.config->trace.sample_millionths))
        *flags = '1';
    if (!trace->is_ours) {
        memcpy(ret_parent, trace->parent + SPAN_ID_AT, SPAN_ID_SIZE - 1);
        ret_parent[SPAN_ID_SIZE - 1] = '\0';
    }
    /* guard: no span of what the client does not sample */
    return hex_digit(*flags) & 1;
}

/* The batch that is filled, with room for these; NULL = there is none. */
static struct batch *open_batch(struct exporter *exporter, size_t length, int spans)
{
    struct batch *batch = batch_at(exporter, exporter->count + BATCHES - 1);
    bool has_room = batch->spans + spans <= BATCH_SPANS && batch->body.length + length < BATCH_BYTES;
    if (exporter->count > 0 && has_room && batch->tries == 0)
        return batch;
    if (exporter->count == BATCHES)
        return NULL;
    batch = batch_at(exporter, exporter->count++);
    batch->spans = batch->tries = 0;
    buf_init(&batch->body, BATCH_BYTES);
    buf_put_text(&batch->body, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    buf_put(&batch->body, exporter->settings.resource.bytes, exporter->settings.resource.length);
    buf_put_text(&batch->body, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"issuing\",\"version\":\"" ISSUING_VERSION
                               "\"},\"spans\":[");
    return batch;
}

struct buf *exporter_scratch(struct exporter *exporter)
{
    buf_reset(&exporter->scratch);
    return &exporter->scratch;
}

void exporter_put(struct exporter *exporter, const struct buf *spans, int count)
{
    struct batch *batch = spans->failed ? NULL : open_batch(exporter, spans->length, count);
    size_t length = batch ? batch->body.length : 0;
    if (batch && batch->spans > 0)
        buf_put_byte(&batch->body, ',');
    if (batch && !buf_put(&batch->body, spans->bytes, spans->length)) { /* no memory; what is whole is sent */
        batch->body.failed = false;
        batch->body.length = length;
        exporter->count -= batch->spans == 0;
        if (batch->spans == 0)
            buf_done(&batch->body);
        batch = NULL;
    }
    if (!batch) {
        /* guard: spans that find no room are counted */
        count_dropped(exporter, "full", count);
        return;
    }
    batch->spans += count;
    go_on(exporter, false);
    if (!uv_is_active((uv_handle_t *)&exporter->timer))
        uv_timer_start(&exporter->timer, on_timer, EVERY_MS, EVERY_MS);
}

/* ---- files ---- */

/* http NULL: only whether they can be used. */
static bool load_authorities(struct http_client *http, const char *path, struct err *err)
{
    struct authorities *authorities = NULL;
    if (!path)
        return true;
    if (!authorities_load(path, &authorities, err))
        return err_prefix(err, "trace.ca_file");
    if (http)
        http_client_trust(http, authorities);
    authorities_release(authorities);
    return true;
}

void exporter_reload(struct exporter *exporter)
{
    struct trace_settings fresh;
    struct err err = {0};
    if (exporter && trace_settings_read(exporter->options.config, exporter->options.program, &fresh, &err)) {
        trace_settings_done(&exporter->settings);
        exporter->settings = fresh;
    }
    if (exporter &&
        (err.message[0] || !load_authorities(exporter->http, exporter->options.config->trace.ca_file, &err)))
        log_error("a file cannot be used, the old one stays in force", LOG_TEXT("why", err.message));
}

/* ---- open, drain, close ---- */

bool exporter_open(const struct exporter_options *options, struct exporter **ret_exporter, struct err *err)
{
    const struct http_client_options http = {.connections_max = 1, .answer_max = ANSWER_MAX};
    struct trace_settings settings;
    *ret_exporter = NULL;
    if (!trace_settings_read(options->config, options->program, &settings, err))
        return false;
    if (!settings.url)
        return true;
    struct exporter *exporter = calloc(1, sizeof(*exporter));
    if (!exporter) {
        trace_settings_done(&settings);
        return err_set(err, ERR_MEMORY, "no memory for an exporter");
    }
    exporter->options = *options;
    exporter->settings = settings;
    http_call_init(&exporter->call, ANSWER_MAX);
    buf_init(&exporter->scratch, EXPORTER_SPANS_BYTES);
    *ret_exporter = exporter;
    return uv_timer_init(options->loop, &exporter->timer) == 0 &&
           http_client_open(options->loop, &http, &exporter->http, err) &&
           load_authorities(exporter->http, options->config->trace.ca_file, err);
}

bool exporter_check(const struct config *config, const char *program, struct err *err)
{
    struct trace_settings settings;
    if (!trace_settings_read(config, program, &settings, err))
        return false;
    bool is_wanted = settings.url;
    trace_settings_done(&settings);
    return !is_wanted || load_authorities(NULL, config->trace.ca_file, err);
}

bool exporter_drain(struct exporter *exporter)
{
    if (!exporter || exporter->count == 0)
        return true;
    if (exporter->drain_until_ms == 0) {
        exporter->drain_until_ms = clock_mono_ms() + DRAIN_MS;
        exporter->not_before_ms = 0;
        go_on(exporter, true);
    }
    /* guard: a drain waits for no receiver of spans */
    return clock_mono_ms() >= exporter->drain_until_ms;
}

static void release(void *context)
{
    struct exporter *exporter = context;
    while (exporter->count > 0)
        remove_first(exporter, "unreachable");
    http_call_done(&exporter->call);
    buf_done(&exporter->scratch);
    trace_settings_done(&exporter->settings);
    free(exporter);
}

void exporter_close(struct exporter *exporter, void (*on_closed)(void *context), void *context)
{
    exporter->is_closing = true;
    closing_start(&exporter->closing, release, exporter, on_closed, context);
    closing_handle(&exporter->closing, &exporter->timer);
    http_client_close(exporter->http, closing_part_closed, closing_part(&exporter->closing));
    closing_end(&exporter->closing);
}
