/* issuing-ctl reissue: a new event, and so a new issuer key, instead of a FAILED one that has no card.
 *
 * A worker looks the event up at the issuer first and makes the exchange in one transaction; this command leaves the
 * mark and waits. When the time runs out or the operator stops, the mark is withdrawn: the database decides whether the
 * worker or the withdrawal was first, so this command reports what happened. */
#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/event.h"
#include "ctl/marks.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "ctl/stop.h"
#include "statements.h"

struct reissue {
    struct ctl *ctl;
    struct action action;
    struct uuid id;
    const char *id_text;
    const char *because; /* NULL = as the old event says */
    int64_t deadline_ms; /* monotonic */
};

static bool report_refused(const struct reissue *reissue, const char *code, struct err *err)
{
    const char *words = strcmp(code, "other_type") == 0
                            ? "only card requests can be reissued; an event of a route can be replayed or resolved"
                            : marks_text("refused", code);
    reissue->ctl->code = CTL_REFUSED;
    return action_report(reissue->ctl, reissue->id_text, ACTION_REFUSED, NULL, words[0] ? words : code, err);
}

static bool report_done(const struct reissue *reissue, const struct uuid *new_id, struct err *err)
{
    char new_text[UUID_TEXT_SIZE];
    uuid_format(new_id, new_text);
    if (reissue->ctl->json)
        return print_json(JSON_OBJECT(json_text("id", reissue->id_text), json_text("new_id", new_text)), err);
    printf("%s  replaced by %s\n", reissue->id_text, new_text);
    return true;
}

static bool report_late(const struct reissue *reissue, const char *detail)
{
    fflush(stdout);
    fprintf(stderr, "issuing-ctl: %s: nothing was changed, and the mark is withdrawn: ", reissue->id_text);
    if (stop_is_requested())
        fputs("stopped\n", stderr);
    else if (detail)
        print_text(detail, stderr), fputs(" (no decision in time)\n", stderr);
    else
        fputs("no worker answered in time; is one running, and is the breaker of the issuer closed?\n", stderr);
    reissue->ctl->code = stop_is_requested() ? CTL_REFUSED : CTL_AWAY;
    return true;
}

/* Leaves the mark, once another operator's mark for this event is finished. ret_code: why it was refused, "" = it is
 * left. */
static bool leave_mark(struct reissue *reissue, int64_t timeout_ms, struct uuid *ret_mark, char ret_code[64],
                       struct err *err)
{
    struct pg_param params[2 + ACTION_PARAMS + 1] = {pg_param_uuid(&reissue->id), pg_param_int8(timeout_ms)};
    action_params(&reissue->action, params + 2);
    params[2 + ACTION_PARAMS] = pg_param_string(reissue->because);
    int64_t pause_ms = 0;
    for (;;) {
        pg_rows_scope struct pg_rows *rows = NULL;
        if (!pg_sync_query(reissue->ctl->db, &sql_operator_ask_reissue, params, &rows, err))
            return false;
        const char *refused = pg_text(rows, 0, 1);
        snprintf(ret_code, 64, "%s", refused ? refused : "");
        if (!refused)
            *ret_mark = pg_uuid(rows, 0, 0);
        if (strcmp(ret_code, "busy") != 0 || stop_is_requested() || clock_mono_ms() >= reissue->deadline_ms)
            return true;
        if (pause_ms == 0)
            fprintf(stderr, "issuing-ctl: %s: %s; waiting for it\n", reissue->id_text, marks_text("refused", "busy"));
        marks_pause(&pause_ms);
    }
}

