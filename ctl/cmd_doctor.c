/* issuing-ctl doctor: is everything as these programs need it?
 *
 * Each check is one line, ok or FAIL, and a FAIL comes with what to do. A check that cannot be made because an earlier
 * one failed is left out. Nothing is changed. Left out: the issuer and core-api, which ctl never talks to;
 * `issuing-worker` shows them in its metrics. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/clock.h"
#include "common/keyring.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "migrations.h"
#include "statements.h"

#define SERVER_VERSION_MIN 140000
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
    ISOLATION,
    ENCODING,
    NOW,
    BACKEND_AGE,
    ASYNC_ROLES,
    DATABASE
};

struct doctor {
    struct ctl *ctl;
    int failures;
    bool lost; /* a line could not be printed: out of memory */
};

/* One line. fix: shown when it is not ok. */
static void __attribute__((format(printf, 5, 6)))
say(struct doctor *doctor, const char *check, bool ok, const char *fix, const char *format, ...)
{
    char found[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(found, sizeof(found), format, arguments);
    va_end(arguments);
    doctor->failures += !ok;
    if (doctor->ctl->json) {
        struct json *object = json_new_object();
        if (object && json_set_text(object, "check", check) && json_set(object, "ok", json_new_bool(ok)) &&
            json_set_text(object, "found", found) && json_set_text(object, "fix", ok ? NULL : fix)) {
            doctor->lost |= !print_json(object, stdout);
            return;
        }
        json_free(object);
        doctor->lost = true;
        return;
    }
    printf("%-5s %-12s ", ok ? "ok" : "FAIL", check);
    print_text(found, stdout);
    putchar('\n');
    if (!ok)
        printf("      %-12s fix: %s\n", "", fix);
}

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
    say(doctor, "database", version >= SERVER_VERSION_MIN, "use PostgreSQL 14 or later",
        "PostgreSQL %" PRId64 ".%" PRId64 ", database %s as %s%s", version / 10000, version % 10000,
        text_of(facts, DATABASE), text_of(facts, ROLE), pg_bool(facts, 0, IS_SUPERUSER) ? " (superuser)" : "");
    say(doctor, "writable", !pg_bool(facts, 0, IN_RECOVERY),
        "connect to the primary: list all hosts in database.url and add target_session_attrs=read-write",
        "the server is %s", pg_bool(facts, 0, IN_RECOVERY) ? "a standby and cannot be written to" : "a primary");
    say(doctor, "encoding", strcasecmp(text_of(facts, ENCODING), "UTF8") == 0,
        "create the database with ENCODING 'UTF8'", "%s", text_of(facts, ENCODING));
}

static void check_durability(struct doctor *doctor, const struct pg_rows *facts)
{
    const char *commit = text_of(facts, SYNCHRONOUS_COMMIT);
    bool someone = !pg_is_null(facts, 0, ASYNC_ROLES);
    say(doctor, "commits", strcmp(commit, "off") != 0 && !someone,
        "set synchronous_commit = on, and ALTER ROLE/DATABASE ... RESET synchronous_commit: a commit that a crash "
        "loses is an accepted request that is lost",
        "synchronous_commit = %s%s%s", commit, someone ? ", but off for " : "",
        someone ? text_of(facts, ASYNC_ROLES) : "");
    say(doctor, "disk", is_on(facts, FSYNC) && is_on(facts, FULL_PAGE_WRITES),
        "set fsync = on and full_page_writes = on in postgresql.conf, or a power cut may lose accepted requests",
        "fsync = %s, full_page_writes = %s", text_of(facts, FSYNC), text_of(facts, FULL_PAGE_WRITES));
    say(doctor, "autovacuum", is_on(facts, AUTOVACUUM) && is_on(facts, TRACK_COUNTS),
        "set autovacuum = on and track_counts = on: the outbox is updated all the time and grows slow without",
        "autovacuum = %s, track_counts = %s", text_of(facts, AUTOVACUUM), text_of(facts, TRACK_COUNTS));
    say(doctor, "isolation", strcmp(text_of(facts, ISOLATION), "read committed") == 0,
        "reset default_transaction_isolation: requests are accepted under read committed only",
        "default_transaction_isolation = %s", text_of(facts, ISOLATION));
}

