/* issuing-ctl doctor: checks that everything is as these programs need it.
 *
 * Each check is one line: ok, warn or FAIL; the last two name the fix. A check that cannot be made because an earlier
 * one failed is skipped. Nothing is changed.
 * Left out: the issuer and core-api, which issuing-ctl never calls. What workers see of them is shown, and with --issuer
 * a worker calls them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/core/outbox.h"
#include "common/core/schema.h"
#include "common/lib/base/clock.h"
#include "ctl/ctl.h"
#include "ctl/doctor/doctor.h"
#include "ctl/held.h"
#include "ctl/options.h"
#include "ctl/places.h"
#include "ctl/print.h"
#include "migrations.h"
#include "statements.h"

#define SKEW_MAX_US (INT64_C(2) * 1000 * 1000)
#define POOLED_AGE_US (INT64_C(3) * 1000 * 1000)

enum fact {
    VERSION_NUM,
    ROLE,
    IS_SUPERUSER,
    IN_RECOVERY,
    SYNCHRONOUS_COMMIT,
    FSYNC,
    FULL_PAGE_WRITES,
    AUTOVACUUM,
    TRACK_COUNTS,
    ENCODING,
    NOW,
    BACKEND_AGE,
    ASYNC_ROLES,
    DATABASE,
    STANDBY_NAMES,
    SYNC_STANDBYS,
    LOCKS
};

#define LOCKS_LEAST 128 /* on average; an acceptance takes up to 160 */
#define ISSUER_TIMEOUT_US (INT64_C(30) * 1000 * 1000)
#define CREATE_TIMEOUT_US (INT64_C(90) * 1000 * 1000)
#define ISSUER_TIMEOUT_MAX_US (INT64_C(3600) * 1000 * 1000)

static const char *text_of(const struct pg_rows *rows, int column)
{
    const char *text = pg_bytes(rows, 0, column).bytes;
    return text ? text : "?";
}

static bool is_on(const struct pg_rows *rows, int column)
{
    return strcmp(text_of(rows, column), "on") == 0;
}

static void check_server(struct doctor *doctor, const struct pg_rows *facts)
{
    int64_t version = pg_int8(facts, 0, VERSION_NUM);
    char fix[40];
    snprintf(fix, sizeof(fix), "use PostgreSQL %d or later", POSTGRES_LEAST);
    doctor_report(doctor, "database", version / 10000 >= POSTGRES_LEAST, fix,
                  "PostgreSQL %" PRId64 ".%" PRId64 ", database %s as %s%s", version / 10000, version % 10000,
                  text_of(facts, DATABASE), text_of(facts, ROLE),
                  pg_bool(facts, 0, IS_SUPERUSER) ? " (superuser)" : "");
    doctor_report(doctor, "writable", !pg_bool(facts, 0, IN_RECOVERY),
                  "connect to the primary: list all hosts in database.url and add target_session_attrs=read-write",
                  "the server is %s",
                  pg_bool(facts, 0, IN_RECOVERY) ? "a standby and cannot be written to" : "a primary");
    doctor_report(doctor, "encoding", strcasecmp(text_of(facts, ENCODING), "UTF8") == 0,
                  "create the database with ENCODING 'UTF8'", "%s", text_of(facts, ENCODING));
}

static void check_standbys(struct doctor *doctor, const struct pg_rows *facts)
{
    const char *names = text_of(facts, STANDBY_NAMES);
    int64_t count = pg_int8(facts, 0, SYNC_STANDBYS);
    if (!names[0])
        doctor_note(doctor, "standbys", "none is synchronous: a failover would lose the last accepted requests");
    else if (strcmp(text_of(facts, SYNCHRONOUS_COMMIT), "local") == 0)
        doctor_report(doctor, "standbys", false, "set synchronous_commit = on",
                      "synchronous_standby_names = %s, but commits do not wait for them (synchronous_commit = local)",
                      names);
    else if (pg_is_null(facts, 0, SYNC_STANDBYS))
        doctor_report(doctor, "standbys", true, NULL,
                      "synchronous_standby_names = %s (whether one is connected only pg_monitor may see)", names);
    else
        doctor_report(doctor, "standbys", count > 0,
                      "start the standby, or change synchronous_standby_names; never cancel the sessions that wait",
                      "synchronous_standby_names = %s, %" PRId64 " connected%s", names, count,
                      count > 0 ? "" : ": every commit waits");
}

