/* issuing-ctl reconcile: compares what the issuer, or the receiver of a route, has for these events with what we have.
 *
 * Leaves marks, at most MARKS_MAX at a time, and waits for what workers make of them. An event that another operator
 * reconciles at the same time has one mark, and both get its result; when that mark is over by the other one's
 * deadline, this command leaves its own. A command that is stopped or killed leaves its marks: workers finish them, or
 * their deadline does. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "ctl/action.h"
#include "ctl/confirm.h"
#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/filter.h"
#include "ctl/from_issuer.h"
#include "ctl/marks.h"
#include "ctl/options.h"
#include "ctl/pick.h"
#include "ctl/print.h"
#include "ctl/stop.h"
#include "statements.h"

#define PREVIEW_MAX 20 /* shown of a dry run */

struct reconcile {
    struct ctl *ctl;
    struct filter filter;
    struct action action;
    int64_t timeout_ms, deadline_ms; /* monotonic; of the whole command */
    int64_t limit;                   /* 0 = all */
    int64_t interval_us, started_us; /* between two marks, by --rate; monotonic */
    bool dry_run, is_declined;
    bool from_issuer; /* since filter.since, and nothing else is asked */
    const char *reason;
    int64_t total, horizon_us; /* matched at the start; what changes after it is left alone */
    int64_t requested, finished, undecided, problems, refused;
    int64_t busy; /* of the refused: another operator's reissue is not finished */
    bool shows_progress;
    /* the marks that workers have not finished */
    struct uuid marks[MARKS_MAX], events[MARKS_MAX];
    bool joined[MARKS_MAX]; /* another operator's, with that one's deadline */
    int open;
};

/* Results that an operator must act on. */
static bool is_problem(const char *result, const char *status)
{
    static const char *const problems[] = {"duplicate",   "missing", "orphan_cancelled",
                                           "orphan_left", "refused", "other_issuer"};
    for (size_t i = 0; i < ARRAY_SIZE(problems); i++)
        if (strcmp(result, problems[i]) == 0)
            return true;
    bool is_completed = status && strcmp(status, "COMPLETED") == 0;
    return (is_completed && (strcmp(result, "cancelled_at_issuer") == 0 || strcmp(result, "not_executed") == 0)) ||
           (!is_completed && strcmp(result, "executed") == 0);
}

static void show_progress(const struct reconcile *reconcile, bool last)
{
    if (reconcile->shows_progress && !last)
        fprintf(stderr, "\r%" PRId64 " of %" PRId64 " looked up, %d in progress", reconcile->finished, reconcile->total,
                reconcile->open);
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
    return print_json(JSON_OBJECT(json_text("id", id_text), json_text("result", result), json_text("status", status),
                                  json_text("detail", detail), json_text("why", words[0] ? words : NULL)),
                      err);
}

/* Leaves marks for these events; at most MARKS_MAX are unfinished then. */
static bool leave_marks(struct reconcile *reconcile, const struct uuid *ids, int count, struct err *err)
{
    struct buf buf;
    pg_rows_scope struct pg_rows *rows = NULL;
    int64_t left_ms = reconcile->deadline_ms - clock_mono_ms();
    struct pg_param params[3 + ACTION_PARAMS] = {pg_array_of_uuids(&buf, ids, count),
                                                 pg_param_int8(left_ms > 0 ? left_ms : 0)};
    action_params(&reconcile->action, params + 2);
    params[2 + ACTION_PARAMS] = action_batch(&reconcile->action);
    bool done = buf.failed ? err_set(err, ERR_MEMORY, "out of memory")
                           : pg_sync_query(reconcile->ctl->db, &sql_operator_ask_reconcile, params, &rows, err);
    buf_done(&buf);
    for (int row = 0; done && row < pg_rows_count(rows); row++) {
        struct uuid event = pg_uuid(rows, row, 0);
        const char *refused = pg_text(rows, row, 2);
        reconcile->requested++;
        if (!refused) {
            reconcile->events[reconcile->open] = event;
            reconcile->joined[reconcile->open] = pg_bool(rows, row, 3);
            reconcile->marks[reconcile->open++] = pg_uuid(rows, row, 1);
            continue;
        }
        char id_text[UUID_TEXT_SIZE];
        uuid_format(&event, id_text);
        reconcile->refused++;
        reconcile->busy += strcmp(refused, "busy") == 0;
        done = report(reconcile, id_text, "refused", NULL, refused, err);
    }
    return done;
}

