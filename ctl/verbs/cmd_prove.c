/* issuing-ctl prove: by the rows that are here, nothing was lost or doubled, and nothing waits for what is over. The
 * lines are those of doctor.h.
 *
 * A run goes over the events by their ids, in pieces: a check of a piece is one statement, and a long one would hold up
 * vacuum. Between two pieces the run rests for as long as it has read, so it takes half of one connection. A run over
 * all data is a proof: each piece is recorded, and a run that was stopped is continued by the next one.
 * Left out: what is missing here as a whole, as after the restore of an older backup, which only the issuer and
 * core-api know. */
#include <inttypes.h>
#include <stdio.h>

#include "common/lib/base/clock.h"
#include "ctl/doctor/doctor.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "ctl/stop.h"
#include "statements.h"

#define TIMEOUT_US (INT64_C(60) * 1000 * 1000)
#define ROWS_MAX 1000 /* of a piece, counted of what breaks a rule */
#define SUMS_MAX 5

static const struct data_check {
    const char *check;
    const struct sql_statement *statement;
    bool is_of_all; /* asked once, at the end */
    const char *rule, *broken, *fix;
    const char *sums; /* format of the SUMS_MAX sums behind the first two columns; NULL = there are none */
} checks[] = {
    {"accepted", &sql_operator_data_accepted, false, "every accepted request has its event",
     "accepted requests are lost", "restore these events from a backup, by their ids",
     "%" PRId64 " accepted = %" PRId64 " completed + %" PRId64 " rejected + %" PRId64 " failed + %" PRId64 " open"},
    {"limits", &sql_operator_data_limits, false, "every counted request has its event",
     "counted requests have no event", "look for what removed events; compare with the issuer by reference", NULL},
    {"client keys", &sql_operator_data_keys, false, "every open request and question has its key",
     "open requests have lost their key, so a repeat would be accepted again", "insert the keys again from a backup",
     NULL},
    {"completed", &sql_operator_data_completed, false, "every completed request has its card",
     "completed requests have no card here", "the issuer has it: look it up there by reference", NULL},
    {"cards", &sql_operator_data_cards, false, "every card has its request", "cards have no card request of their user",
     "look for what removed or changed the event",
     "%" PRId64 " cards = %" PRId64 " completed + %" PRId64 " open + %" PRId64 " failed + %" PRId64 " rejected"},
    {"ends", &sql_operator_data_ends, false, "ends of requests and their cards agree",
     "requests whose end and card contradict each other", "issuing-ctl explain ID; compare with the issuer", NULL},
    {"one card", &sql_operator_data_two_cards, false, "no request has two cards", "requests have two cards",
     "compare with the issuer, and cancel one there", NULL},
    {"reissues", &sql_operator_data_reissues, false, "every reissue is held by an event",
     "places of reissues name an event that is not there", "delete these rows of issuing.card_reissues", NULL},
    {"notified", &sql_operator_data_notified, false, "every final end has its notification, where a route exists",
     "final ends have no notification, and none waits",
     "tell the receiver; the programs of another release may have run", NULL},
    {"overdue", &sql_operator_data_overdue, true, "nothing waits for what is over",
     "events, leases or marks are overdue", "issuing-ctl explain ID; look whether workers run", NULL},
    {"statistics", &sql_operator_data_statistics, true, "the statistics equal the rows",
     "hours, types and states are counted wrongly", "issuing-ctl stats --rebuild --reason TEXT", NULL},
};

struct found {
    int64_t broken, sums[SUMS_MAX];
    char first[200]; /* ids */
    bool is_more, is_slow;
};

struct proof {
    struct doctor *doctor;
    int64_t timeout_us, began_us, broken; /* broken: also what an earlier run of the same proof found */
    struct pg_param from, to;             /* ids of the piece */
    bool is_last, is_recorded, is_slow;
    int pieces;
    struct found found[ARRAY_SIZE(checks)];
};

/* In a transaction of its own, which a statement that takes too long ends. */
static bool query(struct proof *proof, const struct sql_statement *statement, const struct pg_param range[2],
                  struct pg_rows **ret_rows, struct err *err)
{
    char statement_timeout[32];
    struct pg_sync *db = proof->doctor->ctl->db;
    struct err ignored;
    snprintf(statement_timeout, sizeof(statement_timeout), "%" PRId64 "ms",
             proof->timeout_us / 1000 > 0 ? proof->timeout_us / 1000 : 1);
    const struct pg_param wait[] = {pg_param_string(statement_timeout)};
    bool done = pg_sync_query(db, &sql_operator_data_begin, NULL, NULL, err) &&
                pg_sync_query(db, &sql_operator_data_timeout, wait, NULL, err) &&
                pg_sync_query(db, statement, range, ret_rows, err);
    bool ended = pg_sync_query(db, &sql_operator_migrate_rollback, NULL, NULL, done ? err : &ignored);
    return done && ended;
}