static void check_durability(struct doctor *doctor, const struct pg_rows *facts)
{
    const char *commit = text_of(facts, SYNCHRONOUS_COMMIT);
    bool someone = !pg_is_null(facts, 0, ASYNC_ROLES);
    doctor_report(
        doctor, "commits", strcmp(commit, "off") != 0 && !someone,
        "set synchronous_commit = on, and ALTER ROLE/DATABASE ... RESET synchronous_commit: a commit that a crash "
        "loses is an accepted request that is lost",
        "synchronous_commit = %s%s%s", commit, someone ? ", but off for " : "",
        someone ? text_of(facts, ASYNC_ROLES) : "");
    check_standbys(doctor, facts);
    doctor_report(
        doctor, "durability", is_on(facts, FSYNC) && is_on(facts, FULL_PAGE_WRITES),
        "set fsync = on and full_page_writes = on in postgresql.conf, or a power cut may lose accepted requests",
        "fsync = %s, full_page_writes = %s", text_of(facts, FSYNC), text_of(facts, FULL_PAGE_WRITES));
    doctor_report(
        doctor, "autovacuum", is_on(facts, AUTOVACUUM) && is_on(facts, TRACK_COUNTS),
        "set autovacuum = on and track_counts = on: the outbox is updated all the time and grows slow without",
        "autovacuum = %s, track_counts = %s", text_of(facts, AUTOVACUUM), text_of(facts, TRACK_COUNTS));
}

static void check_lock_table(struct doctor *doctor, const struct pg_rows *facts)
{
    int64_t locks = pg_int8(facts, 0, LOCKS);
    if (locks >= LOCKS_LEAST)
        doctor_report(doctor, "lock table", true, NULL, "max_locks_per_transaction = %" PRId64, locks);
    else
        doctor_warn(
            doctor, "lock table",
            "set max_locks_per_transaction = 128 and restart PostgreSQL: where the lock table is full, requests "
            "are refused (53200)",
            "max_locks_per_transaction = %" PRId64, locks);
}

/* before_us, after_us: this machine's clock before and after the query. */
static void check_clock(struct doctor *doctor, const struct pg_rows *facts, int64_t before_us, int64_t after_us)
{
    int64_t database_us = pg_time_us(facts, 0, NOW);
    int64_t skew_us = database_us < before_us  ? before_us - database_us
                      : database_us > after_us ? database_us - after_us
                                               : 0;
    char span[PRINT_SPAN_SIZE];
    doctor_report(doctor, "clock", skew_us <= SKEW_MAX_US,
                  "let NTP (chrony, systemd-timesyncd) run on both machines; tokens are checked by this one's clock",
                  "this machine is %s%s the database", skew_us < 1000 ? "in step with" : print_span(skew_us, span),
                  skew_us < 1000            ? ""
                  : database_us < before_us ? " ahead of"
                                            : " behind");
}

/* A pooler may pass on the process that the server named; then only its age shows the pooler. */
static void check_pooler(struct doctor *doctor, const struct pg_rows *facts)
{
    if (pg_sync_is_pooled(doctor->ctl->db) || pg_int8(facts, 0, BACKEND_AGE) > POOLED_AGE_US)
        doctor_report(
            doctor, "connection", true, NULL,
            "a pooler is in between: fine for api and worker (wake-ups may be lost, and work is then found by "
            "polling), but migrate needs a direct connection");
    else
        doctor_report(doctor, "connection", true, NULL, "direct, as far as can be seen");
}

