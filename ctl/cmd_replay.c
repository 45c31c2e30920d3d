/* issuing-ctl replay: FAILED -> PENDING, by ids or by filter.
 *
 * Invariants: each event is changed together with its audit row, in one statement that checks the state it was chosen
 * in; so two operators, a second run, or a worker in between never make one matching row be acted on twice. Stopping
 * is possible after every row, and running the same command again goes on with what is left.
 * Left out: sending anything. A replay makes the event due; the worker decides by first_sent_at whether it may be sent
 * or only looked up. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/filter.h"
#include "ctl/options.h"
#include "ctl/outlook.h"
#include "statements.h"

#define PAGE 500
#define RATE_MAX 100000
#define WAKE_INTERVAL_US 1000000

static volatile sig_atomic_t stop_wanted;

static void on_signal(int signal)
{
    (void)signal;
    stop_wanted = 1;
}

struct replay {
    struct ctl *ctl;
    struct filter filter;
    struct action action;
    bool dry_run;
    int64_t rate;  /* per second; 0 = as fast as it goes */
    int64_t total; /* matched at the start */
    int64_t horizon_us;
    int64_t done, refused, skipped;
    int64_t started_us, woken_us; /* monotonic */
    bool shows_progress;
};

/* SA_RESTART is left out on purpose: a pause for --rate ends at once. A second signal kills, as everywhere. */
static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

/* Workers look by themselves; this only makes them look sooner. A lost connection shows with the next event. */
static void wake_workers(struct replay *replay)
{
    bool hinted =
        replay->done == 0 || replay->dry_run || pg_sync_ask(replay->ctl->db, &sql_notify_wake, NULL, NULL, NULL);
    (void)hinted;
    replay->woken_us = clock_mono_us();
}

/* Waits until the next row may go. false: stopped. */
static bool pace(struct replay *replay)
{
    int64_t acted = replay->done + replay->skipped;
    if (replay->rate == 0 || replay->dry_run)
        return !stop_wanted;
    int64_t turn_us = replay->started_us + acted * 1000000 / replay->rate;
    while (!stop_wanted) {
        int64_t left_us = turn_us - clock_mono_us();
        if (left_us <= 0)
            return true;
        /* Short, because a signal that comes between the check and the sleep does not end the sleep. */
        int64_t nap_us = left_us < 200000 ? left_us : 200000;
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)nap_us * 1000}, NULL);
    }
    return false;
}

/* The summary takes the place of the last one. */
static void show_progress(const struct replay *replay, bool last)
{
    if (replay->shows_progress && !last)
        fprintf(stderr, "\r%" PRId64 " of %" PRId64 " replayed", replay->done, replay->total);
    else if (replay->shows_progress)
        fputs("\r\033[K", stderr);
}

static void why_refused(const struct event *event, char *ret_text, size_t size)
{
    if (event->status == OUTBOX_FAILED)
        snprintf(ret_text, size, "it changed in the meantime; try again");
    else
        snprintf(ret_text, size, "it is %s; only FAILED events can be replayed", event->status_text);
}

/* What a dry run says of one event; changes nothing. */
static bool look(struct replay *replay, const struct uuid *id, const char *id_text, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct event event;
    char why[400];
    if (!event_find(replay->ctl->db, id, &rows, &event, err)) {
        replay->refused += err->kind == ERR_NOT_FOUND;
        return err->kind == ERR_NOT_FOUND &&
               action_report(replay->ctl, id_text, ACTION_REFUSED, NULL, err->message, err);
    }
    bool would = event.status == OUTBOX_FAILED;
    if (would)
        outlook_replay(&event, replay->ctl->config, why, sizeof(why));
    else
        why_refused(&event, why, sizeof(why));
    replay->done += would;
    replay->refused += !would;
    return action_report(replay->ctl, event.id_text, would ? ACTION_WOULD_REPLAY : ACTION_REFUSED, &event, why, err);
}

