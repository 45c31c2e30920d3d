/* issuing-ctl reconcile: compares what the issuer has for these events with what we have.
 *
 * Leaves marks, at most MARKS_MAX at a time, and waits for what workers make of them. An event that another operator
 * reconciles at the same time has one mark, and both get its result. A command that is stopped or killed leaves its
 * marks: workers finish them, or their deadline does. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/filter.h"
#include "ctl/marks.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "ctl/stop.h"
#include "statements.h"

struct reconcile {
    struct ctl *ctl;
    struct filter filter;
    struct action action;
    int64_t timeout_ms, deadline_ms; /* monotonic; of the whole command */
    int64_t limit;                   /* 0 = all */
    int64_t requested, finished, undecided, problems, refused;
    bool shows_progress;
    /* the marks that workers have not finished */
    struct uuid marks[MARKS_MAX], events[MARKS_MAX];
    int open;
};

/* Results that an operator must act on. */
static bool is_problem(const char *result, const char *status)
{
    static const char *const problems[] = {"duplicate", "missing", "orphan_cancelled", "orphan_left", "refused"};
    for (size_t i = 0; i < ARRAY_SIZE(problems); i++)
        if (strcmp(result, problems[i]) == 0)
            return true;
    return strcmp(result, "cancelled_at_issuer") == 0 && status && strcmp(status, "COMPLETED") == 0;
}

static void show_progress(const struct reconcile *reconcile, bool last)
{
    if (reconcile->shows_progress && !last)
        fprintf(stderr, "\r%" PRId64 " looked up, %d in progress", reconcile->finished, reconcile->open);
    else if (reconcile->shows_progress)
        fputs("\r\033[K", stderr);
}

static bool report(struct reconcile *reconcile, const char *id_text, const char *result, const char *status,
                   const char *detail, struct err *err)
{
    const char *words = marks_text(result, detail);
    if (!reconcile->ctl->json) {
        printf("%s  %s: %s", id_text, result, words);
        if (detail && strcmp(result, "refused") != 0 && strcmp(result, "duplicate") != 0 &&
            strcmp(result, "cancelled_at_issuer") != 0) {
            fputs(" (", stdout);
            print_text(detail, stdout);
            putchar(')');
        }
        putchar('\n');
        return true;
    }
    struct json *object = json_new_object();
    if (object && json_set_text(object, "id", id_text) && json_set_text(object, "result", result) &&
        json_set_text(object, "status", status) && json_set_text(object, "detail", detail) &&
        json_set_text(object, "why", words[0] ? words : NULL))
        return print_json(object, stdout) || err_set(err, ERR_MEMORY, "out of memory");
    json_free(object);
    return err_set(err, ERR_MEMORY, "out of memory");
}

/* Leaves marks for these events; at most MARKS_MAX are unfinished then. */
static bool leave_marks(struct reconcile *reconcile, const struct uuid *ids, int count, struct err *err)
{
    struct buf buf;
    struct pg_array array;
    pg_rows_scope struct pg_rows *rows = NULL;
    int64_t left_ms = reconcile->deadline_ms - clock_mono_ms();
    buf_init(&buf, 64 * MARKS_MAX);
    pg_array_start(&array, &buf, PG_UUID);
    for (int i = 0; i < count; i++)
        pg_array_add_uuid(&array, &ids[i]);
    struct pg_param params[2 + ACTION_PARAMS] = {pg_array_param(&array), pg_param_int8(left_ms > 0 ? left_ms : 0)};
    action_params(&reconcile->action, params + 2);
    bool done = buf.failed ? err_set(err, ERR_MEMORY, "out of memory")
                           : pg_sync_query(reconcile->ctl->db, &sql_operator_ask_reconcile, params, &rows, err);
    buf_done(&buf);
    for (int row = 0; done && row < pg_rows_count(rows); row++) {
        struct uuid event = pg_uuid(rows, row, 0);
        const char *refused = pg_bytes(rows, row, 2).bytes;
        reconcile->requested++;
        if (!refused) {
            reconcile->events[reconcile->open] = event;
            reconcile->marks[reconcile->open++] = pg_uuid(rows, row, 1);
            continue;
        }
        char id_text[UUID_TEXT_SIZE];
        uuid_format(&event, id_text);
        reconcile->refused++;
        done = report(reconcile, id_text, "refused", NULL, refused, err);
    }
    return done;
}

static void forget_mark(struct reconcile *reconcile, const struct uuid *mark)
{
    for (int i = 0; i < reconcile->open; i++) {
        if (!uuid_equal(&reconcile->marks[i], mark))
            continue;
        reconcile->open--;
        reconcile->marks[i] = reconcile->marks[reconcile->open];
        reconcile->events[i] = reconcile->events[reconcile->open];
        return;
    }
}