/* *ret_fits: the schema is there and has the version that this program expects. */
static bool check_schema(struct doctor *doctor, bool *ret_fits, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    int64_t version = 0;
    *ret_fits = false;
    if (pg_sync_query(doctor->ctl->db, &sql_schema_version, NULL, &rows, err)) {
        version = pg_int8(rows, 0, 0);
    } else if (err_is_sqlstate(err, "42501")) {
        doctor_report(doctor, "schema", false, "connect as issuing_operator, or grant this role issuing_operator",
                      "this role may not read schema_migration");
        return true;
    } else if (!err_is_sqlstate(err, "42P01")) {
        return false;
    }
    *ret_fits = version == migrations_count;
    doctor_report(doctor, "schema", *ret_fits,
                  version < migrations_count ? "run issuing-ctl migrate" : "use the newer issuing-ctl and daemons",
                  "version %" PRId64 ", this program expects %d", version, migrations_count);
    *ret_fits = *ret_fits && doctor_check_place(doctor, rows);
    if (*ret_fits && doctor->ctl->config->database.places > 1)
        doctor_check_servers(doctor, doctor->where, sizeof(doctor->where));
    return true;
}

static bool check_roles(struct doctor *doctor, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    char missing[160] = "", super[160] = "";
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_roles, NULL, &rows, err))
        return false;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        bool there = pg_bool(rows, row, 1);
        if (!there && pg_bool(rows, row, 3)) {
            doctor_warn(doctor, "roles",
                        "run issuing-ctl migrate as a superuser, or CREATE ROLE issuing_viewer LOGIN and migrate",
                        "missing: %s, with which people look and change nothing", pg_bytes(rows, row, 0).bytes);
            continue;
        }
        char *list = !there ? missing : pg_bool(rows, row, 2) ? super : NULL;
        if (list)
            snprintf(list + strlen(list), sizeof(missing) - strlen(list), " %s", pg_bytes(rows, row, 0).bytes);
    }
    if (missing[0])
        doctor_report(doctor, "roles", false,
                      "run issuing-ctl migrate as a superuser, or CREATE ROLE ... LOGIN for each and migrate again",
                      "missing:%s", missing);
    else if (super[0])
        doctor_report(doctor, "roles", false,
                      "ALTER ROLE ... NOSUPERUSER: a superuser reads card numbers and edits the audit trail",
                      "superuser:%s", super);
    else
        doctor_report(doctor, "roles", true, NULL, "those that the programs need");
    return true;
}

static bool check_rights(struct doctor *doctor, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_text(schema_rights, strlen(schema_rights))};
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_rights, params, &rows, err))
        return false;
    if (pg_rows_count(rows) == 0)
        doctor_report(doctor, "rights", true, NULL, "each role has exactly what it needs; PUBLIC has nothing");
    for (int row = 0; row < pg_rows_count(rows); row++) {
        const char *column = pg_bytes(rows, row, 2).bytes;
        bool wanted = pg_bool(rows, row, 4);
        doctor_report(doctor, "rights", false,
                      wanted ? "run issuing-ctl migrate as the owner of the tables: it grants the rights again"
                             : "run issuing-ctl migrate, which takes it back from our roles, or REVOKE it",
                      "%s %s %s %s%s%s", pg_bytes(rows, row, 0).bytes, wanted ? "may not" : "may, and should not,",
                      pg_bytes(rows, row, 3).bytes, pg_bytes(rows, row, 1).bytes, column ? "." : "",
                      column ? column : "");
    }
    return true;
}

static bool check_guards(struct doctor *doctor, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_access, NULL, &rows, err))
        return false;
    bool all_fine = true;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        const char *what = pg_bytes(rows, row, 1).bytes, *fix = pg_bytes(rows, row, 2).bytes;
        if (pg_bool(rows, row, 0)) {
            doctor_warn(doctor, "access", fix, "%s", what);
        } else {
            doctor_report(doctor, "access", false, fix, "%s", what);
            all_fine = false;
        }
    }
    if (all_fine)
        doctor_report(
            doctor, "access", true, NULL,
            "owners, search_path, functions of the owner, memberships: no other role's code runs as one of our roles");
    return true;
}

