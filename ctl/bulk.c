/* See bulk.h.
 *
 * Invariants: a function of the database changes each event together with its audit row, and only while the event is in
 * the state in which it was selected. So no event is acted on twice, whether two operators run the command, or one runs
 * it twice, or a worker is faster. The command may be stopped after each row; run again, it continues with the rest.
 * Left out: calls to the issuer and core-api, which only workers make. */
#include "ctl/bulk.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ctl/stop.h"

#define PAGE 500
#define WAKEUP_INTERVAL_US 1000000

static void send_wakeup(struct bulk *bulk)
{
    if (bulk->done > 0 && !bulk->dry_run)
        (void)!pg_sync_query(bulk->ctl->db, bulk->verb->wakeup, NULL, NULL, NULL);
    bulk->notified_us = clock_mono_us();
}

static bool is_enough(const struct bulk *bulk)
{
    return bulk->limit > 0 && bulk->done + bulk->refused >= bulk->limit;
}

/* Waits until the rate allows the next row. False: stopped. */
static bool pace(const struct bulk *bulk)
{
    int64_t acted = bulk->done + bulk->skipped;
    if (bulk->rate == 0 || bulk->dry_run)
        return !stop_is_requested();
    return stop_sleep_until(bulk->started_us + acted * 1000000 / bulk->rate);
}

/* At the end the line is erased: the summary follows. */
static void show_progress(const struct bulk *bulk, bool last)
{
    if (bulk->shows_progress && !last)
        fprintf(stderr, "\r%" PRId64 " of %" PRId64 " %s", bulk->done, bulk->total, bulk->verb->past);
    else if (bulk->shows_progress)
        fputs("\r\033[K", stderr);
}

static void refusal_text(const struct bulk *bulk, const struct event *event, const char *code, char *ret_text,
                         size_t size)
{
    ret_text[0] = '\0';
    bulk->verb->why_refused(event, code, ret_text, size);
    if (ret_text[0])
        return;
    if (strcmp(code, "changed") == 0)
        snprintf(ret_text, size, "it changed in the meantime; try again");
    else if (strcmp(event->status_text, bulk->verb->status) != 0)
        snprintf(ret_text, size, "it is %s; only %s events can be %s", event->status_text, bulk->verb->status,
                 bulk->verb->past);
    else
        snprintf(ret_text, size, "the database refused: %s", code);
}

static bool report_refusal(struct bulk *bulk, const struct event *event, const char *code, struct err *err)
{
    char why[400];
    bulk->refused++;
    refusal_text(bulk, event, code, why, sizeof(why));
    return action_report(bulk->ctl, event->id_text, ACTION_REFUSED, event, why, err);
}

static bool report_missing(struct bulk *bulk, const struct uuid *id, const char *id_text, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct event event;
    if (event_find(bulk->ctl->db, id, &rows, &event, err)) /* it was inserted meanwhile */
        return report_refusal(bulk, &event, "changed", err);
    bulk->refused += err->kind == ERR_NOT_FOUND;
    return err->kind == ERR_NOT_FOUND && action_report(bulk->ctl, id_text, ACTION_REFUSED, NULL, err->message, err);
}

/* Prints what a run would do with one event; changes nothing. */
static bool preview(struct bulk *bulk, const struct uuid *id, const char *id_text, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct event event;
    char why[640] = "";
    const char *code = "status";
    if (!event_find(bulk->ctl->db, id, &rows, &event, err))
        return err->kind == ERR_NOT_FOUND && report_missing(bulk, id, id_text, err);
    bool is_right = strcmp(event.status_text, bulk->verb->status) == 0;
    if (is_right && !bulk->verb->preview(bulk, &event, &code, why, sizeof(why), err))
        return false;
    if (code)
        return report_refusal(bulk, &event, code, err);
    bulk->done++;
    return action_report(bulk->ctl, event.id_text, bulk->verb->would, &event, why[0] ? why : NULL, err);
}

/* Acts on one event. seen_us: updated_at when the filter matched; 0 = given by id, any state. An event that a filter
 * matched and that has changed since is skipped. */
static bool act(struct bulk *bulk, const struct uuid *id, const char *id_text, int64_t seen_us, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct event event;
    if (!bulk->verb->act(bulk, id, seen_us, &rows, err))
        return false;
    if (pg_rows_count(rows) == 0 && seen_us == 0)
        return report_missing(bulk, id, id_text, err);
    if (pg_rows_count(rows) == 0) {
        bulk->skipped++;
        return true;
    }
    if (!event_read(rows, 0, &event, err))
        return false;
    const char *refused = pg_bytes(rows, 0, EVENT_REFUSED_COLUMN).bytes;
    if (!refused) {
        bulk->done++;
        return action_report(bulk->ctl, event.id_text, bulk->verb->done, &event, NULL, err);
    }
    if (seen_us != 0 && (strcmp(refused, "changed") == 0 || strcmp(event.status_text, bulk->verb->status) != 0)) {
        bulk->skipped++;
        return true;
    }
    return report_refusal(bulk, &event, refused, err);
}

static bool run_ids(struct bulk *bulk, char **id_texts, int count, struct err *err)
{
    bulk->total = count;
    for (int i = 0; i < count && !is_enough(bulk); i++) {
        struct uuid id;
        if (!action_parse_id(id_texts[i], &id, err))
            return false;
        if (!pace(bulk))
            return true;
        if (!(bulk->dry_run ? preview(bulk, &id, id_texts[i], err) : act(bulk, &id, id_texts[i], 0, err)))
            return false;
    }
    return true;
}