static bool report_finished(struct reconcile *reconcile, const struct pg_rows *rows, bool *ret_any, struct err *err)
{
    for (int row = 0; row < pg_rows_count(rows); row++) {
        if (!pg_bool(rows, row, MARK_IS_FINISHED))
            continue;
        struct uuid mark = pg_uuid(rows, row, MARK_ID), event = pg_uuid(rows, row, MARK_EVENT);
        const char *result = pg_bytes(rows, row, MARK_RESULT).bytes, *status = pg_bytes(rows, row, MARK_STATUS).bytes;
        char id_text[UUID_TEXT_SIZE];
        uuid_format(&event, id_text);
        forget_mark(reconcile, &mark);
        reconcile->finished++;
        reconcile->undecided += strcmp(result, "undecided") == 0 || strcmp(result, "withdrawn") == 0;
        reconcile->problems += is_problem(result, status);
        *ret_any = true;
        if (!report(reconcile, id_text, result, status, pg_bytes(rows, row, MARK_DETAIL).bytes, err))
            return false;
    }
    return true;
}

/* Waits until at most `most` marks are unfinished, the deadline has passed, or a signal came. */
static bool wait_for_marks(struct reconcile *reconcile, int most, struct err *err)
{
    int64_t pause_ms = 0;
    while (reconcile->open > most) {
        pg_rows_scope struct pg_rows *rows = NULL;
        bool any = false;
        bool was_late = clock_mono_ms() >= reconcile->deadline_ms;
        if (!marks_read(reconcile->ctl, reconcile->marks, reconcile->open, &rows, err) ||
            !report_finished(reconcile, rows, &any, err))
            return false;
        show_progress(reconcile, false);
        if (was_late || stop_is_requested())
            return true;
        if (any)
            pause_ms = 0;
        if (reconcile->open > most)
            marks_pause(&pause_ms);
    }
    return true;
}

static bool is_over(const struct reconcile *reconcile)
{
    return stop_is_requested() || clock_mono_ms() >= reconcile->deadline_ms;
}

static bool run_ids(struct reconcile *reconcile, char **id_texts, int count, struct err *err)
{
    for (int i = 0; i < count && !is_over(reconcile); i++) {
        struct uuid id;
        if (!action_parse_id(id_texts[i], &id, err) || !wait_for_marks(reconcile, MARKS_MAX - 1, err) ||
            !leave_marks(reconcile, &id, 1, err))
            return false;
    }
    return wait_for_marks(reconcile, 0, err);
}

static bool run_matches(struct reconcile *reconcile, struct err *err)
{
    struct uuid last, ids[MARKS_MAX];
    bool has_last = false;
    while (!is_over(reconcile)) {
        struct pg_param params[FILTER_PARAMS + 2];
        pg_rows_scope struct pg_rows *rows = NULL;
        if (!wait_for_marks(reconcile, MARKS_MAX / 2, err))
            return false;
        int64_t free_marks = MARKS_MAX - reconcile->open;
        if (reconcile->limit > 0 && free_marks > reconcile->limit - reconcile->requested)
            free_marks = reconcile->limit - reconcile->requested;
        if (free_marks <= 0)
            break;
        filter_params(&reconcile->filter, params);
        params[FILTER_PARAMS] = has_last ? pg_param_uuid(&last) : pg_param_null();
        params[FILTER_PARAMS + 1] = pg_param_int8(free_marks);
        if (!pg_sync_query(reconcile->ctl->db, &sql_operator_reconcile_page, params, &rows, err))
            return false;
        int count = pg_rows_count(rows);
        for (int row = 0; row < count; row++)
            ids[row] = pg_uuid(rows, row, 0);
        if (count == 0)
            break;
        last = ids[count - 1];
        has_last = true;
        if (!leave_marks(reconcile, ids, count, err))
            return false;
    }
    return wait_for_marks(reconcile, 0, err);
}

