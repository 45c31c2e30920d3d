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

#include "common/lib/base/log.h"
#include "common/lib/base/secret.h"
#include "common/lib/config/config_value.h"
#include "common/lib/pg/pg_conninfo.h"
#include "common/lib/pg/pg_place.h"
#include "ctl/event.h"
#include "ctl/places.h"
#include "ctl/print.h"
#include "ctl/role.h"
#include "migrations.h"
#include "statements.h"

#ifndef ISSUING_VERSION
#define ISSUING_VERSION "unversioned"
#endif

static const struct ctl_command help_command, version_command;
static const struct ctl_command *const commands[] = {
    &ctl_migrate, &ctl_status,  &ctl_list,    &ctl_show,           &ctl_explain,  &ctl_replay,
    &ctl_resend,  &ctl_cancel,  &ctl_resolve, &ctl_adopt,          &ctl_reissue,  &ctl_reconcile,
    &ctl_workers, &ctl_targets, &ctl_pause,   &ctl_resume,         &ctl_probe,    &ctl_route,
    &ctl_sender,  &ctl_audit,   &ctl_limits,  &ctl_stats,          &ctl_keys,     &ctl_place,
    &ctl_console, &ctl_doctor,  &ctl_prove,   &ctl_accept_history, &help_command, &version_command,
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

/* host -1: any. */
static bool connect_to(struct ctl *ctl, int host, int *ret_hosts, struct err *err)
{
    const char *url = config_database_url(ctl->config, ctl->place);
    choose_role();
    if (!pg_conninfo_check(url, err) || !pg_conninfo_prove(url, ctl->config->database.allow_insecure, err))
        return err_prefix(err, "database.url");
    pg_sync_close(ctl->db);
    ctl->db = NULL;
    if (host < 0 ? !pg_sync_open(url ? url : "", "issuing-ctl", &ctl->db, err)
                 : !pg_sync_open_host(url ? url : "", "issuing-ctl", host, ret_hosts, &ctl->db, err))
        return err->kind == ERR_AWAY  ? err_prefix(err, "the database is away")
               : is_role_refused(err) ? err_prefix(err, "the database does not let this role in")
               : err->sqlstate[0]     ? err_prefix(err, "no connection to the database")
                                      : false;
    /* guard: a session of ctl has its own search_path from the first statement */
    return pg_sync_query(ctl->db, &sql_operator_session, NULL, NULL, err) && pg_sync_set_up(ctl->db, err) &&
           pg_sync_query(ctl->db, &sql_operator_lock_timeout, NULL, NULL, err);
}

bool ctl_connect_only(struct ctl *ctl, struct err *err)
{
    return connect_to(ctl, -1, NULL, err);
}

bool ctl_connect_host(struct ctl *ctl, int host, int *ret_hosts, struct err *err)
{
    return connect_to(ctl, host, ret_hosts, err);
}

/* *ret_is_elsewhere: the server is not the home of the place. */
static bool check_schema(struct ctl *ctl, bool *ret_is_elsewhere, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    *ret_is_elsewhere = false;
    if (pg_sync_query(ctl->db, &sql_schema_version, NULL, &rows, err)) {
        int64_t version = pg_int8(rows, 0, 0);
        char text[PG_FAULT_SIZE];
        if (version != migrations_count)
            return err_set(err, ERR_CONFIG, "the schema has version %" PRId64 ", this program expects %d: %s", version,
                           migrations_count,
                           version < migrations_count ? "run issuing-ctl migrate" : "use the newer issuing-ctl");
        enum pg_place_fit fit = pg_place_check(rows, ctl->place, (int)ctl->config->database.places, text);
        *ret_is_elsewhere = fit == PG_PLACE_ELSEWHERE;
        return fit == PG_PLACE_FITS || err_set(err, *ret_is_elsewhere ? ERR_AWAY : ERR_CONFIG, "%s", text);
    }
    if (err_is_sqlstate(err, "42P01") || err_is_sqlstate(err, "3F000"))
        return err_set(err, ERR_CONFIG, "this database has no schema of ours: run issuing-ctl migrate");
    if (err_is_sqlstate(err, "42501"))
        return err_set(err, ERR_CONFIG, "the role may not read the schema: connect as issuing_operator");
    return false;
}

/* Among the servers of database.url. */
static bool find_home(struct ctl *ctl)
{
    int hosts = 1;
    for (int host = 0; host < hosts; host++) {
        pg_rows_scope struct pg_rows *rows = NULL;
        struct err err;
        bool is_elsewhere;
        if (connect_to(ctl, host, &hosts, &err) && check_schema(ctl, &is_elsewhere, &err) &&
            pg_sync_query(ctl->db, &sql_session_server, NULL, &rows, &err) && !pg_bool(rows, 0, 1))
            return true;
    }
    return false;
}

bool ctl_connect(struct ctl *ctl, struct err *err)
{
    bool is_elsewhere;
    return ctl_connect_only(ctl, err) && (check_schema(ctl, &is_elsewhere, err) || (is_elsewhere && find_home(ctl)));
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
        enum err_kind kind; /* ERR_CONFIG, ERR_AWAY: of an attempt to connect */
        const char *sqlstate, *hint;
    } hints[] = {
        {ERR_CONFIG, "3D000", "createdb makes it; database.url or PGDATABASE names another one"},
        {ERR_CONFIG, "55000", "ALTER DATABASE ... ALLOW_CONNECTIONS true, once nobody needs it closed"},
        {ERR_AWAY, "53300",
         "pg_stat_activity shows who holds the connections; max_connections, or CONNECTION LIMIT of the role or the "
         "database, is how many there may be"},
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
    fputs("--json prints one JSON object a line, for programs. Where users are divided over places, --place N works in "
          "one\nof them, --place all in each.\n"
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

static bool run_help(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    if (count == 0) {
        print_help(stdout);
        return true;
    }
    const struct ctl_command *command = find_command(arguments[0]);
    if (!command) {
        ctl->code = fail_unknown(arguments[0]);
        return true;
    }
    if (count > 1)
        return err_set(err, ERR_USAGE, "help takes one command");
    print_command_help(command, stdout);
    return true;
}

static const struct ctl_command help_command = {
    .word = "help",
    .usage = "[COMMAND]",
    .summary = "all commands and options, or one command",
    .help = "Without a command: all commands, the exit codes and the options of the configuration.\n",
    .run = run_help,
    .ignores_config = true,
};

static bool run_version(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    (void)ctl;
    (void)arguments;
    if (count > 0)
        return err_set(err, ERR_USAGE, "version takes no argument");
    puts("issuing-ctl " ISSUING_VERSION);
    return true;
}

static const struct ctl_command version_command = {
    .word = "version",
    .usage = "",
    .summary = "the version of this program",
    .help = "Prints the version of this program, as --version does.\n",
    .run = run_version,
    .ignores_config = true,
};

/* Takes --json and --place out of the arguments, wherever they stand before "--", which begins plain text. */
static bool take_common(struct ctl *ctl, char **arguments, int *count, const char **ret_place, struct err *err)
{
    int left = 0;
    for (int i = 0; i < *count; i++) {
        if (strcmp(arguments[i], "--") == 0) {
            while (i < *count)
                arguments[left++] = arguments[i++];
            break;
        }
        if (strcmp(arguments[i], "--json") == 0)
            ctl->json = true;
        else if (strncmp(arguments[i], "--place=", 8) == 0)
            *ret_place = arguments[i] + 8;
        else if (strcmp(arguments[i], "--place") != 0)
            arguments[left++] = arguments[i];
        else if (i + 1 == *count)
            return err_set(err, ERR_USAGE, "--place needs a number, or all");
        else
            *ret_place = arguments[++i];
    }
    *count = left;
    return true;
}

static int run(struct config *config)
{
    int count = config->argument_count;
    struct ctl ctl = {.config = config};
    const char *place = NULL;
    struct err err;
    if (!take_common(&ctl, config->arguments, &count, &place, &err))
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
    if (!command->ignores_config && !config_check(config, CONFIG_CTL, &err))
        return ctl_fail(&err);
    event_set_trace_link(config->trace.link);
    ctl.command = command;
    if (!places_run(&ctl, place, config->arguments + 1, count - 1, &err))
        ctl.code = ctl_fail(&err);
    if (ctl.code == CTL_USAGE)
        fprintf(stderr, "usage: issuing-ctl %s%s%s\n", command->word, command->usage[0] ? " " : "", command->usage);
    pg_sync_close(ctl.db);
    return ctl.code;
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
        puts("issuing-ctl " ISSUING_VERSION);
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
