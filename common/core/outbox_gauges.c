/* See outbox_gauges.h. The events are counted in rounds, one statement in flight: first the types that are delivered,
 * what is FAILED and what nobody delivers; then the open events of each type. The figures are shown when a round ends.
 * What is around the events is in server_gauges.h.
 *
 * The count of a type starts at a bookmark, the oldest due time of what was open at the last count. What is behind the
 * bookmark should not be there, which is what a gauge is for: it is counted now and then, and the figure stays in
 * between. */
#include "common/core/outbox_gauges.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/daemon_metrics.h"
#include "common/core/outbox.h"
#include "common/core/server_gauges.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/slice.h"
#include "statements.h"

#define QUIET_INTERVAL_MS 10000 /* of the events, while none is open */
#define ROWS_A_SECOND 2000      /* that are counted */
#define PAUSE_MOST_MS 60000     /* no figure is much older */
#define QUICK_PART 5            /* of the timeout: a count that takes less may go over more rows */
#define ROWS_MOST 1000000
#define ROWS_MOST_OF_ROUTE 100000 /* so that the backlogs of many routes do not delay the count of card requests */
#define ROWS_LEAST 1000
#define ROWS_STEP 8       /* when a count is late; when it is quick they double */
#define SLACK_US 10000000 /* a transaction may become visible so long after its time */
#define BEHIND_EVERY 12   /* counts; doubled by each that is not answered in time */
#define BEHIND_EVERY_MOST 1536
#define UNDELIVERED_MOST 10000 /* counted between two delivered types */
#define TYPES_MAX 65           /* card requests, and as many routes as the statement returns */
#define TYPE_SIZE 65
#define OTHER_TYPE "other"

/* The rows of outbox_gauges. */
enum part { PART_FRONT, PART_BEHIND, PART_ENDS, PART_NOW, PART_COUNT };

enum { PENDING, PROCESSING, FAILED, SCHEDULED, STATUSES };
static const char *const statuses[STATUSES] = {"PENDING", "PROCESSING", "FAILED", "SCHEDULED"};

struct count {
    int64_t events[STATUSES], unknown;
    int64_t oldest_ms, unknown_oldest_ms; /* 0 = there is none */
    int64_t due_us;
};

/* The events of one type. */
struct type_count {
    char type[TYPE_SIZE];
    int64_t bookmark_us; /* -1 = not known */
    int64_t rows;        /* of a part */
    int until_behind;    /* the number of counts after which the rows behind the bookmark are counted again */
    int behind_every;
    bool counts_behind;         /* the count in flight does it */
    struct count front, behind; /* when they were last counted */
    struct count ends;          /* that wait to become such events */
    int64_t behind_counted_ms;
    struct count failed;
};

struct outbox_gauges {
    struct gauge_question question;
    struct server_gauges server;
    struct type_count types[TYPES_MAX]; /* card requests first, then the routes by type */
    int type_count;
    int at;              /* of types: the one that is being counted */
    bool is_whole;       /* each statement of this round was answered */
    struct count other;  /* FAILED events of types that nobody delivers now */
    int64_t undelivered; /* open ones */
    int64_t failed_rows; /* so many are counted */
    bool is_counted;     /* at least one round was */
    struct closing closing;
};

/* ---- the figures ---- */

/* The places are chained by their server gauges. NULL = NULL. */
static struct outbox_gauges *owner_of(struct server_gauges *server)
{
    return server ? container_of(server, struct outbox_gauges, server) : NULL;
}

static void add_type(struct outbox_gauges *gauges, const char *type, const char *status, int64_t events)
{
    metric_add(metrics_series(gauges->question.options.metrics, DAEMON_METRIC_TYPE_EVENTS, type, status),
               (double)events);
}

static int64_t longest(int64_t left, int64_t right)
{
    return left > right ? left : right;
}

static void add(struct count *sum, const struct count *count)
{
    for (int i = 0; i < STATUSES; i++)
        sum->events[i] += count->events[i];
    sum->unknown += count->unknown;
    sum->oldest_ms = longest(sum->oldest_ms, count->oldest_ms);
    sum->unknown_oldest_ms = longest(sum->unknown_oldest_ms, count->unknown_oldest_ms);
}

/* As they were counted last; `behind` has grown older since. */
static struct count count_of(const struct type_count *type)
{
    struct count sum = type->front, behind = type->behind;
    int64_t since_ms = clock_mono_ms() - type->behind_counted_ms;
    behind.oldest_ms = behind.events[PENDING] > 0 ? behind.oldest_ms + since_ms : 0;
    behind.unknown_oldest_ms = behind.unknown > 0 ? behind.unknown_oldest_ms + since_ms : 0;
    add(&sum, &behind);
    add(&sum, &type->ends);
    add(&sum, &type->failed);
    return sum;
}