/* True: the mark was joined. */
static bool forget_mark(struct reconcile *reconcile, const struct uuid *mark)
{
    for (int i = 0; i < reconcile->open; i++) {
        if (!uuid_equal(&reconcile->marks[i], mark))
            continue;
        bool was_joined = reconcile->joined[i];
        reconcile->open--;
        reconcile->marks[i] = reconcile->marks[reconcile->open];
        reconcile->events[i] = reconcile->events[reconcile->open];
        reconcile->joined[i] = reconcile->joined[reconcile->open];
        return was_joined;
    }
    return false;
}

static bool is_over(const struct reconcile *reconcile)
{
    return stop_is_requested() || clock_mono_ms() >= reconcile->deadline_ms;
}

static bool report_finished(struct reconcile *reconcile, const struct pg_rows *rows, bool *ret_any, struct err *err)
{
    for (int row = 0; row < pg_rows_count(rows); row++) {
        if (!pg_bool(rows, row, MARK_IS_FINISHED))
            continue;
        struct uuid mark = pg_uuid(rows, row, MARK_ID), event = pg_uuid(rows, row, MARK_EVENT);
        const char *result = pg_text(rows, row, MARK_RESULT), *status = pg_text(rows, row, MARK_STATUS);
        char id_text[UUID_TEXT_SIZE];
        uuid_format(&event, id_text);
        bool was_joined = forget_mark(reconcile, &mark);
        bool is_undecided = strcmp(result, "undecided") == 0 || strcmp(result, "withdrawn") == 0;
        *ret_any = true;
        /* guard: who joined a mark leaves one of their own afterwards */
        if (is_undecided && was_joined && !is_over(reconcile)) { /* the other one's time is over, ours is not */
            reconcile->requested--;
            if (!leave_marks(reconcile, &event, 1, err))
                return false;
            continue;
        }
        reconcile->finished++;
        reconcile->undecided += is_undecided;
        reconcile->problems += is_problem(result, status);
        if (!report(reconcile, id_text, result, status, pg_text(rows, row, MARK_DETAIL), err))
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

static bool run_ids(struct reconcile *reconcile, char **id_texts, int count, struct err *err)
{
    char scope[ACTION_SCOPE_SIZE];
    snprintf(scope, sizeof(scope), "%d ids", count);
    if (count > 1)
        action_begin_batch(&reconcile->action, scope);
    for (int i = 0; i < count && !is_over(reconcile); i++) {
        struct uuid id;
        if (!action_parse_id(id_texts[i], &id, err) || !wait_for_marks(reconcile, MARKS_MAX - 1, err) ||
            !leave_marks(reconcile, &id, 1, err))
            return false;
    }
    return wait_for_marks(reconcile, 0, err);
}

static bool is_enough(const struct reconcile *reconcile)
{
    return reconcile->limit > 0 && reconcile->requested >= reconcile->limit;
}

/* Marks for these events, as many at a time as may be unfinished; one by one where a rate is given. */
static bool leave_all(struct reconcile *reconcile, const struct uuid *ids, int count, struct err *err)
{
    int done = 0;
    while (done < count && !is_over(reconcile) && !is_enough(reconcile)) {
        if (!wait_for_marks(reconcile, MARKS_MAX / 2, err))
            return false;
        int64_t most = reconcile->interval_us > 0 ? 1 : MARKS_MAX - reconcile->open;
        if (reconcile->limit > 0 && most > reconcile->limit - reconcile->requested)
            most = reconcile->limit - reconcile->requested;
        if (most > count - done)
            most = count - done;
        if (reconcile->interval_us > 0 &&
            !stop_sleep_until(reconcile->started_us + reconcile->requested * reconcile->interval_us))
            break;
        if (most > 0 && !leave_marks(reconcile, ids + done, (int)most, err))
            return false;
        done += (int)most;
    }
    return true;
}

static bool preview(struct reconcile *reconcile, const struct uuid *id, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct event event;
    if (!event_find(reconcile->ctl->db, id, &rows, &event, err))
        return err->kind == ERR_NOT_FOUND;
    reconcile->requested++;
    return action_report(reconcile->ctl, event.id_text, ACTION_WOULD_LOOK_UP, &event, NULL, err);
}

static bool run_page(struct reconcile *reconcile, const struct pg_rows *rows, struct err *err)
{
    struct uuid ids[MARKS_MAX];
    struct pick_row found;
    int count = 0;
    for (int row = 0; row < pg_rows_count(rows) && !is_over(reconcile) && !is_enough(reconcile); row++) {
        if (!pick_row(rows, row, &found) || found.updated_us > reconcile->horizon_us)
            continue;
        if (reconcile->dry_run && !preview(reconcile, &found.id, err))
            return false;
        if (!reconcile->dry_run)
            ids[count++] = found.id;
        if (count == MARKS_MAX && !leave_all(reconcile, ids, count, err))
            return false;
        count = count == MARKS_MAX ? 0 : count;
    }
    return leave_all(reconcile, ids, count, err);
}

static bool is_meant(struct reconcile *reconcile)
{
    if (reconcile->dry_run || reconcile->limit > 0 || reconcile->total == 0)
        return true;
    reconcile->is_declined = !confirm_many("Look up", reconcile->total, reconcile->filter.status, " at the peer");
    return !reconcile->is_declined;
}

static bool run_matches(struct reconcile *reconcile, struct err *err)
{
    struct pick pick;
    char scope[ACTION_SCOPE_SIZE];
    int64_t most = reconcile->dry_run ? 0 : reconcile->limit;
    bool has_more;
    if (!confirm_count(reconcile->ctl->db, &reconcile->filter, most, 0, &reconcile->total, &reconcile->horizon_us,
                       &has_more, err))
        return false;
    if (stop_is_requested() || !is_meant(reconcile))
        return true;
    if (reconcile->dry_run && reconcile->limit == 0 && !reconcile->ctl->json)
        reconcile->limit = PREVIEW_MAX;
    filter_describe(&reconcile->filter, reconcile->total, scope, sizeof(scope));
    action_begin_batch(&reconcile->action, scope);
    reconcile->started_us = clock_mono_us();
    reconcile->deadline_ms = clock_mono_ms() + reconcile->timeout_ms;
    if (!pick_open(&pick, reconcile->ctl->db, &reconcile->filter, false, err))
        return false;
    while (!pick_is_over(&pick) && !is_over(reconcile) && !is_enough(reconcile)) {
        pg_rows_scope struct pg_rows *rows = NULL;
        if (!pick_read(&pick, reconcile->ctl->db, &rows, err) || !run_page(reconcile, rows, err))
            return false;
    }
    return wait_for_marks(reconcile, 0, err);
}

/* Completes the filter with what may be looked up: ended events; card requests, unless a type is given; FAILED ones
 * only if the outcome is unknown. */
static bool complete_filter(struct filter *filter, bool all, struct err *err)
{
    filter->unknown = filter->unknown || all;
    if (!filter->status) {
        filter->status = "FAILED";
        filter->unknown = true;
    }
    if (!filter->type)
        filter->type = OUTBOX_EVENT_TYPE;
    if (strcasecmp(filter->status, "FAILED") == 0)
        filter->unknown = true;
    else if (all)
        filter->unknown = false;
    if (!filter_check(filter, err))
        return false;
    if (filter->wanted == OUTBOX_PENDING || filter->wanted == OUTBOX_PROCESSING)
        return err_set(err, ERR_USAGE, "%s events are open: workers look after them", filter->status);
    return true;
}

/* has_more: something is given that is not a filter. */
static bool check_from_issuer(struct reconcile *reconcile, bool has_more, struct err *err)
{
    struct filter *filter = &reconcile->filter;
    const char *since = filter->since;
    filter->since = NULL;
    bool is_alone = filter_is_empty(filter) && filter->limit == 0 && !reconcile->dry_run && !has_more;
    filter->since = since;
    if (!since || !is_alone)
        return err_set(err, ERR_USAGE,
                       "--from-issuer needs --since, and takes --timeout and --reason besides: the "
                       "issuer lists the cards of all users");
    if (!filter_check(filter, err))
        return false;
    /* An empty list would look as if all were well. */
    if (!filter->from_time.is_ago && filter->from_time.us > clock_wall_us())
        return err_set(err, ERR_USAGE, "--since is in the future");
    return true;
}

static bool read_command(struct reconcile *reconcile, char **arguments, int *count, struct err *err)
{
    const char *timeout = NULL, *rate = NULL;
    bool all = false;
    struct uuid id;
    const struct option_spec specs[] = {
        FILTER_OPTIONS(&reconcile->filter),
        {.name = "all", .flag = &all},
        {.name = "dry-run", .flag = &reconcile->dry_run},
        {.name = "from-issuer", .flag = &reconcile->from_issuer},
        {.name = "rate", .text = &rate},
        {.name = "reason", .text = &reconcile->reason},
        {.name = "timeout", .text = &timeout},
        {.name = NULL},
    };
    if (!options_read(specs, arguments, *count, count, err) || !marks_timeout(timeout, &reconcile->timeout_ms, err))
        return false;
    if (reconcile->from_issuer)
        return check_from_issuer(reconcile, all || rate || *count > 0, err);
    bool by_filter = all || !filter_is_empty(&reconcile->filter);
    if ((*count == 0) != by_filter)
        return err_set(err, ERR_USAGE, "reconcile needs event ids, or --all, or filters");
    if (by_filter ? !complete_filter(&reconcile->filter, all, err) : !filter_check(&reconcile->filter, err))
        return false;
    if (!by_filter && (reconcile->dry_run || rate))
        return err_set(err, ERR_USAGE, "--dry-run and --rate go with filters");
    if (rate && !options_rate(rate, &reconcile->interval_us))
        return err_set(err, ERR_USAGE, "--rate needs a number of events a second, at most 100000: 5, 0.2, 10/m, 100/h");
    reconcile->limit = reconcile->filter.limit;
    for (int i = 0; i < *count; i++)
        if (!action_parse_id(arguments[i], &id, err))
            return false;
    return action_init(&reconcile->action, reconcile->reason ? reconcile->reason : "reconcile", err);
}

static void print_dry_run(const struct reconcile *reconcile)
{
    char requested[PRINT_NUMBER_SIZE], total[PRINT_NUMBER_SIZE];
    fprintf(stderr, "%s of %s %s events that would be looked up are shown. Nothing was changed.\n",
            print_number(reconcile->requested, requested), print_number(reconcile->total, total),
            reconcile->filter.status);
}

static void print_summary(const struct reconcile *reconcile, bool by_filter)
{
    fflush(stdout);
    if (reconcile->is_declined) {
        fprintf(stderr, "%sNothing was looked up.\n", stop_is_requested() ? "\n" : "");
        return;
    }
    if (by_filter && reconcile->total == 0 && !stop_is_requested())
        fprintf(stderr, "No event matches.\n");
    else if (reconcile->dry_run)
        print_dry_run(reconcile);
    else
        fprintf(stderr, "%" PRId64 " of %" PRId64 " looked up, %" PRId64 " to look into, %" PRId64 " undecided.\n",
                reconcile->finished - reconcile->undecided, reconcile->requested, reconcile->problems,
                reconcile->undecided + reconcile->open);
    if (stop_is_requested())
        fprintf(stderr,
                "issuing-ctl: stopped; workers still look up the %d that are in progress, until --timeout is over; run "
                "the same command again for the rest\n",
                reconcile->open);
    else if (reconcile->open > 0)
        fprintf(stderr, "issuing-ctl: no result in time; issuing-ctl workers and targets show whether a worker can ask "
                        "the peer\n");
}

/* Of a run that went well. */
static int code_of(const struct reconcile *reconcile)
{
    if (stop_is_requested() || reconcile->is_declined)
        return CTL_REFUSED;
    if (reconcile->dry_run)
        return CTL_DONE;
    if (reconcile->undecided > 0 || reconcile->open > 0 || reconcile->busy > 0 ||
        clock_mono_ms() >= reconcile->deadline_ms)
        return CTL_AWAY;
    return reconcile->problems > 0 || reconcile->refused > 0 ? CTL_REFUSED : CTL_DONE;
}

static bool run_reconcile(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct reconcile reconcile = {.ctl = ctl};
    if (!read_command(&reconcile, arguments, &count, err) || !ctl_connect(ctl, err))
        return false;
    if (reconcile.from_issuer)
        return from_issuer_run(ctl, &reconcile.filter.from_time, reconcile.timeout_ms, reconcile.reason, err);
    reconcile.deadline_ms = clock_mono_ms() + reconcile.timeout_ms;
    reconcile.shows_progress = isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO);
    stop_watch();
    reconcile.total = count;
    bool went_well = count == 0 ? run_matches(&reconcile, err) : run_ids(&reconcile, arguments, count, err);
    show_progress(&reconcile, true);
    for (int i = 0; went_well && i < reconcile.open; i++) {
        char id_text[UUID_TEXT_SIZE];
        uuid_format(&reconcile.events[i], id_text);
        went_well = report(&reconcile, id_text, "undecided", NULL, NULL, err);
    }
    print_summary(&reconcile, count == 0);
    ctl->code = code_of(&reconcile);
    return went_well;
}

const struct ctl_command ctl_reconcile = {
    .word = "reconcile",
    .usage = "ID... | --all | FILTERS | --from-issuer --since T [--dry-run] [--rate N] [--limit N] [--timeout D] "
             "[--reason TEXT]",
    .summary = "compare events with what the issuer or a receiver has",
    .help =
        "Lets workers look up events at the issuer, and prints what they found, one line for each. Card requests:\n"
        "  FAILED     if the issuer has a card, the event is PENDING again, so that the card is stored and linked\n"
        "             (found); if it has none, nothing changes (not_found); if it has only a cancelled one, the event\n"
        "             is REJECTED card_cancelled; if it has several, the event is FAILED issuer_duplicate\n"
        "  REJECTED   a live card is an orphan: it is cancelled, and core-api is notified (orphan_cancelled);\n"
        "             otherwise ok\n"
        "  COMPLETED  if the issuer has exactly our card, ok or frozen; if it has only a closed one,\n"
        "             cancelled_at_issuer; the card gets that status. Otherwise missing or duplicate, and nothing\n"
        "             changes\n"
        "  PENDING, PROCESSING  open: a worker processes the event, and nothing changes\n"
        "A look-up that finds no card counts only when issuer.settle_time has passed since the last request that\n"
        "may still arrive.\n"
        "Events of a route are looked up at its lookup_url. A FAILED event that was executed there is COMPLETED\n"
        "(executed); a REJECTED one that was executed is unchanged, and the exit code is 1; an event that was not\n"
        "executed is unchanged (not_executed). Refused if the route has no lookup_url.\n\n"
        "  --from-issuer  the other way round: a worker reads the issuer's own list of the cards that were made since\n"
        "                 --since T, and each is compared with ours. Questions are printed, at most 1000, and nothing\n"
        "                 is changed. no_event: a live card without an event here, as after the restore of a backup.\n"
        "                 unsent, rejected, failed, other_card: its event says otherwise. not_listed: a card of ours,\n"
        "                 of a request since T, that the issuer does not list. A command that was stopped continues\n"
        "                 when it is run again. Issuers: generic, stripe, lithic, increase\n"
        "  --all          all FAILED events whose outcome is unknown; with --status REJECTED or COMPLETED, those.\n"
        "                 Card requests; with --type the events of that route\n"
        "  --status S     FAILED (the default), REJECTED or COMPLETED\n" FILTER_HELP
        "  --dry-run      show how many there are and the first 20 (with --limit N the first N, with --json all)\n"
        "  --rate N       at most N events a second; also 0.2, 10/m, 100/h\n"
        "  --limit N      at most N events, the oldest; without it a terminal is asked once\n" MARKS_HELP
        "  --reason TEXT  why; stored in operator_actions where something changes\n\n"
        "Exit 1: orphans, duplicates or missing cards were found. Exit 75: not all were decided in time, or\n"
        "another operator's reissue of an event is not finished. After Ctrl-C the marks of the events in progress\n"
        "remain: workers finish them within the timeout.\n" FILTER_COSTS,
    .run = run_reconcile,
};
