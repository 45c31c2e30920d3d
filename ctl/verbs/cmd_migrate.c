/* issuing-ctl migrate: brings the schema to what this program expects.
 *
 * Invariants: one migrate at a time (advisory lock); upgrades, functions, rights and the rows in schema_migration are
 * one transaction, so a crash leaves the schema at a version and never between; nothing runs when the database holds
 * what this program does not know, or when an applied upgrade was edited. The files are compiled in
 * (migrations/embed_schema.py); migrations/README.md has the rules for them.
 * Left out: going back. Undo is a new upgrade. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/schema.h"
#include "common/lib/base/clock.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "ctl/stop.h"
#include "migrations.h"
#include "statements.h"

#define LOCK_TIMEOUT "3s"
#define TRIES_MAX 6
#define PAUSE_US INT64_C(250000)
#define LOCK_WAIT_MS (10 * 60 * 1000)
#define LOCK_NOTE_MS 1000

struct state {
    bool has_table;
    bool is_divided;                  /* by buckets or over schemas: made by a version that was never released */
    char connected_as[64], owner[64]; /* owner "" = not allowed to become the owner */
    struct pg_rows *applied;          /* owned; NULL without a table */
};

enum applied_column { VERSION, NAME, SHA256, APPLIED_AT, APPLIED_BY, MS };

static void state_done(struct state *state)
{
    pg_rows_free(state->applied);
    *state = (struct state){0};
}

/* For people only: a step that was done. */
static void print_step(const struct ctl *ctl, const char *what, const char *file, const char *more)
{
    if (ctl->json)
        return;
    printf("%-8s %s%s%s\n", what, file, more[0] ? "  " : "", more);
    fflush(stdout);
}

static bool read_state(struct ctl *ctl, struct state *ret_state, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct state state = {0};
    if (!pg_sync_query(ctl->db, &sql_operator_migrate_state, NULL, &rows, err))
        return false;
    state.has_table = pg_bool(rows, 0, 0);
    state.is_divided = pg_bool(rows, 0, 3);
    snprintf(state.connected_as, sizeof(state.connected_as), "%s", pg_text(rows, 0, 1));
    const char *owner = pg_text(rows, 0, 2);
    snprintf(state.owner, sizeof(state.owner), "%s", owner ? owner : "");
    if (state.has_table && !pg_sync_query(ctl->db, &sql_operator_migrate_applied, NULL, &state.applied, err))
        return false;
    *ret_state = state;
    return true;
}

static const struct migration *find_migration(int64_t version)
{
    return version >= 1 && version <= migrations_count ? &migrations[version - 1] : NULL;
}

/* -1: not applied. */
static int find_applied(const struct state *state, int version)
{
    for (int row = 0; row < pg_rows_count(state->applied); row++)
        if (pg_int8(state->applied, row, VERSION) == version)
            return row;
    return -1;
}

/* The tables of version 1 follow the upgrades, so a new program has others than the one that made the database. */
static bool checksum_fits(const struct state *state, int row, const struct migration *migration)
{
    return migration->version == 1 || strcmp(pg_text(state->applied, row, SHA256), migration->sha256) == 0;
}

static bool check_applied(const struct state *state, struct err *err)
{
    /* guard: a database that was divided is not migrated */
    if (state->is_divided)
        return err_set(err, ERR_CONFIG,
                       "an unreleased version made this database, and divides users by buckets or over schemas: it "
                       "cannot be migrated, make a new one");
    for (int row = 0; row < pg_rows_count(state->applied); row++) {
        int64_t version = pg_int8(state->applied, row, VERSION);
        const struct migration *migration = find_migration(version);
        const char *name = pg_text(state->applied, row, NAME);
        if (version == 1 && strcmp(name, migration->name) != 0)
            return err_set(err, ERR_CONFIG,
                           "an unreleased version made this database (%s): it cannot be migrated, make a new one",
                           name);
        if (!migration)
            return err_set(err, ERR_REFUSED,
                           "the database is newer than this program: it has version %" PRId64
                           " (%s), this program knows %d; use the newer "
                           "issuing-ctl",
                           version, name, migrations_count);
        if (!checksum_fits(state, row, migration))
            return err_set(err, ERR_REFUSED,
                           "%s was edited after it was applied: the database has sha256 %.64s, this program %s",
                           migration->file, pg_text(state->applied, row, SHA256), migration->sha256);
    }
    return true;
}

/* ---- running ---- */