/* Of one database. */
static struct count count_all(const struct outbox_gauges *gauges)
{
    struct count all = gauges->other;
    for (int i = 0; i < gauges->type_count; i++) {
        struct count count = count_of(&gauges->types[i]);
        add(&all, &count);
    }
    return all;
}

static void show_type(struct outbox_gauges *gauges, const struct type_count *type)
{
    struct count count = count_of(type);
    struct metric_series *oldest =
        metrics_series(gauges->question.options.metrics, DAEMON_METRIC_TYPE_OLDEST, type->type, NULL);
    for (int i = 0; i < STATUSES; i++)
        add_type(gauges, type->type, statuses[i], count.events[i]);
    if ((double)count.oldest_ms / 1e3 > metric_value(oldest))
        metric_set(oldest, (double)count.oldest_ms / 1e3);
}

static void show_figures(struct outbox_gauges *gauges)
{
    const struct gauge_question *question = &gauges->question;
    struct count all = {0};
    int64_t undelivered = 0;
    metrics_set_all(question->options.metrics, DAEMON_METRIC_TYPE_EVENTS, 0); /* what is no longer a route */
    metrics_set_all(question->options.metrics, DAEMON_METRIC_TYPE_OLDEST, 0);
    for (struct outbox_gauges *each = owner_of(gauges->server.first); each; each = owner_of(each->server.next)) {
        struct count of_place = count_all(each);
        add(&all, &of_place);
        undelivered += each->undelivered;
        for (int i = 0; i < each->type_count; i++)
            show_type(each, &each->types[i]);
        add_type(each, OTHER_TYPE, "FAILED", each->other.events[FAILED]);
    }
    for (int i = 0; i < STATUSES; i++)
        gauge_question_show(question, DAEMON_METRIC_OUTBOX_EVENTS, statuses[i], (double)all.events[i]);
    gauge_question_show(question, DAEMON_METRIC_UNDELIVERED, NULL, (double)undelivered);
    gauge_question_show(question, DAEMON_METRIC_OLDEST_PENDING, NULL, (double)all.oldest_ms / 1e3);
    gauge_question_show(question, DAEMON_METRIC_OUTCOME_UNKNOWN, NULL, (double)all.unknown);
    gauge_question_show(question, DAEMON_METRIC_UNKNOWN_OLDEST, NULL, (double)all.unknown_oldest_ms / 1e3);
}

bool outbox_gauges_backlog(const struct outbox_gauges *gauges, int64_t *ret_pending, int64_t *ret_oldest_ms)
{
    struct metrics *metrics = gauges->question.options.metrics;
    if (!gauges->is_counted)
        return false;
    *ret_pending = (int64_t)metric_value(metrics_series(metrics, DAEMON_METRIC_OUTBOX_EVENTS, "PENDING", NULL));
    *ret_oldest_ms = (int64_t)(metric_value(metrics_series(metrics, DAEMON_METRIC_OLDEST_PENDING, NULL, NULL)) * 1e3);
    return true;
}

/* ---- a round ---- */

static void adapt_rows(int64_t *rows, int64_t most, int64_t took_ms, int64_t timeout_ms, bool is_done)
{
    if (!is_done && took_ms >= timeout_ms)
        *rows = *rows / ROWS_STEP > ROWS_LEAST ? *rows / ROWS_STEP : ROWS_LEAST;
    else if (is_done && took_ms < timeout_ms / QUICK_PART)
        *rows = *rows * 2 < most ? *rows * 2 : most;
}

static void on_round_timer(uv_timer_t *timer);

/* Before the next round, by what there was to count. */
static int64_t least_pause_ms(const struct outbox_gauges *gauges)
{
    struct count all = count_all(gauges);
    int64_t open = all.events[PENDING] + all.events[PROCESSING] + all.events[SCHEDULED];
    int64_t rows_ms = (open + all.events[FAILED] + gauges->undelivered) * 1000 / ROWS_A_SECOND;
    int64_t quiet_ms = gauges->is_whole && open == 0 ? QUIET_INTERVAL_MS : 0;
    return longest(quiet_ms, rows_ms < PAUSE_MOST_MS ? rows_ms : PAUSE_MOST_MS);
}

static void end_round(struct outbox_gauges *gauges)
{
    if (gauges->is_whole) {
        gauges->is_counted = true;
        gauges->question.answered_ms = clock_mono_ms();
    }
    show_figures(gauges);
    gauge_question_ask_after(
        &gauges->question, longest(least_pause_ms(gauges), gauge_question_pause_ms(&gauges->question)), on_round_timer);
}

