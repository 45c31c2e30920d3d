/* issuing-ctl: the operator's tool. It talks to PostgreSQL only.
 *
 * The commands are a table; each has a file of its own. Standard output is the result (a table, or JSON lines),
 * standard error is everything else. Only a bulk action asks a question, and only at a terminal. docs/troubleshoot.md
 * lists the exit codes.
 * Left out: calls to the issuer and core-api, which only workers make. */
#include "ctl/ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/secret.h"
#include "common/lib/config/config_value.h"
#include "ctl/event.h"
#include "ctl/places.h"
#include "ctl/print.h"

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