/* Whether a program has seen commits that are not here. */
static bool check_history(struct doctor *doctor, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    char time[PRINT_TIME_SIZE];
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_doctor_history, NULL, &rows, err))
        return false;
    if (pg_is_null(rows, 0, 0))
        doctor_report(doctor, "history", true, NULL, "no program has seen commits that this database lacks");
    else
        doctor_report(doctor, "history", false,
                      "docs/database.md, Backups and failover; then issuing-ctl accept-history --reason TEXT",
                      "programs have not used it since %s, because it lacks acknowledged commits: %.400s",
                      print_time(pg_time_us(rows, 0, 1), time), pg_bytes(rows, 0, 0).bytes);
    return true;
}

static bool read_retention(struct doctor *doctor, const char *name, int64_t *ret_kept_ms, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_text(name, strlen(name))};
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_retention, params, &rows, err))
        return false;
    *ret_kept_ms = pg_int8(rows, 0, 0);
    return true;
}

/* A worker raises it with its first pass, only the owner lowers it. */
static bool check_numbers(struct doctor *doctor, struct err *err)
{
    int64_t kept_ms, wanted_ms = doctor->ctl->config->card.number_retention_ms, ever_ms = INT64_C(36600) * 86400000;
    char kept[PRINT_SPAN_SIZE], wanted[PRINT_SPAN_SIZE], fix[160];
    if (!read_retention(doctor, "numbers", &kept_ms, err))
        return false;
    snprintf(fix, sizeof(fix),
             "when all workers have the option, as the owner: SELECT issuing.set_retention('numbers', "
             "'%s')",
             print_span(wanted_ms * 1000, wanted));
    if (kept_ms == wanted_ms && kept_ms >= ever_ms && doctor->ctl->config->card.store == CARD_STORE_ENCRYPTED)
        doctor_note(doctor, "kept numbers",
                    "the number of a closed card is stored for ever; card.number_retention ends that");
    else
        doctor_report(doctor, "kept numbers", kept_ms == wanted_ms,
                      kept_ms > wanted_ms ? fix : "start the workers with this configuration: each raises it",
                      "the database keeps numbers of closed cards for %s, and card.number_retention is %s",
                      print_span(kept_ms * 1000, kept), print_span(wanted_ms * 1000, wanted));
    return true;
}

/* Each api and each worker raises it at its start, so only the owner can have made it shorter since. */
static bool check_retention(struct doctor *doctor, struct err *err)
{
    int64_t wanted_ms = doctor->ctl->config->idempotency.retention_ms;
    char kept[PRINT_SPAN_SIZE], wanted[PRINT_SPAN_SIZE];
    int64_t kept_ms;
    if (!read_retention(doctor, "keys", &kept_ms, err))
        return false;
    doctor_report(doctor, "retention", kept_ms >= wanted_ms,
                  "start the api and the workers with this configuration: each raises it at its start",
                  "the database keeps client keys for %s, and idempotency.retention is %s",
                  print_span(kept_ms * 1000, kept), print_span(wanted_ms * 1000, wanted));
    return true;
}

/* *ret_is_held: our tables cannot be read. */
static bool check_held(struct doctor *doctor, bool *ret_is_held, struct err *err)
{
    struct held held;
    if (!held_look(doctor->ctl->db, &held, err))
        return false;
    for (int i = 0; i < held.count; i++)
        doctor_report(doctor, "tables", false,
                      "end it: SELECT pg_terminate_backend(PID); a prepared transaction: ROLLBACK PREPARED",
                      "%s: what is in our tables was not checked", held.texts[i]);
    *ret_is_held = held.count > 0;
    return true;
}

/* What our tables say. *ret_fits: false, and nothing was asked, where they cannot be read. */
static bool check_tables(struct doctor *doctor, bool *ret_fits, struct err *err)
{
    bool is_held = false;
    *ret_fits = false;
    /* guard: doctor names who has locked a table before it reads one */
    if (!check_held(doctor, &is_held, err))
        return false;
    if (is_held)
        return check_roles(doctor, err);
    return check_schema(doctor, ret_fits, err) && check_roles(doctor, err) &&
           (!*ret_fits ||
            (check_rights(doctor, err) && check_guards(doctor, err) && check_history(doctor, err) &&
             check_retention(doctor, err) && check_numbers(doctor, err) && doctor_check_running(doctor, err) &&
             doctor_check_trial(doctor, err) && doctor_check_locks(doctor, err) && doctor_check_server(doctor, err)));
}