static bool wait_for_mark(const struct reissue *reissue, const struct uuid *mark, struct err *err)
{
    int64_t pause_ms = 0;
    char detail[200] = "";
    bool is_withdrawn = false;
    for (;;) {
        pg_rows_scope struct pg_rows *rows = NULL, *withdrawn = NULL;
        if (!marks_read(reissue->ctl, mark, 1, &rows, err))
            return false;
        if (pg_rows_count(rows) == 0)
            return report_refused(reissue, "not_found", err);
        const char *result = pg_text(rows, 0, MARK_RESULT), *mark_detail = pg_text(rows, 0, MARK_DETAIL);
        snprintf(detail, sizeof(detail), "%s", mark_detail ? mark_detail : "");
        if (result && strcmp(result, "reissued") == 0) {
            struct uuid new_id = pg_uuid(rows, 0, MARK_NEW_ID);
            return report_done(reissue, &new_id, err);
        }
        if (result && strcmp(result, "refused") == 0)
            return report_refused(reissue, detail, err);
        if (result || is_withdrawn) /* undecided, withdrawn, gone */
            return report_late(reissue, detail[0] ? detail : NULL);
        if (!stop_is_requested() && clock_mono_ms() < reissue->deadline_ms) {
            marks_pause(&pause_ms);
            continue;
        }
        const struct pg_param params[] = {pg_param_uuid(mark)};
        if (!pg_sync_query(reissue->ctl->db, &sql_operator_withdraw_mark, params, &withdrawn, err))
            return false;
        is_withdrawn = true; /* read once more: a worker may have finished it before the withdrawal */
    }
}

static bool is_reason(const char *because)
{
    bool is_known = false;
    for (int i = 0; i < OUTBOX_REISSUE_REASONS; i++)
        is_known |= strcmp(because, outbox_reissue_reason_name((enum outbox_reissue_reason)i)) == 0;
    return is_known;
}

static bool run_reissue(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct reissue reissue = {.ctl = ctl};
    const char *reason = NULL, *timeout = NULL;
    bool confirmed = false;
    int64_t timeout_ms = 0;
    struct uuid mark;
    char refused[64], id_text[UUID_TEXT_SIZE];
    const struct option_spec specs[] = {
        {.name = "reason", .text = &reason},
        {.name = "because", .text = &reissue.because},
        {.name = "confirm", .flag = &confirmed},
        {.name = "timeout", .text = &timeout},
        {.name = NULL},
    };
    if (!options_read(specs, arguments, count, &count, err) || !marks_timeout(timeout, &timeout_ms, err))
        return false;
    if (count != 1)
        return err_set(err, ERR_USAGE, "reissue takes one event id");
    if (reissue.because && !is_reason(reissue.because))
        return err_set(err, ERR_USAGE, "--because is lost, stolen, damaged or expired");
    if (!action_parse_id(arguments[0], &reissue.id, err) || !action_init(&reissue.action, reason, err))
        return false;
    if (!confirmed)
        return err_set(err, ERR_USAGE, "reissue sends a request with a new key to the issuer: add --confirm");
    uuid_format(&reissue.id, id_text);
    reissue.id_text = id_text;
    if (!ctl_connect(ctl, err))
        return false;
    reissue.deadline_ms = clock_mono_ms() + timeout_ms;
    stop_watch();
    if (!leave_mark(&reissue, timeout_ms, &mark, refused, err))
        return false;
    if (strcmp(refused, "busy") == 0) {
        fprintf(stderr, "issuing-ctl: %s: %s\n", id_text, marks_text("refused", "busy"));
        ctl->code = stop_is_requested() ? CTL_REFUSED : CTL_AWAY;
        return true;
    }
    if (refused[0])
        return report_refused(&reissue, refused, err);
    bool done = wait_for_mark(&reissue, &mark, err);
    if (done && ctl->code == CTL_DONE)
        (void)!pg_sync_query(ctl->db, &sql_notify_wake, NULL, NULL, NULL);
    return done;
}

const struct ctl_command ctl_reissue = {
    .word = "reissue",
    .usage = "ID --reason TEXT --confirm [--because WORD] [--timeout D]",
    .summary = "replace a FAILED event by a new one, with a new key",
    .help =
        "Replaces a FAILED event, once, by a new one with its own id and so its own issuer key. The old event\n"
        "becomes REJECTED with reason `reissued` and names the new one. First a worker looks the old event up at\n"
        "the issuer: refused if the issuer has a card for it (`replay` it instead), and not done before\n"
        "issuer.settle_time has passed since the last request that may still arrive. Prints both ids.\n\n"
        "  --reason TEXT  why; required, stored in operator_actions with who and when\n"
        "  --confirm      required: a new key makes a new card\n"
        "  --because W    why the old card is replaced: lost, stolen, damaged or expired; default: as the old event\n"
        "                 says. The issuer is told when the card is closed there\n" MARKS_HELP
        "\nExit 75: no worker decided it in time; nothing was changed, and nothing will change later.\n",
    .run = run_reissue,
};
