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

#include "common/lib/base/clock.h"
#include "ctl/confirm.h"
#include "ctl/pick.h"
#include "ctl/stop.h"

#define PREVIEW_MAX 20 /* shown of a dry run by a filter */
#define WAKEUP_INTERVAL_US 1000000
#define ARRAY_MAX (64 + (size_t)CONFIG_ROUTES_MAX * 96)

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
    if (bulk->interval_us == 0 || bulk->dry_run)
        return !stop_is_requested();
    return stop_sleep_until(bulk->started_us + acted * bulk->interval_us);
}

/* At the end the line is erased: the summary follows. */
static void show_progress(const struct bulk *bulk, bool last)
{
    char done[PRINT_NUMBER_SIZE], total[PRINT_NUMBER_SIZE];
    if (bulk->shows_progress && !last)
        fprintf(stderr, "\r%s of %s %s", print_number(bulk->done, done), print_number(bulk->total, total),
                bulk->verb->past);
    else if (bulk->shows_progress)
        fputs("\r\033[K", stderr);
}

void bulk_narrow(const struct bulk_verb *verb, struct filter *filter)
{
    /* guard: a cancel by filter takes only what was not sent */
    filter->unsent = verb == &bulk_cancel;
    /* guard: a filter does not replay two cards */
    filter->leaves_duplicates = verb == &bulk_replay && !filter->code;
}

void bulk_begin(struct bulk *bulk, bool by_filter)
{
    char scope[ACTION_SCOPE_SIZE];
    if (by_filter)
        filter_describe(&bulk->filter, bulk->total, scope, sizeof(scope));
    else
        snprintf(scope, sizeof(scope), "%" PRId64 " ids", bulk->total);
    action_begin_batch(&bulk->action, scope);
}

bool bulk_act(struct bulk *bulk, const struct uuid *id, int64_t seen_us, struct pg_rows **ret_rows, struct err *err)
{
    struct bulk_params params = {
        .list = {pg_param_uuid(id), seen_us != 0 ? pg_param_int8(seen_us) : pg_param_null()},
        .more = params.list + BULK_PARAMS,
    };
    action_params(&bulk->action, params.list + 2);
    params.list[2 + ACTION_PARAMS] = action_batch(&bulk->action);
    for (size_t i = 0; i < ARRAY_SIZE(params.arrays); i++)
        buf_init(&params.arrays[i], ARRAY_MAX);
    if (bulk->verb->more_params)
        bulk->verb->more_params(bulk, &params);
    bool done = params.arrays[0].failed || params.arrays[1].failed
                    ? err_set(err, ERR_MEMORY, "out of memory")
                    : pg_sync_query(bulk->ctl->db, bulk->verb->statement, params.list, ret_rows, err);
    for (size_t i = 0; i < ARRAY_SIZE(params.arrays); i++)
        buf_done(&params.arrays[i]);
    return done;
}

static bool takes(const struct bulk_verb *verb, const struct event *event)
{
    return strcmp(event->status_text, verb->status) == 0 ||
           (verb->route_status && !event_is_card(event) && strcmp(event->status_text, verb->route_status) == 0);
}

void bulk_why_refused(const struct bulk_verb *verb, const struct event *event, const char *code, char *ret_text,
                      size_t size)
{
    ret_text[0] = '\0';
    verb->why_refused(event, code, ret_text, size);
    if (ret_text[0])
        return;
    if (strcmp(code, "changed") == 0)
        snprintf(ret_text, size, "it changed in the meantime; try again");
    else if (!takes(verb, event))
        snprintf(ret_text, size, "it is %s; only %s events can be %s", event->status_text, verb->status, verb->past);
    else
        snprintf(ret_text, size, "the database refused: %s", code);
}

static bool report_refusal(struct bulk *bulk, const struct event *event, const char *code, struct err *err)
{
    char why[400];
    bulk->refused++;
    bulk_why_refused(bulk->verb, event, code, why, sizeof(why));
    return action_report(bulk->ctl, event->id_text, ACTION_REFUSED, event, why, err);
}