static bool count_matches(struct bulk *bulk, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct pg_param params[FILTER_PARAMS];
    filter_params(&bulk->filter, params);
    if (!pg_sync_query(bulk->ctl->db, bulk->verb->count, params, &rows, err))
        return false;
    bulk->total = pg_int8(rows, 0, 0);
    bulk->horizon_us = pg_time_us(rows, 0, 1);
    if (bulk->limit > 0 && bulk->total > bulk->limit)
        bulk->total = bulk->limit;
    return true;
}

static bool run_page(struct bulk *bulk, const struct pg_rows *rows, struct uuid *ret_last, struct err *err)
{
    for (int row = 0; row < pg_rows_count(rows) && !is_enough(bulk); row++) {
        struct uuid id = pg_uuid(rows, row, 0);
        char id_text[UUID_TEXT_SIZE];
        uuid_format(&id, id_text);
        if (!pace(bulk))
            return true;
        if (!(bulk->dry_run ? preview(bulk, &id, id_text, err)
                            : act(bulk, &id, id_text, pg_time_us(rows, row, 1), err)))
            return false;
        *ret_last = id;
        show_progress(bulk, false);
        if (clock_mono_us() - bulk->notified_us > WAKEUP_INTERVAL_US)
            send_wakeup(bulk);
    }
    return true;
}

static bool run_matches(struct bulk *bulk, struct err *err)
{
    struct uuid last;
    bool has_last = false;
    if (!count_matches(bulk, err))
        return false;
    while (!stop_is_requested() && !is_enough(bulk)) {
        struct pg_param params[FILTER_PARAMS + 3];
        pg_rows_scope struct pg_rows *rows = NULL;
        filter_params(&bulk->filter, params);
        params[FILTER_PARAMS] = pg_param_int8(bulk->horizon_us);
        params[FILTER_PARAMS + 1] = has_last ? pg_param_uuid(&last) : pg_param_null();
        params[FILTER_PARAMS + 2] = pg_param_int8(PAGE);
        if (!pg_sync_query(bulk->ctl->db, bulk->verb->page, params, &rows, err))
            return false;
        if (pg_rows_count(rows) == 0)
            return true;
        if (!run_page(bulk, rows, &last, err))
            return false;
        has_last = true;
    }
    return true;
}

/* On standard error, since standard output has one line for each event. */
static void print_summary(const struct bulk *bulk, bool by_filter)
{
    const char *past = bulk->verb->past;
    fflush(stdout);
    if (stop_is_requested())
        fprintf(stderr, "issuing-ctl: stopped; run the same command again for the rest\n");
    if (!by_filter && !stop_is_requested())
        return;
    if (bulk->total == 0)
        fprintf(stderr, "No %s event matches.\n", bulk->verb->status);
    else if (bulk->dry_run)
        fprintf(stderr, "%" PRId64 " of %" PRId64 " would be %s. Nothing was changed.\n", bulk->done, bulk->total,
                past);
    else
        fprintf(stderr, "%" PRId64 " of %" PRId64 " %s.\n", bulk->done, bulk->total, past);
    if (bulk->skipped > 0)
        fprintf(stderr,
                "%" PRId64 " had changed in the meantime, perhaps by another operator, and were left as they are.\n",
                bulk->skipped);
}

static bool read_command(struct bulk *bulk, const struct option_spec *specs, char **arguments, int *count,
                         struct err *err)
{
    const char *word = bulk->verb->word, *status = bulk->verb->status;
    struct uuid id;
    if (!options_read(specs, arguments, *count, count, err) || !filter_check(&bulk->filter, err))
        return false;
    if (*count == 0 && filter_is_empty(&bulk->filter))
        return err_set(err, ERR_USAGE, "%s needs event ids, or at least one filter", word);
    if (*count > 0 && !filter_is_empty(&bulk->filter))
        return err_set(err, ERR_USAGE, "%s takes event ids or filters, not both", word);
    if (bulk->filter.status && strcmp(bulk->filter.status, status) != 0)
        return err_set(err, ERR_USAGE, "only %s events can be %s, not %s ones", status, bulk->verb->past,
                       bulk->filter.status);
    /* All ids are checked before the first event is changed. */
    for (int i = 0; i < *count; i++)
        if (!action_parse_id(arguments[i], &id, err))
            return false;
    return (bulk->dry_run && !bulk->reason) || action_init(&bulk->action, bulk->reason, err);
}

int bulk_run(struct bulk *bulk, const struct option_spec *specs, char **arguments, int count)
{
    struct err err;
    if (!read_command(bulk, specs, arguments, &count, &err) || !ctl_connect(bulk->ctl, &err))
        return ctl_fail(&err);
    bool by_filter = count == 0;
    /* On a terminal the lines themselves show the progress. */
    bulk->shows_progress = by_filter && !bulk->dry_run && isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO);
    bulk->started_us = clock_mono_us();
    bulk->notified_us = bulk->started_us;
    stop_watch();
    bool went_well = by_filter ? run_matches(bulk, &err) : run_ids(bulk, arguments, count, &err);
    show_progress(bulk, true);
    if (went_well)
        send_wakeup(bulk);
    print_summary(bulk, by_filter);
    if (!went_well)
        return ctl_fail(&err);
    return stop_is_requested() || bulk->refused > 0 ? CTL_REFUSED : CTL_DONE;
}