static bool lock_migrations(struct ctl *ctl, struct err *err)
{
    int64_t started_ms = clock_mono_ms();
    bool was_noted = false;
    for (;;) {
        pg_rows_scope struct pg_rows *rows = NULL;
        if (!pg_sync_query(ctl->db, &sql_operator_migrate_lock, NULL, &rows, err))
            return false;
        if (pg_bool(rows, 0, 0))
            return true;
        int64_t waited_ms = clock_mono_ms() - started_ms;
        if (waited_ms > LOCK_WAIT_MS)
            return err_set(err, ERR_AWAY, "another migrate is still running after %d minutes", LOCK_WAIT_MS / 60000);
        if (!was_noted && waited_ms > LOCK_NOTE_MS) {
            fprintf(stderr, "issuing-ctl: another migrate is running; waiting for it\n");
            was_noted = true;
        }
        (void)stop_sleep_until(clock_mono_us() + PAUSE_US);
    }
}

/* Whether the same transaction may succeed a moment later: another session held a lock. */
static bool may_pass_later(const struct err *err)
{
    static const char *const states[] = {"55P03" /* lock_not_available */, "40P01" /* deadlock */,
                                         "40001" /* serialization */};
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        if (err->kind == ERR_DATABASE && err_is_sqlstate(err, states[i]))
            return true;
    return false;
}

static bool note_version(struct ctl *ctl, const struct migration *migration, int64_t ms, struct err *err)
{
    const struct pg_param note[] = {
        pg_param_int8(migration->version),
        pg_param_string(migration->name),
        pg_param_string(migration->sha256),
        pg_param_int8(ms),
    };
    return pg_sync_query(ctl->db, &sql_operator_migrate_note, note, NULL, err);
}

static bool run_text(struct ctl *ctl, const char *file, const char *text, struct err *err)
{
    return pg_sync_exec(ctl->db, text, err) || err_prefix(err, "%s", file);
}

static bool run_roles(struct ctl *ctl, const struct state *state, struct err *err)
{
    (void)state;
    return run_text(ctl, "roles.sql", schema_roles, err);
}

static bool become_place(struct ctl *ctl, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_int8(ctl->place), pg_param_int8(ctl->config->database.places)};
    if (!pg_sync_query(ctl->db, &sql_owner_place_become, params, &rows, err))
        return false;
    const char *why = pg_text(rows, 0, 0);
    return !why || err_set(err, ERR_CONFIG, "%s", why);
}

/* The upgrades that the database lacks, the functions as they are now, the rights. A new database gets the tables as
 * they are now instead of the upgrades. */
static bool run_schema(struct ctl *ctl, const struct state *state, struct err *err)
{
    bool is_new = !state->has_table;
    int64_t started_ms = clock_mono_ms();
    for (int i = 1; i < migrations_count && !is_new; i++) {
        if (find_applied(state, migrations[i].version) >= 0)
            continue;
        int64_t upgrade_ms = clock_mono_ms();
        if (!run_text(ctl, migrations[i].file, migrations[i].text, err) ||
            !note_version(ctl, &migrations[i], clock_mono_ms() - upgrade_ms, err))
            return false;
    }
    for (int i = 0; i < schema_files_count; i++)
        if ((is_new || !schema_files[i].is_once) && !run_text(ctl, schema_files[i].file, schema_files[i].text, err))
            return false;
    if (!run_text(ctl, "grants.sql", schema_grants, err))
        return false;
    for (int i = 0; i < migrations_count && is_new; i++)
        if (!note_version(ctl, &migrations[i], clock_mono_ms() - started_ms, err))
            return false;
    return become_place(ctl, err);
}

typedef bool run_fn(struct ctl *ctl, const struct state *state, struct err *err);

static bool run_once(struct ctl *ctl, run_fn *run, const struct state *state, struct err *err)
{
    const struct pg_param lock_timeout[] = {pg_param_string(LOCK_TIMEOUT)};
    return pg_sync_query(ctl->db, &sql_operator_migrate_begin, NULL, NULL, err) &&
           pg_sync_query(ctl->db, &sql_operator_migrate_lock_timeout, lock_timeout, NULL, err) &&
           run(ctl, state, err) && pg_sync_query(ctl->db, &sql_operator_migrate_commit, NULL, NULL, err);
}