static enum part part_of(struct slice word)
{
    static const char *const words[PART_COUNT] = {"front", "behind", "ends", "now"};
    int part = slice_among(word, words, PART_COUNT);
    return part >= 0 ? (enum part)part : PART_NOW;
}

static void read_counts(const struct pg_rows *rows, struct count counts[PART_COUNT])
{
    for (int row = 0; row < pg_rows_count(rows); row++)
        counts[part_of(pg_bytes(rows, row, 0))] = (struct count){
            .events = {[PENDING] = pg_int8(rows, row, 1),
                       [PROCESSING] = pg_int8(rows, row, 2),
                       [SCHEDULED] = pg_int8(rows, row, 7)},
            .oldest_ms = pg_int8(rows, row, 3),
            .unknown = pg_int8(rows, row, 4),
            .unknown_oldest_ms = pg_int8(rows, row, 5),
            .due_us = pg_is_null(rows, row, 6) ? 0 : pg_int8(rows, row, 6),
        };
}

static bool is_any(const struct count *count)
{
    return count->events[PENDING] > 0 || count->events[PROCESSING] > 0;
}

/* Behind a snapshot that another session holds open the index is long: what cannot be counted in time is counted less
 * often. counts: NULL = it was not counted. */
static void note_behind(struct type_count *type, const struct count *counts, bool was_sent)
{
    if (counts) {
        type->behind = counts[PART_BEHIND];
        type->behind_counted_ms = clock_mono_ms();
        type->behind_every = BEHIND_EVERY;
    } else if (was_sent && type->behind_every < BEHIND_EVERY_MOST) {
        type->behind_every *= 2;
    }
    /* While something is there, it is counted each time. */
    type->until_behind = counts && is_any(&type->behind) ? 0 : type->behind_every;
}

static void count_next(struct outbox_gauges *gauges);

static void on_type(struct pg_query *query, const struct pg_query_result *result)
{
    struct outbox_gauges *gauges = container_of(query, struct outbox_gauges, question.query);
    struct type_count *type = &gauges->types[gauges->at];
    bool is_done = result->kind == PG_DONE;
    struct count counts[PART_COUNT] = {{.due_us = 0}};
    if (is_done)
        read_counts(result->rows, counts);
    adapt_rows(&type->rows, gauges->at == 0 ? ROWS_MOST : ROWS_MOST_OF_ROUTE,
               clock_mono_ms() - gauges->question.sent_ms, gauges->question.timeout_ms, is_done);
    if (type->counts_behind)
        note_behind(type, is_done ? counts : NULL, result->kind != PG_NOT_SENT);
    if (is_done) {
        type->front = counts[PART_FRONT];
        type->ends = counts[PART_ENDS];
        /* The next count begins at the oldest that is open now, or at this moment. */
        type->bookmark_us = counts[is_any(&type->front) ? PART_FRONT : PART_NOW].due_us - SLACK_US;
    }
    gauges->is_whole = gauges->is_whole && is_done;
    gauges->at++;
    count_next(gauges);
}

static void count_next(struct outbox_gauges *gauges)
{
    struct gauge_question *question = &gauges->question;
    if (gauges->at == gauges->type_count) {
        end_round(gauges);
        return;
    }
    struct type_count *type = &gauges->types[gauges->at];
    type->counts_behind = type->until_behind-- <= 0;
    question->query.params[0] = type->bookmark_us >= 0 ? pg_param_int8(type->bookmark_us) : pg_param_null();
    question->query.params[1] = pg_param_bool(type->counts_behind);
    question->query.params[2] = pg_param_int8(type->rows);
    question->query.params[3] = pg_param_string(type->type);
    gauge_question_ask(question, &sql_outbox_gauges, on_type);
}

static struct type_count *find_type(struct outbox_gauges *gauges, const char *name)
{
    for (int i = 0; i < gauges->type_count; i++)
        if (strcmp(gauges->types[i].type, name) == 0)
            return &gauges->types[i];
    return NULL;
}

static void start_type(struct type_count *type, const char *name, int64_t rows)
{
    *type = (struct type_count){.bookmark_us = -1, .rows = rows, .behind_every = BEHIND_EVERY};
    snprintf(type->type, sizeof(type->type), "%s", name);
}

/* The types of this round; those that were there before go on where they were. Both lists are ordered by type behind
 * the first one, so what stays moves to its place from below or from above. */