static bool check_range(struct proof *proof, size_t at, const struct pg_param range[2], struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct found *found = &proof->found[at];
    if (found->is_slow)
        return true;
    if (!query(proof, checks[at].statement, range, &rows, err)) {
        found->is_slow = proof->is_slow = err_is_sqlstate(err, "57014");
        return found->is_slow;
    }
    int64_t broken = pg_int8(rows, 0, 0);
    const char *first = pg_text(rows, 0, 1);
    if (broken > 0 && found->broken == 0)
        snprintf(found->first, sizeof(found->first), "%s", first ? first : "?");
    found->is_more |= broken > ROWS_MAX;
    found->broken += broken > ROWS_MAX ? ROWS_MAX : broken;
    proof->broken += broken > ROWS_MAX ? ROWS_MAX : broken;
    for (int i = 0; checks[at].sums && i < SUMS_MAX; i++)
        found->sums[i] += pg_int8(rows, 0, 2 + i);
    return true;
}

static bool check_piece(struct proof *proof, bool is_of_all, const struct pg_param range[2], struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
        if (checks[i].is_of_all == is_of_all && !check_range(proof, i, range, err))
            return false;
    return true;
}

/* The piece is read. *ret_is_ours false: another proof has begun since. */
static bool record_piece(struct proof *proof, bool *ret_is_ours, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {proof->from, proof->to, pg_param_int8(proof->began_us),
                                      pg_param_int8(proof->broken)};
    *ret_is_ours = true;
    if (!proof->is_recorded || proof->is_slow)
        return true;
    if (!pg_sync_query(proof->doctor->ctl->db, &sql_operator_data_note, params, &rows, err))
        return false;
    *ret_is_ours = pg_bool(rows, 0, 0);
    return true;
}

static struct pg_param uuid_or_null(const struct pg_rows *rows, int column)
{
    if (pg_is_null(rows, 0, column))
        return pg_param_null();
    struct uuid id = pg_uuid(rows, 0, column);
    return pg_param_uuid(&id);
}

static bool find_end(struct proof *proof, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(proof->doctor->ctl->db, &sql_operator_data_next, &proof->from, &rows, err))
        return false;
    proof->is_last = pg_is_null(rows, 0, 0);
    proof->to = uuid_or_null(rows, 0);
    return true;
}

/* Where to begin. *ret_goes_on: behind what an earlier run has read. */
static bool open_proof(struct proof *proof, int64_t since_us, bool *ret_goes_on, struct err *err)
{
    enum { UP_TO, BROKEN, BEGAN, SINCE, MAY_RECORD };
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param since[] = {since_us > 0 ? pg_param_int8(since_us) : pg_param_null()};
    if (!pg_sync_query(proof->doctor->ctl->db, &sql_operator_data_state, since, &rows, err))
        return false;
    proof->is_recorded = since_us == 0 && pg_bool(rows, 0, MAY_RECORD);
    proof->began_us = pg_int8(rows, 0, BEGAN);
    proof->from = uuid_or_null(rows, since_us > 0 ? SINCE : UP_TO);
    *ret_goes_on = since_us == 0 && !pg_is_null(rows, 0, UP_TO);
    proof->broken = *ret_goes_on ? pg_int8(rows, 0, BROKEN) : 0;
    return true;
}