/* One transaction. Other sessions wait behind one that waits for a lock, so it gives up soon and is tried again. */
static bool run_transaction(struct ctl *ctl, const char *what, run_fn *run, const struct state *state, struct err *err)
{
    int64_t started_ms = clock_mono_ms();
    char more[40];
    for (int tries = 1; !run_once(ctl, run, state, err); tries++) {
        bool again = may_pass_later(err) && tries < TRIES_MAX;
        struct err ignored;
        if (err->kind == ERR_DATABASE && !pg_sync_query(ctl->db, &sql_operator_migrate_rollback, NULL, NULL, &ignored))
            again = false;
        if (!again)
            return false;
        fprintf(stderr, "issuing-ctl: the %s wait for a lock that another session holds (%s); retrying\n", what,
                err->sqlstate);
        (void)stop_sleep_until(clock_mono_us() + PAUSE_US * tries);
    }
    snprintf(more, sizeof(more), "%" PRId64 " ms", clock_mono_ms() - started_ms);
    print_step(ctl, "applied", what, more);
    return true;
}

/* Roles that roles.sql could not create are not a failure: the roles that exist are used. */
static bool warn_about_missing_roles(struct ctl *ctl, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(ctl->db, &sql_operator_roles, NULL, &rows, err))
        return false;
    char missing[160] = "";
    for (int row = 0; row < pg_rows_count(rows); row++)
        if (!pg_bool(rows, row, 1))
            snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), " %s", pg_text(rows, row, 0));
    if (missing[0])
        fprintf(stderr,
                "issuing-ctl: roles that are missing, and that the connected role may not create:%s; nothing is "
                "granted to them\n",
                missing);
    return true;
}

/* The tables belong to one role, whichever role is connected. */
static bool become_owner(struct ctl *ctl, struct state *state, struct err *err)
{
    state_done(state);
    if (!read_state(ctl, state, err))
        return false;
    if (!state->owner[0] || strcmp(state->owner, state->connected_as) == 0)
        return true;
    const struct pg_param as[] = {pg_param_string(state->owner)};
    if (!pg_sync_query(ctl->db, &sql_operator_migrate_as, as, NULL, err))
        return false;
    print_step(ctl, "role", state->owner, "owns the tables");
    return true;
}

static bool migrate(struct ctl *ctl, struct state *state, int *ret_applied, struct err *err)
{
    if (!lock_migrations(ctl, err) || !read_state(ctl, state, err) || !check_applied(state, err) ||
        !run_transaction(ctl, "roles", run_roles, state, err) || !warn_about_missing_roles(ctl, err) ||
        !become_owner(ctl, state, err))
        return false;
    *ret_applied = migrations_count - pg_rows_count(state->applied);
    return run_transaction(ctl, "tables, functions and rights", run_schema, state, err);
}

static bool run_all(struct ctl *ctl, struct err *err)
{
    struct state state = {0};
    int applied = 0;
    bool done = migrate(ctl, &state, &applied, err);
    state_done(&state);
    if (done && ctl->json)
        (void)!print_json(JSON_OBJECT(json_number("version", migrations_count), json_number("applied", applied)), err);
    else if (done)
        printf("The schema %s at version %d%s.\n", applied > 0 ? "is" : "was", migrations_count,
               applied > 0 ? "" : " already");
    return done;
}

/* ---- --status and --plan: change nothing, take no lock ---- */

struct line {
    int64_t version;
    const char *name, *state, *sha256, *by;
    int64_t at_us;
};

static void add_line(const struct ctl *ctl, struct table *table, const struct line *line)
{
    char time[PRINT_TIME_SIZE];
    if (ctl->json) {
        table_add_json(table, JSON_OBJECT(json_number("version", line->version), json_text("name", line->name),
                                          json_text("state", line->state), json_text("sha256", line->sha256),
                                          json_time("applied_at", line->at_us), json_text("applied_by", line->by)));
        return;
    }
    table_add_number(table, line->version);
    table_add(table, line->name);
    table_add(table, line->state);
    table_add(table, print_time(line->at_us, time));
    table_add(table, line->by);
}

static struct line line_of(const struct state *state, int row)
{
    return (struct line){
        .version = pg_int8(state->applied, row, VERSION),
        .name = pg_text(state->applied, row, NAME),
        .sha256 = pg_text(state->applied, row, SHA256),
        .by = pg_text(state->applied, row, APPLIED_BY),
        .at_us = pg_time_us(state->applied, row, APPLIED_AT),
    };
}

static bool print_status(const struct ctl *ctl, const struct state *state, struct err *err)
{
    static const char *const heads[] = {"VERSION", "NAME", "STATE", "APPLIED", "BY", NULL};
    struct table table;
    table_init(&table, heads);
    for (int i = 0; i < migrations_count; i++) {
        int row = find_applied(state, migrations[i].version);
        struct line line = row >= 0 ? line_of(state, row) : (struct line){.sha256 = migrations[i].sha256};
        line.version = migrations[i].version;
        line.name = migrations[i].name;
        line.state = row < 0 ? "pending" : checksum_fits(state, row, &migrations[i]) ? "applied" : "edited";
        add_line(ctl, &table, &line);
    }
    for (int row = 0; row < pg_rows_count(state->applied); row++) {
        struct line line = line_of(state, row);
        line.state = "unknown";
        if (!find_migration(line.version))
            add_line(ctl, &table, &line);
    }
    return table_end(&table, err);
}