static void take_types(struct outbox_gauges *gauges, const struct pg_rows *rows)
{
    struct type_count before[TYPES_MAX];
    int before_count = gauges->type_count;
    memcpy(before, gauges->types, sizeof(before));
    gauges->type_count = 1;
    for (int row = 0; row < pg_rows_count(rows) && gauges->type_count < TYPES_MAX; row++) {
        if (strcmp(pg_text(rows, row, 0), "route") != 0)
            continue;
        struct type_count *type = &gauges->types[gauges->type_count++];
        const char *name = pg_text(rows, row, 1);
        start_type(type, name, ROWS_MOST_OF_ROUTE);
        for (int i = 1; i < before_count; i++)
            if (strcmp(before[i].type, type->type) == 0)
                *type = before[i];
    }
}

static void take_others(struct outbox_gauges *gauges, const struct pg_rows *rows)
{
    gauges->other = (struct count){0};
    for (int i = 0; i < gauges->type_count; i++)
        gauges->types[i].failed = (struct count){0};
    for (int row = 0; row < pg_rows_count(rows); row++) {
        const char *what = pg_text(rows, row, 0);
        if (strcmp(what, "undelivered") == 0)
            gauges->undelivered = pg_int8(rows, row, 2);
        if (strcmp(what, "failed") != 0)
            continue;
        struct type_count *type = pg_is_null(rows, row, 1) ? NULL : find_type(gauges, pg_text(rows, row, 1));
        *(type ? &type->failed : &gauges->other) = (struct count){.events = {[FAILED] = pg_int8(rows, row, 2)},
                                                                  .unknown = pg_int8(rows, row, 3),
                                                                  .unknown_oldest_ms = pg_int8(rows, row, 4)};
    }
}

static void on_types(struct pg_query *query, const struct pg_query_result *result)
{
    struct outbox_gauges *gauges = container_of(query, struct outbox_gauges, question.query);
    bool is_done = result->kind == PG_DONE;
    struct gauge_question *question = &gauges->question;
    adapt_rows(&gauges->failed_rows, ROWS_MOST, clock_mono_ms() - question->sent_ms, question->timeout_ms, is_done);
    if (!is_done) {
        gauge_question_ask_after(question, gauge_question_pause_ms(question), on_round_timer);
        return;
    }
    take_types(gauges, result->rows);
    take_others(gauges, result->rows);
    gauges->at = 0;
    count_next(gauges);
}

static void on_round_timer(uv_timer_t *timer)
{
    struct outbox_gauges *gauges = container_of(timer, struct outbox_gauges, question.timer);
    struct gauge_question *question = &gauges->question;
    gauges->is_whole = true;
    question->begun_ms = clock_mono_ms();
    question->query.params[0] = pg_param_int8(gauges->failed_rows);
    question->query.params[1] = pg_param_int8(UNDELIVERED_MOST);
    gauge_question_ask(question, &sql_outbox_gauges_types, on_types);
}

/* ---- open, stop, close ---- */

bool outbox_gauges_open(const struct gauges_options *options, struct outbox_gauges *first,
                        struct outbox_gauges **ret_gauges, struct err *err)
{
    struct outbox_gauges *gauges = calloc(1, sizeof(*gauges));
    if (!gauges)
        return err_set(err, ERR_MEMORY, "no memory for the gauges");
    gauges->failed_rows = ROWS_MOST;
    start_type(&gauges->types[0], OUTBOX_EVENT_TYPE, ROWS_MOST);
    gauges->type_count = 1;
    gauge_question_open(&gauges->question, options, on_round_timer);
    server_gauges_open(&gauges->server, options, first ? &first->server : NULL);
    *ret_gauges = gauges;
    return true;
}

void outbox_gauges_update_age(struct outbox_gauges *gauges)
{
    int64_t answered_ms = INT64_MAX;
    for (const struct outbox_gauges *each = owner_of(gauges->server.first); each; each = owner_of(each->server.next)) {
        int64_t events_ms = each->question.answered_ms, server_ms = each->server.question.answered_ms;
        int64_t of_both_ms = events_ms < server_ms ? events_ms : server_ms;
        answered_ms = of_both_ms < answered_ms ? of_both_ms : answered_ms;
    }
    gauge_question_show(&gauges->question, DAEMON_METRIC_GAUGES_AGE, NULL,
                        (double)(clock_mono_ms() - answered_ms) / 1e3);
}

void outbox_gauges_stop(struct outbox_gauges *gauges)
{
    gauge_question_stop(&gauges->question);
    gauge_question_stop(&gauges->server.question);
}

void outbox_gauges_close(struct outbox_gauges *gauges, void (*on_closed)(void *context), void *context)
{
    assert(gauges->question.is_stopped);
    closing_start(&gauges->closing, free, gauges, on_closed, context);
    closing_handle(&gauges->closing, &gauges->question.timer);
    closing_handle(&gauges->closing, &gauges->server.question.timer);
    closing_end(&gauges->closing);
}