static void report_check(struct proof *proof, const struct data_check *check, const struct found *found)
{
    char sums[160] = "";
    const int64_t *n = found->sums;
    if (found->is_slow) {
        doctor_report(proof->doctor, check->check, false, "look at less with --since, or wait longer with --timeout",
                      "not checked: it took too long");
        return;
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (check->sums)
        snprintf(sums, sizeof(sums), check->sums, n[0], n[1], n[2], n[3], n[4]);
#pragma GCC diagnostic pop
    if (found->broken == 0)
        doctor_report(proof->doctor, check->check, true, NULL, "%s%s%s", check->rule, sums[0] ? "; " : "", sums);
    else
        doctor_report(proof->doctor, check->check, false, check->fix, "%s%" PRId64 ": %s%s%s; among them %s",
                      found->is_more ? "more than " : "", found->broken, check->broken, sums[0] ? "; " : "", sums,
                      found->first);
}

static void report_all(struct proof *proof, int64_t earlier, bool goes_on)
{
    char time[PRINT_TIME_SIZE];
    for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
        report_check(proof, &checks[i], &proof->found[i]);
    if (earlier > 0)
        doctor_report(proof->doctor, "proof", false, "issuing-ctl prove once more, which reads all again",
                      "%" PRId64 " rows broke a rule in what a run that was stopped has read", earlier);
    if (proof->broken == 0 && !proof->is_slow)
        doctor_report(proof->doctor, "proof", true, NULL, "proven up to %s, in %d piece%s%s",
                      print_time(proof->began_us, time), proof->pieces, proof->pieces == 1 ? "" : "s",
                      goes_on ? ", behind what a run that was stopped has read" : "");
    doctor_note(proof->doctor, "data",
                "compared with itself: what is missing here as a whole, as after the restore of an older "
                "backup, only the issuer and core-api know (docs/database.md)");
}

/* begin: of what is checked as a whole. *ret_is_whole false: stopped, or another proof has begun, which is reported. */
static bool read_pieces(struct proof *proof, struct pg_param begin, bool *ret_is_whole, struct err *err)
{
    const struct pg_param all[2] = {begin, pg_param_null()};
    for (bool is_ours = true; !proof->is_last;) {
        int64_t begun_us = clock_mono_us();
        if (!find_end(proof, err))
            return false;
        const struct pg_param range[2] = {proof->from, proof->to};
        proof->pieces++;
        if (!check_piece(proof, false, range, err) || (proof->is_last && !check_piece(proof, true, all, err)) ||
            !record_piece(proof, &is_ours, err))
            return false;
        if (!is_ours) {
            doctor_report(proof->doctor, "proof", false, "wait for the other one",
                          "another issuing-ctl prove has begun");
            return true;
        }
        proof->from = proof->to;
        if (!proof->is_last && !stop_sleep_until(2 * clock_mono_us() - begun_us)) {
            doctor_report(proof->doctor, "proof", false, "the same command goes on there within a day",
                          "stopped after %d pieces", proof->pieces);
            return true;
        }
    }
    *ret_is_whole = true;
    return true;
}

/* Whether the rows agree with each other, of the last since_us or of all (0). False: the database went away, or
 * refused. */
static bool prove(struct doctor *doctor, int64_t since_us, int64_t timeout_us, struct err *err)
{
    struct proof proof = {.doctor = doctor, .timeout_us = timeout_us};
    bool is_whole = false, goes_on = false;
    stop_watch();
    if (!open_proof(&proof, since_us, &goes_on, err))
        return false;
    int64_t earlier = proof.broken;
    if (!read_pieces(&proof, since_us > 0 ? proof.from : pg_param_null(), &is_whole, err))
        return false;
    if (is_whole)
        report_all(&proof, earlier, goes_on);
    return true;
}

static bool run_prove(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct doctor doctor = {.ctl = ctl};
    int64_t since_us = 0, timeout_us = TIMEOUT_US;
    const char *since = NULL, *timeout = NULL;
    const struct option_spec specs[] = {
        {.name = "since", .text = &since}, {.name = "timeout", .text = &timeout}, {.name = NULL}};
    return options_alone(specs, "prove", arguments, count, err) && options_span("since", since, &since_us, err) &&
           options_span("timeout", timeout, &timeout_us, err) && ctl_connect(ctl, err) &&
           prove(&doctor, since_us, timeout_us, err) && doctor_end(&doctor, err);
}

const struct ctl_command ctl_prove = {
    .word = "prove",
    .usage = "[--since D] [--timeout D]",
    .summary = "check all rows: nothing was lost or doubled",
    .help =
        "Checks that accepted = ended + open, that keys fit their events and cards their requests, that ends are\n"
        "sent to their route, and that the statistics are right. Each line is ok, or FAIL with a fix. It reads piece\n"
        "by piece, and pauses for half of the time. If it was stopped, the same command continues within a day. A\n"
        "whole run is recorded; a metric says how long ago it began. It cannot see a request of which all rows are\n"
        "missing, as after the restore of an older backup.\n\n"
        "  --since D    only what was created within the last D (12h, 7d); such a run is not recorded\n"
        "  --timeout D  for each check of a piece, by default 60s: a check that takes longer is a FAIL\n\n"
        "Exit 0 when nothing FAILs, 1 otherwise, 75 when the database is away.\n",
    .run = run_prove,
};