/* before, after: this machine's clock around the question. */
static void check_clock(struct doctor *doctor, const struct pg_rows *facts, int64_t before_us, int64_t after_us)
{
    int64_t database_us = pg_time_us(facts, 0, NOW);
    int64_t skew_us = database_us < before_us  ? before_us - database_us
                      : database_us > after_us ? database_us - after_us
                                               : 0;
    char span[PRINT_SPAN_SIZE];
    say(doctor, "clock", skew_us <= SKEW_MAX_US,
        "let NTP (chrony, systemd-timesyncd) run on both machines; tokens are checked by this one's clock",
        "this machine is %s%s the database", skew_us < 1000 ? "in step with" : print_span(skew_us, span),
        skew_us < 1000            ? ""
        : database_us < before_us ? " ahead of"
                                  : " behind");
}

static void check_pooler(struct doctor *doctor, const struct pg_rows *facts)
{
    int64_t age_us = pg_int8(facts, 0, BACKEND_AGE);
    char span[PRINT_SPAN_SIZE];
    if (age_us > POOLED_AGE_US)
        say(doctor, "connection", true, NULL,
            "the server's process is %s old, so a pooler stands between: fine for api and worker (wake-ups may be "
            "lost), but migrate needs a "
            "direct connection",
            print_span(age_us, span));
    else
        say(doctor, "connection", true, NULL,
            "direct, as far as can be seen (a pooler would be fine for api and worker, not for migrate)");
}

/* ret_fits: the tables are there and as this program knows them. */
static bool check_schema(struct doctor *doctor, bool *ret_fits, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    int64_t version = 0;
    *ret_fits = false;
    if (pg_sync_ask(doctor->ctl->db, &sql_schema_version, NULL, &rows, err)) {
        version = pg_int8(rows, 0, 0);
    } else if (strcmp(pg_sync_sqlstate(doctor->ctl->db), "42501") == 0) {
        say(doctor, "schema", false, "connect as issuing_operator, or grant this role issuing_operator",
            "this role may not read schema_migration");
        return true;
    } else if (strcmp(pg_sync_sqlstate(doctor->ctl->db), "42P01") != 0) {
        return false;
    }
    *ret_fits = version == migrations_count;
    say(doctor, "schema", *ret_fits,
        version < migrations_count ? "run issuing-ctl migrate" : "use the newer issuing-ctl and daemons",
        "version %" PRId64 ", this program expects %d", version, migrations_count);
    return true;
}

static bool check_roles(struct doctor *doctor, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    char missing[160] = "", super[160] = "";
    if (!pg_sync_ask(doctor->ctl->db, &sql_operator_roles, NULL, &rows, err))
        return false;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        bool there = pg_bool(rows, row, 1);
        char *list = !there ? missing : pg_bool(rows, row, 2) ? super : NULL;
        if (list)
            snprintf(list + strlen(list), sizeof(missing) - strlen(list), " %s", pg_bytes(rows, row, 0).bytes);
    }
    if (missing[0])
        say(doctor, "roles", false,
            "run issuing-ctl migrate as a superuser, or CREATE ROLE ... LOGIN for each and migrate again", "missing:%s",
            missing);
    else if (super[0])
        say(doctor, "roles", false,
            "ALTER ROLE ... NOSUPERUSER: a superuser reads card numbers and edits the audit trail", "superuser:%s",
            super);
    else
        say(doctor, "roles", true, NULL, "issuing_owner, issuing_api, issuing_worker, issuing_operator");
    return true;
}

