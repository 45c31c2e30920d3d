/* issuing-ctl: the operator's tool. It talks to PostgreSQL only.
 *
 * The commands are a table; each has a file of its own. Standard output is the result (a table, or JSON lines),
 * standard error is everything else. Only a bulk action asks a question, and only at a terminal. docs/troubleshoot.md lists the exit codes.
 * Left out: calls to the issuer and core-api, which only workers make. */
#include "ctl/ctl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/config/config_value.h"
#include "common/lib/base/log.h"
#include "common/lib/base/secret.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/pg/pg_conninfo.h"
#include "common/lib/pg/pg_place.h"
#include "ctl/event.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "ctl/role.h"
#include "migrations.h"
#include "statements.h"

#ifndef ISSUING_VERSION
#define ISSUING_VERSION "unversioned"
#endif

static const struct ctl_command help_command, version_command;
static const struct ctl_command *const commands[] = {
    &ctl_migrate,        &ctl_status,   &ctl_list,        &ctl_show,    &ctl_explain,   &ctl_replay,  &ctl_resend,
    &ctl_cancel,         &ctl_resolve,  &ctl_adopt,       &ctl_reissue, &ctl_reconcile, &ctl_workers, &ctl_targets,
    &ctl_pause,          &ctl_resume,   &ctl_probe,       &ctl_route,   &ctl_sender,    &ctl_audit,   &ctl_limits,
    &ctl_stats,          &ctl_keys,     &ctl_place,       &ctl_citus,   &ctl_console,   &ctl_doctor,  &ctl_prove,
    &ctl_accept_history, &help_command, &version_command,
};

/* libpq takes PGUSER only where neither database.url nor a service names a user. */
static void choose_role(void)
{
    char role[ROLE_SIZE];
    if (role_is_ours(role))
        (void)setenv("PGUSER", role, 0);
}

static bool is_role_refused(const struct err *err)
{
    return err->kind == ERR_CONFIG && (strncmp(err->sqlstate, "28", 2) == 0 || err_is_sqlstate(err, "42501"));
}

bool ctl_connect_only(struct ctl *ctl, struct err *err)
{
    const char *url = config_database_url(ctl->config, ctl->database);
    choose_role();
    if (!pg_conninfo_check(url, err) || !pg_conninfo_prove(url, ctl->config->database.allow_insecure, err))
        return err_prefix(err, "database.url");
    if (!pg_sync_open(url ? url : "", "issuing-ctl", &ctl->db, err))
        return err->kind == ERR_AWAY  ? err_prefix(err, "the database is away")
               : is_role_refused(err) ? err_prefix(err, "the database does not let this role in")
               : err->sqlstate[0]     ? err_prefix(err, "no connection to the database")
                                      : false;
    /* guard: a session of ctl has its own search_path from the first statement */
    return pg_sync_query(ctl->db, &sql_operator_session, NULL, NULL, err) && pg_sync_set_up(ctl->db, err) &&
           pg_sync_query(ctl->db, &sql_operator_lock_timeout, NULL, NULL, err);
}

bool ctl_reconnect(struct ctl *ctl, int database, struct err *err)
{
    pg_sync_close(ctl->db);
    ctl->db = NULL;
    ctl->database = database;
    return ctl_connect_only(ctl, err);
}

bool ctl_become_owner(struct ctl *ctl, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(ctl->db, &sql_operator_migrate_state, NULL, &rows, err))
        return false;
    struct slice owner = pg_bytes(rows, 0, 2);
    if (!owner.bytes)
        return err_set(err, ERR_CONFIG, "this needs the owner of the tables, or a superuser, as migrate does");
    const struct pg_param as[] = {pg_param_text(owner.bytes, owner.length)};
    return pg_sync_query(ctl->db, &sql_operator_migrate_as, as, NULL, err);
}

static bool use_place(struct ctl *ctl, int64_t places, struct err *err)
{
    if (ctl->place >= places)
        return err_set(err, ERR_USAGE, "there is no place %" PRId64 ": the database has %" PRId64 "%s", ctl->place,
                       places, places > 1 ? ", the first is 0" : ", which is 0");
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(ctl->db, &sql_operator_place_states, NULL, &rows, err))
        return false;
    /* guard: nobody looks at a place that is not served */
    if (places > 1 && !pg_bool(rows, (int)ctl->place, 5))
        return err_set(err, ERR_REFUSED, "this database does not serve place %" PRId64 ": issuing-ctl place list",
                       ctl->place);
    pg_sync_narrow(ctl->db, (int)ctl->place, (int)places);
    return true;
}

