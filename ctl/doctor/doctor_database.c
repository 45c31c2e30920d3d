/* The checks of doctor that look at the database: version, settings, schema, roles and rights, retentions
 * (doctor.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/core/schema.h"
#include "common/lib/base/clock.h"
#include "ctl/doctor/doctor.h"
#include "ctl/held.h"
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

static bool is_on(const struct pg_rows *rows, int column)
{
    return strcmp(doctor_text(rows, 0, column), "on") == 0;
}

static void check_server(struct doctor *doctor, const struct pg_rows *facts)
{
    int64_t version = pg_int8(facts, 0, VERSION_NUM);
    char fix[40];
    snprintf(fix, sizeof(fix), "use PostgreSQL %d or later", POSTGRES_LEAST);
    doctor_report(doctor, "database", version / 10000 >= POSTGRES_LEAST, fix,
                  "PostgreSQL %" PRId64 ".%" PRId64 ", database %s as %s%s", version / 10000, version % 10000,
                  doctor_text(facts, 0, DATABASE), doctor_text(facts, 0, ROLE),
                  pg_bool(facts, 0, IS_SUPERUSER) ? " (superuser)" : "");
    doctor_report(doctor, "writable", !pg_bool(facts, 0, IN_RECOVERY),
                  "connect to the primary: list all hosts in database.url and add target_session_attrs=read-write",
                  "the server is %s",
                  pg_bool(facts, 0, IN_RECOVERY) ? "a standby and cannot be written to" : "a primary");
    doctor_report(doctor, "encoding", strcasecmp(doctor_text(facts, 0, ENCODING), "UTF8") == 0,
                  "create the database with ENCODING 'UTF8'", "%s", doctor_text(facts, 0, ENCODING));
}

static void check_standbys(struct doctor *doctor, const struct pg_rows *facts)
{
    const char *names = doctor_text(facts, 0, STANDBY_NAMES);
    int64_t count = pg_int8(facts, 0, SYNC_STANDBYS);
    if (!names[0])
        doctor_note(doctor, "standbys", "none is synchronous: a failover would lose the last accepted requests");
    else if (strcmp(doctor_text(facts, 0, SYNCHRONOUS_COMMIT), "local") == 0)
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
    const char *commit = doctor_text(facts, 0, SYNCHRONOUS_COMMIT);
    bool someone = !pg_is_null(facts, 0, ASYNC_ROLES);
    doctor_report(
        doctor, "commits", strcmp(commit, "off") != 0 && !someone,
        "set synchronous_commit = on, and ALTER ROLE/DATABASE ... RESET synchronous_commit: a commit that a crash "
        "loses is an accepted request that is lost",
        "synchronous_commit = %s%s%s", commit, someone ? ", but off for " : "",
        someone ? doctor_text(facts, 0, ASYNC_ROLES) : "");
    check_standbys(doctor, facts);
    doctor_report(
        doctor, "durability", is_on(facts, FSYNC) && is_on(facts, FULL_PAGE_WRITES),
        "set fsync = on and full_page_writes = on in postgresql.conf, or a power cut may lose accepted requests",
        "fsync = %s, full_page_writes = %s", doctor_text(facts, 0, FSYNC), doctor_text(facts, 0, FULL_PAGE_WRITES));
    doctor_report(
        doctor, "autovacuum", is_on(facts, AUTOVACUUM) && is_on(facts, TRACK_COUNTS),
        "set autovacuum = on and track_counts = on: the outbox is updated all the time and grows slow without",
        "autovacuum = %s, track_counts = %s", doctor_text(facts, 0, AUTOVACUUM), doctor_text(facts, 0, TRACK_COUNTS));
}

static void check_lock_table(struct doctor *doctor, const struct pg_rows *facts)
{
    int64_t locks = pg_int8(facts, 0, LOCKS);
    doctor_say(doctor, locks >= LOCKS_LEAST ? DOCTOR_OK : DOCTOR_WARNING, "lock table",
               "set max_locks_per_transaction = 128 and restart PostgreSQL: where the lock table is full, requests are "
               "refused (53200)",
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
    bool is_pooled = pg_sync_is_pooled(doctor->ctl->db) || pg_int8(facts, 0, BACKEND_AGE) > POOLED_AGE_US;
    doctor_report(doctor, "connection", true, NULL, "%s",
                  is_pooled ? "a pooler is in between: fine for api and worker (wake-ups may be lost, and work is then "
                              "found by polling), but migrate needs a direct connection"
                            : "direct, as far as can be seen");
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
        doctor_check_servers(doctor);
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
                        "missing: %s, with which people look and change nothing", pg_text(rows, row, 0));
            continue;
        }
        char *list = !there ? missing : pg_bool(rows, row, 2) ? super : NULL;
        if (list)
            snprintf(list + strlen(list), sizeof(missing) - strlen(list), " %s", pg_text(rows, row, 0));
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

static void check_rights(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    const char *column = pg_text(rows, row, 2);
    bool wanted = pg_bool(rows, row, 4);
    doctor_report(doctor, "rights", false,
                  wanted ? "run issuing-ctl migrate as the owner of the tables: it grants the rights again"
                         : "run issuing-ctl migrate, which takes it back from our roles, or REVOKE it",
                  "%s %s %s %s%s%s", pg_text(rows, row, 0), wanted ? "may not" : "may, and should not,",
                  pg_text(rows, row, 3), pg_text(rows, row, 1), column ? "." : "", column ? column : "");
}

static bool check_guards(struct doctor *doctor, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_access, NULL, &rows, err))
        return false;
    bool all_fine = true;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        const char *what = pg_text(rows, row, 1), *fix = pg_text(rows, row, 2);
        bool is_warning = pg_bool(rows, row, 0);
        doctor_say(doctor, is_warning ? DOCTOR_WARNING : DOCTOR_FAIL, "access", fix, "%s", what);
        all_fine &= is_warning;
    }
    if (all_fine)
        doctor_report(
            doctor, "access", true, NULL,
            "owners, search_path, functions of the owner, memberships: no other role's code runs as one of our roles");
    return true;
}

/* Whether a program has seen commits that are not here. */
static void check_history(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    char time[PRINT_TIME_SIZE];
    if (pg_is_null(rows, row, 0))
        doctor_report(doctor, "history", true, NULL, "no program has seen commits that this database lacks");
    else
        doctor_report(doctor, "history", false,
                      "docs/database.md, Backups and failover; then issuing-ctl accept-history --reason TEXT",
                      "programs have not used it since %s, because it lacks acknowledged commits: %.400s",
                      print_time(pg_time_us(rows, row, 1), time), pg_text(rows, row, 0));
}