static bool check_rights(struct doctor *doctor, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_ask(doctor->ctl->db, &sql_operator_rights, NULL, &rows, err))
        return false;
    if (pg_rows_count(rows) == 0)
        say(doctor, "rights", true, NULL,
            "each role that exists has what it needs; card numbers and the audit trail are guarded");
    for (int row = 0; row < pg_rows_count(rows); row++) {
        const char *column = pg_bytes(rows, row, 2).bytes;
        bool wanted = pg_bool(rows, row, 4);
        say(doctor, "rights", false,
            wanted ? "run issuing-ctl migrate as the owner of the tables: it grants the rights again" : "REVOKE it",
            "%s %s %s %s%s%s", pg_bytes(rows, row, 0).bytes, wanted ? "may not" : "may, and should not,",
            pg_bytes(rows, row, 3).bytes, pg_bytes(rows, row, 1).bytes, column ? "." : "", column ? column : "");
    }
    return true;
}

static void check_keys(struct doctor *doctor)
{
    const char *path = doctor->ctl->config->card.keys_file;
    struct keyring *keyring = NULL;
    struct err err;
    if (!path) {
        say(doctor, "keys", true, NULL, "card.keys_file is not set here, nothing to check");
        return;
    }
    if (!keyring_load(path, &keyring, &err)) {
        say(doctor, "keys", false,
            "point card.keys_file to a file made by issuing-ctl keys generate, readable by this user", "%s",
            err.message);
        return;
    }
    say(doctor, "keys", true, NULL, "%s, active key %" PRIu32, path, keyring_active_id(keyring));
    keyring_free(keyring);
}

/* false: the database went away, or refused what every role may ask. */
static bool check_database(struct doctor *doctor, struct err *err)
{
    pg_rows_scope struct pg_rows *facts = NULL;
    bool fits;
    int64_t before_us = clock_wall_us();
    if (!pg_sync_ask(doctor->ctl->db, &sql_operator_doctor, NULL, &facts, err))
        return false;
    int64_t after_us = clock_wall_us();
    check_server(doctor, facts);
    if (!check_schema(doctor, &fits, err) || !check_roles(doctor, err) || (fits && !check_rights(doctor, err)))
        return false;
    check_durability(doctor, facts);
    check_clock(doctor, facts, before_us, after_us);
    check_pooler(doctor, facts);
    return true;
}

static int run_doctor(struct ctl *ctl, char **arguments, int count)
{
    const struct option_spec none[] = {{.name = NULL}};
    struct doctor doctor = {.ctl = ctl};
    struct err err;
    if (!options_read(none, arguments, count, &count, &err))
        return ctl_fail(&err);
    if (count > 0) {
        err_set(&err, ERR_USAGE, "doctor takes no argument");
        return ctl_fail(&err);
    }
    int code = CTL_DONE;
    if (!ctl_connect_only(ctl, &err) || !check_database(&doctor, &err)) {
        say(&doctor, "database", false,
            "start PostgreSQL, or correct database.url (PGHOST, PGDATABASE, ... where it is not set)", "%s",
            err.message);
        code = err_exit_code(err.kind);
    }
    check_keys(&doctor);
    if (doctor.lost) {
        err_set(&err, ERR_MEMORY, "out of memory");
        return ctl_fail(&err);
    }
    if (!ctl->json && doctor.failures > 0)
        printf("\n%d of these need%s a hand.\n", doctor.failures, doctor.failures == 1 ? "s" : "");
    return code != CTL_DONE ? code : doctor.failures > 0 ? CTL_REFUSED : CTL_DONE;
}

const struct ctl_command ctl_doctor = {
    .word = "doctor",
    .usage = "",
    .summary = "is everything as these programs need it?",
    .help = "Checks the database (reachable, version, writable, encoding), the schema, the roles and their rights,\n"
            "the settings that keep commits safe, autovacuum, the clocks, whether a pooler stands between, and the\n"
            "keys file where one is configured. Each line is ok or FAIL with a fix.\n"
            "Exit 0 when all is ok, 1 when not, 75 when the database is away.\n",
    .run = run_doctor,
};