static bool read_command(struct reconcile *reconcile, char **arguments, int *count, struct err *err)
{
    const char *reason = NULL, *timeout = NULL;
    bool all = false;
    struct uuid id;
    const struct option_spec specs[] = {
        FILTER_OPTIONS(&reconcile->filter),
        {.name = "all", .flag = &all},
        {.name = "limit", .number = &reconcile->limit, .min = 1, .max = INT64_C(1000000000)},
        {.name = "reason", .text = &reason},
        {.name = "timeout", .text = &timeout},
        {.name = NULL},
    };
    if (!options_read(specs, arguments, *count, count, err) || !filter_check(&reconcile->filter, err) ||
        !marks_timeout(timeout, &reconcile->timeout_ms, err))
        return false;
    bool by_filter = all || !filter_is_empty(&reconcile->filter);
    if ((*count == 0) != by_filter)
        return err_set(err, ERR_USAGE, "reconcile needs event ids, or --all, or filters");
    const char *status = reconcile->filter.status;
    if (status && (strcmp(status, "PENDING") == 0 || strcmp(status, "PROCESSING") == 0))
        return err_set(err, ERR_USAGE, "%s events are open: workers look after them", status);
    if (!status && by_filter)
        reconcile->filter.status = "FAILED";
    for (int i = 0; i < *count; i++)
        if (!action_parse_id(arguments[i], &id, err))
            return false;
    return action_init(&reconcile->action, reason ? reason : "reconcile", err);
}

static void print_summary(const struct reconcile *reconcile, bool by_filter)
{
    fflush(stdout);
    if (reconcile->requested == 0 && by_filter)
        fprintf(stderr, "No event matches.\n");
    else
        fprintf(stderr, "%" PRId64 " of %" PRId64 " looked up, %" PRId64 " to look into, %" PRId64 " undecided.\n",
                reconcile->finished - reconcile->undecided, reconcile->requested, reconcile->problems,
                reconcile->undecided + reconcile->open);
    if (stop_is_requested())
        fprintf(stderr,
                "issuing-ctl: stopped; workers still look up the %d that are in progress, until --timeout is over\n",
                reconcile->open);
    else if (reconcile->open > 0)
        fprintf(stderr, "issuing-ctl: no result in time; issuing-ctl workers and targets show whether a worker can ask "
                        "the issuer\n");
}

static int run_reconcile(struct ctl *ctl, char **arguments, int count)
{
    struct reconcile reconcile = {.ctl = ctl};
    struct err err;
    if (!read_command(&reconcile, arguments, &count, &err) || !ctl_connect(ctl, &err))
        return ctl_fail(&err);
    reconcile.deadline_ms = clock_mono_ms() + reconcile.timeout_ms;
    reconcile.shows_progress = isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO);
    stop_watch();
    bool went_well = count == 0 ? run_matches(&reconcile, &err) : run_ids(&reconcile, arguments, count, &err);
    show_progress(&reconcile, true);
    for (int i = 0; went_well && i < reconcile.open; i++) {
        char id_text[UUID_TEXT_SIZE];
        uuid_format(&reconcile.events[i], id_text);
        went_well = report(&reconcile, id_text, "undecided", NULL, NULL, &err);
    }
    print_summary(&reconcile, count == 0);
    if (!went_well)
        return ctl_fail(&err);
    if (stop_is_requested())
        return CTL_REFUSED;
    if (reconcile.undecided > 0 || reconcile.open > 0 || clock_mono_ms() >= reconcile.deadline_ms)
        return CTL_AWAY;
    return reconcile.problems > 0 || reconcile.refused > 0 ? CTL_REFUSED : CTL_DONE;
}

const struct ctl_command ctl_reconcile = {
    .word = "reconcile",
    .usage = "ID... | --all | FILTERS [--limit N] [--timeout D] [--reason TEXT]",
    .summary = "compare events with what the issuer has",
    .help =
        "Lets workers look up events at the issuer, and prints what they found, one line for each:\n"
        "  FAILED     a card: PENDING again, so that it is stored and linked (found); none: unchanged (not_found);\n"
        "             only a cancelled one: REJECTED card_cancelled; several: FAILED issuer_duplicate\n"
        "  REJECTED   a live card is an orphan: it is cancelled, and core-api is notified (orphan_cancelled); else ok\n"
        "  COMPLETED  exactly our card: ok; else missing, cancelled_at_issuer or duplicate, and nothing is changed\n"
        "  PENDING, PROCESSING  open: workers look after them\n"
        "What is not found is believed only when issuer.settle_time has passed since the last request that may\n"
        "still arrive.\n\n"
        "  --all          all FAILED events whose outcome is unknown; with --status REJECTED or COMPLETED, those\n"
        "  --status S     FAILED (the default), REJECTED or COMPLETED\n" FILTER_HELP
        "  --limit N      at most N events, the oldest\n" MARKS_HELP
        "  --reason TEXT  why; stored in operator_actions where something changes\n\n"
        "Exit 1: orphans, duplicates or missing cards were found. Exit 75: not all were decided in time. Ctrl-C\n"
        "leaves the marks of those in progress: workers finish them within the timeout.\n",
    .run = run_reconcile,
};