/* A worker raises it with its first pass, only the owner lowers it. */
static void check_numbers(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    int64_t kept_ms = pg_int8(rows, row, 0), wanted_ms = doctor->ctl->config->card.number_retention_ms,
            ever_ms = INT64_C(36600) * 86400000;
    char kept[PRINT_SPAN_SIZE], wanted[PRINT_SPAN_SIZE], fix[160];
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
}

/* Each api and each worker raises it at its start, so only the owner can have made it shorter since. */
static void check_retention(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    int64_t kept_ms = pg_int8(rows, row, 0), wanted_ms = doctor->ctl->config->idempotency.retention_ms;
    char kept[PRINT_SPAN_SIZE], wanted[PRINT_SPAN_SIZE];
    doctor_report(doctor, "retention", kept_ms >= wanted_ms,
                  "start the api and the workers with this configuration: each raises it at its start",
                  "the database keeps client keys for %s, and idempotency.retention is %s",
                  print_span(kept_ms * 1000, kept), print_span(wanted_ms * 1000, wanted));
}

/* What the last trial of the issuer has shown. */
static void note_trial(struct doctor *doctor, const struct pg_rows *rows, int row)
{
    char time[PRINT_TIME_SIZE];
    bool is_first = strcmp(doctor_text(rows, row, 1), "profile") == 0;
    doctor_note(doctor, "trial", "%s%s%s", is_first ? print_time(pg_time_us(rows, row, 0), time) : "",
                is_first ? ": " : "", doctor_text(rows, row, 2));
}

/* What only a schema of this release can be asked. */
static bool check_contents(struct doctor *doctor, struct err *err)
{
    const struct pg_param rights = pg_param_string(schema_rights);
    const struct pg_param keys = pg_param_text("keys", 4), numbers = pg_param_text("numbers", 7);
    const struct doctor_check right = {&sql_operator_rights, check_rights, &rights, "rights",
                                       "each role has exactly what it needs; PUBLIC has nothing"};
    const struct doctor_check checks[] = {
        {.statement = &sql_operator_doctor_history, .say = check_history},
        {.statement = &sql_operator_retention, .say = check_retention, .params = &keys},
        {.statement = &sql_operator_retention, .say = check_numbers, .params = &numbers},
    };
    const struct doctor_check trial = {.statement = &sql_operator_trial, .say = note_trial};
    return doctor_ask(doctor, &right, 1, err) && check_guards(doctor, err) &&
           doctor_ask(doctor, checks, ARRAY_SIZE(checks), err) && doctor_check_running(doctor, err) &&
           doctor_ask(doctor, &trial, 1, err) && doctor_check_locks(doctor, err) && doctor_check_server(doctor, err);
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

/* The checks that read our tables. *ret_fits false: they cannot be read, and nothing was asked. */
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
           (!*ret_fits || check_contents(doctor, err));
}

bool doctor_check_database(struct doctor *doctor, bool *ret_fits, struct err *err)
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