/* False: the database went away, or refused a query that every role may make. */
static bool check_database(struct doctor *doctor, bool *ret_fits, struct err *err)
{
    pg_rows_scope struct pg_rows *facts = NULL;
    int64_t before_us = clock_wall_us();
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_doctor, NULL, &facts, err))
        return false;
    int64_t after_us = clock_wall_us();
    check_server(doctor, facts);
    if (!check_tables(doctor, ret_fits, err))
        return false;
    check_durability(doctor, facts);
    check_lock_table(doctor, facts);
    check_clock(doctor, facts, before_us, after_us);
    check_pooler(doctor, facts);
    return true;
}

/* What is checked beside the database, by the command line. */
struct doctor_options {
    bool issuer, creates;
    const char *user;
    int64_t timeout_us;
    char where[CONFIG_PLACES_MAX][DOCTOR_WHERE_SIZE]; /* found: the server of each place, as in struct doctor */
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
    if (!options_read(specs, arguments, count, &count, err) ||
        !options_span("timeout", timeout, &options.timeout_us, err))
        return false;
    if (count > 0)
        return err_set(err, ERR_USAGE, "doctor takes no argument");
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

/* *ret_code: what the exit code is by the issuer's check alone. */
static bool check_issuer(struct doctor *doctor, const struct doctor_options *options, int *ret_code, struct err *err)
{
    bool is_answered;
    if (!doctor_check_target(doctor, "issuer", options->user, options->creates, options->timeout_us / 1000,
                             &is_answered, err))
        return false;
    *ret_code = is_answered ? CTL_DONE : CTL_AWAY;
    return true;
}

/* A database that no command may use is looked at all the same; of a place on several servers the one that serves it. */
static bool connect(struct ctl *ctl, struct err *err)
{
    return (ctl->config->database.places > 1 && ctl_connect(ctl, err)) || ctl_connect_only(ctl, err);
}

/* Everything that needs the database. */
static bool check_all(struct doctor *doctor, const struct doctor_options *options, int *ret_code, struct err *err)
{
    bool fits = false;
    return connect(doctor->ctl, err) && check_database(doctor, &fits, err) &&
           (!options->issuer || !fits || check_issuer(doctor, options, ret_code, err));
}

static int run_in_place(struct ctl *ctl, void *context)
{
    struct doctor_options *options = context;
    struct doctor doctor = {.ctl = ctl};
    struct err err;
    int code = CTL_DONE;
    if (!check_all(&doctor, options, &code, &err)) {
        const char *hint = ctl_hint(&err);
        const char *fix =
            err_is_sqlstate(&err, "55P03")
                ? "end the session that holds the lock: pg_locks and pg_stat_activity name it"
            : err_is_sqlstate(&err, "53200")
                ? "the lock table is full: end the session that holds most of pg_locks, or raise "
                  "max_locks_per_transaction"
            : hint                   ? hint
            : err.kind == ERR_AWAY   ? "start PostgreSQL, or correct database.url (PGHOST, ... where it is not set)"
            : err.kind == ERR_CONFIG ? "correct database.url (PGHOST, ... where it is not set) as this says"
                                     : "the server's log has more about it";
        doctor_report(&doctor, "database", false, fix, "%s", err.message);
        code = err_exit_code(err.kind);
    }
    doctor_check_setup(&doctor);
    memcpy(options->where[ctl->place], doctor.where, sizeof(doctor.where));
    int found = doctor_code(&doctor);
    return code != CTL_DONE && !doctor.lost ? code : found;
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

static int run_doctor(struct ctl *ctl, char **arguments, int count)
{
    struct doctor_options options;
    struct err err;
    if (!read_options(arguments, count, &options, &err))
        return ctl_fail(&err);
    if (!ctl->is_over_all)
        return run_in_place(ctl, &options);
    int code = places_each(ctl, run_in_place, &options);
    if (!ctl->json)
        print_servers(&options, (int)ctl->config->database.places);
    return code;
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