static bool report_missing(struct bulk *bulk, const struct uuid *id, const char *id_text, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct event event;
    if (event_find(bulk->ctl->db, id, &rows, &event, err)) /* it was inserted since */
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
    if (takes(bulk->verb, &event) && !bulk->verb->preview(bulk, &event, &code, why, sizeof(why), err))
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
    if (!bulk_act(bulk, id, seen_us, &rows, err))
        return false;
    if (pg_rows_count(rows) == 0 && seen_us == 0)
        return report_missing(bulk, id, id_text, err);
    if (pg_rows_count(rows) == 0) {
        bulk->skipped++;
        return true;
    }
    if (!event_read(rows, 0, &event, err))
        return false;
    const char *refused = pg_text(rows, 0, EVENT_REFUSED_COLUMN);
    if (!refused) {
        bulk->done++;
        return action_report(bulk->ctl, event.id_text, bulk->verb->done, &event, NULL, err);
    }
    if (seen_us != 0 && (strcmp(refused, "changed") == 0 || !takes(bulk->verb, &event))) {
        bulk->skipped++;
        return true;
    }
    return report_refusal(bulk, &event, refused, err);
}

static bool run_ids(struct bulk *bulk, char **id_texts, int count, struct err *err)
{
    bulk->total = count;
    if (count > 1)
        bulk_begin(bulk, false);
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

static bool run_page(struct bulk *bulk, const struct pg_rows *rows, struct err *err)
{
    struct pick_row found;
    for (int row = 0; row < pg_rows_count(rows) && !is_enough(bulk); row++) {
        char id_text[UUID_TEXT_SIZE];
        /* guard: a bulk action leaves alone what changes after its start */
        if (!pick_row(rows, row, &found) || found.updated_us > bulk->horizon_us)
            continue;
        uuid_format(&found.id, id_text);
        if (!pace(bulk))
            return true;
        if (!(bulk->dry_run ? preview(bulk, &found.id, id_text, err)
                            : act(bulk, &found.id, id_text, found.updated_us, err)))
            return false;
        show_progress(bulk, false);
        if (clock_mono_us() - bulk->notified_us > WAKEUP_INTERVAL_US)
            send_wakeup(bulk);
    }
    return true;
}

/* "Replay 1,204 FAILED events?" A limit is an answer already. */
static bool is_meant(struct bulk *bulk)
{
    if (bulk->dry_run || bulk->limit > 0 || bulk->total == 0)
        return true;
    /* guard: a bulk action at a terminal is confirmed */
    bulk->is_declined = !confirm_many(bulk->verb->question, bulk->total, bulk->filter.status, "");
    bulk->started_us = clock_mono_us();
    return !bulk->is_declined;
}

static bool run_matches(struct bulk *bulk, struct err *err)
{
    struct pick pick;
    int64_t most = bulk->dry_run ? 0 : bulk->limit;
    bool has_more;
    if (!confirm_count(bulk->ctl->db, &bulk->filter, most, 0, &bulk->total, &bulk->horizon_us, &has_more, err))
        return false;
    if (stop_is_requested() || !is_meant(bulk))
        return true;
    if (bulk->dry_run && bulk->limit == 0 && !bulk->ctl->json)
        bulk->limit = PREVIEW_MAX;
    bulk_begin(bulk, true);
    if (!pick_open(&pick, bulk->ctl->db, &bulk->filter, false, err))
        return false;
    while (!pick_is_over(&pick) && !stop_is_requested() && !is_enough(bulk)) {
        pg_rows_scope struct pg_rows *rows = NULL;
        if (!pick_read(&pick, bulk->ctl->db, &rows, err) || !run_page(bulk, rows, err))
            return false;
    }
    return true;
}

static void print_dry_run(const struct bulk *bulk)
{
    char done[PRINT_NUMBER_SIZE], total[PRINT_NUMBER_SIZE];
    int64_t seen = bulk->done + bulk->refused;
    if (seen < bulk->total)
        fprintf(stderr, "%s %s events match; only the first %" PRId64 " were looked at, --limit N shows more. ",
                print_number(bulk->total, total), bulk->filter.status, seen);
    fprintf(stderr, "%s of %s would be %s. Nothing was changed.\n", print_number(bulk->done, done),
            print_number(seen, total), bulk->verb->past);
}

static void print_stop(const struct bulk *bulk)
{
    int64_t left = bulk->limit - bulk->done - bulk->refused;
    if (bulk->limit > 0 && left > 0)
        fprintf(stderr, "issuing-ctl: stopped; for the rest run the same command again with --limit %" PRId64 "\n",
                left);
    else
        fprintf(stderr, "issuing-ctl: stopped; run the same command again for the rest\n");
}

static void print_counts(const struct bulk *bulk)
{
    char done[PRINT_NUMBER_SIZE], total[PRINT_NUMBER_SIZE];
    if (bulk->total == 0)
        fprintf(stderr, "No %s event matches.\n", bulk->filter.status);
    else if (bulk->dry_run)
        print_dry_run(bulk);
    else
        fprintf(stderr, "%s of %s %s.\n", print_number(bulk->done, done), print_number(bulk->total, total),
                bulk->verb->past);
    if (bulk->skipped > 0)
        fprintf(stderr,
                "%" PRId64 " had changed in the meantime, perhaps by another operator, and were left as they are.\n",
                bulk->skipped);
}

/* On standard error, since standard output has one line for each event. */
static void print_summary(const struct bulk *bulk, bool by_filter, bool went_well)
{
    char id[UUID_TEXT_SIZE];
    fflush(stdout);
    if (bulk->is_declined) {
        fprintf(stderr, "%sNothing was changed.\n", stop_is_requested() ? "\n" : "");
        return;
    }
    if (stop_is_requested())
        print_stop(bulk);
    bool is_counted = bulk->total > 0 || (went_well && !stop_is_requested());
    if (by_filter && is_counted)
        print_counts(bulk);
    if (!bulk->dry_run && bulk->action.batch[0] && bulk->done > 0)
        fprintf(stderr, "issuing-ctl audit --batch %s shows what becomes of them.\n",
                action_batch_id(&bulk->action, id));
}

static bool read_command(struct bulk *bulk, const struct option_spec *specs, char **arguments, int *count,
                         struct err *err)
{
    const char *word = bulk->verb->word, *status = bulk->verb->status;
    struct filter *filter = &bulk->filter;
    struct uuid id;
    if (!options_read(specs, arguments, *count, count, err))
        return false;
    if (*count == 0 && filter_is_empty(filter))
        return err_set(err, ERR_USAGE, "%s needs event ids, or at least one filter", word);
    if (*count > 0 && !filter_is_empty(filter))
        return err_set(err, ERR_USAGE, "%s takes event ids or filters, not both", word);
    if (!filter->status)
        filter->status = status;
    bulk_narrow(bulk->verb, filter);
    if (!filter_check(filter, err))
        return false;
    bool is_of_route = filter->type && strcmp(filter->type, OUTBOX_EVENT_TYPE) != 0;
    bool is_other = strcmp(filter->status, status) != 0;
    if (is_other && bulk->verb->route_status && strcmp(filter->status, bulk->verb->route_status) == 0) {
        if (!is_of_route)
            return err_set(err, ERR_USAGE,
                           "--status %s needs --type TYPE, of a route: no card request that is %s can be %s",
                           filter->status, filter->status, bulk->verb->past);
    } else if (is_other)
        return err_set(err, ERR_USAGE, "only %s events can be %s, not %s ones", status, bulk->verb->past,
                       filter->status);
    bulk->limit = filter->limit;
    if (bulk->rate && !options_rate(bulk->rate, &bulk->interval_us))
        return err_set(err, ERR_USAGE, "--rate needs a number of events a second, at most 100000: 5, 0.2, 10/m, 100/h");
    /* All ids are checked before the first event is changed. */
    for (int i = 0; i < *count; i++)
        if (!action_parse_id(arguments[i], &id, err))
            return false;
    return (bulk->dry_run && !bulk->reason) || action_init(&bulk->action, bulk->reason, err);
}

bool bulk_run(struct bulk *bulk, const struct option_spec *specs, char **arguments, int count, struct err *err)
{
    if (!read_command(bulk, specs, arguments, &count, err) || !ctl_connect(bulk->ctl, err))
        return false;
    bool by_filter = count == 0;
    /* On a terminal the lines themselves show the progress. */
    bulk->shows_progress = by_filter && !bulk->dry_run && isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO);
    bulk->started_us = clock_mono_us();
    bulk->notified_us = bulk->started_us;
    stop_watch();
    bool went_well = by_filter ? run_matches(bulk, err) : run_ids(bulk, arguments, count, err);
    show_progress(bulk, true);
    if (went_well)
        send_wakeup(bulk);
    print_summary(bulk, by_filter, went_well);
    if (stop_is_requested() || bulk->is_declined || bulk->refused > 0)
        bulk->ctl->code = CTL_REFUSED;
    return went_well;
}