/* Replays one event. seen_us: updated_at as the filter saw it; 0 = by id, whatever it is, and a refusal is reported. */
static bool act(struct replay *replay, const struct uuid *id, const char *id_text, int64_t seen_us, struct err *err)
{
    const struct action *action = &replay->action;
    const struct pg_param params[] = {
        pg_param_uuid(id),
        seen_us != 0 ? pg_param_int8(seen_us) : pg_param_null(),
        pg_param_text(action->actor, strlen(action->actor)),
        pg_param_text(action->reason, strlen(action->reason)),
    };
    pg_rows_scope struct pg_rows *rows = NULL, *now_rows = NULL;
    struct event event;
    char why[160];
    if (!pg_sync_ask(replay->ctl->db, &sql_operator_replay, params, &rows, err))
        return false;
    if (pg_rows_count(rows) == 1) {
        replay->done++;
        return event_read(rows, 0, &event, err) &&
               action_report(replay->ctl, event.id_text, ACTION_REPLAYED, &event, NULL, err);
    }
    if (seen_us != 0) {
        replay->skipped++;
        return true;
    }
    if (!event_find(replay->ctl->db, id, &now_rows, &event, err)) {
        replay->refused += err->kind == ERR_NOT_FOUND;
        return err->kind == ERR_NOT_FOUND &&
               action_report(replay->ctl, id_text, ACTION_REFUSED, NULL, err->message, err);
    }
    replay->refused++;
    why_refused(&event, why, sizeof(why));
    return action_report(replay->ctl, event.id_text, ACTION_REFUSED, &event, why, err);
}

static bool replay_ids(struct replay *replay, char **id_texts, int count, struct err *err)
{
    replay->total = count;
    for (int i = 0; i < count; i++) {
        struct uuid id;
        if (!action_parse_id(id_texts[i], &id, err))
            return false;
        if (!pace(replay))
            return true;
        if (!(replay->dry_run ? look(replay, &id, id_texts[i], err) : act(replay, &id, id_texts[i], 0, err)))
            return false;
    }
    return true;
}

static bool count_matches(struct replay *replay, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct pg_param params[FILTER_PARAMS];
    filter_params(&replay->filter, params);
    if (!pg_sync_ask(replay->ctl->db, &sql_operator_replay_count, params, &rows, err))
        return false;
    replay->total = pg_int8(rows, 0, 0);
    replay->horizon_us = pg_time_us(rows, 0, 1);
    return true;
}

static bool replay_page(struct replay *replay, const struct pg_rows *rows, struct uuid *ret_last, struct err *err)
{
    for (int row = 0; row < pg_rows_count(rows); row++) {
        struct uuid id = pg_uuid(rows, row, 0);
        char id_text[UUID_TEXT_SIZE];
        uuid_format(&id, id_text);
        if (!pace(replay))
            return true;
        if (!(replay->dry_run ? look(replay, &id, id_text, err)
                              : act(replay, &id, id_text, pg_time_us(rows, row, 1), err)))
            return false;
        *ret_last = id;
        show_progress(replay, false);
        if (clock_mono_us() - replay->woken_us > WAKE_INTERVAL_US)
            wake_workers(replay);
    }
    return true;
}

static bool replay_matches(struct replay *replay, struct err *err)
{
    struct uuid last;
    bool has_last = false;
    if (!count_matches(replay, err))
        return false;
    while (!stop_wanted) {
        struct pg_param params[FILTER_PARAMS + 3];
        pg_rows_scope struct pg_rows *rows = NULL;
        filter_params(&replay->filter, params);
        params[FILTER_PARAMS] = pg_param_int8(replay->horizon_us);
        params[FILTER_PARAMS + 1] = has_last ? pg_param_uuid(&last) : pg_param_null();
        params[FILTER_PARAMS + 2] = pg_param_int8(PAGE);
        if (!pg_sync_ask(replay->ctl->db, &sql_operator_replay_page, params, &rows, err))
            return false;
        if (pg_rows_count(rows) == 0)
            return true;
        if (!replay_page(replay, rows, &last, err))
            return false;
        has_last = true;
    }
    return true;
}