static bool plan_file(const struct ctl *ctl, const char *file, struct err *err)
{
    if (ctl->json)
        return print_json(JSON_OBJECT(json_text("run", file)), err);
    puts(file);
    return true;
}

static bool print_plan(const struct ctl *ctl, const struct state *state, struct err *err)
{
    bool whole = plan_file(ctl, "roles.sql", err);
    for (int i = 1; i < migrations_count && whole && state->has_table; i++)
        if (find_applied(state, migrations[i].version) < 0)
            whole = plan_file(ctl, migrations[i].file, err);
    for (int i = 0; i < schema_files_count && whole; i++)
        if (!state->has_table || !schema_files[i].is_once)
            whole = plan_file(ctl, schema_files[i].file, err);
    return whole && plan_file(ctl, "grants.sql", err);
}

static bool run_read_only(struct ctl *ctl, bool plan, struct err *err)
{
    struct state state = {0};
    struct err why;
    if (!read_state(ctl, &state, err))
        return false;
    bool fits = check_applied(&state, &why);
    bool whole = plan ? !fits || print_plan(ctl, &state, err) : print_status(ctl, &state, err);
    state_done(&state);
    if (whole && !fits)
        *err = why;
    return whole && fits;
}

/* Lock, role and search_path belong to a session. Behind a pooler the next transaction may run in another session,
 * without them, and they would stay in a session that another client gets. */
static bool check_direct(struct ctl *ctl, struct err *err)
{
    /* guard: migrate is refused behind a pooler */
    return !pg_sync_is_pooled(ctl->db) ||
           err_set(err, ERR_CONFIG,
                   "a pooler is between this program and PostgreSQL, and migrate needs one session from "
                   "its start to its end: name PostgreSQL itself in database.url");
}

/* The session reads the files as they were written. In another encoding a part of what clients may send cannot be
 * stored, and they would repeat it for ever. */
static bool prepare_session(struct ctl *ctl, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(ctl->db, &sql_operator_migrate_settings, NULL, &rows, err))
        return false;
    int64_t version = pg_int8(rows, 0, 1);
    /* guard: migrate refuses a PostgreSQL that is too old */
    if (version / 10000 < POSTGRES_LEAST)
        return err_set(err, ERR_CONFIG, "PostgreSQL %" PRId64 ".%" PRId64 " is too old; use PostgreSQL %d or later",
                       version / 10000, version % 10000, POSTGRES_LEAST);
    const char *encoding = pg_text(rows, 0, 0);
    /* guard: migrate refuses a database that is not UTF8 */
    return strcmp(encoding, "UTF8") == 0 ||
           err_set(err, ERR_CONFIG,
                   "the database has the encoding %s, and must have UTF8: CREATE DATABASE issuing TEMPLATE template0 "
                   "ENCODING 'UTF8'",
                   encoding);
}

static bool run_migrate(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    bool status = false, plan = false;
    const struct option_spec specs[] = {
        {.name = "status", .flag = &status}, {.name = "plan", .flag = &plan}, {.name = NULL}};
    if (!options_alone(specs, "migrate", arguments, count, err))
        return false;
    if (status && plan)
        return err_set(err, ERR_USAGE, "--status or --plan, not both");
    return ctl_connect_only(ctl, err) && check_direct(ctl, err) && prepare_session(ctl, err) &&
           (status || plan ? run_read_only(ctl, plan, err) : run_all(ctl, err));
}

const struct ctl_command ctl_migrate = {
    .word = "migrate",
    .usage = "[--status | --plan]",
    .summary = "bring the schema to what this program expects",
    .help =
        "Creates the roles where it may; then, in one transaction, applies the upgrades that are missing, replaces\n"
        "the functions and grants each role its rights. Run it as a superuser, or as a role that owns the\n"
        "database; twice does no harm, two at once wait for each other. It needs a direct connection, and is\n"
        "refused (exit 78) when a pooler is in between, when the database is not UTF8, when PostgreSQL is older than\n"
        "15, or when a version that was never released made it.\n\n"
        "  --status  which versions are applied, and which are pending\n"
        "  --plan    which files would be run\n\n"
        "Refused (exit 1) when an applied upgrade was edited since, or when the database is newer than this\n"
        "program.\n",
    .run = run_migrate,
    .is_before_schema = true,
};
