/* issuing-ctl doctor: checks that everything is as these programs need it.
 *
 * Each check is one line: ok, warn or FAIL; the last two name the fix. A check that cannot be made because an earlier
 * one failed is skipped. Nothing is changed. issuing-ctl never calls the issuer or core-api: it shows what workers
 * report of them, and with --issuer a worker calls them. */
#include <stdio.h>
#include <string.h>

#include "common/core/outbox.h"
#include "ctl/ctl.h"
#include "ctl/doctor/doctor.h"
#include "ctl/options.h"
#include "ctl/places.h"

#define ISSUER_TIMEOUT_US (INT64_C(30) * 1000 * 1000)
#define CREATE_TIMEOUT_US (INT64_C(90) * 1000 * 1000)
#define ISSUER_TIMEOUT_MAX_US (INT64_C(3600) * 1000 * 1000)

/* What is checked beside the database, by the command line. */
struct doctor_options {
    bool issuer, creates;
    const char *user;
    int64_t timeout_us;
    char where[CONFIG_PLACES_MAX][PLACE_WHERE_SIZE]; /* found: the server of each place, as in struct doctor */
};

static bool read_options(char **arguments, int count, struct doctor_options *ret_options, struct err *err)
{
    struct doctor_options options = {.timeout_us = ISSUER_TIMEOUT_US};
    const char *timeout = NULL;
    const struct option_spec specs[] = {{.name = "create", .flag = &options.creates},
                                        {.name = "issuer", .flag = &options.issuer},
                                        {.name = "timeout", .text = &timeout},
                                        {.name = "user", .text = &options.user},
                                        {.name = NULL}};
    if (!options_alone(specs, "doctor", arguments, count, err) ||
        !options_span("timeout", timeout, &options.timeout_us, err))
        return false;
    if (!options.issuer && timeout)
        return err_set(err, ERR_USAGE, "--timeout belongs to --issuer");
    if (options.creates && !(options.issuer && options.user))
        return err_set(err, ERR_USAGE, "--create belongs to --issuer and --user USER");
    if (options.creates && !timeout)
        options.timeout_us = CREATE_TIMEOUT_US;
    if (!options.issuer && options.user)
        return err_set(err, ERR_USAGE, "--user belongs to --issuer");
    if (options.user && (!options.user[0] || strlen(options.user) > OUTBOX_USER_ID_MAX))
        return err_set(err, ERR_USAGE, "--user needs a user id of 1 to %d bytes", OUTBOX_USER_ID_MAX);
    if (options.timeout_us > ISSUER_TIMEOUT_MAX_US)
        return err_set(err, ERR_USAGE, "--timeout is at most an hour");
    *ret_options = options;
    return true;
}

/* The exit code is by the issuer's check alone, at first. */
static bool check_issuer(struct doctor *doctor, const struct doctor_options *options, struct err *err)
{
    bool is_answered;
    if (!doctor_check_target(doctor, "issuer", options->user, options->creates, options->timeout_us / 1000,
                             &is_answered, err))
        return false;
    doctor->ctl->code = is_answered ? CTL_DONE : CTL_AWAY;
    return true;
}

/* A database that no command may use is looked at all the same; of a place on several servers the one that serves
 * it. */
static bool connect(struct ctl *ctl, struct err *err)
{
    return (ctl->config->database.places > 1 && ctl_connect(ctl, err)) || ctl_connect_only(ctl, err);
}

/* Everything that needs the database. */
static bool check_all(struct doctor *doctor, const struct doctor_options *options, struct err *err)
{
    bool fits = false;
    return connect(doctor->ctl, err) && doctor_check_database(doctor, &fits, err) &&
           (!options->issuer || !fits || check_issuer(doctor, options, err));
}

static bool run_in_place(struct ctl *ctl, void *context, struct err *err)
{
    struct doctor_options *options = context;
    struct doctor doctor = {.ctl = ctl};
    if (!check_all(&doctor, options, err)) {
        const char *hint = ctl_hint(err);
        const char *fix =
            err_is_sqlstate(err, "55P03") ? "end the session that holds the lock: pg_locks and pg_stat_activity name it"
            : err_is_sqlstate(err, "53200")
                ? "the lock table is full: end the session that holds most of pg_locks, or raise "
                  "max_locks_per_transaction"
            : hint                    ? hint
            : err->kind == ERR_AWAY   ? "start PostgreSQL, or correct database.url (PGHOST, ... where it is not set)"
            : err->kind == ERR_CONFIG ? "correct database.url (PGHOST, ... where it is not set) as this says"
                                      : "the server's log has more about it";
        doctor_report(&doctor, "database", false, fix, "%s", err->message);
        ctl->code = err_exit_code(err->kind);
    }
    doctor_check_setup(&doctor);
    memcpy(options->where[ctl->place], doctor.where, sizeof(doctor.where));
    return doctor_end(&doctor, err);
}

/* How many places each server serves; for people. */
static void print_servers(const struct doctor_options *options, int places)
{
    for (int place = 0; place < places; place++) {
        int count = 0, before = 0;
        for (int other = 0; other < places; other++)
            if (strcmp(options->where[other], options->where[place]) == 0)
                count++, before += other < place;
        if (before == 0)
            printf("%s%s: %d of %d places", place == 0 ? "\n" : "; ",
                   options->where[place][0] ? options->where[place] : "not known or not served", count, places);
    }
    putchar('\n');
}

static bool run_doctor(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct doctor_options options;
    if (!read_options(arguments, count, &options, err))
        return false;
    if (!ctl->is_over_all)
        return run_in_place(ctl, &options, err);
    places_each(ctl, run_in_place, &options);
    if (!ctl->json)
        print_servers(&options, (int)ctl->config->database.places);
    return true;
}

const struct ctl_command ctl_doctor = {
    .word = "doctor",
    .usage = "[--issuer [--user USER [--create]] [--timeout D]]",
    .summary = "check the database, its rights, the workers, the settings, and the issuer",
    .help =
        "Checks the database (reachable, version, writable, encoding), the schema, the roles and their rights,\n"
        "which must be exactly those of the release, owners, search_path, functions that run as the owner and\n"
        "memberships, which workers run and whether their targets take calls, the settings that keep commits\n"
        "safe, standbys, autovacuum, the clocks, whether there is a pooler, whether the database's host is proven,\n"
        "and, where they are configured here, the keys file and what tokens are accepted. Of several places it checks\n"
        "each, whether its database is that place, which server serves it and which has an old copy, and says how\n"
        "many each server serves. Each line is ok, warn or FAIL; warn and FAIL have a fix.\n\n"
        "  --issuer     checks the issuer too: a worker looks up a reference that does not exist, with its own url,\n"
        "               credential and parameters, and says what is wrong with them. It makes no card and touches no\n"
        "               event; the check is in the audit trail (issuing-ctl audit)\n"
        "  --user USER  asks core-api about this user first, and says which parameters are missing in its answer\n"
        "  --create     in the issuer's test mode only: a worker makes one card for this user, asks for it again "
        "under\n"
        "               its key, looks it up until it is shown, which tells what issuer.settle_time must exceed,\n"
        "               reveals it where numbers are stored, freezes and closes it, and tries what the vendor's\n"
        "               documents leave open; doctor shows the answers from then on\n"
        "  --timeout D  how long to wait for a worker; by default 30s, with --create 90s\n\n"
        "Exit 0 when nothing FAILs, 1 otherwise, 75 when the database is away or no worker answers in time, 78 when\n"
        "the database refuses the role.\n",
    .run = run_doctor,
    .in_places = CTL_OVER_ALL,
};