/* On standard error: standard output holds one line an event. */
static void print_summary(const struct replay *replay, bool by_filter)
{
    fflush(stdout);
    if (stop_wanted)
        fprintf(stderr, "issuing-ctl: stopped; the same command goes on with the rest\n");
    if (!by_filter && !stop_wanted)
        return;
    if (replay->total == 0)
        fprintf(stderr, "No FAILED event matches.\n");
    else if (replay->dry_run)
        fprintf(stderr, "%" PRId64 " of %" PRId64 " would be replayed. Nothing was changed.\n", replay->done,
                replay->total);
    else
        fprintf(stderr, "%" PRId64 " of %" PRId64 " replayed.\n", replay->done, replay->total);
    if (replay->skipped > 0)
        fprintf(stderr, "%" PRId64 " had changed in the meantime, by another operator perhaps, and were left alone.\n",
                replay->skipped);
}

static bool read_command(struct replay *replay, char **arguments, int *count, struct err *err)
{
    const char *reason = NULL;
    const struct option_spec specs[] = {
        FILTER_OPTIONS(&replay->filter),
        {.name = "dry-run", .flag = &replay->dry_run},
        {.name = "rate", .number = &replay->rate, .min = 1, .max = RATE_MAX},
        {.name = "reason", .text = &reason},
        {.name = NULL},
    };
    struct uuid id;
    if (!options_read(specs, arguments, *count, count, err) || !filter_check(&replay->filter, err))
        return false;
    if (*count == 0 && filter_is_empty(&replay->filter))
        return err_set(err, ERR_USAGE, "replay wants event ids, or at least one filter");
    if (*count > 0 && !filter_is_empty(&replay->filter))
        return err_set(err, ERR_USAGE, "replay wants event ids or filters, not both");
    if (replay->filter.status && strcmp(replay->filter.status, "FAILED") != 0)
        return err_set(err, ERR_USAGE, "only FAILED events can be replayed, not %s ones", replay->filter.status);
    /* All ids before the first is touched. */
    for (int i = 0; i < *count; i++)
        if (!action_parse_id(arguments[i], &id, err))
            return false;
    return (replay->dry_run && !reason) || action_init(&replay->action, reason, err);
}

static int run_replay(struct ctl *ctl, char **arguments, int count)
{
    struct replay replay = {.ctl = ctl};
    struct err err;
    if (!read_command(&replay, arguments, &count, &err) || !ctl_connect(ctl, &err))
        return ctl_fail(&err);
    bool by_filter = count == 0;
    /* On a terminal the lines themselves are the progress. */
    replay.shows_progress = by_filter && !replay.dry_run && isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO);
    replay.started_us = clock_mono_us();
    replay.woken_us = replay.started_us;
    watch_signals();
    bool went_well = by_filter ? replay_matches(&replay, &err) : replay_ids(&replay, arguments, count, &err);
    show_progress(&replay, true);
    if (went_well)
        wake_workers(&replay);
    print_summary(&replay, by_filter);
    if (!went_well)
        return ctl_fail(&err);
    return stop_wanted || replay.refused > 0 ? CTL_REFUSED : CTL_DONE;
}

const struct ctl_command ctl_replay = {
    .word = "replay",
    .usage = "ID... | FILTERS [--dry-run] [--rate N] --reason TEXT",
    .summary = "let workers try FAILED events again",
    .help = "Makes FAILED events PENDING again: same issuer key, so the same card; tries start again at 0, the\n"
            "history stays. An event that may have been sent and whose issuer key is past its lifetime is looked\n"
            "up at the issuer, never sent. By ids each one is reported, and exit 1 says that some were refused.\n"
            "By filter, at least one, oldest first:\n\n" FILTER_HELP
            "  --dry-run      say what would be done, change nothing\n"
            "  --rate N       at most N events a second\n"
            "  --reason TEXT  why; required, kept in operator_actions with who and when\n\n"
            "Each matching event is acted on once, also with two operators at once; what fails after the command\n"
            "was started is left alone. Ctrl-C stops after the current event (exit 1); the same command goes on\n"
            "with the rest.\n",
    .run = run_replay,
};