bool ctl_connect(struct ctl *ctl, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!ctl_connect_only(ctl, err))
        return false;
    if (pg_sync_query(ctl->db, &sql_schema_version, NULL, &rows, err)) {
        int64_t version = pg_int8(rows, 0, 0);
        if (version == migrations_count)
            return ctl->place < 0 || use_place(ctl, pg_int8(rows, 0, 5), err);
        return err_set(err, ERR_CONFIG, "the schema has version %" PRId64 ", this program expects %d: %s", version,
                       migrations_count,
                       version < migrations_count ? "run issuing-ctl migrate" : "use the newer issuing-ctl");
    }
    if (err_is_sqlstate(err, "42P01") || err_is_sqlstate(err, "3F000"))
        return err_set(err, ERR_CONFIG, "this database has no schema of ours: run issuing-ctl migrate");
    if (err_is_sqlstate(err, "42501"))
        return err_set(err, ERR_CONFIG, "the role may not read the schema: connect as issuing_operator");
    return false;
}

/* A refusal because of the role or the schema, and not because of what the command does. */
static bool is_configuration(const struct err *err)
{
    return err->kind == ERR_DATABASE &&
           (err_is_sqlstate(err, "42501") || err_is_sqlstate(err, "42P01") || err_is_sqlstate(err, "42703") ||
            err_is_sqlstate(err, "42883") || err_is_sqlstate(err, "3F000"));
}

const char *ctl_hint(const struct err *err)
{
    char role[ROLE_SIZE];
    static const struct {
        enum err_kind kind; /* ERR_CONFIG: of an attempt to connect */
        const char *sqlstate, *hint;
    } hints[] = {
        {ERR_CONFIG, "3D000", "createdb makes it; database.url or PGDATABASE names another one"},
        {ERR_CONFIG, "42704", "correct `options` in database.url, or PGOPTIONS"},
        {ERR_CONFIG, "22023", "correct `options` in database.url, or PGOPTIONS"},
        {ERR_DATABASE, "42P01", "is the schema there? `issuing-ctl migrate` makes it"},
        {ERR_DATABASE, "42703", "the schema is of another release: `issuing-ctl migrate --status` compares them"},
        {ERR_DATABASE, "42501",
         "this role may not do that: connect as issuing_operator (for migrate: as the owner or a superuser)"},
        {ERR_DATABASE, "55P03",
         "another session holds a lock (pg_locks, pg_stat_activity); run the same command again when it is gone"},
        {ERR_DATABASE, "25006", "this server is read-only: add target_session_attrs=read-write to database.url"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
        if (err->kind == hints[i].kind && err_is_sqlstate(err, hints[i].sqlstate))
            return hints[i].hint;
    return is_role_refused(err) ? role_hint(err->sqlstate, role_is_ours(role)) : NULL;
}

int ctl_fail(const struct err *err)
{
    const char *hint = ctl_hint(err);
    char text[sizeof(err->message) + 400];
    snprintf(text, sizeof(text), "%s%s%s", err->message, hint ? "; " : "", hint ? hint : "");
    fflush(stdout);
    log_complain("issuing-ctl", text); /* issuing-migrate.service is one of those who call */
    return is_configuration(err) ? CTL_CONFIG : err_exit_code(err->kind);
}

static void print_commands(FILE *out)
{
    fputs("usage: issuing-ctl [--json] [--config FILE] COMMAND ...\n\n", out);
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        fprintf(out, "  %-14s %s\n", commands[i]->word, commands[i]->summary);
    fputs("\n`issuing-ctl help COMMAND` explains one of them.\n", out);
}

static void print_help(FILE *out)
{
    print_commands(out);
    fputs("--json prints one JSON object a line, for programs. --place N is for status, list, stats, audit and what "
          "acts\n"
          "by filters: users of place N only.\n"
          "Exit codes: 0 done, 1 failed or refused, 2 usage, 75 database away (try again later), 78 configuration.\n"
          "\nConfiguration (--section.key=value, ISSUING_SECTION_KEY, or the file; " CONFIG_DEFAULT_PATH
          " by default):\n",
          out);
    config_help(CONFIG_CTL, out);
}

static void print_command_help(const struct ctl_command *command, FILE *out)
{
    fprintf(out, "usage: issuing-ctl [--json] %s%s%s\n\n%s", command->word, command->usage[0] ? " " : "",
            command->usage, command->help);
}

static const struct ctl_command *find_command(const char *word)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (strcmp(commands[i]->word, word) == 0)
            return commands[i];
    return NULL;
}

static int fail_unknown(const char *word)
{
    const char *nearest = commands[0]->word;
    for (size_t i = 1; i < ARRAY_SIZE(commands); i++)
        if (config_value_distance(commands[i]->word, word) < config_value_distance(nearest, word))
            nearest = commands[i]->word;
    fputs("issuing-ctl: unknown command ", stderr);
    print_text(word, stderr);
    fprintf(stderr, "; the nearest is %s; `issuing-ctl help` lists the commands\n", nearest);
    return CTL_USAGE;
}

static int run_help(struct ctl *ctl, char **arguments, int count)
{
    (void)ctl;
    if (count == 0) {
        print_help(stdout);
        return CTL_DONE;
    }
    const struct ctl_command *command = find_command(arguments[0]);
    if (!command)
        return fail_unknown(arguments[0]);
    if (count > 1) {
        fputs("issuing-ctl: help takes one command\n", stderr);
        return CTL_USAGE;
    }
    print_command_help(command, stdout);
    return CTL_DONE;
}

static const struct ctl_command help_command = {
    .word = "help",
    .usage = "[COMMAND]",
    .summary = "all commands and options, or one command",
    .help = "Without a command: all commands, the exit codes and the options of the configuration.\n",
    .run = run_help,
    .is_of_first = true,
    .ignores_config = true,
};

static int run_version(struct ctl *ctl, char **arguments, int count)
{
    (void)ctl;
    (void)arguments;
    if (count > 0) {
        fputs("issuing-ctl: version takes no argument\n", stderr);
        return CTL_USAGE;
    }
    puts("issuing-ctl " ISSUING_VERSION);
    return CTL_DONE;
}

static const struct ctl_command version_command = {
    .word = "version",
    .usage = "",
    .summary = "the version of this program",
    .help = "Prints the version of this program, as --version does.\n",
    .run = run_version,
    .is_of_first = true,
    .ignores_config = true,
};

/* Takes --json and --place out of the arguments, wherever they stand before "--", which begins plain text. */
static bool take_common(struct ctl *ctl, char **arguments, int *count, struct err *err)
{
    const struct option_spec place = {.name = "place", .number = &ctl->place, .max = PG_PLACES_MAX - 1};
    const struct option_spec specs[] = {place, {.name = NULL}};
    int left = 0;
    for (int i = 0; i < *count; i++) {
        if (strcmp(arguments[i], "--") == 0) {
            while (i < *count)
                arguments[left++] = arguments[i++];
            break;
        }
        bool is_place = strcmp(arguments[i], "--place") == 0 || strncmp(arguments[i], "--place=", 8) == 0;
        if (strcmp(arguments[i], "--json") == 0)
            ctl->json = true;
        else if (!is_place)
            arguments[left++] = arguments[i];
        else if (arguments[i][7] == '=' ? !options_set(specs, "place", arguments[i] + 8, err)
                                        : !options_set(specs, "place", i + 1 < *count ? arguments[++i] : "", err))
            return false;
    }
    *count = left;
    return true;
}

/* ---- several databases ---- */

/* Where the event is that an argument names; -1: it names none, or one that is nowhere. */
static bool find_event(struct ctl *ctl, const char *argument, int *database, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct uuid id;
    if (!uuid_parse(argument, strlen(argument), &id))
        return true;
    const struct pg_param params[] = {pg_param_uuid(&id)};
    if (!pg_sync_query(ctl->db, &sql_operator_has_event, params, &rows, err))
        return false;
    if (pg_bool(rows, 0, 0))
        *database = ctl->database;
    return true;
}

/* Connects to each. are_used: those that are there, and are no replicas. */
static int find_databases(struct ctl *ctl, char **arguments, int count, int *events, bool *are_used)
{
    int code = CTL_DONE;
    for (int database = 0; database < ctl->config->database_count; database++) {
        pg_rows_scope struct pg_rows *rows = NULL;
        struct err err;
        bool is_done =
            ctl_reconnect(ctl, database, &err) && pg_sync_query(ctl->db, &sql_session_server, NULL, &rows, &err);
        are_used[database] = is_done && !pg_bool(rows, 0, 1);
        if (is_done && !are_used[database])
            fprintf(stderr, "issuing-ctl: database %d is a replica, and is left out\n", database);
        for (int i = 0; i < count && are_used[database] && is_done; i++)
            is_done = find_event(ctl, arguments[i], &events[i], &err) || err_is_sqlstate(&err, "42P01");
        if (!is_done)
            code = ctl_fail(&err); /* one that is away does not stop the others */
    }
    return code;
}

/* In each database; an argument that is an event is given to the one that has it. */
static int run_in_each(struct ctl *ctl, const struct ctl_command *command, char **arguments, int count)
{
    bool are_used[CONFIG_PLACES_MAX] = {false};
    int *events = calloc((size_t)count + 1, sizeof(*events));
    char **given = calloc((size_t)count + 1, sizeof(*given));
    for (int i = 0; i < count && events; i++)
        events[i] = -1;
    int code = events && given ? find_databases(ctl, arguments, count, events, are_used) : CTL_REFUSED;
    for (int database = 0; events && given && database < ctl->config->database_count && code != CTL_USAGE; database++) {
        int left = 0;
        bool has_others = false, has_own = false;
        for (int i = 0; i < count; i++) {
            has_own |= events[i] == database;
            has_others |= events[i] >= 0 && events[i] != database;
            /* guard: an event is given to the database that has it */
            if (events[i] < 0 || events[i] == database)
                given[left++] = arguments[i];
        }
        if (!are_used[database] || (has_others && !has_own))
            continue;
        pg_sync_close(ctl->db);
        ctl->db = NULL;
        ctl->database = database;
        fprintf(stderr, "issuing-ctl: database %d\n", database);
        int of_this = command->run(ctl, given, left);
        fflush(stdout);
        code = code == CTL_DONE || of_this == CTL_USAGE ? of_this : code;
    }
    free(events);
    free(given);
    return code;
}

static int run_command(struct ctl *ctl, const struct ctl_command *command, char **arguments, int count)
{
    if (ctl->place >= 0)
        ctl->database = config_database_of(ctl->config, (int)ctl->place);
    return ctl->config->database_count <= 1 || command->is_of_first || ctl->place >= 0
               ? command->run(ctl, arguments, count)
               : run_in_each(ctl, command, arguments, count);
}

static int run(struct config *config)
{
    int count = config->argument_count;
    struct ctl ctl = {.config = config, .place = -1};
    struct err err;
    if (!take_common(&ctl, config->arguments, &count, &err))
        return ctl_fail(&err);
    if (count == 0) {
        if (!config->help)
            print_commands(stderr);
        else
            print_help(stdout);
        return config->help ? CTL_DONE : CTL_USAGE;
    }
    const struct ctl_command *command = find_command(config->arguments[0]);
    if (!command)
        return fail_unknown(config->arguments[0]);
    if (config->help) {
        print_command_help(command, stdout);
        return CTL_DONE;
    }
    if (ctl.place >= 0 && !command->takes_place) {
        err_set(&err, ERR_USAGE, "%s is about all places: it takes no --place", command->word);
        return ctl_fail(&err);
    }
    if (!command->ignores_config && !config_check(config, CONFIG_CTL, &err))
        return ctl_fail(&err);
    event_set_trace_link(config->trace.link);
    int code = run_command(&ctl, command, config->arguments + 1, count - 1);
    if (code == CTL_USAGE)
        fprintf(stderr, "usage: issuing-ctl %s%s%s\n", command->word, command->usage[0] ? " " : "", command->usage);
    pg_sync_close(ctl.db);
    return code;
}

/* Output that could not be written is a failure, such as a full disk behind a redirection. */
static int finish_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "issuing-ctl: standard output could not be written\n");
    return code == CTL_DONE ? CTL_REFUSED : code;
}

int main(int argc, char **argv)
{
    struct config config;
    struct err err;
    secret_protect_process();
    if (!config_load(&config, CONFIG_CTL, argc, argv, &err))
        return ctl_fail(&err);
    int code = CTL_DONE;
    if (config.version) {
        code = run_version(NULL, NULL, 0);
    } else if (config.show) {
        config_show(&config, stdout);
    } else if (config.check_only) {
        if (config_check(&config, CONFIG_CTL, &err))
            puts("the configuration is fine");
        else
            code = ctl_fail(&err);
    } else {
        code = run(&config);
    }
    code = finish_output(code);
    config_done(&config);
    return code;
}
